//! The layers that every request passes, whatever its route.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{FromRef as _, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use nameservice_model::{ChangeFeed, chain};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    app::App,
    extract::Received,
    freshness::Positioned,
    path::redirect,
    problem::{Failure, Problem},
};

/// The largest body that is accepted, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// How long a body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The header that identifies a request, in its answer and in the log.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Returns the complete service over a router of handlers.
///
/// Every answer has an `x-request-id` (the client's own, if it is sane), every rejection is a [`Problem`], a body over
/// [`MAX_BODY_BYTES`] is rejected, a panic becomes a 500, and what failed is logged here and only here.
pub fn service(router: Router<App>, app: App) -> Router {
    let feed = Arc::<dyn ChangeFeed>::from_ref(&app);
    let answer = from_fn_with_state(feed, answer);
    router.method_not_allowed_fallback(method_not_allowed).fallback(not_found).with_state(app).layer(answer)
}

async fn not_found(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    redirect(&method, uri.path(), &headers).unwrap_or_else(|| Problem::not_found(uri.path()).into_response())
}

/// The router adds the `Allow` header to it.
async fn method_not_allowed(method: Method) -> Problem {
    Problem::method_not_allowed(method.as_str(), None)
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "something that is not text".to_owned(),
    };
    Problem::internal(format!("a handler panicked: {message}")).into_response()
}

/// All in one layer, since each layer of a router costs every request several allocations.
async fn answer(State(feed): State<Arc<dyn ChangeFeed>>, request: Request, next: Next) -> Response {
    identified(request, async |request| {
        let positioned = Positioned::begin(&*feed, request.method()).await;
        let mut response = receive(request, next).await;
        positioned.end(&*feed, &mut response).await;
        response
    })
    .await
}

/// Answers a request under its id, which the answer and the log have: what failed is logged, and a panic becomes a 500.
pub async fn identified(mut request: Request, answer: impl AsyncFnOnce(Request) -> Response) -> Response {
    let id = request_id(request.headers());
    // A stream that continues after this has returned logs under the same id.
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let answered = AssertUnwindSafe(answer(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(panicked);
    if let Some(Failure(failure)) = response.extensions_mut().remove() {
        let (status, path) = (response.status().as_u16(), uri.path());
        let request_id = id.to_str().unwrap_or_default();
        tracing::error!(request_id, %method, path, status, error = chain(failure.as_ref().as_ref()), "failed");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

async fn receive(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = match whole_body(body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    parts.extensions.insert(Received { uri: parts.uri.clone(), body });
    next.run(Request::from_parts(parts, Body::empty())).await
}

/// Reads a body of at most [`MAX_BODY_BYTES`], which must arrive within [`BODY_TIMEOUT`].
pub async fn whole_body(body: Body) -> Result<Bytes, Problem> {
    let read = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect());
    match read.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::body_too_large(MAX_BODY_BYTES)),
        // The client has disconnected, or has sent something that is not an HTTP body.
        Ok(Err(_)) => Err(Problem::invalid_body("", "the body could not be read")),
        Err(_) => Err(Problem::body_too_slow(BODY_TIMEOUT.as_secs())),
    }
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    headers.get(REQUEST_ID).filter(sane).cloned().unwrap_or_else(|| {
        let id = Uuid::new_v4().to_string();
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("none"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{http::StatusCode, http::header, routing::get};
    use nameservice_feed::Feed;
    use nameservice_store::{Store, endpoint_client};
    use tower::ServiceExt;

    use super::*;
    use crate::{
        auth::Auth,
        extract::{Body as Json, Read, Target, Write},
    };

    #[allow(clippy::panic)]
    fn app() -> Router {
        let router = Router::new()
            .route("/panic", get(async || -> () { panic!("secret") }))
            .route("/v1/records/{*address}", get(async |target: Target<Read>| target.address().to_string()))
            .route(
                "/v1/heads/{*address}",
                axum::routing::put(async |_: Target<Write>, Json(body): Json<serde_json::Value>| body.to_string()),
            );
        let nowhere = endpoint_client("http://127.0.0.1:1");
        let feed = Feed::new(nowhere.clone(), "t-feed");
        service(router, App::new(Arc::new(Store::new(nowhere, "t")), Arc::new(feed), Auth::Open))
    }

    fn request(method: &str, path: &str) -> axum::http::request::Builder {
        Request::builder().method(method).uri(path)
    }

    async fn ask(request: Request) -> (Response<()>, String) {
        let (parts, body) = app().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn every_rejection_is_a_problem_with_a_request_id() {
        let big = Body::from(vec![b' '; MAX_BODY_BYTES + 1]);
        for (request, status, slug) in [
            (request("GET", "/nowhere").body(Body::empty()), 404, "not-found"),
            (request("POST", "/v1/records/a").body(Body::empty()), 405, "method-not-allowed"),
            (request("GET", "/v1/records/a%3Fb").body(Body::empty()), 400, "invalid-address"),
            (request("GET", "/v1/records/%FF").body(Body::empty()), 400, "invalid-address"),
            (request("PUT", "/v1/heads/a").body(Body::from("{}")), 415, "unsupported-media-type"),
            (request("PUT", "/v1/heads/a").body(big), 413, "payload-too-large"),
            (request("GET", "/panic").body(Body::empty()), 500, "internal"),
        ] {
            let (response, body) = ask(request.unwrap()).await;
            assert_eq!(response.status().as_u16(), status, "{slug}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{slug}");
            assert!(response.headers().contains_key(REQUEST_ID), "{slug}");
            assert!(body.contains(slug) && !body.contains("secret"), "{body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_not_waited_for() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let (response, body) = ask(request("PUT", "/v1/heads/a").body(body).unwrap()).await;
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(body.contains("request-timeout") && body.contains("30 seconds"), "{body}");
    }

    #[tokio::test]
    async fn a_wrong_method_is_answered_with_the_right_ones() {
        let (response, _) = ask(request("DELETE", "/v1/records/a").body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()[header::ALLOW], "GET,HEAD");
    }

    #[tokio::test]
    async fn a_sane_request_id_comes_back_and_another_is_replaced() {
        for (sent, kept) in [("abc-1", true), ("a b", false), (&*"x".repeat(129), false)] {
            let sent_request = request("GET", "/v1/records/a").header(REQUEST_ID, sent).body(Body::empty()).unwrap();
            let (response, _) = ask(sent_request).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()[REQUEST_ID] == sent, kept);
        }
    }

    #[tokio::test]
    async fn addresses_come_escaped_or_not() {
        for (path, address) in [
            ("/v1/records/a/b:c/d", "a/b:c/d"),
            ("/v1/records/a%2Fb%3Ac", "a/b:c"),
            ("/v1/records/a%20b", "a b:main"),
            ("/v1/records/gr%C3%B6%C3%9Fe", "größe:main"),
        ] {
            let (_, body) = ask(request("GET", path).body(Body::empty()).unwrap()).await;
            assert_eq!(body, address);
        }
    }
}
