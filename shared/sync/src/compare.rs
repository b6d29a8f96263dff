//! Compares two places.

use std::{collections::HashSet, sync::Arc};

use nameservice_model::{Address, Backend, NameService, Record};
use sha2::{Digest as _, Sha256};

use crate::{BackendSource, Found, Result, Source, SyncError, judge::judge, report::Comparison};

/// Compares the records of a source with those of a backend. With `everything`, it also looks for records that only the
/// backend has.
pub async fn compare(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    prefix: Option<&str>,
    everything: bool,
) -> Result<Comparison> {
    compared(source, target, prefix, everything, &HashSet::new()).await
}

/// Compares the records of a source with those of a backend, except for those whose addresses have these hashes.
pub(crate) async fn compare_except(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    except: &HashSet<[u8; 16]>,
) -> Result<Comparison> {
    compared(source, target, None, false, except).await
}

async fn compared(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    prefix: Option<&str>,
    everything: bool,
    except: &HashSet<[u8; 16]>,
) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    let mut reading = source.read().await?;
    comparison.position = reading.position();
    // The records of a stream cannot be looked up again; each leaves 16 bytes.
    let mut seen = HashSet::new();
    let keeps = everything && !source.finds();
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            break;
        }
        let mut records = Found::records(found, &mut comparison.unreadable);
        records.retain(|record| except.is_empty() || !except.contains(&fingerprint(&record.address)));
        if keeps {
            seen.extend(records.iter().map(|record| fingerprint(&record.address)));
        }
        compare_page(&**target, &records, &mut comparison).await?;
    }
    drop(reading);
    if everything {
        let target = BackendSource::new(target.clone()).with_prefix(prefix.map(str::to_owned));
        only_there(source, &seen, &target, &mut comparison).await?;
    }
    Ok(comparison)
}

async fn compare_page(target: &dyn NameService, records: &[Record], comparison: &mut Comparison) -> Result<()> {
    let at_target = lookup(target, records.iter().map(|record| record.address.clone()).collect()).await?;
    for record in records {
        let differences = at_target.get(&record.address).map(|at_target| judge(record, at_target));
        comparison.add(&record.address, differences.as_deref());
    }
    Ok(())
}

/// Returns the records of these addresses at the target.
pub(crate) async fn lookup(
    target: &dyn NameService,
    addresses: Vec<Address>,
) -> Result<std::collections::HashMap<Address, Record>> {
    let found = target.lookup_all(&addresses).await.map_err(SyncError::Target)?;
    Ok(found.into_iter().map(|record| (record.address.clone(), record)).collect())
}

/// Returns a hash that represents an address in a set.
pub(crate) fn fingerprint(address: &Address) -> [u8; 16] {
    let mut print = [0; 16];
    print.copy_from_slice(&Sha256::digest(address.as_str())[..16]);
    print
}

async fn only_there(
    source: &dyn Source,
    seen: &HashSet<[u8; 16]>,
    target: &BackendSource,
    comparison: &mut Comparison,
) -> Result<()> {
    let mut reading = target.read().await?;
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            return Ok(());
        }
        let records = Found::records(found, &mut comparison.unreadable);
        let addresses: Vec<Address> = records.into_iter().map(|record| record.address).collect();
        let known: HashSet<Address> = match source.lookup_all(&addresses).await? {
            Some(records) => records.into_iter().map(|record| record.address).collect(),
            None => addresses.iter().filter(|address| seen.contains(&fingerprint(address))).cloned().collect(),
        };
        for address in addresses.iter().filter(|address| !known.contains(*address)) {
            comparison.only_there.add_address(address);
        }
    }
}
