//! Which nameservice a command is for: a service somewhere, or data that this process serves itself.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{self, rustls_provider::CryptoMode},
};
use nameservice_dynamo::{RetryPolicy, endpoint_config};
use nameservice_embedded::{Embedded, OpenError, Options};
use nameservice_feed::Feed;
use nameservice_http::{App, Auth, service};
use nameservice_model::{Backend, Error as StoreError, NameService as _, ShownUrl};
use nameservice_store::{Store, TableReport, endpoint_client, sdk_client};

use crate::{
    archives::with_archive,
    client::{self, Client},
    consumer::Source,
    failure::Failure,
    files::{Missing, Stored},
    options::TargetArgs,
    output, routes,
};

/// How long a table may take to answer before a notice is printed.
const NOTICE_AFTER: Duration = Duration::from_millis(900);
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const URL_VARIABLE: &str = "NAMESERVICE_URL";
const DYNAMODB_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the embedded backend, in this directory.
    Data(PathBuf),
    /// In the embedded backend, in memory.
    Memory,
    /// In a DynamoDB at this URL.
    Endpoint(String),
    /// In AWS.
    Aws,
    /// In Fluree's files: a directory or a bucket.
    Files(nameservice::Place),
}

/// Data that can be served.
#[derive(Debug)]
pub enum Opened {
    /// In the embedded backend.
    Embedded(Local),
    /// In a DynamoDB table.
    Table(Box<Table>),
    /// In Fluree's files.
    Files(Stored),
}

/// The embedded backend, and where its data is.
#[derive(Debug)]
pub struct Local {
    /// The nameservice, which is its own change feed.
    pub names: Embedded,
    /// `None` if it is in memory.
    directory: Option<PathBuf>,
}

/// The table, and how it is reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableOptions<'a> {
    /// Its name; by default, the one that Fluree uses.
    pub name: Option<&'a str>,
    /// The AWS region; by default, that of the environment or the profile.
    pub region: Option<&'a str>,
    /// How long after the first attempt of an operation another may begin.
    pub timeout: Option<Duration>,
}

/// A table that can be served.
#[derive(Debug)]
pub struct Table {
    /// The nameservice over it.
    pub store: Store,
    /// Its change feed.
    pub feed: Feed,
    /// Where the records of its stream come from.
    pub source: Source,
    name: String,
    place: Place,
}

impl TargetArgs {
    /// Returns the arguments with the URL of `--at` resolved to the place that it names.
    pub fn resolved(mut self) -> Result<Self, Failure> {
        let at = match (self.at.take(), self.fluree_config.take()) {
            (at, None) => at,
            (_, Some(path)) => Some(of_fluree(&path)?),
        };
        match at {
            None => {}
            Some(place @ (nameservice::Place::Directory { .. } | nameservice::Place::Bucket { .. })) => {
                self.files = Some(place);
            }
            Some(nameservice::Place::Service(url)) => self.url = Some(url),
            Some(nameservice::Place::Embedded(directory)) => self.data = Some(directory),
            Some(nameservice::Place::DynamoDb { table, region, endpoint, timeout }) => {
                self.table = Some(table);
                self.aws = endpoint.is_none();
                self.endpoint_url = endpoint;
                self.region = region;
                self.timeout = Some(timeout);
            }
            Some(place) => return Err(Failure::Usage(format!("`{place}` is for serve alone"))),
        }
        Ok(self)
    }

    /// The place that the command line names, in the library's terms.
    pub fn library_place(&self) -> Result<nameservice::Place, Failure> {
        if let Some(place) = &self.at {
            return Ok(place.clone());
        }
        let table = |endpoint| nameservice::Place::DynamoDb {
            table: self.table.clone().unwrap_or_else(|| Store::DEFAULT_TABLE.to_owned()),
            region: self.region.clone(),
            endpoint,
            timeout: self.timeout.unwrap_or(DYNAMODB_TIMEOUT),
        };
        Ok(match self.place()? {
            Some(Place::Data(directory)) => nameservice::Place::Embedded(directory),
            Some(Place::Memory) => nameservice::Place::Memory,
            Some(Place::Files(place)) => place,
            Some(Place::Endpoint(url)) => table(Some(url)),
            Some(Place::Aws) => table(None),
            None => nameservice::Place::Service(self.service_url()?),
        })
    }

