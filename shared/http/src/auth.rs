//! Callers, and what they may do.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use axum::http::{HeaderMap, header, request::Parts};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nameservice_model::{Address, AddressGlob, Object, RecordKind};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use crate::scope::Scope;
use crate::{
    filter::{MAX_PATTERNS, Named, Visible},
    problem::Problem,
    verifier::Verifier,
};

/// The claim that narrows a token to addresses: a list of globs, or one.
const ADDRESSES_CLAIM: &str = "nameservice:addresses";
/// Fluree's claim of access to every ledger.
const FLUREE_ALL_CLAIM: &str = "fluree.storage.all";
/// Fluree's claim of access to the ledgers listed.
const FLUREE_LEDGERS_CLAIM: &str = "fluree.storage.ledgers";
/// Fluree's claim of access to the events of every record.
const FLUREE_ALL_EVENTS_CLAIM: &str = "fluree.events.all";
/// Fluree's claim of access to the events of the ledgers listed.
const FLUREE_LEDGERS_EVENTS_CLAIM: &str = "fluree.events.ledgers";
/// Fluree's claim of access to the events of the graph sources listed.
const FLUREE_SOURCES_EVENTS_CLAIM: &str = "fluree.events.graph_sources";

/// How callers are authenticated.
#[derive(Debug)]
pub enum Auth {
    /// Every caller may do everything: for one machine, on loopback.
    Open,
    /// A gateway in front has checked the caller, and reports it in an [`Authorizer`].
    Gateway,
    /// The service checks the token itself.
    Verified(Verifier),
    /// A caller with this token may do everything: for development.
    Token(StaticToken),
}

/// A token that is compared, not verified.
#[derive(Clone)]
pub struct StaticToken([u8; 32]);

impl StaticToken {
    /// Makes this text the token.
    pub fn new(token: &str) -> Self {
        Self(digest(token))
    }

    /// Compares digests, so that the time of the comparison reveals nothing of the token.
    fn is(&self, token: &str) -> bool {
        self.0 == digest(token)
    }
}

impl fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticToken")
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// What a gateway in front of the service reports about a caller that it has checked. A server behind one puts this into
/// the extensions of each request, which the network cannot set.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// IAM: this caller may do everything on the routes that its policy allows.
    Iam {
        /// The caller.
        arn: String,
    },
    /// A JWT authorizer, whose identity source must be the `Authorization` header.
    Jwt {
        /// The gateway's copy of the claims, each as text.
        claims: HashMap<String, String>,
    },
}

impl Auth {
    /// Authenticates the caller of a request.
    pub(crate) async fn principal(&self, parts: &Parts) -> Result<Arc<Principal>, Problem> {
        static ANYBODY: LazyLock<Arc<Principal>> = LazyLock::new(|| Arc::new(Principal::unlimited("open")));
        match self {
            Self::Open => Ok(ANYBODY.clone()),
            Self::Gateway => from_gateway(parts).map(Arc::new),
            Self::Verified(verifier) => {
                let claims = verifier.claims(bearer(&parts.headers)?).await?;
                Principal::from_claims(&claims).map(Arc::new)
            }
            Self::Token(token) if token.is(bearer(&parts.headers)?) => Ok(Arc::new(Principal::unlimited("token"))),
            Self::Token(_) => {
                Err(Problem::invalid_token("the token is not the one that this service was started with"))
            }
        }
    }
}

/// Checks that a service takes the claims of a token, once it has verified it. Returns why it does not.
pub fn check_claims(claims: &Object) -> Result<(), String> {
    Principal::from_claims(claims).map(drop).map_err(|rejected| rejected.document().detail)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let value = headers.get(header::AUTHORIZATION).ok_or_else(Problem::no_token)?;
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(Problem::no_token)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Problem::no_token()) }
}

fn from_gateway(parts: &Parts) -> Result<Principal, Problem> {
    let verified = match parts.extensions.get::<Authorizer>().ok_or_else(Problem::no_token)? {
        Authorizer::Iam { arn } => return Ok(Principal::unlimited(&format!("iam {arn}"))),
        Authorizer::Jwt { claims } => claims,
    };
    // The gateway flattens arrays in its copy of the claims, so they are read from the token that it has verified. The
    // claims that the copy keeps unchanged show that it is the same token.
    let claims = unverified_claims(bearer(&parts.headers)?)?;
    let same = ["iss", "sub", "jti"].iter().all(|name| match (verified.get(*name), claims.get(*name)) {
        (Some(copy), Some(Value::String(claim))) => copy == claim,
        (copy, claim) => copy.is_none() && claim.is_none(),
    });
    if !same {
        return Err(Problem::invalid_token("the token is not the one that the gateway has verified"));
    }
    Principal::from_claims(&claims)
}

