//! Lists by index, and consistent snapshots.

use std::sync::atomic::Ordering;

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_model::{
    Address, ConcernKind, Cursor, Error, Limit, ListQuery, Listed, Page, Record, RecordKind, Result, StatusPayload,
    Summary, Visible,
};

use crate::{
    Store,
    batches::{Assembly, Wanted, start_key},
    client::of_table,
    items::{self, Item, RecordItems, string},
    schema::*,
};

const LIST: &str = "list records";
const SNAPSHOT: &str = "read a snapshot";
const DEPENDENTS: &str = "list dependents";

/// A page ends once it has about this many bytes: answers stay below 4 MiB and memory below a small function's.
const PAGE_BYTES: usize = 3 * 1024 * 1024;

/// How many branches are read per page when dependents are listed.
const BRANCHES_PAGE: usize = 1_000;

/// What the keys of virtual graphs begin with.
const VIRTUAL_GRAPH: &str = "vg:";
/// How many of them are looked for in one request.
const VIRTUAL_GRAPHS_PAGE: usize = 500;

/// Sorts after every sort key of a record.
const AFTER_ALL_SKS: &str = "~";

/// A query of one partition of an index.
#[derive(Clone, Debug)]
struct Run {
    index: SecondaryIndex,
    hash: String,
    /// The kind of all records that it finds; `None` if the index does not say.
    kind: Option<RecordKind>,
    /// The sort key of the items that it finds.
    sk: &'static str,
}

impl Run {
    fn by_kind(kind: RecordKind) -> Self {
        Self { index: INDEXES[0], hash: kind.as_str().to_owned(), kind: Some(kind), sk: SK_META }
    }
}

/// One page of an index.
struct Hits {
    items: Vec<Item>,
    more: bool,
}

impl Store {
    pub(crate) async fn list_records(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        let mut page = Page { items: Vec::new(), cursor: None };
        let Some(beginning) = query.beginning() else { return Ok(page) };
        let mut start = query.cursor.clone();
        let mut runs = self.runs(query);
        let mut next = begin(&runs, start.as_ref());
        while let Some(run) = runs.get(next).cloned() {
            // One entry more than wanted shows whether more follow.
            let limit = query.limit.get() - page.items.len() + 1;
            let Some(hits) = self.query_index(&run, &beginning, start.as_ref(), limit).await? else {
                // A table without that index (one that Fluree made): filter the lists by kind instead.
                self.only_kind_index.store(true, Ordering::Relaxed);
                (runs, start) = (self.runs(query), query.cursor.clone());
                next = begin(&runs, start.as_ref());
                continue;
            };
            start = hits
                .items
                .last()
                .map(|item| Cursor::after_row(run.kind.unwrap_or(RecordKind::Ledger), items::pk(item)));
            let entries = self.entries(&run, query, &hits.items, visible).await?;
            for listed in entries.listed {
                if page.items.len() == query.limit.get() {
                    page.cursor = page.items.last().map(Listed::cursor);
                    return Ok(page);
                }
                page.items.push(listed);
            }
            if entries.cut {
                page.cursor = page.items.last().map(Listed::cursor);
                return Ok(page);
            }
            if !hits.more {
                (next, start) = (next + 1, None);
            }
        }
        Ok(page)
    }

    /// Returns the keys of graph sources that are not addresses: `vg:NAME:BRANCH`, virtual graphs of an older layout.
    /// Lists and snapshots leave them out.
    pub async fn virtual_graphs(&self) -> Result<Vec<Address>> {
        let run = Run::by_kind(RecordKind::GraphSource);
        let (mut found, mut start) = (Vec::new(), None);
        loop {
            let hits = self.query_index(&run, VIRTUAL_GRAPH, start.as_ref(), VIRTUAL_GRAPHS_PAGE).await?;
            let Some(Hits { items, more }) = hits else { return Ok(found) };
            found.extend(items.iter().map(|item| Address::stored(items::pk(item))));
            start = items.last().map(|item| Cursor::after_row(RecordKind::GraphSource, items::pk(item)));
            if !more || start.is_none() {
                return Ok(found);
            }
        }
    }

