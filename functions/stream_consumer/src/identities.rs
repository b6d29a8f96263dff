//! What kind of record a change is about: only the meta item says, and most changes are of other items.

use std::collections::{BTreeSet, HashMap};

use nameservice_feed::{Entry, Feed};
use nameservice_model::{Address, ChangeKind, ChangedPart, ConcernKind, Identity, RecordKind, Result};
use nameservice_store::{Difference, Identities, Known, Store};

use crate::{Delivery, Found};

/// The entries of the feed that the changes make, each with the delivery it came from.
///
/// Only ledgers have heads. Of the rest the batch itself tells where it holds the meta item's own record, and what it
/// does not tell is asked for in one read. A record that was purged meanwhile, perhaps to be made again as something
/// else, is known to the feed. What belongs to no record is left out: items that other writers have left under no meta
/// (contract §2.2).
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
            let identity = match difference.part {
                ChangedPart::Concern(ConcernKind::Head) => Some(LEDGER),
                _ => told.at(*delivery, difference),
            };
            if identity.is_none() {
                unknown.insert(difference.address.clone());
            }
            identity
        })
        .collect();
    let unknown: Vec<Address> = unknown.into_iter().collect();
    let read = if unknown.is_empty() { HashMap::new() } else { store.identities(&unknown).await? };
    let mut said = Said { feed, latest: None, before: HashMap::new() };

    let mut entries = Vec::with_capacity(found.len());
    for (Found { delivery, difference }, identity) in found.into_iter().zip(identities) {
        let identity = match (identity, read.get(&difference.address)) {
            (Some(identity), _) => Some(identity),
            (None, Some(known)) if is_of(known, &difference, &batch[delivery]) => Some(known.identity.clone()),
            (None, known) => said.of(&difference.address, known).await?,
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

const LEDGER: Identity = Identity { kind: RecordKind::Ledger, source_type: None };

/// Whether the record that is there now is certainly the one that the change is of, and not a later one of the same
/// address: nothing of a record is deleted without it, and nothing of it is older than it. Both times are whole seconds.
fn is_of(known: &Known, difference: &Difference, delivery: &Delivery) -> bool {
    let written_at = delivery.record().map(|record| record.written_at);
    difference.kind != ChangeKind::Purged && known.created_at.is_none_or(|at| written_at.is_some_and(|by| at < by))
}

/// What the feed has said of records that may not be what they were.
struct Said<'a> {
    feed: &'a Feed,
    latest: Option<HashMap<Address, Identity>>,
    before: HashMap<Address, Option<Identity>>,
}

impl Said<'_> {
    /// What the record was, as far as the feed had come; else what is known of it now.
    async fn of(&mut self, address: &Address, known: Option<&Known>) -> Result<Option<Identity>> {
        let latest = match self.latest.take() {
            Some(latest) => latest,
            None => self.feed.latest_identities().await?,
        };
        if let Some(identity) = self.latest.insert(latest).get(address) {
            return Ok(Some(identity.clone()));
        }
        if !self.before.contains_key(address) {
            self.before.insert(address.clone(), self.feed.last_identity(address).await?);
        }
        let before = self.before.get(address).cloned().flatten();
        Ok(before.or_else(|| known.map(|known| known.identity.clone())))
    }
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
    fn at(&self, delivery: usize, difference: &Difference) -> Option<Identity> {
        let told = self.0.get(&difference.address)?;
        let at = told.partition_point(|(i, _)| *i <= delivery);
        let (last, next) = (at.checked_sub(1).map(|i| &told[i].1), told.get(at).map(|(_, next)| next));
        // What is deleted was part of what was there before its meta went, everything else of what came with its meta.
        let of_meta = |meta: &Identities| match difference.kind {
            ChangeKind::Purged => meta.before.clone(),
            _ => meta.after.clone(),
        };
        if difference.part == ChangedPart::Meta {
            return last.and_then(of_meta);
        }
        match (last, next) {
            (Some(Identities { after: Some(identity), .. }), _) => Some(identity.clone()),
            (Some(gone), _) if difference.kind == ChangeKind::Purged => gone.before.clone(),
            (_, Some(Identities { before: Some(identity), .. })) => Some(identity.clone()),
            (_, Some(coming)) => of_meta(coming),
            (_, None) => None,
        }
    }
}
