use serde_json::Value;

use crate::{
    ConcernState, ConcernValue, Config, ContentId, Head, Index, IndexRoot, InvalidPayload, Lease, LeaseClaim,
    NewConfig, NewHead, NewIndex, NewStatus, OperationOutcome, RecordKind, Status, StatusPayload,
};

/// The value that a push expects.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected<T> {
    /// Any value older than the new one (monotonic).
    Older,
    /// No record at all: the push creates a ledger with the new value.
    NoRecord,
    /// Exactly this value. The payload of a status or a config may be left out: then only the watermark is compared.
    Value(ConcernValue<T>),
}

/// A write to one concern: what it expects (`E`) and the new value (`N`).
///
/// Created by the constructors of [`HeadPush`], [`IndexPush`], [`StatusPush`] and [`ConfigPush`].
#[derive(Clone, Debug, PartialEq)]
pub struct Push<E, N> {
    expected: Expected<E>,
    desired: N,
    allow_equal: bool,
    is_rev_stated: bool,
    lease: Option<LeaseClaim>,
}

/// A push of the head of a ledger.
pub type HeadPush = Push<ContentId, NewHead>;
/// A push of the index of a record.
pub type IndexPush = Push<IndexRoot, NewIndex>;
/// A push of the status of a record.
pub type StatusPush = Push<StatusPayload, NewStatus>;
/// A push of the config of a ledger.
pub type ConfigPush = Push<Value, NewConfig>;

impl<E, N> Push<E, N> {
    fn of(expected: Expected<E>, desired: N) -> Self {
        Self { expected, desired, allow_equal: false, is_rev_stated: true, lease: None }
    }

    /// Makes the push valid only under a lease: it is rejected unless the lease is held. A push that creates a record
    /// cannot claim a lease.
    pub fn under(mut self, lease: LeaseClaim) -> Result<Self, InvalidPayload> {
        if matches!(self.expected, Expected::NoRecord) {
            return Err(InvalidPayload::new("lease", "cannot be held on a record that does not exist"));
        }
        self.lease = Some(lease);
        Ok(self)
    }

    /// Returns what the push expects.
    pub const fn expected(&self) -> &Expected<E> {
        &self.expected
    }

    /// Returns the new value.
    pub const fn desired(&self) -> &N {
        &self.desired
    }

    /// Returns whether the push may replace any index at the same `t`.
    pub const fn allows_equal(&self) -> bool {
        self.allow_equal
    }

    /// Returns the lease that must be held.
    pub const fn lease(&self) -> Option<&LeaseClaim> {
        self.lease.as_ref()
    }

    /// Returns whether the push creates a ledger.
    pub const fn creates(&self) -> bool {
        matches!(self.expected, Expected::NoRecord)
    }
}

impl HeadPush {
    /// Returns a push that replaces any older head.
    pub fn monotonic(new: NewHead) -> Self {
        Self::of(Expected::Older, new)
    }

    /// Returns a push that creates a ledger with this head. It expects that there is no record.
    pub fn create(new: NewHead) -> Self {
        Self::of(Expected::NoRecord, new)
    }

    /// Returns a push that replaces exactly this head. The new one must be newer.
    pub fn cas(expected: Head, new: NewHead) -> Self {
        Self::of(Expected::Value(expected), new)
    }
}

impl IndexPush {
    /// Returns a push that replaces any older index.
    pub fn monotonic(new: NewIndex) -> Self {
        Self::of(Expected::Older, new)
    }

    /// Returns a push that creates a ledger with this index. It expects that there is no record.
    pub fn create(new: NewIndex) -> Self {
        Self::of(Expected::NoRecord, new)
    }

    /// Returns a push that replaces exactly this index. The new one may have the same `t`: the same data, indexed
    /// again. Of the named graphs, only those that `expected` names are compared.
    pub fn cas(expected: Index, new: NewIndex) -> Self {
        Self::of(Expected::Value(expected), new)
    }

    /// Returns a push that replaces any index that is not newer, including one at the same `t`.
    pub fn overwrite(new: NewIndex) -> Self {
        Self { allow_equal: true, ..Self::monotonic(new) }
    }

    /// Makes the `rev` of the expected index one that the caller does not know. It is not compared in any case; but at the same
    /// `t` the new `rev` is counted from it, so a repeated push whose index others have replaced is outcome unknown.
    pub fn with_rev_unstated(mut self) -> Self {
        self.is_rev_stated = false;
        self
    }

