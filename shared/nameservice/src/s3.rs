//! Credentials for S3, by the chain that serves DynamoDB too: variables, profiles, single sign-on, roles, the container, the
//! instance.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError};
use nameservice_files::{
    BucketOptions,
    object_store::{CredentialProvider, Error, Result, aws::AwsCredential},
};
use nameservice_model::BoxError;
use tokio::sync::Mutex;

/// The region for a store outside the cloud, which has none of its own.
const NO_REGION: &str = "us-east-1";
/// Credentials without an expiry are renewed after this time.
const LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Other credentials are renewed this long before they expire.
const MARGIN: Duration = Duration::from_secs(60);

/// Adds region and credentials to the options of a bucket of S3. Credentials are asked for with the first request.
pub(crate) async fn with_chain(options: BucketOptions) -> Result<BucketOptions, BoxError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_elsewhere = options.endpoint.is_some() || variable("AWS_ENDPOINT_URL").is_some();
    let named = options.region.clone().or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let named = named.or_else(|| is_elsewhere.then(|| NO_REGION.to_owned()));
    let config = crate::aws::config(named.as_deref()).await?;
    let region = config.region().map(|region| region.as_ref().to_owned());
    let options = options.region(region);
    Ok(match config.credentials_provider() {
        Some(provider) => options.credentials(Some(Arc::new(Chain::new(provider)))),
        None => options,
    })
}

/// The chain, with the credentials that it last returned.
#[derive(Debug)]
struct Chain {
    provider: SharedCredentialsProvider,
    /// The lock is held while the chain is asked, so that others wait for the same answer.
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    credential: Arc<AwsCredential>,
    renewed_at: SystemTime,
    /// When it expires; `None` if that is unknown.
    expires_at: Option<SystemTime>,
}

impl Chain {
    fn new(provider: SharedCredentialsProvider) -> Self {
        Self { provider, kept: Mutex::new(None) }
    }

    async fn credential(&self, now: SystemTime) -> Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_current(now)) {
            return Ok(kept.credential.clone());
        }
        match self.provider.provide_credentials().await {
            Ok(found) => {
                let credential = Arc::new(AwsCredential {
                    key_id: found.access_key_id().to_owned(),
                    secret_key: found.secret_access_key().to_owned(),
                    token: found.session_token().map(str::to_owned),
                });
                *kept = Some(Kept { credential: credential.clone(), renewed_at: now, expires_at: found.expiry() });
                Ok(credential)
            }
            // The current credentials can still be used, if not for long.
            Err(error) => match kept.as_ref().filter(|kept| kept.expires_at.is_none_or(|at| now < at)) {
                Some(kept) => {
                    tracing::warn!(error = nameservice_model::chain(&error), "AWS credentials cannot be renewed");
                    Ok(kept.credential.clone())
                }
                None => Err(unusable(error)),
            },
        }
    }
}

impl Kept {
    fn is_current(&self, now: SystemTime) -> bool {
        match self.expires_at {
            Some(at) => now + MARGIN < at,
            None => now < self.renewed_at + LIFETIME,
        }
    }
}

#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        self.credential(SystemTime::now()).await
    }
}

/// Without credentials no request is sent: nothing was written.
fn unusable(error: CredentialsError) -> Error {
    Error::Unauthenticated { path: "AWS credentials".to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use aws_credential_types::{Credentials, provider::future};

    use super::*;

    /// Gives numbered credentials with these expiries after the epoch, and fails after the last.
    #[derive(Debug)]
    struct Numbered {
        asked: AtomicU64,
        last: u64,
        expires_after: Option<Duration>,
    }

    impl ProvideCredentials for Numbered {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let n = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            future::ProvideCredentials::ready(match n <= self.last {
                true => {
                    let at = self.expires_after.map(|after| SystemTime::UNIX_EPOCH + after * n as u32);
                    Ok(Credentials::new(format!("KEY{n}"), "secret", Some("token".into()), at, "test"))
                }
                false => Err(CredentialsError::not_loaded("no more")),
            })
        }
    }

    async fn keys(last: u64, expires_after: Option<Duration>, at_minutes: &[u64]) -> Vec<Option<String>> {
        let numbered = Numbered { asked: AtomicU64::new(0), last, expires_after };
        let chain = Chain::new(SharedCredentialsProvider::new(numbered));
        let mut keys = Vec::new();
        for minutes in at_minutes {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes);
            keys.push(chain.credential(now).await.ok().map(|credential| credential.key_id.clone()));
        }
        keys
    }

    #[tokio::test]
    async fn credentials_are_kept_until_shortly_before_they_expire() {
        let hour = Some(Duration::from_secs(3_600));
        let named = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
        assert_eq!(keys(9, hour, &[0, 58, 59, 60, 119]).await, named(&["KEY1", "KEY1", "KEY2", "KEY2", "KEY3"]));
        assert_eq!(keys(9, None, &[0, 14, 16, 17]).await, named(&["KEY1", "KEY1", "KEY2", "KEY2"]));
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_renewed_serve_until_they_expire() {
        let hour = Some(Duration::from_secs(3_600));
        let one = Some("KEY1".to_owned());
        assert_eq!(keys(1, hour, &[0, 58, 59, 61]).await, [one.clone(), one.clone(), one, None]);
        assert_eq!(keys(0, hour, &[0]).await, [None]);
    }
}
