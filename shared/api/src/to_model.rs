//! Converts the answers that a client receives to values of the model.
//!
//! Ids are not validated: what another program stored is shown, valid or not.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nameservice_model::{
    self as model, Address, ChangePayload, ConcernKind, ConcernState, ContentId, Identity, IndexRoot, OperationOutcome,
    RecordKind, StatusPayload,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Config, Head, Hit, Index, Status,
    changes::Change,
    leases::{Held, Lease},
    transactions::{OperationResult, ResultStatus},
};

/// The error for an answer that the service would not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer's `{member}` is not valid: {reason}")]
pub struct InvalidAnswer {
    member: &'static str,
    reason: String,
}

impl InvalidAnswer {
    pub(crate) fn new(member: &'static str, reason: impl ToString) -> Self {
        Self { member, reason: reason.to_string() }
    }
}

fn id(text: String) -> ContentId {
    ContentId::stored(text)
}

pub(crate) fn address(text: &str) -> Result<Address, InvalidAnswer> {
    Address::parse(text).map_err(|error| InvalidAnswer::new("address", error))
}

pub(crate) fn time(member: &'static str, text: &str) -> Result<Timestamp, InvalidAnswer> {
    text.parse().map_err(|error| InvalidAnswer::new(member, error))
}

impl TryFrom<Head> for model::Head {
    type Error = InvalidAnswer;

    fn try_from(head: Head) -> Result<Self, InvalidAnswer> {
        Ok(Self::stored(head.t, head.id.map(id)))
    }
}

impl TryFrom<Index> for model::Index {
    type Error = InvalidAnswer;

    fn try_from(index: Index) -> Result<Self, InvalidAnswer> {
        let Index { id: root, t, rev, graphs } = index;
        let graphs: BTreeMap<_, _> = graphs
            .into_iter()
            .map(|(name, graph)| {
                let graph = graph.map(|graph| model::GraphIndex { id: id(graph.id), t: graph.t, rev: graph.rev });
                (name, graph)
            })
            .collect();
        Ok(Self::stored(t, root.map(|root| IndexRoot { id: id(root), rev, graphs })))
    }
}

impl TryFrom<Status> for model::Status {
    type Error = InvalidAnswer;

    fn try_from(status: Status) -> Result<Self, InvalidAnswer> {
        let payload = match status.payload {
            Value::Null => None,
            payload => Some(
                serde_json::from_value::<StatusPayload>(payload)
                    .map_err(|error| InvalidAnswer::new("status", error))?,
            ),
        };
        Ok(Self::stored(status.v, payload))
    }
}

impl TryFrom<Config> for model::Config {
    type Error = InvalidAnswer;

    fn try_from(config: Config) -> Result<Self, InvalidAnswer> {
        Ok(Self::stored(config.v, config.payload))
    }
}

impl TryFrom<Hit> for model::Hit {
    type Error = InvalidAnswer;

    fn try_from(hit: Hit) -> Result<Self, InvalidAnswer> {
        Ok(Self {
            address: address(&hit.address)?,
            kind: hit.kind,
            retracted: hit.retracted,
            source_type: hit.source_type,
            state: hit.state,
            matched: hit.matched.into_iter().map(model::SearchField::from).collect(),
            rank: hit.rank,
        })
    }
}

impl TryFrom<Change> for model::Change {
    type Error = InvalidAnswer;

    fn try_from(change: Change) -> Result<Self, InvalidAnswer> {
        let payload = match change.payload {
            _ if change.payload_omitted => ChangePayload::Omitted,
            Some(payload) => ChangePayload::Value(payload),
            None => ChangePayload::None,
        };
        Ok(Self {
            position: change.position,
            address: address(&change.address)?,
            identity: Identity { kind: change.kind, source_type: change.source_type },
            part: change.concern.into(),
            kind: change.change,
            watermark: change.watermark,
            previous: change.previous,
            payload,
            occurred_at: time("occurred_at", &change.occurred_at)?,
            recorded_at: time("recorded_at", &change.recorded_at)?,
        })
    }
}

impl From<Lease> for model::Lease {
    fn from(lease: Lease) -> Self {
        let Lease { name, holder, target_t, acquired_at, expires_at, refreshed_at } = lease;
        Self { name, holder, target_t, acquired_at, expires_at, refreshed_at }
    }
}

impl From<Held> for model::Held {
    fn from(held: Held) -> Self {
        Self { lease: held.lease.into(), token: held.token }
    }
}

/// Reads the value of a concern of this kind; null is none.
pub fn concern_state(concern: ConcernKind, value: Value) -> Result<Option<ConcernState>, InvalidAnswer> {
    fn read<T: DeserializeOwned>(value: Value) -> Result<T, InvalidAnswer> {
        serde_json::from_value(value).map_err(|error| InvalidAnswer::new("value", error))
    }
    Ok(Some(match concern {
        _ if value.is_null() => return Ok(None),
        ConcernKind::Head => ConcernState::Head(read::<Head>(value)?.try_into()?),
        ConcernKind::Index => ConcernState::Index(read::<Index>(value)?.try_into()?),
        ConcernKind::Status => ConcernState::Status(read::<Status>(value)?.try_into()?),
        ConcernKind::Config => ConcernState::Config(read::<Config>(value)?.try_into()?),
    }))
}

