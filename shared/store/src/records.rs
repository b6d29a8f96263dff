//! Reading whole records, and what a new one is made of.

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_model::{Address, Call, ConcernKind, IndexPush, NewConfig, NewHead, NewIndex, RecordKind, Result};
use serde_json::Value;

use crate::{
    Store,
    client::{Attempts, Failed},
    concern::{Concern, IndexConcern},
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, string},
    push::key_reused,
    schema::*,
};

/// Which part of a transaction an action is, so that its refusal can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The record's own meta item.
    Meta,
    /// One of its concerns.
    Concern(ConcernKind),
    /// The meta item of the record it was branched from.
    Parent,
    /// The meta item of a record it depends on.
    Target(Address),
    /// Its row in the partition of a record it depends on.
    Backref(Address),
}

/// What a new ledger is created with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewLedger<'a> {
    pub(crate) head: Option<&'a NewHead>,
    pub(crate) index: Option<&'a NewIndex>,
    pub(crate) config: Option<&'a NewConfig>,
    /// The branch that it is made from.
    pub(crate) source: Option<&'a str>,
}

impl Store {
    /// All items of a record in one consistent Query (more only past 1 MB).
    pub(crate) async fn read_record(&self, operation: &'static str, address: &Address) -> Result<RecordItems> {
        let items = self.query_partition(operation, address, "#sk >= :from", SK_FIRST_OF_RECORD, None).await?;
        Ok(RecordItems::new(items))
    }

    /// A consistent Query of one partition, all pages.
    pub(crate) async fn query_partition(
        &self,
        operation: &'static str,
        address: &Address,
        sort_condition: &str,
        from: &str,
        projection: Option<&str>,
    ) -> Result<Vec<Item>> {
        let request = self
            .sender
            .client()
            .query()
            .table_name(self.sender.table())
            .consistent_read(true)
            .key_condition_expression(format!("#pk = :pk AND {sort_condition}"))
            .expression_attribute_names("#pk", ATTR_PK)
            .expression_attribute_names("#sk", ATTR_SK)
            .expression_attribute_values(":pk", string(address.as_str()))
            .expression_attribute_values(":from", string(from))
            .set_projection_expression(projection.map(str::to_owned));
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let page =
                self.sender.read(operation, || request.clone().set_exclusive_start_key(start.clone()).send()).await?;
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(items);
            }
        }
    }

    /// One item, consistent; empty where there is none.
    pub(crate) async fn get_item(&self, operation: &'static str, key: &Key) -> Result<Item> {
        let request = self
            .sender
            .client()
            .get_item()
            .table_name(self.sender.table())
            .set_key(Some(key.item()))
            .consistent_read(true);
        let output = self.sender.read(operation, || request.clone().send()).await?;
        Ok(output.item.unwrap_or_default())
    }

    /// The five items of a new ledger, and the transaction's actions that put them.
    pub(crate) fn new_ledger(
        &self,
        address: &Address,
        ledger: &NewLedger<'_>,
        call: &Call,
        now: i64,
        orphans: Orphans,
    ) -> (RecordItems, Vec<(Part, Action)>) {
        let mut meta = items::new_meta(address, RecordKind::Ledger, now);
        if let Some(source) = ledger.source {
            meta.insert(ATTR_BP_SOURCE.to_owned(), string(source));
        }
        let mut all = vec![meta];
        for concern in ConcernKind::ALL {
            let mut item = items::new_concern(address, concern, &call.request_id, now);
            match concern {
                ConcernKind::Head => preset_head(&mut item, ledger.head),
                ConcernKind::Index => preset_index(&mut item, ledger.index),
                ConcernKind::Config => preset_config(&mut item, ledger.config),
                ConcernKind::Status => {}
            }
            all.push(item);
        }
        let actions = put_new(&all, call, orphans);
        (RecordItems::new(all), actions)
    }
}

fn preset_head(item: &mut Item, head: Option<&NewHead>) {
    if let Some(head) = head {
        item.insert(ATTR_COMMIT_ID.to_owned(), string(head.id().as_str()));
        item.insert(ATTR_COMMIT_T.to_owned(), number(head.t()));
    }
}

