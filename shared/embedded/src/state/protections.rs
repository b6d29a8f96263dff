//! Protecting records, and removing the protection.

use nameservice_model::{Address, Protection, Result};

use super::{Record, Step, call_id::Ring};

impl Step<'_> {
    pub(super) fn protect(&mut self, address: &Address, protected: bool) -> Result<Protection> {
        let Some(there) = self.get(address) else { return Ok(Protection::Unknown) };
        let calls = there.protections.as_ref();
        if calls.is_some_and(|calls| calls.remembers(self.call)) {
            return Ok(Protection::Set);
        }
        self.check_key(calls.is_some_and(|calls| calls.knows_key_of(self.call)), "protect a record")?;
        if there.protected == protected {
            return Ok(Protection::Already);
        }
        let mut calls = calls.map_or_else(Ring::default, Ring::clone);
        calls.remember(self.call);
        self.put(Record { protected, protections: Some(calls), ..Record::clone(&there) });
        Ok(Protection::Set)
    }
}
