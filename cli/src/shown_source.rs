//! A source of records whose progress is shown while it is read.

use async_trait::async_trait;
use nameservice_model::{Address, ChangeFeed, Progress, Record};
use nameservice_sync::{Found, Reading, Result as SyncResult, Source, report::Records};

use crate::progress::Bar;

/// A source that shows the progress of reading it.
pub(crate) struct Shown<'a> {
    source: &'a dyn Source,
    bar: &'a Bar,
    total: Option<u64>,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(source: &'a dyn Source, bar: &'a Bar, total: Option<u64>) -> Self {
        Self { source, bar, total }
    }
}

#[async_trait]
impl Source for Shown<'_> {
    async fn read(&self) -> SyncResult<Box<dyn Reading + '_>> {
        let reading = self.source.read().await?;
        Ok(Box::new(ShownReading { reading, bar: self.bar, progress: Progress { done: 0, total: self.total } }))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> SyncResult<Option<Vec<Record>>> {
        self.source.lookup_all(addresses).await
    }

    fn finds(&self) -> bool {
        self.source.finds()
    }

    fn can_be_read_again(&self) -> bool {
        self.source.can_be_read_again()
    }

    fn kept_addresses(&self) -> Records {
        self.source.kept_addresses()
    }

    fn feed(&self) -> Option<&dyn ChangeFeed> {
        self.source.feed()
    }
}

struct ShownReading<'a> {
    reading: Box<dyn Reading + 'a>,
    bar: &'a Bar,
    progress: Progress,
}

#[async_trait]
impl Reading for ShownReading<'_> {
    async fn next(&mut self) -> SyncResult<Vec<Found>> {
        let found = self.reading.next().await?;
        self.progress.done += found.len() as u64;
        self.bar.show(self.progress);
        Ok(found)
    }

    fn position(&self) -> Option<u64> {
        self.reading.position()
    }
}
