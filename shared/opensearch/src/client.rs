use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use http::{Method, StatusCode, header};
use nameservice_model::{Address, BoxError, Error, Hit, Page, SearchIndex, SearchQuery, Visible, Within};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Document, Signer, mapping, query};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much of an error's text is kept.
const MAX_REASON_CHARS: usize = 500;
/// What the name of the index behind an alias ends with.
const FIRST: &str = "-000001";

/// An index of OpenSearch, by the alias that names it. Cheap to clone.
#[derive(Clone)]
pub struct OpenSearch {
    http: reqwest::Client,
    base: String,
    index: String,
    signer: Option<Signer>,
}

impl fmt::Debug for OpenSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSearch").field("index", &self.index).finish_non_exhaustive()
    }
}

/// The reason why a request was not applied, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The URL or the name of the index cannot be used.
    #[error("`{0}` cannot be used: name an OpenSearch as https://HOST, and an index in lowercase")]
    Invalid(String),
    /// There are no credentials to sign with.
    #[error("the request to OpenSearch cannot be signed")]
    Unsigned(#[source] BoxError),
    /// No answer came.
    #[error("OpenSearch did not answer")]
    NoAnswer(#[source] BoxError),
    /// It answered with an error.
    #[error("OpenSearch answered {status}: {reason}")]
    Answered {
        /// The status.
        status: u16,
        /// What it says.
        reason: String,
    },
    /// There is no index.
    #[error("there is no index `{0}`: `nameservice aws search-index init` creates it")]
    Missing(String),
    /// What has the name of the index is not what [`OpenSearch::create`] creates.
    #[error(
        "`{index}` cannot be the search index: {}. Delete it, or name another index, and run `nameservice aws search-index \
         init` and `rebuild`",
        .differences.join("; ")
    )]
    Different {
        /// The index.
        index: String,
        /// What differs, each with what was expected.
        differences: Vec<String>,
    },
}

impl RequestError {
    /// Converts it to the error of an operation. A request that the index rejects would be rejected again.
    pub fn into_model(self, operation: &'static str) -> Error {
        match &self {
            Self::Invalid(_) | Self::Unsigned(_) | Self::Missing(_) | Self::Different { .. } => {
                Error::Store { operation, source: self.into() }
            }
            Self::Answered { status, .. } if *status < 500 && *status != 429 && *status != 408 => {
                Error::Store { operation, source: self.into() }
            }
            _ => Error::Unavailable { operation, source: Some(self.into()) },
        }
    }
}

/// An action on one document, with a position of the feed as its version.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes it.
    Index(Box<Document>),
    /// Deletes the document of an address.
    Delete {
        /// The address.
        address: Address,
        /// The version.
        position: u64,
    },
}

/// The outcome of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The index holds it, or something newer.
    Done,
    /// It was not applied, but may succeed if it is repeated.
    Later(String),
    /// It is rejected, and would be if it were repeated.
    Rejected(String),
}

/// Whether an index was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was created.
    Created,
    /// An index of this name with the same mapping exists.
    Exists,
}

/// Whether an answer is an error of this type. The type may come after the name of the index, which may be long, several times.
fn is_of_type(exception: &str, answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains(exception)
}

#[derive(Deserialize)]
struct BulkAnswer {
    items: Vec<BTreeMap<String, BulkItem>>,
}

#[derive(Deserialize)]
struct BulkItem {
    #[serde(rename = "_id", default)]
    id: String,
    status: u16,
    #[serde(default)]
    error: Option<Value>,
}

/// What OpenSearch says of an index.
#[derive(Deserialize)]
struct Described {
    #[serde(default)]
    mappings: Value,
    #[serde(default)]
    settings: Value,
}

impl OpenSearch {
    /// Returns the index of this name in the OpenSearch at a URL. A user and password in the URL are sent.
    pub fn new(url: &str, index: &str, signer: Option<Signer>) -> Result<Self, RequestError> {
        let base = url.trim_end_matches('/').to_owned();
        let is_url = (base.starts_with("https://") || base.starts_with("http://")) && base.parse::<http::Uri>().is_ok();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        if !is_url || base.contains(['?', '#']) {
            return Err(RequestError::Invalid(url.to_owned()));
        }
        if index.is_empty() || index.starts_with(['-', '_', '.']) || !index.chars().all(is_name) {
            return Err(RequestError::Invalid(index.to_owned()));
        }
        // An error means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| RequestError::NoAnswer(error.into()))?;
        Ok(Self { http, base, index: index.to_owned(), signer })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>), RequestError> {
        let uri = format!("{}/{}{path}", self.base, self.index);
        let mut request = http::Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().map_err(|_| RequestError::Invalid(uri.clone()))?;
        if !request.body().is_empty()
            && let Ok(kind) = kind.parse()
        {
            request.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        if let Some(signer) = &self.signer {
            signer.sign(&mut request, SystemTime::now()).await.map_err(RequestError::Unsigned)?;
        }
        let (parts, body) = request.into_parts();
        let sent = self.http.request(parts.method, uri).headers(parts.headers).body(body).send();
        let answer = sent.await.map_err(|error| RequestError::NoAnswer(error.without_url().into()))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| RequestError::NoAnswer(error.without_url().into()))?;
        Ok((status, bytes.to_vec()))
    }

