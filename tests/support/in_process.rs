//! The whole service over the embedded backend in memory, called without a socket.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::Method;
use nameservice_cli::routes;
use nameservice_embedded::{Embedded, Options};
use nameservice_http::{App, Auth};
use serde_json::Value;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::service::{Answer, request};

/// A service in memory.
pub struct InProcess {
    router: Router,
    /// Its backend.
    pub backend: Embedded,
}

impl InProcess {
    /// An empty one, open to everybody.
    pub fn new() -> Self {
        Self::over(Embedded::memory(Options::default()).unwrap())
    }

    /// One over this backend, open to everybody.
    pub fn over(backend: Embedded) -> Self {
        Self::of(backend, |backend| App::new(backend.clone(), backend, Auth::Open))
    }

    /// An empty one, with the service that `app` makes of its backend.
    pub fn with(app: impl FnOnce(Arc<Embedded>) -> App) -> Self {
        Self::of(Embedded::memory(Options::default()).unwrap(), app)
    }

    fn of(backend: Embedded, app: impl FnOnce(Arc<Embedded>) -> App) -> Self {
        let app = app(Arc::new(backend.clone()));
        Self { router: nameservice_http::service(routes::router(), app), backend }
    }

    /// Serves it on a loopback port as well, as long as the runtime of the test runs. Returns its URL.
    pub async fn serve(&self) -> String {
        self.serve_through(|router| router).await
    }

    /// Serves it in the same way, through what `around` adds.
    pub async fn serve_through(&self, around: impl FnOnce(Router) -> Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = around(self.router.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// Any request with a JSON body, or none.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
        let request = request(method, path, headers, body).map(Body::from);
        Answer::read(self.router.clone().oneshot(request).await.unwrap()).await
    }
}

impl Default for InProcess {
    fn default() -> Self {
        Self::new()
    }
}
