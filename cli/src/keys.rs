//! The keys of callers' tokens: in a file, or at a URL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::StatusCode;
use http_body_util::BodyExt as _;
use nameservice_client::{Http, Transport};
use nameservice_http::{Fetch, KeyFile, KeySource, KeyUrl};
use nameservice_model::BoxError;
use reqwest::Url;

/// How long a key set may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A key set has a few keys, of less than a kilobyte each.
const MAX_BYTES: usize = 1024 * 1024;

/// Returns the source that `--jwks` names.
pub(crate) fn source(place: &str) -> Result<Arc<dyn KeySource>, BoxError> {
    match Url::parse(place) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => {
            let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
            let transport = Http::new(&url.origin().ascii_serialization())?;
            Ok(Arc::new(KeyUrl::new(url, Document { transport, path })))
        }
        _ => Ok(Arc::new(KeyFile::new(place))),
    }
}

/// A document that is fetched over the client's own HTTP.
struct Document {
    transport: Http,
    path: String,
}

#[async_trait]
impl Fetch for Document {
    async fn fetch(&self) -> Result<(StatusCode, String), BoxError> {
        let request =
            http::Request::get(&self.path).header(http::header::ACCEPT, "application/json").body(Default::default())?;
        let answer = self.transport.send(request, TIMEOUT).await?;
        let status = answer.status();
        let (mut body, mut json) = (answer.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            json.extend_from_slice(frame?.data_ref().map_or(&[], |data| data.as_ref()));
            if json.len() > MAX_BYTES {
                return Err("the answer is larger than a key set".into());
            }
        }
        Ok((status, String::from_utf8_lossy(&json).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_url_is_fetched_and_a_rejection_is_an_error() {
        let router = Router::new()
            .route("/keys", get(async |uri: axum::http::Uri| uri.to_string()))
            .route("/gone", get(async || StatusCode::GONE));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let read = async |path: &str| source(&format!("http://{address}{path}")).unwrap().read().await;
        assert_eq!(read("/keys?tenant=a").await.unwrap(), "/keys?tenant=a");
        assert!(read("/gone").await.unwrap_err().to_string().contains("410"));
    }
}
