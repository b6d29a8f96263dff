//! Creating ledgers and branches, and resetting heads.

use std::sync::Arc;

use nameservice_model::{
    Address, BranchCreated, ConcernKind, Created, NewConfig, NewHead, RecordKind, Reset, ResetTo, Result,
};

use super::{Origin, Record, Step, config, head, index, record::IndexItem};

impl Step<'_> {
    pub(super) fn create_ledger(
        &mut self,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        let mut ledger = self.new_record(address, RecordKind::Ledger);
        set_head(&mut ledger, head);
        if let Some(config) = config {
            config::set(&mut ledger.config, config.v_after(0), config.payload());
        }
        Ok(match self.get(address) {
            None => Created::Created(Box::new(self.put(ledger).to_model())),
            Some(there) if there.any_remembers(self.call) => Created::Created(Box::new(as_created(ledger, &there))),
            Some(there) => {
                self.check_key(self.reuses_any_key(&there), "create a ledger")?;
                Created::AlreadyExists
            }
        })
    }

    pub(super) fn create_branch(
        &mut self,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let Some(parent) = self.get(source).filter(|parent| !parent.retracted) else {
            return Ok(BranchCreated::UnknownSource);
        };
        let Some(head) = &parent.head else { return Ok(BranchCreated::UnknownSource) };
        if head.id.is_none() {
            return Ok(BranchCreated::UnbornSource);
        }
        if branch == source {
            return Ok(BranchCreated::AlreadyExists);
        }
        let mut ledger = self.new_record(branch, RecordKind::Ledger);
        let source_branch = Some(Arc::from(source.branch()));
        ledger.origin = Some(Arc::new(Origin { source_branch, ..Origin::default() }));
        match (at, &mut ledger.head) {
            (None, Some(own)) => (own.t, own.id) = (head.t, head.id.clone()),
            _ => set_head(&mut ledger, at),
        }
        Ok(match self.get(branch) {
            None => {
                let record = self.put(ledger).to_model();
                self.change(source, |parent| parent.branches = parent.branches.saturating_add(1));
                BranchCreated::Created(Box::new(record))
            }
            Some(there) if there.any_remembers(self.call) => {
                BranchCreated::Created(Box::new(as_created(ledger, &there)))
            }
            Some(there) => {
                self.check_key(self.reuses_any_key(&there), "create a branch")?;
                BranchCreated::AlreadyExists
            }
        })
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
        let done = match record.head() {
            Some(head) => Reset::Reset { head, index: record.index.value() },
            None => return Ok(Reset::WrongKind(there.kind)),
        };
        if calls().any(|calls| calls.remembers(self.call)) {
            return Ok(done);
        }
        self.check_key(calls().any(|calls| calls.knows_key_of(self.call)), "reset a head")?;
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

/// Returns the answer to a repeated creation: the record as it was created, with the time of its creation.
fn as_created(asked: Record, there: &Record) -> nameservice_model::Record {
    Record { created_at: there.created_at, updated_at: there.updated_at, ..asked }.to_model()
}
