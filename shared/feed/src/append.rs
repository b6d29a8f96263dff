//! Appends changes, exactly once.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

use jiff::Timestamp;
use nameservice_model::{Change, ChangePayload, Error, Identity, Result};
use nameservice_store::Difference;
use nameservice_views::{Outcome, from_item};

use crate::{
    Feed,
    guards::{self, Guard},
    payloads::{self, Held},
    rows::{self, Counter},
    segments::{self, Content, Segment},
};

/// The most changes of one transaction: their guards, their segment and the counter are the 100 actions that DynamoDB
/// allows.
pub const MAX_TRANSACTION: usize = 98;
/// The writes of a transaction before its guards: the counter and the segment.
const BEFORE_GUARDS: usize = 2;

/// A stream record's change, on its way into the feed.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The id of the stream record, the same in every delivery.
    pub event_id: String,
    /// Its sequence number: a number of up to 40 digits that grows along the changes of an item.
    pub sequence_number: String,
    /// The change that it describes.
    pub difference: Difference,
    /// The kind of the changed record.
    pub identity: Identity,
}

/// An entry, the name of its stream record, and how its payload is held.
struct Prepared<'a> {
    entry: &'a Entry,
    name: String,
    payload: Held,
}

/// The result of a batch.
#[derive(Debug)]
pub struct Appended {
    /// The changes that are in the feed, in the order of the entries: appended now, or by an earlier delivery at the
    /// position of that time. They are the whole batch, unless there is an `error`.
    pub changes: Vec<Change>,
    /// The reason why the entries after those are missing.
    pub error: Option<Error>,
}

/// The position of an entry, the time it was appended, and the kind that was recorded for it.
type Place = (u64, Timestamp, Identity);

impl Feed {
    /// Appends changes to the feed in order, except those that are in it.
    ///
    /// Whatever fails, the feed holds a prefix of the batch and nothing twice. So the order of a record's changes is
    /// kept as long as an incomplete batch is delivered again before what follows it, even if another consumer is still
    /// working on it.
    pub async fn append(&self, entries: &[Entry]) -> Appended {
        let mut changes = Vec::with_capacity(entries.len());
        for chunk in entries.chunks(MAX_TRANSACTION) {
            match self.append_chunk(chunk).await {
                Ok(appended) => changes.extend(appended),
                Err(error) => return Appended { changes, error: Some(error) },
            }
        }
        Appended { changes, error: None }
    }

    async fn append_chunk(&self, chunk: &[Entry]) -> Result<Vec<Change>> {
        let prepared = self.prepare(chunk).await?;
        let mut places: HashMap<&str, Place> = HashMap::new();
        let mut backoff = self.view.backoff();
        if self.is_shared.load(Ordering::Relaxed) {
            self.read_first().await?;
        }
        loop {
            let is_missing = |prepared: &&Prepared<'_>| !places.contains_key(prepared.entry.event_id.as_str());
            let pending: Vec<&Prepared<'_>> = prepared.iter().filter(is_missing).collect();
            if pending.is_empty() {
                break;
            }
            let n = match self.observed.load(Ordering::Relaxed) {
                u64::MAX => self.begun().await?,
                n => n,
            };
            match self.try_append(n, &pending).await? {
                Attempt::Appended { count, recorded_at } => {
                    self.observe(n + count as u64);
                    places.extend((n + 1..).zip(&pending[..count]).map(|(at, Prepared { entry, .. })| {
                        (entry.event_id.as_str(), (at, recorded_at, entry.identity.clone()))
                    }));
                }
                Attempt::Rejected { counter, seen } => {
                    // A counter that moved and entries that are in the feed explain the failure: retry immediately. Otherwise back off.
                    let explained = counter.is_some() || !seen.is_empty();
                    match counter {
                        Some(counter) if counter.is_former() => self.observed.store(u64::MAX, Ordering::Relaxed),
                        Some(counter) => {
                            self.is_shared.store(counter.n > n, Ordering::Relaxed);
                            self.observe(counter.n);
                        }
                        None => {}
                    }
                    places.extend(seen.into_iter().map(|(i, place)| (pending[i].entry.event_id.as_str(), place)));
                    if explained {
                        continue;
                    }
                    self.observed.store(u64::MAX, Ordering::Relaxed);
                    pause(&mut backoff).await?;
                }
                // It may have been applied: if so, the next attempt finds its rows.
                Attempt::Unknown => {
                    self.observed.store(u64::MAX, Ordering::Relaxed);
                    pause(&mut backoff).await?;
                }
            }
        }
        let change = |entry: &Entry| {
            let (at, recorded_at, identity) = places.get(entry.event_id.as_str())?;
            Some(rows::change(&entry.difference, identity, *at, *recorded_at, entry.difference.payload.clone()))
        };
        Ok(chunk.iter().filter_map(change).collect())
    }

