//! The extractors of handlers. Each checks what it hands over, so that a handler cannot forget to: an address is parsed
//! and permitted, and bodies and queries with unknown fields are rejected.

use std::{
    marker::PhantomData,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    body::Bytes,
    extract::{FromRef, FromRequestParts, RawPathParams},
    http::{HeaderMap, Uri, header, request::Parts},
};
use nameservice_api::json;
use nameservice_model::{Address, Call, Record, RecordKind, RequestId, Within, redact};
use percent_encoding::percent_decode_str;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IntoDeserializer as _},
};
use sha2::{Digest, Sha256};

use crate::{
    auth::{Auth, Principal, Scope},
    filter::{Filter, Interest, Visible},
    problem::Problem,
    request_log::{CallOf, Noted},
};

/// The name of the only path parameter.
const ADDRESS: &str = "address";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const ALLOW_FOREIGN: &str = "allow_foreign";
/// The longest `Idempotency-Key`, in bytes.
const MAX_KEY_BYTES: usize = 128;

/// What an extractor demands of the caller's token.
pub trait Needs: Send + Sync {
    /// The scope.
    const SCOPE: Scope;
}

/// Requires access to Fluree's events.
#[derive(Debug)]
pub struct Events;
/// Demands `nameservice:read`.
#[derive(Debug)]
pub struct Read;
/// Demands `nameservice:write`.
#[derive(Debug)]
pub struct Write;
/// Demands `nameservice:admin`.
#[derive(Debug)]
pub struct Admin;

impl Needs for Events {
    const SCOPE: Scope = Scope::Events;
}
impl Needs for Read {
    const SCOPE: Scope = Scope::Read;
}
impl Needs for Write {
    const SCOPE: Scope = Scope::Write;
}
impl Needs for Admin {
    const SCOPE: Scope = Scope::Admin;
}

/// The request as it was received, for extractors that need it whole: a call's identity is a hash over it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) uri: Uri,
    pub(crate) body: Bytes,
}

/// When the token of a request's caller ends: one of the request's extensions once the caller is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenEnds(pub(crate) Option<SystemTime>);

/// A caller that has the scope `S` for some record: for routes without an address in their path. An address in the body
/// or in the rest of the path goes through [`Allowed::target`].
#[derive(Debug)]
pub struct Allowed<S> {
    principal: Arc<Principal>,
    call: Call,
    noted: Option<Noted>,
    needs: PhantomData<S>,
}

/// The record that the path names, and a caller that may use it with the scope `S`.
#[derive(Debug)]
pub struct Target<S> {
    address: Address,
    allowed: Allowed<S>,
}

impl<S> Clone for Allowed<S> {
    fn clone(&self) -> Self {
        Self {
            principal: self.principal.clone(),
            call: self.call.clone(),
            noted: self.noted.clone(),
            needs: PhantomData,
        }
    }
}

impl<S: Needs> Allowed<S> {
    /// The identity of this call (docs/specification.md, Answers), the same on every access.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Whether the caller may see the record. Rows whose names are not valid addresses are never visible over HTTP.
    pub fn sees(&self, address: &Address) -> bool {
        self.principal.may(S::SCOPE.min(Scope::Read), address) && address.is_well_formed()
    }

    /// Returns a record as the caller may see it: the secrets of its config are only shown to those who may write it.
    pub fn shown(&self, mut record: Record) -> Record {
        if let Some(config) = record.config.payload.as_mut().filter(|_| !self.sees_secrets(&record.address)) {
            redact(config);
        }
        record
    }

    /// Whether the caller is shown the secrets of a record's config.
    pub fn sees_secrets(&self, address: &Address) -> bool {
        self.principal.may(Scope::Write, address)
    }

    /// Whether the caller may follow the events of a record of this kind.
    pub fn follows(&self, kind: RecordKind, address: &Address) -> bool {
        self.principal.follows(kind, address)
    }

    /// Returns a text that is equal for callers to whom Fluree's claims grant the same events.
    pub fn events_form(&self) -> String {
        self.principal.events_form()
    }

    /// Returns the interest of a reader with this filter, in a form of this name.
    pub fn interest(&self, filter: Filter, form: String) -> Arc<Interest> {
        Arc::new(Interest::new(filter, self.principal.visible(S::SCOPE.min(Scope::Read)), form))
    }

    /// Returns the patterns and addresses of the records that the caller may see; `None` if it may see all.
    pub fn within(&self) -> Option<Within> {
        match self.principal.visible(S::SCOPE.min(Scope::Read)) {
            Visible::All => None,
            Visible::Only(named) => {
                Some(Within { globs: named.globs().to_vec(), addresses: named.addresses().to_vec() })
            }
        }
    }

