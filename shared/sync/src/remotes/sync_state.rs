use nameservice_model::{ConcernKind, Record};
use serde::Serialize;

use crate::judge::{has_redacted_config, is_same, is_same_identity};

/// How a concern of a local record compares with the remote's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// Both are the same.
    UpToDate,
    /// The remote has advanced from the value that is still the local one.
    Behind,
    /// The local one has advanced from the value that the remote still has.
    Ahead,
    /// Both have advanced.
    Diverged,
    /// One of them is shown without its secrets: whether they are the same is not known.
    Unknown,
}

/// How a local record compares with the remote's.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordSyncState {
    /// Both have it: the sync state of each concern.
    Both(Vec<(ConcernKind, SyncState)>),
    /// Both have it, and they are of different kinds, types or origins.
    Incomparable,
    /// Only the remote has it, and it was never here.
    New,
    /// Only the remote has it; it was purged here.
    PurgedHere,
    /// Only the local one exists, and it was never there.
    Unpushed,
    /// Only the local one exists; it was purged there.
    PurgedThere,
    /// Neither exists now.
    Neither,
}

impl RecordSyncState {
    /// Compares a local record with what is known about the remote's.
    pub fn of(local: Option<&Record>, theirs: Option<&Record>, base: Option<&Record>) -> Self {
        match (local, theirs) {
            (None, None) => Self::Neither,
            (None, Some(_)) if base.is_some() => Self::PurgedHere,
            (None, Some(_)) => Self::New,
            (Some(_), None) if base.is_some() => Self::PurgedThere,
            (Some(_), None) => Self::Unpushed,
            (Some(local), Some(theirs)) if !is_same_identity(local, theirs) => Self::Incomparable,
            (Some(local), Some(theirs)) => {
                let state = |concern| (concern, state(concern, local, theirs, base));
                Self::Both(ConcernKind::ALL.into_iter().map(state).collect())
            }
        }
    }

    /// Returns whether there is nothing to do.
    pub fn is_up_to_date(&self) -> bool {
        match self {
            Self::Both(concerns) => concerns.iter().all(|(_, state)| *state == SyncState::UpToDate),
            Self::Neither => true,
            _ => false,
        }
    }

    /// Returns the concerns in this sync state.
    pub fn concerns(&self, wanted: SyncState) -> Vec<ConcernKind> {
        match self {
            Self::Both(concerns) => {
                concerns.iter().filter(|(_, state)| *state == wanted).map(|(concern, _)| *concern).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn state(concern: ConcernKind, local: &Record, theirs: &Record, base: Option<&Record>) -> SyncState {
    if concern == ConcernKind::Config && (has_redacted_config(local) || has_redacted_config(theirs)) {
        return SyncState::Unknown;
    }
    if is_same(concern, local, theirs) {
        return SyncState::UpToDate;
    }
    let Some(base) = base.filter(|base| is_same_identity(base, local)) else { return SyncState::Diverged };
    match (is_same(concern, local, base), is_same(concern, theirs, base)) {
        (true, _) => SyncState::Behind,
        (false, true) => SyncState::Ahead,
        (false, false) => SyncState::Diverged,
    }
}
