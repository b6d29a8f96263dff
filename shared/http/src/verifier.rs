//! Checks tokens against a key set. Only code that constructs a [`Verifier`] links the cryptography: the rest of the
//! service uses it through a vtable.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use nameservice_model::{BoxError, Object, chain};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    key_source::{KeySource, NO_KEYS},
    problem::Problem,
    signatures,
};

/// How far apart the clocks of issuer and service may be, in seconds.
const LEEWAY: u64 = 5;
/// The minimum time between reads of a key set because a token names an unknown key: anybody can send such tokens.
const READ_FOR_UNKNOWN_KEYS_EVERY: Duration = Duration::from_secs(10);

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
    /// Takes the keys of a JSON Web Key Set that can verify RS256, ES256 or EdDSA, and ignores others. Tokens must be of
    /// this issuer (`iss`), and for this audience (`aud`, or `client_id` in a token without one).
    pub fn from_jwks(json: &str, issuer: Required, audience: Required) -> Result<Self, InvalidKeys> {
        Ok(Self::new(some_keys(keys(json)?)?, None, issuer, audience))
    }

    /// Returns a verifier over the keys of a source, which is read again when it changes and, at limited intervals, when a token names an
    /// unknown key. If a changed key set cannot be used, that is logged, and the previous keys stay; one that is empty, or
    /// that was deleted, is a set without keys.
    pub async fn from_source(
        source: Arc<dyn KeySource>,
        issuer: Required,
        audience: Required,
    ) -> Result<Self, InvalidKeys> {
        let keys = some_keys(read(source.as_ref()).await?)?;
        Ok(Self::new(keys, Some(source), issuer, audience))
    }

    /// Returns a verifier over the keys of a source, that begins with those of a key set: they are used until the source has
    /// answered for the first time.
    pub fn from_jwks_until(
        json: &str,
        source: Arc<dyn KeySource>,
        issuer: Required,
        audience: Required,
    ) -> Result<Self, InvalidKeys> {
        Ok(Self::new(some_keys(keys(json)?)?, Some(source), issuer, audience))
    }

    fn new(keys: Vec<Key>, source: Option<Arc<dyn KeySource>>, issuer: Required, audience: Required) -> Self {
        signatures::install();
        let source = source.map(|source| Source { source, read_for_unknown_key: tokio::sync::Mutex::default() });
        Self(Arc::new(Jwks { keys: Mutex::new(keys.into()), source, issuer, audience }))
    }

    /// Reads the key set again, if it has a source.
    pub async fn reload(&self) {
        self.0.reload().await;
    }

    /// Returns the claims of a token if it is valid.
    pub(crate) async fn claims(&self, token: &str) -> Result<Object, Problem> {
        self.0.claims(token).await
    }
}

async fn read(source: &dyn KeySource) -> Result<Vec<Key>, InvalidKeys> {
    let json = source.read().await;
    keys(&json.map_err(|error| InvalidKeys { reason: "it cannot be read".into(), source: Some(error) })?)
}

fn keys(json: &str) -> Result<Vec<Key>, InvalidKeys> {
    let invalid = |reason: &str, source: Option<BoxError>| InvalidKeys { reason: reason.into(), source };
    let json = if json.trim().is_empty() { NO_KEYS } else { json };
    let set: JwkSet = serde_json::from_str(json).map_err(|error| invalid("it is not a JWKS", Some(error.into())))?;
    let keys = set
        .keys
        .iter()
        .filter_map(|jwk| Some((algorithm(jwk)?, jwk)))
        .map(|(algorithm, jwk)| {
            let key = DecodingKey::from_jwk(jwk).map_err(|error| invalid("a key is malformed", Some(error.into())))?;
            Ok(Key { id: jwk.common.key_id.clone(), algorithm, key })
        })
        .collect::<Result<Vec<_>, InvalidKeys>>()?;
    Ok(keys)
}

