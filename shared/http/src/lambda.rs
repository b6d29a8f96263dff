//! How a room becomes a Lambda function.

use std::time::{Duration, Instant, SystemTime};

use axum::{
    Router,
    http::{Extensions, Uri, uri::PathAndQuery},
};
use lambda_http::{Context, Request, RequestExt, request::RequestContext, tower::util::MapRequest};
use nameservice_dynamo::variable;
use nameservice_feed::{DEFAULT_RETENTION, Feed};
use nameservice_model::{NameService, chain};
use nameservice_store::{Store, lambda_client};
use tracing::Level;

use crate::{Route, app::App, auth::Auth, service::service, verifier::Verifier};

/// Names the table.
const TABLE: &str = "NAMESERVICE_TABLE";
/// Names the table of its change feed.
const FEED_TABLE: &str = "NAMESERVICE_FEED_TABLE";
/// How long changes can be read, in seconds.
const FEED_RETENTION: &str = "NAMESERVICE_FEED_RETENTION_SECONDS";
/// A JSON Web Key Set, or the path of a file that holds one.
const JWKS: &str = "NAMESERVICE_JWKS";
/// The issuer that tokens must name.
const ISSUER: &str = "NAMESERVICE_ISSUER";
/// The audience that tokens must be for.
const AUDIENCE: &str = "NAMESERVICE_AUDIENCE";
/// Set by Lambda from the function's logging configuration.
const LOG_LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";

/// Serves one room behind API Gateway, which has checked the caller. Every `main.rs` is a call of this.
///
/// A cold start is the time until the first request is taken, and then the first call of DynamoDB. So: one thread
/// (Lambda gives one request at a time), logging as JSON lines that CloudWatch reads, a client that loads nothing
/// but the environment, and a TLS connection that is opened beside the wait for the first request, not before it.
pub fn serve_lambda(route: Route) -> Result<(), lambda_http::Error> {
    serve(route, StoreUse::Connected, Answers::Whole, || Ok(Auth::Gateway))
}

/// Serves one room that never asks the store: its role may not even be allowed to.
pub fn serve_without_store(route: Route) -> Result<(), lambda_http::Error> {
    serve(route, StoreUse::Unused, Answers::Whole, || Ok(Auth::Gateway))
}

/// Serves one room at a function URL, or on gateway routes without an authorizer: the service checks tokens itself,
/// against the keys in `NAMESERVICE_JWKS`. Without keys only callers that IAM has checked are let in.
pub fn serve_function_url(route: Route) -> Result<(), lambda_http::Error> {
    serve(route, StoreUse::Connected, Answers::Whole, verified)
}

/// The same for a room whose answers have no end: they are sent piece by piece. The function URL's invoke mode must be
/// `RESPONSE_STREAM`.
pub fn serve_streaming_url(route: Route) -> Result<(), lambda_http::Error> {
    serve(route, StoreUse::Connected, Answers::Streamed, verified)
}

fn verified() -> Result<Auth, lambda_http::Error> {
    let Some(keys) = variable(JWKS) else { return Ok(Auth::Gateway) };
    let keys = if keys.trim_start().starts_with('{') { keys } else { std::fs::read_to_string(keys)? };
    Ok(Auth::Verified(Verifier::from_jwks(&keys, variable(ISSUER), variable(AUDIENCE))?))
}

/// How answers leave the function.
enum Answers {
    Whole,
    Streamed,
}

/// Runs a function that is called with something else than HTTP requests, over the store and the feed that its
/// environment names. It runs the runtime's loop itself.
pub fn serve_events<F, E>(function: impl FnOnce(Store, Feed) -> F) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
    E: From<std::io::Error>,
{
    log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (store, feed) = connections();
        tokio::spawn(connect(store.clone()));
        function(store, feed).await
    })
}

/// Whether the room asks the store.
#[derive(PartialEq)]
enum StoreUse {
    Connected,
    Unused,
}

fn serve(
    route: Route,
    use_of_store: StoreUse,
    answers: Answers,
    auth: impl FnOnce() -> Result<Auth, lambda_http::Error>,
) -> Result<(), lambda_http::Error> {
    log();
    let auth = auth()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (store, feed) = connections();
        if use_of_store == StoreUse::Connected {
            tokio::spawn(connect(store.clone()));
        }
        let service = behind_gateway(route.into(), App::new(store, feed, auth));
        match answers {
            Answers::Whole => lambda_http::run(service).await,
            Answers::Streamed => lambda_http::run_with_streaming_response(service).await,
        }
    })
}

fn log() {
    let level = variable(LOG_LEVEL).and_then(|level| level.parse().ok()).unwrap_or(Level::INFO);
    tracing_subscriber::fmt().json().with_max_level(level).with_current_span(false).with_ansi(false).init();
}

/// The store and its feed, over one client.
fn connections() -> (Store, Feed) {
    let client = lambda_client();
    let table = variable(TABLE).unwrap_or_else(|| Store::DEFAULT_TABLE.to_owned());
    let feed = Feed::new(client.clone(), variable(FEED_TABLE).unwrap_or_else(|| Feed::table_of(&table)));
    let retention = variable(FEED_RETENTION).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let feed = feed.with_retention(retention.unwrap_or(DEFAULT_RETENTION));
    (Store::new(client, table), feed)
}

/// When Lambda ends this invocation, whatever it is doing; `None` outside of Lambda. `of` are a request's extensions.
pub fn ends_by(of: &Extensions) -> Option<SystemTime> {
    of.get::<Context>().map(Context::deadline)
}