    /// Returns whether the caller knows the `rev` of the index that it expects.
    pub const fn is_rev_stated(&self) -> bool {
        self.is_rev_stated
    }
}

impl StatusPush {
    /// Returns a push that replaces exactly this status: its `v`, and its state and metadata if they are given.
    pub fn cas(expected: Status, new: NewStatus) -> Self {
        Self::of(Expected::Value(expected), new)
    }

    /// Returns the `v` that the push stores.
    pub fn new_v(&self) -> i64 {
        self.desired.v_after(self.expected_v())
    }

    /// Returns the status that the push stores.
    pub fn new_value(&self) -> Status {
        self.desired.value_after(self.expected_v())
    }
}

impl ConfigPush {
    /// Returns a push that replaces exactly this config: its `v`, and its payload if it is given.
    pub fn cas(expected: Config, new: NewConfig) -> Self {
        Self::of(Expected::Value(expected), new)
    }

    /// Returns the `v` that the push stores.
    pub fn new_v(&self) -> i64 {
        self.desired.v_after(self.expected_v())
    }

    /// Returns the config that the push stores.
    pub fn new_value(&self) -> Config {
        self.desired.value_after(self.expected_v())
    }
}

impl<E, N> Push<E, N> {
    const fn expected_v(&self) -> i64 {
        match &self.expected {
            Expected::Value(expected) => expected.v,
            Expected::Older | Expected::NoRecord => 0,
        }
    }
}

/// The outcome of a push.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum PushOutcome<T> {
    /// The new value is stored.
    Updated {
        /// The value as this push wrote it.
        value: ConcernValue<T>,
        /// It was stored before this call: an earlier call with the same identity or content had written it.
        replayed: bool,
    },
    /// Not written: the current value is as new or newer. Only for pushes without an expected value.
    Stale {
        /// The current value.
        actual: ConcernValue<T>,
    },
    /// Not written: the expected value did not match.
    Conflict {
        /// The current value; `None` if it is not known.
        actual: Option<ConcernValue<T>>,
    },
    /// Not written: there is no such record.
    Unknown,
    /// Not written: the record is retracted.
    Retracted,
    /// Not written: this kind of record has no such concern, or does not take pushes of it.
    WrongKind(RecordKind),
    /// Not written: the lease that the push claims is not held.
    LeaseLost {
        /// The current lease, if there is one.
        lease: Option<Lease>,
    },
}

impl<T> PushOutcome<T> {
    /// Returns the value as the push wrote it, or the outcome itself if the push was rejected.
    pub fn updated(self) -> Result<ConcernValue<T>, Self> {
        match self {
            Self::Updated { value, .. } => Ok(value),
            rejected => Err(rejected),
        }
    }

    /// Returns whether the new value is stored.
    pub const fn is_updated(&self) -> bool {
        matches!(self, Self::Updated { .. })
    }
}

impl<T> From<PushOutcome<T>> for OperationOutcome
where
    ConcernState: From<ConcernValue<T>>,
{
    fn from(outcome: PushOutcome<T>) -> Self {
        match outcome {
            PushOutcome::Updated { value, replayed } => Self::Updated { value: value.into(), replayed },
            PushOutcome::Stale { actual } => Self::Stale { actual: actual.into() },
            PushOutcome::Conflict { actual } => Self::Conflict { actual: actual.map(ConcernState::from) },
            PushOutcome::Unknown => Self::Unknown,
            PushOutcome::Retracted => Self::Retracted,
            PushOutcome::WrongKind(kind) => Self::WrongKind(kind),
            PushOutcome::LeaseLost { lease } => Self::LeaseLost { lease },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaseName;

    #[test]
    fn a_creation_claims_no_lease() {
        let id = ContentId::parse("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi").unwrap();
        let new = NewHead::new(id, 1).unwrap();
        let claim = LeaseClaim::new(LeaseName::INDEX, "i1", 1).unwrap();
        assert_eq!(HeadPush::create(new.clone()).under(claim.clone()).unwrap_err().path, "lease");
        assert_eq!(HeadPush::monotonic(new).under(claim.clone()).unwrap().lease(), Some(&claim));
    }

    #[test]
    fn a_counter_is_one_more_than_expected_unless_given() {
        let new = NewStatus::new(StatusPayload::state("error")).unwrap();
        assert_eq!(StatusPush::cas(Status::stored(4, None), new.clone()).new_v(), 5);
        assert_eq!(StatusPush::cas(Status::stored(4, None), new.with_v(9).unwrap()).new_value().v, 9);
    }
}
