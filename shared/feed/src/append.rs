//! Appending, exactly once.

use std::{collections::HashMap, sync::atomic::Ordering};

use jiff::Timestamp;
use nameservice_model::{Change, Error, Identity, Result};
use nameservice_store::Difference;
use nameservice_views::from_item;

use crate::{
    Feed,
    rows::{self, Counter, Row, Seen},
};

/// The most changes of one transaction: two rows each and the counter make 99 of the 100 actions that DynamoDB allows.
pub const MAX_TRANSACTION: usize = 49;

/// A stream record's change, on its way into the feed.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Names the stream record, however often it is delivered.
    pub event_id: String,
    /// What it tells.
    pub difference: Difference,
    /// What the record is that it tells of.
    pub identity: Identity,
}

/// How far a batch came.
#[derive(Debug)]
pub struct Appended {
    /// The changes that are in the feed, in the order of the entries: appended now, or by an earlier delivery, and then
    /// at the position that they got then. All of the batch, unless `error` says why not.
    pub changes: Vec<Change>,
    /// Why the entries after those are not in it.
    pub error: Option<Error>,
}

/// Where an entry is, since when, and what its record was then said to be.
type Place = (u64, Timestamp, Identity);

impl Feed {
    /// Puts changes into the feed, in their order, each that is not there yet.
    ///
    /// Whatever happens on the way, the feed holds a beginning of the batch and nothing twice. So the order of a record's
    /// changes is kept as long as a batch that came halfway is delivered again before what follows it, also when somebody
    /// else is still at work on it.
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
        let mut places: HashMap<&str, Place> = HashMap::new();
        let mut backoff = self.view.backoff();
        loop {
            let mut pending: Vec<&Entry> = Vec::new();
            for entry in chunk {
                let is_new = !places.contains_key(entry.event_id.as_str());
                if is_new && !pending.iter().any(|other| other.event_id == entry.event_id) {
                    pending.push(entry);
                }
            }
            if pending.is_empty() {
                break;
            }
            let n = match self.believed.load(Ordering::Relaxed) {
                u64::MAX => self.counter().await?.n,
                n => n,
            };
            match self.try_append(n, &pending).await? {
                Attempt::Appended(recorded_at) => {
                    self.believe(n + pending.len() as u64);
                    places.extend(
                        (n + 1..)
                            .zip(&pending)
                            .map(|(at, entry)| (entry.event_id.as_str(), (at, recorded_at, entry.identity.clone()))),
                    );
                }
                Attempt::Refused { counter, seen } => {
                    // Nothing is in the way of what was seen before; only what cannot be explained is waited out.
                    let explained = counter.is_some() || !seen.is_empty();
                    if let Some(counter) = counter {
                        self.believe(counter.n);
                    }
                    places.extend(seen.into_iter().map(|(i, place)| (pending[i].event_id.as_str(), place)));
                    if explained {
                        continue;
                    }
                    self.believed.store(u64::MAX, Ordering::Relaxed);
                    pause(&mut backoff).await?;
                }
                // Applied or not: its rows will tell.
                Attempt::Unknown => {
                    self.believed.store(u64::MAX, Ordering::Relaxed);
                    pause(&mut backoff).await?;
                }
            }
        }
        let change = |entry: &Entry| {
            let (at, recorded_at, identity) = places.get(entry.event_id.as_str())?;
            Some(rows::change(&entry.difference, identity, *at, *recorded_at))
        };
        Ok(chunk.iter().filter_map(change).collect())
    }

    async fn try_append(&self, n: u64, pending: &[&Entry]) -> Result<Attempt> {
        let recorded_at = rows::whole_milliseconds(self.now());
        let until = rows::expiry(recorded_at, self.retention);
        let mut writes = Vec::with_capacity(2 * pending.len() + 1);
        writes.push(Counter::advance(n, pending.len(), recorded_at, until)?);
        for (at, entry) in (n + 1..).zip(pending) {
            let change = rows::change(&entry.difference, &entry.identity, at, recorded_at);
            writes.push(Seen::write(&entry.event_id, &change)?);
            writes.push(Row::write(&change, n + 1, until)?);
        }
        let refused = match self.view.transact(writes).await {
            Ok(Ok(())) => return Ok(Attempt::Appended(recorded_at)),
            Ok(Err(refused)) => refused,
            Err(error) if error.is_outcome_unknown() => return Ok(Attempt::Unknown),
            Err(error) => return Err(error.into()),
        };
        let mut attempt = (None, Vec::new());
        for refusal in refused {
            let item = refusal.item.unwrap_or_default();
            match refusal.position {
                0 => attempt.0 = Some(from_item::<Counter>(item)?),
                write if write % 2 == 1 => {
                    let seen: Seen = from_item(item)?;
                    attempt.1.push((write / 2, (seen.at, seen.recorded_at()?, seen.identity()?)));
                }
                // The row's position is taken: the counter says so too, unless it was put back.
                _ => {}
            }
        }
        Ok(Attempt::Refused { counter: attempt.0, seen: attempt.1 })
    }
}

enum Attempt {
    Appended(Timestamp),
    /// Where the counter is, if not where it was believed to be; which of the entries were seen before, and where.
    Refused {
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
