//! Who may do what where (docs/specification.md, HTTP): tokens that the service checks itself.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, EncodingKey, Header,
    crypto::{CryptoProvider, rust_crypto::DEFAULT_PROVIDER},
    encode, get_current_timestamp,
    jwk::Jwk,
};
use nameservice_http::{Auth, Required, TOKEN_SIGNATURES, Verifier};

use super::*;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "nameservice";
/// What PKCS #8 puts before the 32 bytes of a private key.
const ED25519_FRAME: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const P256_FRAME: &[u8] = b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\
    \x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20";

/// Signs with RustCrypto what the service verifies with ring.
fn key(algorithm: Algorithm, seed: u8) -> EncodingKey {
    static SIGNING: LazyLock<CryptoProvider> = LazyLock::new(|| CryptoProvider {
        verifier_factory: TOKEN_SIGNATURES.verifier_factory,
        ..DEFAULT_PROVIDER.clone()
    });
    let _ = SIGNING.install_default();
    match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_der(&[P256_FRAME, &[seed; 32]].concat()),
        _ => EncodingKey::from_ed_der(&[ED25519_FRAME, &[seed; 32]].concat()),
    }
}

/// A service that knows the keys `ed` and `ec`.
pub(crate) async fn guarded() -> Service {
    Service::over(Table::with_stream().await, verifying()).await
}

/// Accepts tokens that are signed with the keys `ed` and `ec`.
pub(crate) fn verifying() -> Auth {
    let jwk = |algorithm, id: &str| {
        let mut jwk = Jwk::from_encoding_key(&key(algorithm, 7), algorithm).unwrap();
        jwk.common.key_id = Some(id.into());
        json!(jwk)
    };
    let exactly = |text: &str| Required::Exactly(text.into());
    let keys = json!({ "keys": [jwk(Algorithm::EdDSA, "ed"), jwk(Algorithm::ES256, "ec")] });
    Auth::Verified(Verifier::from_jwks(&keys.to_string(), exactly(ISSUER), exactly(AUDIENCE)).unwrap())
}

fn signed(algorithm: Algorithm, id: &str, seed: u8, claims: &Value) -> String {
    let header = Header { kid: Some(id.into()), ..Header::new(algorithm) };
    encode(&header, claims, &key(algorithm, seed)).unwrap()
}

/// Claims of a valid token, and these.
fn claims(more: Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "somebody", "exp": get_current_timestamp() + 600 });
    claims.as_object_mut().unwrap().append(&mut object(more));
    claims
}

/// A valid token with these claims.
pub(crate) fn token(more: Value) -> String {
    signed(Algorithm::EdDSA, "ed", 7, &claims(more))
}

/// A token that was valid once.
pub(crate) fn expired() -> String {
    token(json!({ "scope": "nameservice:admin", "exp": get_current_timestamp() - 60 }))
}

/// A token that another key has signed.
pub(crate) fn foreign() -> String {
    signed(Algorithm::EdDSA, "ed", 8, &claims(json!({ "scope": "nameservice:admin" })))
}

pub(crate) fn scope(scope: &str) -> String {
    token(json!({ "scope": scope }))
}

/// An admin's token that has expired, and one that is signed with another key.
pub(crate) fn invalid() -> [String; 2] {
    let mut expired = claims(json!({ "scope": "nameservice:admin" }));
    let foreign = signed(Algorithm::EdDSA, "ed", 8, &expired);
    expired["exp"] = json!(get_current_timestamp() - 60);
    [signed(Algorithm::EdDSA, "ed", 7, &expired), foreign]
}

/// A token for some addresses.
pub(crate) fn narrow(scope: &str, globs: Value) -> String {
    token(json!({ "scope": scope, "nameservice:addresses": globs }))
}

pub(crate) async fn as_(service: &Service, token: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    service.send(method, path, &[("authorization", &format!("Bearer {token}"))], body).await
}

pub(super) async fn get_as(service: &Service, token: &str, path: &str) -> Answer {
    as_(service, token, Method::GET, path, None).await
}

