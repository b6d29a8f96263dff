//! Rejections on the wire: RFC 9457 problem details (`application/problem+json`).
//!
//! [`Kind`] (from `nameservice-api`) is the single table of everything that can be rejected, with its status and title.
//! Handlers and extractors call the named constructors of [`Problem`]; nothing else chooses a status code.

mod named;

use std::sync::Arc;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use nameservice_model::{Address, BoxError, Error, InvalidCursor, MAX_WATERMARK, Object};
use serde_json::{Value, json};

use nameservice_api::{Invalid, InvalidKind};
pub use nameservice_api::{ProblemDocument, ProblemKind as Kind, problem::TYPE_BASE};

/// How long a client should wait before it tries again, in seconds, if the service was unavailable.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A rejection. As a response it is `application/problem+json`; a failure behind it is logged, never shown.
#[derive(Debug)]
pub struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    detail: String,
    members: Object,
    headers: HeaderMap,
    failure: Option<BoxError>,
    upstream: Option<ForUpstream>,
}

/// Marks the rejection of a write by the backend of a replica, in the extensions of the response: every check of the
/// request has passed, and the write, which is about these records, can be forwarded to the upstream.
#[derive(Clone, Debug)]
pub struct ForUpstream(pub Vec<Address>);

/// The failure behind an answer of 500 or 503, on its way to the only place that logs.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Arc<BoxError>);

/// The reason why a request was rejected, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) slug: &'static str,
    pub(crate) detail: String,
}

impl Problem {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let (members, headers) = (Object::new(), HeaderMap::new());
        let detail = shortened(&detail.into());
        Self(Box::new(Inner { kind, detail, members, headers, failure: None, upstream: None }))
    }

    fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.into(), value.into());
        self
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    fn caused_by(mut self, failure: impl Into<BoxError>) -> Self {
        self.0.failure = Some(failure.into());
        self
    }

    /// The document that a caller is shown, for answers that have begun as something else.
    pub fn document(&self) -> ProblemDocument {
        let Inner { kind, detail, members, .. } = self.0.as_ref();
        ProblemDocument {
            type_uri: kind.type_uri(),
            title: kind.title().into(),
            status: kind.status(),
            detail: detail.clone(),
            members: members.clone(),
        }
    }

    /// What was rejected.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The field that was rejected, null if none is named.
    #[cfg(test)]
    pub(crate) fn field(&self) -> Value {
        self.0.members.get("field").cloned().unwrap_or_default()
    }
}

/// The only place where an error of the store gets its status.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::OutcomeUnknown { .. } => Self::outcome_unknown(error),
            Error::Unavailable { .. } => Self::unavailable(error),
            Error::IdempotencyKeyReused { .. } => Self::new(
                Kind::IdempotencyKeyReused,
                "nothing was written: repeat a key only with the same method, path, query and body, and use a new one otherwise",
            ),
            Error::Unsupported { capability, reason } => {
                Self::new(Kind::Unsupported, reason).member("capability", capability.as_str())
            }
            Error::LimitReached { counter } => {
                // The revision of an index begins again with an advance of the index.
                let ended_by = match counter {
                    "rev" => "a push with a greater `t`, a reset or a purge ends that",
                    _ => "a purge ends that",
                };
                let detail = format!("nothing was written: `{counter}` is {MAX_WATERMARK} and cannot grow; {ended_by}");
                Self::new(Kind::LimitReached, detail).member("counter", counter)
            }
            Error::NotFluree { ref field, ref id, expected } => {
                let detail =
                    format!("{error}: nothing was written. An administrator can store it with allow_foreign=true");
                Self::new(Kind::NotFluree, detail)
                    .member("field", shortened(field))
                    .member("id", id.as_str())
                    .member("expected", json!(expected))
            }
            Error::NotFlureeName { ref field, ref address, ref reason } => {
                let detail =
                    format!("{error}: nothing was written. An administrator can create it with allow_foreign=true");
                Self::new(Kind::NotFluree, detail)
                    .member("field", shortened(field))
                    .member("address", address.as_str())
                    .member("reason", shortened(reason))
            }
            Error::ReadOnly { addresses, .. } => Self::for_upstream(addresses),
            Error::TooLarge => {
                Self::new(Kind::PayloadTooLarge, "the value does not fit one item of the store (400 KB)")
            }
            _ => Self::internal(error),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let Invalid { kind, field, reason } = invalid;
        match kind {
            InvalidKind::Address => Self::invalid_address_in(&field, reason),
            InvalidKind::ContentId => Self::invalid_content_id(&field, reason),
            InvalidKind::Parameter => Self::invalid_parameter(&field, reason),
            _ => Self::invalid_body(&field, reason),
        }
    }
}