fn unverified_claims(token: &str) -> Result<Object, Problem> {
    token
        .split('.')
        .nth(1)
        .and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok())
        .and_then(|payload| serde_json::from_slice(&payload).ok())
        .ok_or_else(|| Problem::invalid_token("the token is not a JWT"))
}

/// A caller, and what it may do where.
pub struct Principal {
    id: String,
    /// The most that the token's own scopes allow, at the addresses that its globs allow.
    scope: Option<Scope>,
    /// `None` allows every address.
    within: Option<Named>,
    /// Where Fluree's claims allow reading and writing.
    storage: Granted,
    /// Where Fluree's claims allow following the events of ledgers.
    ledger_events: Granted,
    /// Where Fluree's claims allow following the events of graph sources.
    source_events: Granted,
    /// When the token expires; `None` if none was needed.
    expires_at: Option<SystemTime>,
}

/// The records to which a pair of Fluree's claims grants access.
#[derive(Debug, PartialEq)]
enum Granted {
    All,
    Listed(Named),
}

impl Granted {
    fn by(claims: &Object, all: &str, listed: &str) -> Self {
        match claims.get(all) {
            Some(Value::Bool(true)) => Self::All,
            // A ledger without a valid address cannot be granted; the others still are.
            _ => {
                let addresses = texts(claims.get(listed)).into_iter().filter_map(|text| Address::parse(text).ok());
                Self::Listed(Named::new([], addresses))
            }
        }
    }

    fn holds(&self, address: &Address) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.holds(address),
        }
    }

    fn is_something(&self) -> bool {
        *self != Self::Listed(Named::default())
    }
}

impl Principal {
    fn unlimited(id: &str) -> Self {
        Self {
            id: id.into(),
            scope: Some(Scope::Admin),
            within: None,
            storage: Granted::All,
            ledger_events: Granted::All,
            source_events: Granted::All,
            expires_at: None,
        }
    }

