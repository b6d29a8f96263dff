//! Checks tokens against a key set. Only what makes a [`Verifier`] links the cryptography: the rest of the service
//! knows it through a vtable.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use nameservice_model::{BoxError, Object, chain};
use serde_json::Value;

use crate::problem::Problem;

/// How far the clocks of issuer and service may be apart, in seconds.
const LEEWAY: u64 = 5;
/// How often a key set's file is looked at for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is read because a token names a key that is not in it: anybody can send such tokens.
const READ_FOR_UNKNOWN_KEYS_EVERY: Duration = Duration::from_secs(10);

/// What a claim of every token must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Required {
    /// This.
    Exactly(String),
    /// Anything: any token that the keys have signed is valid, whoever it was issued by or for.
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
    /// Takes the keys of a JSON Web Key Set that can check RS256, ES256 or EdDSA; others are passed over. Tokens must be
    /// of this issuer (`iss`), and for this audience (`aud`, or `client_id` in a token without one).
    pub fn from_jwks(json: &str, issuer: Required, audience: Required) -> Result<Self, InvalidKeys> {
        Ok(Self(Arc::new(Jwks { keys: Mutex::new(keys(json)?.into()), file: None, issuer, audience })))
    }

    /// The same from a file, which is read again when it changes, and (not often) when a token names a key that is not
    /// in it. A changed file that cannot be used is logged, and the keys before it stay.
    pub fn from_file(path: impl Into<PathBuf>, issuer: Required, audience: Required) -> Result<Self, InvalidKeys> {
        let file = File { path: path.into(), read: Mutex::new(LastRead::of(Instant::now())) };
        let keys = Mutex::new(file.keys()?.into());
        Ok(Self(Arc::new(Jwks { keys, file: Some(file), issuer, audience })))
    }

    /// The claims of a token that holds.
    pub(crate) fn claims(&self, token: &str) -> Result<Object, Problem> {
        self.0.claims(token)
    }
}

fn keys(json: &str) -> Result<Vec<Key>, InvalidKeys> {
    let invalid = |reason: &str, source: Option<BoxError>| InvalidKeys { reason: reason.into(), source };
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
    match keys.is_empty() {
        true => Err(invalid("it has no key for RS256, ES256 or EdDSA", None)),
        false => Ok(keys),
    }
}

/// A file that holds a key set.
struct File {
    path: PathBuf,
    read: Mutex<LastRead>,
}

struct LastRead {
    modified: Option<SystemTime>,
    looked_at: Instant,
    /// For a key that was not there.
    read_at: Option<Instant>,
}

impl LastRead {
    fn of(now: Instant) -> Self {
        Self { modified: None, looked_at: now, read_at: None }
    }
}

impl File {
    /// Reads the file, and remembers which state of it this was.
    fn keys(&self) -> Result<Vec<Key>, InvalidKeys> {
        // Looked at first: what is written meanwhile is another state.
        let modified = modified(&self.path);
        let invalid =
            |error: io::Error| InvalidKeys { reason: "its file cannot be read".into(), source: Some(error.into()) };
        let keys = keys(&fs::read_to_string(&self.path).map_err(invalid)?);
        self.last_read().modified = modified;
        keys
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is to be read again. Answers so once.
    fn has_changed(&self) -> bool {
        let mut last = self.last_read();
        if last.looked_at.elapsed() < LOOK_EVERY {
            return false;
        }
        last.looked_at = Instant::now();
        let modified = modified(&self.path);
        modified.is_some() && modified != last.modified
    }

    /// Whether the file may be read for a key that is not known.
    fn may_read(&self) -> bool {
        let mut last = self.last_read();
        let may = last.read_at.is_none_or(|read_at| read_at.elapsed() >= READ_FOR_UNKNOWN_KEYS_EVERY);
        if may {
            last.read_at = Some(Instant::now());
        }
        may
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
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
    keys: Mutex<Arc<[Key]>>,
    file: Option<File>,
    issuer: Required,
    audience: Required,
}

impl Jwks {
    fn keys(&self) -> Arc<[Key]> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read_again(&self, file: &File) {
        match file.keys() {
            Ok(keys) => {
                tracing::info!(path = %file.path.display(), keys = keys.len(), "the key set was read again");
                *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys.into();
            }
            Err(error) => {
                let path = file.path.display();
                tracing::error!(%path, error = chain(&error), "the changed key set cannot be used: the keys before it stay");
            }
        }
    }

    /// Calls `with` with the key that a token names, where it is known.
    fn with_key<T>(&self, id: Option<&str>, with: impl Fn(&Key) -> T) -> Option<T> {
        if let Some(file) = self.file.as_ref().filter(|file| file.has_changed()) {
            self.read_again(file);
        }
        if let Some(key) = find(&self.keys(), id) {
            return Some(with(key));
        }
        let file = self.file.as_ref().filter(|file| file.may_read())?;
        self.read_again(file);
        find(&self.keys(), id).map(with)
    }

    fn decoded(&self, token: &str, key: &Key) -> Result<Object, Problem> {
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        // Checked apart, with the gateway's rule for tokens without `aud`.
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

/// The key that a token names. A token may leave the name out where there is no choice.
fn find<'a>(keys: &'a [Key], id: Option<&str>) -> Option<&'a Key> {
    match (id, keys) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (id, keys) => keys.iter().find(|key| key.id.as_deref() == id),
    }
}

impl Verify for Jwks {
    fn claims(&self, token: &str) -> Result<Object, Problem> {
        let header = decode_header(token)
            .map_err(|_| Problem::invalid_token("the token is not a JWT, or of an algorithm that is not taken"))?;
        let claims = self
            .with_key(header.kid.as_deref(), |key| self.decoded(token, key))
            .ok_or_else(|| Problem::invalid_token("the token is signed with a key that is not known here"))??;
        if !self.is_audience(&claims) {
            return Err(Problem::invalid_token("the token is for another audience"));
        }
        Ok(claims)
    }
}

fn sentence(kind: &ErrorKind) -> String {
    let text = match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "the token is of an algorithm that is not its key's"
        }
        ErrorKind::InvalidSignature => "invalid token signature",
        ErrorKind::MissingRequiredClaim(claim) => return format!("the token has no `{claim}` claim"),
        _ => "the token is malformed",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    use serde_json::json;

