//! Interprets outcomes after attempts whose answers were lost.

use nameservice_model::{
    BranchCreated, Created, Dropped, Error, Leased, Protection, Published, Purged, PushOutcome, Released, Reset,
    Restored, Result, Retracted, Written as Outcome,
};

use crate::plan::Plan;

/// Returns the outcome of a write. After a lost answer, an outcome by which nothing was written is not certain: that is an error.
pub(crate) fn judged(plan: &Plan, outcome: Outcome, lost: Option<Error>) -> Result<Outcome> {
    match lost {
        None => Ok(outcome),
        Some(_) if is_applied(&outcome) => Ok(outcome),
        // The record existed at the first attempt, and is gone now.
        Some(_) if matches!(outcome, Outcome::Purged(Purged::Unknown)) => Ok(Outcome::Purged(Purged::Purged)),
        Some(Error::OutcomeUnknown { source, .. }) => Err(Error::OutcomeUnknown { operation: plan.operation, source }),
        Some(error) => Err(error),
    }
}

/// Returns whether a write has had the effect that its caller asked for.
pub(crate) fn is_applied(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Created(outcome) => matches!(outcome, Created::Created(_)),
        Outcome::BranchCreated(outcome) => matches!(outcome, BranchCreated::Created(_)),
        Outcome::Published(outcome) => matches!(outcome, Published::Created(_) | Published::Updated(_)),
        Outcome::Head(outcome) => is_updated(outcome),
        Outcome::Index(outcome) => is_updated(outcome),
        Outcome::Status(outcome) => is_updated(outcome),
        Outcome::Config(outcome) => is_updated(outcome),
        Outcome::Retracted(outcome) => matches!(outcome, Retracted::Retracted(_)),
        Outcome::Restored(outcome) => matches!(outcome, Restored::Restored(_)),
        Outcome::Purged(outcome) => *outcome == Purged::Purged,
        // The caller asked for a state, no matter who has set it.
        Outcome::Protection(outcome) => *outcome != Protection::Unknown,
        Outcome::Dropped(outcome) => matches!(outcome, Dropped::Dropped { .. }),
        Outcome::Reset(outcome) => matches!(outcome, Reset::Reset { .. }),
        Outcome::Leased(outcome) => matches!(outcome, Leased::Held(_)),
        Outcome::Released(outcome) => *outcome == Released::Released,
        _ => true,
    }
}

fn is_updated<T>(outcome: &PushOutcome<T>) -> bool {
    outcome.is_updated()
}
