//! Protecting records, and removing the protection.

use nameservice_model::{Address, Protection};

use super::{Record, Step};

impl Step<'_> {
    pub(super) fn protect(&mut self, address: &Address, protected: bool) -> Protection {
        match self.get(address) {
            None => Protection::Unknown,
            Some(there) if there.protected == protected => Protection::Already,
            Some(there) => {
                self.put(Record { protected, ..Record::clone(&there) });
                Protection::Set
            }
        }
    }
}
