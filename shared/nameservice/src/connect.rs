use std::{fmt, time::Duration};

use nameservice_model::ShownUrl;

use crate::{Nameservice, Place, Result, error::cannot_open};

/// The longest deadline: a longer one, such as `Duration::MAX`, would not fit the clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How to connect. One value serves every place: a place ignores what it does not have, and what is set here overrides
/// what its URL says.
///
/// | option | service | table | bucket | directory | embedded |
/// |---|---|---|---|---|---|
/// | [`token`](Self::token), [`root_certificates`](Self::root_certificates), [`client_certificate`](Self::client_certificate) | yes | | | | |
/// | [`deadline`](Self::deadline) | yes | yes | yes | yes | |
/// | [`attempt_timeout`](Self::attempt_timeout) | yes | | | | |
/// | [`retry_delays`](Self::retry_delays) | yes | yes | | | |
/// | [`region`](Self::region), [`endpoint`](Self::endpoint) | | yes | yes | | |
/// | [`retention`](Self::retention) | | | | | yes |
///
/// ```
/// # use std::time::Duration;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = nameservice::Options::default()
///     .token(std::env::var("NAMESERVICE_TOKEN")?)
///     .root_certificates(std::fs::read("ca.pem")?)
///     .deadline(Duration::from_secs(5));
/// let ns = nameservice::connect_with(&"https://ns.example.com".parse()?, options).await?;
/// # drop(ns);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Options {
    token: Option<String>,
    root_certificates: Option<Vec<u8>>,
    client_certificate: Option<Vec<u8>>,
    deadline: Option<Duration>,
    attempt_timeout: Option<Duration>,
    retry_delays: Option<(Duration, Duration)>,
    region: Option<String>,
    endpoint: Option<String>,
    retention: Option<Duration>,
}

/// Shows no secrets.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("has_token", &self.token.is_some())
            .field("has_root_certificates", &self.root_certificates.is_some())
            .field("has_client_certificate", &self.client_certificate.is_some())
            .field("deadline", &self.deadline)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("retry_delays", &self.retry_delays)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint.as_deref().map(|url| ShownUrl(url).to_string()))
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Sets the bearer token for a service.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trusts only these certificates, in PEM, instead of the system's.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Authenticates this client by a certificate: its chain and its private key, in one PEM.
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some(pem.into());
        self
    }

    /// Sets how long an operation may take with all its attempts; for a table, how long after its first attempt another may
    /// begin: at most a day. For a service, zero is one attempt only; other places need at least 1 ms. By default 20 seconds
    /// for a service, and 5 for the others.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline.min(LONGEST));
        self
    }

    /// Sets how long one attempt at a service may take: 35 seconds by default, and at most half of the deadline, unless that
    /// is zero or the request waits for something.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Sets the delays between two attempts: the first, and the longest.
    pub fn retry_delays(mut self, first: Duration, longest: Duration) -> Self {
        self.retry_delays = Some((first, longest));
        self
    }

    /// Sets the region of AWS.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets the URL of a DynamoDB or an object store outside the cloud.
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Sets how long changes can be read: 7 days by default.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Returns the place with what is set here.
    fn applied_to(&self, place: &Place) -> Place {
        let mut place = place.clone();
        match &mut place {
            Place::DynamoDb { region, endpoint, timeout, .. } | Place::Bucket { region, endpoint, timeout, .. } => {
                *region = self.region.clone().or_else(|| region.take());
                *endpoint = self.endpoint.clone().or_else(|| endpoint.take());
                *timeout = self.deadline.unwrap_or(*timeout);
            }
            Place::Directory { timeout, .. } => *timeout = self.deadline.unwrap_or(*timeout),
            _ => {}
        }
        place
    }

    /// Returns a client of the service at a URL.
    #[cfg(feature = "client")]
    pub(crate) fn client(&self, url: &str) -> Result<nameservice_client::Client, nameservice_client::RequestError> {
        let mut retries = nameservice_client::Retries::default();
        if let Some((min_delay, max_delay)) = self.retry_delays {
            retries = nameservice_client::Retries { min_delay, max_delay, ..retries };
        }
        retries.deadline = self.deadline.unwrap_or(retries.deadline);
        let mut client = nameservice_client::Client::builder(url).retries(retries);
        if let Some(token) = &self.token {
            client = client.token(token.clone());
        }
        if let Some(timeout) = self.attempt_timeout {
            client = client.timeout(timeout);
        }
        if let Some(pem) = &self.root_certificates {
            client = client.root_certificates(pem.clone());
        }
        if let Some(pem) = &self.client_certificate {
            client = client.client_certificate(pem.clone());
        }
        client.build()
    }

    /// Returns how requests to a table are repeated.
    #[cfg(feature = "dynamodb")]
    fn retry_policy(&self, deadline: Duration) -> nameservice_dynamo::RetryPolicy {
        let policy = nameservice_dynamo::RetryPolicy { deadline, ..Default::default() };
        match self.retry_delays {
            Some((base, cap)) => nameservice_dynamo::RetryPolicy { base, cap, ..policy },
            None => policy,
        }
    }

    /// Returns the options of the embedded backend.
    #[cfg(feature = "embedded")]
    pub(crate) fn embedded(&self) -> nameservice_embedded::Options {
        let options = nameservice_embedded::Options::default();
        match self.retention {
            Some(retention) => options.with_retention(retention),
            None => options,
        }
    }
}

