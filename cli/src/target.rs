//! Which nameservice a command is for: a service somewhere, or data that this process serves itself.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nameservice::Place;
use nameservice_embedded::{Embedded, OpenError, Options};
use nameservice_http::{App, Auth, service};
#[cfg(feature = "migration")]
use nameservice_model::Backend;
use nameservice_model::ShownUrl;

#[cfg(feature = "files")]
use crate::files::Stored;
#[cfg(feature = "dynamodb")]
use crate::table::Table;
use crate::{
    archives::with_archive,
    client::{self, Client, Credentials},
    failure::Failure,
    options::{Missing, TargetArgs},
    routes,
};

pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const URL_VARIABLE: &str = "NAMESERVICE_URL";
/// The table that Fluree uses by default.
const DEFAULT_TABLE: &str = "fluree-nameservice";
/// How long after the first attempt of an operation on a table another may begin.
const DYNAMODB_TIMEOUT: Duration = Duration::from_secs(10);

/// The default data directory.
pub(crate) const DEFAULT_DATA: &str = ".nameservice";
/// Data that can be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum Opened {
    /// In the embedded backend.
    Embedded(Local),
    /// In a DynamoDB table.
    #[cfg(feature = "dynamodb")]
    Table(Box<Table>),
    /// In Fluree's files.
    #[cfg(feature = "files")]
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

impl Opened {
    /// Returns the embedded backend, and the directory that its log is in.
    #[cfg(feature = "serve")]
    pub(crate) fn in_directory(&self) -> Option<(&Embedded, &Path)> {
        match self {
            Self::Embedded(local) => local.directory().map(|directory| (&local.names, directory)),
            #[cfg(any(feature = "dynamodb", feature = "files"))]
            _ => None,
        }
    }
}

impl TargetArgs {
    /// Returns the arguments with the file of `--fluree-config` resolved to the place that it names.
    #[cfg_attr(not(feature = "files"), expect(unused_mut))]
    pub fn resolved(mut self) -> Result<Self, Failure> {
        #[cfg(feature = "files")]
        if let Some(path) = self.fluree_config.take() {
            self.at = Some(of_fluree(&path)?);
        }
        Ok(self)
    }

    /// Returns the place that the command line names, or the service that it means by default.
    pub fn place_or_service(&self) -> Result<Place, Failure> {
        match self.place()? {
            Some(place) => Ok(place),
            None => Ok(Place::Service(self.service_url())),
        }
    }

    /// Returns how a command authenticates itself at services.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        // A variable of the environment that is empty names no file.
        let named = |path: &Option<String>| path.clone().filter(|path| !path.is_empty());
        let read = |option: &str, path: &str| {
            fs::read(path).map_err(|error| Failure::Usage(format!("{option} {path}: {error}")))
        };
        let certificate = match (named(&self.client_cert), named(&self.client_key)) {
            (None, None) => None,
            (None, Some(_)) => return Err(Failure::Usage("--client-key goes with --client-cert".into())),
            (Some(cert), None) => Some(read("--client-cert", &cert)?),
            (Some(cert), Some(key)) => {
                Some([read("--client-cert", &cert)?, b"\n".to_vec(), read("--client-key", &key)?].concat())
            }
        };
        Ok(Credentials { token: self.token.clone(), certificate })
    }

    /// Returns the URL of the service that is used if no data is named.
    fn service_url(&self) -> String {
        let url = self.named_service().map(str::to_owned).or_else(service_of_environment);
        url.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// Returns the option of the command line that names a place, if there is one.
    pub fn option(&self) -> Option<&'static str> {
        #[cfg(feature = "files")]
        if self.fluree_config.is_some() {
            return Some("--fluree-config");
        }
        let options = [
            ("--at", self.at.is_some()),
            ("--url", self.url.is_some()),
            ("--data", self.data.is_some()),
            ("--endpoint-url", self.endpoint_url.is_some()),
            ("--aws", self.aws),
            ("--table", self.table.is_some()),
        ];
        options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Rejects a service that the command line or the environment names, for a command that needs the data itself, as `instead` says.
    pub(crate) fn reject_service(&self, instead: &str) -> Result<(), Failure> {
        let named = match self.named_service() {
            Some(url) => Some((self.option().unwrap_or("--url"), url.to_owned())),
            None => service_of_environment().map(|url| (URL_VARIABLE, url)),
        };
        match named {
            Some((by, url)) => Err(Failure::Usage(format!("{by} names the service {}: {instead}", ShownUrl(&url)))),
            None => Ok(()),
        }
    }

    /// Returns the URL of the service that the command line names, if it names one.
    pub fn named_service(&self) -> Option<&str> {
        match &self.at {
            Some(Place::Service(url)) => Some(url),
            _ => self.url.as_deref(),
        }
    }

    /// Returns the data that the command line names; `None` if it is for a service.
    pub fn place(&self) -> Result<Option<Place>, Failure> {
        let table = |endpoint: Option<&String>| Place::DynamoDb {
            table: self.table.clone().unwrap_or_else(|| DEFAULT_TABLE.to_owned()),
            region: None,
            endpoint: endpoint.cloned(),
            timeout: DYNAMODB_TIMEOUT,
        };
        if self.table.is_some() && self.endpoint_url.is_none() && !self.aws {
            return Err(Failure::Usage("--table goes with --endpoint-url or --aws".into()));
        }
        let at = self.at.clone().filter(|place| !matches!(place, Place::Service(_)));
        let data = self.data.clone().map(Place::Embedded);
        let endpoint = self.endpoint_url.as_ref().map(|url| table(Some(url)));
        let aws = self.aws.then(|| table(None));
        let mut places = [at, data, endpoint, aws].into_iter().flatten();
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
            let url = self.service_url();
            let Some(archive) = archive else { return client::remote(&url, &self.credentials()?) };
            // The archive is read by this process: a local service over the remote one.
            let names = Arc::new(client::remote(&url, &self.credentials()?)?);
            let app = with_archive(App::new(names.clone(), names, Auth::Open), Some(archive));
            return client::in_process(service(routes::router(), app));
        };
        let opened = Opened::open(place, missing, None).await?;
        #[cfg(feature = "dynamodb")]
        if let Opened::Table(table) = &opened {
            table.ping().await?;
        }
        client::in_process(service(routes::router(), with_archive(opened.app(Auth::Open), archive)))
    }
}

