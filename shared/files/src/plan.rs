//! What a write is about.

use nameservice_model::Address;

/// What a write needs to know before it is decided, and what it may change.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) operation: &'static str,
    pub(crate) address: Address,
    /// The record whose branches it counts.
    pub(crate) parent: Option<Address>,
    /// Records that must be there.
    pub(crate) targets: Vec<Address>,
    /// Whether it may create the record.
    pub(crate) creates: bool,
    /// Whether nothing may refer to the record.
    pub(crate) removes: bool,
    /// Who wants a lease that another program's must not exclude.
    pub(crate) holder: Option<String>,
}

impl Plan {
    pub(crate) fn new(operation: &'static str, address: &Address) -> Self {
        Self {
            operation,
            address: address.clone(),
            parent: None,
            targets: Vec::new(),
            creates: false,
            removes: false,
            holder: None,
        }
    }
}
