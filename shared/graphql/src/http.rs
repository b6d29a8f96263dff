//! GraphQL over HTTP and over WebSockets.

use std::sync::Arc;

use async_graphql::{Data, Request, http::ALL_WEBSOCKET_PROTOCOLS};
use async_graphql_axum::{GraphQLProtocol, GraphQLWebSocket};
use axum::{
    Json, Router,
    extract::{FromRequestParts as _, State, WebSocketUpgrade},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use nameservice_http::{
    App, MAX_BODY_BYTES, Problem,
    extract::{Allowed, Body, Read},
};
use nameservice_projector::records::RecordPages;
use serde_json::Value;

use crate::{
    NameserviceSchema,
    context::{Caller, Service, Writes},
    graphiql, schema,
};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Clone)]
struct Graph {
    schema: NameserviceSchema,
    views: Arc<dyn RecordPages>,
    writes: Writes,
}

/// Returns the routes `/graphql` and `/graphiql`. Lists by holder, and of what is due, are answered from `views`.
pub fn router(views: Arc<dyn RecordPages>, writes: Writes) -> Router<App> {
    let graph = Graph { schema: schema(), views, writes };
    let execute = {
        let graph = graph.clone();
        async move |State(app): State<App>, allowed: Allowed<Read>, headers: HeaderMap, Body(request): Body<Request>| {
            execute(&graph, &app, allowed, &headers, request).await
        }
    };
    let upgrade = async move |State(app): State<App>,
                              headers: HeaderMap,
                              protocol: GraphQLProtocol,
                              upgrade: WebSocketUpgrade| { socket(&graph, app, &headers, protocol, upgrade) };
    Router::new()
        .route("/graphql", get(upgrade).post(execute))
        .route("/graphiql", get(graphiql::page))
        .route("/graphiql/{file}", get(graphiql::file))
}

/// Runs a document. Errors of its fields are part of an answer of 200.
async fn execute(
    graph: &Graph,
    app: &App,
    allowed: Allowed<Read>,
    headers: &HeaderMap,
    request: Request,
) -> Response {
    let service = Arc::new(Service::of(app, graph.views.clone()));
    let caller = Caller::new(allowed, graph.writes.clone(), headers.contains_key(IDEMPOTENCY_KEY));
    let answer = graph.schema.execute(request.data(service).data(caller)).await;
    Json(answer).into_response()
}

/// Answers the operations of a WebSocket. Its token comes with the upgrade, or as `authorization` of `connection_init`.
fn socket(
    graph: &Graph,
    app: App,
    headers: &HeaderMap,
    protocol: GraphQLProtocol,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    // A browser sends the cookies and reaches the loopback address of whoever visits any page: only pages of this service
    // may open a socket.
    if let Some(origin) = headers.get(header::ORIGIN)
        && !is_same_origin(origin, headers.get(header::HOST))
    {
        return Err(Problem::misdirected(origin.to_str().unwrap_or("another origin")));
    }
    let Graph { schema, views, writes } = graph.clone();
    let with_upgrade = headers.get(header::AUTHORIZATION).cloned();
    let response = upgrade.protocols(ALL_WEBSOCKET_PROTOCOLS).max_message_size(MAX_BODY_BYTES).on_upgrade(move |stream| async move {
        let begin = move |payload: Value| async move {
            let token = payload.get("authorization").or_else(|| payload.get("Authorization")).and_then(Value::as_str);
            let token = match token {
                Some(token) => Some(HeaderValue::try_from(token)?),
                None => with_upgrade,
            };
            let mut request = ::http::Request::new(());
            if let Some(token) = token {
                request.headers_mut().insert(header::AUTHORIZATION, token);
            }
            let (mut parts, ()) = request.into_parts();
            let allowed = Allowed::<Read>::from_request_parts(&mut parts, &app).await;
            let allowed = allowed.map_err(|problem| async_graphql::Error::new(problem.document().detail))?;
            let mut data = Data::default();
            data.insert(Arc::new(Service::of(&app, views)));
            data.insert(Caller::new(allowed, writes, false));
            Ok(data)
        };
        GraphQLWebSocket::new(stream, schema, protocol).on_connection_init(begin).serve().await;
    });
    Ok(response)
}

/// Whether a page is of this service: its origin names the host that the request is for.
fn is_same_origin(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let host = host.and_then(|host| host.to_str().ok());
    matches!((authority, host), (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host))
}