/// Every operation with a token of its own, with a body that it takes where it takes one, by the scope that it needs.
pub(crate) fn operations(address: &str) -> Vec<(&'static str, Method, String, Option<Value>)> {
    let (name, branch) = address.split_once(':').unwrap();
    let of = |scope, method: Method, path: &str, body| (scope, method, path.replace("{}", address), body);
    let status = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } });
    let config = json!({ "expected": { "v": 0 }, "new": { "payload": {} } });
    let graph_source = json!({ "source_type": "t", "config": {} });
    let equal = json!({ "new": root(1), "allow_equal": true });
    let nothing = json!({ "head": unborn(), "index": unborn() });
    let new_branch = json!({ "name": name, "branch": branch, "source": "source" });
    vec![
        of("read", Method::GET, "/v1/records/{}", None),
        of("read", Method::GET, "/v1/history/{}", None),
        of("read", Method::GET, "/fluree/storage/ns/{}", None),
        of("read", Method::GET, "/v1/fluree/storage/ns/{}", None),
        of("write", Method::POST, "/v1/ledgers", Some(json!({ "address": address }))),
        of("write", Method::POST, "/v1/branches", Some(new_branch)),
        of("write", Method::PUT, "/v1/heads/{}", Some(json!({ "expected": null, "new": commit(1) }))),
        of("write", Method::PUT, "/v1/indexes/{}", Some(json!({ "new": root(1) }))),
        of("write", Method::PUT, "/v1/statuses/{}", Some(status)),
        of("write", Method::PUT, "/v1/configs/{}", Some(config)),
        of("write", Method::PUT, "/v1/graph-sources/{}", Some(graph_source)),
        of("write", Method::POST, "/v1/retractions/{}", None),
        of("write", Method::POST, "/v1/restorations/{}", None),
        of("write", Method::POST, "/fluree/nameservice/refs/{}/init", None),
        of("admin", Method::PUT, "/v1/indexes/{}", Some(equal)),
        of("admin", Method::POST, "/v1/resets/{}", Some(nothing)),
        of("admin", Method::PUT, "/v1/protections/{}", Some(json!({ "protected": true }))),
        of("admin", Method::DELETE, "/v1/branches/{}", None),
        of("admin", Method::DELETE, "/v1/records/{}", None),
    ]
}