fn preset_index(item: &mut Item, index: Option<&NewIndex>) {
    let Some(new) = index else { return };
    let value = IndexConcern::written(&Item::new(), &IndexPush::create(new.clone()));
    if let Some(root) = value.payload {
        item.insert(ATTR_INDEX_ID.to_owned(), string(root.id.as_str()));
        item.insert(ATTR_INDEX_T.to_owned(), number(value.v));
        item.insert(ATTR_REV.to_owned(), number(root.rev));
        item.insert(ATTR_REV_ID.to_owned(), string(root.id.as_str()));
        item.insert(ATTR_GRAPHS.to_owned(), crate::concern::graphs_attribute(&root.graphs));
    }
}

fn preset_config(item: &mut Item, config: Option<&NewConfig>) {
    let Some(config) = config else { return };
    let payload = Value::Object(config.payload().clone());
    let (context, meta) = items::split_config(&payload);
    item.insert(ATTR_CONFIG_V.to_owned(), number(config.v_after(0)));
    if let Some(context) = context {
        item.insert(ATTR_DEFAULT_CONTEXT_ADDRESS.to_owned(), string(context));
        item.insert(ATTR_DEFAULT_CONTEXT_ID.to_owned(), string(context));
    }
    if !meta.is_empty() {
        item.insert(ATTR_CONFIG_META.to_owned(), items::map(&meta));
    }
}

/// What a creation does about concern items that lie under no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// Put over them. A refusal then brings back the meta alone.
    Overwrite,
    /// Be refused by them too. Then a refusal by an existing record brings back all of it.
    Refuse,
}

/// Puts of a new record's items, the meta where there is no record. Every condition also recognises this very call: a
/// repetition that the engine has forgotten is then told from a record that somebody else made.
pub(crate) fn put_new(all: &[Item], call: &Call, orphans: Orphans) -> Vec<(Part, Action)> {
    all.iter()
        .map(|item| {
            let mut condition = Expression::new();
            let part = match concern_of(items::sk(item)) {
                None => {
                    condition.not_exists(ATTR_KIND);
                    Part::Meta
                }
                Some(concern) => {
                    match orphans {
                        Orphans::Overwrite => condition.not_by_call(&call.request_id),
                        Orphans::Refuse => condition.not_exists(ATTR_PK),
                    }
                    Part::Concern(concern)
                }
            };
            (part, condition.into_put(item.clone()))
        })
        .collect()
}

/// The record whose items refused a creation; `None` where no record did.
pub(crate) fn found(failed: &[(Part, Failed)]) -> Option<RecordItems> {
    let items = failed.iter().filter(|(part, _)| matches!(part, Part::Meta | Part::Concern(_)));
    let items = RecordItems::new(items.filter_map(|(_, Failed(item))| item.clone()));
    items.meta().is_some().then_some(items)
}

/// Whether any of the items that refused shows that this call had been there before.
pub(crate) fn any_remembers(failed: &[(Part, Failed)], call: &Call) -> bool {
    failed.iter().any(|(_, Failed(item))| item.as_ref().is_some_and(|item| items::remembers(item, &call.request_id)))
}

/// Fails where any of the items that failed remembers another request under the key of this call.
pub(crate) fn check_key<L>(
    operation: &'static str,
    failed: &[(L, Failed)],
    call: &Call,
    attempts: Attempts,
) -> Result<()> {
    let reused = |Failed(item): &Failed| item.as_ref().is_some_and(|item| items::reuses_key(item, &call.request_id));
    if failed.iter().any(|(_, failed)| reused(failed)) { Err(key_reused(operation, attempts)) } else { Ok(()) }
}

/// How a part of a transaction was refused, if it was.
pub(crate) fn refused_at<'a>(failed: &'a [(Part, Failed)], part: &Part) -> Option<&'a Failed> {
    failed.iter().find(|(at, _)| at == part).map(|(_, failed)| failed)
}

/// A BOOL.
pub(crate) fn boolean(flag: bool) -> AttributeValue {
    AttributeValue::Bool(flag)
}
