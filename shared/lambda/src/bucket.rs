//! A bucket of S3 for functions: signed requests over the HTTP client of the DynamoDB SDK. A full S3 client would be a quarter
//! of the function's size.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_xml::decode::{Document, XmlDecodeError, try_data};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use nameservice_archive::Objects;
use nameservice_dynamo::{lambda_connector, lambda_credentials, variable};
use nameservice_model::{BoxError, Error, Result};
use nameservice_signer::Signer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{sleep, timeout};

/// The service that requests are signed for.
const SERVICE: &str = "s3";
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many times a request is repeated, and the delay before the first repetition.
const RETRIES: usize = 3;
const DELAY: Duration = Duration::from_millis(100);
/// The characters that are escaped in a query, and those in a path.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// A bucket of S3 that can hold an archive.
#[derive(Debug)]
pub struct Bucket {
    name: String,
    /// Its URL, without a slash at the end.
    url: String,
    signer: Signer,
    /// Created by the first request, so that a function that sends none does not wait for it.
    connector: OnceLock<SharedHttpConnector>,
}

/// The reason why a request has failed.
#[derive(Debug, thiserror::Error)]
#[error("{method} of s3://{bucket}: {reason}")]
struct Failed {
    method: Method,
    bucket: String,
    reason: String,
    source: Option<BoxError>,
    /// Whether S3 would reject the same request again.
    is_final: bool,
}

impl Failed {
    fn into_error(self, operation: &'static str) -> Error {
        match self.is_final {
            true => Error::Store { operation, source: self.into() },
            false => Error::Unavailable { operation, source: Some(self.into()) },
        }
    }
}

/// An answer of S3.
struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Bucket {
    /// Returns a bucket with the credentials of a function's environment: in S3 in its region, or at the URL in
    /// `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`. No request is made.
    pub fn of_environment(name: &str) -> Self {
        let region = variable("AWS_REGION").unwrap_or_else(|| "us-east-1".to_owned());
        let url = match variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")) {
            Some(endpoint) => format!("{}/{name}", endpoint.trim_end_matches('/')),
            None => url(name, &region),
        };
        Self::new(name, url, Signer::new(lambda_credentials(), region, SERVICE))
    }

    /// Returns a bucket at a URL: `https://BUCKET.s3.REGION.amazonaws.com`, or `http://127.0.0.1:9000/BUCKET`. No request is made.
    pub fn new(name: impl Into<String>, url: impl Into<String>, signer: Signer) -> Self {
        Self { name: name.into(), url: url.into(), signer, connector: OnceLock::new() }
    }

    /// Sends a request, repeating it until there is a final answer.
    async fn send(&self, method: Method, target: &str, body: &[u8]) -> Result<Answer, Failed> {
        let mut delays =
            ExponentialBuilder::default().with_min_delay(DELAY).with_max_times(RETRIES).with_jitter().build();
        loop {
            let failed = |reason: String, source: Option<BoxError>| Failed {
                method: method.clone(),
                bucket: self.name.clone(),
                reason,
                source,
                is_final: false,
            };
            let failed = match timeout(TIMEOUT, self.attempt(&method, target, body)).await {
                Ok(Ok(answer)) => match answer.status {
                    StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                        failed(reason_of(&answer), None)
                    }
                    status if status.is_server_error() => failed(reason_of(&answer), None),
                    status if status.is_success() || status == StatusCode::PRECONDITION_FAILED => return Ok(answer),
                    StatusCode::NOT_FOUND if code(&answer.body).as_deref() != Some("NoSuchBucket") => {
                        return Ok(answer);
                    }
                    _ => return Err(Failed { is_final: true, ..failed(reason_of(&answer), None) }),
                },
                Ok(Err(error)) => failed("the request failed".to_owned(), Some(error)),
                Err(_) => failed(format!("no answer in {} seconds", TIMEOUT.as_secs()), None),
            };
            match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(failed),
            }
        }
    }

    async fn attempt(&self, method: &Method, target: &str, body: &[u8]) -> Result<Answer, BoxError> {
        let mut request = Request::new(body.to_vec());
        *request.method_mut() = method.clone();
        *request.uri_mut() = format!("{}{target}", self.url).parse()?;
        if *method == Method::PUT {
            request.headers_mut().insert(header::IF_NONE_MATCH, header::HeaderValue::from_static("*"));
        }
        self.signer.sign(&mut request, SystemTime::now()).await?;
        let connector = self.connector.get_or_init(lambda_connector);
        let answer = connector.call(aws_smithy_runtime_api::http::Request::try_from(request)?.map(Into::into)).await?;
        let status = StatusCode::from_u16(answer.status().as_u16())?;
        Ok(Answer { status, body: answer.into_body().collect().await?.to_bytes().into() })
    }
}