#[tokio::test]
async fn without_a_token_only_health_and_documentation_are_served() {
    let service = guarded().await;
    let document = json!(nameservice_cli::routes::document());
    let mut open = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        let path = template
            .replace("refs/{address}", "refs/mydb/init")
            .replace("{address}", "mydb")
            .replace("docs/{file}", "docs/docs.js")
            .replace("{file}", "app.js");
        for (method, operation) in item.as_object().unwrap() {
            let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes()) else { continue };
            if !["GET", "PUT", "POST", "DELETE"].contains(&method.as_str()) {
                continue;
            }
            let answer = service.send(method, &path, &[], None).await;
            if operation.get("security").is_none() {
                open.push(path.clone());
                answer.expect(200);
            } else {
                assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"nameservice\""), "{path}");
                answer.problem(401, "unauthorized");
            }
        }
    }
    let pages = ["/console", "/console/app.js", "/v1/docs", "/v1/docs/docs.js", "/v1/health", "/v1/openapi.json"];
    assert_eq!(open[0], "/.well-known/fluree.json");
    assert_eq!(open[1..], pages);
    service.get("/v1/nowhere").await.problem(404, "not-found");
    assert!(service.table.proxy.take_requests().is_empty(), "nothing of it reaches the store");
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_rejected_with_a_challenge() {
    let service = guarded().await;
    let admin = json!({ "scope": "nameservice:admin" });
    let with = |name: &str, value: Value| {
        let mut claims = claims(admin.clone());
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = claims(admin.clone());
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let ed = |claims: &Value| signed(Algorithm::EdDSA, "ed", 7, claims);
    let good = ed(&claims(admin.clone()));
    let parts: Vec<_> = good.split('.').collect();
    let encoded = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let none = encoded(json!({ "alg": "none", "kid": "ed" }));
    let hmac = Header { kid: Some("ed".into()), ..Header::new(Algorithm::HS256) };
    let hmac = encode(&hmac, &claims(admin.clone()), &EncodingKey::from_secret(b"ed")).unwrap();
    let forged = encoded(with("sub", json!("root")));
    for (case, token) in [
        ("expired", ed(&with("exp", json!(get_current_timestamp() - 60)))),
        ("without end", ed(&without("exp"))),
        ("not yet valid", ed(&with("nbf", json!(get_current_timestamp() + 600)))),
        ("another issuer", ed(&with("iss", json!("https://other.example")))),
        ("no issuer", ed(&without("iss"))),
        ("another audience", ed(&with("aud", json!(["other"])))),
        ("no audience", ed(&without("aud"))),
        ("another key", signed(Algorithm::EdDSA, "ed", 8, &claims(admin.clone()))),
        ("an unknown key", signed(Algorithm::EdDSA, "other", 7, &claims(admin.clone()))),
        ("another key's algorithm", signed(Algorithm::ES256, "ed", 7, &claims(admin.clone()))),
        ("algorithm none", format!("{none}.{}.", parts[1])),
        ("algorithm none, old signature", format!("{none}.{}.{}", parts[1], parts[2])),
        ("a shared secret", hmac),
        ("forged claims", format!("{}.{forged}.{}", parts[0], parts[2])),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("no token", "nonsense".into()),
        ("globs that are no texts", narrow("nameservice:admin", json!(["a", 1]))),
        ("globs that are none", narrow("nameservice:admin", json!({}))),
    ] {
        let answer = get_as(&service, &token, "/v1/records/mydb").await;
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer realm=\"nameservice\", error=\"invalid_token\""), "{case}: {answer:#?}");
        answer.problem(401, "unauthorized");
    }
    for value in ["", "Bearer", "Basic dTpw", &good] {
        let answer = service.send(Method::GET, "/v1/records/mydb", &[("authorization", value)], None).await;
        assert!(answer.header("www-authenticate").is_some(), "{value}");
        answer.problem(401, "unauthorized");
    }
    assert!(service.table.proxy.take_requests().is_empty(), "nothing of it reaches the store");
    for token in [good, signed(Algorithm::ES256, "ec", 7, &claims(admin))] {
        get_as(&service, &token, "/v1/records/mydb").await.problem(404, "unknown-record");
    }
}

#[tokio::test]
async fn each_operation_needs_its_scope_and_the_greater_include_the_lesser() {
    let service = guarded().await;
    let scopes = ["nobody", "read", "write", "admin"];
    for (needed, method, path, body) in operations("mydb:dev") {
        let rank = |scope: &str| scopes.iter().position(|other| *other == scope).unwrap();
        for held in scopes {
            let token = scope(&format!("openid nameservice:{held}"));
            let answer = as_(&service, &token, method.clone(), &path, body.clone()).await;
            if rank(held) >= rank(needed) {
                assert!(!matches!(answer.status.as_u16(), 401 | 403 | 500), "{method} {path} {held}: {answer:#?}");
                continue;
            }
            let challenge = answer.header("www-authenticate").unwrap().to_owned();
            let problem = answer.problem(403, "insufficient-scope");
            let reported = if held == "write" {
                "nameservice:admin".into()
            } else {
                problem["scope"].as_str().unwrap().to_owned()
            };
            assert!(challenge.contains("error=\"insufficient_scope\"") && challenge.contains(&reported), "{challenge}");
            assert_eq!(problem["scope"], json!(reported));
        }
    }
    for path in ["/v1/records", "/v1/snapshot", "/v1/branches/mydb", "/fluree/nameservice/snapshot"] {
        get_as(&service, &scope("openid"), path).await.problem(403, "insufficient-scope");
    }
}

