//! How a client of DynamoDB is made: fast to start, and without retries of its own.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Builder, Region, retry::RetryConfig, timeout::TimeoutConfig},
};
use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{self, TlsContext, TrustStore, rustls_provider::CryptoMode},
};

/// One attempt is given up after this long; what its outcome was is then unknown.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings that every client here shares: `ring` (it starts twenty times faster than the default), no retries by
/// the SDK (the store's own know what an attempt may have done), bounded attempts.
fn configured(builder: Builder, roots: Roots) -> Client {
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring));
    // A context of nothing but certificates that are compiled in; the default one reads the system's.
    let http = match roots.context() {
        Some(context) => http.tls_context(context).build_https(),
        None => http.build_https(),
    };
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
    Client::from_conf(
        builder
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(http)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .build(),
    )
}

/// Whom a client trusts.
enum Roots {
    /// The certificate store of the machine.
    System,
    /// The roots of AWS alone: reading the store of a machine takes longer than all else that a Lambda function does
    /// before it is ready.
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

/// A client from a loaded AWS configuration (region, credential chain, `AWS_ENDPOINT_URL`).
pub fn sdk_client(config: &SdkConfig) -> Client {
    configured(aws_sdk_dynamodb::config::Builder::from(config), Roots::System)
}

/// A client of an engine at a URL, such as the embedded one or DynamoDB Local. Engines of that kind take any
/// credentials.
pub fn endpoint_client(url: &str) -> Client {
    configured(
        Builder::new()
            .endpoint_url(url)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "endpoint_client")),
        Roots::System,
    )
}

/// A client inside Lambda, from the environment that Lambda sets and nothing else.
pub fn lambda_client() -> Client {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut builder = Builder::new()
        .region(var("AWS_REGION").map(Region::new))
        .credentials_provider(aws_config::environment::credentials::EnvironmentVariableCredentialsProvider::new());
    builder.set_endpoint_url(var("AWS_ENDPOINT_URL_DYNAMODB").or_else(|| var("AWS_ENDPOINT_URL")));
    configured(builder, Roots::Amazon)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connector reads the certificates when it is made, and panics over one that it cannot read.
    #[test]
    fn the_roots_that_are_compiled_in_are_the_five_of_aws() {
        let begun = include_str!("amazon_roots.pem").matches("BEGIN CERTIFICATE").count();
        assert_eq!(begun, 5);
        assert!(Roots::Amazon.context().is_some());
        configured(Builder::new(), Roots::Amazon);
    }
}
