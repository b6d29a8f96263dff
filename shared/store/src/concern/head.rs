use nameservice_model::{
    ConcernKind, ConcernState, ContentId, Expected, Head, HeadPush, Judgement, NewHead, RecordKind,
};

use crate::{
    concern::stored::{Concern, RefAttributes, value_as_seen},
    expressions::Expression,
    items::{self, Item},
    schema::*,
};

const HEAD: RefAttributes = RefAttributes { id: ATTR_COMMIT_ID, t: ATTR_COMMIT_T };

pub(crate) struct HeadConcern;

impl Concern for HeadConcern {
    type Payload = ContentId;
    type New = NewHead;

    const KIND: ConcernKind = ConcernKind::Head;
    const OPERATION: &'static str = "push a head";

    fn read(item: &Item) -> Head {
        items::head(item)
    }

    fn judge(item: &Item, push: &HeadPush) -> Judgement {
        push.judge(&items::head(item))
    }

    fn plan(expression: &mut Expression, push: &HeadPush, seen: Option<&Item>) {
        HEAD.set(expression, push.desired().id(), push.desired().t());
        match (seen, push.expected()) {
            (Some(item), _) => value_as_seen::<Self>(expression, item),
            (None, Expected::Value(expected)) => {
                Self::expect(expression, expected);
                if expected.v > 0 {
                    expression.below(ATTR_COMMIT_T, push.desired().t());
                }
            }
            (None, Expected::Older | Expected::NoRecord) => expression.below(ATTR_COMMIT_T, push.desired().t()),
        }
    }

    fn expect(expression: &mut Expression, expected: &Head) {
        HEAD.expect(expression, expected.v, expected.payload.as_ref());
    }

    fn written(_item: &Item, push: &HeadPush) -> Head {
        push.desired().value()
    }

    fn limit(_item: &Item, _push: &HeadPush) -> Option<&'static str> {
        None
    }

    fn left_by(_item: &Item, push: &HeadPush) -> Head {
        push.desired().value()
    }

    fn state(value: Head) -> ConcernState {
        ConcernState::Head(value)
    }

    fn preset(item: &mut Item, new: &NewHead) {
        HEAD.preset(item, new.id(), new.t());
    }

    fn same(a: &Item, b: &Item) -> bool {
        items::head(a) == items::head(b)
    }

    fn belongs_to(kind: RecordKind) -> bool {
        kind == RecordKind::Ledger
    }
}
