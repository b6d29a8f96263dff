//! Handles of the concerns of a record: read one, or push it.

use std::{future::IntoFuture, pin::Pin, sync::Arc};

use nameservice_model::{
    Address, Backend, Call, Config, ConfigPush, ContentId, Head, HeadPush, Index, IndexPush, IndexRoot, LeaseClaim,
    NewConfig, NewGraphIndex, NewHead, NewIndex, NewStatus, Object, PushOutcome, Status, StatusPayload, StatusPush,
};
use serde_json::Value;

use crate::{AtLeast, Error, Rejection, Result, names::new_head};

pub(crate) type Future<T> = Pin<Box<dyn std::future::Future<Output = Result<T>> + Send>>;

macro_rules! handle {
    ($name:ident $value:ident $what:literal) => {
        #[doc = concat!("The ", $what, " of one record.")]
        #[derive(Clone)]
        pub struct $name {
            backend: Arc<dyn Backend>,
            address: Address,
        }

        impl $name {
            pub(crate) fn new(backend: Arc<dyn Backend>, address: Address) -> Self {
                Self { backend, address }
            }

            #[doc = concat!("Begins to read the ", $what, " once its watermark is at least this.")]
            pub fn at_least(&self, watermark: i64) -> AtLeast<$value> {
                let handle = self.clone();
                let read = move || -> Future<Option<$value>> {
                    let handle = handle.clone();
                    Box::pin(async move { handle.get().await })
                };
                AtLeast::new(self.backend.clone(), watermark, Box::new(read))
            }
        }
    };
}

handle!(HeadHandle Head "head");
handle!(IndexHandle Index "index");
handle!(StatusHandle Status "status");
handle!(ConfigHandle Config "configuration");

/// What a push of a head or an index expects.
enum Expectation<T> {
    Older,
    NoRecord,
    Value(T),
}

impl HeadHandle {
    /// Returns the head; `None` if there is no record, or it is a graph source.
    pub async fn get(&self) -> Result<Option<Head>> {
        Ok(self.backend.head(&self.address).await?)
    }

    /// Begins a push of a commit and its `t`. Without an expectation it replaces any older head.
    pub fn push<I>(&self, id: I, t: i64) -> PushHead
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        PushHead {
            handle: self.clone(),
            call: Call::fresh(),
            new: new_head(id, t),
            expected: Expectation::Older,
            claim: None,
        }
    }
}

/// A push of a head: awaited, it returns the outcome.
#[must_use = "nothing is sent before it is awaited"]
pub struct PushHead {
    handle: HeadHandle,
    call: Call,
    new: Result<NewHead>,
    expected: Expectation<Head>,
    claim: Option<LeaseClaim>,
}

impl PushHead {
    /// Expects this head.
    pub fn expect(mut self, head: Head) -> Self {
        self.expected = Expectation::Value(head);
        self
    }

    /// Expects a ledger without a commit.
    pub fn expect_unborn(self) -> Self {
        self.expect(Head::unborn())
    }

    /// Expects that there is no record: the push creates a ledger.
    pub fn expect_no_record(mut self) -> Self {
        self.expected = Expectation::NoRecord;
        self
    }

    /// Makes the push valid only under a lease.
    pub fn under(mut self, claim: LeaseClaim) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Sets the call: repeating it with the same call does not apply it twice.
    pub fn call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }

    /// Returns the push, for a transaction.
    pub fn into_push(self) -> Result<HeadPush> {
        let new = self.new?;
        let push = match self.expected {
            Expectation::Older => HeadPush::monotonic(new),
            Expectation::NoRecord => HeadPush::create(new),
            Expectation::Value(head) => HeadPush::cas(head, new),
        };
        Ok(match self.claim {
            Some(claim) => push.under(claim)?,
            None => push,
        })
    }
}

impl IntoFuture for PushHead {
    type Output = Result<PushOutcome<ContentId>>;
    type IntoFuture = Future<PushOutcome<ContentId>>;

    fn into_future(self) -> Self::IntoFuture {
        let HeadHandle { backend, address } = self.handle.clone();
        let call = self.call.clone();
        Box::pin(async move { Ok(backend.push_head(&call, &address, &self.into_push()?).await?) })
    }
}

