use std::sync::Arc;

use nameservice_model::{Address, Record};

use crate::state::State;

/// Everything at one position.
#[derive(Clone, Debug)]
pub struct View(Arc<State>);

impl View {
    pub(crate) const fn new(state: Arc<State>) -> Self {
        Self(state)
    }

    /// Returns the position: whatever was written up to it is in the view.
    pub fn position(&self) -> u64 {
        self.0.position()
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
