//! What the service takes. Each shape rejects fields that it does not know, and turns itself into what the store takes
//! under the rules of docs/specification.md (Words, HTTP), naming the field that breaks one.

use std::collections::BTreeMap;

use nameservice_model::{
    self as model, Address, ConcernValue, ContentId, GraphSourcePublication, IndexRoot, MAX_DEPENDENCIES, Object, Push,
    ResetTo, StatusPayload, check_object,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::leases;
use crate::Invalid;

/// Distinguishes `null` from an absent field, which stays `None`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A head: `{id, t}`, or `{id: null, t: 0}` for none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeadValue {
    /// The commit.
    pub id: Option<String>,
    /// Its `t`.
    pub t: i64,
}

impl HeadValue {
    /// A commit: it has an id, and a `t` from 1 on.
    pub fn born(self, field: &str) -> Result<model::NewHead, Invalid> {
        let (id, t) = self.parts(field)?;
        Ok(model::NewHead::new(id, t).map_err(|error| error.within(field))?)
    }

    /// An index, under the same rules.
    pub fn born_index(self, field: &str) -> Result<model::NewIndex, Invalid> {
        let (id, t) = self.parts(field)?;
        Ok(model::NewIndex::new(id, t).map_err(|error| error.within(field))?)
    }

    fn parts(self, field: &str) -> Result<(ContentId, i64), Invalid> {
        let id = self.id.ok_or_else(|| Invalid::body(&format!("{field}.id"), "is required"))?;
        Ok((content_id(&id, &format!("{field}.id"))?, self.t))
    }

    /// Whether there is no commit: without an id, and with a `t` of 0.
    fn is_unborn(&self, field: &str) -> Result<bool, Invalid> {
        match (&self.id, self.t) {
            (None, 0) => Ok(true),
            (None, _) => Err(Invalid::body(&format!("{field}.t"), "must be 0 where id is null")),
            (Some(_), _) => Ok(false),
        }
    }

    /// A commit, or none.
    pub fn born_or_not(self, field: &str) -> Result<model::Head, Invalid> {
        if self.is_unborn(field)? { Ok(ConcernValue::unborn()) } else { Ok(self.born(field)?.value()) }
    }
}

fn content_id(text: &str, field: &str) -> Result<ContentId, Invalid> {
    ContentId::parse(text).map_err(|reason| Invalid::content_id(field, reason))
}

/// An address in a body.
pub fn address(text: &str, field: &str) -> Result<Address, Invalid> {
    Address::parse(text).map_err(|reason| Invalid::address(field, reason))
}

/// Why a push that leaves nothing to expect is rejected.
fn expected_value<T>(expected: Option<Option<T>>) -> Result<T, Invalid> {
    expected.flatten().ok_or_else(|| Invalid::body("expected", "is required, with the `v` that is stored"))
}

/// The push under the lease that it claims, if any.
fn under<E, N>(push: Push<E, N>, claim: Option<leases::Claim>) -> Result<Push<E, N>, Invalid> {
    match claim {
        // That a creation claims a lease is the mistake, whatever the claim.
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
    /// The head that must be stored now. Null: no record, which creates a ledger. Left out: any older head.
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
    /// Checks it.
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
    /// How often this `t` was indexed again. Left out of a new value, it is counted; left out of an expected one, it
    /// is 0, and compared.
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
    /// As the service returned it; not compared, since id and `t` identify an index.
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
    /// The index that must be stored now. Null: no record, which creates a ledger. Left out: any older index.
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
            Some(Some(expected)) => model::IndexPush::cas(expected.into_value()?, new),
        };
        under(push, self.lease)
    }
}

