//! Pushes of the concerns.

use std::collections::BTreeMap;

use nameservice_model::{self as model, ConcernValue, ContentId, IndexRoot, Object, Push, StatusPayload, check_object};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{HeadValue, content_id};
use crate::{Invalid, leases};

/// Distinguishes `null` from an absent field, which stays `None`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
/// Returns the expected value, or rejects a push without one.
fn expected_value<T>(expected: Option<Option<T>>) -> Result<T, Invalid> {
    expected.flatten().ok_or_else(|| Invalid::body("expected", "is required, with the `v` that is stored"))
}

/// The push under the lease that it claims, if any.
fn under<E, N>(push: Push<E, N>, claim: Option<leases::Claim>) -> Result<Push<E, N>, Invalid> {
    match claim {
        // A creation cannot claim a lease, whether or not the claim itself is valid.
        Some(_) if push.creates() => Err(Invalid::body("lease", "cannot be held on a record that does not exist")),
        Some(claim) => Ok(push.under(claim.into_claim("lease")?)?),
        None => Ok(push),
    }
}

/// Moves the head of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeadPush {
    /// The head that must be stored now. Null: no record, which creates a ledger. If left out: any older head.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<HeadValue>, nullable))]
    pub expected: Option<Option<HeadValue>>,
    /// The new head, with a `t` greater than the stored one.
    pub new: HeadValue,
    /// The lease that must be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Claim>,
}

impl HeadPush {
    /// Validates it and converts it to the model.
    pub fn into_push(self) -> Result<model::HeadPush, Invalid> {
        let new = self.new.born("new")?;
        let push = match self.expected {
            None => model::HeadPush::monotonic(new),
            Some(None) => model::HeadPush::create(new),
            Some(Some(expected)) => model::HeadPush::cas(expected.born_or_not("expected")?, new),
        };
        under(push, self.lease)
    }
}

/// The index of a named graph.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GraphValue {
    /// The index root.
    pub id: String,
    /// The `t` that it covers.
    pub t: i64,
    /// How many times this `t` was indexed again. If left out of a new value, the service counts it; it is required in
    /// an expected value, if it is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<i64>,
}

/// An index that must be stored now: `{id, t}`, or `{id: null, t: 0}` for none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpectedIndex {
    /// The index root.
    pub id: Option<String>,
    /// The `t` that it covers.
    pub t: i64,
    /// The `rev` as the service returned it; not compared, since id and `t` identify an index. Without it, a repeated push at the
    /// same `t` is outcome unknown if others have replaced the index since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<i64>,
    /// The named graphs to compare; others may be anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::map_of_nullable::<GraphValue>))]
    pub graphs: BTreeMap<String, Option<GraphValue>>,
}

/// A new index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIndex {
    /// The index root.
    pub id: Option<String>,
    /// The `t` that it covers.
    pub t: i64,
    /// The named graphs to set; others keep theirs. Null: the graph exists and has no index yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::map_of_nullable::<GraphValue>))]
    pub graphs: BTreeMap<String, Option<GraphValue>>,
}

/// Moves the index of a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IndexPush {
    /// The index that must be stored now. Null: no record, which creates a ledger. If left out: any older index.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<ExpectedIndex>, nullable))]
    pub expected: Option<Option<ExpectedIndex>>,
    /// The new index. Its `t` may equal that of `expected`: the same data, indexed again.
    pub new: NewIndex,
    /// Without `expected`: also replace an index at the same `t`. Needs `nameservice:admin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_equal: bool,
    /// The lease that must be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Claim>,
}

impl IndexPush {
    /// Checks it. A push with `allow_equal` needs the scope of an administrator, which the handler checks.
    pub fn into_push(self) -> Result<model::IndexPush, Invalid> {
        if self.allow_equal && self.expected.is_some() {
            return Err(Invalid::body("allow_equal", "is for pushes without `expected`"));
        }
        let NewIndex { id, t, graphs } = self.new;
        let new = HeadValue { id, t }.born_index("new")?;
        let graphs = checked_graphs(graphs, "new.graphs", |field, id, t, rev| {
            let graph = model::NewGraphIndex::new(id, t);
            let graph = graph.and_then(|graph| rev.map_or(Ok(graph.clone()), |rev| graph.with_rev(rev)));
            Ok(graph.map_err(|error| error.within(field))?)
        })?;
        let new = new.with_graphs(graphs).map_err(|error| error.within("new"))?;
        let push = match self.expected {
            None if self.allow_equal => model::IndexPush::overwrite(new),
            None => model::IndexPush::monotonic(new),
            Some(None) => model::IndexPush::create(new),
            Some(Some(expected)) => {
                let is_rev_stated = expected.id.is_none() || expected.rev.is_some();
                let push = model::IndexPush::cas(expected.into_value()?, new);
                if is_rev_stated { push } else { push.with_rev_unstated() }
            }
        };
        under(push, self.lease)
    }
}

impl ExpectedIndex {
    /// Validates it and converts it to the model.
    pub fn into_value(self) -> Result<model::Index, Invalid> {
        let rev = self.rev.unwrap_or(0);
        let head = HeadValue { id: self.id, t: self.t }.born_or_not("expected")?;
        model::check_watermark("rev", rev, 0).map_err(|error| error.within("expected"))?;
        model::check_graph_count(self.graphs.len()).map_err(|error| error.within("expected"))?;
        let graphs = checked_graphs(self.graphs, "expected.graphs", |field, id, t, rev| {
            let rev =
                rev.ok_or_else(|| Invalid::body(&format!("{field}.rev"), "is required, because it is compared"))?;
            // The rules for new values apply.
            let graph = model::NewGraphIndex::new(id, t).and_then(|graph| graph.with_rev(rev));
            let graph = graph.map_err(|error| error.within(field))?;
            Ok(model::GraphIndex { id: graph.id().clone(), t, rev })
        })?;
        if head.payload.is_none() && !graphs.is_empty() {
            return Err(Invalid::body("expected.graphs", "must be empty if id is null"));
        }
        Ok(head.map(|id| IndexRoot { id, rev, graphs }))
    }
}

