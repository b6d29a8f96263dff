//! Functions that are called over HTTP, by API Gateway or at a function URL.

use std::sync::Arc;

use axum::{
    Extension, Router,
    http::{Uri, uri::PathAndQuery},
};
use lambda_http::{Context, Error, Request, RequestExt, request::RequestContext, tower::util::MapRequest};
use nameservice_dynamo::variable;
use nameservice_feed::Feed;
use nameservice_http::{
    App, Auth, Authorizer, EndsBy, KeyFile, Required, Route, Verifier, WholeAnswers, escape_path, report_requests,
    service,
};
use nameservice_store::Store;

use crate::{
    InvalidVariable, connect, emf, environment, keys, log,
    reads::{NoStore, Reads},
    runtime,
};

/// A JSON Web Key Set, or the path of a file that holds one.
const JWKS: &str = "NAMESERVICE_JWKS";
/// The URL of a JSON Web Key Set. The one in [`JWKS`], if there is one, is used until the first answer.
const JWKS_URL: &str = "NAMESERVICE_JWKS_URL";
/// The issuer that tokens must name; `*` for any.
const ISSUER: &str = "NAMESERVICE_ISSUER";
/// The audience that tokens must be for; `*` for any.
const AUDIENCE: &str = "NAMESERVICE_AUDIENCE";

/// Serves one route behind API Gateway, which has checked the caller.
///
/// A cold start is the time until the first request is accepted, plus the first call of DynamoDB. Hence one thread
/// (Lambda sends one request at a time), a client that loads nothing but the environment, and a TLS connection that is
/// opened while the function waits for its first request, not before.
pub fn serve_lambda(route: Route) -> Result<(), Error> {
    serve(route, Answers::Whole, async || Ok(Auth::Gateway), of_all)
}

/// Serves one route behind API Gateway that reads the feed and writes nothing. If the environment names an archive, the feed
/// continues in it.
#[cfg(feature = "archive")]
pub fn serve_feed(route: Route) -> Result<(), Error> {
    serve(route, Answers::Whole, async || Ok(Auth::Gateway), of_the_feed)
}

/// Serves one route that never reads the store: its role may not even be allowed to.
pub fn serve_without_store(route: Route) -> Result<(), Error> {
    log();
    runtime()?.block_on(async {
        let app = App::new(Arc::new(Reads(NoStore)), Arc::new(NoStore), Auth::Gateway);
        answer(Router::from(route), app, Answers::Whole).await
    })
}

/// Serves one route at a function URL, or on gateway routes without an authorizer: the service checks tokens itself,
/// against the keys in `NAMESERVICE_JWKS` and at `NAMESERVICE_JWKS_URL`. Without keys, only callers that IAM has checked are accepted.
pub fn serve_function_url(route: Route) -> Result<(), Error> {
    serve(route, Answers::Whole, verified, of_all)
}

/// Serves a route whose answers have no end and are streamed, behind a function URL. Its invoke mode must be
/// `RESPONSE_STREAM`. The route reads the feed as with [`serve_feed`], and writes nothing.
#[cfg(feature = "archive")]
pub fn serve_streaming_url(route: Route) -> Result<(), Error> {
    serve(route, Answers::Streamed, verified, of_the_feed)
}

async fn verified() -> Result<Auth, Error> {
    let claims = || Ok::<_, InvalidVariable>((required(ISSUER)?, required(AUDIENCE)?));
    let verifier = match (variable(JWKS), variable(JWKS_URL)) {
        (None, None) => return Ok(Auth::Gateway),
        (Some(keys), Some(url)) => {
            let (issuer, audience) = claims()?;
            Verifier::from_jwks_until(&keys, keys::source(&url), issuer, audience)?
        }
        (Some(keys), None) if keys.trim_start().starts_with('{') => {
            let (issuer, audience) = claims()?;
            Verifier::from_jwks(&keys, issuer, audience)?
        }
        (Some(file), None) => {
            let (issuer, audience) = claims()?;
            Verifier::from_source(Arc::new(KeyFile::new(file)), issuer, audience).await?
        }
        (None, Some(url)) => {
            let (issuer, audience) = claims()?;
            Verifier::from_source(keys::source(&url), issuer, audience).await?
        }
    };
    Ok(Auth::Verified(verifier))
}

