//! Queries.

use async_graphql::{
    Context, InputObject, MergedObject, Object, Result,
    connection::{Connection, Edge},
};
use nameservice_api as api;
use nameservice_http::{Problem, page};
use nameservice_model::{Address, Cursor, Limit, ListQuery, Listed, Run, SearchQuery, SearchWords};

use crate::{
    context::{budget, caller, failed, parse, service},
    errors::problem,
    objects::{Change, Hit, Record, changes_of, record, shown},
    pages::{Page, cursor, limit, position, search_cursor},
    scalars::{Kind, Long},
    views::Views,
};

/// How many times the feed is read in search of a change that the caller may see.
const SCANS: usize = 100;
/// How many changes each of these reads returns.
const SCAN: Limit = match Limit::new(1_000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

/// What can be read.
#[derive(MergedObject)]
#[graphql(name = "Query")]
pub(crate) struct Query(pub(crate) Queries, pub(crate) Views);

/// What is read from the backend.
pub(crate) struct Queries;

/// The records that a list contains.
#[derive(InputObject, Default)]
pub(crate) struct RecordFilter {
    /// Only this kind.
    kind: Option<Kind>,
    /// Only the branches of this name.
    name: Option<String>,
    /// Only addresses that begin with this.
    prefix: Option<String>,
    /// Only graph sources of this type.
    source_type: Option<String>,
    /// Only records in this state.
    state: Option<String>,
    /// Only retracted, or only live records.
    retracted: Option<bool>,
}

/// Reads the feed until there are changes that the caller may see, and returns at most `limit` of them.
async fn visible_changes(context: &Context<'_>, begin: Option<u64>, limit: Limit) -> Result<Page<Change>> {
    let (service, caller) = (service(context), caller(context));
    let (mut after, has_previous) = (begin.unwrap_or(0), begin.is_some_and(|begin| begin > 0));
    for scan in 0..SCANS {
        // The first read is no larger than the page: if everything is visible, nothing is read in vain.
        let count = if scan == 0 { limit } else { SCAN };
        let changes = match service.feed.changes(after, count).await.map_err(|error| failed(context, error))? {
            Run::Changes(changes) => changes,
            Run::Gone { oldest } if begin.is_none() && after + 1 < oldest => {
                after = oldest - 1;
                continue;
            }
            Run::Gone { oldest } => return Err(problem(Problem::gone(service.feed.as_ref(), after, oldest).await)),
        };
        let Some(last) = changes.last().map(|last| last.position) else {
            return changes_of(context, Vec::new(), has_previous, false);
        };
        let seen = changes.iter().filter(|change| caller.sees(&change.address));
        let mut seen: Vec<_> = seen.map(api::changes::Change::from).collect();
        if !seen.is_empty() {
            let has_next = changes.len() == count.get()
                || seen.len() > limit.get()
                || last < service.feed.position().await.map_err(|error| failed(context, error))?;
            seen.truncate(limit.get());
            return changes_of(context, seen, has_previous, has_next);
        }
        // A page without edges has no cursor to continue from.
        after = last;
    }
    let reason =
        format!("nothing that this token covers is in the changes up to {after}: continue after that position");
    Err(problem(Problem::invalid_parameter("after", reason)))
}

#[Object]
impl Queries {
    /// The record of an address, `name:branch`; `mydb` means `mydb:main`. Null if there is none.
    #[graphql(complexity = "10 + child_complexity")]
    async fn record(&self, context: &Context<'_>, address: String) -> Result<Option<Record>> {
        record(context, &parse(&address)?).await
    }

    /// Records, in the order of lists.
    #[graphql(complexity = "100 + first.clamp(1, 200) as usize * child_complexity")]
    async fn records(
        &self,
        context: &Context<'_>,
        filter: Option<RecordFilter>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Record>> {
        let filter = filter.unwrap_or_default();
        let visible = |address: &Address| caller(context).sees(address);
        let (limit, after) = (limit(first)?, cursor(after.as_deref())?);
        let has_previous = after.is_some();
        let query = ListQuery {
            kind: filter.kind.map(Into::into),
            name: filter.name,
            prefix: page::prefix(filter.prefix).map_err(problem)?,
            source_type: filter.source_type,
            state: filter.state,
            retracted: filter.retracted,
            full: true,
            limit,
            cursor: after,
        };
        let names = &service(context).names;
        let page = names.list(&query, &visible).await.map_err(|error| failed(context, error))?;
        let records = page.items.into_iter().filter_map(|listed| match listed {
            Listed::Full(record) => Some((Cursor::after_row(record.kind, record.address.as_str()), *record)),
            Listed::Summary(_) => None,
        });
        let records = records.map(|(cursor, record)| (cursor, shown(context, record))).collect();
        // A list that does not fit the answer ends earlier.
        let (records, is_cut) = budget(context).fit(records, |(_, record)| record)?;
        let mut connection = Connection::new(has_previous, page.cursor.is_some() || is_cut);
        let edge = |(cursor, record): (Cursor, api::Record)| Edge::new(cursor.encode(), Record::from(record));
        connection.edges.extend(records.into_iter().map(edge));
        Ok(connection)
    }

    /// Records that contain all words of a text in address, type, state or configuration, best matches first.
    #[graphql(complexity = "1000 + first.clamp(1, 200) as usize * child_complexity")]
    #[allow(clippy::too_many_arguments, reason = "they are the field's")]
    async fn search(
        &self,
        context: &Context<'_>,
        q: String,
        kind: Option<Kind>,
        source_type: Option<String>,
        state: Option<String>,
        #[graphql(default = 20, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Hit>> {
        let words = SearchWords::parse(&q).map_err(|reason| problem(Problem::invalid_parameter("q", reason)))?;
        let cursor = search_cursor(after.as_deref())?;
        let has_previous = cursor.is_some();
        let query = SearchQuery { words, kind: kind.map(Into::into), source_type, state, limit: limit(first)?, cursor };
        let visible = |address: &Address| caller(context).sees(address);
        let page = service(context).names.search(&query, &visible).await.map_err(|error| failed(context, error))?;
        let mut connection = Connection::new(has_previous, page.cursor.is_some());
        let hits = page.items.iter();
        connection.edges.extend(hits.map(|hit| Edge::new(hit.cursor().encode(), Hit::from(api::Hit::from(hit)))));
        Ok(connection)
    }

    /// Changes of the feed after a cursor, which is a position; without one, from the oldest.
    #[graphql(complexity = "500 + first.clamp(1, 200) as usize * child_complexity")]
    async fn changes(
        &self,
        context: &Context<'_>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Change>> {
        Problem::unless_followed(service(context).feed.as_ref()).map_err(problem)?;
        let begin = after.as_deref().map(|after| position(Some(after))).transpose()?;
        visible_changes(context, begin, limit(first)?).await
    }

    /// The position of the last change in the feed.
    async fn position(&self, context: &Context<'_>) -> Result<Long> {
        Ok(service(context).feed.position().await.map_err(|error| failed(context, error))?.into())
    }
}
