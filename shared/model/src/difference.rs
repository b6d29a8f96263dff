//! How a part of a record has changed, and what a change shows of it: one rule for every backend.

use serde_json::{Value, json};

use crate::{ChangeKind, ChangedPart, ConcernKind, GraphIndex, Head, IndexRoot};

/// A part of a record, before or after a write, as far as the change feed shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartState<C> {
    /// Its watermark; 0 for a meta.
    pub watermark: i64,
    /// What it contains besides the watermark, in any form in which equal contents compare as equal; `None` if it has no
    /// value.
    pub content: Option<C>,
    /// Whether it is marked as retracted.
    pub retracted: bool,
}

impl<C> PartState<C> {
    /// Returns whether a value was ever stored. A part without one is shown like a part that does not exist.
    fn is_born(&self) -> bool {
        self.watermark != 0 || self.content.is_some()
    }
}

impl ChangeKind {
    /// Returns how a part of a record has changed; `None` if it has not. A part that did not exist before is created, even
    /// if it is marked as retracted from the start: a backend for which it was only unborn passes it as such.
    pub fn between<C: PartialEq>(
        part: ChangedPart,
        before: Option<&PartState<C>>,
        after: Option<&PartState<C>>,
    ) -> Option<Self> {
        let is_born = |state: Option<&PartState<C>>| state.is_some_and(PartState::is_born);
        let (old, new) = match (before, after) {
            (_, None) => return is_born(before).then_some(Self::Purged),
            (None, Some(_)) => return is_born(after).then_some(Self::Created),
            (Some(old), Some(new)) => (old, new),
        };
        let same_watermark = old.watermark == new.watermark;
        if old.retracted != new.retracted {
            Some(if new.retracted { Self::Retracted } else { Self::Restored })
        } else if !old.is_born() {
            new.is_born().then_some(Self::Created)
        } else if same_watermark && old.content == new.content {
            None
        } else if new.watermark < old.watermark || (same_watermark && part == ChangedPart::Concern(ConcernKind::Head)) {
            Some(Self::Reset)
        } else {
            Some(Self::Updated)
        }
    }
}

impl Head {
    /// Returns what a change shows of it, `{id, t}`; `None` if it is unborn.
    pub fn change_payload(&self) -> Option<Value> {
        self.payload.as_ref().map(|id| json!({ "id": id.as_str(), "t": self.v }))
    }
}

impl IndexRoot {
    /// Returns what a change shows of the index with this root and `t`: `{id, t, rev, graphs?}`.
    pub fn change_payload(&self, t: i64) -> Value {
        let mut payload = json!({ "id": self.id.as_str(), "t": t, "rev": self.rev });
        if !self.graphs.is_empty() {
            let shown = |graph: &GraphIndex| json!({ "id": graph.id.as_str(), "t": graph.t, "rev": graph.rev });
            let graphs =
                self.graphs.iter().map(|(name, graph)| (name.clone(), graph.as_ref().map_or(Value::Null, shown)));
            payload["graphs"] = Value::Object(graphs.collect());
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use ChangeKind::*;

    use super::*;

    const UNBORN: PartState<&str> = PartState { watermark: 0, content: None, retracted: false };

    fn born(watermark: i64, content: &str) -> PartState<&str> {
        PartState { watermark, content: Some(content), retracted: false }
    }

    fn marked(state: PartState<&str>) -> PartState<&str> {
        PartState { retracted: true, ..state }
    }

    #[test]
    fn a_change_is_a_difference_in_existence_mark_watermark_or_content() {
        let head = ChangedPart::Concern(ConcernKind::Head);
        let status = ChangedPart::Concern(ConcernKind::Status);
        for (part, before, after, expected) in [
            (head, None, None, None),
            (head, None, Some(UNBORN), None),
            (head, None, Some(born(1, "a")), Some(Created)),
            (head, None, Some(marked(born(1, "a"))), Some(Created)),
            (head, None, Some(marked(UNBORN)), None),
            (head, Some(UNBORN), Some(born(1, "a")), Some(Created)),
            (head, Some(UNBORN), Some(marked(UNBORN)), Some(Retracted)),
            (head, Some(UNBORN), Some(UNBORN), None),
            (head, Some(UNBORN), None, None),
            (head, Some(born(1, "a")), Some(born(1, "a")), None),
            (head, Some(born(1, "a")), Some(born(2, "a")), Some(Updated)),
            (head, Some(born(1, "a")), Some(born(1, "b")), Some(Reset)),
            (status, Some(born(1, "a")), Some(born(1, "b")), Some(Updated)),
            (head, Some(born(2, "b")), Some(born(1, "a")), Some(Reset)),
            (head, Some(born(2, "b")), Some(UNBORN), Some(Reset)),
            (head, Some(born(2, "b")), None, Some(Purged)),
            (status, Some(born(1, "a")), Some(marked(born(2, "b"))), Some(Retracted)),
            (status, Some(marked(born(1, "a"))), Some(born(2, "b")), Some(Restored)),
            (status, Some(marked(born(1, "a"))), Some(marked(born(2, "b"))), Some(Updated)),
            (status, Some(marked(born(1, "a"))), None, Some(Purged)),
        ] {
            assert_eq!(ChangeKind::between(part, before.as_ref(), after.as_ref()), expected, "{before:?} -> {after:?}");
        }
    }
}
