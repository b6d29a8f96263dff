use std::{future::IntoFuture, pin::Pin, sync::Arc};

use nameservice_model::{
    Address, Backend, Call, ContentId, Created, GraphSourcePublication, InvalidAddress, NewConfig, NewHead, Object,
    Published, Record,
};

use crate::{Error, Result, names::new_head};

type Future<T> = Pin<Box<dyn std::future::Future<Output = Result<T>> + Send>>;

/// The creation of a ledger: awaited, it returns the record.
#[must_use = "nothing is sent before it is awaited"]
pub struct CreateLedger {
    backend: Arc<dyn Backend>,
    call: Call,
    parts: Result<(Address, Option<NewHead>, Option<NewConfig>)>,
}

impl CreateLedger {
    pub(crate) fn new(backend: Arc<dyn Backend>, address: Result<Address, InvalidAddress>) -> Self {
        let parts = address.map(|address| (address, None, None)).map_err(Error::from);
        Self { backend, call: Call::fresh(), parts }
    }

    /// Creates it with a head.
    pub fn head<I>(mut self, id: I, t: i64) -> Self
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        self.parts = self.parts.and_then(|(address, _, config)| Ok((address, Some(new_head(id, t)?), config)));
        self
    }

    /// Creates it with a configuration.
    pub fn config(mut self, config: Object) -> Self {
        self.parts = self.parts.and_then(|(address, head, _)| Ok((address, head, Some(NewConfig::new(config)?))));
        self
    }

    /// Sets the call: repeating it with the same call does not apply it twice.
    pub fn call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }
}

impl IntoFuture for CreateLedger {
    type Output = Result<Record>;
    type IntoFuture = Future<Record>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (address, head, config) = self.parts?;
            match self.backend.create_ledger(&self.call, &address, head.as_ref(), config.as_ref()).await? {
                Created::Created(record) => Ok(*record),
                other => Err(other.into()),
            }
        })
    }
}

/// The publication of a graph source: awaited, it returns the record.
#[must_use = "nothing is sent before it is awaited"]
pub struct PublishGraphSource {
    backend: Arc<dyn Backend>,
    call: Call,
    publication: Result<GraphSourcePublication>,
}

impl PublishGraphSource {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        address: Result<Address, InvalidAddress>,
        source_type: String,
        config: Object,
    ) -> Self {
        let publication = address.map_err(Error::from);
        let publication =
            publication.and_then(|address| Ok(GraphSourcePublication::new(address, source_type, config)?));
        Self { backend, call: Call::fresh(), publication }
    }

    /// Sets what it depends on.
    pub fn depends_on(mut self, dependencies: Vec<Address>) -> Self {
        self.publication = self.publication.and_then(|publication| Ok(publication.with_dependencies(dependencies)?));
        self
    }

    /// Expects this version of the configuration; 0 if the graph source must not exist.
    pub fn expect_v(mut self, v: i64) -> Self {
        self.publication = self.publication.and_then(|publication| Ok(publication.expecting(v)?));
        self
    }

    /// Sets the call: repeating it with the same call does not apply it twice.
    pub fn call(mut self, call: Call) -> Self {
        self.call = call;
        self
    }
}

impl IntoFuture for PublishGraphSource {
    type Output = Result<Record>;
    type IntoFuture = Future<Record>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.backend.publish_graph_source(&self.call, &self.publication?).await? {
                Published::Created(record) | Published::Updated(record) => Ok(*record),
                other => Err(other.into()),
            }
        })
    }
}