impl IndexHandle {
    /// Returns the index; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Index>> {
        Ok(self.backend.index(&self.address).await?)
    }

    /// Begins a push of an index root and the `t` that it covers. Without an expectation it replaces any older index.
    pub fn push<I>(&self, id: I, t: i64) -> PushIndex
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        let new = id.try_into().map_err(Error::from).and_then(|id| Ok(NewIndex::new(id, t)?));
        PushIndex { handle: self.clone(), call: Call::fresh(), new, expected: Expectation::Older, claim: None }
    }
}

/// A push of an index: awaited, it returns the outcome.
#[must_use = "nothing is sent before it is awaited"]
pub struct PushIndex {
    handle: IndexHandle,
    call: Call,
    new: Result<NewIndex>,
    expected: Expectation<Index>,
    claim: Option<LeaseClaim>,
}

impl PushIndex {
    /// Expects this index. The new one may have the same `t`: the same data, indexed again.
    pub fn expect(mut self, index: Index) -> Self {
        self.expected = Expectation::Value(index);
        self
    }

    /// Expects a record without an index.
    pub fn expect_unborn(self) -> Self {
        self.expect(Index::unborn())
    }

    /// Sets the index of a named graph too; `None` for one that exists and has no index yet.
    pub fn graph(mut self, name: impl Into<String>, graph: Option<NewGraphIndex>) -> Self {
        self.new = self.new.and_then(|new| Ok(new.with_graph(name, graph)?));
        self
    }

    /// Makes the push valid only under a lease.
    pub fn under(mut self, claim: LeaseClaim) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Sets the call: repeating it with the same call does not apply it twice.
    pub fn call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }

    /// Returns the push, for a transaction.
    pub fn into_push(self) -> Result<IndexPush> {
        let new = self.new?;
        let push = match self.expected {
            Expectation::Older => IndexPush::monotonic(new),
            Expectation::NoRecord => IndexPush::create(new),
            Expectation::Value(index) => IndexPush::cas(index, new),
        };
        Ok(match self.claim {
            Some(claim) => push.under(claim)?,
            None => push,
        })
    }
}

impl IntoFuture for PushIndex {
    type Output = Result<PushOutcome<IndexRoot>>;
    type IntoFuture = Future<PushOutcome<IndexRoot>>;

    fn into_future(self) -> Self::IntoFuture {
        let IndexHandle { backend, address } = self.handle.clone();
        let call = self.call.clone();
        Box::pin(async move { Ok(backend.push_index(&call, &address, &self.into_push()?).await?) })
    }
}

impl StatusHandle {
    /// Returns the status; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Status>> {
        Ok(self.backend.status(&self.address).await?)
    }

    /// Replaces the current status by this state and metadata. If the status changes meanwhile, that is a conflict.
    pub async fn set(&self, state: impl Into<String>, meta: Object) -> Result<PushOutcome<StatusPayload>> {
        let new = NewStatus::new(StatusPayload { state: state.into(), meta })?;
        let current = self.get().await?.ok_or(Rejection::Unknown)?;
        self.replace(Status::stored(current.v, None), new).await
    }

    /// Replaces this status.
    pub async fn replace(&self, expected: Status, new: NewStatus) -> Result<PushOutcome<StatusPayload>> {
        let push = StatusPush::cas(expected, new);
        Ok(self.backend.push_status(&Call::fresh(), &self.address, &push).await?)
    }
}

impl ConfigHandle {
    /// Returns the configuration; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Config>> {
        Ok(self.backend.config(&self.address).await?)
    }

    /// Replaces the current configuration. If it changes meanwhile, that is a conflict.
    pub async fn set(&self, config: Object) -> Result<PushOutcome<Value>> {
        let new = NewConfig::new(config)?;
        let current = self.get().await?.ok_or(Rejection::Unknown)?;
        self.replace(Config::stored(current.v, None), new).await
    }

    /// Replaces this configuration.
    pub async fn replace(&self, expected: Config, new: NewConfig) -> Result<PushOutcome<Value>> {
        let push = ConfigPush::cas(expected, new);
        Ok(self.backend.push_config(&Call::fresh(), &self.address, &push).await?)
    }
}
