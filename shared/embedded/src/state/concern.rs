//! What the concerns have in common.

use nameservice_model::{ConcernKind, ConcernState, ConcernValue, Expect, Judgement, Push, RecordKind, Result};

use super::record::Record;

/// A concern: how it is read, and what a push does to it.
pub(super) trait Concern {
    /// The payload of its value.
    type Payload: Expect + Clone + PartialEq;
    /// The new value of a push.
    type New;

    /// Which concern it is.
    const KIND: ConcernKind;
    /// The name of a push of it in errors.
    const OPERATION: &'static str;

    /// The value that a record shows.
    fn read(record: &Record) -> ConcernValue<Self::Payload>;

    /// Returns whether the record has the expected value.
    fn matches(record: &Record, expected: &ConcernValue<Self::Payload>) -> bool {
        Expect::is_expected(&Self::read(record), expected)
    }

    /// Judges a push by the current value of the record.
    fn judge(record: &Record, push: &Push<Self::Payload, Self::New>) -> Judgement;

    /// Stores the new value of an admissible push. An error if a counter cannot grow, or the item would be too large.
    fn store(record: &mut Record, push: &Push<Self::Payload, Self::New>) -> Result<()>;

    /// Returns the value after an admissible push, as a transaction returns it.
    fn written(record: &Record, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// Returns the value that the push left on a record whose concern no other call has pushed since, as a transaction
    /// returns it.
    fn left_by(record: &Record, _push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload> {
        Self::read(record)
    }

    /// Returns the value that the push left if others have written since; `None` if the push does not determine it.
    fn was_written(push: &Push<Self::Payload, Self::New>) -> Option<ConcernValue<Self::Payload>>;

    /// Returns whether two records have the same value, as far as a push that creates a ledger is concerned.
    fn is_same(a: &Record, b: &Record) -> bool;

    /// Returns whether records of this kind take pushes of it.
    fn belongs_to(kind: RecordKind) -> bool;

    /// Converts a value to one of any concern.
    fn state(value: ConcernValue<Self::Payload>) -> ConcernState;

    /// Converts a value back; `None` if it belongs to another concern.
    fn value(state: ConcernState) -> Option<ConcernValue<Self::Payload>>;
}