    /// When the caller's token expires, if there is one: an answer without an end must not outlive it.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.principal.expires_at()
    }

    /// How long the caller may wait at most: a wait ends with its token.
    pub fn at_most(&self, wait: Duration) -> Duration {
        let left = self.expires_at().map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
        left.map_or(wait, |left| left.min(wait))
    }

    /// Demands a scope for one of several records that the path does not name.
    pub fn check(&self, scope: Scope, address: &Address) -> Result<(), Problem> {
        self.principal.check(scope, address)
    }

    /// Records the outcome of the request, for the metrics.
    pub fn came_to(&self, outcome: &'static str) {
        if let Some(noted) = &self.noted {
            noted.outcome(outcome);
        }
    }

    /// Returns a scope, or that of an administrator if the call asks for what only they may.
    pub fn at_least(&self, scope: Scope) -> Scope {
        if self.call.allow_foreign { scope.max(Scope::Admin) } else { scope }
    }

    /// Permits a record that the path does not name.
    pub fn target(self, address: Address) -> Result<Target<S>, Problem> {
        self.principal.check(self.at_least(S::SCOPE), &address)?;
        Ok(Target { address, allowed: self })
    }
}

impl<S: Needs> Target<S> {
    /// The record's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The identity of this call (docs/specification.md, Answers), the same on every access.
    pub fn call(&self) -> &Call {
        self.allowed.call()
    }

    /// How long the caller may wait at most: a wait ends with its token.
    pub fn at_most(&self, wait: Duration) -> Duration {
        self.allowed.at_most(wait)
    }

    /// Whether the caller may see another record.
    pub fn sees(&self, address: &Address) -> bool {
        self.allowed.sees(address)
    }

    /// Records the outcome of the request, for the metrics.
    pub(crate) fn came_to(&self, outcome: &'static str) {
        self.allowed.came_to(outcome);
    }

    /// Returns the record as the caller may see it (see [`Allowed::shown`]).
    pub fn shown(&self, record: Record) -> Record {
        self.allowed.shown(record)
    }

    /// Demands more than `S`, if the body asks for something that needs it.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        self.allowed.principal.check(scope, &self.address)
    }

    /// The problem that there is no such record.
    pub fn unknown(&self) -> Problem {
        Problem::unknown_record(&self.address)
    }
}

impl<S, N> FromRequestParts<S> for Allowed<N>
where
    S: Send + Sync,
    N: Needs,
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let principal = Arc::<Auth>::from_ref(state).principal(parts).await?;
        if !principal.may_somewhere(N::SCOPE) {
            return Err(Problem::insufficient_scope(N::SCOPE));
        }
        parts.extensions.insert(TokenEnds(principal.expires_at()));
        let noted = parts.extensions.get::<Noted>().cloned();
        if let Some(noted) = &noted {
            noted.principal(principal.id());
        }
        let allows_foreign = N::SCOPE >= Scope::Write && allows_foreign(parts.uri.query().unwrap_or_default())?;
        let call = match idempotency_key(&parts.headers)? {
            Some(key) => {
                let Received { uri, body } = received(parts)?;
                let query = uri.query().unwrap_or_default();
                let rest = [parts.method.as_str().as_bytes(), uri.path().as_bytes(), query.as_bytes(), body.as_ref()];
                Call::with_id(request_id([principal.id().as_bytes(), key.as_bytes()], rest))
            }
            // A call without a key cannot be repeated.
            None => Call::fresh(),
        };
        let call = call.allowing_foreign(allows_foreign);
        if let Some(wanted) = parts.extensions.get::<CallOf>() {
            wanted.note(&call.request_id);
        }
        Ok(Self { principal, call, noted, needs: PhantomData })
    }
}

impl<S, N> FromRequestParts<S> for Target<N>
where
    S: Send + Sync,
    N: Needs,
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let allowed = Allowed::from_request_parts(parts, state).await?;
        let text = last_segment(parts, state).await?;
        let address = Address::parse(&text).map_err(Problem::invalid_address)?;
        if let Some(noted) = parts.extensions.get::<Noted>() {
            noted.record(address.as_str());
        }
        allowed.target(address)
    }
}

/// The rest of the path, unescaped and otherwise unchanged: for routes that take something other than an address.
#[derive(Debug)]
pub struct Rest(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Rest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        last_segment(parts, state).await.map(Self)
    }
}

async fn last_segment<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| Problem::invalid_address("the path is not UTF-8"))?;
    let text = params.iter().find(|(name, _)| *name == ADDRESS).map(|(_, value)| value.to_owned());
    text.ok_or_else(|| Problem::internal("the route has no path parameter `address`"))
}

