//! Creates DynamoDB clients: fast to start, and without retries of their own.

use std::time::Duration;

use aws_config::{SdkConfig, environment::credentials::EnvironmentVariableCredentialsProvider};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Builder, Region, retry::RetryConfig, timeout::TimeoutConfig},
};
use aws_smithy_http_client::{
    Builder as HttpClient, Connector,
    tls::{self, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::http::{HttpConnectorSettings, SharedHttpClient, SharedHttpConnector};

use crate::capacity::AskForUnits;

/// An attempt is given up after this time; its outcome is then unknown.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a client with the settings that all of them share: `ring` (it starts twenty times faster than the default),
/// no retries by the SDK (`Sender` knows what an attempt may have done), bounded attempts.
fn configured(builder: Builder, roots: Roots) -> Client {
    Client::from_conf(
        builder
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(http_client(roots))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts())
            .interceptor(AskForUnits)
            .build(),
    )
}

fn http_client(roots: Roots) -> SharedHttpClient {
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring));
    // This context has only certificates that are compiled in; the default one reads the system's.
    match roots.context() {
        Some(context) => http.tls_context(context).build_https(),
        None => http.build_https(),
    }
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build()
}

/// The root certificates that a client trusts.
enum Roots {
    /// The certificate store of the machine.
    System,
    /// Only the roots of AWS: reading the store of the machine takes longer than everything else that a Lambda function
    /// does before it is ready.
    Amazon,
}

impl Roots {
    fn context(&self) -> Option<TlsContext> {
        match self {
            Self::System => None,
            Self::Amazon => {
                let roots = TrustStore::empty().with_pem_certificate(include_bytes!("amazon_roots.pem").as_slice());
                TlsContext::builder().with_trust_store(roots).build().ok()
            }
        }
    }
}

/// Returns a client from a loaded AWS configuration (region, credential chain, `AWS_ENDPOINT_URL`).
pub fn sdk_client(config: &SdkConfig) -> Client {
    configured(aws_sdk_dynamodb::config::Builder::from(config), Roots::System)
}

/// Returns a client of an engine at a URL, such as DynamoDB Local. Such engines accept any credentials.
pub fn endpoint_client(url: &str) -> Client {
    configured(
        Builder::new()
            .endpoint_url(url)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "endpoint_client")),
        Roots::System,
    )
}

/// Returns the configuration for clients of other services of an engine at a URL, such as the streams of its tables.
pub fn endpoint_config(url: &str) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url(url)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "local",
            "local",
            None,
            None,
            "endpoint_config",
        )))
        .http_client(http_client(Roots::System))
        .retry_config(RetryConfig::standard())
        .timeout_config(timeouts())
        .build()
}

/// Returns a client for a Lambda function, configured only from the environment that Lambda sets.
pub fn lambda_client() -> Client {
    let mut builder = Builder::new()
        .region(variable("AWS_REGION").map(Region::new))
        .credentials_provider(EnvironmentVariableCredentialsProvider::new());
    builder.set_endpoint_url(variable("AWS_ENDPOINT_URL_DYNAMODB").or_else(|| variable("AWS_ENDPOINT_URL")));
    configured(builder, Roots::Amazon)
}

/// Returns the configuration for clients of other services in a Lambda function, from the same environment. These
/// clients use the standard retries of the SDK: what is sent through them may arrive twice.
pub fn lambda_config() -> SdkConfig {
    let mut builder = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(variable("AWS_REGION").map(Region::new))
        .credentials_provider(lambda_credentials())
        .http_client(http_client(Roots::Amazon))
        .retry_config(RetryConfig::standard())
        .timeout_config(timeouts());
    builder.set_endpoint_url(variable("AWS_ENDPOINT_URL"));
    builder.build()
}

/// Returns an HTTP client for requests of a Lambda function to services for which it has no SDK client. It is the one
/// that the DynamoDB client uses, so that a function links only one. It connects at the first request, and has no
/// timeout other than that for connecting.
pub fn lambda_connector() -> SharedHttpConnector {
    connector(Roots::Amazon)
}

/// Returns the same for services that are not of AWS: it trusts the certificates of the machine, which it reads first.
pub fn open_connector() -> SharedHttpConnector {
    connector(Roots::System)
}

fn connector(roots: Roots) -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT).build();
    let mut builder =
        Connector::builder().connector_settings(settings).tls_provider(tls::Provider::Rustls(CryptoMode::Ring));
    if let Some(context) = roots.context() {
        builder = builder.tls_context(context);
    }
    SharedHttpConnector::new(builder.build())
}

/// Returns the credentials that Lambda sets in the environment.
pub fn lambda_credentials() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(EnvironmentVariableCredentialsProvider::new())
}

/// Returns an environment variable. An empty one counts as unset.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connector reads the certificates when it is created, and panics if it cannot read one.
    #[test]
    fn the_roots_that_are_compiled_in_are_the_five_of_aws() {
        let begun = include_str!("amazon_roots.pem").matches("BEGIN CERTIFICATE").count();
        assert_eq!(begun, 5);
        assert!(Roots::Amazon.context().is_some());
        configured(Builder::new(), Roots::Amazon);
    }
}