/// A key set with keys, as one must have to begin with.
fn some_keys(keys: Vec<Key>) -> Result<Vec<Key>, InvalidKeys> {
    match keys.is_empty() {
        true => Err(InvalidKeys { reason: "it has no key for RS256, ES256 or EdDSA".into(), source: None }),
        false => Ok(keys),
    }
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

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

struct Jwks {
    keys: Mutex<Arc<[Key]>>,
    source: Option<Source>,
    issuer: Required,
    audience: Required,
}

struct Source {
    source: Arc<dyn KeySource>,
    /// When it was last read because of an unknown key. The lock is held during the read, so that waiting callers find the
    /// new keys.
    read_for_unknown_key: tokio::sync::Mutex<Option<Instant>>,
}

impl Jwks {
    fn keys(&self) -> Arc<[Key]> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read_again(&self, source: &dyn KeySource) {
        match read(source).await {
            Ok(keys) => {
                match keys.is_empty() {
                    true => tracing::warn!(?source, "the key set no longer has any keys: no token is valid"),
                    false => tracing::info!(?source, keys = keys.len(), "the key set was read again"),
                }
                *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys.into();
            }
            Err(error) => {
                tracing::error!(
                    ?source,
                    error = chain(&error),
                    "the key set cannot be used: the previous keys stay in use"
                );
            }
        }
    }

    /// Returns the keys if the one that a token names is among them, after another read if necessary.
    async fn keys_with(&self, id: Option<&str>) -> Option<Arc<[Key]>> {
        if let Some(source) = self.source.as_ref().filter(|source| source.source.is_due()) {
            self.read_again(source.source.as_ref()).await;
        }
        let keys = self.keys();
        if find(&keys, id).is_some() {
            return Some(keys);
        }
        let source = self.source.as_ref()?;
        let mut last = source.read_for_unknown_key.lock().await;
        if last.is_none_or(|last| last.elapsed() >= READ_FOR_UNKNOWN_KEYS_EVERY) {
            *last = Some(Instant::now());
            self.read_again(source.source.as_ref()).await;
        }
        let keys = self.keys();
        find(&keys, id).is_some().then_some(keys)
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

/// The key that a token names. A token need not name it if there is only one.
fn find<'a>(keys: &'a [Key], id: Option<&str>) -> Option<&'a Key> {
    match (id, keys) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (id, keys) => keys.iter().find(|key| key.id.as_deref() == id),
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
        let keys = self.keys_with(id).await.ok_or_else(unknown)?;
        let claims = self.decoded(token, find(&keys, id).ok_or_else(unknown)?)?;
        if !self.is_audience(&claims) {
            return Err(Problem::invalid_token("the token is for another audience"));
        }
        Ok(claims)
    }

    async fn reload(&self) {
        if let Some(source) = &self.source {
            self.read_again(source.source.as_ref()).await;
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
mod tests {
    use std::{fs, path::PathBuf, sync::LazyLock};

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use jsonwebtoken::{
        EncodingKey, Header,
        crypto::{CryptoProvider, rust_crypto::DEFAULT_PROVIDER},
        encode, get_current_timestamp,
    };
    use serde_json::json;

    use super::*;
    use crate::key_source::KeyFile;

    /// PKCS #1, made for these tests.
    const RSA_KEY: &str = "\
        MIIEowIBAAKCAQEAkI934XzIrGt5lZE3ofFeOdhTW0MDgwHiQ2sG6YbEPrCpcchJCSi4eZQ3ycEUVvD4SCIJla3vFFgLzFDEOYPT\
        ELysxOUAkupVeZZyjBBdmB9ONhCEWumOzOIGEAgnaLP/3zGHN4H38iM0BwnF2WfK0CIwQkCljRRgpV7dh8loL5WUBYfoQyJ/Qo4F\
        JnEjIWn9DL39V8B8Xx5isfWyUx18bxaL/JnGcBlLATP5k2rxdvSOValhfYU4kZMNtvr1mhCjPoHlT9WvopdJB4xo/94hEmovL5UY\
        KmW3EjENxdBIeiHPMYWT9dabH5wVsWObR7gIGlc8u9WEjVDut56FT7H7cQIDAQABAoIBAAYJUaGTMPt/LOdtlg+/eRZsBbYNvzGr\
        JFg5mcMqXxs5jAfN69vTrRlZkrdMZlWnkAyODE2pYs58CzkTxc/bhPah1EqP//VCjwFp4nxeChR6OS05hRdZQZ7lUMi+WGvvOT/o\
        DOwI07JTHT7ufeohQwcsKEz571fL6im5o4FCLCUxdxjXBQ5YeuC8AAHbNvyO8QDgzpOQSoGPlEod7tiP6WC7OyhZXi64gWEWiFM1\
        73bC5b2a5JOOt/m48F3GB8tUHBRAk8dP6ktygxI1igqghDd6zpY2QC8quUu89BpqumvCeHKuds1YTlKXGPGmdF1E8e5bjyNlaygn\
        hwyXOSzuBekCgYEAwnuGym0GOfJREZeC8p5wAD5odvOOCfpJ5XhNUGfwbEkwSE7ojtESEBHHV/kP/+/+2fIwapoDrRS1axxRoB3z\
        SkU3WOE8RAaxv71+0dWEuLjXTj7OsoJ6h1T9vFUhZSq/M01Igi4ezuRYHqey2prQxb9lTO+ueuiNth2tp4CB0bkCgYEAvklvYb1p\
        M/nHLYv8gUlM7v1hy6Cg3wmyWOM/T4CUbNmvORau9SALpxDIHZZC+rkaBg3Lnl0lhBpnsFvg4dQagMdernJAupYUbKe9m9PBYwSk\
        wFyFHJ2yGoT3vobbjEFOFGBJ4wNs2hMGXKD/qz6AgPG380lGx6PhSettzqD+M3kCgYBe/w+cGR0NePt4aFWiRRnYRKOqVtVusj8e\
        Q2EggWTCwA1BhKm7+QulpcmFgzb5gTUvKEnWCFz7Uj47j52fZIHOKXkbhQl3AP4Z9mnX/T/TKxagNbWpJGrNaAp4z+x8CiFS4dEl\
        JXoO/SK99pQ6i5ymuxK0Pe8wQh/WcTC9vNusoQKBgADcBAzE9jyt3CBwiWtsEVTjABYTW6amPI/6Nsb9Ja54LTpsx82Dn4nZoY3A\
        p/zJ6Twtw8WrVggKtn0tbQ6YDqaWP+85xOES3HTBLTIO+siftL7JrDA85hkIkLXjlgpEIT4mUS8dTNiPTXANqhnz5lCuxs3qfs9Y\
        BiR3U7+jKoLBAoGBALhNJl5uO5knuNPPCWp3BRP70ztdtUamixgRNvB3Wwr43SnP0RCBV3ukOatIQg1vZntik7uu5s+Cy/hW+kJU\
        Vw2GmbNGICp8x1HjvumsOPic4H+8CFhMEDYwMaFThSg2XInq3nSgMj6bURO63fVn+0DJ0Ngo/mWSpSlkWipTmnaG";
    /// What PKCS #8 puts before the 32 bytes of a private key.
    const ED25519_FRAME: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    const P256_FRAME: &[u8] =
        b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\
        \x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20";

    /// Signs with RustCrypto what the service verifies with ring.
    fn key(algorithm: Algorithm, seed: u8) -> EncodingKey {
        static SIGNING: LazyLock<CryptoProvider> = LazyLock::new(|| CryptoProvider {
            verifier_factory: signatures::TOKEN_SIGNATURES.verifier_factory,
            ..DEFAULT_PROVIDER.clone()
        });
        let _ = SIGNING.install_default();
        match algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_der(&STANDARD.decode(RSA_KEY).unwrap()),
            Algorithm::ES256 => EncodingKey::from_ec_der(&[P256_FRAME, &[seed; 32]].concat()),
            _ => EncodingKey::from_ed_der(&[ED25519_FRAME, &[seed; 32]].concat()),
        }
    }

    fn jwk(algorithm: Algorithm, id: &str) -> Value {
        let mut jwk = Jwk::from_encoding_key(&key(algorithm, 7), algorithm).unwrap();
        jwk.common.key_id = Some(id.into());
        json!(jwk)
    }

    fn keys() -> Value {
        json!({"keys": [
            jwk(Algorithm::RS256, "r"), jwk(Algorithm::ES256, "e"), jwk(Algorithm::EdDSA, "d"),
            {"kty": "oct", "kid": "h", "k": "c2VjcmV0", "alg": "HS256"},
        ]})
    }

    fn verifier() -> Verifier {
        Verifier::from_jwks(&keys().to_string(), Required::Exactly("issuer".into()), Required::Exactly("us".into()))
            .unwrap()
    }

    fn claims() -> Value {
        json!({"iss": "issuer", "aud": ["them", "us"], "sub": "s", "exp": get_current_timestamp() + 60})
    }

    fn token(algorithm: Algorithm, id: &str, key: &EncodingKey, claims: &Value) -> String {
        let mut header = Header::new(algorithm);
        header.kid = Some(id.into());
        encode(&header, claims, key).unwrap()
    }

    async fn rejected(token: &str) -> bool {
        verifier().claims(token).await.is_err_and(|problem| problem.kind() == crate::problem::Kind::Unauthorized)
    }

    #[tokio::test]
    async fn tokens_of_the_three_algorithms_hold() {
        for (algorithm, id) in [(Algorithm::RS256, "r"), (Algorithm::ES256, "e"), (Algorithm::EdDSA, "d")] {
            let token = token(algorithm, id, &key(algorithm, 7), &claims());
            assert_eq!(verifier().claims(&token).await.unwrap()["sub"], "s", "{algorithm:?}");
        }
    }

    #[tokio::test]
    async fn a_token_that_another_key_or_no_key_has_signed_does_not() {
        let good = key(Algorithm::EdDSA, 7);
        assert!(rejected(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 8), &claims())).await);
        assert!(rejected(&token(Algorithm::EdDSA, "unknown", &good, &claims())).await);
        assert!(rejected(&token(Algorithm::EdDSA, "e", &good, &claims())).await);
        let symmetric = EncodingKey::from_secret(b"secret");
        assert!(rejected(&token(Algorithm::HS256, "h", &symmetric, &claims())).await);
        assert!(rejected(&token(Algorithm::HS256, "r", &symmetric, &claims())).await);
        let mut unsigned = token(Algorithm::EdDSA, "d", &good, &claims());
        unsigned.truncate(unsigned.rfind('.').unwrap() + 1);
        assert!(rejected(&unsigned).await);
        // {"alg":"none","kid":"d"}
        let none = format!("eyJhbGciOiJub25lIiwia2lkIjoiZCJ9.{}.", unsigned.split('.').nth(1).unwrap());
        assert!(rejected(&none).await);
        assert!(rejected("").await && rejected("a.b").await && rejected("a.b.c").await);
        // Several keys, and none named.
        assert!(rejected(&encode(&Header::new(Algorithm::EdDSA), &claims(), &good).unwrap()).await);
    }

    #[tokio::test]
    async fn a_token_with_critical_headers_does_not() {
        let good = token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims());
        let (_, rest) = good.split_once('.').unwrap();
        let header = json!({"alg": "EdDSA", "kid": "d", "crit": ["exp2"], "exp2": 1}).to_string();
        let encoded = URL_SAFE_NO_PAD.encode(header);
        let problem = verifier().claims(&format!("{encoded}.{rest}")).await.unwrap_err();
        assert!(problem.document().detail.contains("critical"), "{}", problem.document().detail);
    }

    #[tokio::test]
    async fn a_token_out_of_its_time_or_place_does_not() {
        let now = get_current_timestamp();
        for (name, value) in [
            ("exp", json!(now - 60)),
            ("exp", Value::Null),
            ("nbf", json!(now + 60)),
            ("iss", json!("other")),
            ("iss", Value::Null),
            ("aud", json!("them")),
            ("aud", json!([])),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            assert!(
                rejected(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)).await,
                "{name} {value}"
            );
        }
    }

    #[tokio::test]
    async fn a_token_without_audience_is_for_its_client() {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove("aud");
        assert!(rejected(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)).await);
        claims["client_id"] = json!("us");
        assert!(!rejected(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)).await);
    }

    #[tokio::test]
    async fn a_key_set_without_a_usable_key_is_rejected() {
        for keys in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#] {
            assert!(Verifier::from_jwks(keys, Required::Any, Required::Any).is_err(), "{keys}");
        }
        let mut keys = keys();
        for key in keys["keys"].as_array_mut().unwrap() {
            key["use"] = json!("enc");
        }
        assert!(Verifier::from_jwks(&keys.to_string(), Required::Any, Required::Any).is_err());
    }

    #[tokio::test]
    async fn a_key_that_came_into_the_file_later_is_found_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let set = |id: &str| json!({"keys": [jwk(Algorithm::EdDSA, id)]}).to_string();
        fs::write(&path, set("old")).unwrap();
        let from = |path: PathBuf| Verifier::from_source(Arc::new(KeyFile::new(path)), Required::Any, Required::Any);
        let verifier = from(path.clone()).await.unwrap();
        let signed = |id: &str| token(Algorithm::EdDSA, id, &key(Algorithm::EdDSA, 7), &claims());
        assert!(verifier.claims(&signed("old")).await.is_ok());
        fs::write(&path, set("new")).unwrap();
        assert!(verifier.claims(&signed("new")).await.is_ok());
        assert!(verifier.claims(&signed("old")).await.is_err());
        fs::write(&path, "{").unwrap();
        assert!(verifier.claims(&signed("new")).await.is_ok());
        assert!(from(path.clone()).await.is_err());
        // An emptied set has no keys, and neither has one that was deleted.
        for empty in [Some(r#"{"keys": []}"#), Some(""), None] {
            fs::write(&path, set("new")).unwrap();
            verifier.reload().await;
            assert!(verifier.claims(&signed("new")).await.is_ok());
            match empty {
                Some(empty) => fs::write(&path, empty).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            verifier.reload().await;
            assert!(verifier.claims(&signed("new")).await.is_err(), "{empty:?}");
        }
        assert!(from(directory.path().join("nowhere")).await.is_err());
    }
}