#[tokio::test]
async fn a_hidden_record_is_read_like_an_unknown_one_and_writes_say_that_the_token_does_not_cover_it() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    let created = json!({ "address": "hidden:dev", "head": commit(1) });
    as_(&service, &admin, Method::POST, "/v1/ledgers", Some(created)).await.expect(201);
    let before = get_as(&service, &admin, "/v1/records/hidden:dev").await.expect(200);
    let caller = narrow("nameservice:admin", json!(["mine:*", "tenant/*"]));
    service.table.proxy.take_requests();
    for (_, method, path, body) in operations("hidden:dev") {
        let (status, kind) = match method {
            Method::GET => (404, "unknown-record"),
            _ => (403, "address-not-covered"),
        };
        let hidden = as_(&service, &caller, method.clone(), &path, body).await.problem(status, kind);
        let unknown = operations("nobody:dev").into_iter();
        let (_, _, path, body) =
            unknown.into_iter().find(|other| other.1 == method && other.2 == path.replace("hidden", "nobody")).unwrap();
        let unknown = as_(&service, &caller, method, &path, body).await.problem(status, kind);
        assert_eq!(hidden.to_string().replace("hidden", "nobody"), unknown.to_string());
    }
    assert!(service.table.proxy.take_requests().is_empty(), "nothing was looked up");
    get_as(&service, &caller, "/v1/branches/hidden").await.problem(404, "unknown-record");
    assert_eq!(get_as(&service, &admin, "/v1/records/hidden:dev").await.expect(200), before, "nothing was written");
    let push = json!({ "expected": commit(1), "new": commit(2) });
    let path = "/fluree/nameservice/refs/hidden:dev/commit";
    as_(&service, &caller, Method::POST, path, Some(push)).await.problem(403, "address-not-covered");
}

#[tokio::test]
async fn globs_filter_lists_snapshots_branches_and_what_stands_in_the_way() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    let post = async |path: &str, body: Value| as_(&service, &admin, Method::POST, path, Some(body)).await.expect(201);
    for name in ["a-hidden", "mine", "n-hidden", "tenant/x", "z-hidden"] {
        post("/v1/ledgers", json!({ "address": name, "head": commit(1) })).await;
    }
    for name in ["dev", "public"] {
        post("/v1/branches", json!({ "name": "mine", "branch": name, "source": "main" })).await;
    }
    let secret = json!({ "source_type": "t", "config": {}, "dependencies": ["mine"] });
    as_(&service, &admin, Method::PUT, "/v1/graph-sources/secret", Some(secret)).await.expect(201);
    let caller = narrow("nameservice:admin", json!(["mine", "mine:pub*", "tenant/*"]));
    let visible = ["mine:main", "mine:public", "tenant/x:main"];

    for path in ["/v1/records?", "/v1/records?view=full&", "/v1/snapshot?", "/v1/records?state=ready&"] {
        for limit in [1, 2, 100] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            for _ in 0..10 {
                let page = get_as(&service, &caller, &format!("{path}limit={limit}{cursor}")).await.expect(200);
                seen.extend(addresses(&page).into_iter().map(str::to_owned));
                let Some(next) = page["cursor"].as_str() else { break };
                let named = Cursor::decode(next).unwrap();
                assert!(visible.contains(&named.after()), "{path}: a cursor names {named:?}");
                cursor = format!("&cursor={next}");
            }
            seen.sort_unstable();
            assert_eq!(seen, visible, "{path} {limit}");
        }
    }
    let page = get_as(&service, &caller, "/v1/branches/mine").await.expect(200);
    let branches: Vec<_> = page["branches"].as_array().unwrap().iter().map(|record| &record["branch"]).collect();
    assert_eq!(branches, ["main", "public"]);
    let snapshot = get_as(&service, &caller, "/fluree/nameservice/snapshot").await.expect(200);
    assert_eq!((snapshot["ledgers"].as_array().unwrap().len(), &snapshot["graph_sources"]), (3, &json!([])));
    for (method, path) in [(Method::POST, "/v1/retractions/mine"), (Method::DELETE, "/v1/records/mine")] {
        let rejected = as_(&service, &caller, method, path, None).await.problem(409, "has-dependents");
        assert_eq!(rejected["dependents"], json!(["mine:public"]), "{path}");
    }
    let everything = get_as(&service, &scope("nameservice:read"), "/v1/records").await.expect(200);
    assert_eq!(addresses(&everything).len(), 8);
}

