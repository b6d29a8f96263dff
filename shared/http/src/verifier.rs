//! Checks tokens against a key set. Only code that constructs a [`Verifier`] links the cryptography: the rest of the
//! service uses it through a vtable.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Validation, decode, decode_header, errors::ErrorKind};
use nameservice_model::Object;
use serde_json::Value;

use crate::{
    fresh_keys::{FreshKeys, NoKey},
    key_set::{InvalidKeys, Key, KeySet, find},
    key_source::KeySource,
    problem::Problem,
    signatures,
};

/// How far apart the clocks of issuer and service may be, in seconds.
const LEEWAY: u64 = 5;

/// What a claim of every token must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Required {
    /// This.
    Exactly(String),
    /// Anything: any token that the keys have signed is valid, regardless of its issuer and audience.
    Any,
}

impl Required {
    fn exactly(&self) -> Option<&str> {
        match self {
            Self::Exactly(text) => Some(text),
            Self::Any => None,
        }
    }
}

/// Checks signature, times, issuer and audience of tokens.
#[derive(Clone)]
pub struct Verifier(Arc<dyn Verify>);

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

#[async_trait]
trait Verify: Send + Sync {
    async fn claims(&self, token: &str) -> Result<Object, Problem>;

    async fn reload(&self);

    fn sample(&self);

    fn lacks_keys(&self) -> bool;
}

impl Verifier {
    /// Takes the keys of a JSON Web Key Set that can verify RS256, ES256 or EdDSA, and ignores others. Tokens must be of
    /// this issuer (`iss`), and for this audience (`aud`, or `client_id` in a token without one).
    pub fn from_jwks(json: &str, issuer: Required, audience: Required) -> Result<Self, InvalidKeys> {
        let KeySet { keys, skipped } = KeySet::parse_some(json)?;
        if !skipped.is_empty() {
            tracing::warn!(keys = skipped, "keys of the set are malformed, and not used");
        }
        Ok(Self::new(Keys::Fixed(keys.into()), issuer, audience))
    }

    /// Returns a verifier over the keys of a source, which is read again when it changes or its time is over and, at limited
    /// intervals, when a token names an unknown key. If a changed key set cannot be used, that is logged, and the previous
    /// keys stay; one that is empty, or that was deleted, is a set without keys.
    ///
    /// A source that may be away (a URL) need not answer yet: until it has, tokens are answered 503.
    pub async fn from_source(
        source: Arc<dyn KeySource>,
        issuer: Required,
        audience: Required,
    ) -> Result<Self, InvalidKeys> {
        Ok(Self::new(Keys::Fresh(FreshKeys::read(source).await?), issuer, audience))
    }

    /// Returns a verifier over the keys of a source, that begins with those of a key set: they are used until the source has
    /// answered for the first time.
    pub fn from_jwks_until(
        json: &str,
        source: Arc<dyn KeySource>,
        issuer: Required,
        audience: Required,
    ) -> Result<Self, InvalidKeys> {
        Ok(Self::new(Keys::Fresh(FreshKeys::from_set(KeySet::parse_some(json)?, source)), issuer, audience))
    }

    fn new(keys: Keys, issuer: Required, audience: Required) -> Self {
        signatures::install();
        Self(Arc::new(Jwks { keys, issuer, audience }))
    }

    /// Reads the key set again, if it has a source.
    pub async fn reload(&self) {
        self.0.reload().await;
    }

    /// Returns whether no key set could be read yet: every token is answered 503.
    pub fn lacks_keys(&self) -> bool {
        self.0.lacks_keys()
    }

    /// Sets the gauge of the age of the keys, if they are read again by their age.
    pub(crate) fn sample(&self) {
        self.0.sample();
    }

    /// Returns the claims of a token if it is valid.
    pub(crate) async fn claims(&self, token: &str) -> Result<Object, Problem> {
        self.0.claims(token).await
    }
}

/// Where the keys come from.
enum Keys {
    /// They are given, and stay.
    Fixed(Arc<[Key]>),
    Fresh(FreshKeys),
}

struct Jwks {
    keys: Keys,
    issuer: Required,
    audience: Required,
}

impl Jwks {
    /// Returns the keys if the one that a token names is among them.
    async fn keys_with(&self, id: Option<&str>) -> Result<Arc<[Key]>, NoKey> {
        match &self.keys {
            Keys::Fixed(keys) => find(keys, id).map(|_| keys.clone()).ok_or(NoKey::Unknown),
            Keys::Fresh(keys) => keys.with(id).await,
        }
    }

    fn decoded(&self, token: &str, key: &Key) -> Result<Object, Problem> {
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        // Checked separately, by the gateway's rule for tokens without `aud`.
        validation.validate_aud = false;
        if let Some(issuer) = self.issuer.exactly() {
            validation.set_issuer(&[issuer]);
            validation.set_required_spec_claims(&["exp", "iss"]);
        }
        let decoded = decode::<Object>(token, &key.key, &validation);
        Ok(decoded.map_err(|error| Problem::invalid_token(&sentence(error.kind())))?.claims)
    }

    fn is_audience(&self, claims: &Object) -> bool {
        let Some(audience) = self.audience.exactly() else { return true };
        match claims.get("aud").or_else(|| claims.get("client_id")) {
            Some(Value::String(text)) => text == audience,
            Some(Value::Array(texts)) => texts.iter().any(|text| text == audience),
            _ => false,
        }
    }
}

#[async_trait]
impl Verify for Jwks {
    async fn claims(&self, token: &str) -> Result<Object, Problem> {
        let header = decode_header(token)
            .map_err(|_| Problem::invalid_token("the token is not a JWT, or its algorithm is not supported"))?;
        if has_critical(token) {
            return Err(Problem::invalid_token("the token has critical headers, which this service does not support"));
        }
        let id = header.kid.as_deref();
        let unknown = || Problem::invalid_token("the token is signed with an unknown key");
        let keys = self.keys_with(id).await.map_err(|missing| match missing {
            NoKey::Unknown => unknown(),
            NoKey::NotYet => Problem::keys_not_read(),
        })?;
        let claims = self.decoded(token, find(&keys, id).ok_or_else(unknown)?)?;
        if !self.is_audience(&claims) {
            return Err(Problem::invalid_token("the token is for another audience"));
        }
        Ok(claims)
    }

    async fn reload(&self) {
        if let Keys::Fresh(keys) = &self.keys {
            keys.reload().await;
        }
    }

    fn sample(&self) {
        if let Keys::Fresh(keys) = &self.keys {
            keys.sample();
        }
    }

    fn lacks_keys(&self) -> bool {
        match &self.keys {
            Keys::Fixed(_) => false,
            Keys::Fresh(keys) => keys.are_missing(),
        }
    }
}

/// Whether the header of a token names extensions that a verifier must reject if it does not know them (RFC 7515, 4.1.11).
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    let header = header.and_then(|header| serde_json::from_slice::<Object>(&header).ok());
    header.is_none_or(|header| header.contains_key("crit"))
}

fn sentence(kind: &ErrorKind) -> String {
    let text = match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token was issued by another issuer",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => "the token's algorithm does not match its key",
        ErrorKind::InvalidSignature => "invalid token signature",
        ErrorKind::MissingRequiredClaim(claim) => return format!("the token has no `{claim}` claim"),
        _ => "the token is malformed",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests;
