//! The history of one record: its guards, in the order of its commits.

use nameservice_model::{Address, Change, History, HistoryQuery, Identity, Result};
use nameservice_views::Range;

use crate::{
    Feed, MAX_TRANSACTION,
    guards::{self, Guard},
};

/// How many pages a history reads for one answer, once it has reached its start.
const PAGES: usize = 5;
/// How many changes are skipped on the way to a position before the feed is asked where that position is.
const PASSED_OVER: usize = 1000;
/// Sorts after the id of any stream record.
const BEHIND: char = char::MAX;

impl Feed {
    /// Positions grow along the rows but are not their keys, so a page that begins at a position skips the rows before
    /// it. If those are many, the segment with that position shows at about which sequence number the page begins.
    pub(crate) async fn history_of(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        let (id, now, limit) = (guards::history_id(address), self.now().as_second(), query.limit.get());
        let bounds = Bounds(query);
        // `passing`: the start has not been reached. `sought`: the position whose place has not been looked up yet.
        let (mut passing, mut sought) = (bounds.start().is_some(), bounds.start());
        let mut range = Range::new().limit(if passing { limit.max(PASSED_OVER) } else { limit });
        range.descending = query.newest_first;
        let (mut unread, mut last, mut pages) = (Vec::new(), query.after, 0);
        let more_after = 'pages: loop {
            let page = self.view.load_range::<Guard>(&id, &range).await?;
            for row in page.rows {
                if bounds.is_before(row.at) {
                    continue;
                }
                passing = false;
                if bounds.is_behind(row.at) {
                    break 'pages None;
                }
                last = row.at;
                if !row.is_alive(now) {
                    continue;
                }
                let found = row.unread(address)?;
                if query.part.is_none_or(|part| part == found.change.part) {
                    unread.push(found);
                }
                if unread.len() == limit {
                    break 'pages Some(last);
                }
            }
            if page.next.is_none() {
                break 'pages None;
            }
            if !passing {
                pages += 1;
                if pages == PAGES {
                    break 'pages Some(last);
                }
                range.limit = Some(limit);
            }
            let place = match sought.take().filter(|_| passing) {
                Some(position) => self.place_of(address, position, query.newest_first).await?,
                None => None,
            };
            range = match place {
                Some(place) => Range { continued: None, ..range.after(place).limit(limit + MAX_TRANSACTION) },
                None => range.continued(page.next),
            };
        };
        let found = unread.len();
        let changes = self.read_payloads(unread).await?;
        let more_after = match changes.last() {
            Some(last) if changes.len() < found => Some(last.position),
            _ => more_after,
        };
        Ok(History { changes, more_after })
    }

    /// Returns a sort key shortly before the row of a position in the order of a query, if the change at that position
    /// is one of the record.
    async fn place_of(&self, address: &Address, position: u64, newest_first: bool) -> Result<Option<String>> {
        let Some(segment) = self.next_segment(position.saturating_sub(1)).await?.filter(|found| !found.is_former())
        else {
            return Ok(None);
        };
        let Some([lowest, highest]) = segment.sequence_of(position, address)? else { return Ok(None) };
        Ok(Some(match newest_first {
            true => format!("{}{BEHIND}", guards::padded(&highest)),
            false => guards::padded(&lowest),
        }))
    }

    /// Returns the identity of a record in its last change; `None` if the feed holds no change of it.
    pub async fn last_identity(&self, address: &Address) -> Result<Option<Identity>> {
        Ok(self.latest(address, 1).await?.pop().map(|change| change.identity))
    }

    /// Returns the last changes of a record without their payloads, newest first, at most `limit`.
    pub async fn latest(&self, address: &Address, limit: usize) -> Result<Vec<Change>> {
        let range = Range::new().limit(limit).descending();
        let page = self.view.load_range::<Guard>(&guards::history_id(address), &range).await?;
        page.rows.into_iter().map(|row| Ok(row.unread(address)?.change)).collect()
    }
}

/// Where a history begins and ends, in the order of its query.
struct Bounds<'a>(&'a HistoryQuery);

impl Bounds<'_> {
    /// Returns the position after which it begins; `None` if it begins with the first row.
    fn start(&self) -> Option<u64> {
        match self.0.newest_first {
            true => self.0.before,
            false => Some(self.0.after).filter(|after| *after > 0),
        }
    }

    fn is_before(&self, position: u64) -> bool {
        match self.0.newest_first {
            true => self.0.before.is_some_and(|before| position >= before),
            false => position <= self.0.after,
        }
    }

    fn is_behind(&self, position: u64) -> bool {
        match self.0.newest_first {
            true => position <= self.0.after,
            false => self.0.before.is_some_and(|before| position >= before),
        }
    }
}