impl ExpectedIndex {
    /// Checks it.
    pub fn into_value(self) -> Result<model::Index, Invalid> {
        let rev = self.rev.unwrap_or(0);
        let head = HeadValue { id: self.id, t: self.t }.born_or_not("expected")?;
        if rev < 0 {
            return Err(Invalid::body("expected.rev", "must be 0 or greater"));
        }
        model::check_graph_count(self.graphs.len()).map_err(|error| error.within("expected"))?;
        let graphs = checked_graphs(self.graphs, "expected.graphs", |field, id, t, rev| {
            let rev = rev.ok_or_else(|| Invalid::body(&format!("{field}.rev"), "is required, for it is compared"))?;
            // Under the rules of one that is new.
            let graph = model::NewGraphIndex::new(id, t).and_then(|graph| graph.with_rev(rev));
            let graph = graph.map_err(|error| error.within(field))?;
            Ok(model::GraphIndex { id: graph.id().clone(), t, rev })
        })?;
        if head.payload.is_none() && !graphs.is_empty() {
            return Err(Invalid::body("expected.graphs", "must be empty where id is null"));
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
    /// Its `state` and what else is given, compared too. A lease in it is not.
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
    /// Checks it.
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
    /// Checks it.
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
        Some(_) => Err(Invalid::body(&format!("{field}.state"), "must be a text")),
        None => Err(Invalid::body(&format!("{field}.state"), "is required")),
    }
}

/// A `v` that is left out is the expected one's successor, which must exist.
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
    /// Compared too, where given.
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
    /// Checks it.
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
    /// Checks it.
    pub fn into_value(self) -> Result<ConcernValue<Value>, Invalid> {
        match (self.v, &self.payload) {
            (i64::MIN..=-1, _) => return Err(Invalid::body("expected.v", "must be 0 or greater")),
            (0, Some(_)) => return Err(Invalid::body("expected.payload", "must be null where v is 0")),
            (_, Some(payload)) => {
                check_object(payload).map_err(|error| error.within("expected.payload"))?;
            }
            (_, None) => {}
        }
        Ok(ConcernValue::stored(self.v, self.payload.map(Value::Object)))
    }
}

/// Creates a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewLedger {
    /// `name:branch`; `mydb` means `mydb:main`.
    #[cfg_attr(feature = "openapi", schema(example = "mydb:main"))]
    pub address: String,
    /// Its head, where it has one already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadValue>,
    /// Its configuration.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
}

/// What [`NewLedger`] means.
#[derive(Clone, Debug)]
pub struct LedgerToCreate {
    /// Where.
    pub address: Address,
    /// With this head.
    pub head: Option<model::NewHead>,
    /// With this configuration.
    pub config: Option<model::NewConfig>,
}

impl NewLedger {
    /// Checks it.
    pub fn into_model(self) -> Result<LedgerToCreate, Invalid> {
        Ok(LedgerToCreate {
            address: address(&self.address, "address")?,
            head: self.head.map(|head| head.born("head")).transpose()?,
            config: self.config.map(initial_config).transpose()?,
        })
    }
}

/// The path of a new config begins with `payload`; here the config is the payload.
fn initial_config(config: Object) -> Result<model::NewConfig, Invalid> {
    model::NewConfig::new(config).map_err(|error| {
        let path = error.path.replacen("payload", "config", 1);
        model::InvalidPayload { path, ..error }.into()
    })
}

/// Creates a graph source, or replaces its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GraphSource {
    /// Its type. That of an existing graph source does not change.
    #[cfg_attr(feature = "openapi", schema(example = "f:Bm25Index", max_length = 128))]
    pub source_type: String,
    /// Its configuration, opaque to the nameservice.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub config: Object,
    /// The addresses that it depends on, at most 24. Left out, those of an existing graph source stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<String>>,
    /// The `v` of the config that must be stored now; 0 where the graph source must not exist.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_v: Option<i64>,
    /// The `v` that the config gets, greater than the current one; left out, one more.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<i64>,
}

impl GraphSource {
    /// Checks it, as the graph source of this address.
    pub fn into_publication(self, own: &Address) -> Result<GraphSourcePublication, Invalid> {
        let mut publication = GraphSourcePublication::new(own.clone(), self.source_type, self.config)?;
        if let Some(v) = self.expected_v {
            publication = publication.expecting(v)?;
        }
        if let Some(v) = self.v {
            publication = publication.with_v(v)?;
        }
        if let Some(texts) = self.dependencies {
            // More than are allowed are not looked at.
            let texts = texts.iter().take(MAX_DEPENDENCIES + 1).enumerate();
            let addresses = texts.map(|(i, text)| address(text, &format!("dependencies[{i}]")));
            publication = publication.with_dependencies(addresses.collect::<Result<_, _>>()?)?;
        }
        Ok(publication)
    }
}

