//! Deleting records permanently.

use nameservice_model::{Address, Dropped, Purged, Result};

use super::{Record, Step};

impl Step<'_> {
    pub(super) fn purge(&mut self, address: &Address) -> Result<Purged> {
        if self.remembered_at(address).is_some() {
            return Ok(Purged::Purged);
        }
        let Some(record) = self.get(address) else { return Ok(Purged::Unknown) };
        self.check_key(self.reuses_key_at(address, Some(&record)), "purge a record")?;
        if record.protected {
            return Ok(Purged::Protected);
        }
        if record.is_referenced() {
            return Ok(Purged::HasDependents);
        }
        self.purge_record(&record);
        Ok(Purged::Purged)
    }

    pub(super) fn drop_branch(&mut self, address: &Address) -> Result<Dropped> {
        if let Some(memory) = self.remembered_at(address) {
            let parent = memory.parent(address).and_then(|parent| self.get(&parent));
            return Ok(Dropped::Dropped { parent_branches: parent.map_or(0, |parent| parent.branches.into()) });
        }
        let Some(record) = self.get(address) else { return Ok(Dropped::Unknown) };
        self.check_key(self.reuses_key_at(address, Some(&record)), "drop a branch")?;
        if record.parent().is_none() {
            return Ok(Dropped::NotABranch);
        }
        if record.protected {
            return Ok(Dropped::Protected);
        }
        if record.is_referenced() {
            return Ok(Dropped::HasDependents);
        }
        Ok(Dropped::Dropped { parent_branches: self.purge_record(&record).unwrap_or(0) })
    }

    /// Removes a record, and its share in the counts of others. Returns how many branches its parent still has.
    fn purge_record(&mut self, record: &Record) -> Option<i64> {
        self.memories.extend(self.state.memories.remember(record, self.call, self.now));
        self.remove(record);
        for target in record.dependencies() {
            self.uncount(&Address::stored(target.clone()));
        }
        let parent = self.change(&record.parent()?, |parent| parent.branches = parent.branches.saturating_sub(1))?;
        Some(parent.branches.into())
    }
}
