use nameservice_model::{ConcernKind, Record};
use serde::Serialize;

use crate::judge::{has_redacted_config, is_same, is_same_identity};

/// Where a concern of a local record stands relative to the remote's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Both are the same.
    UpToDate,
    /// The remote has moved on from the value that is still the local one.
    Behind,
    /// The local one has moved on from the value that the remote still has.
    Ahead,
    /// Both have moved on.
    Diverged,
    /// One of them is shown without its secrets: whether they are the same is not known.
    Unknown,
}

/// Where a local record stands relative to the remote's.
#[derive(Clone, Debug, PartialEq)]
pub enum StandingOf {
    /// Both have it: the standing of each concern.
    Both(Vec<(ConcernKind, Standing)>),
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
    /// Neither exists any more.
    Neither,
}

impl StandingOf {
    /// Compares a local record with what is known about the remote's.
    pub fn of(local: Option<&Record>, there: Option<&Record>, base: Option<&Record>) -> Self {
        match (local, there) {
            (None, None) => Self::Neither,
            (None, Some(_)) if base.is_some() => Self::PurgedHere,
            (None, Some(_)) => Self::New,
            (Some(_), None) if base.is_some() => Self::PurgedThere,
            (Some(_), None) => Self::Unpushed,
            (Some(local), Some(there)) if !is_same_identity(local, there) => Self::Incomparable,
            (Some(local), Some(there)) => {
                let standing = |concern| (concern, standing(concern, local, there, base));
                Self::Both(ConcernKind::ALL.into_iter().map(standing).collect())
            }
        }
    }

    /// Returns whether there is nothing to do.
    pub fn is_up_to_date(&self) -> bool {
        match self {
            Self::Both(concerns) => concerns.iter().all(|(_, standing)| *standing == Standing::UpToDate),
            Self::Neither => true,
            _ => false,
        }
    }

    /// Returns the concerns with this standing.
    pub fn concerns(&self, wanted: Standing) -> Vec<ConcernKind> {
        match self {
            Self::Both(concerns) => {
                concerns.iter().filter(|(_, standing)| *standing == wanted).map(|(concern, _)| *concern).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn standing(concern: ConcernKind, local: &Record, there: &Record, base: Option<&Record>) -> Standing {
    if concern == ConcernKind::Config && (has_redacted_config(local) || has_redacted_config(there)) {
        return Standing::Unknown;
    }
    if is_same(concern, local, there) {
        return Standing::UpToDate;
    }
    let Some(base) = base.filter(|base| is_same_identity(base, local)) else { return Standing::Diverged };
    match (is_same(concern, local, base), is_same(concern, there, base)) {
        (true, _) => Standing::Behind,
        (false, true) => Standing::Ahead,
        (false, false) => Standing::Diverged,
    }
}
