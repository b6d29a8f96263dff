use nameservice_model::{
    ConcernKind, ConcernState, ConcernValue, Expected, Judgement, NewStatus, RecordKind, Result, Status, StatusPayload,
    StatusPush,
};

use super::{concern::Concern, grown, record::Record};

/// The counter of a status.
pub(super) const STATUS_V: &str = "status_v";

pub(super) struct StatusConcern;

impl Concern for StatusConcern {
    type Payload = StatusPayload;
    type New = NewStatus;

    const KIND: ConcernKind = ConcernKind::Status;
    const OPERATION: &'static str = "push a status";

    fn read(record: &Record) -> Status {
        record.status.value()
    }

    fn judge(record: &Record, push: &StatusPush) -> Judgement {
        push.judge(&Self::read(record))
    }

    fn store(record: &mut Record, push: &StatusPush) -> Result<()> {
        let payload = push.desired().payload();
        record.status.v = grown(STATUS_V, record.status.v, was_written(push).v)?;
        record.status.set_state(&payload.state);
        record.status.set_meta(&payload.meta);
        Ok(())
    }

    fn written(_record: &Record, push: &StatusPush) -> Status {
        was_written(push)
    }

    /// Without the lease, as in the first answer.
    fn left_by(_record: &Record, push: &StatusPush) -> Status {
        was_written(push)
    }

    fn was_written(push: &StatusPush) -> Option<Status> {
        Some(was_written(push))
    }

    fn is_same(_a: &Record, _b: &Record) -> bool {
        false
    }

    fn belongs_to(_kind: RecordKind) -> bool {
        true
    }

    fn state(value: Status) -> ConcernState {
        ConcernState::Status(value)
    }

    fn value(state: ConcernState) -> Option<Status> {
        if let ConcernState::Status(value) = state { Some(value) } else { None }
    }
}

fn was_written(push: &StatusPush) -> Status {
    let expected = if let Expected::Value(ConcernValue { v, .. }) = push.expected() { *v } else { 0 };
    push.desired().value_after(expected)
}
