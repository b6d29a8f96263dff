//! Protecting records, and removing the protection.

use nameservice_model::{Address, Call, Protection, Result};

use crate::{
    Store,
    client::{Attempts, Outcome, Reject, key_reused},
    expressions::{Expression, Key},
    items,
    records::boolean,
    schema::*,
};

const PROTECT: &str = "protect a record";
const UNPROTECT: &str = "unprotect a record";

impl Store {
    /// Sends one conditional update of the meta item, which remembers the calls that have changed the mark.
    pub(crate) async fn protect_record(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        let operation = if protected { PROTECT } else { UNPROTECT };
        let mut mark = Expression::new();
        mark.record_exists();
        if protected {
            mark.unprotected();
            mark.set(ATTR_PROTECTED, boolean(true));
        } else {
            mark.equals(ATTR_PROTECTED, boolean(true));
            mark.remove(ATTR_PROTECTED);
        }
        mark.by_call(&call.request_id);
        mark.touch(self.now_ms());
        let mut attempts = Attempts::default();
        match self.update(operation, mark, &Key::meta(address), &mut attempts).await? {
            Outcome::Applied(_) => Ok(Protection::Set),
            Outcome::Rejected(Some(meta)) if items::kind(&meta).is_some() => {
                if items::remembers(&meta, &call.request_id) {
                    return Ok(Protection::Set);
                }
                if items::reuses_key(&meta, &call.request_id) {
                    return Err(key_reused(operation, attempts));
                }
                Ok(Protection::Already)
            }
            Outcome::Rejected(_) => attempts.reject(operation, Protection::Unknown),
        }
    }
}
