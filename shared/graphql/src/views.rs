//! Queries over the read model of records: rows that follow the change feed. Each list is one read of an index.

use async_graphql::{
    ComplexObject, Context, Object, Result, SimpleObject,
    connection::{Connection, Edge},
};
use nameservice_http::page;
use nameservice_model::{Address, Cursor};
use nameservice_projector::records::{By, Due, RecordQuery, RecordRow};

use crate::{
    context::{caller, failed, service},
    errors::problem,
    objects::{Record, record},
    pages::{Page, cursor, limit},
    scalars::{Kind, Long},
};

/// A record in a list of the read model: its watermarks, its state and its lease, as of a recent position of the feed.
#[derive(SimpleObject)]
#[graphql(complex, name = "RecordRow")]
pub(crate) struct Row {
    /// `name:branch`.
    address: String,
    /// What it describes.
    kind: Kind,
    /// The part of the address before the `:`.
    name: String,
    /// The part of the address after the `:`.
    branch: String,
    /// Soft-deleted.
    retracted: bool,
    /// The branch it was created from.
    source_branch: Option<String>,
    /// The type of a graph source.
    source_type: Option<String>,
    /// What a graph source depends on.
    dependencies: Vec<String>,
    /// The latest commit; null before the first, and for graph sources.
    commit_id: Option<String>,
    /// The `t` of the latest commit; 0 before the first, and for graph sources.
    commit_t: Long,
    /// The latest index root; null before the first.
    index_id: Option<String>,
    /// The `t` of the latest index; 0 before the first.
    index_t: Long,
    /// The state.
    state: String,
    /// The version of the status.
    status_v: Long,
    /// The version of the configuration.
    config_v: Long,
    /// The name of the lease, whether it has expired or not.
    lease: Option<String>,
    /// Who holds it.
    holder: Option<String>,
    /// When it expires, in seconds since 1970.
    lease_expires_at: Option<Long>,
    /// How many commits the index may be behind.
    index_threshold: Long,
    /// Whether the record is a live ledger whose index is at least `indexThreshold` commits behind.
    is_index_due: bool,
}

impl Row {
    fn of(address: &Address, row: RecordRow) -> Self {
        Self {
            address: address.as_str().to_owned(),
            kind: row.kind.into(),
            name: row.name,
            branch: row.branch,
            retracted: row.retracted,
            source_branch: row.source_branch,
            source_type: row.source_type,
            dependencies: row.dependencies,
            commit_id: row.commit_id,
            commit_t: row.commit_t.into(),
            index_id: row.index_id,
            index_t: row.index_t.into(),
            state: row.state,
            status_v: row.status_v.into(),
            config_v: row.config_v.into(),
            lease: row.lease,
            holder: row.holder,
            lease_expires_at: row.lease_expires_at.map(Long),
            index_threshold: row.index_threshold.into(),
            is_index_due: row.due == Some(Due::Index),
        }
    }
}

#[ComplexObject]
impl Row {
    /// The whole record, as it is now; null if it no longer exists.
    #[graphql(complexity = "10 + child_complexity")]
    async fn record(&self, context: &Context<'_>) -> Result<Option<Record>> {
        record(context, &Address::stored(&*self.address)).await
    }
}

/// Reads a page of a list, which includes every change that was in the feed before the read.
async fn rows(
    context: &Context<'_>,
    by: By,
    prefix: Option<String>,
    first: i32,
    after: Option<String>,
) -> Result<Page<Row>> {
    let visible = |address: &Address| caller(context).sees(address);
    let after = cursor(after.as_deref())?.map(|after| Address::stored(after.after()));
    let prefix = page::prefix(prefix).map_err(problem)?.unwrap_or_default();
    let query = RecordQuery { by, prefix, after, limit: limit(first)? };
    let page = service(context).views.records(&query, &visible).await.map_err(|error| failed(context, error))?;
    let mut connection = Connection::new(query.after.is_some(), page.has_more);
    connection.edges.extend(page.rows.into_iter().map(|(address, row)| {
        let cursor = Cursor::after_row(row.kind, address.as_str());
        Edge::new(cursor.encode(), Row::of(&address, row))
    }));
    Ok(connection)
}

/// What is read from the read model.
pub(crate) struct Views;

#[Object]
impl Views {
    /// Records of a kind, by address.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn records_by_kind(
        &self,
        context: &Context<'_>,
        kind: Kind,
        #[graphql(desc = "Only addresses that begin with this.")] prefix: Option<String>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Row>> {
        rows(context, By::Kind(kind.into()), prefix, first, after).await
    }

    /// Records in a state, by address.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn records_by_state(
        &self,
        context: &Context<'_>,
        state: String,
        #[graphql(desc = "Only addresses that begin with this.")] prefix: Option<String>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Row>> {
        rows(context, By::State(state), prefix, first, after).await
    }

    /// Graph sources of a type, by address.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn records_by_source_type(
        &self,
        context: &Context<'_>,
        source_type: String,
        #[graphql(desc = "Only addresses that begin with this.")] prefix: Option<String>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Row>> {
        rows(context, By::SourceType(source_type), prefix, first, after).await
    }

    /// Records with a lease of this holder, expired or not, by address.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn records_by_holder(
        &self,
        context: &Context<'_>,
        holder: String,
        #[graphql(desc = "Only addresses that begin with this.")] prefix: Option<String>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Row>> {
        rows(context, By::Holder(holder), prefix, first, after).await
    }

    /// Live ledgers whose index is as far behind as their `index_threshold`, by address.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn index_due(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only addresses that begin with this.")] prefix: Option<String>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Row>> {
        rows(context, By::IndexDue, prefix, first, after).await
    }
}
