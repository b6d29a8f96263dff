//! The change feed over single requests: positions, pages, long polls.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use nameservice_api::{ProblemKind, changes};
use nameservice_model::{Address, Change, ChangeFeed, ChangedPart, Error, History, HistoryQuery, Limit, Result, Run};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{Client, Request, RequestError, backend::MAX_PAGE, outcomes::invalid};

/// The longest that the service lets a request wait, in seconds.
const MAX_WAIT_SECONDS: u64 = 20;

/// A comparison of no records, whose answer is the position alone.
#[derive(Serialize)]
struct Nothing {
    subscriptions: BTreeMap<String, ()>,
}

#[derive(Deserialize)]
struct Position {
    position: u64,
}

impl RequestError {
    /// Returns the oldest position that can still be read, from a problem that rejects another position.
    pub(crate) fn oldest(&self) -> Option<u64> {
        match self.problem() {
            Some(ProblemKind::Expired | ProblemKind::PositionAhead) => self.member("oldest"),
            _ => None,
        }
    }
}

impl Client {
    /// Returns the position of the feed, and the age of the service's reads, if it is a replica of another one.
    pub async fn position_and_age(&self) -> Result<(u64, Option<Duration>)> {
        let request = Request::query_with("changes/compare", &Nothing { subscriptions: BTreeMap::new() });
        let repeated = self.repeat::<Position>(&request).await;
        match repeated.answer {
            Ok(Position { position }) => Ok((position, repeated.age)),
            Err(error) => Err(error.into_model("read the position of the feed")),
        }
    }

    pub(crate) async fn page(&self, request: &Request) -> Result<Result<(Vec<Change>, u64), u64>> {
        const OPERATION: &str = "read changes";
        match self.send::<changes::Changes>(request).await {
            Ok(page) => {
                let usable = page.changes.into_iter().filter(is_usable);
                let found = usable.map(Change::try_from).collect::<Result<_, _>>();
                Ok(Ok((found.map_err(invalid(OPERATION))?, page.position)))
            }
            Err(error) => match error.oldest() {
                Some(oldest) => Ok(Err(oldest)),
                None => Err(error.into_model(OPERATION)),
            },
        }
    }
}

#[async_trait]
impl ChangeFeed for Client {
    async fn position(&self) -> Result<u64> {
        Ok(self.position_and_age().await?.0)
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        let mut found = Vec::new();
        let (mut from, mut left) = (after, limit.get().min(MAX_PAGE));
        loop {
            let request = Request::get("changes").query("after", Some(from)).query("limit", Some(left));
            let (page, position) = match self.page(&request).await? {
                Ok(page) => page,
                Err(oldest) => return Ok(Run::Gone { oldest }),
            };
            left -= page.len().min(left);
            found.extend(page);
            // A page may be empty while the position moves, past changes that the caller may not see.
            if !found.is_empty() || position <= from || left == 0 {
                return Ok(Run::Changes(found));
            }
            from = position;
        }
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        let deadline = Instant::now() + at_most;
        let mut after = after;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let seconds = left.as_secs().min(MAX_WAIT_SECONDS);
            if seconds == 0 {
                tokio::time::sleep_until(deadline).await;
                return Ok(());
            }
            let request = Request::get("changes").query("after", Some(after)).query("limit", Some(1));
            match self.page(&request.query("wait", Some(seconds))).await? {
                Ok((page, position)) if page.is_empty() => after = position.max(after),
                // There is something to read, even if it is only that the position is gone.
                _ => return Ok(()),
            }
        }
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        const OPERATION: &str = "read a history";
        let request = Request::get("history")
            .at(address)
            .query("concern", query.part.map(ChangedPart::as_str))
            .query("after", Some(query.after))
            .query("before", query.before)
            .query("order", query.newest_first.then_some("newest"))
            .query("limit", Some(query.limit.get().min(MAX_PAGE)));
        match self.send::<changes::History>(&request).await {
            Ok(history) => {
                let changes = history.changes.into_iter().map(Change::try_from).collect::<Result<_, _>>();
                Ok(History { changes: changes.map_err(invalid(OPERATION))?, more_after: history.position })
            }
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => {
                Ok(History { changes: Vec::new(), more_after: None })
            }
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }
}

/// Returns whether a change is of a record that can be addressed. Feeds of earlier versions hold changes of rows under names that
/// only Fluree allows: they are skipped, as those that the caller may not see.
pub(crate) fn is_usable(change: &changes::Change) -> bool {
    Address::parse(&change.address).is_ok()
}

/// Returns an error with this reason.
pub(crate) fn unreadable(operation: &'static str, reason: impl Into<nameservice_model::BoxError>) -> Error {
    Error::Store { operation, source: reason.into() }
}
