//! The routes: GraphQL over HTTP and over WebSockets, and GraphiQL.

use std::sync::{Arc, OnceLock};

use async_graphql::{Data, Executor, Request};
use axum::{
    Json, Router,
    extract::{
        FromRequestParts as _, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use nameservice_http::{
    App, MAX_BODY_BYTES, Problem, REQUEST_ID,
    extract::{Allowed, Body, Read},
    freshness::POSITION,
};
use nameservice_projector::records::RecordPages;
use serde_json::Value;

use crate::{
    context::{Caller, Patterns, Service, Writes},
    errors::problem,
    graphiql,
    limits::Limited,
    schema, socket,
};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// What is spoken over a socket.
const PROTOCOL: &str = "graphql-transport-ws";

#[derive(Clone)]
struct Graph {
    schema: Limited,
    views: Arc<dyn RecordPages>,
    writes: Writes,
}

/// Returns the routes `/graphql` and `/graphiql`. Lists by holder, and of what is due, are answered from `views`.
pub fn router(views: Arc<dyn RecordPages>, writes: Writes) -> Router<App> {
    let graph = Graph { schema: Limited(schema()), views, writes };
    let execute = {
        let graph = graph.clone();
        async move |State(app): State<App>, allowed: Allowed<Read>, headers: HeaderMap, Body(request): Body<Request>| {
            execute(&graph, &app, allowed, &headers, request).await
        }
    };
    let upgrade = async move |State(app): State<App>,
                              headers: HeaderMap,
                              upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>| {
        open(graph, app, &headers, upgrade)
    };
    Router::new()
        .route("/graphql", get(upgrade).post(execute))
        .route("/graphiql", get(graphiql::page))
        .route("/graphiql/{file}", get(graphiql::file))
}

/// Runs a document. Errors of its fields are part of an answer of 200.
async fn execute(graph: &Graph, app: &App, allowed: Allowed<Read>, headers: &HeaderMap, request: Request) -> Response {
    let service = Arc::new(Service::of(app, graph.views.clone()));
    let is_named = headers.contains_key(IDEMPOTENCY_KEY);
    let caller = Caller::new(allowed.clone(), graph.writes.clone(), request_id(headers), is_named);
    let caller = Arc::new(caller);
    let feed = service.feed.clone();
    let before = if feed.is_immediate() { feed.position().await.ok() } else { None };
    let answer = graph.schema.execute(request.data(service).data(caller.clone()).data(Patterns::default())).await;
    if answer.is_err() {
        allowed.came_to("errors");
    }
    let mut response = Json(answer).into_response();
    // An answer that only reads may be as old as this position.
    if let Some(before) = before.filter(|_| !caller.has_written()) {
        response.headers_mut().insert(POSITION, HeaderValue::from(before));
    }
    response
}

/// Opens a socket. Its token comes with the upgrade, or as `authorization` of `connection_init`.
fn open(
    graph: Graph,
    app: App,
    headers: &HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|_| Problem::no_socket("send documents with POST; GET opens a WebSocket"))?;
    // Any web page can make its visitor's browser connect to a loopback address: only pages of this service may open a socket.
    if let Some(origin) = headers.get(header::ORIGIN)
        && !is_same_origin(origin, headers.get(header::HOST))
    {
        return Err(Problem::foreign_origin(origin.to_str().unwrap_or("another host")));
    }
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(MAX_BODY_BYTES).max_frame_size(MAX_BODY_BYTES);
    if upgrade.selected_protocol().is_none() {
        return Err(Problem::no_socket(&format!("a WebSocket here requires the subprotocol `{PROTOCOL}`")));
    }
    let headers = headers.clone();
    Ok(upgrade.on_upgrade(async move |stream| {
        let shutdown = app.shutdown();
        let token = Arc::new(OnceLock::new());
        let checked = Checked { schema: graph.schema.clone(), app: app.clone(), token: token.clone() };
        let authorize = async move |payload: Value| {
            let sent = sent_token(&headers, &payload)?;
            let session = authorize(graph, app, &headers, sent.clone()).await?;
            let _ = token.set(sent);
            Ok(session)
        };
        socket::serve(stream, checked, shutdown, authorize).await;
    }))
}

/// The schema for the operations of a socket. Its caller is checked again before each: a key may have been withdrawn.
#[derive(Clone)]
struct Checked {
    schema: Limited,
    app: App,
    /// The token of the socket, once it has begun.
    token: Arc<OnceLock<Option<HeaderValue>>>,
}

impl Checked {
    async fn check(&self) -> Result<(), Problem> {
        let token = self.token.get().ok_or_else(Problem::no_token)?;
        allowed(&self.app, token.clone()).await.map(drop)
    }
}

impl Executor for Checked {
    async fn execute(&self, request: Request) -> async_graphql::Response {
        match self.check().await {
            Ok(()) => self.schema.execute(request).await,
            Err(rejected) => response(rejected),
        }
    }

    fn execute_stream(
        &self,
        request: Request,
        session: Option<Arc<Data>>,
    ) -> BoxStream<'static, async_graphql::Response> {
        let checked = self.clone();
        let answers = async move {
            match checked.check().await {
                Ok(()) => checked.schema.execute_stream(request, session),
                Err(rejected) => stream::iter([response(rejected)]).boxed(),
            }
        };
        stream::once(answers).flatten().boxed()
    }
}

fn response(rejected: Problem) -> async_graphql::Response {
    async_graphql::Response::from_errors(vec![problem(rejected).into_server_error(async_graphql::Pos::default())])
}

/// The token of a socket: that of `connection_init`, or of the upgrade.
fn sent_token(headers: &HeaderMap, payload: &Value) -> Result<Option<HeaderValue>, Problem> {
    let token = payload.get("authorization").or_else(|| payload.get("Authorization")).and_then(Value::as_str);
    match token {
        Some(token) => HeaderValue::try_from(token).map(Some).map_err(|_| Problem::no_token()),
        None => Ok(headers.get(header::AUTHORIZATION).cloned()),
    }
}

/// The caller that a token represents.
async fn allowed(app: &App, token: Option<HeaderValue>) -> Result<Allowed<Read>, Problem> {
    let mut request = ::http::Request::new(());
    if let Some(token) = token {
        request.headers_mut().insert(header::AUTHORIZATION, token);
    }
    let (mut parts, ()) = request.into_parts();
    Allowed::<Read>::from_request_parts(&mut parts, app).await
}

/// The caller of a socket, as the data of its operations.
async fn authorize(
    graph: Graph,
    app: App,
    headers: &HeaderMap,
    token: Option<HeaderValue>,
) -> Result<socket::Session, Problem> {
    let allowed = allowed(&app, token).await?;
    let caller = Caller::new(allowed, graph.writes, request_id(headers), false);
    let ends_in = caller.ends_in();
    let mut data = Data::default();
    data.insert(Arc::new(Service::of(&app, graph.views)));
    data.insert(Arc::new(caller));
    data.insert(Patterns::default());
    Ok(socket::Session { data, ends_in })
}

/// The id that the service gives each request.
fn request_id(headers: &HeaderMap) -> String {
    headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

/// Whether a page is of this service: its origin names the host that the request is for.
fn is_same_origin(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let host = host.and_then(|host| host.to_str().ok());
    matches!((authority, host), (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host))
}
