use nameservice_model::{
    ConcernKind, ConcernState, Expected, Judgement, MAX_WATERMARK, NewStatus, Status, StatusPayload, StatusPush,
};

use crate::{
    concern::stored::{Concern, value_as_seen},
    expressions::Expression,
    items::{self, Item, number, string},
    schema::*,
};

pub(crate) struct StatusConcern;

impl Concern for StatusConcern {
    type Payload = StatusPayload;
    type New = NewStatus;

    const KIND: ConcernKind = ConcernKind::Status;
    const OPERATION: &'static str = "push a status";

    fn read(item: &Item) -> Status {
        items::status(item)
    }

    fn judge(item: &Item, push: &StatusPush) -> Judgement {
        push.judge(&items::status_without_lease(item))
    }

    fn plan(expression: &mut Expression, push: &StatusPush, seen: Option<&Item>) {
        set_status(expression, &push.new_value());
        if let Some(item) = seen {
            return value_as_seen::<Self>(expression, item);
        }
        let Expected::Value(expected) = push.expected() else { return };
        Self::expect(expression, expected);
        if push.new_v() <= expected.v {
            expression.at_most(ATTR_STATUS_V, push.new_v() - 1);
        }
    }

    /// Compares the counter, the state if a payload is given, and the rest of the payload if there is any. A lease that
    /// was read with the status is not compared.
    fn expect(expression: &mut Expression, expected: &Status) {
        // A row without these attributes reads as v 1, `ready`.
        match expected.v {
            1 => expression.equals_or_absent(ATTR_STATUS_V, number(1)),
            v => expression.equals(ATTR_STATUS_V, number(v)),
        }
        let Some(payload) = expected.payload.clone().map(StatusPayload::without_leases) else { return };
        match payload.state.as_str() {
            StatusPayload::READY => expression.equals_or_absent(ATTR_STATUS, string(StatusPayload::READY)),
            state => expression.equals(ATTR_STATUS, string(state)),
        }
        if !payload.meta.is_empty() {
            expression.equals(ATTR_STATUS_META, items::map(&payload.meta));
        }
    }

    fn written(_item: &Item, push: &StatusPush) -> Status {
        push.new_value()
    }

    fn limit(_item: &Item, push: &StatusPush) -> Option<&'static str> {
        (push.new_v() > MAX_WATERMARK).then_some(ATTR_STATUS_V)
    }

    fn requires_read(push: &StatusPush) -> bool {
        // Whether it expects the stored value has to be known before it is rejected.
        push.new_v() > MAX_WATERMARK
    }

    fn left_by(item: &Item, push: &StatusPush) -> Status {
        let value = push.new_value();
        let mut ours = item.clone();
        ours.insert(ATTR_STATUS_V.to_owned(), number(value.v));
        if let Some(payload) = value.payload {
            ours.insert(ATTR_STATUS.to_owned(), string(payload.state));
            ours.insert(ATTR_STATUS_META.to_owned(), items::map(&payload.meta));
        }
        // Includes the lease, which only we write.
        items::status(&ours)
    }

    fn state(value: Status) -> ConcernState {
        ConcernState::Status(value)
    }

    fn preset(item: &mut Item, new: &NewStatus) {
        let payload = new.payload();
        item.insert(ATTR_STATUS.to_owned(), string(&payload.state));
        if !payload.meta.is_empty() {
            item.insert(ATTR_STATUS_META.to_owned(), items::map(&payload.meta));
        }
    }

    fn same(_a: &Item, _b: &Item) -> bool {
        false
    }
}

/// Sets the attributes of a status. Never the lease: no status writer touches it (docs/specification.md, Leases).
pub(crate) fn set_status(expression: &mut Expression, status: &Status) {
    expression.set(ATTR_STATUS_V, number(status.v));
    if let Some(payload) = status.payload.clone().map(StatusPayload::without_leases) {
        expression.set(ATTR_STATUS, string(&payload.state));
        expression.put(ATTR_STATUS_META, (!payload.meta.is_empty()).then(|| items::map(&payload.meta)));
    }
}
