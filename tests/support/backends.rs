//! The backends that the contract suite runs over, one fixture for all of them.

use std::{
    env, fmt,
    fs::OpenOptions,
    io::Write,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nameservice_cli::serve::{self, Service};
use nameservice_client::Client;
use nameservice_embedded::{Embedded, Options};
use nameservice_files::{Bucket, Files};
use nameservice_http::{App, Auth};
use nameservice_model::*;
use nameservice_sync::{BackendSource, LazyBackend, Replica, ReplicaBackend};
use tempfile::TempDir;

use crate::{LONG, layout, pump::pump, table::Table};

/// What a test's helper takes: a fixture, or a backend itself.
pub trait AsRecords {
    /// The backend.
    fn records(&self) -> &dyn Records;
}

impl AsRecords for Fixture {
    fn records(&self) -> &dyn Records {
        &*self.records
    }
}

impl<T: Records> AsRecords for T {
    fn records(&self) -> &dyn Records {
        self
    }
}

/// If this variable names a file, each test appends a line that says what it ran on: `cargo contract` makes its table from
/// these.
pub const REPORT: &str = "NAMESERVICE_TEST_REPORT";

/// If this variable names an S3, the buckets under test are there, and not in memory.
pub const BUCKET_ENDPOINT: &str = "NAMESERVICE_TEST_S3";
/// If this variable names an account of Azure's Blob Storage by its URL, they are there. Its credentials are in the environment.
const CONTAINER_ENDPOINT: &str = "NAMESERVICE_TEST_AZURE";
/// The bucket, or the container, there. It exists; each test has a prefix of its own in it.
pub const BUCKET: &str = "nameservice-test";

/// One backend, as it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A DynamoDB table, on the engine in this process or on the one that `NAMESERVICE_TEST_ENDPOINT` names.
    DynamoDb,
    /// The embedded backend in a directory.
    Embedded,
    /// The embedded backend in memory.
    Memory,
    /// A service over HTTP, through the client: it serves the embedded backend in memory.
    Client,
    /// A replica of such a service: it reads from the memory of this process, and writes at the service.
    Replica,
    /// The embedded backend in memory, with an older place whose records are taken over: there are none.
    Legacy,
    /// Fluree's files in a local directory.
    Directory,
    /// Fluree's files in a bucket: in this process's memory, in the S3 that [`BUCKET_ENDPOINT`] names, or in a container of Azure.
    Bucket,
}

/// The clock of a backend under test: it starts at the current time, and moves when it is set.
#[derive(Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        Self(Arc::new(AtomicI64::new(i64::try_from(now).unwrap())))
    }

    /// The time on it.
    pub fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0.load(SeqCst).try_into().unwrap())
    }

    /// Whole seconds since the epoch.
    pub fn epoch_seconds(&self) -> i64 {
        self.0.load(SeqCst).div_euclid(1_000)
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), SeqCst);
    }

    /// Sets it back.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(i64::try_from(by.as_millis()).unwrap(), SeqCst);
    }
}

/// A new and empty backend for one test.
pub struct Fixture {
    records: Arc<dyn Records>,
    /// The change feed of the same backend.
    pub feed: Arc<dyn ChangeFeed>,
    /// What the backend's leases run by.
    pub clock: TestClock,
    behind: Behind,
}

/// The parts of a backend that must be examined, or kept alive, beside the traits.
enum Behind {
    Table(Box<Table>),
    Directory(Embedded, TempDir),
    Memory,
    Service(Service),
    Replica(Service, Replica, Client),
    Files(Files, Option<TempDir>),
}

