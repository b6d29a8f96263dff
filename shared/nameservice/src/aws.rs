//! Configuration of AWS clients: region and credentials are found as the AWS CLI finds them.

use aws_config::SdkConfig;
use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{self, rustls_provider::CryptoMode},
};
use nameservice_model::BoxError;

/// Returns the configuration that [`connect`](crate::connect) uses: the region (the given one, or that of the environment or the profile) and the chain of credentials. The
/// instance metadata is only asked for a region that is not configured anywhere.
pub async fn config(region: Option<&str>) -> Result<SdkConfig, BoxError> {
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut config = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12()).http_client(http);
    if let Some(region) = region {
        config = config.region(aws_config::Region::new(region.to_owned()));
    }
    let config = config.load().await;
    if config.region().is_none() {
        return Err(
            "no AWS region is configured: set AWS_REGION, name one in the profile, or with ?region= in the URL".into(),
        );
    }
    Ok(config)
}
