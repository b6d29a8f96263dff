//! What `serve` runs beside a table.

use nameservice_model::ChangeFeed as _;
use tokio::task::JoinHandle;

use super::{Nudge, Pace, Running, name_missing_stream, start, wait_for_stream};
use crate::{failure::Failure, output, serve::ServeArgs, table::Table, target::Opened};

/// The consumer of the table's stream, or the wait for a stream that another process consumes. Other backends need
/// neither.
#[derive(Debug, Default)]
pub struct Beside {
    is_table: bool,
    consuming: Option<Running>,
    waiting: Option<JoinHandle<()>>,
}

impl Beside {
    /// Checks the table, creates it outside AWS, and starts what it needs.
    pub(crate) async fn start(args: &ServeArgs, opened: &Opened) -> Result<Self, Failure> {
        let Opened::Table(table) = opened else { return Ok(Self::default()) };
        let report = if table.endpoint().is_none() { table.check().await? } else { table.ensure().await? };
        for lack in &report.lacks {
            output::note(&format!("the table lacks: {lack}"));
        }
        let consuming =
            pace(args, table).map(|pace| start(table.source.clone(), table.store.clone(), table.feed.clone(), pace));
        // If another process reads the stream, it cannot report in this one that there is none.
        let is_missing = consuming.is_none() && name_missing_stream(&table.source, &table.feed).await;
        let waiting = is_missing.then(|| {
            table.feed.outage().iter().for_each(|outage| output::note(outage));
            tokio::spawn(wait_for_stream(table.source.clone(), table.feed.clone()))
        });
        Ok(Self { is_table: true, consuming, waiting })
    }

    /// Returns whether a consumer continues the traces of writes, here or in another process.
    pub(crate) fn continues_traces(&self) -> bool {
        self.is_table
    }

    /// Returns the handle that notifies the consumer of writes, if it runs in this process.
    pub(crate) fn nudge(&self) -> Option<Nudge> {
        self.consuming.as_ref().map(Running::nudge)
    }

    /// Stops, once what is in the stream is in the feed.
    pub(crate) async fn stop(self) {
        if let Some(waiting) = self.waiting {
            waiting.abort();
        }
        if let Some(consuming) = self.consuming {
            consuming.stop().await;
        }
    }
}

/// How often the stream is read, if this process is to read it.
fn pace(args: &ServeArgs, table: &Table) -> Option<Pace> {
    match table.endpoint() {
        _ if args.no_consumer => None,
        None => args.consumer.then_some(Pace::AWS),
        Some(_) => Some(Pace::NEAR),
    }
}
