use nameservice_model::{
    ConcernKind, ConcernState, ConcernValue, ContentId, Head, HeadPush, Judgement, NewHead, RecordKind, Result,
};

use super::{
    concern::Concern,
    record::{HeadItem, Record},
};

pub(super) struct HeadConcern;

impl Concern for HeadConcern {
    type Payload = ContentId;
    type New = NewHead;

    const KIND: ConcernKind = ConcernKind::Head;
    const OPERATION: &'static str = "push a head";

    fn read(record: &Record) -> Head {
        record.head().unwrap_or(ConcernValue::unborn())
    }

    fn matches(record: &Record, expected: &Head) -> bool {
        item(record).is_some_and(|(t, id)| t == expected.v && id == expected.payload.as_ref().map(ContentId::as_str))
    }

    fn judge(record: &Record, push: &HeadPush) -> Judgement {
        push.judge(&Self::read(record))
    }

    fn store(record: &mut Record, push: &HeadPush) -> Result<()> {
        if let Some(head) = &mut record.head {
            set(head, Some(push.desired().id()), push.desired().t());
        }
        Ok(())
    }

    fn written(_record: &Record, push: &HeadPush) -> Head {
        push.desired().value()
    }

    fn was_written(push: &HeadPush) -> Option<Head> {
        Some(push.desired().value())
    }

    fn is_same(a: &Record, b: &Record) -> bool {
        item(a) == item(b)
    }

    fn belongs_to(kind: RecordKind) -> bool {
        kind == RecordKind::Ledger
    }

    fn state(value: Head) -> ConcernState {
        ConcernState::Head(value)
    }

    fn value(state: ConcernState) -> Option<Head> {
        if let ConcernState::Head(value) = state { Some(value) } else { None }
    }
}

fn item(record: &Record) -> Option<(i64, Option<&str>)> {
    record.head.as_ref().map(|head| (head.t, head.id.as_deref()))
}

pub(super) fn set(head: &mut HeadItem, id: Option<&ContentId>, t: i64) {
    head.t = t;
    head.id = id.map(ContentId::shared);
}
