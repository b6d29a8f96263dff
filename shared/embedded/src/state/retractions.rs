//! Retracting and restoring.

use nameservice_model::{Address, ConcernKind, Object, Restored, Result, Retracted, StatusPayload};
use serde_json::json;

use super::{Record, Step, one_more, status::STATUS_V};

impl Step<'_> {
    pub(super) fn retract(&mut self, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        let Some(there) = self.get(address) else { return Ok(Retracted::Unknown) };
        let shown = || Box::new(there.to_model());
        if there.status.calls.remembers(self.call) {
            return Ok(Retracted::Retracted(shown()));
        }
        self.check_key(there.status.calls.knows_key_of(self.call), "retract a record")?;
        if there.retracted {
            return Ok(Retracted::Already(shown()));
        }
        if there.protected {
            return Ok(Retracted::Protected);
        }
        if there.is_referenced() {
            return Ok(Retracted::HasDependents);
        }
        let mut meta = Object::from_iter([("retracted_at".to_owned(), json!(self.now.seconds()))]);
        if let Some(reason) = reason {
            meta.insert("reason".to_owned(), json!(reason));
        }
        let record = self.marked(&there, true, StatusPayload::RETRACTED, &meta)?;
        Ok(Retracted::Retracted(Box::new(self.put(record).to_model())))
    }

    pub(super) fn restore(&mut self, address: &Address) -> Result<Restored> {
        let Some(there) = self.get(address) else { return Ok(Restored::Unknown) };
        let shown = || Box::new(there.to_model());
        if there.status.calls.remembers(self.call) {
            return Ok(Restored::Restored(shown()));
        }
        self.check_key(there.status.calls.knows_key_of(self.call), "restore a record")?;
        if !there.retracted {
            return Ok(Restored::NotRetracted(shown()));
        }
        let record = self.marked(&there, false, StatusPayload::READY, &Object::new())?;
        Ok(Restored::Restored(Box::new(self.put(record).to_model())))
    }

    /// Returns the record with its mark set or removed, and its status updated to show that. Its lease and token stay.
    fn marked(&self, there: &Record, retracted: bool, state: &str, meta: &Object) -> Result<Record> {
        let mut record = there.clone();
        record.retracted = retracted;
        record.status.v = one_more(STATUS_V, record.status.v)?;
        record.status.set_state(state);
        record.status.set_meta(meta);
        self.remember(&mut record, ConcernKind::Status);
        Ok(record)
    }
}
