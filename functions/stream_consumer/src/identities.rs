//! The kind of the record that a change is about: only the meta item has it, and most changes are of other items.

use std::collections::{BTreeSet, HashMap};

use nameservice_feed::{Entry, Feed};
use nameservice_model::{Address, ChangeKind, ChangedPart, ConcernKind, Identity, RecordKind, Result};
use nameservice_store::{Difference, Identities, Known, Store};

use crate::{Delivery, Found, Identified, Seen};

/// Returns the feed entries of the changes.
///
/// Only ledgers have heads, so that a batch of pushes costs no read: a head that belongs to no record takes a position, and
/// replicas leave it out. For other changes, the batch shows the kind if it contains a stream record of the meta item; the rest
/// is read in one request. The feed knows the kind of a record that was purged meanwhile, and perhaps created again as another
/// kind. Other changes of items without a meta item are left out: they belong to no record (docs/specification.md, Table).
pub(crate) async fn identify(
    store: &Store,
    feed: &Feed,
    batch: &[Delivery],
    seen: &[Seen],
    found: Vec<Found>,
) -> Result<Vec<Identified>> {
    let in_batch = InBatch::by(seen);
    let mut unknown = BTreeSet::new();
    let identities: Vec<Option<Identity>> = found
        .iter()
        .map(|Found { delivery, difference, .. }| {
            let identity = match difference.part {
                ChangedPart::Concern(ConcernKind::Head) => Some(LEDGER),
                _ => in_batch.at(*delivery, difference),
            };
            if identity.is_none() {
                unknown.insert(difference.address.clone());
            }
            identity
        })
        .collect();
    let unknown: Vec<Address> = unknown.into_iter().collect();
    let read = if unknown.is_empty() { HashMap::new() } else { store.identities(&unknown).await? };
    let mut recorded = Recorded { feed, latest: None, before: HashMap::new() };

    let mut entries = Vec::with_capacity(found.len());
    for (Found { delivery, difference, is_whole }, identity) in found.into_iter().zip(identities) {
        let identity = match (identity, read.get(&difference.address)) {
            (Some(identity), _) => Some(identity),
            (None, Some(known)) if is_of(known, &difference, &seen[delivery]) => Some(known.identity.clone()),
            (None, known) => recorded.of(&difference.address, known).await?,
        };
        let event_id = batch[delivery].event_id().to_owned();
        let sequence_number = batch[delivery].sequence_number().to_owned();
        match identity {
            Some(identity) => {
                let entry = Entry { event_id, sequence_number, difference, identity };
                entries.push(Identified { delivery, entry, is_whole });
            }
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

/// Returns whether the stored record is certainly the one that was changed, and not a later one of the same address: a record's
/// items are only deleted with it, and none is older than the record. Both times are in whole seconds.
fn is_of(known: &Known, difference: &Difference, seen: &Seen) -> bool {
    difference.kind != ChangeKind::Purged && known.created_at.is_none_or(|at| seen.written_at.is_some_and(|by| at < by))
}

/// Kinds that the feed has recorded for records that may have been replaced.
struct Recorded<'a> {
    feed: &'a Feed,
    latest: Option<HashMap<Address, Identity>>,
    before: HashMap<Address, Option<Identity>>,
}

impl Recorded<'_> {
    /// Returns the kind that the feed recorded last; otherwise the one that is known now.
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

/// Kinds from the records of meta items in a batch, in the order of the batch.
struct InBatch(HashMap<Address, Vec<(usize, Identities)>>);

impl InBatch {
    fn by(seen: &[Seen]) -> Self {
        let mut in_batch: HashMap<Address, Vec<(usize, Identities)>> = HashMap::new();
        for (i, seen) in seen.iter().enumerate() {
            if let Some(identities) = &seen.identities {
                in_batch.entry(identities.address.clone()).or_default().push((i, identities.clone()));
            }
        }
        Self(in_batch)
    }

    /// Returns the record's kind at the time of this delivery. The items of one transaction come in any order, so the meta item
    /// of a creation may follow, and that of a purge may precede.
    fn at(&self, delivery: usize, difference: &Difference) -> Option<Identity> {
        let in_batch = self.0.get(&difference.address)?;
        let at = in_batch.partition_point(|(i, _)| *i <= delivery);
        let (last, next) = (at.checked_sub(1).map(|i| &in_batch[i].1), in_batch.get(at).map(|(_, next)| next));
        // A deletion belongs to the record before its meta item was deleted, any other change to the one after.
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
