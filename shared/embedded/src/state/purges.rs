//! Deleting records permanently.

use nameservice_model::{Address, Dropped, Purged};

use super::{Record, Step};

impl Step<'_> {
    pub(super) fn purge(&mut self, address: &Address) -> Purged {
        match self.get(address) {
            None => Purged::Unknown,
            Some(record) if record.protected => Purged::Protected,
            Some(record) if record.is_referenced() => Purged::HasDependents,
            Some(record) => {
                self.purge_record(&record);
                Purged::Purged
            }
        }
    }

    pub(super) fn drop_branch(&mut self, address: &Address) -> Dropped {
        let Some(record) = self.get(address) else { return Dropped::Unknown };
        if record.parent().is_none() {
            return Dropped::NotABranch;
        }
        if record.protected {
            return Dropped::Protected;
        }
        if record.is_referenced() {
            return Dropped::HasDependents;
        }
        Dropped::Dropped { parent_branches: self.purge_record(&record).unwrap_or(0) }
    }

    /// Removes a record, and its share in the counts of others. Returns how many branches its parent still has.
    fn purge_record(&mut self, record: &Record) -> Option<i64> {
        self.remove(record);
        for target in record.dependencies() {
            self.uncount(&Address::stored(&**target));
        }
        let parent = self.change(&record.parent()?, |parent| parent.branches = parent.branches.saturating_sub(1))?;
        Some(parent.branches.into())
    }
}
