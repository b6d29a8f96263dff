//! Signatures of requests to services of AWS that are called without an SDK (AWS Signature Version 4).

use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use nameservice_model::BoxError;

/// Signs requests to one service with the credentials of AWS.
#[derive(Clone, Debug)]
pub struct Signer {
    credentials: SharedCredentialsProvider,
    region: String,
    service: &'static str,
}

impl Signer {
    /// Returns a signer for a service, by the name that its signatures have (`es`, `appsync`), in a region.
    pub fn new(credentials: SharedCredentialsProvider, region: impl Into<String>, service: &'static str) -> Self {
        Self { credentials, region: region.into(), service }
    }

    /// Returns a signer for a service with the region and the credentials of a configuration; `None` where it lacks one.
    pub fn from_config(config: &SdkConfig, service: &'static str) -> Option<Self> {
        let region = config.region()?.as_ref().to_owned();
        Some(Self::new(config.credentials_provider()?, region, service))
    }

    /// Signs a request at this time. Fails where there are no credentials, or the URL cannot be signed.
    pub async fn sign(&self, request: &mut http::Request<Vec<u8>>, at: SystemTime) -> Result<(), BoxError> {
        let identity = self.credentials.provide_credentials().await?.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(at)
            .settings(SigningSettings::default())
            .build()?
            .into();
        let uri = request.uri().to_string();
        let headers: Vec<(String, String)> = request
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let body = SignableBody::Bytes(request.body());
        let signable = SignableRequest::new(request.method().as_str(), uri, headers, body)?;
        let (instructions, _) = sign(signable, &parameters)?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }
}
