//! Requests from the values of the model: what a client sends.

use nameservice_model::{
    self as model, Address, ConcernState, ContentId, Expected, LeaseClaim, LeaseRequest, Object, OperationKind,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    leases::{Claim, Wanted},
    requests::{
        ConfigPush, ExpectedConfig, ExpectedIndex, ExpectedStatus, GraphSource, GraphValue, HeadPush, HeadValue,
        IndexPush, NewBranch, NewConfig, NewIndex, NewStatus, Snapshot, StatusPush,
    },
    transactions::{Check, ConcernName, Members, Transaction},
};

fn text(id: &ContentId) -> String {
    id.as_str().to_owned()
}

/// Absent for any older value, null for no record.
fn expected<'a, T, V: From<&'a model::ConcernValue<T>>>(expected: &'a Expected<T>) -> Option<Option<V>> {
    match expected {
        Expected::Older => None,
        Expected::NoRecord => Some(None),
        Expected::Value(expected) => Some(Some(expected.into())),
    }
}

impl From<&model::NewHead> for HeadValue {
    fn from(head: &model::NewHead) -> Self {
        Self { id: Some(text(head.id())), t: head.t() }
    }
}

impl From<&model::Head> for HeadValue {
    fn from(head: &model::Head) -> Self {
        Self { id: head.payload.as_ref().map(text), t: head.v }
    }
}

impl From<&LeaseClaim> for Claim {
    fn from(claim: &LeaseClaim) -> Self {
        Self { name: claim.name.clone(), holder: claim.holder.clone(), token: claim.token }
    }
}

impl Wanted {
    /// Returns the request for a lease; with a token, to refresh it.
    pub fn new(request: &LeaseRequest, token: Option<i64>) -> Self {
        Self {
            name: request.name().clone(),
            holder: request.holder().to_owned(),
            token,
            ttl_seconds: Some(request.ttl_seconds().into()),
            target_t: request.target_t(),
            meta: request.meta().cloned(),
        }
    }
}

impl From<&model::HeadPush> for HeadPush {
    fn from(push: &model::HeadPush) -> Self {
        Self { expected: expected(push.expected()), new: push.desired().into(), lease: push.lease().map(Claim::from) }
    }
}

impl From<&model::Index> for ExpectedIndex {
    fn from(index: &model::Index) -> Self {
        let Some(root) = &index.payload else {
            return Self { id: None, t: index.v, rev: None, graphs: Default::default() };
        };
        let graphs = root.graphs.iter().map(|(name, graph)| {
            let graph = graph.as_ref();
            (name.clone(), graph.map(|graph| GraphValue { id: text(&graph.id), t: graph.t, rev: Some(graph.rev) }))
        });
        Self { id: Some(text(&root.id)), t: index.v, rev: Some(root.rev), graphs: graphs.collect() }
    }
}

impl From<&model::NewIndex> for NewIndex {
    fn from(index: &model::NewIndex) -> Self {
        let graphs = index.graphs().iter().map(|(name, graph)| {
            let graph = graph.as_ref();
            (name.clone(), graph.map(|graph| GraphValue { id: text(graph.id()), t: graph.t(), rev: graph.rev() }))
        });
        Self { id: Some(text(index.id())), t: index.t(), graphs: graphs.collect() }
    }
}

impl From<&model::IndexPush> for IndexPush {
    fn from(push: &model::IndexPush) -> Self {
        let mut expected: Option<Option<ExpectedIndex>> = expected(push.expected());
        if let Some(Some(expected)) = &mut expected
            && !push.is_rev_stated()
        {
            expected.rev = None;
        }
        Self {
            expected,
            new: push.desired().into(),
            allow_equal: push.allows_equal(),
            lease: push.lease().map(Claim::from),
        }
    }
}

fn object(payload: &model::StatusPayload) -> Object {
    let state = ("state".to_owned(), Value::from(payload.state.as_str()));
    std::iter::once(state).chain(payload.meta.clone()).collect()
}

impl From<&model::Status> for ExpectedStatus {
    fn from(status: &model::Status) -> Self {
        Self { v: status.v, payload: status.payload.as_ref().map(object) }
    }
}

