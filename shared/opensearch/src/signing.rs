//! Signatures of requests to a domain of Amazon OpenSearch Service (AWS Signature Version 4).

use std::time::SystemTime;

use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use nameservice_model::BoxError;

/// The service that a domain's requests are signed for.
const SERVICE: &str = "es";

/// Signs requests with the credentials of AWS.
#[derive(Clone, Debug)]
pub struct Signer {
    credentials: SharedCredentialsProvider,
    region: String,
}

impl Signer {
    /// Returns a signer for a domain in this region.
    pub fn new(credentials: SharedCredentialsProvider, region: impl Into<String>) -> Self {
        Self { credentials, region: region.into() }
    }

    /// Signs a request at this time.
    pub(crate) async fn sign(&self, request: &mut http::Request<Vec<u8>>, at: SystemTime) -> Result<(), BoxError> {
        let identity = self.credentials.provide_credentials().await?.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(SERVICE)
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