impl Fixture {
    /// A new backend.
    pub async fn start(place: Place) -> Self {
        match place {
            Place::DynamoDb => Self::over(Table::with_stream().await),
            Place::Embedded => {
                let directory = tempfile::tempdir().unwrap();
                let embedded = Embedded::open(directory.path(), Options::default()).unwrap();
                Self::embedded(embedded.clone(), Behind::Directory(embedded, directory))
            }
            Place::Memory => Self::embedded(Embedded::memory(Options::default()).unwrap(), Behind::Memory),
            Place::Client => Self::client().await,
            Place::Replica => Self::replica().await,
            Place::Legacy => Self::legacy(),
            Place::Directory => {
                let directory = tempfile::tempdir().unwrap();
                let files = Files::directory(directory.path(), false, files_options()).unwrap();
                Self::files(files, Some(directory)).await
            }
            Place::Bucket => Self::files(Files::bucket(bucket(), files_options()), None).await,
        }
    }

    /// The backend over this table.
    pub fn over(table: Table) -> Self {
        let clock = TestClock::new();
        let records = table.store.clone().with_clock({
            let clock = clock.clone();
            move || clock.now()
        });
        Self {
            records: Arc::new(records),
            feed: Arc::new(table.feed.clone()),
            clock,
            behind: Behind::Table(Box::new(table)),
        }
    }

    fn embedded(embedded: Embedded, behind: Behind) -> Self {
        let clock = TestClock::new();
        let backend = Arc::new(embedded.with_clock({
            let clock = clock.clone();
            move || clock.now()
        }));
        Self { records: backend.clone(), feed: backend, clock, behind }
    }

    async fn client() -> Self {
        let (clock, service, client) = Self::served().await;
        let client = Arc::new(client);
        Self { records: client.clone(), feed: client, clock, behind: Behind::Service(service) }
    }

    async fn replica() -> Self {
        let (clock, service, client) = Self::served().await;
        let replica = Replica::in_memory(client.clone(), Options::default()).unwrap();
        replica.ready().await;
        let backend = Arc::new(ReplicaBackend::new(replica.clone(), client.clone()));
        Self { records: backend.clone(), feed: backend, clock, behind: Behind::Replica(service, replica, client) }
    }

    fn legacy() -> Self {
        let memory = || Embedded::memory(Options::default()).unwrap();
        let clock = TestClock::new();
        let names = Arc::new(memory().with_clock({
            let clock = clock.clone();
            move || clock.now()
        }));
        let older = BackendSource::new(Arc::new(memory())).without_feed();
        let backend = Arc::new(LazyBackend::new(names.clone(), names, Arc::new(older), "memory:".to_owned()));
        Self { records: backend.clone(), feed: backend, clock, behind: Behind::Memory }
    }

    /// A service over the embedded backend, and a client of it.
    async fn served() -> (TestClock, Service, Client) {
        let clock = TestClock::new();
        let served = Arc::new(Embedded::memory(Options::default()).unwrap().with_clock({
            let clock = clock.clone();
            move || clock.now()
        }));
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let service = serve::start(listener, App::new(served.clone(), served, Auth::Open), None).unwrap();
        let client = Client::new(&service.url()).unwrap();
        (clock, service, client)
    }

    /// The backend over files, whose feed follows from now on.
    async fn files(files: Files, directory: Option<TempDir>) -> Self {
        let clock = TestClock::new();
        let files = files.with_clock({
            let clock = clock.clone();
            move || clock.now()
        });
        files.compare().await.unwrap();
        let backend = Arc::new(files.clone());
        Self { records: backend.clone(), feed: backend, clock, behind: Behind::Files(files, directory) }
    }

    /// The backend, to give to a task.
    pub fn shared(&self) -> Arc<dyn Records> {
        self.records.clone()
    }

    /// Returns once the feed shows every write so far.
    pub async fn settle(&self) {
        match &self.behind {
            Behind::Table(table) => pump(table).await,
            Behind::Files(files, _) => files.compare().await.unwrap(),
            // The changes of one write can arrive one by one, and the first may be all that its record shows.
            Behind::Replica(_, replica, client) => {
                let position = client.position().await.unwrap();
                assert!(replica.reached(position, LONG).await, "the replica follows its upstream");
            }
            Behind::Directory(..) | Behind::Memory | Behind::Service(_) => {}
        }
    }