    /// The table, and how it is reached.
    pub fn table_options(&self) -> TableOptions<'_> {
        TableOptions { name: self.table.as_deref(), region: self.region.as_deref(), timeout: self.timeout }
    }

    /// The URL of the service, if no table is named.
    fn service_url(&self) -> Result<String, Failure> {
        if self.table.is_some() {
            return Err(Failure::Usage("--table goes with --data, --endpoint-url or --aws".into()));
        }
        let url = self.url.clone().or_else(|| std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty()));
        Ok(url.unwrap_or_else(|| DEFAULT_URL.to_owned()))
    }

    /// The table that the command line names, if it names one.
    pub fn place(&self) -> Result<Option<Place>, Failure> {
        let data = self.data.clone().map(Place::Data);
        let endpoint = self.endpoint_url.clone().map(Place::Endpoint);
        let aws = self.aws.then_some(Place::Aws);
        let files = self.files.clone().map(Place::Files);
        let mut places = [data, endpoint, aws, files].into_iter().flatten();
        let place = places.next();
        if places.next().is_some() {
            return Err(Failure::Usage("give one of --data, --endpoint-url and --aws".into()));
        }
        if place.is_some() && self.url.is_some() {
            return Err(Failure::Usage("give --url for a service, or a table, but not both".into()));
        }
        Ok(place)
    }

    /// Returns a client of the nameservice that the command line names.
    pub async fn client(&self, missing: Missing) -> Result<Client, Failure> {
        let archive = self.archive.open().await?;
        let Some(place) = self.place()? else {
            let url = self.service_url()?;
            let Some(archive) = archive else { return client::remote(&url, self.token.clone()) };
            // The archive is read by this process: a local service over the remote one.
            let names = Arc::new(client::remote(&url, self.token.clone())?);
            let app = with_archive(App::new(names.clone(), names, Auth::Open), Some(archive));
            return client::in_process(service(routes::router(), app));
        };
        let opened = Opened::open(place, self.table_options(), missing, None).await?;
        if let Opened::Table(table) = &opened {
            table.ping().await?;
        }
        client::in_process(service(routes::router(), with_archive(opened.app(Auth::Open), archive)))
    }
}

impl Opened {
    /// Opens the data of a place. A DynamoDB table need not exist yet. Changes can be read for `retention`, if that is
    /// given.
    pub async fn open(
        place: Place,
        table: TableOptions<'_>,
        missing: Missing,
        retention: Option<Duration>,
    ) -> Result<Self, Failure> {
        let mut options = Options::default();
        if let Some(retention) = retention {
            options = options.with_retention(retention);
        }
        Ok(match place {
            Place::Data(directory) => Self::Embedded(Local::open(directory, missing, options).await?),
            Place::Memory => Self::Embedded(Local { names: Embedded::memory(options)?, directory: None }),
            Place::Endpoint(_) | Place::Aws => {
                let mut table = Table::open(place, table).await?;
                if let Some(retention) = retention {
                    table.feed = table.feed.with_retention(retention);
                }
                Self::Table(Box::new(table))
            }
            Place::Files(place) => Self::Files(Stored::open(place, missing, None, retention).await?),
        })
    }

    /// The service over it, for these callers.
    pub fn app(&self, auth: Auth) -> App {
        match self {
            Self::Embedded(Local { names, .. }) => {
                let names = Arc::new(names.clone());
                App::new(names.clone(), names, auth)
            }
            Self::Files(stored) => {
                let names = Arc::new(stored.names.clone());
                App::new(names.clone(), names, auth)
            }
            Self::Table(table) => App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), auth),
        }
    }

    /// The nameservice and its change feed, as one backend.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(Local { names, .. }) => Arc::new(names.clone()),
            Self::Files(stored) => Arc::new(stored.names.clone()),
            Self::Table(table) => Arc::new(nameservice::DynamoDb::new(table.store.clone(), table.feed.clone())),
        }
    }

    /// Completes when nothing can be written any more by this process, with the reason.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let ended = match self {
            Self::Embedded(Local { names, .. }) => Some(names.ended()),
            Self::Files(stored) => stored.feed.as_ref().map(Embedded::ended),
            Self::Table(_) => None,
        };
        async move {
            match ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Describes where the data is.
    pub fn describe(&self) -> String {
        match self {
            Self::Embedded(local) => local.describe(),
            Self::Table(table) => table.describe(),
            Self::Files(stored) => stored.describe(),
        }
    }
}