#[async_trait]
impl Objects for Bucket {
    async fn list(&self, folder: &str, after: Option<&str>) -> Result<Vec<String>> {
        const OPERATION: &str = "list a bucket";
        let prefix = format!("{folder}/");
        let (mut keys, mut after) = (Vec::new(), after.map(str::to_owned));
        loop {
            let mut target = format!("/?list-type=2&prefix={}", utf8_percent_encode(&prefix, IN_QUERY));
            if let Some(after) = &after {
                target.push_str("&start-after=");
                target.extend(utf8_percent_encode(after, IN_QUERY));
            }
            let answer = self.send(Method::GET, &target, &[]).await.map_err(|error| error.into_error(OPERATION))?;
            let (found, is_truncated) =
                listed(&answer.body).map_err(|error| Error::Store { operation: OPERATION, source: error.into() })?;
            after = found.last().cloned();
            keys.extend(found);
            if !is_truncated || after.is_none() {
                return Ok(keys);
            }
        }
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let answer =
            self.send(Method::GET, &path(key), &[]).await.map_err(|error| error.into_error("read an object"))?;
        Ok((answer.status != StatusCode::NOT_FOUND).then_some(answer.body))
    }

    async fn create(&self, key: &str, body: Vec<u8>) -> Result<bool> {
        let answer =
            self.send(Method::PUT, &path(key), &body).await.map_err(|error| error.into_error("write an object"))?;
        Ok(answer.status.is_success())
    }
}

/// Returns the URL of a bucket in a region of AWS.
fn url(name: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    match name.contains('.') {
        // A wildcard certificate covers one label only.
        true => format!("https://s3.{region}.amazonaws.com{suffix}/{name}"),
        false => format!("https://{name}.s3.{region}.amazonaws.com{suffix}"),
    }
}

fn path(key: &str) -> String {
    format!("/{}", utf8_percent_encode(key, IN_PATH))
}

/// Returns the keys of a list, and whether there are more.
fn listed(body: &[u8]) -> Result<(Vec<String>, bool), XmlDecodeError> {
    let mut document = Document::try_from(body)?;
    let mut root = document.root_element()?;
    let (mut keys, mut is_truncated) = (Vec::new(), false);
    while let Some(mut element) = root.next_tag() {
        match element.start_el().local() {
            "IsTruncated" => is_truncated = try_data(&mut element)? == "true",
            "Contents" => {
                while let Some(mut member) = element.next_tag() {
                    if member.start_el().local() == "Key" {
                        keys.push(try_data(&mut member)?.into_owned());
                    }
                }
            }
            _ => {}
        }
    }
    Ok((keys, is_truncated))
}

/// Returns the error code of S3.
fn code(body: &[u8]) -> Option<String> {
    let mut document = Document::try_from(body).ok()?;
    let mut root = document.root_element().ok()?;
    while let Some(mut element) = root.next_tag() {
        if element.start_el().local() == "Code" {
            return try_data(&mut element).ok().map(|code| code.into_owned());
        }
    }
    None
}

fn reason_of(answer: &Answer) -> String {
    match code(&answer.body) {
        Some(code) => format!("S3 answers {} {code}", answer.status.as_u16()),
        None => format!("S3 answers {}", answer.status.as_u16()),
    }
}
