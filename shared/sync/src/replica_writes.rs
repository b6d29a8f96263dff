//! Reading at a replica what was written at its upstream.

use std::{collections::BTreeSet, time::Duration};

use nameservice_model::{Address, ChangeFeed as _, ConcernValue, NameService as _, Record, Result};
use tokio::time::{Instant, timeout};

use crate::Replica;

/// How long the replica waits for a change before it reads the upstream's records again.
const AGAIN: Duration = Duration::from_millis(500);
/// By how many seconds a record may seem older at the replica, which knows its creation by the change.
const CREATION_SECONDS: i64 = 1;

impl Replica {
    /// Waits until the replica is as new as the upstream's records of these addresses, or for the given time. Returns
    /// whether it is. The records are read after the call, so a caller that has just written them reads its write here,
    /// also if the upstream's feed lags behind its writes.
    pub async fn shows(&self, addresses: &[Address], at_most: Duration) -> bool {
        let addresses: BTreeSet<&Address> = addresses.iter().collect();
        let addresses: Vec<Address> = addresses.into_iter().cloned().collect();
        timeout(at_most, self.catch_up(addresses)).await.is_ok()
    }

    async fn catch_up(&self, addresses: Vec<Address>) {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut read_at = None;
        loop {
            let here = self.names().view().position();
            if read_at.is_none_or(|read_at: Instant| read_at.elapsed() >= AGAIN) {
                match self.read(&addresses, &mut wanted).await {
                    Ok(()) => read_at = Some(Instant::now()),
                    Err(error) => tracing::debug!(%error, "the records that were written cannot be read"),
                }
            }
            if read_at.is_some() {
                let mut left = Vec::with_capacity(wanted.len());
                for wanted in wanted {
                    // It reads memory, and cannot fail.
                    let record = self.names().lookup(&wanted.address).await.unwrap_or_default();
                    if !wanted.is_shown(record.as_ref()) {
                        left.push(wanted);
                    }
                }
                wanted = left;
                if wanted.is_empty() {
                    return;
                }
            }
            let _ = timeout(AGAIN, self.names().wait(here, AGAIN)).await;
        }
    }

    /// Reads the upstream's records: all at first, then those that are not shown yet.
    async fn read(&self, addresses: &[Address], wanted: &mut Vec<Wanted>) -> Result<()> {
        let is_first = wanted.is_empty();
        let asked: Vec<Address> = match is_first {
            true => addresses.to_vec(),
            false => wanted.iter().map(|wanted| wanted.address.clone()).collect(),
        };
        let records = self.client.lookup_all(&asked).await?;
        let found = |address: &Address| records.iter().find(|record| record.address == *address).cloned();
        match is_first {
            true => {
                wanted.extend(asked.into_iter().map(|address| {
                    let first = found(&address);
                    Wanted { address, last: first.clone(), first }
                }));
            }
            false => wanted.iter_mut().for_each(|wanted| wanted.last = found(&wanted.address)),
        }
        Ok(())
    }
}

/// What the upstream has of an address.
struct Wanted {
    address: Address,
    /// When it was first read.
    first: Option<Record>,
    /// When it was last read.
    last: Option<Record>,
}

impl Wanted {
    /// Whether the replica's record is as new as the first that was read: each part of it is one of those that were
    /// read, or has a watermark between them.
    fn is_shown(&self, here: Option<&Record>) -> bool {
        let (first, last) = (self.first.as_ref(), self.last.as_ref());
        let Some(here) = here else { return first.is_none() || last.is_none() };
        let reads: Vec<&Record> = [first, last].into_iter().flatten().filter(|read| !is_older(here, read)).collect();
        let between = |of: &dyn Fn(&Record) -> i64| match (first, last) {
            (Some(first), Some(last)) => of(first) < of(here) && of(here) <= of(last),
            _ => false,
        };
        !reads.is_empty()
            && reads.iter().any(|read| is_same_meta(here, read))
            && (reads.iter().any(|read| read.head == here.head) || between(&|record| v(record.head.as_ref())))
            && (reads.iter().any(|read| read.index == here.index) || between(&|record| record.index.v))
            && (reads.iter().any(|read| read.status.v == here.status.v) || between(&|record| record.status.v))
            && (reads.iter().any(|read| read.config.v == here.config.v) || between(&|record| record.config.v))
    }
}

fn v<T>(value: Option<&ConcernValue<T>>) -> i64 {
    value.map_or(0, |value| value.v)
}

/// Whether the replica has an earlier record of the address, which was purged since.
fn is_older(here: &Record, read: &Record) -> bool {
    match (here.created_at, read.created_at) {
        (Some(here), Some(read)) => read.as_second().saturating_sub(here.as_second()) > CREATION_SECONDS,
        _ => false,
    }
}

fn is_same_meta(a: &Record, b: &Record) -> bool {
    (a.kind, a.retracted) == (b.kind, b.retracted) && a.attributes() == b.attributes()
}
