//! Object stores: buckets of S3, Google Cloud Storage (feature `gcs`) and Azure (feature `azure`), and directories (feature
//! `directory`), each behind the trait of the crate [`object_store`], over the HTTP client of the workspace.

mod attempt;
mod http;

use std::{sync::Arc, time::Duration};

use nameservice_model::BoxError;
use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AwsCredentialProvider, S3ConditionalPut},
};

pub use attempt::{Answer, Attempt};
/// The crate of object stores.
pub use object_store;

use crate::http::Connector;

/// The maximum time for which a request is repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a bucket is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BucketOptions {
    /// The region of S3; by default, that of the environment.
    pub region: Option<String>,
    /// The URL of a store outside the cloud.
    pub endpoint: Option<String>,
    /// How long one request may take.
    pub timeout: Option<Duration>,
    /// The source of credentials for S3; by default variables, a web identity, the container, or the instance.
    pub credentials: Option<AwsCredentialProvider>,
}

impl BucketOptions {
    /// Sets the region.
    #[must_use]
    pub fn region(mut self, region: Option<String>) -> Self {
        self.region = region;
        self
    }

    /// Sets the URL of a store outside the cloud.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Option<String>) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// Sets how long one request may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the source of credentials for S3.
    #[must_use]
    pub fn credentials(mut self, credentials: Option<AwsCredentialProvider>) -> Self {
        self.credentials = credentials;
        self
    }
}

/// The reason why a bucket or a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {bucket}")]
pub struct BucketError {
    bucket: String,
    source: BoxError,
}

impl BucketError {
    fn of(bucket: &str) -> impl FnOnce(object_store::Error) -> Self {
        move |source| Self { bucket: bucket.to_owned(), source: source.into() }
    }
}

/// Returns a bucket of S3 in which a write may be conditional on an ETag. A request is repeated at most `retries` times.
pub fn s3(bucket: &str, options: &BucketOptions, retries: usize) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_client_options(client_options(options))
        .with_http_connector(Connector { timeout: options.timeout })
        .with_retry(retry(retries));
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(credentials) = &options.credentials {
        builder = builder.with_credentials(credentials.clone());
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/')).with_virtual_hosted_style_request(false);
    }
    Ok(Arc::new(builder.build().map_err(BucketError::of(bucket))?))
}

/// Returns a bucket of Google Cloud Storage. A request is repeated at most `retries` times.
#[cfg(feature = "gcs")]
pub fn gcs(bucket: &str, options: &BucketOptions, retries: usize) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let mut builder = object_store::gcp::GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client_options(options))
        .with_http_connector(Connector { timeout: options.timeout })
        .with_retry(retry(retries));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    Ok(Arc::new(builder.build().map_err(BucketError::of(bucket))?))
}

/// Returns a container of Azure's Blob Storage. A request is repeated at most `retries` times.
#[cfg(feature = "azure")]
pub fn azure(container: &str, options: &BucketOptions, retries: usize) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let mut builder = object_store::azure::MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_client_options(client_options(options))
        .with_http_connector(Connector { timeout: options.timeout })
        .with_retry(retry(retries));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    Ok(Arc::new(builder.build().map_err(BucketError::of(container))?))
}

/// Returns a directory, which is created if it is missing and `create` is set. A write is durable once it has returned. It cannot
/// be conditional on the state that it replaces, except that there is none.
#[cfg(feature = "directory")]
pub fn directory(path: &std::path::Path, create: bool) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let cannot = |source: BoxError| BucketError { bucket: path.display().to_string(), source };
    if create {
        std::fs::create_dir_all(path).map_err(|error| cannot(error.into()))?;
    }
    let store = object_store::local::LocalFileSystem::new_with_prefix(path).map_err(|error| cannot(error.into()))?;
    Ok(Arc::new(store.with_fsync(true)))
}

fn client_options(options: &BucketOptions) -> ClientOptions {
    let is_plain = options.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new().with_allow_http(is_plain)
}

fn retry(max_retries: usize) -> RetryConfig {
    RetryConfig { max_retries, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}