/// Creates a branch of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewBranch {
    /// The name that both branches share.
    #[cfg_attr(feature = "openapi", schema(example = "mydb"))]
    pub name: String,
    /// The branch to create.
    #[cfg_attr(feature = "openapi", schema(example = "dev"))]
    pub branch: String,
    /// The branch to start from.
    #[cfg_attr(feature = "openapi", schema(example = "main"))]
    pub source: String,
    /// The commit to start from; left out, the source's head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<HeadValue>,
}

/// What [`NewBranch`] means.
#[derive(Clone, Debug)]
pub struct BranchToCreate {
    /// The new branch.
    pub branch: Address,
    /// Its source.
    pub source: Address,
    /// The commit to start from, where it is not the source's head.
    pub at: Option<model::NewHead>,
}

impl NewBranch {
    /// Checks it.
    pub fn into_model(self) -> Result<BranchToCreate, Invalid> {
        // The name is checked separately first, so that an error names the right field.
        let main = Address::from_parts(&self.name, "main").map_err(|reason| Invalid::address("name", reason))?;
        let branch = main.with_branch(&self.branch).map_err(|reason| Invalid::address("branch", reason))?;
        let source = main.with_branch(&self.source).map_err(|reason| Invalid::address("source", reason))?;
        if branch == source {
            return Err(Invalid::body("source", "is the branch itself"));
        }
        Ok(BranchToCreate { branch, source, at: self.at.map(|at| at.born("at")).transpose()? })
    }
}

/// Retracts a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Retraction {
    /// Why, for those who look at its status.
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Retraction {
    /// The longest reason, in bytes.
    const MAX_REASON_BYTES: usize = 1024;

    /// Checks it.
    pub fn into_reason(self) -> Result<Option<String>, Invalid> {
        match self.reason {
            Some(reason) if reason.len() > Self::MAX_REASON_BYTES => {
                Err(Invalid::body("reason", format!("has more than {} bytes", Self::MAX_REASON_BYTES)))
            }
            reason => Ok(reason),
        }
    }
}

/// Protects a record, or takes its protection away.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewProtection {
    /// Whether it is to be protected.
    pub protected: bool,
}

/// Puts a ledger to a snapshot. `{id: null, t: 0}` is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The head.
    pub head: HeadValue,
    /// The index.
    pub index: HeadValue,
}

