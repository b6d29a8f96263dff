use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use nameservice_model::{Address, Record};

use crate::state::State;

/// Everything at one position.
#[derive(Clone, Debug)]
pub struct View(Arc<State>);

impl View {
    pub(crate) const fn new(state: Arc<State>) -> Self {
        Self(state)
    }

    /// Returns the position: everything that was written up to it is in the view.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Returns when the last change was recorded; the epoch before the first.
    pub fn recorded_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0.recorded_at).unwrap_or(0))
    }

    /// Returns how many records there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the record of an address.
    pub fn record(&self, address: &Address) -> Option<Record> {
        self.0.get(address).map(|record| record.to_model())
    }

    /// Returns the state.
    pub fn state(&self) -> &State {
        &self.0
    }
}
