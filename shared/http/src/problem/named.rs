//! The named constructors of problems: what each says is wrong, and what to do.

use axum::http::{HeaderValue, header};
use jiff::Timestamp;
use nameservice_api::{leases, transactions::OperationResult};
use nameservice_model::{Address, BoxError, ChangeFeed, ConcernKind, Error, InvalidCursor, Record, RecordKind};
use serde_json::{Value, json};

use super::{ForUpstream, Kind, Problem, RETRY_AFTER, shortened};
use crate::scope::Scope;

impl Problem {
    /// The path does not hold an address.
    pub fn invalid_address(reason: impl ToString) -> Self {
        Self::new(Kind::InvalidAddress, reason.to_string()).member("field", "address")
    }

    /// A member of the body does not hold an address.
    pub fn invalid_address_in(field: &str, reason: impl ToString) -> Self {
        Self::new(Kind::InvalidAddress, format!("{field}: {}", reason.to_string())).member("field", shortened(field))
    }

    /// A member of the body does not hold a content id.
    pub fn invalid_content_id(field: &str, reason: impl ToString) -> Self {
        Self::new(Kind::InvalidContentId, format!("{field}: {}", reason.to_string())).member("field", shortened(field))
    }

    /// A member of the body is invalid. The empty field means the body as a whole.
    pub fn invalid_body(field: &str, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        match field {
            "" => Self::new(Kind::InvalidBody, reason),
            field => Self::new(Kind::InvalidBody, format!("{field}: {reason}")).member("field", shortened(field)),
        }
    }

    /// A query parameter is invalid.
    pub fn invalid_parameter(parameter: &str, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        match parameter {
            "" => Self::new(Kind::InvalidParameter, reason),
            parameter => Self::new(Kind::InvalidParameter, format!("{parameter}: {reason}"))
                .member("field", shortened(parameter)),
        }
    }

    /// A cursor that did not come from a page.
    pub fn invalid_cursor(reason: &InvalidCursor) -> Self {
        Self::new(Kind::InvalidCursor, reason.to_string()).member("field", "cursor")
    }

    /// An `Idempotency-Key` that cannot be used.
    pub fn invalid_idempotency_key(reason: &str) -> Self {
        Self::new(Kind::InvalidIdempotencyKey, format!("the Idempotency-Key {reason}"))
    }

