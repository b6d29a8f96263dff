use crate::{Nameservice, Place, Result, error::cannot_open};

/// How to connect.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The bearer token for a service.
    pub token: Option<String>,
}

impl Options {
    /// Sets the bearer token for a service.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }
}

/// Opens the nameservice at a URL; [`Place`] lists the schemes.
///
/// No request is sent to a service or a table yet: the first operation shows whether they exist.
pub async fn connect(url: &str) -> Result<Nameservice> {
    connect_with(&url.parse()?, Options::default()).await
}

/// Opens the nameservice at a place.
#[cfg_attr(not(feature = "client"), allow(unused_variables, reason = "the token is for services"))]
pub async fn connect_with(place: &Place, options: Options) -> Result<Nameservice> {
    match place {
        #[cfg(feature = "client")]
        Place::Service(url) => {
            let mut client = nameservice_client::Client::builder(url);
            if let Some(token) = options.token {
                client = client.token(token);
            }
            Ok(client.build().map_err(cannot_open(place))?.into())
        }
        #[cfg(feature = "dynamodb")]
        Place::DynamoDb { table, region, endpoint, timeout } => {
            let backend = crate::DynamoDb::connect(table, region.as_deref(), endpoint.as_deref(), *timeout).await;
            Ok(Nameservice::over(backend.map_err(cannot_open(place))?))
        }
        #[cfg(feature = "files")]
        Place::Directory { .. } | Place::Bucket { .. } => {
            let files = crate::files(place, true, nameservice_files::Options::default()).await?;
            Ok(Nameservice::over(files))
        }
        #[cfg(feature = "embedded")]
        Place::Embedded(directory) => {
            let directory = directory.clone();
            let open =
                move || nameservice_embedded::Embedded::open(directory, nameservice_embedded::Options::default());
            // Blocking: opening reads files.
            let opened = tokio::task::spawn_blocking(open).await.map_err(cannot_open(place))?;
            Ok(Nameservice::over(opened.map_err(cannot_open(place))?))
        }
        #[cfg(feature = "embedded")]
        Place::Memory => {
            let opened = nameservice_embedded::Embedded::memory(nameservice_embedded::Options::default());
            Ok(Nameservice::over(opened.map_err(cannot_open(place))?))
        }
        Place::Legacy { .. } => {
            Err(cannot_open(place)("a table of an older layout is copied from; it cannot be connected to"))
        }
        Place::Dump(_) => Err(cannot_open(place)("a dump is copied from and to; it cannot be connected to")),
        #[allow(unreachable_patterns, reason = "of the features that are off")]
        other => Err(cannot_open(other)("the library was built without this backend: see its cargo features")),
    }
}

/// Opens a table of one of the older layouts, to copy from: `v1:TABLE` or `item:TABLE`. Only records whose addresses begin
/// with the prefix are read.
#[cfg(all(feature = "dynamodb", feature = "sync"))]
pub async fn legacy_table(place: &Place, prefix: Option<String>) -> Result<nameservice_sync::LegacyTable> {
    let Place::Legacy { table, region, endpoint, .. } = place else {
        return Err(cannot_open(place)("it is not a table of an older layout"));
    };
    let client = crate::dynamodb::client(region.as_deref(), endpoint.as_deref()).await.map_err(cannot_open(place))?;
    Ok(nameservice_sync::LegacyTable::new(client, table, prefix))
}

/// Returns the keys of virtual graphs (`vg:NAME:BRANCH`) among the rows of a table of the current layout, which lists
/// and snapshots leave out; none for other places. A copy from a table writes them as graph sources.
pub async fn virtual_graphs(place: &Place) -> Result<Vec<nameservice_model::Address>> {
    match place {
        #[cfg(feature = "dynamodb")]
        Place::DynamoDb { table, region, endpoint, timeout } => {
            let names = crate::DynamoDb::connect(table, region.as_deref(), endpoint.as_deref(), *timeout).await;
            Ok(names.map_err(cannot_open(place))?.store().virtual_graphs().await?)
        }
        _ => Ok(Vec::new()),
    }
}
