//! Tokens, key sets, and when those are read again. Time is virtual where it matters.

use std::{
    collections::VecDeque,
    fs::{self, FileTimes},
    path::PathBuf,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::FutureExt as _;
use jsonwebtoken::{
    Algorithm, EncodingKey, Header,
    crypto::{CryptoProvider, rust_crypto::DEFAULT_PROVIDER},
    encode, get_current_timestamp,
    jwk::Jwk,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use nameservice_model::{BoxError, chain};
use serde_json::json;
use tokio::{
    sync::oneshot,
    time::{advance, sleep},
};

use super::*;
use crate::{key_source::KeyFile, problem::Kind};

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
        assert!(rejected(&token(Algorithm::EdDSA, "d", &key(Algorithm::EdDSA, 7), &claims)).await, "{name} {value}");
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

const SECOND: Duration = Duration::from_secs(1);
const MAX_AGE: Duration = Duration::from_secs(300);

fn set(ids: &[&str]) -> String {
    json!({"keys": ids.iter().map(|id| jwk(Algorithm::EdDSA, id)).collect::<Vec<_>>()}).to_string()
}

fn signed(id: &str) -> String {
    token(Algorithm::EdDSA, id, &key(Algorithm::EdDSA, 7), &claims())
}

/// A source like a URL, whose answers the test gives: each read waits for the next one.
#[derive(Debug, Default)]
struct Answers {
    reads: AtomicUsize,
    answers: Mutex<VecDeque<oneshot::Receiver<Result<String, String>>>>,
}

impl Answers {
    /// Returns what the next read without an answer waits for.
    fn next(&self) -> oneshot::Sender<Result<String, String>> {
        let (answer, answered) = oneshot::channel();
        self.answers.lock().unwrap().push_back(answered);
        answer
    }

    fn answer(&self, set: &str) {
        self.next().send(Ok(set.to_owned())).unwrap();
    }

    fn fail(&self) {
        self.next().send(Err("it is down".to_owned())).unwrap();
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl KeySource for Answers {
    async fn read(&self) -> Result<String, BoxError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let answered = self.answers.lock().unwrap().pop_front().ok_or("no answer is given")?;
        Ok(answered.await??)
    }

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn has_changed(&self) -> bool {
        false
    }

    fn may_be_away(&self) -> bool {
        true
    }
}

/// Returns a verifier whose source has answered with these keys, once.
async fn read_once(ids: &[&str]) -> (Verifier, Arc<Answers>) {
    let source = Arc::new(Answers::default());
    source.answer(&set(ids));
    let verifier = Verifier::from_source(source.clone(), Required::Any, Required::Any).await.unwrap();
    (verifier, source)
}

/// Begins to check a token, and hangs up once that has to wait. Returns whether it had to.
async fn hang_up(verifier: &Verifier, id: &str) -> bool {
    let waits = verifier.claims(&signed(id)).now_or_never().is_none();
    // The read begins without its caller.
    tokio::task::yield_now().await;
    waits
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_ends_no_read_and_a_withdrawn_key_is_rejected_after_five_minutes() {
    let (verifier, source) = read_once(&["old"]).await;
    for stranger in ["old", "unknown"] {
        advance(MAX_AGE).await;
        let answer = source.next();
        assert!(hang_up(&verifier, stranger).await, "{stranger}");
        // Whoever comes after it waits for the same read, and uses no key whose time is over.
        let (old, new) = (signed("old"), signed("new"));
        let (mut withdrawn, mut accepted) = (Box::pin(verifier.claims(&old)), Box::pin(verifier.claims(&new)));
        assert!(withdrawn.as_mut().now_or_never().is_none() && accepted.as_mut().now_or_never().is_none());
        answer.send(Ok(set(&["new"]))).unwrap();
        assert!(accepted.await.is_ok());
        // It asks for another read because its key is unknown now, and the answer is the same.
        source.answer(&set(&["new"]));
        assert!(withdrawn.await.is_err());
        source.answer(&set(&["old"]));
        verifier.reload().await;
    }
}

#[tokio::test(start_paused = true)]
async fn callers_with_an_unknown_key_share_a_read_that_one_of_them_began_and_left() {
    let (verifier, source) = read_once(&["old"]).await;
    let answer = source.next();
    assert!(hang_up(&verifier, "new").await);
    let new = signed("new");
    let mut waiting = Box::pin(verifier.claims(&new));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(verifier.claims(&signed("old")).now_or_never().unwrap().is_ok(), "a known key waits for nothing");
    answer.send(Ok(set(&["old", "new"]))).unwrap();
    assert!(waiting.await.is_ok());
    assert_eq!(source.reads(), 2);
    // Not more often than every ten seconds: anybody can send such tokens.
    assert!(verifier.claims(&signed("other")).now_or_never().unwrap().is_err());
    advance(10 * SECOND).await;
    source.answer(&set(&["other"]));
    assert!(verifier.claims(&signed("other")).await.is_ok());
    assert_eq!(source.reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn keys_are_read_a_little_before_their_time_is_over_and_one_caller_waits() {
    let (verifier, source) = read_once(&["a"]).await;
    advance(MAX_AGE - 11 * SECOND).await;
    assert!(verifier.claims(&signed("a")).now_or_never().unwrap().is_ok());
    advance(SECOND).await;
    let answer = source.next();
    let a = signed("a");
    let mut first = Box::pin(verifier.claims(&a));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(verifier.claims(&signed("a")).now_or_never().unwrap().is_ok());
    answer.send(Ok(set(&["a"]))).unwrap();
    assert!(first.await.is_ok());
    assert_eq!(source.reads(), 2);
    // The time of the new keys begins with their read.
    advance(MAX_AGE - 11 * SECOND).await;
    assert!(verifier.claims(&signed("a")).now_or_never().unwrap().is_ok());
    assert_eq!(source.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_is_asked_again_every_ten_seconds_and_its_keys_stay() {
    let (verifier, source) = read_once(&["old"]).await;
    advance(MAX_AGE).await;
    // A failure, something that is no key set, one without a usable key, and no answer at all.
    source.fail();
    assert!(verifier.claims(&signed("old")).await.is_ok());
    for no_answer in ["<html>", "", r#"{"keys": [{"kty": "RSA", "kid": "odd"}]}"#] {
        assert!(verifier.claims(&signed("old")).now_or_never().unwrap().is_ok());
        advance(10 * SECOND).await;
        source.answer(no_answer);
        assert!(verifier.claims(&signed("old")).await.is_ok());
    }
    advance(10 * SECOND).await;
    let never = source.next();
    let old = signed("old");
    let mut waiting = Box::pin(verifier.claims(&old));
    assert!(waiting.as_mut().now_or_never().is_none());
    // The others have waited once.
    assert!(verifier.claims(&signed("old")).now_or_never().unwrap().is_ok());
    assert!(waiting.await.is_ok(), "a read ends after ten seconds");
    assert!(never.is_closed());
    assert_eq!(source.reads(), 6);
    source.answer(&set(&["new"]));
    source.answer(&set(&["new"]));
    assert!(verifier.claims(&signed("old")).await.is_err());
    assert!(verifier.claims(&signed("new")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_away_at_the_start_is_asked_until_it_has_keys_and_tokens_are_answered_503_meanwhile() {
    let source = Arc::new(Answers::default());
    source.fail();
    let verifier = Verifier::from_source(source.clone(), Required::Any, Required::Any).await.unwrap();
    // A proxy answers before the issuer does, and that before it has made its keys.
    for answer in ["<html>", r#"{"keys": []}"#, set(&["new"]).as_str()] {
        source.answer(answer);
    }
    while verifier.lacks_keys() {
        let rejected = verifier.claims(&signed("new")).await.unwrap_err();
        assert_eq!(rejected.kind(), Kind::Unavailable);
        sleep(SECOND).await;
    }
    assert!(verifier.claims(&signed("new")).await.is_ok());
    sleep(60 * SECOND).await;
    assert_eq!(source.reads(), 4, "it is asked as usual from then on");
}

#[tokio::test(start_paused = true)]
async fn a_scrape_begins_the_read_that_is_due_without_any_caller_and_shows_the_age_of_the_keys_in_use() {
    let (verifier, source) = read_once(&["old"]).await;
    let recorder = DebuggingRecorder::new();
    let age = async || {
        metrics::with_local_recorder(&recorder, || verifier.sample());
        // The read ends without a caller.
        tokio::task::yield_now().await;
        let found = recorder.snapshotter().snapshot().into_vec().into_iter();
        let mut found = found.filter(|(key, ..)| key.key().name() == "nameservice_keys_age_seconds");
        found.next().map(|(.., value)| value)
    };
    let seconds = |seconds: f64| Some(DebugValue::Gauge(seconds.into()));
    advance(MAX_AGE - 11 * SECOND).await;
    assert_eq!((age().await, source.reads()), (seconds(289.0), 1));
    advance(11 * SECOND).await;
    source.fail();
    assert_eq!((age().await, source.reads()), (seconds(300.0), 2));
    advance(3600 * SECOND).await;
    source.answer(&set(&["new"]));
    assert_eq!((age().await, source.reads()), (seconds(3900.0), 3));
    assert_eq!((age().await, source.reads()), (seconds(0.0), 3));
    assert!(verifier.claims(&signed("new")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_that_was_long_ago_all_callers_wait_for_the_next_read() {
    let (verifier, source) = read_once(&["old"]).await;
    advance(MAX_AGE - 10 * SECOND).await;
    source.fail();
    assert!(verifier.claims(&signed("old")).await.is_ok());
    advance(3600 * SECOND).await;
    let answer = source.next();
    let old = signed("old");
    let (mut first, mut second) = (Box::pin(verifier.claims(&old)), Box::pin(verifier.claims(&old)));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    source.answer(&set(&["new"]));
    answer.send(Ok(set(&["new"]))).unwrap();
    assert!(first.await.is_err() && second.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_given_are_used_until_the_first_answer() {
    let source = Arc::new(Answers::default());
    let verifier = Verifier::from_jwks_until(&set(&["given"]), source.clone(), Required::Any, Required::Any).unwrap();
    source.fail();
    assert!(verifier.claims(&signed("given")).await.is_ok());
    assert!(verifier.claims(&signed("given")).now_or_never().unwrap().is_ok());
    advance(10 * SECOND).await;
    source.answer(&set(&["answered"]));
    source.answer(&set(&["answered"]));
    assert!(verifier.claims(&signed("given")).await.is_err());
    assert!(verifier.claims(&signed("answered")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reload_sees_what_was_there_when_it_was_asked_for() {
    let (verifier, source) = read_once(&["old"]).await;
    let before = source.next();
    assert!(hang_up(&verifier, "new").await);
    let mut reload = Box::pin(verifier.reload());
    assert!(reload.as_mut().now_or_never().is_none());
    before.send(Ok(set(&["old"]))).unwrap();
    source.answer(&set(&["new"]));
    reload.await;
    assert!(verifier.claims(&signed("new")).now_or_never().unwrap().is_ok());
}

#[tokio::test]
async fn a_set_is_used_without_its_odd_keys() {
    let odd = [
        json!({"kty": "OKP", "crv": "Ed25519", "x": "not base64!", "kid": "odd"}),
        json!({"kty": "RSA", "n": "AQAB==", "e": "AQAB", "kid": "padded"}),
        json!({"kty": "RSA", "n": 5, "e": "AQAB", "kid": "odd"}),
        json!({"kty": "OKP", "kid": ["odd"]}),
        json!({"kty": "EC", "crv": "P-999", "x": "AQAB", "y": "AQAB"}),
        json!("odd"),
        // Without its type, and without a coordinate.
        json!({"crv": "X25519", "x": "AQAB", "kid": "odd"}),
        json!({"kty": "EC", "crv": "secp256k1", "x": "AQAB", "kid": "odd"}),
        Value::Null,
    ];
    for odd in odd {
        let with = json!({"keys": [odd, jwk(Algorithm::EdDSA, "good")]}).to_string();
        let alone = json!({"keys": [odd]}).to_string();
        let verifier = Verifier::from_jwks(&with, Required::Any, Required::Any).unwrap();
        assert!(verifier.claims(&signed("good")).await.is_ok(), "{odd}");
        assert!(Verifier::from_jwks(&alone, Required::Any, Required::Any).is_err(), "{odd}");
        // Read again, a set none of whose keys can be used withdraws nothing if one is malformed.
        let (verifier, source) = read_once(&["good"]).await;
        for (set, is_good) in [(&alone, true), (&with, true), (&r#"{"keys": []}"#.to_owned(), false)] {
            source.answer(set);
            verifier.reload().await;
            let answered = verifier.claims(&signed("good")).now_or_never();
            assert_eq!(answered.is_some_and(|claims| claims.is_ok()), is_good, "{set}");
        }
    }
    let mut encrypts = jwk(Algorithm::EdDSA, "good");
    encrypts["use"] = json!("enc");
    // Well-formed keys that this service does not use are no reason to keep a key that was withdrawn.
    let exchange = json!({"kty": "OKP", "crv": "X25519", "x": "AQAB", "kid": "odd"});
    for unused in [json!({"kty": "PQC", "alg": "ML-DSA-44", "kid": "odd"}), exchange, encrypts] {
        let (verifier, source) = read_once(&["good"]).await;
        source.answer(&json!({"keys": [unused]}).to_string());
        verifier.reload().await;
        assert!(verifier.claims(&signed("good")).now_or_never().is_none_or(|claims| claims.is_err()), "{unused}");
    }
    let many = json!({"keys": vec![json!({"kty": "RSA", "kid": "long".repeat(1000)}); 1000]}).to_string();
    let error = KeySet::parse(&many).err().map(|error| chain(&error).to_string()).unwrap();
    assert!(error.ends_with("and 990 more") && error.len() < 4000, "{error}");
    for none in ["[]", r#"{"keys": {}}"#, r#"{"keys": null}"#, "5", "{"] {
        assert!(KeySet::parse(none).is_err(), "{none}");
    }
    let both = json!({"keys": [{"kty": "RSA", "kid": "a\nb"}, jwk(Algorithm::EdDSA, "good")]}).to_string();
    let skipped = KeySet::parse(&both).unwrap().skipped;
    assert!(skipped.starts_with(r#"kid "a\nb": "#), "{skipped}");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_compared_by_its_content_and_not_by_its_times() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let write = |ids: &[&str]| {
        fs::write(&path, set(ids)).unwrap();
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    };
    write(&["old", "all"]);
    let file = Arc::new(KeyFile::new(path.clone()));
    let verifier = Verifier::from_source(file.clone(), Required::Any, Required::Any).await.unwrap();
    advance(SECOND).await;
    assert!(!file.has_changed());
    let length = fs::metadata(&path).unwrap().len();
    write(&["new", "all"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    advance(SECOND).await;
    // A token with a key of both sets, so that no unknown key leads to the read; its caller hangs up.
    hang_up(&verifier, "all").await;
    assert!(verifier.claims(&signed("new")).now_or_never().unwrap().is_ok());
    let old = verifier.claims(&signed("old")).await;
    assert!(old.is_err());
    advance(SECOND).await;
    assert!(!file.has_changed());
    // One that cannot be read, since it is no file or too large, is tried again until it can be.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..3 {
        advance(SECOND).await;
        assert!(verifier.claims(&signed("new")).await.is_ok());
    }
    fs::remove_dir(&path).unwrap();
    fs::write(&path, " ".repeat(2 * 1024 * 1024)).unwrap();
    advance(SECOND).await;
    assert!(verifier.claims(&signed("new")).await.is_ok());
    write(&["old", "all"]);
    advance(SECOND).await;
    assert!(verifier.claims(&signed("old")).await.is_ok());
}