    async fn json(&self, method: Method, path: &str, body: &Value) -> Result<Value, RequestError> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, bytes) = self.send(method, path, "application/json", body).await?;
        if !status.is_success() {
            return Err(self.answered(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| RequestError::NoAnswer(error.into()))
    }

    fn answered(&self, status: StatusCode, bytes: &[u8]) -> RequestError {
        match status == StatusCode::NOT_FOUND && is_of_type("index_not_found_exception", bytes) {
            true => RequestError::Missing(self.index.clone()),
            false => {
                let reason = String::from_utf8_lossy(bytes).chars().take(MAX_REASON_CHARS).collect();
                RequestError::Answered { status: status.as_u16(), reason }
            }
        }
    }

    /// Creates an index with its mapping, and the alias that names it, unless the alias exists. What has its name and differs is an
    /// error that says how.
    pub async fn create(&self) -> Result<Created, RequestError> {
        if self.exists().await? {
            return Ok(Created::Exists);
        }
        let alias = &self.index;
        let mut index = mapping();
        index["aliases"] = json!({ alias: {} });
        let (status, bytes) = self.send(Method::PUT, FIRST, "application/json", index.to_string().into_bytes()).await?;
        if status.is_success() {
            return Ok(Created::Created);
        }
        if !is_of_type("resource_already_exists_exception", &bytes) {
            return Err(self.answered(status, &bytes));
        }
        // Another has created it meanwhile, unless the alias is still missing.
        match self.exists().await? {
            true => Ok(Created::Exists),
            false => Err(RequestError::Different {
                index: format!("{alias}{FIRST}"),
                differences: vec![format!("it exists without the alias `{alias}`")],
            }),
        }
    }

    /// Whether the alias exists. What has its name must be an alias of one index with the mapping.
    async fn exists(&self) -> Result<bool, RequestError> {
        let found = match self.json(Method::GET, "", &Value::Null).await {
            Ok(found) => found,
            Err(RequestError::Missing(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let found: BTreeMap<String, Described> =
            serde_json::from_value(found).map_err(|error| RequestError::NoAnswer(error.into()))?;
        let indexes = found.len();
        for (index, described) in found {
            let mut differences = differences(&described);
            if index == self.index {
                differences.insert(0, "it is an index, and must be the alias of one".to_owned());
            } else if indexes > 1 {
                differences.insert(0, format!("the alias `{}` has {indexes} indexes, and must have one", self.index));
            }
            if !differences.is_empty() {
                return Err(RequestError::Different { index, differences });
            }
        }
        Ok(indexes > 0)
    }

    /// Applies actions over older versions, each independently. Returns an outcome for each, in order; an error means that no outcome
    /// is known. An index that is missing is not created.
    pub async fn bulk(&self, actions: &[Action]) -> Result<Vec<Applied>, RequestError> {
        self.bulk_over("external", actions).await
    }

    /// Sends actions in bulk that also replace equal versions, for a rebuild.
    pub(crate) async fn bulk_again(&self, actions: &[Action]) -> Result<Vec<Applied>, RequestError> {
        self.bulk_over("external_gte", actions).await
    }

    async fn bulk_over(&self, version_type: &str, actions: &[Action]) -> Result<Vec<Applied>, RequestError> {
        if actions.is_empty() {
            return Ok(Vec::new());
        }
        // A write to an index that is missing creates it with a guessed mapping. `require_alias` prevents that, but not for a delete:
        // a search finds out first, with the same permission.
        if actions.iter().any(|action| matches!(action, Action::Delete { .. })) {
            self.older_than(0).await?;
        }
        let mut body = String::new();
        for action in actions {
            let (verb, id, version) = action.head();
            body.push_str(
                &json!({ verb: { "_id": id, "version": version, "version_type": version_type } }).to_string(),
            );
            body.push('\n');
            if let Action::Index(document) = action {
                body.push_str(&json!(document).to_string());
                body.push('\n');
            }
        }
        let path = "/_bulk?require_alias=true";
        let (status, bytes) = self.send(Method::POST, path, "application/x-ndjson", body.into_bytes()).await?;
        if !status.is_success() {
            return Err(self.answered(status, &bytes));
        }
        let answer: BulkAnswer =
            serde_json::from_slice(&bytes).map_err(|error| RequestError::NoAnswer(error.into()))?;
        // Items come in the order of the actions; if not, the answer is invalid.
        let items: Vec<(String, BulkItem)> = answer.items.into_iter().filter_map(|mut item| item.pop_first()).collect();
        let fits = items.len() == actions.len()
            && items.iter().zip(actions).all(|((_, item), action)| item.id == action.head().1);
        if !fits {
            return Err(RequestError::NoAnswer("the items of its answer are not those of the request".into()));
        }
        Ok(items.into_iter().zip(actions).map(|((_, item), action)| action.came_to(&item)).collect())
    }

    /// Returns at most 1,000 addresses of documents whose version is below this one.
    pub async fn older_than(&self, position: u64) -> Result<Vec<Address>, RequestError> {
        let body = json!({
            "size": 1000,
            "query": { "range": { "position": { "lt": position } } },
            "sort": [{ "position": "asc" }],
        });
        let answer = self.json(Method::POST, "/_search", &body).await?;
        let answer: query::Answer =
            serde_json::from_value(answer).map_err(|error| RequestError::NoAnswer(error.into()))?;
        Ok(answer.hits.hits.iter().filter_map(|hit| Address::parse(&hit.source.address).ok()).collect())
    }

    /// Makes everything that was written visible to searches.
    pub async fn refresh(&self) -> Result<(), RequestError> {
        self.json(Method::POST, "/_refresh", &Value::Null).await.map(drop)
    }

    /// Returns the document of an address with its version; `None` if there is none.
    pub async fn get(&self, address: &Address) -> Result<Option<Document>, RequestError> {
        let id = utf8_percent_encode(address.as_str(), NON_ALPHANUMERIC);
        match self.json(Method::GET, &format!("/_doc/{id}"), &Value::Null).await {
            Ok(mut answer) => {
                let document = serde_json::from_value(answer["_source"].take());
                document.map(Some).map_err(|error| RequestError::NoAnswer(error.into()))
            }
            Err(RequestError::Answered { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl SearchIndex for OpenSearch {
    async fn search(
        &self,
        query: &SearchQuery,
        within: Option<&Within>,
        visible: Visible<'_>,
    ) -> nameservice_model::Result<Page<Hit>> {
        const OPERATION: &str = "search";
        let size = query.limit.get().saturating_add(1);
        let body = query::body(query, within, size, query::search_after(query).as_ref());
        let answer = self.json(Method::POST, "/_search", &body).await.map_err(|error| error.into_model(OPERATION))?;
        let answer: query::Answer = serde_json::from_value(answer)
            .map_err(|error| Error::Store { operation: OPERATION, source: error.into() })?;
        match answer.timed_out {
            true => Err(Error::Unavailable { operation: OPERATION, source: None }),
            false => query::page(query, visible, answer.hits.hits),
        }
    }
}

impl Action {
    fn head(&self) -> (&'static str, &str, u64) {
        match self {
            Self::Index(document) => ("index", &document.address, document.position),
            Self::Delete { address, position } => ("delete", address.as_str(), *position),
        }
    }

    /// Returns the address of the document.
    pub(crate) fn address(self) -> Address {
        match self {
            Self::Index(document) => Address::stored(document.address),
            Self::Delete { address, .. } => address,
        }
    }

    fn came_to(&self, item: &BulkItem) -> Applied {
        let reason = || {
            let error = item.error.as_ref().map(Value::to_string).unwrap_or_default();
            let error: String = error.chars().take(MAX_REASON_CHARS).collect();
            format!("{}: {error}", item.status)
        };
        match item.status {
            200..=299 => Applied::Done,
            // The stored version is as new or newer.
            409 => Applied::Done,
            // There was nothing to delete, but the version is still remembered.
            404 if matches!(self, Self::Delete { .. }) && item.error.is_none() => Applied::Done,
            404 => Applied::Later(format!("{}: `nameservice aws search-index init` creates the index", reason())),
            408 | 429 | 500.. => Applied::Later(reason()),
            _ => Applied::Rejected(reason()),
        }
    }
}

/// Returns how the mapping and the settings of an index differ from [`mapping`].
fn differences(found: &Described) -> Vec<String> {
    let expected = mapping();
    let mut differences = Vec::new();
    let mut compare = |what: String, found: &Value, expected: &Value| {
        if found != expected {
            let found: String = found.to_string().chars().take(MAX_REASON_CHARS).collect();
            differences.push(format!("{what} is {found} instead of {expected}"));
        }
    };
    let (mappings, settings) = (&expected["mappings"], &expected["settings"]);
    compare("`dynamic`".to_owned(), &found.mappings["dynamic"], &mappings["dynamic"]);
    let names = [&found.mappings, mappings].map(|of| of["properties"].as_object());
    let names: BTreeSet<&String> = names.into_iter().flatten().flat_map(|properties| properties.keys()).collect();
    for name in names {
        let (found, expected) = (&found.mappings["properties"][name], &mappings["properties"][name]);
        compare(format!("the property `{name}`"), found, expected);
    }
    let setting = |of: &Value| of["index"]["gc_deletes"].clone();
    compare("the setting `index.gc_deletes`".to_owned(), &setting(&found.settings), &setting(settings));
    differences
}
