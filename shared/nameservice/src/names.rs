use std::{fmt, sync::Arc};

use nameservice_model::{
    Address, AddressGlob, Backend, Call, ChangeFeed, ContentId, InvalidAddress, LeaseName, Limit, ListQuery, Listed,
    NewHead, Operation, OperationOutcome, Record, Transaction,
};

use crate::{
    Changes, ConfigHandle, CreateLedger, Error, HeadHandle, IndexHandle, LeaseHandle, PublishGraphSource, Result,
    Search, StatusHandle,
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

    /// Returns the backend, which has every operation, in narrow traits.
    ///
    /// ```
    /// use nameservice::{Address, Call, Retracted};
    ///
    /// # async fn example(ns: nameservice::Nameservice) -> Result<(), nameservice::Error> {
    /// let mydb: Address = "mydb".parse()?;
    /// match ns.backend().retract(&Call::fresh(), &mydb, Some("moved")).await? {
    ///     Retracted::Retracted(record) => println!("{} is retracted", record.address),
    ///     other => return Err(other.into()),
    /// }
    /// # Ok(()) }
    /// ```
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
    pub async fn lookup<A>(&self, address: A) -> Result<Option<Record>>
    where
        A: IntoAddress,
    {
        Ok(self.backend.lookup(&address.into_address()?).await?)
    }

    /// Begins to create a ledger.
    pub fn create_ledger(&self, address: impl IntoAddress) -> CreateLedger {
        CreateLedger::new(self.backend.clone(), address.into_address())
    }

    /// Begins to create a graph source, or to replace its configuration.
    pub fn publish_graph_source(
        &self,
        address: impl IntoAddress,
        source_type: impl Into<String>,
        config: nameservice_model::Object,
    ) -> PublishGraphSource {
        PublishGraphSource::new(self.backend.clone(), address.into_address(), source_type.into(), config)
    }

    /// Creates a branch of a ledger, at the head of its source.
    pub async fn create_branch(&self, branch: impl IntoAddress, source: impl IntoAddress) -> Result<Record> {
        let (branch, source) = (branch.into_address()?, source.into_address()?);
        match self.backend.create_branch(&Call::fresh(), &branch, &source, None).await? {
            nameservice_model::BranchCreated::Created(record) => Ok(*record),
            other => Err(other.into()),
        }
    }

    /// Protects a record from retraction, purge and reset, or removes the protection.
    pub async fn protect(&self, address: impl IntoAddress, protected: bool) -> Result<()> {
        use nameservice_model::Protection;
        match self.backend.protect(&Call::fresh(), &address.into_address()?, protected).await? {
            Protection::Set | Protection::Already => Ok(()),
            other => Err(other.into()),
        }
    }

    /// Returns the handle of the head of a ledger.
    pub fn head(&self, address: impl IntoAddress) -> Result<HeadHandle> {
        Ok(HeadHandle::new(self.backend.clone(), address.into_address()?))
    }

    /// Returns the handle of the index of a record.
    pub fn index(&self, address: impl IntoAddress) -> Result<IndexHandle> {
        Ok(IndexHandle::new(self.backend.clone(), address.into_address()?))
    }

    /// Returns the handle of the status of a record.
    pub fn status(&self, address: impl IntoAddress) -> Result<StatusHandle> {
        Ok(StatusHandle::new(self.backend.clone(), address.into_address()?))
    }

    /// Returns the handle of the configuration of a ledger.
    pub fn config(&self, address: impl IntoAddress) -> Result<ConfigHandle> {
        Ok(ConfigHandle::new(self.backend.clone(), address.into_address()?))
    }

    /// Begins to take a lease of a record.
    pub fn lease(&self, address: impl IntoAddress, name: LeaseName, holder: impl Into<String>) -> Result<LeaseHandle> {
        LeaseHandle::new(self.backend.clone(), address.into_address()?, name, holder.into())
    }

    /// Begins to read the change feed.
    pub fn changes(&self) -> Changes {
        Changes::new(self.clone())
    }

    /// Applies operations together, all or none, and returns the outcome of each.
    pub async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>> {
        match self.backend.commit(&Call::fresh(), &Transaction::new(operations)?).await? {
            nameservice_model::Committed::Committed(outcomes) => Ok(outcomes),
            other => Err(other.into()),
        }
    }

    /// Begins to search for records that contain all words of a text, if the backend can
    /// ([`Capability::Search`](crate::Capability::Search)).
    pub fn search(&self, words: &str) -> Search {
        Search::new(self.backend.clone(), words)
    }

    /// Returns the records whose addresses match a pattern, read page by page.
    pub async fn list(&self, pattern: &str) -> Result<Vec<Listed>> {
        let glob = AddressGlob::parse(pattern)?;
        let mut query = ListQuery { limit: Limit::new(1000)?, ..ListQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = self.backend.list(&query, &|address| glob.matches(address)).await?;
            found.extend(page.items);
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(found),
            }
        }
    }
}

/// Something that names a record: an [`Address`], or a text such as `mydb` or `mydb:dev`.
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
