//! The keys of callers' tokens, at a URL of their issuer.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use nameservice_dynamo::open_connector;
use nameservice_http::{Fetch, KeySource, KeyUrl};
use nameservice_model::BoxError;
use tokio::time::timeout;

/// How long a key set may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A key set has a few keys, of less than a kilobyte each.
const MAX_BYTES: usize = 1024 * 1024;

/// Returns the key set at a URL. No request is made.
pub(crate) fn source(url: &str) -> Arc<dyn KeySource> {
    Arc::new(KeyUrl::new(url, Document { url: url.to_owned(), connector: OnceLock::new() }))
}

/// A document that is fetched with the HTTP client of the SDK.
struct Document {
    url: String,
    /// Created by the first request: it reads the certificates of the machine.
    connector: OnceLock<SharedHttpConnector>,
}

impl Document {
    async fn get(&self) -> Result<(StatusCode, String), BoxError> {
        let connector = self.connector.get_or_init(open_connector);
        let request = Request::get(&self.url).header(header::ACCEPT, "application/json").body(Vec::new())?;
        let answer = connector.call(aws_smithy_runtime_api::http::Request::try_from(request)?.map(Into::into)).await?;
        let status = StatusCode::from_u16(answer.status().as_u16())?;
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

#[async_trait]
impl Fetch for Document {
    async fn fetch(&self) -> Result<(StatusCode, String), BoxError> {
        timeout(TIMEOUT, self.get()).await?
    }
}