impl From<InvalidCursor> for Problem {
    fn from(reason: InvalidCursor) -> Self {
        Self::invalid_cursor(&reason)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (document, status) = (self.document(), self.status());
        let detail = match self.kind() {
            // The detail quotes the body, which may hold a secret, so only the caller may see it.
            Kind::InvalidBody => document.members.get("field").map(Value::to_string).unwrap_or_default(),
            _ => document.detail.clone(),
        };
        let rejected = Rejected { slug: self.kind().slug(), detail };
        let Inner { headers, failure, upstream, .. } = *self.0;
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let body = json!(document).to_string();
        let mut response = (status, [content_type], headers, body).into_response();
        response.extensions_mut().insert(rejected);
        if let Some(upstream) = upstream {
            response.extensions_mut().insert(upstream);
        }
        if let Some(failure) = failure {
            response.extensions_mut().insert(Failure(Arc::new(failure)));
        }
        response
    }
}

/// Shortens a text of the caller: a problem repeats it, but not at full length.
fn shortened(text: &str) -> String {
    const KEPT: usize = 500;
    match text.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::Capability;

    use super::*;

    #[tokio::test]
    async fn a_problem_shows_its_row_and_its_members() {
        let address = Address::parse("mydb").unwrap();
        let search = Address::parse("search").unwrap();
        let response = Problem::has_dependents(&address, &[search], &[]).into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["type"], "https://nameservice.dev/problems/has-dependents");
        assert_eq!(body["status"], 409);
        assert_eq!(body["dependents"], json!(["search:main"]));
    }

    #[tokio::test]
    async fn a_failure_is_kept_for_the_log_and_not_shown() {
        let response = Problem::from(Error::Store { operation: "get", source: "secret table".into() }).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(response.extensions().get::<Failure>().is_some());
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }

    #[test]
    fn a_counter_that_cannot_grow_names_what_ends_that() {
        for (counter, end) in [
            ("status_v", " a purge ends that"),
            ("lease_token", " a purge ends that"),
            ("rev", "`t`, a reset or a purge ends that"),
        ] {
            let detail = Problem::from(Error::LimitReached { counter }).document().detail;
            assert!(detail.ends_with(end), "{detail}");
        }
    }

    #[test]
    fn errors_of_the_store_get_their_status() {
        let unavailable = Error::Unavailable { operation: "get", source: None };
        let unknown = Error::OutcomeUnknown { operation: "push", source: None };
        for (error, kind) in [
            (unavailable, Kind::Unavailable),
            (unknown, Kind::OutcomeUnknown),
            (Error::TooLarge, Kind::PayloadTooLarge),
            (Error::LimitReached { counter: "status_v" }, Kind::LimitReached),
            (
                Error::NotFlureeName {
                    field: "address".into(),
                    address: Address::stored("commit:main"),
                    reason: "x".into(),
                },
                Kind::NotFluree,
            ),
            (Error::Unsupported { capability: Capability::Transactions, reason: "x".into() }, Kind::Unsupported),
        ] {
            let problem = Problem::from(error);
            assert_eq!(problem.kind(), kind);
            let status = kind.status();
            assert_eq!(problem.into_response().headers().contains_key(header::RETRY_AFTER), status == 503);
        }
    }
}
