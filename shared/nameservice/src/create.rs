use nameservice_model::{
    Address, BranchCreated, Call, ContentId, Created, GraphSourcePublication, InvalidAddress, NewConfig, NewHead,
    Object, Published, Record, RecordKind,
};

use crate::{Error, Nameservice, Rejection, Result, builder::sent, names::new_head};

/// The creation of a ledger: awaited, it returns the record.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let commit = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
/// use nameservice::{Error, Rejection};
///
/// let ns = nameservice::connect("memory:").await?;
/// let mydb = ns.create_ledger("mydb").head(commit, 1).await?;
/// assert_eq!(mydb.t(), 1);
/// assert!(matches!(ns.create_ledger("mydb").await, Err(Error::Rejected(Rejection::AlreadyExists))));
/// assert_eq!(ns.create_ledger("mydb").or_existing().await?, mydb);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct CreateLedger {
    names: Nameservice,
    call: Call,
    parts: Result<(Address, Option<NewHead>, Option<NewConfig>)>,
    or_existing: bool,
}

impl CreateLedger {
    pub(crate) fn new(names: Nameservice, address: Result<Address, InvalidAddress>) -> Self {
        let parts = address.map(|address| (address, None, None)).map_err(Error::from);
        Self { names, call: Call::fresh(), parts, or_existing: false }
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

    /// Returns the ledger as it is if it exists; one that is retracted is still an error.
    pub fn or_existing(mut self) -> Self {
        self.or_existing = true;
        self
    }
}

sent!(CreateLedger -> Record, self => {
    let (address, head, config) = self.parts?;
    let backend = self.names.backend();
    match backend.create_ledger(&self.call, &address, head.as_ref(), config.as_ref()).await? {
        Created::Created(record) => Ok(*record),
        Created::AlreadyExists if self.or_existing => {
            // It may have been purged meanwhile.
            let record = backend.lookup(&address).await?.ok_or(Rejection::Unknown)?;
            match record.kind {
                _ if record.retracted => Err(Rejection::Retracted.into()),
                RecordKind::Ledger => Ok(record),
                kind => Err(Rejection::WrongKind { kind, source_type: record.source_type }.into()),
            }
        }
        other => Err(other.into()),
    }
});

/// The creation of a branch of a ledger: awaited, it returns the record.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct CreateBranch {
    names: Nameservice,
    call: Call,
    addresses: Result<(Address, Address), InvalidAddress>,
    at: Option<Result<NewHead>>,
}

impl CreateBranch {
    pub(crate) fn new(names: Nameservice, addresses: Result<(Address, Address), InvalidAddress>) -> Self {
        Self { names, call: Call::fresh(), addresses, at: None }
    }

    /// Creates it at this commit; by default, at the head of its source.
    pub fn at<I>(mut self, id: I, t: i64) -> Self
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        self.at = Some(new_head(id, t));
        self
    }
}

sent!(CreateBranch -> Record, self => {
    let ((branch, source), at) = (self.addresses?, self.at.transpose()?);
    match self.names.backend().create_branch(&self.call, &branch, &source, at.as_ref()).await? {
        BranchCreated::Created(record) => Ok(*record),
        other => Err(other.into()),
    }
});

/// The publication of a graph source: awaited, it returns the record.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct PublishGraphSource {
    names: Nameservice,
    call: Call,
    publication: Result<GraphSourcePublication>,
}

impl PublishGraphSource {
    pub(crate) fn new(
        names: Nameservice,
        address: Result<Address, InvalidAddress>,
        source_type: String,
        config: Object,
    ) -> Self {
        let publication = address.map_err(Error::from);
        let publication =
            publication.and_then(|address| Ok(GraphSourcePublication::new(address, source_type, config)?));
        Self { names, call: Call::fresh(), publication }
    }

    /// Sets what it depends on.
    pub fn depends_on(mut self, dependencies: impl IntoIterator<Item = Address>) -> Self {
        let dependencies = dependencies.into_iter().collect();
        self.publication = self.publication.and_then(|publication| Ok(publication.with_dependencies(dependencies)?));
        self
    }

    /// Expects this version of the configuration; 0 if the graph source must not exist.
    pub fn expect_v(mut self, v: i64) -> Self {
        self.publication = self.publication.and_then(|publication| Ok(publication.expecting(v)?));
        self
    }
}

sent!(PublishGraphSource -> Record, self => {
    match self.names.backend().publish_graph_source(&self.call, &self.publication?).await? {
        Published::Created(record) | Published::Updated(record) => Ok(*record),
        other => Err(other.into()),
    }
});
