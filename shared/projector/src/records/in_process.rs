use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nameservice_model::{ChangeFeed, Error, NameService, Result, Visible};
use tokio::{sync::OnceCell, task::JoinHandle, time::timeout};

use super::{RecordPage, RecordPages, RecordQuery, RecordRow, Records};
use crate::{MemoryRows, Projector};

/// How long a list waits for the rows to catch up with the feed.
const WITHIN: Duration = Duration::from_secs(20);

/// The read model of records in the memory of this process. It starts with the first list, which waits for its rows, and then
/// follows the feed; it costs nothing while it is not used. A list includes every change that was in the feed before it.
pub struct InProcess {
    names: Arc<dyn NameService>,
    feed: Arc<dyn ChangeFeed>,
    running: OnceCell<Running>,
}

struct Running {
    rows: Arc<MemoryRows<RecordRow>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("runs", &self.running.initialized()).finish_non_exhaustive()
    }
}

impl InProcess {
    /// Returns the read model of a backend.
    pub fn new(names: Arc<dyn NameService>, feed: Arc<dyn ChangeFeed>) -> Self {
        Self { names, feed, running: OnceCell::new() }
    }

    async fn rows(&self) -> &Arc<MemoryRows<RecordRow>> {
        let start = async || {
            let rows = Arc::new(MemoryRows::new());
            let projector = Projector::new(Records, self.names.clone(), self.feed.clone(), rows.clone());
            Running { task: tokio::spawn(projector.run()), rows }
        };
        &self.running.get_or_init(start).await.rows
    }
}

#[async_trait]
impl RecordPages for InProcess {
    async fn records(&self, query: &RecordQuery, visible: Visible<'_>) -> Result<RecordPage> {
        let position = self.feed.position().await?;
        let rows = self.rows().await;
        if timeout(WITHIN, rows.reached(position)).await.is_err() {
            let source = Some("the read model has not come so far: its log says why".into());
            return Err(Error::Unavailable { operation: "list from the read model", source });
        }
        rows.records(query, visible).await
    }
}
