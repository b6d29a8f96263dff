//! The plan of a write.

use nameservice_model::{Address, NewLedger, Write};

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
    /// Whether it moves the head back.
    pub(crate) resets: bool,
    /// The holder of a lease to be acquired, which another program's lease may exclude.
    pub(crate) holder: Option<String>,
}

impl Plan {
    /// Returns the plan of a write; `None` if files cannot do it: several of them cannot be written in one step.
    pub(crate) fn of(write: &Write) -> Option<Self> {
        let about = |address: &Address| Self {
            operation: write.operation(),
            address: address.clone(),
            parent: None,
            ends: false,
            targets: Vec::new(),
            creates: false,
            removes: false,
            both: false,
            resets: false,
            holder: None,
        };
        Some(match write {
            Write::CreateLedger(NewLedger { address, .. }) => Self { creates: true, ..about(address) },
            Write::CreateBranch { branch, source, .. } => {
                Self { creates: true, parent: Some(source.clone()), ..about(branch) }
            }
            Write::PublishGraphSource(publication) => Self {
                creates: true,
                targets: publication.dependencies().unwrap_or_default().to_vec(),
                ..about(publication.address())
            },
            Write::PushHead { address, push } => Self { creates: push.creates(), ..about(address) },
            Write::PushIndex { address, push } => {
                Self { creates: push.creates(), both: push.creates(), ..about(address) }
            }
            Write::Retract { address, .. } => Self { removes: true, ..about(address) },
            Write::Purge { address } | Write::DropBranch { address } => {
                Self { removes: true, ends: true, ..about(address) }
            }
            Write::ResetHead { address, .. } => Self { both: true, resets: true, ..about(address) },
            Write::AcquireLease { address, request } => {
                Self { holder: Some(request.holder().to_owned()), ..about(address) }
            }
            Write::PushStatus { address, .. }
            | Write::PushConfig { address, .. }
            | Write::Restore { address }
            | Write::Protect { address, .. }
            | Write::RefreshLease { address, .. }
            | Write::ReleaseLease { address, .. } => about(address),
            Write::Commit(_) => return None,
        })
    }
}