    /// Reads the claims of a verified token.
    pub(crate) fn from_claims(claims: &Object) -> Result<Self, Problem> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let subject = if text("sub").is_empty() { text("client_id") } else { text("sub") };
        let words = ["scope", "scp"].iter().flat_map(|name| texts(claims.get(*name))).collect::<Vec<_>>();
        let granted =
            |scope: &Scope| words.iter().flat_map(|text| text.split_whitespace()).any(|word| word == scope.as_str());
        Ok(Self {
            // Both parts with their lengths: no two callers share an id.
            id: format!("jwt {}:{} {}:{subject}", text("iss").len(), text("iss"), subject.len()),
            scope: Scope::NAMED.into_iter().rfind(granted),
            within: claims.get(ADDRESSES_CLAIM).map(within).transpose()?,
            storage: Granted::by(claims, FLUREE_ALL_CLAIM, FLUREE_LEDGERS_CLAIM),
            ledger_events: Granted::by(claims, FLUREE_ALL_EVENTS_CLAIM, FLUREE_LEDGERS_EVENTS_CLAIM),
            source_events: Granted::by(claims, FLUREE_ALL_EVENTS_CLAIM, FLUREE_SOURCES_EVENTS_CLAIM),
            expires_at: claims.get("exp").and_then(Value::as_f64).and_then(time),
        })
    }

    /// When the caller's permissions end, if that is known.
    pub(crate) fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    /// Returns what distinguishes this caller from others.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the caller may do this to this record.
    pub(crate) fn may(&self, scope: Scope, address: &Address) -> bool {
        let by_scope = self.scope >= Some(scope) && self.within.as_ref().is_none_or(|within| within.holds(address));
        by_scope || self.granted(scope).any(|granted| granted.holds(address))
    }

    /// Whether the caller may do this to any record at all.
    pub(crate) fn may_somewhere(&self, scope: Scope) -> bool {
        self.scope >= Some(scope) || self.granted(scope).any(Granted::is_something)
    }

    /// What Fluree's claims grant of a scope.
    fn granted(&self, scope: Scope) -> impl Iterator<Item = &Granted> {
        let storage = (scope <= Scope::Write).then_some(&self.storage);
        let events = (scope == Scope::Events).then_some([&self.ledger_events, &self.source_events]);
        storage.into_iter().chain(events.into_iter().flatten())
    }

    /// Whether the caller may follow the events of a record of this kind. Fluree grants those of ledgers and of graph sources
    /// apart.
    pub(crate) fn follows(&self, kind: RecordKind, address: &Address) -> bool {
        let events = match kind {
            RecordKind::Ledger => &self.ledger_events,
            RecordKind::GraphSource => &self.source_events,
        };
        self.may(Scope::Read, address) || events.holds(address)
    }

    /// Returns what the claims grant of events for each kind, as a text: equal for callers with equal grants.
    pub(crate) fn events_form(&self) -> String {
        match (&self.ledger_events, &self.source_events) {
            (ledgers, sources) if ledgers == sources => String::new(),
            (ledgers, sources) => format!("{ledgers:?}\n{sources:?}"),
        }
    }

    /// Returns the records that the caller may do this to, as a value.
    pub(crate) fn visible(&self, scope: Scope) -> Visible {
        let mut seen = Named::default();
        if self.scope >= Some(scope) {
            match &self.within {
                None => return Visible::All,
                Some(within) => seen = within.clone(),
            }
        }
        for granted in self.granted(scope) {
            match granted {
                Granted::All => return Visible::All,
                Granted::Listed(listed) => seen = seen.and(listed),
            }
        }
        Visible::Only(seen)
    }

    /// Rejects what the caller may not do to this record. A reader learns nothing about a record that it may not see. A
    /// writer learns that the token does not cover the address, which reveals nothing: no record is looked up.
    pub(crate) fn check(&self, scope: Scope, address: &Address) -> Result<(), Problem> {
        if self.may(scope, address) {
            Ok(())
        } else if !self.may_somewhere(scope) || self.may(Scope::Read, address) {
            Err(Problem::insufficient_scope(scope))
        } else if scope >= Scope::Write {
            Err(Problem::address_not_covered(address))
        } else {
            Err(Problem::unknown_record(address))
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal").field("id", &self.id).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// The time of a claim in seconds since the epoch; `None` if it cannot be represented.
fn time(seconds: f64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// The strings of a claim that is a string or a list of strings.
fn texts(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The records of the claim that narrows a token.
fn within(claim: &Value) -> Result<Named, Problem> {
    let invalid = || Problem::invalid_token(&format!("the claim {ADDRESSES_CLAIM} is not a list of address patterns"));
    // A list with anything but strings is rejected as a whole: guessing could widen it.
    let well_formed = match claim {
        Value::String(_) => true,
        Value::Array(values) => values.iter().all(Value::is_string),
        _ => false,
    };
    if !well_formed {
        return Err(invalid());
    }
    // A pattern that no address can match grants nothing; the others still apply.
    let globs = texts(Some(claim)).into_iter().filter_map(|text| AddressGlob::parse(text).ok());
    let within = Named::new(globs, []);
    if within.globs().len() > MAX_PATTERNS {
        let reason =
            format!("the claim {ADDRESSES_CLAIM} has more than {MAX_PATTERNS} patterns with wildcards: widen them");
        return Err(Problem::invalid_token(&reason));
    }
    Ok(within)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use serde_json::json;

    use super::*;
    use crate::problem::Kind;

    fn principal(claims: Value) -> Principal {
        Principal::from_claims(claims.as_object().unwrap()).unwrap()
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    fn parts(authorizer: Option<Authorizer>, token: Option<&str>) -> Parts {
        let mut request = Request::new(());
        if let Some(authorizer) = authorizer {
            request.extensions_mut().insert(authorizer);
        }
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        request.into_parts().0
    }

    fn copy(claims: Value) -> Option<Authorizer> {
        Some(Authorizer::Jwt { claims: serde_json::from_value(claims).unwrap() })
    }

    fn unsigned(claims: Value) -> String {
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn scopes_include_the_lesser_ones_and_come_in_every_usual_form() {
        for claims in [
            json!({"scope": "openid nameservice:write"}),
            json!({"scp": ["nameservice:write"]}),
            json!({"scp": "nameservice:read nameservice:write"}),
        ] {
            let principal = principal(claims);
            assert!(principal.may(Scope::Read, &address("a")) && principal.may(Scope::Write, &address("a")));
            assert!(!principal.may(Scope::Admin, &address("a")));
        }
        assert!(!principal(json!({"scope": "nameservice:writer"})).may_somewhere(Scope::Read));
        assert!(principal(json!({"scope": "nameservice:admin"})).may(Scope::Read, &address("a")));
    }

    #[test]
    fn globs_narrow_a_token_and_a_star_crosses_slashes() {
        let principal =
            principal(json!({"scope": "nameservice:admin", "nameservice:addresses": ["tenant/*", "mydb", "x:dev*"]}));
        for seen in ["tenant/a:main", "tenant/a/b:c/d", "mydb:main", "x:dev/1"] {
            assert!(principal.may(Scope::Admin, &address(seen)), "{seen}");
        }
        for unseen in ["tenant:main", "mydb:dev", "x:main", "my/tenant/a:main"] {
            assert!(!principal.may(Scope::Read, &address(unseen)), "{unseen}");
        }
        assert_eq!(principal.check(Scope::Read, &address("other")).unwrap_err().kind(), Kind::UnknownRecord);
        for scope in [Scope::Write, Scope::Admin] {
            assert_eq!(principal.check(scope, &address("other")).unwrap_err().kind(), Kind::AddressNotCovered);
        }
    }

    #[test]
    fn an_empty_or_broken_list_of_globs_never_means_all() {
        let none = principal(json!({"scope": "nameservice:read", "nameservice:addresses": []}));
        assert!(!none.may(Scope::Read, &address("a")));
        for claim in [json!({}), json!(["a", 1]), json!(null), json!(true)] {
            let claims = json!({"scope": "nameservice:read", "nameservice:addresses": claim});
            let rejected = Principal::from_claims(claims.as_object().unwrap()).unwrap_err();
            assert_eq!(rejected.kind(), Kind::Unauthorized);
        }
    }

    #[test]
    fn claims_of_fluree_grant_reading_and_writing_there() {
        let all = principal(json!({"fluree.storage.all": true}));
        assert!(all.may(Scope::Write, &address("a")) && !all.may_somewhere(Scope::Admin));
        let some = principal(json!({"fluree.storage.ledgers": ["mydb", "x:dev", "bad@"]}));
        assert!(some.may(Scope::Write, &address("mydb:main")) && some.may(Scope::Read, &address("x:dev")));
        assert_eq!(some.check(Scope::Read, &address("x:main")).unwrap_err().kind(), Kind::UnknownRecord);
        assert_eq!(some.check(Scope::Admin, &address("mydb")).unwrap_err().kind(), Kind::InsufficientScope);
        assert!(!principal(json!({"fluree.storage.all": "true"})).may_somewhere(Scope::Read));
    }

    #[test]
    fn claims_of_fluree_to_events_grant_events_and_nothing_else() {
        let all = principal(json!({"fluree.events.all": true}));
        let some = principal(json!({"fluree.events.ledgers": ["mydb", "a*b"]}));
        for (caller, name, may) in [
            (&all, "mydb", true),
            (&all, "other", true),
            (&some, "mydb", true),
            (&some, "other", false),
            (&some, "mydb:dev", false),
            (&some, "a*b", true),
            (&some, "axb", false),
        ] {
            assert_eq!(caller.may(Scope::Events, &address(name)), may, "{name}");
            assert!(!caller.may(Scope::Read, &address(name)) && !caller.may_somewhere(Scope::Read));
        }
        assert!(all.may_somewhere(Scope::Events) && some.may_somewhere(Scope::Events));
        assert_eq!(all.visible(Scope::Events), Visible::All);
        assert!(principal(json!({"fluree.storage.ledgers": ["mydb"]})).may(Scope::Events, &address("mydb")));
    }

    #[test]
    fn claims_of_fluree_to_events_grant_ledgers_and_graph_sources_apart() {
        use RecordKind::{GraphSource, Ledger};
        let ledgers = principal(json!({"fluree.events.ledgers": ["mydb", "both"]}));
        let sources = principal(json!({"fluree.events.graph_sources": ["search", "both"]}));
        let each = principal(json!({"fluree.events.ledgers": ["mydb"], "fluree.events.graph_sources": ["search"]}));
        let all = principal(json!({"fluree.events.all": true, "fluree.events.graph_sources": ["search"]}));
        let storage = principal(json!({"fluree.storage.ledgers": ["mydb", "search"]}));
        for (caller, kind, name, may) in [
            (&ledgers, Ledger, "mydb", true),
            (&ledgers, Ledger, "both", true),
            (&ledgers, GraphSource, "mydb", false),
            (&ledgers, GraphSource, "search", false),
            (&sources, GraphSource, "search", true),
            (&sources, GraphSource, "both", true),
            (&sources, Ledger, "search", false),
            (&sources, GraphSource, "search:dev", false),
            (&each, Ledger, "mydb", true),
            (&each, GraphSource, "search", true),
            (&each, Ledger, "search", false),
            (&each, GraphSource, "mydb", false),
            (&all, GraphSource, "other", true),
            (&all, Ledger, "other", true),
            (&storage, GraphSource, "search", true),
            (&storage, Ledger, "mydb", true),
        ] {
            assert_eq!(caller.follows(kind, &address(name)), may, "{caller:?} {kind:?} {name}");
        }
        assert!(sources.may_somewhere(Scope::Events) && !sources.may_somewhere(Scope::Read));
        // Readers whose streams differ never share one.
        assert_ne!(ledgers.events_form(), sources.events_form());
        assert_ne!(each.events_form(), ledgers.events_form());
    }

    #[test]
    fn what_may_be_read_but_not_written_is_no_secret() {
        let caller = principal(json!({"scope": "nameservice:read", "fluree.storage.ledgers": ["mine"]}));
        assert!(caller.check(Scope::Write, &address("mine")).is_ok());
        assert_eq!(caller.check(Scope::Write, &address("other")).unwrap_err().kind(), Kind::InsufficientScope);
    }

    #[test]
    fn callers_do_not_share_an_id() {
        let one = principal(json!({"iss": "a", "sub": "b c"}));
        let two = principal(json!({"iss": "a b", "sub": "c"}));
        assert_ne!(one.id(), two.id());
    }

    #[tokio::test]
    async fn the_gateway_must_have_verified_the_very_token() {
        let claims = json!({"iss": "i", "sub": "s", "scope": "nameservice:read", "nameservice:addresses": ["a:*"]});
        let copied = copy(json!({"iss": "i", "sub": "s", "nameservice:addresses": "[a:*]"}));
        let token = unsigned(claims);
        let caller = Auth::Gateway.principal(&parts(copied.clone(), Some(&token))).await.unwrap();
        assert!(caller.may(Scope::Read, &address("a")) && !caller.may(Scope::Read, &address("b")));

        let forged = unsigned(json!({"iss": "i", "sub": "other", "scope": "nameservice:admin"}));
        for rejected in [
            parts(copied.clone(), Some(&forged)),
            parts(copied.clone(), Some("nonsense")),
            parts(copied, None),
            parts(None, Some(&token)),
            Request::new(()).into_parts().0,
        ] {
            assert_eq!(Auth::Gateway.principal(&rejected).await.unwrap_err().kind(), Kind::Unauthorized);
        }
    }

    #[tokio::test]
    async fn an_iam_caller_of_the_gateway_may_do_everything() {
        let iam = Authorizer::Iam { arn: "arn:aws:iam::1:user/a".into() };
        let caller = Auth::Gateway.principal(&parts(Some(iam), None)).await.unwrap();
        assert!(caller.may(Scope::Admin, &address("a")));
    }

    #[tokio::test]
    async fn a_static_token_opens_everything_and_nothing_else_does() {
        let auth = Auth::Token(StaticToken::new("secret"));
        let caller = auth.principal(&parts(None, Some("secret"))).await.unwrap();
        assert!(caller.may(Scope::Admin, &address("a")));
        for rejected in [parts(None, Some("Secret")), parts(None, Some("")), parts(None, None)] {
            assert_eq!(auth.principal(&rejected).await.unwrap_err().kind(), Kind::Unauthorized);
        }
        assert!(!format!("{auth:?}").contains("secret"));
    }
}