/// The finished service as a function serves it: for requests that lambda_http has made from a gateway's events.
pub fn behind_gateway(router: Router<App>, app: App) -> MapRequest<Router, fn(Request) -> Request> {
    MapRequest::new(service(router, app), relocate)
}

/// Opens the connection that the first request will use. A failure is for that request to report.
async fn connect(store: Store) {
    let start = Instant::now();
    match store.ping().await {
        Ok(()) => tracing::debug!(micros = start.elapsed().as_micros() as u64, "connected"),
        Err(error) => tracing::warn!(error = chain(&error), "the store did not answer during init"),
    }
}

/// Gives a request the path that the router knows.
///
/// The URI that lambda_http makes is not that path: it carries the stage, and it is made by parsing the decoded path
/// as a URL, so that `..`, `\`, `?` and `#` in an address would lead to another one.
fn relocate(mut request: Request) -> Request {
    let context = match request.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => context,
        _ => return request,
    };
    let raw = request.raw_http_path();
    let path = escaped(without_prefix(raw, context.stage.as_deref(), context.route_key.as_deref()));
    // A query cannot be told from the rest of such a path, which no address and no route has.
    let query = request.uri().query().filter(|_| !raw.contains(['?', '#']));
    let path_and_query = match query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    // Everything in it is escaped or was part of a URI before.
    if let Ok(path_and_query) = path_and_query {
        *request.uri_mut() = Uri::from(path_and_query);
    }
    request
}

/// Takes off what stands before the routes' own paths: a stage, or the base path of a custom domain.
///
/// The gateway's route key, `PUT /v1/heads/{address+}`, tells where the route begins. The `$default` route has no
/// path, so there only a stage can be told.
fn without_prefix<'a>(path: &'a str, stage: Option<&str>, route_key: Option<&str>) -> &'a str {
    let literal = route_key
        .and_then(|key| key.split_once(' '))
        .and_then(|(_, pattern)| pattern.split('{').next())
        .filter(|literal| literal.len() > 1);
    let start = literal.and_then(|literal| path.find(literal));
    if let Some(start) = start {
        return &path[start..];
    }
    let rest = stage
        .filter(|stage| *stage != "$default")
        .and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage))
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    rest.unwrap_or(path)
}

/// Escapes a path. The gateway hands it over decoded, a function URL as it was sent: an escape that is there stays
/// (no address holds a `%`, so nothing is lost), a lone `%` is escaped.
pub(crate) fn escaped(path: &str) -> String {
    let bytes = path.as_bytes();
    let is_escape = |i: usize| bytes.get(i + 1..i + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b':' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            b'%' if is_escape(i) => text.push('%'),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn relocated(stage: &str, route_key: &str, raw_path: &str, query: &str) -> String {
        let event = json!({
            "version": "2.0", "routeKey": route_key, "rawPath": raw_path, "rawQueryString": query,
            "headers": {"host": "abc.execute-api.us-east-1.amazonaws.com"},
            "requestContext": {
                "stage": stage, "routeKey": route_key, "timeEpoch": 0,
                "http": {"method": "GET", "path": raw_path}
            },
            "isBase64Encoded": false
        });
        let request = lambda_http::request::from_str(&event.to_string()).unwrap();
        relocate(request).uri().to_string()
    }

    const GET: &str = "GET /v1/records/{address+}";

    #[test]
    fn a_stage_or_base_path_is_taken_off() {
        for (stage, route_key, raw_path, path) in [
            ("$default", GET, "/v1/records/mydb:main", "/v1/records/mydb:main"),
            ("prod", GET, "/prod/v1/records/mydb:main", "/v1/records/mydb:main"),
            ("prod", GET, "/v1/records/mydb:main", "/v1/records/mydb:main"),
            ("prod", GET, "/names/v1/records/mydb", "/v1/records/mydb"),
            ("v1", GET, "/v1/v1/records/v1", "/v1/records/v1"),
            ("v1", GET, "/v1/records/v1", "/v1/records/v1"),
            ("prod", "GET /v1/health", "/prod/v1/health", "/v1/health"),
            ("prod", "$default", "/prod/nowhere", "/nowhere"),
            ("prod", "$default", "/prod", "/"),
            ("prod", "$default", "/production/a", "/production/a"),
        ] {
            assert_eq!(relocated(stage, route_key, raw_path, ""), path, "{stage} {raw_path}");
        }
        assert_eq!(relocated("prod", GET, "/prod/v1/records/a", "concerns=head"), "/v1/records/a?concerns=head");
    }

    #[test]
    fn no_character_of_a_decoded_path_leads_elsewhere() {
        for (raw_path, path) in [
            ("/v1/records/my db:größe", "/v1/records/my%20db:gr%C3%B6%C3%9Fe"),
            ("/v1/records/a/../b", "/v1/records/a/../b"),
            ("/v1/records/a\\b", "/v1/records/a%5Cb"),
            ("/v1/records/a?b", "/v1/records/a%3Fb"),
            ("/v1/records/a#b", "/v1/records/a%23b"),
            ("/v1/records/100%", "/v1/records/100%25"),
            ("/v1/records/a%3Amain", "/v1/records/a%3Amain"),
            ("/v1/records/\"<>^`{|}", "/v1/records/%22%3C%3E%5E%60%7B%7C%7D"),
        ] {
            assert_eq!(relocated("$default", GET, raw_path, ""), path, "{raw_path}");
        }
    }
}
