//! Signs requests to AWS services that are called without an SDK (AWS Signature Version 4).

use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    },
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
    /// Returns a signer for a service, by the name that its signatures have (`es`, `appsync`, `s3`), in a region.
    pub fn new(credentials: SharedCredentialsProvider, region: impl Into<String>, service: &'static str) -> Self {
        Self { credentials, region: region.into(), service }
    }

    /// Returns a signer for a service with the region and the credentials of a configuration; `None` if it lacks one.
    pub fn from_config(config: &SdkConfig, service: &'static str) -> Option<Self> {
        let region = config.region()?.as_ref().to_owned();
        Some(Self::new(config.credentials_provider()?, region, service))
    }

    fn settings(&self) -> SigningSettings {
        let mut settings = SigningSettings::default();
        // S3 takes paths unnormalised, and requires the digest of the payload.
        if self.service == "s3" {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        settings
    }

    /// Signs a request at this time. Fails if there are no credentials, or the URL cannot be signed.
    pub async fn sign(&self, request: &mut http::Request<Vec<u8>>, at: SystemTime) -> Result<(), BoxError> {
        let identity = self.credentials.provide_credentials().await?.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(at)
            .settings(self.settings())
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use aws_credential_types::Credentials;

    use super::*;

    /// Signs as in the examples of S3's documentation: with their key, on 24 May 2013.
    async fn signature(request: http::request::Builder, body: &str) -> String {
        let key = Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None, None, "");
        let signer = Signer::new(SharedCredentialsProvider::new(key), "us-east-1", "s3");
        let mut request = request.body(body.as_bytes().to_vec()).unwrap();
        signer.sign(&mut request, UNIX_EPOCH + Duration::from_secs(1_369_353_600)).await.unwrap();
        assert!(request.headers().contains_key("x-amz-content-sha256"));
        let authorization = request.headers()["authorization"].to_str().unwrap().to_owned();
        authorization.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>, all four examples.
    #[tokio::test]
    async fn requests_to_s3_have_the_signatures_of_its_documentation() {
        let at = |path: &str| format!("https://examplebucket.s3.amazonaws.com{path}");
        let get = |path: &str| http::Request::get(at(path));
        assert_eq!(
            signature(get("/test.txt").header("range", "bytes=0-9"), "").await,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = http::Request::put(at("/test%24file.text"))
            .header("date", "Fri, 24 May 2013 00:00:00 GMT")
            .header("x-amz-storage-class", "REDUCED_REDUNDANCY");
        assert_eq!(
            signature(put, "Welcome to Amazon S3.").await,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature(get("/?lifecycle"), "").await,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature(get("/?max-keys=2&prefix=J"), "").await,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }
}