    /// The request has no token, or none of a kind that is accepted here.
    pub fn no_token() -> Self {
        Self::new(Kind::Unauthorized, "send a token: `Authorization: Bearer …`")
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"nameservice\""))
    }

    /// The token is not valid.
    pub fn invalid_token(reason: &str) -> Self {
        // `reason` is one of our own messages, or a claim's name: visible ASCII, but a quote would end the parameter.
        let safe: String =
            reason.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\')).take(200).collect();
        let challenge = format!("Bearer realm=\"nameservice\", error=\"invalid_token\", error_description=\"{safe}\"");
        let problem = Self::new(Kind::Unauthorized, reason);
        match HeaderValue::try_from(challenge) {
            Ok(challenge) => problem.header(header::WWW_AUTHENTICATE, challenge),
            Err(_) => problem,
        }
    }

    /// The token cannot be checked, since no key set could be read yet. The log has the cause.
    pub fn keys_not_read() -> Self {
        let detail = "the keys that tokens are checked with could not be fetched from their issuer yet; nothing was \
                      written: try again";
        Self::new(Kind::Unavailable, detail).header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// The token is valid, but lacks the scope for this.
    pub fn insufficient_scope(needed: Scope) -> Self {
        let problem = Self::new(Kind::InsufficientScope, format!("this needs the scope `{}`", needed.as_str()))
            .member("scope", needed.as_str());
        let challenge =
            format!("Bearer realm=\"nameservice\", error=\"insufficient_scope\", scope=\"{}\"", needed.as_str());
        match HeaderValue::try_from(challenge) {
            Ok(challenge) => problem.header(header::WWW_AUTHENTICATE, challenge),
            Err(_) => problem,
        }
    }

    /// The token allows this, but not at this address. Nothing was looked up.
    pub fn address_not_covered(address: &Address) -> Self {
        let detail = format!("the token's `nameservice:addresses` do not cover `{address}`");
        Self::new(Kind::AddressNotCovered, detail).member("address", address.as_str())
    }

    /// No route has this path.
    pub fn not_found(path: &str) -> Self {
        Self::new(Kind::NotFound, format!("no route has the path {path}"))
    }

    /// An open service on one machine only answers to that machine's names.
    pub fn misdirected(host: &str) -> Self {
        Self::new(
            Kind::Misdirected,
            format!("this service does not answer for the host `{host}`: use localhost, or run it with keys"),
        )
    }

    /// A page of another host tries to open a socket, which browsers do not prevent.
    pub fn foreign_origin(origin: &str) -> Self {
        Self::new(
            Kind::Misdirected,
            format!("pages of {origin} cannot open a socket here: only those of this service can"),
        )
    }

    /// A page of another site sends a write, which its visitor's browser need not ask about first.
    pub fn foreign_page(origin: &str) -> Self {
        let detail =
            format!("pages of {origin} may not write here: name their origin with --cors-origin, or use a token");
        Self::new(Kind::Misdirected, detail)
    }

    /// A body that takes too long to arrive.
    pub fn body_too_slow(seconds: u64) -> Self {
        Self::new(Kind::RequestTimeout, format!("the body did not arrive within {seconds} seconds"))
            .header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// A request that should open a socket, and does not; `instead` says what to do.
    pub fn no_socket(instead: &str) -> Self {
        Self::new(Kind::MethodNotAllowed, instead).header(header::ALLOW, HeaderValue::from_static("POST"))
    }

    /// No such record, or none that the caller may see.
    pub fn unknown_record(address: &Address) -> Self {
        Self::new(Kind::UnknownRecord, format!("there is no record `{address}`"))
    }

    /// No record has this name, or none that the caller may see.
    pub fn unknown_name(name: &str) -> Self {
        Self::new(Kind::UnknownRecord, format!("there is no ledger named `{name}`"))
    }

    /// No such ledger to branch from, or none that the caller may see.
    pub fn unknown_source(source: &Address) -> Self {
        Self::new(Kind::UnknownSource, format!("there is no live ledger `{source}` to branch from"))
    }

    /// The route does not accept the method. `allow` lists those that it accepts.
    pub fn method_not_allowed(method: &str, allow: Option<&str>) -> Self {
        let problem = Self::new(Kind::MethodNotAllowed, format!("this route does not take {method}"));
        match allow.map(HeaderValue::try_from) {
            Some(Ok(allow)) => problem.header(header::ALLOW, allow),
            _ => problem,
        }
    }

    /// The expected value does not match.
    pub fn conflict(actual: Value) -> Self {
        let detail = "nothing was written: the stored value, `actual`, is not the expected one, or the new value does \
                      not advance it";
        Self::new(Kind::Conflict, detail).member("actual", actual)
    }

    /// Another holder has a lease on the record.
    pub fn lease_held(address: &Address, lease: &leases::Lease) -> Self {
        let until =
            Timestamp::from_second(lease.expires_at).map_or_else(|_| lease.expires_at.to_string(), |at| at.to_string());
        let detail = format!("{address} is locked by {} ({}) until {until}", lease.holder, lease.name);
        Self::new(Kind::LeaseHeld, detail).member("lease", json!(lease))
    }

    /// The token is not that of the current lease, which is this one.
    pub fn lease_lost(address: &Address, lease: Option<&leases::Lease>) -> Self {
        let detail = format!("nothing was written: the lease on `{address}` has expired, or another holder has it now");
        Self::new(Kind::LeaseLost, detail).member("lease", json!(lease))
    }

    /// A transaction was rejected; the results show the outcome of each operation.
    pub fn transaction_rejected(results: &[OperationResult]) -> Self {
        let detail = "nothing was written: `results` shows the outcome of each operation; those that `passed` were not applied either";
        Self::new(Kind::TransactionRejected, detail).member("results", json!(results))
    }

    /// The address is taken.
    pub fn already_exists(address: &Address) -> Self {
        Self::new(Kind::AlreadyExists, format!("`{address}` exists, live or retracted"))
    }

    /// The record is of a kind that this operation does not apply to.
    pub fn wrong_kind(address: &Address, kind: RecordKind, source_type: Option<&str>) -> Self {
        let what = match kind {
            RecordKind::Ledger => "a ledger".to_owned(),
            RecordKind::GraphSource => match source_type {
                Some(source_type) => format!("a graph source of the type `{source_type}`"),
                None => "a graph source".to_owned(),
            },
        };
        let problem = Self::new(Kind::WrongKind, format!("`{address}` is {what}")).member("kind", kind.as_str());
        match source_type {
            Some(source_type) => problem.member("source_type", source_type),
            None => problem,
        }
    }

    /// Other records depend on this one: these, as far as the caller may see them, some of them with kind and type.
    pub fn has_dependents(address: &Address, dependents: &[Address], records: &[Record]) -> Self {
        let dependents: Vec<_> = dependents.iter().map(Address::as_str).collect();
        let described = records.iter().map(|record| {
            let mut described = json!({ "address": record.address.as_str(), "kind": record.kind.as_str() });
            if let Some(source_type) = &record.source_type {
                described["source_type"] = source_type.as_str().into();
            }
            described
        });
        Self::new(Kind::HasDependents, format!("branches or graph sources depend on `{address}`"))
            .member("dependents", dependents)
            .member("dependent_records", described.collect::<Vec<_>>())
    }

    /// The record is protected from the operation.
    pub fn protected(address: &Address) -> Self {
        let detail = format!(
            "`{address}` is protected: it cannot be retracted, purged or reset. An administrator can unprotect it: PUT \
             /v1/protections/{address}"
        );
        Self::new(Kind::Protected, detail)
    }

    /// A branch cannot start from a ledger without commits.
    pub fn unborn_source(source: &Address) -> Self {
        Self::new(Kind::UnbornSource, format!("`{source}` has no commit to branch from"))
    }

    /// The record was not created as a branch.
    pub fn not_a_branch(address: &Address) -> Self {
        Self::new(Kind::NotABranch, format!("`{address}` was not created as a branch: purge it instead"))
    }

    /// The record is retracted.
    pub fn retracted(address: &Address) -> Self {
        Self::new(Kind::Retracted, format!("`{address}` is retracted: restore it first"))
    }

    /// What follows the position has expired, or was never in this feed.
    pub fn expired(after: u64, oldest: u64) -> Self {
        let detail = format!(
            "the feed no longer holds what follows position {after}; it begins at {oldest}: read /v1/snapshot and \
             continue from its position"
        );
        Self::new(Kind::Expired, detail).member("oldest", oldest)
    }

    /// Rejects requests for changes if it is known that none reach the feed, and why.
    pub fn unless_followed(feed: &dyn ChangeFeed) -> Result<(), Self> {
        match feed.outage() {
            None => Ok(()),
            Some(reason) => Err(Self::new(Kind::FeedUnavailable, reason).header(header::RETRY_AFTER, RETRY_AFTER)),
        }
    }

    /// The feed does not hold what follows a position: it has expired, or the feed has not reached the position.
    pub async fn gone(feed: &dyn ChangeFeed, after: u64, oldest: u64) -> Self {
        match feed.position().await {
            Ok(last) if after > last => Self::position_ahead(after, last, oldest),
            Ok(_) => Self::expired(after, oldest),
            Err(error) => error.into(),
        }
    }

    /// The feed has not reached the position, which is of another feed, or of one that was lost.
    pub fn position_ahead(after: u64, last: u64, oldest: u64) -> Self {
        let detail = format!(
            "position {after} is beyond the end of the feed, which is at {last}: the position is not of this feed. Read \
             /v1/snapshot and continue from its position"
        );
        Self::new(Kind::PositionAhead, detail).member("position", last).member("oldest", oldest)
    }

    /// The feed has not reached the position that the answer must include.
    pub fn position_not_yet(wanted: u64, position: u64) -> Self {
        Self::new(Kind::NotYet, format!("this service is at position {position} and has not reached {wanted}"))
            .member("position", position)
            .header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// The record is older than the answer must be. `record` is the current one, if there is one.
    pub fn watermark_not_yet(concern: ConcernKind, wanted: i64, record: Option<&nameservice_api::Record>) -> Self {
        let mark = match concern {
            ConcernKind::Head | ConcernKind::Index => "t",
            ConcernKind::Status | ConcernKind::Config => "v",
        };
        Self::new(Kind::NotYet, format!("the {concern} has not reached {mark} {wanted}"))
            .member("record", json!(record))
            .header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// The body is larger than the service takes.
    pub fn body_too_large(limit: usize) -> Self {
        Self::new(Kind::PayloadTooLarge, format!("the body exceeds the limit of {limit} bytes"))
    }

    /// The answer would exceed the maximum size; `instead` says what to do.
    pub fn answer_too_large(instead: &str) -> Self {
        Self::new(Kind::PayloadTooLarge, format!("the answer does not fit: {instead}"))
    }

    /// The body is not declared as JSON.
    pub fn unsupported_media_type() -> Self {
        Self::new(Kind::UnsupportedMediaType, "send JSON, with `Content-Type: application/json`")
    }

    /// Dependencies do not exist, are retracted, or are not visible to the caller.
    pub fn missing_dependencies(missing: &[Address]) -> Self {
        let missing: Vec<_> = missing.iter().map(Address::as_str).collect();
        Self::new(Kind::MissingDependencies, format!("missing or retracted: {}", missing.join(", ")))
            .member("missing", missing)
    }

    /// Something that should not happen.
    pub fn internal(failure: impl Into<BoxError>) -> Self {
        Self::new(Kind::Internal, "the failure was logged under this answer's x-request-id").caused_by(failure)
    }

    /// The backend returned an outcome that this version does not know.
    pub fn unknown_outcome() -> Self {
        Self::internal("the backend returned an outcome that this version does not know")
    }

    /// The backend is that of a replica.
    pub(super) fn for_upstream(addresses: Vec<Address>) -> Self {
        let mut problem = Self::new(Kind::Misdirected, "this is a replica: send writes to its upstream");
        problem.0.upstream = Some(ForUpstream(addresses));
        problem
    }

    /// The store is unavailable.
    pub fn unavailable(failure: Error) -> Self {
        // This is the answer to reads and writes, and also if the store answered, but not in time.
        let detail = "the store cannot be reached, or did not finish in time; a write was not applied: try again";
        Self::new(Kind::Unavailable, detail).header(header::RETRY_AFTER, RETRY_AFTER).caused_by(failure)
    }

    /// The upstream of a replica cannot be reached.
    pub fn upstream_unavailable(failure: Error) -> Self {
        Self::new(Kind::Unavailable, "cannot reach the upstream of this replica; nothing was written: try again")
            .header(header::RETRY_AFTER, RETRY_AFTER)
            .caused_by(failure)
    }

    pub(super) fn outcome_unknown(failure: Error) -> Self {
        let detail = "the write may or may not have been applied: read the record, or repeat the request under the \
                      same Idempotency-Key";
        Self::new(Kind::OutcomeUnknown, detail).header(header::RETRY_AFTER, RETRY_AFTER).caused_by(failure)
    }
}
