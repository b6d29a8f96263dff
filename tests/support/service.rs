//! A running service in a line.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use axum::Router;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use nameservice_cli::routes;
use nameservice_http::{App, Auth};
use serde_json::Value;
use tokio::{net::TcpListener, task::AbortHandle};

use crate::{
    infra,
    table::{Proxied, Table},
};

/// The whole service on a loopback port, over a fresh table behind a proxy. Ends when it is dropped.
pub struct Service {
    /// The table, its proxy, and a store of its own.
    pub table: Proxied,
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
    serving: AbortHandle,
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Others may have streams open.
    streams: AtomicBool,
}

/// Sends requests over plain HTTP.
pub type Http = Client<HttpConnector, Full<Bytes>>;

/// A client over plain HTTP.
pub fn client() -> Http {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    // A request that its connection cancelled may have been received all the same.
    Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector)
}

/// What the service answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as JSON; a text where it is no JSON, null if there is none.
    pub body: Value,
}

impl Service {
    /// Starts a service that is open to everybody.
    pub async fn start() -> Self {
        Self::over(Table::fresh().await, Auth::Open).await
    }

    /// The same over a table with a stream, for tests of the feed.
    pub async fn with_stream() -> Self {
        Self::over(Table::with_stream().await, Auth::Open).await
    }

    /// Starts a service over a table.
    pub async fn over(table: Table, auth: Auth) -> Self {
        Self::of(routes::router(), table, auth).await
    }

    /// Starts a service of these routes only.
    pub async fn of(routes: Router<App>, table: Table, auth: Auth) -> Self {
        Self::serving(routes, table.proxied().await, auth).await
    }

    /// Starts a service over the store of a table that has its proxy already.
    pub async fn on(table: Proxied, auth: Auth) -> Self {
        Self::serving(routes::router(), table, auth).await
    }

    /// Starts a service over a fresh table that Fluree shares.
    pub async fn beside_fluree(auth: Auth) -> Self {
        let table = Proxied::fresh().await;
        let app = App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), auth).beside_fluree();
        Self::of_app(routes::router(), table, app).await
    }

    async fn serving(routes: Router<App>, table: Proxied, auth: Auth) -> Self {
        let app = App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), auth);
        Self::of_app(routes, table, app).await
    }

    async fn of_app(routes: Router<App>, table: Proxied, app: App) -> Self {
        let router = nameservice_http::service(routes, app);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { table, url, client: client(), serving, begun: 0.into(), ended: 0.into(), streams: false.into() }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        self.streams.store(true, SeqCst);
        &self.url
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    /// `PUT` of a JSON body.
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    /// `POST` of a JSON body.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    /// `DELETE`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], None).await
    }

    /// Any request with a JSON body, or none.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
        self.exchange(request(method, &format!("{}{path}", self.url), headers, body).map(Full::new)).await
    }

    /// Sends any request at all. Panics if the service asks the store for something that the deployed function of this route may
    /// not do.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Answer {
        let function = infra::function_of(request.method().as_str(), request.uri().path());
        let (begun, ended) = (self.begun.fetch_add(1, SeqCst), self.ended.load(SeqCst));
        let passed = self.table.proxy.actions_passed();
        let answer = self.answer(request).await;
        let alone = begun == ended && self.begun.load(SeqCst) == begun + 1;
        self.ended.fetch_add(1, SeqCst);
        // Requests of concurrent calls cannot be distinguished.
        if let Some(function) = function.filter(|_| alone) {
            for action in self.table.proxy.actions_after(passed) {
                let (resource, action) = infra::named(&self.table.name, &action);
                let may = |function: &str| infra::FUNCTIONS[function].allows(&resource, &action);
                assert!(
                    may(function) || self.streams.load(SeqCst) && may("change_stream"),
                    "{function} needs {action} on {resource}, and infra/modules/nameservice/functions.tf does not allow it"
                );
            }
        }
        answer
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        Answer::read(self.client.request(request).await.unwrap()).await
    }
}

/// A request with a JSON body, or none.
pub fn request(method: Method, uri: &str, headers: &[(&str, &str)], body: Option<Value>) -> Request<Bytes> {
    let mut request = Request::builder().method(method).uri(uri);
    if body.is_some() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.map(|body| serde_json::to_vec(&body).unwrap()).unwrap_or_default().into()).unwrap()
}

impl Answer {
    /// Reads an answer to its end.
    pub async fn read<B: BodyExt<Error: std::fmt::Debug>>(answer: http::Response<B>) -> Self {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()),
        };
        Self { status: parts.status, headers: parts.headers, body }
    }

    /// Panics unless the status is this one, showing the whole answer.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:#?}");
        self.body
    }

    /// Panics unless this is a problem of this status and type (`conflict`, `unknown-record`, …).
    #[track_caller]
    pub fn problem(self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:#?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:#?}");
        let type_of = self.body["type"].as_str().unwrap_or_default();
        assert!(type_of.ends_with(&format!("/{kind}")), "{self:#?}");
        self.body
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
