//! Reading whole records, and what a rejected transaction shows of one.

use aws_sdk_dynamodb::{operation::query::builders::QueryFluentBuilder, types::AttributeValue};
use nameservice_model::{Address, Call, ConcernKind, Result};

use crate::{
    Store,
    client::{Attempts, Failed, key_reused, of_table},
    expressions::Key,
    items::{self, Item, RecordItems, string},
    schema::*,
};

/// The part of a transaction that an action belongs to, so that a rejection can be attributed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The record's own meta item.
    Meta,
    /// One of its concerns.
    Concern(ConcernKind),
    /// The meta item of the record that it was branched from.
    Parent,
    /// The head of that record.
    ParentHead,
    /// The meta item of a record it depends on.
    Target(Address),
    /// Its row in the partition of a record it depends on.
    Backref(Address),
    /// Fluree's commit log beside it.
    Log,
    /// The memory of its address.
    Calls,
}

/// A page of a Query.
pub(crate) struct QueryPage {
    pub(crate) items: Vec<Item>,
    /// Where the next page begins; `None` if there is none.
    pub(crate) next: Option<Item>,
}

impl Store {
    /// Reads all items of a record with one consistent Query (more only past 1 MB).
    pub(crate) async fn read_record(&self, operation: &'static str, address: &Address) -> Result<RecordItems> {
        let items = self.query_partition(operation, address, "#sk >= :from", SK_FIRST_OF_RECORD).await?;
        Ok(RecordItems::new(items))
    }

    /// Does that as a part of an operation that writes.
    pub(crate) async fn look_up(
        &self,
        operation: &'static str,
        address: &Address,
        attempts: &mut Attempts,
    ) -> Result<RecordItems> {
        self.within(operation, attempts, self.read_record(operation, address)).await
    }

    /// Queries one partition consistently, and reads all pages.
    pub(crate) async fn query_partition(
        &self,
        operation: &'static str,
        address: &Address,
        sort_condition: &str,
        from: &str,
    ) -> Result<Vec<Item>> {
        let request = self.partition_query(address, sort_condition, from);
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let page = self.query_page(operation, &request, start).await?;
            items.extend(page.items);
            start = page.next;
            if start.is_none() {
                return Ok(items);
            }
        }
    }

    /// Returns a consistent Query of one partition. `#sk` and `:from` are what the condition on the sort key compares.
    pub(crate) fn partition_query(
        &self,
        address: &Address,
        sort_condition: &str,
        from: impl Into<String>,
    ) -> QueryFluentBuilder {
        self.sender
            .client()
            .query()
            .table_name(self.sender.table())
            .consistent_read(true)
            .key_condition_expression(format!("#pk = :pk AND {sort_condition}"))
            .expression_attribute_names("#pk", ATTR_PK)
            .expression_attribute_names("#sk", ATTR_SK)
            .expression_attribute_values(":pk", string(address.as_str()))
            .expression_attribute_values(":from", string(from))
    }

    /// Reads the page of a Query that begins after `start`.
    pub(crate) async fn query_page(
        &self,
        operation: &'static str,
        request: &QueryFluentBuilder,
        start: Option<Item>,
    ) -> Result<QueryPage> {
        let send = || request.clone().set_exclusive_start_key(start.clone()).send();
        let page = self.sender.read(operation, send).await.map_err(of_table)?;
        let next = page.last_evaluated_key.filter(|key| !key.is_empty());
        Ok(QueryPage { items: page.items.unwrap_or_default(), next })
    }

    /// Reads one item consistently; empty if there is none.
    pub(crate) async fn get_item(&self, operation: &'static str, key: &Key) -> Result<Item> {
        let request = self
            .sender
            .client()
            .get_item()
            .table_name(self.sender.table())
            .set_key(Some(key.item()))
            .consistent_read(true);
        let output = self.sender.read(operation, || request.clone().send()).await.map_err(of_table)?;
        Ok(output.item.unwrap_or_default())
    }
}

/// Returns the record whose items rejected a creation; `None` if no record did.
pub(crate) fn found(failed: &[(Part, Failed)]) -> Option<RecordItems> {
    let items = failed.iter().filter(|(part, _)| matches!(part, Part::Meta | Part::Concern(_)));
    let items = RecordItems::new(items.filter_map(|(_, Failed(item))| item.clone()));
    items.meta().is_some().then_some(items)
}

/// Returns whether any of the items that rejected the transaction remembers this call.
pub(crate) fn any_remembers(failed: &[(Part, Failed)], call: &Call) -> bool {
    failed.iter().any(|(_, Failed(item))| item.as_ref().is_some_and(|item| items::remembers(item, &call.request_id)))
}

/// Returns how the items of the address itself rejected a transaction: not those that it only refers to, which remember no key
/// of this operation.
pub(crate) fn own(failed: &[(Part, Failed)]) -> impl Iterator<Item = &Failed> {
    let is_own = |part: &Part| matches!(part, Part::Meta | Part::Concern(_) | Part::Log | Part::Calls);
    failed.iter().filter(move |(part, _)| is_own(part)).map(|(_, failed)| failed)
}

/// Fails if any of these items remembers another request under the key of this call.
pub(crate) fn check_key<'a>(
    operation: &'static str,
    mut failed: impl Iterator<Item = &'a Failed>,
    call: &Call,
    attempts: Attempts,
) -> Result<()> {
    let reused = |Failed(item): &Failed| item.as_ref().is_some_and(|item| items::reuses_key(item, &call.request_id));
    if failed.any(reused) { Err(key_reused(operation, attempts)) } else { Ok(()) }
}

/// Returns how a part of a transaction was rejected, if it was.
pub(crate) fn rejected_at<'a>(failed: &'a [(Part, Failed)], part: &Part) -> Option<&'a Failed> {
    failed.iter().find(|(at, _)| at == part).map(|(_, failed)| failed)
}

/// A BOOL.
pub(crate) fn boolean(flag: bool) -> AttributeValue {
    AttributeValue::Bool(flag)
}
