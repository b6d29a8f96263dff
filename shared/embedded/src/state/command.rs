//! The commands of the state machine, and their outcomes.

use nameservice_model::{Address, Call, Record, Write};

use super::{Replicated, call_id::CallId, portable::Portable};

/// An action, and the call that it belongs to.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) call: CallId,
    pub(crate) action: Action,
}

impl Command {
    /// Returns the command of a call.
    pub fn new(call: &Call, action: impl Into<Action>) -> Self {
        Self { call: CallId::from(&call.request_id), action: action.into() }
    }

    /// Returns the call as a record that remembers it shows it: see [`Portable::calls`](super::Portable::calls).
    pub fn call(&self) -> String {
        self.call.to_text()
    }
}

/// What a command does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Replaces everything with the records of another nameservice. For replicas.
    Adopt {
        /// The records.
        records: Vec<Record>,
        /// The position of the other's feed at which they were read.
        position: u64,
    },
    /// Applies changes of another nameservice, under its positions. For replicas.
    Replicate(Vec<Replicated>),
    /// A write of a caller.
    Write(Write),
    /// Asks whether something can be written. Changes nothing.
    Probe,
    /// Stores a record as it is elsewhere, whatever it was here. The differences become changes in the feed.
    Observe {
        /// The record.
        address: Address,
        /// Its state elsewhere; `None` if it does not exist there.
        record: Option<Box<Portable>>,
    },
}

impl From<Write> for Action {
    fn from(write: Write) -> Self {
        Self::Write(write)
    }
}
