//! Short words for what most tests say.

use nameservice_model::*;
use serde_json::Value;

use crate::cids::{cid, index_cid};

/// An address.
pub fn at(text: &str) -> Address {
    Address::parse(text).unwrap()
}

/// The head at `t`.
pub fn head(t: i64) -> Head {
    Head::new(t, cid(t))
}

/// The new head at `t`.
pub fn new_head(t: i64) -> NewHead {
    NewHead::new(cid(t), t).unwrap()
}

/// The new index at `t`.
pub fn index(t: i64) -> NewIndex {
    index_of(t, t)
}

/// The new index at `t` with the `n`th index root.
pub fn index_of(n: i64, t: i64) -> NewIndex {
    NewIndex::new(index_cid(n), t).unwrap()
}

/// The new index of a named graph at `t`, with the `n`th index root.
pub fn graph(n: i64, t: i64, rev: Option<i64>) -> NewGraphIndex {
    let graph = NewGraphIndex::new(index_cid(n), t).unwrap();
    match rev {
        Some(rev) => graph.with_rev(rev).unwrap(),
        None => graph,
    }
}

/// The stored index at `t` after this many overwrites.
pub fn index_at(t: i64, rev: i64) -> Index {
    Index::new(t, IndexRoot { id: index_cid(t), rev, graphs: Default::default() })
}

/// A status without metadata.
pub fn status(v: i64, state: &str) -> Status {
    Status::new(v, StatusPayload::state(state))
}

/// A status with metadata.
pub fn status_with(v: i64, state: &str, meta: Value) -> Status {
    Status::new(v, StatusPayload { state: state.into(), meta: object(meta) })
}

/// A JSON object.
pub fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

/// A value that a push can bring: the new one, or a stored value in the place of one.
pub trait Brings {
    /// What the push expects.
    type Expected;
    /// What the push brings.
    type New;

    /// As what a push brings.
    fn brought(self) -> Self::New;

    /// A push that expects this very value.
    fn cas(new: Self::New, expected: ConcernValue<Self::Expected>) -> Push<Self::Expected, Self::New>;
}

/// A new head or index.
pub trait BringsRef: Brings {
    /// A push that expects anything older.
    fn older(new: Self::New) -> Push<Self::Expected, Self::New>;

    /// A push that expects no record.
    fn first(new: Self::New) -> Push<Self::Expected, Self::New>;
}

macro_rules! brings {
    ($from:ty => $new:ident, $push:ident, $expected:ty, $convert:expr) => {
        impl Brings for $from {
            type Expected = $expected;
            type New = $new;

            fn brought(self) -> $new {
                let convert: fn($from) -> $new = $convert;
                convert(self)
            }

            fn cas(new: $new, expected: ConcernValue<$expected>) -> $push {
                $push::cas(expected, new)
            }
        }
    };
}

brings!(NewHead => NewHead, HeadPush, ContentId, |new| new);
brings!(Head => NewHead, HeadPush, ContentId, |head| head.try_into().unwrap());
brings!(NewIndex => NewIndex, IndexPush, IndexRoot, |new| new);
brings!(NewStatus => NewStatus, StatusPush, StatusPayload, |new| new);
brings!(Status => NewStatus, StatusPush, StatusPayload, |status| {
    NewStatus::new(status.payload.unwrap()).unwrap().with_v(status.v).unwrap()
});
brings!(NewConfig => NewConfig, ConfigPush, Value, |new| new);
brings!(Config => NewConfig, ConfigPush, Value, |config| {
    NewConfig::new(object(config.payload.unwrap())).unwrap().with_v(config.v).unwrap()
});

impl BringsRef for Head {
    fn older(new: NewHead) -> HeadPush {
        HeadPush::monotonic(new)
    }

    fn first(new: NewHead) -> HeadPush {
        HeadPush::create(new)
    }
}

impl BringsRef for NewHead {
    fn older(new: NewHead) -> HeadPush {
        HeadPush::monotonic(new)
    }

    fn first(new: NewHead) -> HeadPush {
        HeadPush::create(new)
    }
}

impl BringsRef for NewIndex {
    fn older(new: NewIndex) -> IndexPush {
        IndexPush::monotonic(new)
    }