    /// Returns the entries, each stream record once, and saves the rows of large payloads.
    async fn prepare<'a>(&self, chunk: &'a [Entry]) -> Result<Vec<Prepared<'a>>> {
        let (mut prepared, mut large) = (Vec::with_capacity(chunk.len()), Vec::new());
        let (mut seen, now) = (HashSet::new(), self.now());
        let until = payloads::expiry(guards::remembered_until(rows::expiry(now, self.retention), now));
        for entry in chunk.iter().filter(|entry| seen.insert(entry.event_id.as_str())) {
            let name = guards::name_of(&entry.sequence_number, &entry.event_id);
            let (payload, row) = Held::of(&entry.difference.payload, &name, until)?;
            large.extend(row);
            prepared.push(Prepared { entry, name, payload });
        }
        self.save_payloads(large, until).await?;
        Ok(prepared)
    }

    /// Reads the counter, which another writer has probably moved: a read costs less than a cancelled transaction.
    async fn read_first(&self) -> Result<()> {
        let last = self.observed.load(Ordering::Relaxed);
        let n = self.begun().await?;
        self.is_shared.store(n != last, Ordering::Relaxed);
        self.observe(n);
        Ok(())
    }

    /// Returns the last position, after which the feed can be appended to. In a feed of the first form, a new epoch
    /// begins.
    async fn begun(&self) -> Result<u64> {
        let counter = self.counter().await?;
        if !counter.is_former() {
            return Ok(counter.n);
        }
        let counter = self.begin_epoch_where(Counter::is_former).await?;
        tracing::warn!(epoch = counter.epoch, "the feed had an older form: its readers begin again with a snapshot");
        Ok(counter.n)
    }

    /// Appends the entries, or only the first ones if the segment of all would be too large.
    async fn try_append(&self, n: u64, pending: &[&Prepared<'_>]) -> Result<Attempt> {
        let recorded_at = rows::whole_milliseconds(self.now());
        let until = rows::expiry(recorded_at, self.retention);
        let mut count = pending.len();
        let (changes, packed) = loop {
            let change = |(at, prepared): (u64, &&Prepared<'_>)| {
                let Entry { difference, identity, .. } = prepared.entry;
                rows::change(difference, identity, at, recorded_at, ChangePayload::None)
            };
            let changes: Vec<Change> = (n + 1..).zip(&pending[..count]).map(change).collect();
            let held = pending.iter().map(|prepared| &prepared.payload);
            let packed = Content::pack(changes.iter().zip(held), sequence(&pending[..count]))?;
            if packed.len() <= segments::MAX_BYTES || count == 1 {
                break (changes, packed);
            }
            count /= 2;
        };
        let mut writes = Vec::with_capacity(count + BEFORE_GUARDS);
        writes.push(Counter::advance(n, count, recorded_at, until)?);
        writes.push(Segment::write(n + 1, n + count as u64, packed, recorded_at, until)?);
        for (Prepared { name, payload, .. }, change) in pending.iter().zip(&changes) {
            writes.push(Guard::write(name, change, payload, until)?);
        }
        let rejected = match self.view.transact(writes).await {
            Ok(Outcome::Applied(())) => return Ok(Attempt::Appended { count, recorded_at }),
            Ok(Outcome::Rejected(rejected)) => rejected,
            Err(error) if error.is_outcome_unknown() => return Ok(Attempt::Unknown),
            Err(error) => return Err(error.into()),
        };
        let mut attempt = (None, Vec::new());
        for rejection in rejected {
            let item = rejection.item.unwrap_or_default();
            match rejection.position {
                0 => attempt.0 = Some(from_item::<Counter>(item).map_err(rows::corrupt)?),
                // The segment's position is taken: the counter shows that too, unless it was reset.
                1 => {}
                write => {
                    let seen: Guard = from_item(item).map_err(rows::corrupt)?;
                    attempt.1.push((write - BEFORE_GUARDS, (seen.at, seen.recorded_at()?, seen.identity()?)));
                }
            }
        }
        Ok(Attempt::Rejected { counter: attempt.0, seen: attempt.1 })
    }
}

/// Returns the lowest and the highest sequence number of entries.
fn sequence(entries: &[&Prepared<'_>]) -> [String; 2] {
    let numbers = || entries.iter().map(|prepared| guards::padded(&prepared.entry.sequence_number));
    [numbers().min(), numbers().max()].map(|number| {
        let number = number.unwrap_or_default();
        number.trim_start_matches('0').to_owned()
    })
}

enum Attempt {
    /// How many of the entries were appended, and when.
    Appended {
        count: usize,
        recorded_at: Timestamp,
    },
    /// The counter, if it has moved; and which of the entries are in the feed, and where.
    Rejected {
        counter: Option<Counter>,
        seen: Vec<(usize, Place)>,
    },
    Unknown,
}

async fn pause(backoff: &mut nameservice_views::Backoff) -> Result<()> {
    match backoff.pause().await {
        true => Ok(()),
        false => Err(Error::Unavailable { operation: "append to the feed", source: None }),
    }
}