    /// Returns the runs that together find what the query asks for, through the most selective index of the table.
    fn runs(&self, query: &ListQuery) -> Vec<Run> {
        let kinds = || RecordKind::ALL.into_iter().filter(|kind| query.kind.is_none_or(|wanted| wanted == *kind));
        if !self.only_kind_index.load(Ordering::Relaxed) {
            if let Some(source_type) = &query.source_type {
                let kind = kinds().find(|kind| *kind == RecordKind::GraphSource);
                let run = |kind| Run { index: INDEXES[1], hash: source_type.clone(), kind: Some(kind), sk: SK_META };
                return kind.into_iter().map(run).collect();
            }
            // Rows without a status are `ready` too, and in no index; nearly all records are.
            if let Some(state) = query.state.as_ref().filter(|state| *state != StatusPayload::READY) {
                let sk = sk_of(ConcernKind::Status);
                return vec![Run { index: INDEXES[2], hash: state.clone(), kind: None, sk }];
            }
        }
        kinds().map(Run::by_kind).collect()
    }

    /// Reads one page of an index; `None` if the table has no such index.
    async fn query_index(
        &self,
        run: &Run,
        beginning: &str,
        start: Option<&Cursor>,
        limit: usize,
    ) -> Result<Option<Hits>> {
        let mut start = start;
        // The cursor of another list may be outside the addresses of this one. DynamoDB rejects such a start key.
        if let Some(cursor) = start.filter(|cursor| !cursor.after().starts_with(beginning)) {
            if cursor.after() > beginning {
                return Ok(Some(Hits { items: Vec::new(), more: false }));
            }
            start = None;
        }
        let mut request = self
            .sender
            .client()
            .query()
            .table_name(self.sender.table())
            .index_name(run.index.name)
            .expression_attribute_names("#hash", run.index.hash)
            .expression_attribute_values(":hash", string(&run.hash))
            .set_exclusive_start_key(
                start.map(|cursor| start_key(Some((run.index.hash, &run.hash)), cursor.after(), run.sk)),
            )
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        request = match beginning {
            "" => request.key_condition_expression("#hash = :hash"),
            beginning => request
                .key_condition_expression("#hash = :hash AND begins_with(#pk, :beginning)")
                .expression_attribute_names("#pk", ATTR_PK)
                .expression_attribute_values(":beginning", string(beginning)),
        };
        match self.sender.read(LIST, || request.clone().send()).await.map_err(of_table) {
            Ok(output) => {
                let more = output.last_evaluated_key.is_some_and(|key| !key.is_empty());
                Ok(Some(Hits { items: output.items.unwrap_or_default(), more }))
            }
            Err(error) if run.index.name != GSI_KIND && lacks_index(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the entries of a page of an index: filtered, and read whole if the query needs more than the index
    /// carries.
    async fn entries(&self, run: &Run, query: &ListQuery, hits: &[Item], visible: Visible<'_>) -> Result<Entries> {
        let matches = |summary: &Summary| {
            query.kind.is_none_or(|kind| kind == summary.kind)
                && query.retracted.is_none_or(|retracted| retracted == summary.retracted)
                && query.source_type.as_ref().is_none_or(|wanted| Some(wanted) == summary.source_type.as_ref())
        };
        let may_list = |address: &Address| address.is_well_formed() && visible(address);
        let summaries = hits.iter().filter_map(|hit| {
            let mut summary = items::summary(hit, run.kind?);
            if run.index.name == GSI_SOURCE_TYPE {
                summary.source_type.get_or_insert_with(|| run.hash.clone());
            }
            Some(summary)
        });
        let needs_records = query.full || query.state.is_some() || run.kind.is_none();
        if !needs_records {
            let listed = summaries.filter(|s| matches(s) && may_list(&s.address)).map(Listed::Summary).collect();
            return Ok(Entries { listed, cut: false });
        }
        let wanted: Vec<Wanted> = match run.kind {
            Some(kind) => {
                summaries.filter(|s| matches(s) && may_list(&s.address)).map(|s| (s.address, Some(kind))).collect()
            }
            None => {
                hits.iter().map(|hit| (Address::stored(items::pk(hit)), None)).filter(|(a, _)| may_list(a)).collect()
            }
        };
        let in_state = |record: &Record| {
            let state = record.status.payload.as_ref().map(|payload| payload.state.as_str());
            query.state.as_deref().is_none_or(|wanted| Some(wanted) == state)
        };
        let (mut listed, mut looked_at) = (Vec::new(), 0);
        // A page that is cut short must hold at least one record, because the next page continues after its last one.
        while looked_at < wanted.len() && listed.is_empty() {
            let (records, count) = self.read_records(LIST, &wanted[looked_at..], PAGE_BYTES).await?;
            looked_at += count;
            let records = records.iter().filter_map(RecordItems::record);
            listed.extend(records.filter(|record| matches(&record.into()) && in_state(record)).map(|record| {
                match query.full {
                    true => Listed::Full(Box::new(record)),
                    false => Listed::Summary(Summary::from(&record)),
                }
            }));
        }
        Ok(Entries { listed, cut: looked_at < wanted.len() })
    }

    pub(crate) async fn snapshot_page(
        &self,
        limit: Limit,
        after: Option<&Cursor>,
        visible: Visible<'_>,
    ) -> Result<Page<Record>> {
        let mut start = after.map(|cursor| start_key(None, cursor.after(), AFTER_ALL_SKS));
        let request = self
            .sender
            .client()
            .scan()
            .table_name(self.sender.table())
            .consistent_read(true)
            .filter_expression("#sk >= :from")
            .expression_attribute_names("#sk", ATTR_SK)
            .expression_attribute_values(":from", AttributeValue::S(SK_FIRST_OF_RECORD.to_owned()));
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut assembly = Assembly::default();
        let position = after.and_then(Cursor::position).unwrap_or(0);
        loop {
            let page = self
                .sender
                .read(SNAPSHOT, || request.clone().set_exclusive_start_key(start.clone()).send())
                .await
                .map_err(of_table)?;
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            // The end of the scan completes the last record.
            let end = start.is_none().then_some(None);
            for item in page.items.unwrap_or_default().into_iter().map(Some).chain(end) {
                let done = match item {
                    Some(item) => assembly.push(item),
                    None => assembly.finish(),
                };
                let Some(items) = done else { continue };
                let Some(record) = items.record().filter(|r| r.address.is_well_formed() && visible(&r.address)) else {
                    continue;
                };
                if records.len() == limit.get() || bytes >= PAGE_BYTES {
                    let cursor = records.last().map(|last| Cursor::in_snapshot(last, position));
                    return Ok(Page { items: records, cursor });
                }
                bytes += items.weight();
                records.push(record);
            }
            if start.is_none() {
                return Ok(Page { items: records, cursor: None });
            }
        }
    }

    pub(crate) async fn dependents_of(&self, address: &Address) -> Result<Vec<Address>> {
        let mut dependents = self.backrefs(DEPENDENTS, address).await?;
        let query = ListQuery {
            kind: Some(RecordKind::Ledger),
            name: Some(address.name().to_owned()),
            full: true,
            limit: Limit::new(BRANCHES_PAGE).unwrap_or_default(),
            ..ListQuery::default()
        };
        let mut cursor = None;
        loop {
            let page = self.list_records(&ListQuery { cursor, ..query.clone() }, &|_| true).await?;
            let branches = page.items.into_iter().filter_map(|listed| match listed {
                Listed::Full(record) => Some(record),
                Listed::Summary(_) => None,
            });
            dependents.extend(
                branches
                    .filter(|branch| {
                        branch.source_branch.as_deref() == Some(address.branch()) && branch.address != *address
                    })
                    .map(|branch| branch.address),
            );
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(dependents);
            }
        }
    }
}

/// Returns the run that a cursor is in; the first one without a cursor.
fn begin(runs: &[Run], cursor: Option<&Cursor>) -> usize {
    let Some(cursor) = cursor else { return 0 };
    runs.iter().position(|run| run.kind.is_none_or(|kind| kind == cursor.kind())).unwrap_or(runs.len())
}

struct Entries {
    listed: Vec<Listed>,
    /// Whether some of the hits were left out, to be read by the next page.
    cut: bool,
}

/// Returns whether the table lacks the index. DynamoDB has no error code of its own for that.
fn lacks_index(error: &Error) -> bool {
    use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
    let Error::Store { source, .. } = error else { return false };
    let error = source.downcast_ref::<SdkError<aws_sdk_dynamodb::operation::query::QueryError>>();
    error.is_some_and(|error| {
        error.code() == Some("ValidationException") && error.message().is_some_and(|message| message.contains("index"))
    })
}