    fn first(new: NewIndex) -> IndexPush {
        IndexPush::create(new)
    }
}

/// A push that expects anything older.
pub fn older<N: BringsRef>(new: N) -> Push<N::Expected, N::New> {
    N::older(new.brought())
}

/// A push that expects this very value.
pub fn cas<N: Brings>(expected: ConcernValue<N::Expected>, new: N) -> Push<N::Expected, N::New> {
    N::cas(new.brought(), expected)
}

/// A push that expects no record at all.
pub fn first<N: BringsRef>(new: N) -> Push<N::Expected, N::New> {
    N::first(new.brought())
}

/// A new config with this payload.
pub fn new_config(payload: Value) -> NewConfig {
    NewConfig::new(object(payload)).unwrap()
}

/// A claim to a lease.
pub fn claim_of(name: LeaseName, holder: &str, token: i64) -> LeaseClaim {
    LeaseClaim::new(name, holder, token).unwrap()
}

/// A transaction of these operations.
pub fn transaction(operations: &[Operation]) -> Transaction {
    Transaction::new(operations.to_vec()).unwrap()
}

/// A reset to this head and no index.
pub fn to_head(t: i64) -> ResetTo {
    ResetTo::new(Some(new_head(t)), None).unwrap()
}

/// A request for the `index_lock` for this long.
pub fn index_lock(holder: &str, ttl_seconds: u32) -> LeaseRequest {
    LeaseRequest::new(LeaseName::INDEX, holder).unwrap().with_ttl_seconds(ttl_seconds).unwrap()
}

/// A limit.
pub fn at_most(limit: usize) -> Limit {
    Limit::new(limit).unwrap()
}

/// An outcome: written by this call.
pub fn updated<T>(value: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Updated { value, replayed: false }
}

/// An outcome: it was stored before.
pub fn replayed<T>(value: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Updated { value, replayed: true }
}

/// An outcome: the current value is as new or newer.
pub fn stale<T>(actual: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Stale { actual }
}

/// An outcome: the expected value did not match.
pub fn conflict<T>(actual: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Conflict { actual: Some(actual) }
}

/// A publication of a BM25 index with the given config and dependencies.
pub fn bm25(address: impl AsRef<str>, config: Value, dependencies: &[&str]) -> GraphSourcePublication {
    graph_source(address, "f:Bm25Index", config, dependencies)
}

/// A publication of a graph source of any type.
pub fn graph_source(
    address: impl AsRef<str>,
    kind: &str,
    config: Value,
    dependencies: &[&str],
) -> GraphSourcePublication {
    let publication = GraphSourcePublication::new(at(address.as_ref()), kind, object(config)).unwrap();
    publication.with_dependencies(dependencies.iter().map(|text| at(text)).collect()).unwrap()
}

/// The view of a caller that may see every address.
pub fn anything(_: &Address) -> bool {
    true
}

/// A list of everything, as summaries, in pages of up to 1,000.
pub fn everything() -> ListQuery {
    ListQuery { limit: at_most(1_000), ..ListQuery::default() }
}

/// An outcome that says whether the operation was applied.
pub trait Outcome: std::fmt::Debug + Sized {
    /// Whether it was.
    fn is_applied(&self) -> bool;

    /// Fails the test unless it was.
    #[track_caller]
    fn applied(self) {
        assert!(self.is_applied(), "not applied: {self:?}");
    }
}

macro_rules! applied {
    ($($outcome:ty: $pattern:pat,)*) => {
        $(impl Outcome for $outcome {
            fn is_applied(&self) -> bool {
                matches!(self, $pattern)
            }
        })*
    };
}

applied! {
    Created: Created::Created(_),
    BranchCreated: BranchCreated::Created(_),
    Published: Published::Created(_) | Published::Updated(_),
    Retracted: Retracted::Retracted(_),
    Restored: Restored::Restored(_),
    Purged: Purged::Purged,
    Dropped: Dropped::Dropped { .. },
    Reset: Reset::Reset { .. },
    Leased: Leased::Held(_),
    Released: Released::Released,
    Committed: Committed::Committed(_),
}

impl<T: std::fmt::Debug> Outcome for PushOutcome<T> {
    fn is_applied(&self) -> bool {
        matches!(self, PushOutcome::Updated { .. })
    }
}
