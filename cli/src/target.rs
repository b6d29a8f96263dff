//! Which nameservice a command is for: a service somewhere, or a table that this process serves itself.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{self, rustls_provider::CryptoMode},
};
use nameservice_dynamo::endpoint_config;
use nameservice_feed::Feed;
use nameservice_http::{App, Auth, service};
use nameservice_model::{Error as StoreError, NameService as _};
use nameservice_store::{Store, TableReport, endpoint_client, sdk_client};

use crate::{args::TargetArgs, client::Client, consumer::Source, embedded::Engine, failure::Failure, routes};

const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const URL_VARIABLE: &str = "NAMESERVICE_URL";

/// Where the table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the embedded engine, in this directory.
    Data(PathBuf),
    /// In the embedded engine, in memory.
    Memory,
    /// In a DynamoDB at this URL.
    Endpoint(String),
    /// In AWS.
    Aws,
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
    /// What runs it, where it is embedded.
    pub engine: Option<Engine>,
    name: String,
    place: Place,
}

impl TargetArgs {
    /// The table that the command line names, if it names one.
    pub fn place(&self) -> Result<Option<Place>, Failure> {
        let data = self.data.clone().map(Place::Data);
        let endpoint = self.endpoint_url.clone().map(Place::Endpoint);
        let aws = self.aws.then_some(Place::Aws);
        let mut places = [data, endpoint, aws].into_iter().flatten();
        let place = places.next();
        if places.next().is_some() {
            return Err(Failure::Usage("give one of --data, --endpoint-url and --aws".into()));
        }
        if place.is_some() && self.url.is_some() {
            return Err(Failure::Usage("give --url for a service, or a table, but not both".into()));
        }
        Ok(place)
    }

    /// A client of what the command line names.
    pub async fn client(&self) -> Result<Client, Failure> {
        let Some(place) = self.place()? else {
            if self.table.is_some() {
                return Err(Failure::Usage("--table goes with --data, --endpoint-url or --aws".into()));
            }
            let url = self.url.clone().or_else(|| std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty()));
            return Client::remote(url.as_deref().unwrap_or(DEFAULT_URL), self.token.clone());
        };
        let table = Table::open(place, self.table.as_deref()).await?;
        if table.is_embedded() {
            // A directory that was never served has no table yet.
            table.ensure().await?;
        } else {
            table.ping().await?;
        }
        let router = service(routes::router(), App::new(Arc::new(table.store), Arc::new(table.feed), Auth::Open));
        Ok(Client::in_process(router, table.engine))
    }
}

impl Table {
    /// Connects to a table, starting the embedded engine where it is in one. The table need not exist.
    pub async fn open(place: Place, name: Option<&str>) -> Result<Self, Failure> {
        let name = name.unwrap_or(Store::DEFAULT_TABLE).to_owned();
        let engine = match &place {
            Place::Data(directory) => Some(start_engine(directory).await?),
            Place::Memory => Some(Engine::in_memory()?),
            Place::Endpoint(_) | Place::Aws => None,
        };
        let near = |url: &str| (endpoint_client(url), aws_sdk_dynamodbstreams::Client::new(&endpoint_config(url)));
        let (client, streams) = match (&place, &engine) {
            (_, Some(engine)) => near(&engine.url()),
            (Place::Endpoint(url), None) => {
                let parsed = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                if parsed.is_none() {
                    return Err(Failure::Usage(format!("`{url}` is not a URL: it begins with http:// or https://")));
                }
                near(url)
            }
            _ => {
                let config = aws_config().await?;
                (sdk_client(&config), aws_sdk_dynamodbstreams::Client::new(&config))
            }
        };
        let source = Source { tables: client.clone(), streams, table: name.clone() };
        let feed = Feed::new(client.clone(), Feed::table_of(&name));
        Ok(Self { store: Store::new(client, name.as_str()), feed, source, engine, name, place })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the engine runs in this process.
    pub fn is_embedded(&self) -> bool {
        self.engine.is_some()
    }

    /// Its name, and where it is.
    pub fn describe(&self) -> String {
        match &self.place {
            Place::Data(directory) => format!("data in {}", directory.display()),
            Place::Memory => "data in memory, lost at the end".into(),
            Place::Endpoint(url) => format!("table {} at {url}", self.name),
            Place::Aws => format!("table {} in AWS", self.name),
        }
    }

    /// Makes the table and its feed's where there is none; tells what those that exist lack.
    pub async fn ensure(&self) -> Result<TableReport, Failure> {
        let mut report = self.store.ensure_table().await.map_err(|source| self.unusable(source, ""))?;
        let feed = self.feed.ensure_table().await.map_err(|source| self.feed_unusable(source))?;
        report.lacks.extend(feed.lacks.iter().map(of_feed));
        Ok(report)
    }

    /// Tells what the tables lack, and makes none: in AWS, tables are made by whoever means to pay for them.
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
            // It has not answered: nothing is known about the table.
            StoreError::Unavailable { .. } => "",
            _ => "; if it does not exist, `nameservice init` with the same options makes it",
        };
        self.store.ping().await.map_err(|source| {
            let hint = hint(&source);
            self.unusable(source, hint)
        })
    }

    fn unusable(&self, source: StoreError, hint: &'static str) -> Failure {
        Failure::Table { table: self.name.clone(), hint, source }
    }

    fn feed_unusable(&self, source: StoreError) -> Failure {
        Failure::Table { table: self.feed.table().to_owned(), hint: "", source }
    }
}

/// What the feed's table lacks, told apart from what the table lacks.
fn of_feed(lack: &impl std::fmt::Display) -> String {
    format!("in the feed's table: {lack}")
}

/// Opening a database reads its file and may have to wait for a lock: not on a thread that serves.
async fn start_engine(directory: &Path) -> Result<Engine, Failure> {
    let directory = directory.to_owned();
    let started = tokio::task::spawn_blocking(move || Engine::open(&directory)).await;
    Ok(started.map_err(|error| Failure::Engine(crate::embedded::EngineError::Start(error.into())))??)
}

/// How AWS is reached: as its own command line finds it.
pub(crate) async fn aws_config() -> Result<aws_config::SdkConfig, Failure> {
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12()).http_client(http).load().await;
    if config.region().is_none() {
        return Err(Failure::Usage("no AWS region is configured: set AWS_REGION, or one in the profile".into()));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

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
