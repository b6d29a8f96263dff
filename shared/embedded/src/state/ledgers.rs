//! Creating ledgers and branches, and resetting heads.

use std::sync::Arc;

use nameservice_model::{
    Address, BranchCreated, ConcernKind, Created, NewHead, NewLedger, RecordKind, Reset, ResetTo, Result,
};

use super::{Origin, Record, Step, check_count, config, head, index, outcome_unknown, record::IndexItem};

impl Step<'_> {
    pub(super) fn create_ledger(&mut self, new: &NewLedger) -> Result<Created> {
        let address = &new.address;
        let mut ledger = self.new_record(address, RecordKind::Ledger);
        ledger.set_attributes(&new.attributes());
        set_head(&mut ledger, new.head.as_ref());
        if let Some(config) = &new.config {
            config::set(&mut ledger.config, config.v_after(0), config.payload());
        }
        let there = self.get(address);
        if let Some(times) = self.created_before(address, there.as_deref()) {
            return Ok(Created::Created(Box::new(as_created(ledger, times))));
        }
        self.check_key(self.reuses_key_at(address, there.as_deref()), "create a ledger")?;
        Ok(match there {
            None => Created::Created(Box::new(self.put(ledger).to_model())),
            Some(_) => Created::AlreadyExists,
        })
    }

    /// Returns when the record that this call has created was created and last written (epoch seconds and milliseconds),
    /// whether or not it still exists; `None` if this call has not created one.
    pub(super) fn created_before(&self, address: &Address, there: Option<&Record>) -> Option<(i64, i64)> {
        match there.filter(|there| there.any_remembers(self.call)) {
            Some(there) => Some((there.created_at, there.updated_at)),
            None => {
                self.remembered_at(address).map(|memory| (memory.created_at, memory.created_at.saturating_mul(1000)))
            }
        }
    }

    pub(super) fn create_branch(
        &mut self,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let (there, parent) = (self.get(branch), self.get(source));
        let mut ledger = self.new_record(branch, RecordKind::Ledger);
        let source_branch = Some(Arc::from(source.branch()));
        ledger.origin = Some(Arc::new(Origin { source_branch, ..Origin::default() }));
        set_head(&mut ledger, at);
        if let Some(times) = self.created_before(branch, there.as_deref()) {
            if let (None, Some(head)) = (at, &mut ledger.head) {
                let first = self.first_head(branch, there.as_deref());
                let (t, id) = first.ok_or_else(|| outcome_unknown("create a branch"))?;
                (head.t, head.id) = (t, Some(id));
            }
            return Ok(BranchCreated::Created(Box::new(as_created(ledger, times))));
        }
        let Some(parent) = parent.filter(|parent| !parent.retracted) else {
            return Ok(BranchCreated::UnknownSource);
        };
        self.check_key(self.reuses_key_at(branch, there.as_deref()), "create a branch")?;
        let Some(head) = &parent.head else { return Ok(BranchCreated::UnknownSource) };
        if head.id.is_none() {
            return Ok(BranchCreated::UnbornSource);
        }
        if branch == source || there.is_some() {
            return Ok(BranchCreated::AlreadyExists);
        }
        check_count("branches", parent.branches)?;
        if let (None, Some(new)) = (at, &mut ledger.head) {
            (new.t, new.id) = (head.t, head.id.clone());
        }
        let record = self.put(ledger).to_model();
        self.change(source, |parent| parent.branches = parent.branches.saturating_add(1));
        Ok(BranchCreated::Created(Box::new(record)))
    }

    /// Returns the head that this call has created a branch with; `None` if it is not known any more.
    fn first_head(&self, branch: &Address, there: Option<&Record>) -> Option<(i64, Arc<str>)> {
        let head = there.and_then(|there| there.head.as_ref()).filter(|head| head.calls.ends_with(self.call));
        match head {
            Some(head) => Some((head.t, head.id.clone()?)),
            None => self.remembered_at(branch)?.first_head(self.call),
        }
    }

    pub(super) fn reset_head(&mut self, address: &Address, to: &ResetTo) -> Result<Reset> {
        let Some(there) = self.get(address) else { return Ok(Reset::Unknown) };
        let mut record = Record::clone(&there);
        if let Some(head) = &mut record.head {
            head::set(head, to.head().map(NewHead::id), to.head().map_or(0, NewHead::t));
        }
        // Indexes of named graphs may lie beyond the target.
        record.index = IndexItem { t: 0, root: None, calls: record.index.calls };
        if let Some(new) = to.index() {
            index::set(&mut record.index, new);
        }
        let calls = || [ConcernKind::Head, ConcernKind::Index].into_iter().filter_map(|concern| there.calls(concern));
        if let Some(head) = there.head().filter(|_| calls().any(|calls| calls.remembers(self.call))) {
            // As they are now: others may have written since.
            return Ok(Reset::Reset { head, index: there.index.value() });
        }
        self.check_key(calls().any(|calls| calls.knows_key_of(self.call)), "reset a head")?;
        let Some(head) = record.head() else { return Ok(Reset::WrongKind(there.kind)) };
        let done = Reset::Reset { head, index: record.index.value() };
        if there.retracted {
            return Ok(Reset::Retracted);
        }
        if there.protected {
            return Ok(Reset::Protected);
        }
        for concern in [ConcernKind::Head, ConcernKind::Index] {
            self.remember(&mut record, concern);
        }
        self.put(record);
        Ok(done)
    }
}

fn set_head(ledger: &mut Record, new: Option<&NewHead>) {
    if let (Some(head), Some(new)) = (&mut ledger.head, new) {
        head::set(head, Some(new.id()), new.t());
    }
}

/// Returns the answer to a repeated creation: the record as it was created, with the times of the one that was.
pub(super) fn as_created(asked: Record, (created_at, updated_at): (i64, i64)) -> nameservice_model::Record {
    Record { created_at, updated_at, ..asked }.to_model()
}
