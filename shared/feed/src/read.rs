//! Reads the feed: only what is certainly complete, and never silently past a hole.

use std::{collections::HashMap, sync::PoisonError, time::Duration};

use async_trait::async_trait;
use nameservice_dynamo::is_missing_table;
use nameservice_model::{Address, ChangeFeed, History, HistoryQuery, Identity, Limit, Result, Run};
use nameservice_views::Range;
use tokio::time::{Instant, timeout};

use crate::{
    Feed, MAX_POLL, MAX_TRANSACTION, POLL,
    rows::{Counter, FEED_ID, sort_key},
    segments::Segment,
};

/// How many expired rows, which DynamoDB may keep for days, are skipped in one request.
const OLDEST_PAGE: usize = 1000;
/// How many of the last segments are searched for the identities of records, before their histories are read.
const TAIL: usize = 50;

#[async_trait]
impl ChangeFeed for Feed {
    fn outage(&self) -> Option<String> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// If the feed's table does not exist yet, the feed has not begun: only Fluree has used the table so far.
    async fn position(&self) -> Result<u64> {
        match self.counter().await {
            Ok(counter) => Ok(counter.n),
            Err(error) if is_missing_table(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        Ok(self.run(after, limit).await?.0)
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        let until = Instant::now() + at_most;
        let mut moved = self.moved.subscribe();
        let mut poll = POLL;
        while self.counter().await?.n <= after {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Woken by a writer in this process, otherwise by the clock.
            let _ = timeout(poll.min(left), moved.wait_for(|position| *position > after)).await;
            // After a long wait a little more delay does not matter, and every request costs money.
            poll = (poll + POLL / 4).min(MAX_POLL);
        }
        Ok(())
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.history_of(address, query).await
    }
}

impl Feed {
    /// Returns what [`ChangeFeed::changes`] returns, and the last position of the feed at that time. Fewer changes than the limit
    /// if their payloads would take too much memory.
    ///
    /// Takes two requests, or one if there are no changes after the position; and one for each 25 large payloads.
    ///
    /// The counter is read first: everything that it counts has been appended, and is stored unless it has expired. A
    /// Query may miss a segment of a transaction that is being applied, and yet see a later one. A hole in front of a
    /// segment is either such a missed segment, or has expired. Only a read of the preceding segment shows which, because
    /// such a read waits for transactions.
    pub async fn run(&self, after: u64, limit: Limit) -> Result<(Run, u64)> {
        let counter = self.counter().await?;
        if after < counter.epoch.saturating_sub(1) {
            return Ok((Run::Gone { oldest: counter.epoch }, counter.n));
        }
        // This feed has never reached the position: it is from another feed, or from one that was lost.
        if after > counter.n {
            return Ok((Run::Gone { oldest: self.oldest(&counter, 0).await? }, counter.n));
        }
        if after == counter.n {
            return Ok((Run::Changes(Vec::new()), counter.n));
        }
        // The segment with the last wanted change ends at most one transaction after it.
        let end = after.saturating_add(limit.get().saturating_add(MAX_TRANSACTION) as u64);
        let range = Range::new().between(sort_key(after + 1), sort_key(end)).limit(limit.get());
        let segments = self.view.load_range::<Segment>(FEED_ID, &range).await?.rows;
        let now = self.now().as_second();
        let (begins, expires) = match segments.first() {
            Some(segment) => (segment.first, segment.ttl),
            None if counter.first <= after + 1 => (counter.first, counter.until),
            None => match self.next_segment(after).await? {
                Some(segment) => (segment.first, segment.ttl),
                None => (counter.first, counter.until),
            },
        };
        if expires <= now || (begins > after + 1 && !self.holds(begins - 1).await?) {
            // Behind the hole: what is before the reader may still be stored, if it was kept for longer.
            let oldest = self.oldest(&counter, after).await?;
            let run = match oldest > after + 1 {
                true => Run::Gone { oldest },
                false => Run::Changes(Vec::new()),
            };
            return Ok((run, counter.n));
        }
        let (mut unread, mut reached) = (Vec::new(), after);
        for segment in segments {
            if segment.first > reached + 1 || segment.ttl <= now || unread.len() == limit.get() {
                break;
            }
            let read = usize::try_from(reached + 1 - segment.first).unwrap_or(usize::MAX);
            for change in segment.changes()?.skip(read).take(limit.get() - unread.len()) {
                unread.push(change?);
            }
            reached = segment.last()?;
        }
        Ok((Run::Changes(self.read_payloads(unread).await?), counter.n))
    }

    /// Returns the oldest position after another one that can be read; the next one of the feed if all of them have expired.
    async fn oldest(&self, counter: &Counter, after: u64) -> Result<u64> {
        let view = self.view.alive_at(self.now().as_second());
        let after = after.max(counter.epoch.saturating_sub(1));
        let mut range = Range::new().after(sort_key(after)).limit(OLDEST_PAGE);
        loop {
            let page = view.load_range::<Segment>(FEED_ID, &range).await?;
            if let Some(segment) = page.rows.first() {
                return Ok(segment.first.max(after + 1));
            }
            if page.next.is_none() {
                return Ok((counter.n + 1).max(counter.epoch));
            }
            range = range.continued(page.next);
        }
    }

    /// Returns whether there is a segment that ends at this position.
    async fn holds(&self, last: u64) -> Result<bool> {
        let view = self.view.alive_at(self.now().as_second());
        Ok(view.load_one::<Segment>(&Segment::key(last)).await?.is_some())
    }

    /// Returns the first segment that ends after a position.
    pub(crate) async fn next_segment(&self, after: u64) -> Result<Option<Segment>> {
        let range = Range::new().after(sort_key(after)).limit(1);
        Ok(self.view.load_range::<Segment>(FEED_ID, &range).await?.rows.pop())
    }

    /// Returns the identities of the records with the newest changes, with one request.
    pub async fn latest_identities(&self) -> Result<HashMap<Address, Identity>> {
        let range = Range::new().limit(TAIL).descending();
        let segments = self.view.load_range::<Segment>(FEED_ID, &range).await?.rows;
        let mut latest = HashMap::new();
        for segment in segments.iter().take_while(|segment| !segment.is_former()) {
            for (address, identity) in segment.identities()?.into_iter().rev() {
                latest.entry(address).or_insert(identity);
            }
        }
        Ok(latest)
    }
}
