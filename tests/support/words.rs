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

/// The update that brings the index at `t`.
pub fn index(t: i64) -> IndexUpdate {
    IndexUpdate { id: index_cid(t), t, graphs: Default::default() }
}

/// The stored index at `t` after so many overwrites.
pub fn index_at(t: i64, rev: i64) -> Index {
    Index::new(t, IndexRoot { id: index_cid(t), rev, graphs: Default::default() })
}

/// A status without more to tell.
pub fn status(v: i64, state: &str) -> Status {
    Status::new(v, StatusPayload::state(state))
}

/// A status with members.
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

/// A push that expects anything older.
pub fn older<E, N>(new: N) -> Push<E, N> {
    Push { expected: Expected::Older, new, allow_equal: false, lease: None }
}

/// A push that expects this very value.
pub fn cas<E, N>(expected: ConcernValue<E>, new: N) -> Push<E, N> {
    Push { expected: Expected::Value(expected), new, allow_equal: false, lease: None }
}

/// A push that expects no record at all.
pub fn first<E, N>(new: N) -> Push<E, N> {
    Push { expected: Expected::NoRecord, new, allow_equal: false, lease: None }
}

/// An outcome: written by this call.
pub fn updated<T>(value: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Updated { value, replayed: false }
}

/// An outcome: it was in place before.
pub fn replayed<T>(value: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Updated { value, replayed: true }
}

/// An outcome: what is there is as new or newer.
pub fn stale<T>(actual: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Stale { actual }
}

/// An outcome: the expectation did not hold.
pub fn conflict<T>(actual: ConcernValue<T>) -> PushOutcome<T> {
    PushOutcome::Conflict { actual: Some(actual) }
}

/// A publication of a BM25 index with the given config and dependencies.
pub fn bm25(config: Value, dependencies: &[&str]) -> GraphSourcePublication {
    GraphSourcePublication {
        source_type: "f:Bm25Index".into(),
        config: object(config),
        dependencies: Some(dependencies.iter().map(|text| at(text)).collect()),
        expected_v: None,
    }
}

/// Everybody's eyes.
pub fn anything(_: &Address) -> bool {
    true
}

/// A list of everything, as summaries, in pages of up to 1,000.
pub fn everything() -> ListQuery {
    ListQuery { limit: 1_000, ..ListQuery::default() }
}