impl From<&model::StatusPush> for StatusPush {
    fn from(push: &model::StatusPush) -> Self {
        let new = push.desired();
        Self {
            expected: expected(push.expected()),
            new: NewStatus { v: new.v(), payload: object(new.payload()) },
            lease: push.lease().map(Claim::from),
        }
    }
}

impl From<&model::Config> for ExpectedConfig {
    fn from(config: &model::Config) -> Self {
        Self { v: config.v, payload: config.payload.as_ref().and_then(Value::as_object).cloned() }
    }
}

impl From<&model::ConfigPush> for ConfigPush {
    fn from(push: &model::ConfigPush) -> Self {
        let new = push.desired();
        Self {
            expected: expected(push.expected()),
            new: NewConfig { v: new.v(), payload: new.payload().clone() },
            lease: push.lease().map(Claim::from),
        }
    }
}

impl From<&model::GraphSourcePublication> for GraphSource {
    fn from(publication: &model::GraphSourcePublication) -> Self {
        let dependencies = publication.dependencies();
        Self {
            source_type: publication.source_type().to_owned(),
            config: publication.config().clone(),
            dependencies: dependencies.map(|all| all.iter().map(Address::to_string).collect()),
            expected_v: publication.expected_v(),
            v: publication.v(),
        }
    }
}

impl NewBranch {
    /// Returns the request for a branch of a branch of the same name.
    pub fn new(branch: &Address, source: &Address, at: Option<&model::NewHead>) -> Self {
        Self {
            name: branch.name().to_owned(),
            branch: branch.branch().to_owned(),
            source: source.branch().to_owned(),
            at: at.map(HeadValue::from),
        }
    }
}

impl From<&model::ResetTo> for Snapshot {
    fn from(to: &model::ResetTo) -> Self {
        let unborn = || HeadValue { id: None, t: 0 };
        Self {
            head: to.head().map_or_else(unborn, HeadValue::from),
            index: to.index().map_or_else(unborn, |index| HeadValue { id: Some(text(index.id())), t: index.t() }),
        }
    }
}

impl TryFrom<&model::Transaction> for Transaction {
    type Error = serde_json::Error;

    fn try_from(transaction: &model::Transaction) -> Result<Self, Self::Error> {
        let operations = transaction.operations().iter().map(|operation| match &operation.action {
            OperationKind::PushHead(push) => members("push_head", &operation.address, &HeadPush::from(push)),
            OperationKind::PushIndex(push) => members("push_index", &operation.address, &IndexPush::from(push)),
            OperationKind::PushStatus(push) => members("push_status", &operation.address, &StatusPush::from(push)),
            OperationKind::PushConfig(push) => members("push_config", &operation.address, &ConfigPush::from(push)),
            OperationKind::Check(state) => members("check", &operation.address, &Check::try_from(state)?),
        });
        Ok(Self { operations: operations.collect::<Result<_, _>>()? })
    }
}

fn members(op: &str, address: &Address, rest: &impl Serialize) -> Result<Members, serde_json::Error> {
    #[derive(Serialize)]
    struct Operation<'a, T> {
        op: &'a str,
        address: &'a str,
        #[serde(flatten)]
        rest: &'a T,
    }
    serde_json::from_str(&serde_json::to_string(&Operation { op, address: address.as_str(), rest })?)
}

impl TryFrom<&ConcernState> for Check {
    type Error = serde_json::Error;

    fn try_from(state: &ConcernState) -> Result<Self, Self::Error> {
        use serde_json::value::to_raw_value;
        let (concern, expected) = match state {
            ConcernState::Head(head) => (ConcernName::Head, to_raw_value(&HeadValue::from(head))?),
            ConcernState::Index(index) => (ConcernName::Index, to_raw_value(&ExpectedIndex::from(index))?),
            ConcernState::Status(status) => (ConcernName::Status, to_raw_value(&ExpectedStatus::from(status))?),
            ConcernState::Config(config) => (ConcernName::Config, to_raw_value(&ExpectedConfig::from(config))?),
        };
        Ok(Self { concern, expected })
    }
}
