//! Queries.

use async_graphql::{
    Context, InputObject, Object, Result,
    connection::{Connection, Edge, EmptyFields},
};
use nameservice_api as api;
use nameservice_http::Problem;
use nameservice_model::{
    self as model, Address, Cursor, Limit, ListQuery, Listed, Run, SearchQuery, SearchWords,
};
use nameservice_projector::records::{By, RecordQuery};

use crate::{
    context::{caller, failed, parse, refused, service},
    objects::{Change, Hit, Record, edge, position},
    scalars::{Kind, Long},
};

type Page<T> = Connection<String, T, EmptyFields, EmptyFields>;

/// What can be read.
pub(crate) struct Query;

/// Which records a list shall contain.
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
    /// Only records with a lease of this holder, expired or not. It goes with `prefix` alone.
    holder: Option<String>,
    /// Only live ledgers whose index is as far behind as their `index_threshold`. It goes with `prefix` alone.
    index_due: Option<bool>,
}

impl RecordFilter {
    /// The list of the read model that is asked for, if it is one.
    fn view(&self) -> Result<Option<By>> {
        let by = match (&self.holder, self.index_due) {
            (None, None | Some(false)) => return Ok(None),
            (Some(_), Some(true)) => None,
            (Some(holder), _) => Some(By::Holder(holder.clone())),
            (None, Some(true)) => Some(By::IndexDue),
        };
        let Self { kind, name, source_type, state, retracted, .. } = self;
        let is_alone =
            kind.is_none() && name.is_none() && source_type.is_none() && state.is_none() && retracted.is_none();
        match by.filter(|_| is_alone) {
            Some(by) => Ok(Some(by)),
            None => Err(refused(Problem::invalid_parameter("filter", "`holder` and `indexDue` go with `prefix` alone"))),
        }
    }
}

fn limit(first: i32) -> Result<Limit> {
    Ok(Limit::new(usize::try_from(first).unwrap_or(1))?)
}

fn cursor(after: Option<&str>) -> Result<Option<Cursor>> {
    after.map(Cursor::decode).transpose().map_err(refused)
}

/// The record as the caller may see it.
pub(crate) async fn record(context: &Context<'_>, address: &Address) -> Result<Option<Record>> {
    let caller = caller(context);
    if !caller.sees(address) {
        return Ok(None);
    }
    let found = service(context).names.lookup(address).await.map_err(failed)?;
    Ok(found.map(|record| shown(context, record)))
}

pub(crate) fn shown(context: &Context<'_>, record: model::Record) -> Record {
    api::Record::from(&caller(context).allowed().shown(record)).into()
}

#[Object]
impl Query {
    /// The record of an address, `name:branch`; `mydb` means `mydb:main`. Null where there is none.
    async fn record(&self, context: &Context<'_>, address: String) -> Result<Option<Record>> {
        record(context, &parse(&address)?).await
    }

    /// Records, in the order of lists.
    #[graphql(complexity = "first.clamp(1, 200) as usize * child_complexity + 1")]
    async fn records(
        &self,
        context: &Context<'_>,
        filter: Option<RecordFilter>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Record>> {
        let (service, caller, filter) = (service(context), caller(context), filter.unwrap_or_default());
        let visible = |address: &Address| caller.sees(address);
        let (limit, after) = (limit(first)?, cursor(after.as_deref())?);
        let has_previous = after.is_some();
        if let Some(by) = filter.view()? {
            let after = after.map(|after| Address::stored(after.after()));
            let query = RecordQuery { by, prefix: filter.prefix.unwrap_or_default(), after, limit };
            let page = service.views.records(&query, &visible).await.map_err(failed)?;
            let addresses: Vec<Address> = page.rows.iter().map(|(address, _)| address.clone()).collect();
            let records = service.names.lookup_all(&addresses).await.map_err(failed)?;
            let mut connection = Connection::new(has_previous, page.has_more);
            connection.edges.extend(records.into_iter().map(|record| {
                let cursor = Cursor::after_row(record.kind, record.address.as_str());
                Edge::new(cursor.encode(), shown(context, record))
            }));
            return Ok(connection);
        }
        let query = ListQuery {
            kind: filter.kind.map(Into::into),
            name: filter.name,
            prefix: filter.prefix,
            source_type: filter.source_type,
            state: filter.state,
            retracted: filter.retracted,
            full: true,
            limit,
            cursor: after,
        };
        let page = service.names.list(&query, &visible).await.map_err(failed)?;
        let mut connection = Connection::new(has_previous, page.cursor.is_some());
        for listed in page.items {
            let cursor = listed.cursor();
            if let Listed::Full(record) = listed {
                connection.edges.push(Edge::new(cursor.encode(), shown(context, *record)));
            }
        }
        Ok(connection)
    }

    /// Records that contain all words of a text in address, type, state or configuration, the best first.
    #[graphql(complexity = "first.clamp(1, 200) as usize * child_complexity + 1")]
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
        let words = SearchWords::parse(&q).map_err(|reason| refused(Problem::invalid_parameter("q", reason)))?;
        let cursor = cursor(after.as_deref())?;
        let has_previous = cursor.is_some();
        let query =
            SearchQuery { words, kind: kind.map(Into::into), source_type, state, limit: limit(first)?, cursor };
        let visible = |address: &Address| caller(context).sees(address);
        let page = service(context).names.search(&query, &visible).await.map_err(failed)?;
        let mut connection = Connection::new(has_previous, page.cursor.is_some());
        let hits = page.items.iter();
        connection.edges.extend(hits.map(|hit| Edge::new(hit.cursor().encode(), Hit::from(api::Hit::from(hit)))));
        Ok(connection)
    }

    /// Changes of the feed after a cursor, which is a position; without one, from the oldest.
    #[graphql(complexity = "first.clamp(1, 200) as usize * child_complexity + 1")]
    async fn changes(
        &self,
        context: &Context<'_>,
        #[graphql(default = 50, validator(minimum = 1, maximum = 200))] first: i32,
        after: Option<String>,
    ) -> Result<Page<Change>> {
        let (service, caller) = (service(context), caller(context));
        let mut begin = position(after.as_deref())?;
        let limit = limit(first)?;
        let has_previous = begin > 0;
        loop {
            let changes = match service.feed.changes(begin, limit).await.map_err(failed)? {
                Run::Changes(changes) => changes,
                Run::Gone { oldest } if after.is_none() && begin + 1 < oldest => {
                    begin = oldest - 1;
                    continue;
                }
                Run::Gone { oldest } => {
                    return Err(refused(Problem::gone(service.feed.as_ref(), begin, oldest).await));
                }
            };
            let seen: Vec<_> = changes.iter().filter(|change| caller.sees(&change.address)).map(edge).collect();
            let last = changes.last().map(|last| last.position);
            if let (true, Some(last)) = (seen.is_empty(), last) {
                // A page without edges has no cursor to continue from.
                begin = last;
                continue;
            }
            let mut connection = Connection::new(has_previous, changes.len() == limit.get());
            connection.edges = seen;
            return Ok(connection);
        }
    }

    /// The position of the last change in the feed.
    async fn position(&self, context: &Context<'_>) -> Result<Long> {
        Ok(service(context).feed.position().await.map_err(failed)?.into())
    }
}
