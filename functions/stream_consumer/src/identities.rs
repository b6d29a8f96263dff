//! What kind of record a change is about: only the meta item says, and most changes are of other items.

use std::collections::{BTreeSet, HashMap};

use nameservice_feed::{Entry, Feed};
use nameservice_model::{Address, ChangedPart, ConcernKind, Identity, RecordKind, Result};
use nameservice_store::{Identities, Store};

use crate::{Delivery, Found};

/// The entries of the feed that the changes make, each with the delivery it came from.
///
/// The batch itself tells where it holds the meta item's own record; the rest is asked for in one read. A record that
/// was purged meanwhile is known to the feed. What belongs to no record is left out: items that other writers have left
/// under no meta (contract §2.2).
pub(crate) async fn identify(
    store: &Store,
    feed: &Feed,
    batch: &[Delivery],
    found: Vec<Found>,
) -> Result<Vec<(usize, Entry)>> {
    let told = Told::by(batch);
    let mut unknown = BTreeSet::new();
    let identities: Vec<Option<Identity>> = found
        .iter()
        .map(|Found { delivery, difference }| {
            let identity = told.at(*delivery, &difference.address);
            if identity.is_none() {
                unknown.insert(difference.address.clone());
            }
            identity
        })
        .collect();
    let unknown: Vec<Address> = unknown.into_iter().collect();
    let read = if unknown.is_empty() { HashMap::new() } else { store.identities(&unknown).await? };

    let mut entries = Vec::with_capacity(found.len());
    for (Found { delivery, difference }, identity) in found.into_iter().zip(identities) {
        let identity = match identity.or_else(|| read.get(&difference.address).cloned()) {
            Some(identity) => Some(identity),
            // Only ledgers have heads.
            None if difference.part == ChangedPart::Concern(ConcernKind::Head) => {
                Some(Identity { kind: RecordKind::Ledger, source_type: None })
            }
            None => feed.last_identity(&difference.address).await?,
        };
        let event_id = batch[delivery].event_id().to_owned();
        match identity {
            Some(identity) => entries.push((delivery, Entry { event_id, difference, identity })),
            None => tracing::warn!(
                event_id,
                address = difference.address.as_str(),
                concern = difference.part.as_str(),
                "left out: the item belongs to no record"
            ),
        }
    }
    Ok(entries)
}

/// What the records of meta items in a batch say, in the order of the batch.
struct Told(HashMap<Address, Vec<(usize, Identities)>>);

impl Told {
    fn by(batch: &[Delivery]) -> Self {
        let mut told: HashMap<Address, Vec<(usize, Identities)>> = HashMap::new();
        for (i, delivery) in batch.iter().enumerate() {
            if let Some(identities) = delivery.record().and_then(|record| record.identities()) {
                told.entry(identities.address.clone()).or_default().push((i, identities));
            }
        }
        Self(told)
    }

    /// What the record was when this delivery of the batch was written. The items of one transaction come in any order,
    /// so of a creation the meta may follow, and of a purge it may go before.
    fn at(&self, delivery: usize, address: &Address) -> Option<Identity> {
        let told = self.0.get(address)?;
        let before = told.iter().rev().find(|(i, _)| *i <= delivery);
        let after = told.iter().find(|(i, _)| *i > delivery);
        before
            .and_then(|(_, identities)| identities.after.as_ref().or(identities.before.as_ref()))
            .or_else(|| after.and_then(|(_, identities)| identities.before.as_ref().or(identities.after.as_ref())))
            .cloned()
    }
}
