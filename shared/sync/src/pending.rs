//! The mark of a record that is being taken over from an older place.

use nameservice_model::Record;
use serde_json::Value;

/// The member of the config of a record that is being taken over. It is written with the record and removed last.
pub const PENDING: &str = "legacy_pending";

/// Returns whether a record carries the mark.
pub(crate) fn is_pending(record: &Record) -> bool {
    record.config.payload.as_ref().is_some_and(|config| config.get(PENDING).is_some())
}

/// Returns whether part of a record may still exist only at the older place. A branch is created without a config, so
/// as long as only its head was ever written, this is not known.
pub(crate) fn is_unfinished(record: &Record) -> bool {
    let is_untouched = record.config.v == 0 && record.index.v == 0 && record.status.v <= 1;
    is_pending(record) || (record.source_branch.is_some() && is_untouched)
}

/// Returns the record without the mark.
pub(crate) fn without_mark(mut record: Record) -> Record {
    if let Some(Value::Object(config)) = &mut record.config.payload {
        config.remove(PENDING);
    }
    record
}
