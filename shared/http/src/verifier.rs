//! Checks tokens against a key set. Only what makes a [`Verifier`] links the cryptography: the rest of the service
//! knows it through a vtable.

use std::{fmt, sync::Arc};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use nameservice_model::{BoxError, Object};
use serde_json::Value;

use crate::problem::Problem;

/// How far the clocks of issuer and service may be apart, in seconds.
const LEEWAY: u64 = 5;

/// Checks signature, times, issuer and audience of tokens.
#[derive(Clone)]
pub struct Verifier(Arc<dyn Verify>);

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

trait Verify: Send + Sync {
    fn claims(&self, token: &str) -> Result<Object, Problem>;
}

/// A key set that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key set cannot be used: {reason}")]
pub struct InvalidKeys {
    reason: String,
    #[source]
    source: Option<BoxError>,
}

impl Verifier {
    /// Takes the keys of a JSON Web Key Set that can check RS256, ES256 or EdDSA; others are passed over. Tokens must
    /// be of this issuer, and for this audience (`aud`, or `client_id` in a token without one), where given.
    pub fn from_jwks(json: &str, issuer: Option<String>, audience: Option<String>) -> Result<Self, InvalidKeys> {
        let refuse = |reason: &str, source: Option<BoxError>| InvalidKeys { reason: reason.into(), source };
        let set: JwkSet = serde_json::from_str(json).map_err(|error| refuse("it is not a JWKS", Some(error.into())))?;
        let keys = set
            .keys
            .iter()
            .filter_map(|jwk| Some((algorithm(jwk)?, jwk)))
            .map(|(algorithm, jwk)| {
                let key =
                    DecodingKey::from_jwk(jwk).map_err(|error| refuse("a key is malformed", Some(error.into())))?;
                Ok(Key { id: jwk.common.key_id.clone(), algorithm, key })
            })
            .collect::<Result<Vec<_>, InvalidKeys>>()?;
        if keys.is_empty() {
            return Err(refuse("it has no key for RS256, ES256 or EdDSA", None));
        }
        Ok(Self(Arc::new(Jwks { keys, issuer, audience })))
    }

    /// The claims of a token that holds.
    pub(crate) fn claims(&self, token: &str) -> Result<Object, Problem> {
        self.0.claims(token)
    }
}

/// What a key signs with. The key decides this, never the token.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    let declared = jwk.common.key_algorithm.is_none_or(|declared| Algorithm::try_from(declared) == Ok(algorithm));
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    (declared && signs).then_some(algorithm)
}

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

struct Jwks {
    keys: Vec<Key>,
    issuer: Option<String>,
    audience: Option<String>,
}

impl Jwks {
    /// The key that the token names. A token may leave the name out where there is no choice.
    fn key(&self, id: Option<&str>) -> Option<&Key> {
        match (id, self.keys.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (id, keys) => keys.iter().find(|key| key.id.as_deref() == id),
        }
    }

    fn is_audience(&self, claims: &Object) -> bool {
        let Some(audience) = self.audience.as_deref() else { return true };
        match claims.get("aud").or_else(|| claims.get("client_id")) {
            Some(Value::String(text)) => text == audience,
            Some(Value::Array(texts)) => texts.iter().any(|text| text == audience),
            _ => false,
        }
    }
}

impl Verify for Jwks {
    fn claims(&self, token: &str) -> Result<Object, Problem> {
        let header = decode_header(token)
            .map_err(|_| Problem::invalid_token("the token is not a JWT, or of an algorithm that is not taken"))?;
        let key = self
            .key(header.kid.as_deref())
            .ok_or_else(|| Problem::invalid_token("the token is signed with a key that is not known here"))?;
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        // Checked below, with the gateway's rule for tokens without `aud`.
        validation.validate_aud = false;
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            validation.set_required_spec_claims(&["exp", "iss"]);
        }
        let claims = decode::<Object>(token, &key.key, &validation)
            .map_err(|error| Problem::invalid_token(sentence(error.kind())))?
            .claims;
        if !self.is_audience(&claims) {
            return Err(Problem::invalid_token("the token is for another audience"));
        }
        Ok(claims)
    }
}

fn sentence(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "the token is of an algorithm that is not its key's"
        }
        ErrorKind::InvalidSignature => "the signature does not hold",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks exp or iss",
        _ => "the token is malformed",
    }
}
