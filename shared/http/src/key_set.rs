//! The keys of a JSON Web Key Set that can verify tokens.

use std::fmt::Write as _;

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use nameservice_model::{BoxError, chain};
use serde::Deserialize;
use serde_json::Value;

/// A key set that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key set cannot be used: {reason}")]
pub struct InvalidKeys {
    reason: String,
    #[source]
    source: Option<BoxError>,
}

impl InvalidKeys {
    pub(crate) fn new(reason: impl Into<String>, source: Option<BoxError>) -> Self {
        Self { reason: reason.into(), source }
    }
}

/// The curves that are registered (RFC 8037, 3.1; RFC 8812, 3.1), and that this service does not know, with their types of keys and
/// required members.
const OTHER_CURVES: [(&str, &str, &[&str]); 4] =
    [("Ed448", "OKP", &["x"]), ("X25519", "OKP", &["x"]), ("X448", "OKP", &["x"]), ("secp256k1", "EC", &["x", "y"])];
/// How many malformed entries are named in the log.
const NAMED: usize = 10;
/// The types of keys that are known (RFC 7518, 6.1; RFC 8037, 2). An entry of another type is not malformed.
const TYPES: [&str; 4] = ["RSA", "EC", "OKP", "oct"];

/// A public key that verifies tokens of one algorithm.
pub(crate) struct Key {
    id: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

/// The keys of a set that can be used.
pub(crate) struct KeySet {
    pub(crate) keys: Vec<Key>,
    /// Names the entries that are malformed; empty if none is.
    pub(crate) skipped: String,
}

/// What every key set has. Its entries are decoded one by one: a set is used without those that are malformed, or of a
/// kind that is not known (RFC 7517, 5).
#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

impl KeySet {
    /// Takes the keys that can verify RS256, ES256 or EdDSA. A set without any is one without keys, and withdraws those before, unless an
    /// entry is malformed: then it is rejected, since it may be the one that is meant to be used.
    pub(crate) fn parse(json: &str) -> Result<Self, InvalidKeys> {
        let Jwks { keys: entries } =
            serde_json::from_str(json).map_err(|error| InvalidKeys::new("it is not a JWKS", Some(error.into())))?;
        let (mut keys, mut skipped, mut malformed) = (Vec::new(), String::new(), 0);
        for entry in &entries {
            match key(entry) {
                Ok(Some(key)) => keys.push(key),
                Ok(None) => {}
                Err(error) => {
                    malformed += 1;
                    if malformed <= NAMED {
                        let id: String =
                            entry.get("kid").unwrap_or(&Value::Null).to_string().chars().take(100).collect();
                        let separator = if skipped.is_empty() { "" } else { "; " };
                        // Writing to a string does not fail.
                        let _ = write!(skipped, "{separator}kid {id}: {}", chain(error.as_ref()));
                    }
                }
            }
        }
        if malformed > NAMED {
            let _ = write!(skipped, "; and {} more", malformed - NAMED);
        }
        match keys.is_empty() && malformed > 0 {
            true => Err(InvalidKeys::new("none of its keys can be used", Some(skipped.into()))),
            false => Ok(Self { keys, skipped }),
        }
    }

    /// Takes the keys of a set that must have some, as one must to begin with.
    pub(crate) fn parse_some(json: &str) -> Result<Self, InvalidKeys> {
        let set = Self::parse(json)?;
        if set.keys.is_empty() { Err(none()) } else { Ok(set) }
    }
}

fn none() -> InvalidKeys {
    InvalidKeys::new("it has no key for RS256, ES256 or EdDSA", None)
}

/// Returns the key of an entry; `None` if it is one that this service does not use.
fn key(entry: &Value) -> Result<Option<Key>, BoxError> {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let is_other_curve = OTHER_CURVES.iter().any(|(curve, kind, members)| {
        let is_named = (text("crv"), text("kty")) == (Some(curve), Some(kind));
        is_named && members.iter().all(|member| text(member).is_some())
    });
    if text("kty").is_some_and(|name| !TYPES.contains(&name)) || is_other_curve {
        return Ok(None);
    }
    let jwk = Jwk::deserialize(entry)?;
    if matches!(jwk.algorithm, AlgorithmParameters::Other(_)) {
        return Err("its curve is unknown, or a member is missing or malformed".into());
    }
    let Some(algorithm) = algorithm(&jwk) else { return Ok(None) };
    let key = DecodingKey::from_jwk(&jwk)?;
    Ok(Some(Key { id: jwk.common.key_id, algorithm, key }))
}

/// The algorithm of a key. The key decides this, never the token.
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

/// The key that a token names. A token need not name it if there is only one.
pub(crate) fn find<'a>(keys: &'a [Key], id: Option<&str>) -> Option<&'a Key> {
    match (id, keys) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (id, keys) => keys.iter().find(|key| key.id.as_deref() == id),
    }
}