    use super::*;

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

    fn key(algorithm: Algorithm, seed: u8) -> EncodingKey {
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

    fn refused(token: &str) -> bool {
        verifier().claims(token).is_err_and(|problem| problem.kind() == crate::problem::Kind::Unauthorized)
    }

    #[test]
    fn tokens_of_the_three_algorithms_hold() {
        for (algorithm, id) in [(Algorithm::RS256, "r"), (Algorithm::ES256, "e"), (Algorithm::EdDSA, "d")] {
            let token = token(algorithm, id, &key(algorithm, 7), &claims());
            assert_eq!(verifier().claims(&token).unwrap()["sub"], "s", "{algorithm:?}");
        }
    }

    #[test]
    fn a_token_that_another_key_or_no_key_has_signed_does_not() {
        let good = key(Algorithm::EdDSA, 7);
        assert!(refused(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 8), &claims())));
        assert!(refused(&token(Algorithm::EdDSA, "unknown", &good, &claims())));
        assert!(refused(&token(Algorithm::EdDSA, "e", &good, &claims())));
        let symmetric = EncodingKey::from_secret(b"secret");
        assert!(refused(&token(Algorithm::HS256, "h", &symmetric, &claims())));
        assert!(refused(&token(Algorithm::HS256, "r", &symmetric, &claims())));
        let mut unsigned = token(Algorithm::EdDSA, "d", &good, &claims());
        unsigned.truncate(unsigned.rfind('.').unwrap() + 1);
        assert!(refused(&unsigned));
        // {"alg":"none","kid":"d"}
        let none = format!("eyJhbGciOiJub25lIiwia2lkIjoiZCJ9.{}.", unsigned.split('.').nth(1).unwrap());
        assert!(refused(&none));
        assert!(refused("") && refused("a.b") && refused("a.b.c"));
        // Several keys, and none named.
        assert!(refused(&encode(&Header::new(Algorithm::EdDSA), &claims(), &good).unwrap()));
    }

    #[test]
    fn a_token_out_of_its_time_or_place_does_not() {
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
            assert!(refused(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)), "{name} {value}");
        }
    }

    #[test]
    fn a_token_without_audience_is_for_its_client() {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove("aud");
        assert!(refused(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)));
        claims["client_id"] = json!("us");
        assert!(!refused(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)));
    }

    #[test]
    fn a_key_set_without_a_usable_key_is_refused() {
        for keys in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#] {
            assert!(Verifier::from_jwks(keys, Required::Any, Required::Any).is_err(), "{keys}");
        }
        let mut keys = keys();
        for key in keys["keys"].as_array_mut().unwrap() {
            key["use"] = json!("enc");
        }
        assert!(Verifier::from_jwks(&keys.to_string(), Required::Any, Required::Any).is_err());
    }

    #[test]
    fn a_key_that_came_into_the_file_later_is_found_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let set = |id: &str| json!({"keys": [jwk(Algorithm::EdDSA, id)]}).to_string();
        fs::write(&path, set("old")).unwrap();
        let verifier = Verifier::from_file(&path, Required::Any, Required::Any).unwrap();
        let signed = |id: &str| token(Algorithm::EdDSA, id, &key(Algorithm::EdDSA, 7), &claims());
        assert!(verifier.claims(&signed("old")).is_ok());
        fs::write(&path, set("new")).unwrap();
        assert!(verifier.claims(&signed("new")).is_ok());
        assert!(verifier.claims(&signed("old")).is_err());
        fs::write(&path, "{").unwrap();
        assert!(verifier.claims(&signed("new")).is_ok());
        assert!(Verifier::from_file(&path, Required::Any, Required::Any).is_err());
        assert!(Verifier::from_file(directory.path().join("nowhere"), Required::Any, Required::Any).is_err());
    }
}
