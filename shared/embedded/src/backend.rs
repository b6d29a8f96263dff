//! The model's traits over the published state and the writer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nameservice_model::{
    Address, Call, Capabilities, Config, Cursor, Error, GraphSourceLookup, Head, Hit, Index, Limit, ListQuery, Listed,
    NameService, Page, Record, RecordKind, Result, SearchQuery, Status, Visible, Write, WriteAll, Written,
};
use tokio::{task::yield_now, time::timeout};

use crate::{
    Embedded,
    state::{Action, Command, Portable, Record as Stored, State, Walk},
    writer::Condition,
};

/// How long the log may take for a write before it counts as dead.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const PING: &str = "write to the log";
/// How many records one reader looks at before it yields to others.
const LOOKS: usize = 2_000;
/// How many chunks of texts a search looks through before it yields to others: about a millisecond.
const CHUNKS: usize = 100;

impl Embedded {
    pub(crate) fn state(&self) -> Arc<State> {
        self.inner.shared.published.load_full()
    }

    /// Reads a record without keeping the state.
    fn read<T>(&self, address: &Address, read: impl FnOnce(&Stored) -> T) -> Option<T> {
        self.inner.shared.published.load().get(address).map(|record| read(record))
    }
}

impl Embedded {
    /// Stores a record as it is elsewhere. The differences become changes in the feed.
    pub async fn observe(&self, address: &Address, record: Option<Portable>) -> Result<()> {
        const OPERATION: &str = "follow a record";
        let action = Action::Observe { address: address.clone(), record: record.map(Box::new) };
        if self.is_replica() {
            return Err(Error::ReadOnly { operation: OPERATION, addresses: vec![address.clone()] });
        }
        self.inner.writer.write(OPERATION, Command::new(&Call::fresh(), action)).await.map(drop)
    }
}

async fn walked<T>(mut walk: Walk<'_, T>) -> Page<T> {
    while !walk.advance(LOOKS) {
        yield_now().await;
    }
    walk.into_page()
}

#[async_trait]
impl GraphSourceLookup for Embedded {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        let source = |record: &Stored| (record.kind == RecordKind::GraphSource).then(|| record.to_model());
        Ok(self.read(address, source).flatten())
    }
}

#[async_trait]
impl NameService for Embedded {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.read(address, Stored::to_model))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let state = self.state();
        Ok(addresses.iter().filter_map(|address| state.get(address)).map(|record| record.to_model()).collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        let state = self.state();
        Ok(walked(state.list(query, visible)).await)
    }

    /// All pages of a snapshot are at one position, that of their cursors, as long as less than a minute passes between
    /// any two of them.
    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        let snapshots = &self.inner.shared.snapshots;
        let state = after.and_then(Cursor::position).and_then(|position| snapshots.at(position));
        let state = state.unwrap_or_else(|| self.state());
        let page = walked(state.snapshot(limit.get(), after, visible)).await;
        if page.cursor.is_some() {
            snapshots.keep(state);
        }
        Ok(page)
    }

    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        let state = self.state();
        let mut lookup = state.search(query, visible);
        while !lookup.advance(CHUNKS) {
            yield_now().await;
        }
        Ok(lookup.into_page())
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(Capabilities::ALL)
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        Ok(self.state().dependents(address))
    }

    async fn ping(&self) -> Result<()> {
        let failed = |reason: String| Err(Error::Unavailable { operation: PING, source: Some(reason.into()) });
        match self.inner.shared.condition() {
            Condition::Sound if self.inner.shared.is_sound() => return Ok(()),
            Condition::Sound => {}
            // The writer tries a full disk again by itself.
            Condition::Full(reason) | Condition::Ended(reason) => return failed(reason),
        }
        // Whether a disk is full or dead shows only in a write, which the writer makes once a second at most.
        let probe = self.inner.writer.write(PING, Command::new(&Call::fresh(), Action::Probe));
        match timeout(PING_TIMEOUT, probe).await {
            Ok(probed) => probed.map(drop),
            Err(_) => failed("writing to the log takes too long".to_owned()),
        }
    }
}

#[async_trait]
impl WriteAll for Embedded {
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        let operation = write.operation();
        // Held, not entered: nothing below creates spans.
        let _span = tracing::debug_span!("log", otel.name = operation);
        if self.is_replica() {
            return Err(Error::ReadOnly { operation, addresses: write.addresses() });
        }
        let written = self.inner.writer.write(operation, Command::new(call, write)).await?;
        written.ok_or_else(|| Error::Store { operation, source: "the writer returned no outcome".into() })
    }

    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        Ok(self.read(address, Stored::head).flatten())
    }

    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        Ok(self.read(address, |record| record.index.value()))
    }

    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        Ok(self.read(address, |record| record.status.value()))
    }

    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        Ok(self.read(address, |record| record.config.value()))
    }
}