/// The place that a Fluree server with this connection file uses.
fn of_fluree(path: &Path) -> Result<nameservice::Place, Failure> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    let found = nameservice::Place::of_fluree(&text, |name| std::env::var(name).ok());
    found.map_err(|error| Failure::Usage(format!("{shown}: {error}")))
}

impl Local {
    /// Opens a directory. This reads the whole log, so it does not run on an async worker thread.
    pub async fn open(directory: PathBuf, missing: Missing, options: Options) -> Result<Self, Failure> {
        let path = directory.clone();
        let opened = tokio::task::spawn_blocking(move || match missing {
            Missing::Create => Embedded::open(&path, options),
            Missing::Reject => Embedded::open_existing(&path, options),
        });
        let names = opened.await.map_err(|error| OpenError::Thread(error.into()))??;
        Ok(Self { names, directory: Some(directory) })
    }

    /// The directory; `None` if the data is in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Describes where the data is.
    pub fn describe(&self) -> String {
        match &self.directory {
            Some(directory) => format!("data in {}", directory.display()),
            None => "data in memory, lost at the end".to_owned(),
        }
    }
}

impl Table {
    /// Connects to a table, which need not exist.
    async fn open(place: Place, options: TableOptions<'_>) -> Result<Self, Failure> {
        let name = options.name.unwrap_or(Store::DEFAULT_TABLE).to_owned();
        let (client, streams) = match &place {
            Place::Endpoint(url) => {
                let parsed = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                if parsed.is_none() {
                    return Err(Failure::Usage(format!(
                        "`{}` is not a URL: it begins with http:// or https://",
                        ShownUrl(url)
                    )));
                }
                (endpoint_client(url), aws_sdk_dynamodbstreams::Client::new(&endpoint_config(url)))
            }
            _ => {
                let config = aws_config(options.region).await?;
                (sdk_client(&config), aws_sdk_dynamodbstreams::Client::new(&config))
            }
        };
        let source = Source { tables: client.clone(), streams, table: name.clone() };
        let feed = Feed::new(client.clone(), Feed::table_of(&name));
        let mut store = Store::new(client, name.as_str());
        if let Some(deadline) = options.timeout {
            store = store.with_retry_policy(RetryPolicy { deadline, ..RetryPolicy::default() });
        }
        Ok(Self { store, feed, source, name, place })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its name, and where it is.
    pub fn describe(&self) -> String {
        match &self.place {
            Place::Endpoint(url) => format!("table {} at {}", self.name, ShownUrl(url)),
            _ => format!("table {} in AWS", self.name),
        }
    }

    /// Creates the table and that of its feed if they are missing; reports what existing ones lack.
    pub async fn ensure(&self) -> Result<TableReport, Failure> {
        let ensured = self.noticed(self.store.ensure_table()).await;
        let mut report = ensured.map_err(|source| self.unusable(source, ""))?;
        let feed = self.feed.ensure_table().await.map_err(|source| self.feed_unusable(source))?;
        report.lacks.extend(feed.lacks.iter().map(of_feed));
        Ok(report)
    }

    /// Reports what the tables lack, and creates none: in AWS a table costs money, and is only created explicitly.
    pub async fn check(&self) -> Result<TableReport, Failure> {
        self.ping().await?;
        let mut report = self.store.check_table().await.map_err(|source| self.unusable(source, ""))?;
        match self.feed.check_table().await {
            Ok(feed) => report.lacks.extend(feed.lacks.iter().map(of_feed)),
            Err(error @ StoreError::Unavailable { .. }) => return Err(self.feed_unusable(error)),
            Err(error) => {
                tracing::debug!(%error, "the feed's table was not found");
                report.lacks.push(format!("there is no usable table `{}`: no change feed", self.feed.table()));
            }
        }
        Ok(report)
    }

    async fn ping(&self) -> Result<(), Failure> {
        let hint = |error: &StoreError| match error {
            // Without an answer, nothing is known about the table.
            StoreError::Unavailable { .. } => "",
            _ => "; if it does not exist, `nameservice init` with the same options creates it",
        };
        self.noticed(self.store.ping()).await.map_err(|source| {
            let hint = hint(&source);
            self.unusable(source, hint)
        })
    }

    /// Prints a notice if the table does not answer soon: attempts are repeated for several seconds.
    async fn noticed<T>(&self, request: impl Future<Output = T>) -> T {
        notice_after(NOTICE_AFTER, request, || {
            output::note(&format!("{} does not answer yet; still trying", self.describe()));
        })
        .await
    }

    fn unusable(&self, source: StoreError, hint: &'static str) -> Failure {
        Failure::Table { table: self.name.clone(), hint, source }
    }

    fn feed_unusable(&self, source: StoreError) -> Failure {
        Failure::Table { table: self.feed.table().to_owned(), hint: "", source }
    }
}

/// Describes what the feed's table lacks.
fn of_feed(lack: &impl std::fmt::Display) -> String {
    format!("in the feed's table: {lack}")
}

/// Awaits a future, and calls `notice` once if it takes longer than this.
async fn notice_after<T>(after: Duration, future: impl Future<Output = T>, notice: impl FnOnce()) -> T {
    let mut future = std::pin::pin!(future);
    match tokio::time::timeout(after, &mut future).await {
        Ok(done) => done,
        Err(_) => {
            notice();
            future.await
        }
    }
}

/// The configuration of AWS clients, found as the AWS CLI finds it.
pub(crate) async fn aws_config(region: Option<&str>) -> Result<aws_config::SdkConfig, Failure> {
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut config = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12()).http_client(http);
    if let Some(region) = region {
        config = config.region(aws_config::Region::new(region.to_owned()));
    }
    let config = config.load().await;
    if config.region().is_none() {
        return Err(Failure::Usage("no AWS region is configured: set AWS_REGION, or one in the profile".into()));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_table_that_is_slow_to_answer_is_noticed() {
        for (takes, noticed) in [(100, false), (5_000, true)] {
            let was_noticed = Cell::new(false);
            let request = tokio::time::sleep(Duration::from_millis(takes));
            notice_after(NOTICE_AFTER, request, || was_noticed.set(true)).await;
            assert_eq!(was_noticed.get(), noticed, "{takes} ms");
        }
    }

    #[test]
    fn a_url_names_table_region_and_time_limit() {
        let at = "dynamodb://names?region=eu-central-1&timeout_ms=250".parse().unwrap();
        let target = TargetArgs { at: Some(at), ..TargetArgs::default() }.resolved().unwrap();
        let TableOptions { name, region, timeout } = target.table_options();
        assert_eq!((name, region), (Some("names"), Some("eu-central-1")));
        assert_eq!(timeout, Some(Duration::from_millis(250)));
        assert_eq!(target.place().unwrap(), Some(Place::Aws));
    }

    #[test]
    fn one_place_at_most_is_named() {
        let named = |data: bool, endpoint: bool, aws: bool, url: bool| {
            TargetArgs {
                data: data.then(|| "d".into()),
                endpoint_url: endpoint.then(|| "http://e".into()),
                aws,
                url: url.then(|| "http://u".into()),
                ..TargetArgs::default()
            }
            .place()
        };
        assert_eq!(named(false, false, false, true).unwrap(), None);
        assert_eq!(named(true, false, false, false).unwrap(), Some(Place::Data("d".into())));
        assert_eq!(named(false, true, false, false).unwrap(), Some(Place::Endpoint("http://e".into())));
        assert_eq!(named(false, false, true, false).unwrap(), Some(Place::Aws));
        for contradiction in [(true, true, false, false), (false, true, true, false), (false, false, true, true)] {
            let (data, endpoint, aws, url) = contradiction;
            assert!(matches!(named(data, endpoint, aws, url), Err(Failure::Usage(_))), "{contradiction:?}");
        }
    }
}
