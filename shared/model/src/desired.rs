//! The new values of pushes, checked when they are constructed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    ConcernKind, ConcernValue, Config, ContentId, Head, InvalidContentId, InvalidPayload, MAX_GRAPH_NAME_BYTES, Object,
    Status, StatusPayload, check_object, check_state, check_watermark,
};

/// The most named graphs that one index push sets.
pub const MAX_GRAPHS: usize = 100;

/// The member of a ledger's config that names its default JSON-LD context.
pub(crate) const DEFAULT_CONTEXT_ID: &str = "default_context_id";

fn checked_t(t: i64) -> Result<i64, InvalidPayload> {
    check_watermark("t", t, 1)
}

fn checked_v(v: i64) -> Result<i64, InvalidPayload> {
    check_watermark("v", v, 1)
}

/// A new head: a commit and its `t`, 1 or greater.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewHead {
    id: ContentId,
    t: i64,
}

impl NewHead {
    /// Returns a new head.
    pub fn new(id: ContentId, t: i64) -> Result<Self, InvalidPayload> {
        Ok(Self { id, t: checked_t(t)? })
    }

    /// Returns the commit.
    pub const fn id(&self) -> &ContentId {
        &self.id
    }

    /// Returns the `t` of the commit.
    pub const fn t(&self) -> i64 {
        self.t
    }

    /// Returns the value that is stored after a push of it.
    pub fn value(&self) -> Head {
        ConcernValue::new(self.t, self.id.clone())
    }
}

impl TryFrom<Head> for NewHead {
    type Error = InvalidPayload;

    fn try_from(head: Head) -> Result<Self, InvalidPayload> {
        let id = head.payload.ok_or_else(|| InvalidPayload::new("id", "is required"))?;
        Self::new(id, head.v)
    }
}

/// A new index: an index root, the `t` that it covers, and the named graphs that the push sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    id: ContentId,
    t: i64,
    graphs: BTreeMap<String, Option<NewGraphIndex>>,
}

impl NewIndex {
    /// Returns a new index. Its `t` is 1 or greater.
    pub fn new(id: ContentId, t: i64) -> Result<Self, InvalidPayload> {
        Ok(Self { id, t: checked_t(t)?, graphs: BTreeMap::new() })
    }

    /// Sets a named graph; `None` for one that exists and has no index yet. Graphs that a push does not name keep their
    /// indexes.
    pub fn with_graph(mut self, name: impl Into<String>, graph: Option<NewGraphIndex>) -> Result<Self, InvalidPayload> {
        let name = name.into();
        check_graph_name(&name)?;
        self.graphs.insert(name, graph);
        check_graph_count(self.graphs.len())?;
        Ok(self)
    }

    /// Sets several named graphs.
    pub fn with_graphs(
        self,
        graphs: impl IntoIterator<Item = (String, Option<NewGraphIndex>)>,
    ) -> Result<Self, InvalidPayload> {
        graphs.into_iter().try_fold(self, |index, (name, graph)| index.with_graph(name, graph))
    }

    /// Returns the index root.
    pub const fn id(&self) -> &ContentId {
        &self.id
    }

    /// Returns the `t` that it covers.
    pub const fn t(&self) -> i64 {
        self.t
    }

    /// Returns the named graphs that the push sets.
    pub const fn graphs(&self) -> &BTreeMap<String, Option<NewGraphIndex>> {
        &self.graphs
    }
}

/// Checks how many named graphs an index push, or its expected value, names.
pub fn check_graph_count(count: usize) -> Result<(), InvalidPayload> {
    match count {
        0..=MAX_GRAPHS => Ok(()),
        _ => Err(InvalidPayload::new("graphs", format!("has more than {MAX_GRAPHS} graphs"))),
    }
}

/// Checks the name of a named graph: not blank, at most [`MAX_GRAPH_NAME_BYTES`].
pub fn check_graph_name(name: &str) -> Result<(), InvalidPayload> {
    if name.trim().is_empty() || name.len() > MAX_GRAPH_NAME_BYTES {
        let reason =
            format!("the name of a graph must not be blank, and may have at most {MAX_GRAPH_NAME_BYTES} bytes");
        return Err(InvalidPayload::new("graphs", reason));
    }
    Ok(())
}

/// The new index of one named graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGraphIndex {
    id: ContentId,
    t: i64,
    rev: Option<i64>,
}

impl NewGraphIndex {
    /// Returns the index of a named graph. Its `t` is 1 or greater, and not below the stored one when it is pushed.
    pub fn new(id: ContentId, t: i64) -> Result<Self, InvalidPayload> {
        Ok(Self { id, t: checked_t(t)?, rev: None })
    }