/// Returns the URL of the service that the environment names.
fn service_of_environment() -> Option<String> {
    std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty())
}

impl Opened {
    /// Opens the data of a place. A DynamoDB table need not exist yet. Changes can be read for `retention`, if that is
    /// given.
    pub async fn open(place: Place, missing: Missing, retention: Option<Duration>) -> Result<Self, Failure> {
        let mut options = Options::default();
        if let Some(retention) = retention {
            options = options.with_retention(retention);
        }
        Ok(match place {
            Place::Embedded(directory) => Self::Embedded(Local::open(directory, missing, options).await?),
            Place::Memory => Self::Embedded(Local { names: Embedded::memory(options)?, directory: None }),
            #[cfg(feature = "dynamodb")]
            Place::DynamoDb { table, region, endpoint, timeout } => {
                Self::Table(Box::new(Table::open(table, region, endpoint, timeout, retention).await?))
            }
            #[cfg(feature = "files")]
            place @ (Place::Directory { .. } | Place::Bucket { .. }) => {
                Self::Files(Stored::open(place, missing, None, retention).await?)
            }
            place => return Err(Failure::Usage(format!("`{place}` cannot be opened by this build of the program"))),
        })
    }

    /// Returns the service over it, for these callers.
    pub fn app(&self, auth: Auth) -> App {
        match self {
            Self::Embedded(Local { names, .. }) => {
                let names = Arc::new(names.clone());
                App::new(names.clone(), names, auth)
            }
            #[cfg(feature = "files")]
            Self::Files(stored) => {
                let names = Arc::new(stored.names.clone());
                App::new(names.clone(), names, auth)
            }
            #[cfg(feature = "dynamodb")]
            Self::Table(table) => table.app(auth),
        }
    }

    /// Returns the nameservice and its change feed, as one backend.
    #[cfg(feature = "migration")]
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(Local { names, .. }) => Arc::new(names.clone()),
            #[cfg(feature = "files")]
            Self::Files(stored) => Arc::new(stored.names.clone()),
            #[cfg(feature = "dynamodb")]
            Self::Table(table) => table.backend(),
        }
    }

    /// Completes when nothing can be written any more by this process, with the reason.
    #[cfg(feature = "serve")]
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let ended = match self {
            Self::Embedded(Local { names, .. }) => Some(names.ended()),
            #[cfg(feature = "files")]
            Self::Files(stored) => stored.feed.as_ref().map(Embedded::ended),
            #[cfg(feature = "dynamodb")]
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
            #[cfg(feature = "dynamodb")]
            Self::Table(table) => table.describe(),
            #[cfg(feature = "files")]
            Self::Files(stored) => stored.describe(),
        }
    }
}

/// Returns the place that a Fluree server with this connection file uses.
#[cfg(feature = "files")]
fn of_fluree(path: &Path) -> Result<Place, Failure> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    let found = Place::of_fluree(&text, |name| std::env::var(name).ok());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_table_region_and_time_limit() {
        let at = "dynamodb://names?region=eu-central-1&timeout_ms=250".parse().unwrap();
        let target = TargetArgs { at: Some(at), ..TargetArgs::default() }.resolved().unwrap();
        let (table, region) = ("names".to_owned(), Some("eu-central-1".to_owned()));
        let timeout = Duration::from_millis(250);
        assert_eq!(target.place().unwrap(), Some(Place::DynamoDb { table, region, endpoint: None, timeout }));
    }

    #[test]
    fn the_default_table_is_that_of_the_store() {
        assert_eq!(DEFAULT_TABLE, nameservice_store::Store::DEFAULT_TABLE);
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
        let table = |endpoint: Option<&str>| Place::DynamoDb {
            table: DEFAULT_TABLE.to_owned(),
            region: None,
            endpoint: endpoint.map(str::to_owned),
            timeout: DYNAMODB_TIMEOUT,
        };
        assert_eq!(named(true, false, false, false).unwrap(), Some(Place::Embedded("d".into())));
        assert_eq!(named(false, true, false, false).unwrap(), Some(table(Some("http://e"))));
        assert_eq!(named(false, false, true, false).unwrap(), Some(table(None)));
        for contradiction in [(true, true, false, false), (false, true, true, false), (false, false, true, true)] {
            let (data, endpoint, aws, url) = contradiction;
            assert!(matches!(named(data, endpoint, aws, url), Err(Failure::Usage(_))), "{contradiction:?}");
        }
    }
}
