//! Reports what is left to migrate.

use std::sync::Arc;

use nameservice_model::{Address, Backend, ChangedPart};
use serde::Serialize;

use crate::{
    Found, Result, Source,
    compare::lookup,
    judge::{Verdict, judge},
    pending::is_pending,
    report::Records,
};

/// What an older place has and a backend lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Left {
    /// How many records the older place has.
    pub records: u64,
    /// Records that the backend lacks.
    pub missing: Records,
    /// Records that were only partly taken over, because the service that did so was interrupted.
    pub pending: Records,
    /// Records that were written at the older place since they were taken over.
    pub newer_there: Records,
    /// What cannot be read as a record.
    pub unreadable: Records,
    /// Records that keep addresses without a content id, in their config.
    pub kept_addresses: Records,
}

/// Compares an older place with a backend, and writes nothing.
pub async fn left(older: &dyn Source, names: &Arc<dyn Backend>) -> Result<Left> {
    let mut left = Left::default();
    let mut reading = older.read().await?;
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            break;
        }
        let records = Found::records(found, &mut left.unreadable);
        left.records += records.len() as u64;
        let addresses: Vec<Address> = records.iter().map(|record| record.address.clone()).collect();
        let here = lookup(&**names, addresses).await?;
        for record in records {
            let Some(there) = here.get(&record.address) else {
                left.missing.add_address(&record.address);
                continue;
            };
            let differences = judge(&record, there);
            match is_pending(there) && !there.retracted {
                true => left.pending.add_address(&record.address),
                // The mark of a protected record may have been removed here.
                false
                    if differences.iter().any(|difference| {
                        difference.part != ChangedPart::Meta && difference.verdict == Verdict::Older
                    }) =>
                {
                    left.newer_there.add_differences(&record.address, &differences);
                }
                false => {}
            }
        }
    }
    drop(reading);
    left.kept_addresses = older.kept_addresses();
    Ok(left)
}
