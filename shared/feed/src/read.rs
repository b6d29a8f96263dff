//! Reading: only what is certainly complete, and never past a hole in silence.

use std::{collections::HashMap, sync::PoisonError, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use nameservice_dynamo::is_missing_table;
use nameservice_model::{
    Address, Change, ChangeFeed, ChangedPart, History, HistoryQuery, Identity, Limit, Result, Run,
};
use nameservice_views::Range;
use tokio::time::{Instant, timeout};

use crate::{
    Feed, MAX_POLL, POLL,
    rows::{Counter, FEED_ID, INDEX_BY_ADDRESS, Row, sort_key},
};

/// How many pages of other concerns a history looks through for one answer.
const HISTORY_PAGES: usize = 5;
/// How many expired rows, which DynamoDB may keep for days, are passed over at once.
const OLDEST_PAGE: usize = 1000;
/// How many of the last rows are looked at for what the index by address may not have yet: what is appended in a second.
const TAIL: usize = 500;

#[async_trait]
impl ChangeFeed for Feed {
    fn outage(&self) -> Option<String> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the feed's table does not exist yet, the feed has not begun: only Fluree has used the table so far.
    async fn position(&self) -> Result<u64> {
        match self.counter().await {
            Ok(counter) => Ok(counter.n),
            Err(error) if is_missing_table(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Two requests, one where nothing follows.
    ///
    /// The counter is read first: whatever it counts has been appended, and is there unless it has expired. A Query may
    /// see a part of a transaction that is being applied; every row names the first of its transaction, so a hole in
    /// front of it is either such a part, and closes soon, or what has expired. Of a whole transaction that is not
    /// seen while a later one is, only a read of the row itself can decide, which waits for transactions.
    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        let counter = self.counter().await?;
        if after < counter.epoch.saturating_sub(1) {
            return Ok(Run::Gone { oldest: counter.epoch });
        }
        // A position that this feed has not given: of another feed, or of one that was lost.
        if after > counter.n {
            return Ok(Run::Gone { oldest: self.oldest(&counter).await? });
        }
        if after == counter.n {
            return Ok(Run::Changes(Vec::new()));
        }
        let range = Range::new().after(sort_key(after)).limit(limit.get());
        let rows = self.view.load_range::<Row>(FEED_ID, &range).await?.rows;
        let now = self.now().as_second();
        let (follows, begins, expires) = match rows.first() {
            Some(row) => (row.at()?, row.first, row.ttl),
            None => (counter.n + 1, counter.first, counter.until),
        };
        let half_applied = begins <= after + 1 && follows != after + 1;
        if expires <= now || (follows != after + 1 && !half_applied && !self.holds(after + 1).await?) {
            return Ok(Run::Gone { oldest: self.oldest(&counter).await? });
        }
        let mut changes = Vec::with_capacity(rows.len());
        for (expected, row) in (after + 1..).zip(rows) {
            if row.at()? != expected || row.ttl <= now {
                break;
            }
            changes.push(row.change()?);
        }
        Ok(Run::Changes(changes))
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
            // Woken by a writer in this process, or else by the clock.
            let _ = timeout(poll.min(left), moved.wait_for(|position| *position > after)).await;
            // Whoever has waited for long does not mind to wait a little longer, and each look is paid for.
            poll = (poll + POLL / 4).min(MAX_POLL);
        }
        Ok(())
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        let view = self.view.alive_at(self.now().as_second());
        let mut range = Range::new().limit(query.limit.get());
        let (from, until) = match query.newest_first {
            true => (query.before, query.after),
            false => (Some(query.after), query.before.unwrap_or(u64::MAX)),
        };
        if let Some(from) = from {
            range = range.after(sort_key(from));
        }
        if query.newest_first {
            range = range.descending();
        }
        let is_past_end = |position: u64| match query.newest_first {
            true => position <= until,
            false => position >= until,
        };
        let (mut changes, mut last) = (Vec::new(), query.after);
        for _ in 0..HISTORY_PAGES {
            let page = view.query_index::<Row>(INDEX_BY_ADDRESS, address.as_str(), &range).await?;
            for row in page.rows {
                last = row.at()?;
                if is_past_end(last) {
                    return Ok(History { changes, more_after: None });
                }
                let change = row.change()?;
                if wanted(query.part, change.part) {
                    changes.push(change);
                }
                if changes.len() == query.limit.get() {
                    return Ok(History { changes, more_after: Some(last) });
                }
            }
            if page.next.is_none() {
                return Ok(History { changes, more_after: None });
            }
            range = range.continued(page.next);
        }
        Ok(History { changes, more_after: Some(last) })
    }
}

fn wanted(part: Option<ChangedPart>, found: ChangedPart) -> bool {
    part.is_none_or(|part| part == found)
}

impl Feed {
    /// The oldest position that can be read: where everything has expired, the one that comes next.
    async fn oldest(&self, counter: &Counter) -> Result<u64> {
        let view = self.view.alive_at(self.now().as_second());
        let mut range = Range::new().limit(OLDEST_PAGE);
        loop {
            let page = view.load_range::<Row>(FEED_ID, &range).await?;
            if let Some(row) = page.rows.first() {
                return Ok(row.first.max(counter.epoch));
            }
            if page.next.is_none() {
                return Ok((counter.n + 1).max(counter.epoch));
            }
            range = range.continued(page.next);
        }
    }

    async fn holds(&self, position: u64) -> Result<bool> {
        let view = self.view.alive_at(self.now().as_second());
        Ok(view.load_one::<Row>(&Row::key(position)).await?.is_some())
    }

    /// What the feed has said last, and consistently: what the records of its youngest changes are.
    pub async fn latest_identities(&self) -> Result<HashMap<Address, Identity>> {
        let range = Range::new().limit(TAIL).descending();
        let mut latest = HashMap::new();
        for row in self.view.load_range::<Row>(FEED_ID, &range).await?.rows {
            let change = row.change()?;
            latest.entry(change.address).or_insert(change.identity);
        }
        Ok(latest)
    }

    /// What the feed last said of a record; `None` where it holds nothing of it. What is younger than a second may be
    /// missing: see [`Feed::latest_identities`].
    pub async fn last_identity(&self, address: &Address) -> Result<Option<Identity>> {
        Ok(self.latest(address, 1).await?.pop().map(|change| change.identity))
    }

    /// What the feed last said of a record, youngest first, at most `limit` of it. The youngest may be missing for a moment.
    pub async fn latest(&self, address: &Address, limit: usize) -> Result<Vec<Change>> {
        let range = Range::new().limit(limit).descending();
        let page = self.view.query_index::<Row>(INDEX_BY_ADDRESS, address.as_str(), &range).await?;
        page.rows.into_iter().map(Row::change).collect()
    }

    /// When the feed was last appended to; `None` before the first time.
    pub async fn last_appended_at(&self) -> Result<Option<Timestamp>> {
        let counter = self.counter().await?;
        Ok(Timestamp::from_millisecond(counter.recorded_at).ok().filter(|_| counter.n > 0))
    }
}