#[tokio::test]
async fn what_a_caller_may_not_see_is_no_source_and_no_dependency() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    for name in ["hidden", "mydb:hidden", "mydb:main"] {
        let body = json!({ "address": name, "head": commit(1) });
        as_(&service, &admin, Method::POST, "/v1/ledgers", Some(body)).await.expect(201);
    }
    let caller = narrow("nameservice:write", json!(["mydb:main", "mydb:dev*", "search:*"]));
    let body = json!({ "source_type": "t", "config": {}, "dependencies": ["hidden", "mydb", "search:nobody"] });
    let answer = as_(&service, &caller, Method::PUT, "/v1/graph-sources/search", Some(body)).await;
    let missing = answer.problem(422, "missing-dependencies");
    assert_eq!(sorted(&missing["missing"]), ["hidden:main", "search:nobody"]);
    let body = |source: &str| Some(json!({ "name": "mydb", "branch": "dev", "source": source }));
    let hidden = as_(&service, &caller, Method::POST, "/v1/branches", body("hidden")).await;
    hidden.problem(404, "unknown-source");
    as_(&service, &caller, Method::POST, "/v1/branches", body("main")).await.expect(201);
}

#[tokio::test]
async fn the_claims_of_fluree_grant_reading_and_writing_there() {
    let service = guarded().await;
    let all = token(json!({ "fluree.storage.all": true }));
    let some = token(json!({ "fluree.storage.ledgers": ["mine", "other:dev"] }));
    let init = "/fluree/nameservice/refs/mine:main/init";
    as_(&service, &some, Method::POST, init, None).await.expect(200);
    let create = Some(json!({ "address": "theirs" }));
    as_(&service, &some, Method::POST, "/v1/ledgers", create.clone()).await.problem(403, "address-not-covered");
    as_(&service, &all, Method::POST, "/v1/ledgers", create).await.expect(201);
    for (token, path, status) in [
        (&some, "/fluree/storage/ns/mine%3Amain", 200),
        (&some, "/fluree/storage/ns/theirs:main", 404),
        (&some, "/v1/records/theirs", 404),
        (&all, "/v1/records/theirs", 200),
        (&all, "/fluree/storage/ns/mine", 200),
    ] {
        get_as(&service, token, path).await.expect(status);
    }
    assert_eq!(addresses(&get_as(&service, &some, "/v1/records").await.expect(200)), ["mine:main"]);
    assert_eq!(addresses(&get_as(&service, &all, "/v1/records").await.expect(200)), ["mine:main", "theirs:main"]);
    for token in [&some, &all] {
        as_(&service, token, Method::DELETE, "/v1/records/mine", None).await.problem(403, "insufficient-scope");
    }
    // A claim that is not a boolean grants nothing, and a reader of everything writes only what is listed.
    let text = token(json!({ "fluree.storage.all": "true", "fluree.storage.ledgers": [] }));
    get_as(&service, &text, "/v1/records").await.problem(403, "insufficient-scope");
    let reader = token(json!({ "scope": "nameservice:read", "fluree.storage.ledgers": ["mine"] }));
    let push = || Some(json!({ "new": commit(1) }));
    as_(&service, &reader, Method::PUT, "/v1/heads/mine", push()).await.expect(200);
    as_(&service, &reader, Method::PUT, "/v1/heads/theirs", push()).await.problem(403, "insufficient-scope");
}

#[tokio::test]
async fn the_same_key_of_two_callers_names_two_requests() {
    let service = guarded().await;
    let by = |subject: &str| token(json!({ "scope": "nameservice:write", "sub": subject }));
    let create = Some(json!({ "address": "mydb" }));
    as_(&service, &by("one"), Method::POST, "/v1/ledgers", create).await.expect(201);
    let push = async |token: String| {
        let headers = [("authorization", &*format!("Bearer {token}")), ("idempotency-key", "same")];
        let body = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } });
        service.send(Method::PUT, "/v1/statuses/mydb", &headers, Some(body)).await
    };
    push(by("one")).await.expect(200);
    push(by("two")).await.problem(409, "conflict");
    assert_eq!(push(by("one")).await.expect(200)["replayed"], json!(true));
}