impl Snapshot {
    /// Checks it.
    pub fn into_model(self) -> Result<ResetTo, Invalid> {
        let head = if self.head.is_unborn("head")? { None } else { Some(self.head.born("head")?) };
        let index = if self.index.is_unborn("index")? { None } else { Some(self.index.born_index("index")?) };
        Ok(ResetTo::new(head, index)?)
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::Expected;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::InvalidKind;

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    fn read<T: DeserializeOwned>(body: Value) -> T {
        serde_json::from_value(body).unwrap()
    }

    #[track_caller]
    fn rejected<T: std::fmt::Debug>(result: Result<T, Invalid>, field: &str) {
        let problem = result.unwrap_err();
        assert_ne!(problem.kind, InvalidKind::Parameter, "{problem:?}");
        assert_eq!(problem.field, field, "{problem:?}");
    }

    #[test]
    fn what_a_head_push_expects_is_distinguished() {
        let push = |body: Value| read::<HeadPush>(body).into_push();
        let new = json!({"id": ID, "t": 2});
        assert_eq!(push(json!({"new": new})).unwrap().expected(), &Expected::Older);
        assert_eq!(push(json!({"new": new, "expected": null})).unwrap().expected(), &Expected::NoRecord);
        let unborn = push(json!({"new": new, "expected": {"id": null, "t": 0}})).unwrap();
        assert_eq!(unborn.expected(), &Expected::Value(ConcernValue::unborn()));
        // Not greater than what is expected: for the store to answer.
        assert!(push(json!({"new": new, "expected": {"id": ID, "t": 7}})).is_ok());
        for (body, field) in [
            (json!({"new": {"id": null, "t": 1}}), "new.id"),
            (json!({"new": {"t": 1}}), "new.id"),
            (json!({"new": {"id": "Qm", "t": 1}}), "new.id"),
            (json!({"new": {"id": ID, "t": 0}}), "new.t"),
            (json!({"new": new, "expected": {"id": null, "t": 1}}), "expected.t"),
            (json!({"new": new, "expected": {"id": ID, "t": 0}}), "expected.t"),
            (json!({"new": new, "expected": {"id": ID, "t": -1}}), "expected.t"),
        ] {
            rejected(push(body), field);
        }
    }

    #[test]
    fn an_index_push_checks_its_graphs() {
        let push = |body: Value| read::<IndexPush>(body).into_push();
        let new = json!({"id": ID, "t": 2, "graphs": {"g": {"id": ID, "t": 2}, "h": null}});
        let good = push(json!({"new": new, "expected": {"id": ID, "t": 2, "rev": 3}})).unwrap();
        assert_eq!(good.desired().graphs().len(), 2);
        assert!(push(json!({"new": new, "allow_equal": true})).unwrap().allows_equal());
        rejected(push(json!({"new": new, "allow_equal": true, "expected": null})), "allow_equal");
        let long = "g".repeat(256);
        for (graphs, field) in [
            (json!({" ": null}), "new.graphs"),
            (json!({&long: null}), "new.graphs"),
            (json!({"g": {"id": "x", "t": 1}}), "new.graphs.g.id"),
            (json!({"g": {"id": ID, "t": 0}}), "new.graphs.g.t"),
            (json!({"g": {"id": ID, "t": 1, "rev": -1}}), "new.graphs.g.rev"),
        ] {
            rejected(push(json!({"new": {"id": ID, "t": 2, "graphs": graphs}})), field);
        }
        let many: BTreeMap<_, _> = (0..=model::MAX_GRAPHS).map(|i| (i.to_string(), Value::Null)).collect();
        rejected(push(json!({"new": {"id": ID, "t": 2, "graphs": many}})), "new.graphs");
    }

    #[test]
    fn a_status_push_names_its_expectation_and_no_lease() {
        let push = |body: Value| read::<StatusPush>(body).into_push();
        let ready = json!({"payload": {"state": "ready"}});
        let good =
            push(json!({"expected": {"v": 4, "payload": {"state": "indexing", "index_lock": {}}}, "new": ready}));
        let good = good.unwrap();
        assert_eq!(good.new_v(), 5);
        let expected = ConcernValue::new(4, StatusPayload::state("indexing"));
        assert_eq!(good.expected(), &Expected::Value(expected));
        for (body, field) in [
            (json!({"new": ready}), "expected"),
            (json!({"expected": null, "new": ready}), "expected"),
            (json!({"expected": {"v": 0}, "new": ready}), "expected.v"),
            (json!({"expected": {"v": i64::MAX}, "new": ready}), "expected.v"),
            (json!({"expected": {"v": 1, "payload": {}}, "new": ready}), "expected.payload.state"),
            (json!({"expected": {"v": 1}, "new": {"v": 0, "payload": {"state": "a"}}}), "new.v"),
            (json!({"expected": {"v": 1}, "new": {"payload": {}}}), "new.payload.state"),
            (json!({"expected": {"v": 1}, "new": {"payload": {"state": " "}}}), "new.payload.state"),
            (json!({"expected": {"v": 1}, "new": {"payload": {"state": 1}}}), "new.payload.state"),
            (json!({"expected": {"v": 1}, "new": {"payload": {"state": "a", "": 1}}}), "new.payload."),
            (
                json!({"expected": {"v": 1}, "new": {"payload": {"state": "a", "reindex_lock": 1}}}),
                "new.payload.reindex_lock",
            ),
        ] {
            rejected(push(body), field);
        }
    }

    #[test]
    fn a_config_push_checks_its_context() {
        let push = |body: Value| read::<ConfigPush>(body).into_push();
        let new = json!({"payload": {"default_context_id": ID}});
        assert_eq!(push(json!({"expected": {"v": 0, "payload": null}, "new": new})).unwrap().new_v(), 1);
        for (body, field) in [
            (json!({"new": new}), "expected"),
            (json!({"expected": {"v": -1}, "new": new}), "expected.v"),
            (json!({"expected": {"v": 0, "payload": {}}, "new": new}), "expected.payload"),
            (
                json!({"expected": {"v": 0}, "new": {"payload": {"default_context_id": "x"}}}),
                "new.payload.default_context_id",
            ),
            (
                json!({"expected": {"v": 0}, "new": {"payload": {"default_context_id": 1}}}),
                "new.payload.default_context_id",
            ),
            (json!({"expected": {"v": 0}, "new": {"payload": {"a": 1e300}}}), "new.payload.a"),
        ] {
            rejected(push(body), field);
        }
    }

    #[test]
    fn a_graph_source_depends_on_distinct_others() {
        let own = Address::parse("search").unwrap();
        let publish = |body: Value| read::<GraphSource>(body).into_publication(&own);
        let good = publish(json!({"source_type": "f:X", "config": {}, "dependencies": ["mydb"]})).unwrap();
        assert_eq!(good.dependencies().unwrap()[0].as_str(), "mydb:main");
        let many: Vec<_> = (0..25).map(|i| format!("a{i}")).collect();
        for (change, field) in [
            (json!({"source_type": " "}), "source_type"),
            (json!({"source_type": "s".repeat(129)}), "source_type"),
            (json!({"expected_v": -1}), "expected_v"),
            (json!({"v": 0}), "v"),
            (json!({"dependencies": ["search"]}), "dependencies[0]"),
            (json!({"dependencies": ["a", "a:main"]}), "dependencies[1]"),
            (json!({"dependencies": ["a", "a@b"]}), "dependencies[1]"),
            (json!({"dependencies": many}), "dependencies"),
        ] {
            let mut body = json!({"source_type": "f:X", "config": {}});
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            rejected(publish(body), field);
        }
    }

    #[test]
    fn creations_and_resets_name_the_field() {
        let ledger = |body: Value| read::<NewLedger>(body).into_model();
        rejected(ledger(json!({"address": "a:b:c"})), "address");
        rejected(ledger(json!({"address": "a", "head": {"id": ID, "t": 0}})), "head.t");
        rejected(ledger(json!({"address": "a", "config": {"default_context_id": "x"}})), "config.default_context_id");
        let branch = |body: Value| read::<NewBranch>(body).into_model();
        rejected(branch(json!({"name": "a:b", "branch": "c", "source": "main"})), "name");
        rejected(branch(json!({"name": "a", "branch": "c:d", "source": "main"})), "branch");
        rejected(branch(json!({"name": "a", "branch": "c", "source": ""})), "source");
        rejected(branch(json!({"name": "a", "branch": "c", "source": "c"})), "source");
        rejected(branch(json!({"name": "a", "branch": "c", "source": "main", "at": {"id": null, "t": 0}})), "at.id");
        let reset = |body: Value| read::<Snapshot>(body).into_model();
        assert!(reset(json!({"head": {"id": ID, "t": 1}, "index": {"id": null, "t": 0}})).is_ok());
        rejected(reset(json!({"head": {"id": ID, "t": 1}, "index": {"id": null, "t": 1}})), "index.t");
    }

    #[test]
    fn unknown_fields_are_rejected() {
        let new = json!({"id": ID, "t": 1});
        assert!(serde_json::from_value::<HeadPush>(json!({"new": new, "lease": {}})).is_err());
        assert!(serde_json::from_value::<HeadPush>(json!({"new": new, "allow_equal": true})).is_err());
        assert!(serde_json::from_value::<IndexPush>(json!({"new": {"id": ID, "t": 1, "rev": 1}})).is_err());
        assert!(serde_json::from_value::<Retraction>(json!({"why": ""})).is_err());
    }
}
