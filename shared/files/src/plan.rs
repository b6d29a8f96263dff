//! The plan of a write.

use nameservice_model::Address;

/// What a write reads before it is decided, and what it may change.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) operation: &'static str,
    pub(crate) address: Address,
    /// The source of the branch that it creates, whose number of branches it changes.
    pub(crate) parent: Option<Address>,
    /// Whether it ends the record, and so changes the number of branches of the record's source.
    pub(crate) ends: bool,
    /// Records that must exist.
    pub(crate) targets: Vec<Address>,
    /// Whether it may create the record.
    pub(crate) creates: bool,
    /// Whether it requires that nothing refers to the record.
    pub(crate) removes: bool,
    /// Whether it writes the index file, too, after the main file.
    pub(crate) both: bool,
    /// The holder of a lease to be acquired, which another program's lease may exclude.
    pub(crate) holder: Option<String>,
}

impl Plan {
    pub(crate) fn new(operation: &'static str, address: &Address) -> Self {
        Self {
            operation,
            address: address.clone(),
            parent: None,
            ends: false,
            targets: Vec::new(),
            creates: false,
            removes: false,
            both: false,
            holder: None,
        }
    }
}