    /// Sets the revision, 0 or greater. By default it is counted: one more than the stored one at the same `t`, else 0.
    pub fn with_rev(mut self, rev: i64) -> Result<Self, InvalidPayload> {
        self.rev = Some(check_watermark("rev", rev, 0)?);
        Ok(self)
    }

    /// Returns the index root.
    pub const fn id(&self) -> &ContentId {
        &self.id
    }

    /// Returns the `t` that it covers.
    pub const fn t(&self) -> i64 {
        self.t
    }

    /// Returns the revision, if it was set.
    pub const fn rev(&self) -> Option<i64> {
        self.rev
    }
}

/// A new status. Its state is not blank and not `retracted`, and its metadata names no lease.
#[derive(Clone, Debug, PartialEq)]
pub struct NewStatus {
    v: Option<i64>,
    payload: StatusPayload,
}

impl NewStatus {
    /// Returns a new status, at one more than the expected `v`.
    pub fn new(payload: StatusPayload) -> Result<Self, InvalidPayload> {
        let check = || {
            check_state(&payload.state)?;
            if payload.state == StatusPayload::RETRACTED {
                return Err(InvalidPayload::new("state", "`retracted` is set by retract, not by a status push"));
            }
            StatusPayload::check_meta(&payload.meta)?;
            check_object(&payload.meta)
        };
        check().map_err(|error| error.within("payload"))?;
        Ok(Self { v: None, payload })
    }

    /// Sets `v`, which must be greater than the expected one when it is pushed.
    pub fn with_v(mut self, v: i64) -> Result<Self, InvalidPayload> {
        self.v = Some(checked_v(v)?);
        Ok(self)
    }

    /// Returns the payload.
    pub const fn payload(&self) -> &StatusPayload {
        &self.payload
    }

    /// Returns `v`, if it was set.
    pub const fn v(&self) -> Option<i64> {
        self.v
    }

    /// Returns the `v` that a push stores if it expects this one.
    pub fn v_after(&self, expected: i64) -> i64 {
        self.v.unwrap_or_else(|| expected.saturating_add(1))
    }

    /// Returns the value that a push stores if it expects this `v`.
    pub fn value_after(&self, expected: i64) -> Status {
        ConcernValue::new(self.v_after(expected), self.payload.clone())
    }
}

/// A new config of a ledger: a JSON object whose `default_context_id`, if there is one, is a content id.
#[derive(Clone, Debug, PartialEq)]
pub struct NewConfig {
    v: Option<i64>,
    payload: Object,
}

impl NewConfig {
    /// Returns a new config, at one more than the expected `v`.
    pub fn new(payload: Object) -> Result<Self, InvalidPayload> {
        let check = || {
            check_object(&payload)?;
            match payload.get(DEFAULT_CONTEXT_ID) {
                None | Some(Value::Null) => Ok(()),
                Some(Value::String(id)) => match ContentId::parse(id) {
                    Ok(_) => Ok(()),
                    Err(reason) => Err(InvalidPayload::new(DEFAULT_CONTEXT_ID, reason)),
                },
                Some(other) => Err(InvalidPayload::new(DEFAULT_CONTEXT_ID, InvalidContentId::not_a_text(other))),
            }
        };
        check().map_err(|error: InvalidPayload| error.within("payload"))?;
        Ok(Self { v: None, payload })
    }

    /// Sets `v`, which must be greater than the expected one when it is pushed.
    pub fn with_v(mut self, v: i64) -> Result<Self, InvalidPayload> {
        self.v = Some(checked_v(v)?);
        Ok(self)
    }

    /// Returns the payload.
    pub const fn payload(&self) -> &Object {
        &self.payload
    }

    /// Returns `v`, if it was set.
    pub const fn v(&self) -> Option<i64> {
        self.v
    }

    /// Returns the `v` that a push stores if it expects this one.
    pub fn v_after(&self, expected: i64) -> i64 {
        self.v.unwrap_or_else(|| expected.saturating_add(1))
    }

    /// Returns the value that a push stores if it expects this `v`.
    pub fn value_after(&self, expected: i64) -> Config {
        ConcernValue::new(self.v_after(expected), Value::Object(self.payload.clone()))
    }
}

/// The new value of any one of the concerns.
#[derive(Clone, Debug, PartialEq)]
pub enum NewConcern {
    /// A new head.
    Head(NewHead),
    /// A new index.
    Index(NewIndex),
    /// A new status.
    Status(NewStatus),
    /// A new config.
    Config(NewConfig),
}