fn checked_graphs<T>(
    graphs: BTreeMap<String, Option<GraphValue>>,
    field: &str,
    value: impl Fn(&str, ContentId, i64, Option<i64>) -> Result<T, Invalid>,
) -> Result<BTreeMap<String, Option<T>>, Invalid> {
    let checked = |(name, graph): (String, Option<GraphValue>)| {
        if let Err(error) = model::check_graph_name(&name) {
            return Err(Invalid::body(field, error.reason));
        }
        let field = format!("{field}.{name}");
        let graph = graph.map(|GraphValue { id, t, rev }| {
            let id = content_id(&id, &format!("{field}.id"))?;
            value(&field, id, t, rev)
        });
        Ok((name, graph.transpose()?))
    };
    graphs.into_iter().map(checked).collect()
}

/// A status that must be stored now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpectedStatus {
    /// Its `v`.
    pub v: i64,
    /// Its `state` and any other members that are given, which are compared too. A lease in it is not compared.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Object>,
}

/// A new status.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewStatus {
    /// By default one more than the stored one; always greater.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<i64>,
    /// `state` and any other members. Replaces the stored payload.
    #[cfg_attr(feature = "openapi", schema(value_type = Object, example = json!({"state": "ready"})))]
    pub payload: Object,
}

/// Changes the status of a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StatusPush {
    /// The status that must be stored now.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = ExpectedStatus, required))]
    pub expected: Option<Option<ExpectedStatus>>,
    /// The new status.
    pub new: NewStatus,
    /// The lease that must be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Claim>,
}

impl StatusPush {
    /// Validates it and converts it to the model.
    pub fn into_push(self) -> Result<model::StatusPush, Invalid> {
        let expected = expected_value(self.expected)?.into_value()?;
        let new = model::NewStatus::new(status_payload(self.new.payload, "new.payload")?);
        let new = new.map_err(|error| error.within("new"))?;
        let new = match new_v(self.new.v, expected.v)? {
            Some(v) => new.with_v(v).map_err(|error| error.within("new"))?,
            None => new,
        };
        under(model::StatusPush::cas(expected, new), self.lease)
    }
}

impl ExpectedStatus {
    /// Validates it and converts it to the model.
    pub fn into_value(self) -> Result<ConcernValue<StatusPayload>, Invalid> {
        if self.v < 1 {
            return Err(Invalid::body("expected.v", "must be 1 or greater"));
        }
        let payload = self.payload.map(|payload| status_payload(payload, "expected.payload")).transpose()?;
        Ok(ConcernValue::stored(self.v, payload.map(StatusPayload::without_leases)))
    }
}

fn status_payload(mut payload: Object, field: &str) -> Result<StatusPayload, Invalid> {
    check_object(&payload).map_err(|error| error.within(field))?;
    match payload.remove("state") {
        Some(Value::String(state)) => Ok(StatusPayload { state, meta: payload }),
        Some(_) => Err(Invalid::body(&format!("{field}.state"), "must be a string")),
        None => Err(Invalid::body(&format!("{field}.state"), "is required")),
    }
}

/// Returns the given `v`. If it is left out, it defaults to the successor of the expected `v`, which must exist.
fn new_v(new: Option<i64>, expected: i64) -> Result<Option<i64>, Invalid> {
    match (new, expected.checked_add(1)) {
        (None, None) => Err(Invalid::body("expected.v", "has no successor")),
        (new, _) => Ok(new),
    }
}

/// A config that must be stored now: `{v: 0}` for none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpectedConfig {
    /// Its `v`.
    pub v: i64,
    /// Compared too, if given.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Object>,
}

/// A new config.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewConfig {
    /// By default one more than the stored one; always greater.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<i64>,
    /// The configuration. Replaces the stored one. `default_context_id` is a content id.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub payload: Object,
}

/// Changes the configuration of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfigPush {
    /// The config that must be stored now.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = ExpectedConfig, required))]
    pub expected: Option<Option<ExpectedConfig>>,
    /// The new config.
    pub new: NewConfig,
    /// The lease that must be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Claim>,
}

impl ConfigPush {
    /// Validates it and converts it to the model.
    pub fn into_push(self) -> Result<model::ConfigPush, Invalid> {
        let expected = expected_value(self.expected)?.into_value()?;
        let new = model::NewConfig::new(self.new.payload).map_err(|error| error.within("new"))?;
        let new = match new_v(self.new.v, expected.v)? {
            Some(v) => new.with_v(v).map_err(|error| error.within("new"))?,
            None => new,
        };
        under(model::ConfigPush::cas(expected, new), self.lease)
    }
}

impl ExpectedConfig {
    /// Validates it and converts it to the model.
    pub fn into_value(self) -> Result<ConcernValue<Value>, Invalid> {
        match (self.v, &self.payload) {
            (i64::MIN..=-1, _) => return Err(Invalid::body("expected.v", "must be 0 or greater")),
            (0, Some(_)) => return Err(Invalid::body("expected.payload", "must be null if v is 0")),
            (_, Some(payload)) => {
                check_object(payload).map_err(|error| error.within("expected.payload"))?;
            }
            (_, None) => {}
        }
        Ok(ConcernValue::stored(self.v, self.payload.map(Value::Object)))
    }
}
