//! The inputs of mutations.

use async_graphql::{InputObject, Json, MaybeUndefined, Result};
use nameservice_api::{
    leases::Claim,
    requests::{GraphValue, HeadValue},
};
use nameservice_http::Problem;
use nameservice_model::LeaseName;
use serde_json::{Map, Value};

use crate::{errors::problem, objects::JsonObject, scalars::Long};

/// A commit or an index root, at its `t`.
#[derive(InputObject)]
pub(crate) struct RefInput {
    /// Its content id; null with a `t` of 0 for none.
    pub(super) id: Option<String>,
    /// Its `t`.
    pub(super) t: Long,
}

impl From<RefInput> for HeadValue {
    fn from(input: RefInput) -> Self {
        Self { id: input.id, t: input.t.0 }
    }
}

/// The index of a named graph.
#[derive(InputObject)]
pub(crate) struct GraphInput {
    /// The name of the graph.
    pub(super) name: String,
    /// The index root; null if it has none yet.
    pub(super) id: Option<String>,
    /// The `t` that it covers.
    pub(super) t: Option<Long>,
    /// How many times this `t` was indexed again.
    pub(super) rev: Option<Long>,
}

pub(super) fn graphs(input: Option<Vec<GraphInput>>) -> std::collections::BTreeMap<String, Option<GraphValue>> {
    let graph = |GraphInput { name, id, t, rev }: GraphInput| {
        let value = id.map(|id| GraphValue { id, t: t.map_or(0, |t| t.0), rev: rev.map(|rev| rev.0) });
        (name, value)
    };
    input.into_iter().flatten().map(graph).collect()
}

/// A lease that a push is made under: only its current holder can push.
#[derive(InputObject)]
pub(crate) struct LeaseInput {
    /// Its name.
    pub(super) name: String,
    /// Who holds it.
    pub(super) holder: String,
    /// Its fencing token.
    pub(super) token: Long,
}

pub(super) fn claim(input: Option<LeaseInput>) -> Result<Option<Claim>> {
    let Some(LeaseInput { name, holder, token }) = input else { return Ok(None) };
    let name: LeaseName = name.parse().map_err(|reason| problem(Problem::invalid_body("lease.name", reason)))?;
    Ok(Some(Claim { name, holder, token: token.0 }))
}

/// Left out: any older value. Null: no record. Otherwise: this value.
pub(super) fn expected<T, V>(input: MaybeUndefined<T>, value: impl FnOnce(T) -> V) -> Option<Option<V>> {
    match input {
        MaybeUndefined::Undefined => None,
        MaybeUndefined::Null => Some(None),
        MaybeUndefined::Value(input) => Some(Some(value(input))),
    }
}

/// Moves the head of a ledger.
#[derive(InputObject)]
pub(crate) struct HeadPushInput {
    /// The ledger.
    pub(super) address: String,
    /// The head that must be stored now. Null: no record, which creates a ledger. If left out: any older head.
    pub(super) expected: MaybeUndefined<RefInput>,
    /// The new head, with a `t` greater than the stored one.
    pub(super) new: RefInput,
    /// The lease that must be held.
    pub(super) lease: Option<LeaseInput>,
}

/// An index, with those of named graphs.
#[derive(InputObject)]
pub(crate) struct IndexInput {
    /// The index root; null with a `t` of 0 for none.
    pub(super) id: Option<String>,
    /// The `t` that it covers.
    pub(super) t: Long,
    /// Of an expected index, its `rev` as the service returned it; not compared. Without it, a repeated push at the same `t` is
    /// outcome unknown if others have replaced the index since. A new index has none: the service counts it.
    pub(super) rev: Option<Long>,
    /// The named graphs to set, or to compare; others keep theirs.
    pub(super) graphs: Option<Vec<GraphInput>>,
}

/// Moves the index of a record.
#[derive(InputObject)]
pub(crate) struct IndexPushInput {
    /// The record.
    pub(super) address: String,
    /// The index that must be stored now. Null: no record, which creates a ledger. If left out: any older index.
    pub(super) expected: MaybeUndefined<IndexInput>,
    /// The new index.
    pub(super) new: IndexInput,
    /// The lease that must be held.
    pub(super) lease: Option<LeaseInput>,
}

/// A status or a config.
#[derive(InputObject)]
pub(crate) struct ValueInput {
    /// Its version. If left out of a new value, it is one more than the expected version.
    pub(super) v: Option<Long>,
    /// The payload. In an expected value, it is compared if given.
    pub(super) payload: Option<JsonObject>,
}

/// Changes the status of a record, or the configuration of a ledger.
#[derive(InputObject)]
pub(crate) struct ValuePushInput {
    /// The record.
    pub(super) address: String,
    /// The value that must be stored now, with its `v`.
    pub(super) expected: ValueInput,
    /// The new value, with its payload.
    pub(super) new: ValueInput,
    /// The lease that must be held.
    pub(super) lease: Option<LeaseInput>,
}

pub(super) fn payload(input: Option<JsonObject>) -> Result<Map<String, Value>> {
    input.map(|Json(payload)| payload).ok_or_else(|| problem(Problem::invalid_body("new.payload", "is required")))
}
