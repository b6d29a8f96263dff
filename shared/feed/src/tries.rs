//! Tries of single stream records: how many have ended without an answer, since the record ends its consumer; and when one was passed over.

use std::time::Duration;

use jiff::Timestamp;
use nameservice_model::Result;
use nameservice_views::{RowKey, SaveMode};
use serde::{Deserialize, Serialize};

use crate::{
    Feed,
    rows::{self, ALONE},
};

const TRIED_ID: &str = "tried#0";
const PASSED_ID: &str = "passed#0";
/// How long it is kept: twice as long as a stream can deliver the record.
const KEPT_FOR: Duration = Duration::from_secs(48 * 3600);

#[derive(Serialize, Deserialize)]
struct Row {
    id: String,
    position: String,
    unanswered: u32,
    #[serde(default)]
    end: u64,
}

/// What is known of the tries of a stream record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// How many have begun since one was answered.
    pub unanswered: u32,
    /// The end of the feed when the last one began.
    pub end: u64,
}

/// The stream record that was passed over last.
#[derive(Serialize, Deserialize)]
struct Passed {
    id: String,
    position: String,
    name: String,
    /// The end of the feed after it, if it has a change.
    end: u64,
    passed_at: i64,
}

/// The tries of one stream record.
#[derive(Clone, Debug)]
pub struct Tries {
    feed: Feed,
    name: String,
}

impl Feed {
    /// Returns the tries of a stream record, by its id and its text, which is not parsed.
    pub fn tries(&self, event_id: &str, record: &str) -> Tries {
        Tries { feed: self.clone(), name: rows::event_name(event_id, || record.into()).into_owned() }
    }

    /// Returns how long ago a time was, by the feed's clock; zero if it is yet to come.
    pub fn age(&self, of: Timestamp) -> Duration {
        Duration::try_from(self.now().duration_since(of)).unwrap_or_default()
    }
}

impl Tries {
    /// Returns the unique id of the stream record.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what was saved last.
    pub async fn tried(&self) -> Result<Tried> {
        let row: Option<Row> = self.feed.view.load_one(&RowKey::sorted(TRIED_ID, self.name.as_str())).await?;
        Ok(row.map_or_else(Tried::default, |Row { unanswered, end, .. }| Tried { unanswered, end }))
    }

    /// Saves this.
    pub async fn save(&self, Tried { unanswered, end }: Tried) -> Result<()> {
        let row = Row { id: TRIED_ID.to_owned(), position: self.name.clone(), unanswered, end };
        Ok(self.feed.view.save(&row, SaveMode::Any, Some(rows::expiry(self.feed.now(), KEPT_FOR))).await?)
    }

    /// Returns whether the record may be passed over, and saves that it is. It may if the feed had grown since another one was, when the last
    /// try of this one began: so the consumer works, and this record ends it. It may, too, after this time.
    pub async fn pass_over(&self, tried: Tried, after: Duration) -> Result<bool> {
        let key = RowKey::sorted(PASSED_ID, ALONE);
        let (passed, counter): (Option<Passed>, _) = (self.feed.view.load_one(&key).await?, self.feed.counter().await?);
        let may_pass = match &passed {
            None => true,
            Some(passed) if passed.name == self.name => return Ok(true),
            Some(passed) => tried.end > passed.end || self.feed.age(rows::moment(passed.passed_at)?) >= after,
        };
        if may_pass {
            let now = self.feed.now();
            let row = Passed {
                id: PASSED_ID.to_owned(),
                position: ALONE.to_owned(),
                name: self.name.clone(),
                end: counter.n + 1,
                passed_at: now.as_millisecond(),
            };
            self.feed.view.save(&row, SaveMode::Any, Some(rows::expiry(now, KEPT_FOR))).await?;
        }
        Ok(may_pass)
    }
}