/// Reads the parameter that allows ids which Fluree's engine cannot read.
fn allows_foreign(query: &str) -> Result<bool, Problem> {
    match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == ALLOW_FOREIGN) {
        None => Ok(false),
        Some((_, value)) => {
            value.parse().map_err(|_| Problem::invalid_parameter(ALLOW_FOREIGN, "must be true or false"))
        }
    }
}

fn received(parts: &Parts) -> Result<&Received, Problem> {
    parts.extensions.get().ok_or_else(|| Problem::internal("the route is not part of a service()"))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let reject = |reason| Err(Problem::invalid_idempotency_key(reason));
    match value.to_str() {
        _ if values.next().is_some() => reject("is sent more than once"),
        Ok("") => reject("is empty"),
        Ok(key) if key.len() > MAX_KEY_BYTES => reject("has more than 128 bytes"),
        Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(key)),
        _ => reject("contains characters other than visible ASCII"),
    }
}

/// The id of a call: a hash of the caller and the key, and one of the rest of the request.
fn request_id<'a>(key: impl IntoIterator<Item = &'a [u8]>, rest: impl IntoIterator<Item = &'a [u8]>) -> RequestId {
    RequestId::from_hashes(hash(key), hash(rest))
}

/// The first `N` bytes of a hash over all the parts. Each is preceded by its length, so that no two lists are hashed alike.
fn hash<'a, const N: usize>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; N] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    std::array::from_fn(|i| digest[i])
}

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if !is_json(&parts.headers) {
            return Err(Problem::unsupported_media_type());
        }
        from_json(&received(parts)?.body).map(Self)
    }
}

/// A JSON body that may be left out.
#[derive(Debug)]
pub struct OptionalBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequestParts<S> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match received(parts)?.body.is_empty() {
            true => Ok(Self(T::default())),
            false => Body::from_request_parts(parts, state).await.map(|Body(body)| Self(body)),
        }
    }
}

/// Query parameters. One that may be repeated is a `Vec`. An empty one is rejected as a client's mistake, since `after=`
/// would not mean what it seems to.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// Query parameters as forms send them: an empty one counts as left out.
#[derive(Debug)]
pub struct FormQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        from_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for FormQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        from_form(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Reads a parameter that holds several values, separated by commas or repeated: for `deserialize_with`.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let values = texts.iter().flat_map(|text| text.split(','));
    values.map(|value| T::deserialize(value.to_owned().into_deserializer())).collect()
}

/// `application/json`, or a type that is written in JSON, with any parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.strip_prefix("application/") {
        Some(subtype) => subtype == "json" || subtype.ends_with("+json"),
        None => false,
    }
}

fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    Ok(json::from_slice(text)?)
}

fn from_query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let empty = form_urlencoded::parse(text.as_bytes()).find(|(name, value)| !name.is_empty() && value.is_empty());
    match empty {
        Some((name, _)) => Err(Problem::invalid_parameter(&name, "is empty: set a value, or omit it")),
        None => from_form(text),
    }
}

fn from_form<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    if let Some(pair) = text.split('&').find(|pair| percent_decode_str(pair).decode_utf8().is_err()) {
        let name = pair.split('=').next().unwrap_or_default();
        return Err(Problem::invalid_parameter(name, "is not UTF-8"));
    }
    // Rust reads `+5` and `-0` as numbers, too. They are only valid where a string is allowed.
    let has_sign = |value: &str| {
        let rest = value.strip_prefix('+').or_else(|| value.strip_prefix('-').filter(|rest| rest.starts_with('0')));
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if form_urlencoded::parse(text.as_bytes()).any(|(_, value)| has_sign(&value)) {
        let pairs = form_urlencoded::parse(text.as_bytes());
        let changed: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs.map(|(name, value)| {
                let value = if has_sign(&value) { format!("+{value}") } else { value.into_owned() };
                (name.into_owned(), value)
            }))
            .finish();
        form::<T>(&changed)?;
    }
    form(text)
}

