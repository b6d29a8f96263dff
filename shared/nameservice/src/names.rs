use std::{fmt, sync::Arc};

use nameservice_model::{
    Address, Backend, Capabilities, ChangeFeed, ContentId, InvalidAddress, LeaseName, NewHead, NewIndex, Object, Record,
};

use crate::{
    Changes, ConfigHandle, CreateBranch, CreateLedger, Error, HeadHandle, IndexHandle, LeaseHandle, PublishGraphSource,
    Result, Search, StatusHandle,
};

/// A nameservice: a backend with convenience methods. Cheap to clone.
#[derive(Clone)]
pub struct Nameservice {
    backend: Arc<dyn Backend>,
    /// The feed from which changes are read, if not the backend's own.
    pub(crate) feed: Option<Arc<dyn ChangeFeed>>,
    #[cfg(feature = "client")]
    client: Option<nameservice_client::Client>,
}

impl fmt::Debug for Nameservice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nameservice").finish_non_exhaustive()
    }
}

#[cfg(feature = "client")]
impl From<nameservice_client::Client> for Nameservice {
    fn from(client: nameservice_client::Client) -> Self {
        Self { backend: Arc::new(client.clone()), feed: None, client: Some(client) }
    }
}

impl Nameservice {
    /// Returns the nameservice over a backend.
    pub fn over(backend: impl Backend + 'static) -> Self {
        Self {
            backend: Arc::new(backend),
            feed: None,
            #[cfg(feature = "client")]
            client: None,
        }
    }

    /// Returns the backend, for functions that take one of the [traits](crate::traits).
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Returns the change feed: that of the backend, continued by the archive if there is one.
    pub fn feed(&self) -> Arc<dyn ChangeFeed> {
        self.feed.clone().unwrap_or_else(|| self.backend.clone())
    }

    /// Returns the client if changes are read from its service directly, without an archive.
    #[cfg(feature = "client")]
    pub(crate) fn client(&self) -> Option<&nameservice_client::Client> {
        self.client.as_ref().filter(|_| self.feed.is_none())
    }

    /// Returns everything under an address; `None` if there is no record.
    pub async fn lookup(&self, address: impl IntoAddress) -> Result<Option<Record>> {
        Ok(self.backend.lookup(&address.into_address()?).await?)
    }

    /// Returns the records of these addresses, in that order; those that do not exist are left out.
    pub async fn lookup_all(&self, addresses: impl IntoIterator<Item = impl IntoAddress>) -> Result<Vec<Record>> {
        let addresses = addresses.into_iter().map(IntoAddress::into_address).collect::<Result<Vec<_>, _>>()?;
        Ok(self.backend.lookup_all(&addresses).await?)
    }

    /// Returns what prevents a retraction or purge: branches that were made from the record, and graph sources that depend
    /// on it.
    pub async fn dependents(&self, address: impl IntoAddress) -> Result<Vec<Address>> {
        Ok(self.backend.dependents(&address.into_address()?).await?)
    }

    /// Returns what the backend can do.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        Ok(self.backend.capabilities().await?)
    }

    /// Reads once, cheaply and consistently: an error means that the backend cannot serve.
    pub async fn ping(&self) -> Result<()> {
        Ok(self.backend.ping().await?)
    }

    /// Begins to create a ledger.
    pub fn create_ledger(&self, address: impl IntoAddress) -> CreateLedger {
        CreateLedger::new(self.clone(), address.into_address())
    }

    /// Begins to create a graph source, or to replace its configuration.
    pub fn publish_graph_source(
        &self,
        address: impl IntoAddress,
        source_type: impl Into<String>,
        config: Object,
    ) -> PublishGraphSource {
        PublishGraphSource::new(self.clone(), address.into_address(), source_type.into(), config)
    }

    /// Begins to create a branch of a ledger, by default at the head of its source.
    pub fn create_branch(&self, branch: impl IntoAddress, source: impl IntoAddress) -> CreateBranch {
        let addresses = branch.into_address().and_then(|branch| Ok((branch, source.into_address()?)));
        CreateBranch::new(self.clone(), addresses)
    }

    /// Returns the handle of the head of a ledger.
    pub fn head(&self, address: impl IntoAddress) -> Result<HeadHandle> {
        Ok(HeadHandle::new(self.clone(), address.into_address()?))
    }

    /// Returns the handle of the index of a record.
    pub fn index(&self, address: impl IntoAddress) -> Result<IndexHandle> {
        Ok(IndexHandle::new(self.clone(), address.into_address()?))
    }

    /// Returns the handle of the status of a record.
    pub fn status(&self, address: impl IntoAddress) -> Result<StatusHandle> {
        Ok(StatusHandle::new(self.clone(), address.into_address()?))
    }

    /// Returns the handle of the configuration of a ledger.
    pub fn config(&self, address: impl IntoAddress) -> Result<ConfigHandle> {
        Ok(ConfigHandle::new(self.clone(), address.into_address()?))
    }

    /// Begins to take a lease of a record.
    pub fn lease(&self, address: impl IntoAddress, name: LeaseName, holder: impl Into<String>) -> Result<LeaseHandle> {
        LeaseHandle::new(self.clone(), address.into_address()?, name, holder.into())
    }

    /// Begins to read the change feed.
    pub fn changes(&self) -> Changes {
        Changes::new(self.clone())
    }

    /// Begins to search for records that contain all words of a text, if the backend can
    /// ([`Capability::Search`](crate::Capability::Search)).
    pub fn search(&self, words: &str) -> Search {
        Search::new(self.clone(), words)
    }

    /// Begins a projector of a read model of this nameservice into these rows.
    #[cfg(feature = "projector")]
    pub fn projector<P: nameservice_projector::Projection>(
        &self,
        projection: P,
        rows: Arc<dyn nameservice_projector::Rows<P::Row>>,
    ) -> nameservice_projector::Projector<P> {
        nameservice_projector::Projector::new(projection, self.backend.clone(), self.feed(), rows)
    }
}

/// Something that names a record: an [`Address`], a [`Record`], or a text such as `mydb` or `mydb:dev`.
pub trait IntoAddress {
    /// Returns the address.
    fn into_address(self) -> Result<Address, InvalidAddress>;
}

impl IntoAddress for Address {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Ok(self)
    }
}

impl IntoAddress for &Address {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Ok(self.clone())
    }
}

impl IntoAddress for &Record {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Ok(self.address.clone())
    }
}

impl IntoAddress for &str {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Address::parse(self)
    }
}

impl IntoAddress for &String {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Address::parse(self)
    }
}

impl IntoAddress for String {
    fn into_address(self) -> Result<Address, InvalidAddress> {
        Address::parse(&self)
    }
}

/// Returns a new head from anything that names a commit.
pub(crate) fn new_head<I>(id: I, t: i64) -> Result<NewHead>
where
    I: TryInto<ContentId>,
    Error: From<I::Error>,
{
    Ok(NewHead::new(id.try_into()?, t)?)
}

/// Returns a new index from anything that names an index root.
pub(crate) fn new_index<I>(id: I, t: i64) -> Result<NewIndex>
where
    I: TryInto<ContentId>,
    Error: From<I::Error>,
{
    Ok(NewIndex::new(id.try_into()?, t)?)
}