impl OperationResult {
    /// Returns the outcome of an operation about this concern.
    pub fn into_outcome(self, concern: ConcernKind) -> Result<OperationOutcome, InvalidAnswer> {
        let Self { status, value, actual, lease, replayed } = self;
        let missing = |member| move || InvalidAnswer::new(member, "it is missing");
        let state = |value: Option<Value>| concern_state(concern, value.unwrap_or_default());
        Ok(match status {
            ResultStatus::Updated => {
                OperationOutcome::Updated { value: state(value)?.ok_or_else(missing("value"))?, replayed }
            }
            ResultStatus::Passed => OperationOutcome::Passed,
            ResultStatus::Stale => OperationOutcome::Stale { actual: state(actual)?.ok_or_else(missing("actual"))? },
            ResultStatus::Conflict => OperationOutcome::Conflict { actual: state(actual)? },
            ResultStatus::UnknownRecord => OperationOutcome::Unknown,
            ResultStatus::Retracted => OperationOutcome::Retracted,
            // Ledgers have every concern and accept pushes of it, so it can only be a graph source.
            ResultStatus::WrongKind => OperationOutcome::WrongKind(RecordKind::GraphSource),
            ResultStatus::LeaseLost => OperationOutcome::LeaseLost { lease: lease.map(model::Lease::from) },
        })
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::{HeadPush, IndexPush, LeaseName, NewGraphIndex, NewHead, NewIndex, Operation, Transaction};
    use serde_json::json;

    use super::*;
    use crate::{Record, json as read, requests};

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    fn head(t: i64) -> NewHead {
        NewHead::new(ContentId::parse(ID).unwrap(), t).unwrap()
    }

    #[test]
    fn a_push_is_the_same_after_the_wire() {
        let claim = model::LeaseClaim::new(LeaseName::INDEX, "i1", 3).unwrap();
        for push in [
            HeadPush::monotonic(head(1)),
            HeadPush::create(head(1)),
            HeadPush::cas(model::Head::unborn(), head(1)),
            HeadPush::cas(head(1).value(), head(2)).under(claim).unwrap(),
        ] {
            let text = serde_json::to_vec(&requests::HeadPush::from(&push)).unwrap();
            assert_eq!(read::from_slice::<requests::HeadPush>(&text).unwrap().into_push().unwrap(), push);
        }
        let graph = NewGraphIndex::new(ContentId::parse(ID).unwrap(), 1).unwrap();
        let index = NewIndex::new(ContentId::parse(ID).unwrap(), 2).unwrap();
        let index = index.with_graph("g", Some(graph)).unwrap().with_graph("h", None).unwrap();
        let there = |rev| {
            let graph = model::GraphIndex { id: ContentId::parse(ID).unwrap(), t: 1, rev: 4 };
            let graphs = [("g".to_owned(), Some(graph))].into();
            model::Index::new(2, model::IndexRoot { id: ContentId::parse(ID).unwrap(), rev, graphs })
        };
        for push in [
            IndexPush::monotonic(index.clone()),
            IndexPush::overwrite(index.clone()),
            IndexPush::create(index.clone()),
            IndexPush::cas(model::Index::unborn(), index.clone()),
            IndexPush::cas(there(0), index.clone()),
            IndexPush::cas(there(3), index.clone()),
            IndexPush::cas(there(0), index).with_rev_unstated(),
        ] {
            let text = serde_json::to_vec(&requests::IndexPush::from(&push)).unwrap();
            assert_eq!(read::from_slice::<requests::IndexPush>(&text).unwrap().into_push().unwrap(), push);
        }
    }

    #[test]
    fn a_transaction_is_the_same_after_the_wire() {
        let at = |text: &str| Address::parse(text).unwrap();
        let status = model::StatusPush::cas(
            model::Status::stored(4, None),
            model::NewStatus::new(StatusPayload::state("error")).unwrap(),
        );
        let root = model::IndexRoot { id: ContentId::parse(ID).unwrap(), rev: 0, graphs: Default::default() };
        let index = NewIndex::new(ContentId::parse(ID).unwrap(), 2).unwrap();
        let index = IndexPush::cas(model::Index::new(2, root), index);
        let transaction = Transaction::new(vec![
            Operation::new(at("a"), HeadPush::monotonic(head(1))),
            Operation::new(at("a"), status),
            Operation::new(at("a"), index.clone()),
            Operation::new(at("c"), index.with_rev_unstated()),
            Operation::new(at("b"), ConcernState::Config(model::Config::stored(2, Some(json!({"a": 1}))))),
            Operation::new(at("b"), ConcernState::Head(model::Head::unborn())),
        ])
        .unwrap();
        let text = serde_json::to_vec(&crate::transactions::Transaction::try_from(&transaction).unwrap()).unwrap();
        let back = read::from_slice::<crate::transactions::Transaction>(&text).unwrap();
        assert_eq!(back.into_model().unwrap(), transaction);
    }

    #[test]
    fn a_record_is_the_same_after_the_wire() {
        let record: Record = serde_json::from_value(json!({
            "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main", "retracted": false,
            "updated_at": "2026-01-01T00:00:00.000Z", "branches": 1, "dependents": 0, "head": {"id": ID, "t": 3},
            "index": {"id": ID, "t": 2, "rev": 1, "graphs": {"g": null}},
            "status": {"v": 2, "payload": {"state": "indexing", "index_lock": {"holder": "i1"}}},
            "config": {"v": 0, "payload": null},
        }))
        .unwrap();
        let model = model::Record::try_from(record.clone()).unwrap();
        assert_eq!(model.head, Some(head(3).value()));
        assert_eq!(Record::from(&model), record);
        let partial = Record { index: None, ..record };
        assert!(model::Record::try_from(partial).unwrap_err().to_string().contains("`index`"));
    }
}