fn form<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let pairs = serde_html_form::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let reason = match error.inner().to_string() {
            reason if reason == "invalid digit found in string" => "must be a whole number".to_owned(),
            reason if reason == "number too large to fit in target type" => "is too large".to_owned(),
            reason => reason,
        };
        let parameter = json::field(&error.path().to_string(), &reason);
        // For a repeated parameter the index does not help: the URL only shows its name.
        let name = parameter.split('[').next().unwrap_or_default();
        let times = form_urlencoded::parse(text.as_bytes()).filter(|(found, _)| found == name).count();
        match times > 1 && name == parameter {
            true => Problem::invalid_parameter(name, "is given more than once"),
            false => Problem::invalid_parameter(name, reason),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::problem::Kind;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)]
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)]
        t: i64,
    }

    fn rejected_field(problem: Problem) -> Value {
        let kind = problem.kind();
        assert!(matches!(kind, Kind::InvalidBody | Kind::InvalidParameter), "{kind:?}");
        problem.field()
    }

    #[test]
    fn a_bad_body_names_its_field() {
        for (body, field) in [
            (r#"{"inner": {"t": "1"}}"#, json!("inner.t")),
            (r#"{"inner": {"t": 9223372036854775808}}"#, json!("inner.t")),
            (r#"{"inner": {"t": 1.5}}"#, json!("inner.t")),
            (r#"{"inner": {}}"#, json!("inner.t")),
            (r#"{"inner": {"t": 1, "u": 1}}"#, json!("inner.u")),
            (r#"{"inner": {"t": 1, "t": 1}}"#, json!("inner.t")),
            (r#"{"inner": {"t": 1}, "lease": 1}"#, json!("lease")),
            (r#"{}"#, json!("inner")),
            ("[]", Value::Null),
            ("", Value::Null),
            (r#"{"inner": {"t": 1}} x"#, Value::Null),
        ] {
            assert_eq!(rejected_field(from_json::<Outer>(body.as_bytes()).unwrap_err()), field, "{body}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(rejected_field(from_json::<Value>(deep.as_bytes()).unwrap_err()), Value::Null);
    }

    #[test]
    fn a_bad_query_names_its_parameter() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parameters {
            limit: Option<u64>,
            offset: Option<i64>,
            name: Option<String>,
            deep: Option<bool>,
        }
        let texts: Parameters = from_query("name=-0&offset=-5").unwrap();
        assert_eq!((texts.name.as_deref(), texts.offset), (Some("-0"), Some(-5)));
        let good: Parameters = from_query("limit=5&deep=true").unwrap();
        assert_eq!((good.limit, good.deep), (Some(5), Some(true)));
        for (query, field) in [
            ("limit=%2B5", "limit"),
            ("offset=-0", "offset"),
            ("offset=-00", "offset"),
            ("limit=5&deep=%FF", "deep"),
            ("limit=x", "limit"),
            ("deep=", "deep"),
            ("a=b", "a"),
            ("limit=1&limit=2", "limit"),
        ] {
            assert_eq!(rejected_field(from_query::<Parameters>(query).unwrap_err()), json!(field), "{query}");
        }
    }

    #[test]
    fn json_comes_under_its_own_name() {
        let headers = |value: &str| HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().unwrap())]);
        for taken in ["application/json", "Application/JSON; charset=utf-8", "application/ld+json"] {
            assert!(is_json(&headers(taken)), "{taken}");
        }
        for rejected in ["text/json", "application/jsonl", "application/x-www-form-urlencoded", "json"] {
            assert!(!is_json(&headers(rejected)), "{rejected}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn no_two_requests_read_alike() {
        let ids = [
            request_id([b"ab".as_slice(), b"c"], [b"".as_slice()]),
            request_id([b"a".as_slice(), b"bc"], [b"".as_slice()]),
            request_id([b"abc".as_slice(), b""], [b"".as_slice()]),
            request_id([b"abc".as_slice()], [b"".as_slice()]),
            request_id([b"ab".as_slice(), b"c"], [b"".as_slice(), b""]),
        ];
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[..i].contains(id));
        }
        assert_eq!(ids[0], request_id([b"ab".as_slice(), b"c"], [b"".as_slice()]));
    }

    #[test]
    fn two_requests_under_one_key_share_the_first_hash() {
        let of = |key: &str, body: &str| request_id([b"caller".as_slice(), key.as_bytes()], [body.as_bytes()]);
        assert_eq!(of("k", "a").prefix(), of("k", "b").prefix());
        assert_ne!(of("k", "a"), of("k", "b"));
        assert_ne!(of("k", "a").prefix(), of("l", "a").prefix());
    }

    #[test]
    fn an_idempotency_key_is_short_visible_and_single() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IDEMPOTENCY_KEY, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(idempotency_key(&headers(&[])).unwrap(), None);
        let longest = "k".repeat(128);
        assert_eq!(idempotency_key(&headers(&[&longest])).unwrap(), Some(longest.as_str()));
        for rejected in [&[""] as &[&str], &["a b"], &["ä"], &["a", "a"], &["k".repeat(129).as_str()]] {
            let problem = idempotency_key(&headers(rejected)).unwrap_err();
            assert_eq!(problem.kind(), Kind::InvalidIdempotencyKey, "{rejected:?}");
        }
    }
}
