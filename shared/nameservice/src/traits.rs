//! An example of every trait of a backend.
//!
//! A caller that needs one operation takes the narrow trait that has it; [`Backend`](crate::Backend) is all of them.
//!
//! # NameService
//!
//! [`NameService`](crate::NameService) reads records: one, several, lists, snapshots.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn NameService = &**ns.backend();
//! let record = backend.lookup(&mydb).await?.ok_or(Rejection::Unknown)?;
//! assert_eq!(record.head.map(|head| head.v), Some(1));
//! let page = backend.list(&ListQuery::default(), &|_| true).await?;
//! assert_eq!(page.items.len(), 1);
//! # Ok(()) }
//! ```
//!
//! # GraphSourceLookup
//!
//! [`GraphSourceLookup`](crate::GraphSourceLookup) looks graph sources up, and finds no ledgers.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn GraphSourceLookup = &**ns.backend();
//! assert!(backend.graph_source(&mydb).await?.is_none());
//! # Ok(()) }
//! ```
//!
//! # Publisher
//!
//! [`Publisher`](crate::Publisher) creates, retracts and restores.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn Publisher = &**ns.backend();
//! let dev = mydb.with_branch("dev")?;
//! assert!(matches!(backend.create_branch(&Call::fresh(), &dev, &mydb, None).await?, BranchCreated::Created(_)));
//! assert!(matches!(backend.retract(&Call::fresh(), &mydb, None).await?, Retracted::HasDependents));
//! # Ok(()) }
//! ```
//!
//! # AdminPublisher
//!
//! [`AdminPublisher`](crate::AdminPublisher) deletes, resets and protects.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn AdminPublisher = &**ns.backend();
//! let to = ResetTo::new(None, None)?;
//! assert!(matches!(backend.reset_head(&Call::fresh(), &mydb, &to).await?, Reset::Reset { .. }));
//! assert_eq!(backend.protect(&Call::fresh(), &mydb, true).await?, Protection::Set);
//! assert_eq!(backend.purge(&Call::fresh(), &mydb).await?, Purged::Protected);
//! ns.protect(&mydb, false).await?;
//! assert_eq!(backend.purge(&Call::fresh(), &mydb).await?, Purged::Purged);
//! # Ok(()) }
//! ```
//!
//! # RefPublisher
//!
//! [`RefPublisher`](crate::RefPublisher) reads and pushes heads and indexes.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn RefPublisher = &**ns.backend();
//! let head = backend.head(&mydb).await?.ok_or(Rejection::Unknown)?;
//! let push = HeadPush::cas(head, NewHead::new(id.parse()?, 2)?);
//! // A call that is repeated, because its answer was lost, is applied once.
//! let call = Call::fresh();
//! assert!(backend.push_head(&call, &mydb, &push).await?.is_updated());
//! assert!(backend.push_head(&call, &mydb, &push).await?.is_updated());
//! # Ok(()) }
//! ```
//!
//! # StatusPublisher
//!
//! [`StatusPublisher`](crate::StatusPublisher) reads and pushes states.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn StatusPublisher = &**ns.backend();
//! let status = backend.status(&mydb).await?.ok_or(Rejection::Unknown)?;
//! let push = StatusPush::cas(status, NewStatus::new("syncing".parse()?)?);
//! assert!(backend.push_status(&Call::fresh(), &mydb, &push).await?.is_updated());
//! # Ok(()) }
//! ```
//!
//! # ConfigPublisher
//!
//! [`ConfigPublisher`](crate::ConfigPublisher) reads and pushes the configuration of ledgers.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn ConfigPublisher = &**ns.backend();
//! let new = NewConfig::new(Object::from_iter([("index_threshold".to_owned(), 100.into())]))?;
//! let push = ConfigPush::cas(Config::unborn(), new);
//! assert!(backend.push_config(&Call::fresh(), &mydb, &push).await?.is_updated());
//! # Ok(()) }
//! ```
//!
//! # GraphSourcePublisher
//!
//! [`GraphSourcePublisher`](crate::GraphSourcePublisher) creates and reconfigures graph sources.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn GraphSourcePublisher = &**ns.backend();
//! let search = GraphSourcePublication::new("search".parse()?, "f:Bm25Index", Object::new())?;
//! let search = search.with_dependencies(vec![mydb.clone()])?;
//! assert!(matches!(backend.publish_graph_source(&Call::fresh(), &search).await?, Published::Created(_)));
//! # Ok(()) }
//! ```
//!
//! # LeasePublisher
//!
//! [`LeasePublisher`](crate::LeasePublisher) acquires, refreshes and releases leases; [`LeaseKeeper`](crate::LeaseKeeper) does so in time.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn LeasePublisher = &**ns.backend();
//! let request = LeaseRequest::new(LeaseName::INDEX, "indexer-1")?;
//! let Leased::Held(held) = backend.acquire_lease(&Call::fresh(), &mydb, &request).await? else { panic!("busy") };
//! let push = IndexPush::monotonic(NewIndex::new(id.parse()?, 1)?).under(request.claim(held.token))?;
//! assert!(ns.backend().push_index(&Call::fresh(), &mydb, &push).await?.is_updated());
//! assert_eq!(backend.release_lease(&Call::fresh(), &mydb, &request.claim(held.token)).await?, Released::Released);
//! # Ok(()) }
//! ```
//!
//! # TransactionPublisher
//!
//! [`TransactionPublisher`](crate::TransactionPublisher) applies several operations, all or none.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn TransactionPublisher = &**ns.backend();
//! let push = HeadPush::monotonic(NewHead::new(id.parse()?, 2)?);
//! let check = ConcernState::Config(Config::unborn());
//! let transaction = Transaction::new(vec![Operation::new(mydb.clone(), push), Operation::new(mydb.clone(), check)])?;
//! assert!(matches!(backend.commit(&Call::fresh(), &transaction).await?, Committed::Committed(_)));
//! # Ok(()) }
//! ```
//!
//! # ChangeFeed
//!
//! [`ChangeFeed`](crate::ChangeFeed) reads the change feed; [`Nameservice::changes`](crate::Nameservice::changes) follows it.
//!
//! ```
//! # use nameservice::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nameservice::Error> {
//! # let ns = nameservice::connect("memory:").await?;
//! # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! # let mydb: Address = "mydb".parse()?;
//! # ns.create_ledger(&mydb).head(id, 1).await?;
//! let backend: &dyn ChangeFeed = &**ns.backend();
//! let Run::Changes(changes) = backend.changes(0, Limit::default()).await? else { panic!("expired") };
//! assert_eq!(changes.last().map(|change| change.position), Some(backend.position().await?));
//! # Ok(()) }
//! ```