/// Returns the required value of a claim. A missing variable is an error, and does not mean `Any`.
fn required(name: &'static str) -> Result<Required, InvalidVariable> {
    match variable(name).as_deref() {
        None => Err(InvalidVariable::missing(
            name,
            "required with NAMESERVICE_JWKS and NAMESERVICE_JWKS_URL (`*` accepts any)",
        )),
        Some("*") => Ok(Required::Any),
        Some(text) => Ok(Required::Exactly(text.to_owned())),
    }
}

/// How the function sends its answers.
enum Answers {
    Whole,
    #[cfg_attr(not(feature = "archive"), expect(dead_code, reason = "what is streamed is the feed"))]
    Streamed,
}

fn serve(
    route: Route,
    answers: Answers,
    auth: impl AsyncFnOnce() -> Result<Auth, Error>,
    app: impl FnOnce(Store, Feed, Auth) -> App,
) -> Result<(), Error> {
    log();
    runtime()?.block_on(async {
        let auth = auth().await?;
        let (store, feed) = environment::connections()?;
        tokio::spawn(connect(store.clone()));
        let app = app(store, feed, auth);
        let app = if environment::is_beside_fluree()? { app.beside_fluree() } else { app };
        answer(Router::from(route), app, answers).await
    })
}

fn of_all(store: Store, feed: Feed, auth: Auth) -> App {
    App::new(Arc::new(store), Arc::new(feed), auth)
}

#[cfg(feature = "archive")]
fn of_the_feed(store: Store, feed: Feed, auth: Auth) -> App {
    App::new(Arc::new(Reads(store)), crate::archive::with_archive(feed), auth)
}

/// Answers requests until the function is stopped.
async fn answer(router: Router<App>, app: App, answers: Answers) -> Result<(), Error> {
    match answers {
        Answers::Whole => lambda_http::run(reporting(service(router.layer(Extension(WholeAnswers)), app))).await,
        Answers::Streamed => lambda_http::run_with_streaming_response(reporting(service(router, app))).await,
    }
}

/// Adds the metrics that the environment asks for.
fn reporting(service: Router) -> MapRequest<Router, fn(Request) -> Request> {
    let service = match emf::of_environment() {
        Some(emf) => report_requests(service, move |answered| emf.write_request(answered)),
        None => service,
    };
    MapRequest::new(service, translated)
}

/// Returns the complete service for a function, which takes the requests that lambda_http makes from a gateway's events.
pub fn behind_gateway(router: Router<App>, app: App) -> MapRequest<Router, fn(Request) -> Request> {
    MapRequest::new(service(router, app), translated)
}

/// Translates the event for the service: the caller, the end of the invocation, and the path.
fn translated(mut request: Request) -> Request {
    if let Some(authorizer) = authorizer(&request) {
        request.extensions_mut().insert(authorizer);
    }
    if let Some(deadline) = request.lambda_context_ref().map(Context::deadline) {
        request.extensions_mut().insert(EndsBy(deadline));
    }
    relocate(request)
}

/// The context comes from the Lambda event, never from the network: only the gateway can set it.
fn authorizer(request: &Request) -> Option<Authorizer> {
    let authorizer = request.request_context_ref().and_then(RequestContext::authorizer)?;
    match (&authorizer.iam, &authorizer.jwt) {
        (Some(iam), _) => Some(Authorizer::Iam { arn: iam.user_arn.clone()? }),
        (None, Some(jwt)) => Some(Authorizer::Jwt { claims: jwt.claims.clone() }),
        (None, None) => None,
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
    let path = escape_path(without_prefix(raw, context.stage.as_deref(), context.route_key.as_deref()));
    // In a path that contains `?` or `#`, a query cannot be distinguished from the rest. No address and no route contains them.
    let query = request.uri().query().filter(|_| !raw.contains(['?', '#']));
    let path_and_query = match query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    // This cannot fail: everything is escaped or was part of a URI before.
    if let Ok(path_and_query) = path_and_query {
        *request.uri_mut() = Uri::from(path_and_query);
    }
    request
}

/// Removes what precedes the routes' own paths: a stage, or the base path of a custom domain.
///
/// The gateway's route key, `PUT /v1/heads/{address+}`, shows where the route begins. The `$default` route has no path,
/// so for that only a stage is recognised.
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
