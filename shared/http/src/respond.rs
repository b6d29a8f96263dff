//! Responses to outcomes that several handlers share.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use nameservice_model::{Address, ConcernValue, Error, NameService, PushOutcome, Record};
use serde::Serialize;

use crate::{
    Problem,
    extract::{Needs, Target},
    path::escape_path,
    shapes::{self, PushAnswer, PushStatus},
};

/// The answer to a push of any concern.
pub fn pushed<S, T, V>(target: &Target<S>, outcome: PushOutcome<T>) -> Result<Json<PushAnswer<V>>, Problem>
where
    S: Needs,
    V: From<ConcernValue<T>> + Serialize,
{
    let address = target.address();
    match outcome {
        PushOutcome::Updated { value, replayed } => {
            target.came_to(if replayed { "replayed" } else { "updated" });
            Ok(Json(PushAnswer { status: PushStatus::Updated, value: value.into(), replayed }))
        }
        PushOutcome::Stale { actual } => {
            target.came_to("stale");
            Ok(Json(PushAnswer { status: PushStatus::Stale, value: actual.into(), replayed: false }))
        }
        PushOutcome::Conflict { actual } => Err(conflict(actual.map(V::from))),
        PushOutcome::Unknown => Err(target.unknown()),
        PushOutcome::Retracted => Err(Problem::retracted(address)),
        PushOutcome::WrongKind(kind) => Err(Problem::wrong_kind(address, kind, None)),
        PushOutcome::LeaseLost { lease } => {
            Err(Problem::lease_lost(address, lease.map(shapes::leases::Lease::from).as_ref()))
        }
        _ => Err(Problem::unknown_outcome()),
    }
}

/// The rejection of a write whose expected value does not match.
pub fn conflict(actual: Option<impl Serialize>) -> Problem {
    match serde_json::to_value(actual) {
        Ok(actual) => Problem::conflict(actual),
        Err(error) => Problem::internal(error),
    }
}

/// How many of the dependents are described.
const DESCRIBED: usize = 100;

/// The rejection of a retraction or purge, with what the caller may see of its dependents.
pub async fn has_dependents<S: Needs>(target: &Target<S>, names: &dyn NameService) -> Problem {
    let described = async {
        let mut dependents = names.dependents(target.address()).await?;
        dependents.retain(|address| target.sees(address));
        let records = names.lookup_all(&dependents[..dependents.len().min(DESCRIBED)]).await?;
        Ok::<_, Error>(Problem::has_dependents(target.address(), &dependents, &records))
    };
    described.await.unwrap_or_else(Problem::from)
}

/// The answer to a write that changed nothing, since the record was already in the requested state.
pub fn unchanged(record: &Record) -> Response {
    ([(shapes::UNCHANGED, "true")], Json(shapes::Record::from(record))).into_response()
}

/// The answer that a record was created, and where it is.
pub fn created(record: &Record) -> Response {
    (StatusCode::CREATED, [location(&record.address)], Json(shapes::Record::from(record))).into_response()
}

/// Where a record is, escaped for a header.
fn location(address: &Address) -> (HeaderName, HeaderValue) {
    let path = escape_path(&format!("/v1/records/{address}"));
    // Every character that is not visible ASCII is escaped by now.
    (header::LOCATION, HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/v1/records")))
}
