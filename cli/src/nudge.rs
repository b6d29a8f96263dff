//! How a write wakes the consumer of the table's stream.

use std::sync::Arc;

use tokio::sync::Notify;

/// Notifies the consumer of a write, so that it does not wait for the next poll.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Ends the consumer's current pause, or skips the next one.
    pub fn give(&self) {
        self.0.notify_one();
    }

    /// Waits for a write.
    #[cfg(feature = "dynamodb")]
    pub(crate) async fn taken(&self) {
        self.0.notified().await;
    }
}
