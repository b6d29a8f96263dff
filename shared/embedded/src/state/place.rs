//! The place of a record in lists.

use std::sync::Arc;

use nameservice_model::RecordKind;

use super::record::Record;

/// A record's place in lists: graph sources before ledgers, each by address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    rank: u8,
    pub(crate) address: Arc<str>,
}

impl Place {
    pub(crate) fn new(kind: RecordKind, address: Arc<str>) -> Self {
        Self { rank: rank(kind), address }
    }

    pub(super) fn of(record: &Record) -> Self {
        Self::new(record.kind, record.address.clone())
    }

    pub(crate) const fn kind(&self) -> RecordKind {
        if self.rank == 0 { RecordKind::GraphSource } else { RecordKind::Ledger }
    }
}

const fn rank(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::GraphSource => 0,
        RecordKind::Ledger => 1,
    }
}