impl NewConcern {
    /// Returns the concern that it belongs to.
    pub const fn concern(&self) -> ConcernKind {
        match self {
            Self::Head(_) => ConcernKind::Head,
            Self::Index(_) => ConcernKind::Index,
            Self::Status(_) => ConcernKind::Status,
            Self::Config(_) => ConcernKind::Config,
        }
    }

    /// Returns the watermark that a push stores if it expects this one.
    pub fn v_after(&self, expected: i64) -> i64 {
        match self {
            Self::Head(new) => new.t(),
            Self::Index(new) => new.t(),
            Self::Status(new) => new.v_after(expected),
            Self::Config(new) => new.v_after(expected),
        }
    }
}

impl From<NewHead> for NewConcern {
    fn from(new: NewHead) -> Self {
        Self::Head(new)
    }
}

impl From<NewIndex> for NewConcern {
    fn from(new: NewIndex) -> Self {
        Self::Index(new)
    }
}

impl From<NewStatus> for NewConcern {
    fn from(new: NewStatus) -> Self {
        Self::Status(new)
    }
}

impl From<NewConfig> for NewConcern {
    fn from(new: NewConfig) -> Self {
        Self::Config(new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    fn id() -> ContentId {
        ContentId::parse(ID).unwrap()
    }

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_head_has_an_id_and_a_t() {
        assert_eq!(NewHead::new(id(), 1).unwrap().value(), Head::new(1, id()));
        assert_eq!(NewHead::new(id(), 0).unwrap_err().to_string(), "t: must be 1 or greater");
        assert_eq!(NewHead::try_from(Head::stored(5, None)).unwrap_err().to_string(), "id: is required");
        assert!(NewHead::try_from(Head::stored(-1, Some(id()))).is_err());
    }

    #[test]
    fn an_index_checks_its_graphs() {
        let index = || NewIndex::new(id(), 2).unwrap();
        assert!(NewIndex::new(id(), 0).is_err());
        assert!(NewGraphIndex::new(id(), 0).is_err());
        assert!(NewGraphIndex::new(id(), 1).unwrap().with_rev(-1).is_err());
        assert_eq!(index().with_graph(" ", None).unwrap_err().path, "graphs");
        assert!(index().with_graph("g".repeat(256), None).is_err());
        let many = |count: usize| (0..count).map(|i| (i.to_string(), None));
        assert!(index().with_graphs(many(MAX_GRAPHS)).is_ok());
        assert!(index().with_graphs(many(MAX_GRAPHS + 1)).is_err());
    }

    #[test]
    fn a_status_has_a_state_of_its_writers() {
        let new = |state: &str, meta: Value| NewStatus::new(StatusPayload { state: state.into(), meta: object(meta) });
        let good = new("error", json!({"error": "disk full"})).unwrap();
        assert_eq!((good.v_after(4), good.value_after(4).v), (5, 5));
        assert_eq!(good.clone().with_v(9).unwrap().v_after(4), 9);
        assert_eq!(good.v_after(i64::MAX), i64::MAX);
        assert!(good.with_v(0).is_err());
        for (state, meta, path) in [
            (" ", json!({}), "payload.state"),
            ("retracted", json!({}), "payload.state"),
            (&"s".repeat(129), json!({}), "payload.state"),
            ("a", json!({"state": "b"}), "payload.state"),
            ("a", json!({"x": {"": 1}}), "payload.x."),
            ("a", json!({"index_lock": 1}), "payload.index_lock"),
            ("a", json!({"any_lock": null}), "payload.any_lock"),
            ("a", json!({"backup": {"holder": "h", "acquired_at": 1, "expires_at": 2}}), "payload.backup"),
        ] {
            assert_eq!(new(state, meta.clone()).unwrap_err().path, path, "{state} {meta}");
        }
        assert!(new("retracted", json!({})).unwrap_err().to_string().contains("retract,"));
    }

    #[test]
    fn a_config_names_a_context_that_can_be_one() {
        let new = |payload: Value| NewConfig::new(object(payload));
        assert_eq!(new(json!({"default_context_id": ID})).unwrap().value_after(0).v, 1);
        assert!(new(json!({"default_context_id": null})).is_ok());
        for payload in [json!({"default_context_id": "x"}), json!({"default_context_id": 1})] {
            let error = new(payload).unwrap_err();
            assert_eq!(error.path, "payload.default_context_id");
            assert!(matches!(error.reason, crate::InvalidReason::ContentId(_)), "{error}");
        }
        assert_eq!(new(json!({"a": 1e300})).unwrap_err().path, "payload.a");
    }
}
