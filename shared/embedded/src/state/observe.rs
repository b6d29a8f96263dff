//! Stores records as they are elsewhere.

use nameservice_model::Address;

use super::{Portable, Record, Step, portable::UNKNOWN};

impl Step<'_> {
    /// Stores a record as it is elsewhere; `None` removes it.
    pub(super) fn observe(&mut self, address: &Address, seen: Option<&Portable>) {
        let there = self.get(address);
        let Some(seen) = seen else {
            if let Some(there) = there {
                self.remove(&there);
            }
            return;
        };
        let mut record = Record::from(seen);
        // It is another record under the address if the previous one was purged meanwhile. A rebuilt record may have
        // lost its creation time.
        let is_another = |there: &Record| {
            there.kind != record.kind
                || (there.created_at != record.created_at
                    && there.created_at != UNKNOWN
                    && record.created_at != UNKNOWN)
        };
        match there.filter(|there| !is_another(there) || self.removed(there)) {
            Some(there) => {
                record.id = there.id;
                record.updated_at = there.updated_at;
                if record.created_at == UNKNOWN {
                    record.created_at = there.created_at;
                }
                // Shares an equal origin, so that its orders are not updated.
                if record.origin == there.origin {
                    record.origin = there.origin.clone();
                }
                if record != *there {
                    let _ = self.put(record);
                }
            }
            None => {
                record.id = self.state.position + 1;
                let _ = self.put(record);
            }
        }
    }

    /// Removes a record that no longer exists.
    fn removed(&mut self, record: &Record) -> bool {
        self.remove(record);
        false
    }
}