    /// Panics unless what is stored has the backend's own layout, whatever the test did.
    pub async fn examine(self) {
        match self.behind {
            Behind::Table(table) => {
                let rows = table.all_rows().await;
                layout::assert_table(&rows);
                layout::assert_references(&rows);
            }
            Behind::Directory(embedded, directory) => {
                drop((self.records, self.feed));
                let before = everything(&embedded).await;
                drop(embedded);
                let mut findings = Vec::new();
                nameservice_embedded::examine(directory.path(), false, &mut |finding| findings.push(finding)).unwrap();
                assert!(findings.is_empty(), "{findings:?}");
                let again = Embedded::open_existing(directory.path(), Options::default()).unwrap();
                assert_eq!(everything(&again).await, before, "what was answered is there after a restart");
            }
            Behind::Files(files, _directory) => {
                let mut findings = Vec::new();
                files.examine(false, &mut |finding| findings.push(finding)).await.unwrap();
                // Tests push indexes to unborn ledgers.
                let wrong = findings.iter().filter(|finding| finding.code != "index-ahead");
                assert_eq!(wrong.count(), 0, "{findings:#?}");
            }
            Behind::Memory => {}
            Behind::Service(service) | Behind::Replica(service, ..) => {
                // Readers that wait would keep it open.
                drop((self.records, self.feed));
                service.stop().await;
            }
        }
    }
}

/// No looks at the files except those that a test asks for, and those at its writes.
fn files_options() -> nameservice_files::Options {
    nameservice_files::Options::default()
        .with_interval(Duration::from_secs(3_600))
        // A machine that runs many tests may be slow.
        .with_timeout(LONG)
}

fn bucket() -> Bucket {
    let prefix = format!("tests/{}", uuid::Uuid::new_v4());
    let options = |endpoint| nameservice_files::BucketOptions::default().endpoint(Some(endpoint)).timeout(LONG);
    match (env::var(BUCKET_ENDPOINT), env::var(CONTAINER_ENDPOINT)) {
        (Ok(endpoint), _) => {
            Bucket::s3(BUCKET, &prefix, &options(endpoint).region(Some("us-east-1".to_owned()))).unwrap()
        }
        (_, Ok(endpoint)) => Bucket::azure(BUCKET, &prefix, &options(endpoint)).unwrap(),
        _ => Bucket::over(Arc::new(nameservice_files::object_store::memory::InMemory::new()), &prefix),
    }
}

/// All records and all changes.
async fn everything(backend: &Embedded) -> (Vec<Record>, Run) {
    let limit = Limit::new(100_000).unwrap();
    let records = backend.snapshot(limit, None, &|_| true).await.unwrap().items;
    (records, backend.changes(0, limit).await.unwrap())
}

impl Deref for Fixture {
    type Target = dyn Records;

    fn deref(&self) -> &Self::Target {
        &*self.records
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fixture")
    }
}

/// Runs one test on one backend, unless the backend lacks what it needs.
pub async fn run(place: Place, test: &str, needs: &[Capability], body: impl AsyncFnOnce(&Fixture)) {
    let fixture = Fixture::start(place).await;
    // The capabilities that a backend reports decide, not its name.
    let has = fixture.capabilities().await.unwrap();
    let lacks = needs.iter().find(|capability| !has.has(**capability));
    if lacks.is_none() {
        body(&fixture).await;
        fixture.examine().await;
    }
    let Some(report) = env::var_os(REPORT) else { return };
    let outcome = lacks.map_or_else(|| "ran".to_owned(), |capability| format!("lacks {capability:?}"));
    let line = format!("{test}\t{place:?}\t{outcome}\n");
    OpenOptions::new().append(true).create(true).open(report).unwrap().write_all(line.as_bytes()).unwrap();
}