/// Opens the nameservice at a URL; [`Place`] lists the schemes.
///
/// No request is sent to a service or a table yet: the first operation shows whether they exist.
pub async fn connect(url: &str) -> Result<Nameservice> {
    connect_with(&url.parse()?, Options::default()).await
}

/// Opens the nameservice at a place, with these options.
pub async fn connect_with(place: &Place, options: Options) -> Result<Nameservice> {
    let place = &options.applied_to(place);
    if options.deadline == Some(Duration::ZERO)
        && matches!(place, Place::DynamoDb { .. } | Place::Bucket { .. } | Place::Directory { .. })
    {
        return Err(cannot_open(place)("its deadline must be at least 1 ms"));
    }
    match place {
        #[cfg(feature = "client")]
        Place::Service(url) => Ok(options.client(url).map_err(cannot_open(place))?.into()),
        #[cfg(feature = "dynamodb")]
        Place::DynamoDb { table, region, endpoint, timeout } => {
            let client = crate::dynamodb::client(region.as_deref(), endpoint.as_deref()).await;
            let client = client.map_err(cannot_open(place))?;
            Ok(Nameservice::over(crate::DynamoDb::at(client, table, options.retry_policy(*timeout))))
        }
        #[cfg(feature = "files")]
        Place::Directory { .. } | Place::Bucket { .. } => {
            let files = crate::files(place, true, nameservice_files::Options::default()).await?;
            Ok(Nameservice::over(files))
        }
        #[cfg(feature = "embedded")]
        Place::Embedded(directory) => {
            let (directory, options) = (directory.clone(), options.embedded());
            let open = move || nameservice_embedded::Embedded::open(directory, options);
            // Blocking: opening reads files.
            let opened = tokio::task::spawn_blocking(open).await.map_err(cannot_open(place))?;
            Ok(Nameservice::over(opened.map_err(cannot_open(place))?))
        }
        #[cfg(feature = "embedded")]
        Place::Memory => {
            let opened = nameservice_embedded::Embedded::memory(options.embedded());
            Ok(Nameservice::over(opened.map_err(cannot_open(place))?))
        }
        Place::Legacy { .. } => {
            Err(cannot_open(place)("a table of an older layout is copied from; it cannot be connected to"))
        }
        Place::Dump(_) => Err(cannot_open(place)("a dump is copied from and to; it cannot be connected to")),
        #[allow(unreachable_patterns, reason = "of the features that are off")]
        other => Err(cannot_open(other)(
            "the library was built without this backend: add its cargo feature, such as `embedded` or `dynamodb`",
        )),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_a_url_and_fill_in_what_it_leaves_out() {
        let options = Options::default()
            .region("eu-central-1")
            .endpoint("http://127.0.0.1:8000")
            .deadline(Duration::from_millis(250))
            .token("secret");
        let at = "region=eu-central-1&endpoint=http%3A%2F%2F127.0.0.1%3A8000&timeout_ms=250";
        for (url, expected) in [
            ("dynamodb://table", format!("dynamodb://table?{at}")),
            ("dynamodb://table?region=us-east-1&timeout_ms=1", format!("dynamodb://table?{at}")),
            ("s3://bucket/prefix", format!("s3://bucket/prefix?{at}")),
            ("file:///data", "file:///data?timeout_ms=250".to_owned()),
            ("https://example.com", "https://example.com".to_owned()),
            ("memory:", "memory:".to_owned()),
        ] {
            let place: Place = url.parse().unwrap();
            assert_eq!(options.applied_to(&place).to_string(), expected);
            assert_eq!(Options::default().applied_to(&place), place);
        }
        let options = options.endpoint("http://me:secret@127.0.0.1");
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[tokio::test]
    async fn a_deadline_that_no_operation_could_meet_or_no_clock_could_hold_is_rejected_or_shortened() {
        for url in ["dynamodb://table", "s3://bucket", "file:///data"] {
            let opened = connect_with(&url.parse().unwrap(), Options::default().deadline(Duration::ZERO)).await;
            assert!(opened.is_err_and(|error| nameservice_model::chain(&error).contains("1 ms")), "{url}");
        }
        let options = Options::default().deadline(Duration::MAX).attempt_timeout(Duration::MAX);
        assert_eq!((options.deadline, options.attempt_timeout), (Some(LONGEST), Some(LONGEST)));
    }

    #[cfg(feature = "dynamodb")]
    #[test]
    fn a_table_has_the_deadline_and_the_delays_of_the_options() {
        let second = Duration::from_secs(1);
        let policy = Options::default().retry_delays(second, 9 * second).retry_policy(3 * second);
        assert_eq!((policy.deadline, policy.base, policy.cap), (3 * second, second, 9 * second));
    }
}
