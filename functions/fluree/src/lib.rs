//! `/fluree` and `/v1/fluree`: the wire that Fluree's servers and command-line tool speak to a remote nameservice
//! (contract §8).

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use nameservice_http::{
    AddressInPath, Problem, Route,
    extract::{Allowed, Body, Read, Rest, Target, Write},
    page,
    problem::Kind,
    shapes::fluree::{Init, Push, PushAnswer, Record, Ref, RefAnswer, Snapshot},
};
use nameservice_model::{
    Address, ConcernValue, Created, Expected, Limit, NameService, Publisher, PushOutcome, RefPublisher,
};
use utoipa_axum::routes;

/// How many records a page of the scan behind a snapshot has.
const SCAN_PAGE: usize = 1_000;

nameservice_http::refusals!(GetRefusals: READS; InvalidAddress UnknownRecord);
nameservice_http::refusals!(SnapshotRefusals: READS; PayloadTooLarge);
nameservice_http::refusals!(
    RefRefusals: READS WRITES TAKES_BODY;
    InvalidAddress InvalidContentId NotFound UnknownRecord Retracted
);

/// Get a record, as Fluree knows it
#[utoipa::path(
    get,
    path = "/storage/ns/{*address}",
    tag = "fluree",
    params(AddressInPath),
    responses((status = OK, description = "The record", body = Record), GetRefusals),
    security(("bearer" = [])),
)]
async fn fluree_record_get(
    State(names): State<Arc<dyn NameService>>,
    target: Target<Read>,
) -> Result<Json<Record>, Problem> {
    let record = names.lookup(target.address()).await?.ok_or_else(|| target.unknown())?;
    Ok(Json((&record).into()))
}

/// Get all records, as Fluree knows them
///
/// One answer with everything: where it does not fit, read `/v1/snapshot` in pages.
#[utoipa::path(
    get,
    path = "/nameservice/snapshot",
    tag = "fluree",
    responses((status = OK, description = "All records", body = Snapshot), SnapshotRefusals),
    security(("bearer" = [])),
)]
async fn fluree_snapshot_get(
    State(names): State<Arc<dyn NameService>>,
    caller: Allowed<Read>,
) -> Result<Json<Snapshot>, Problem> {
    let visible = |address: &_| caller.sees(address);
    let mut snapshot = Snapshot::default();
    let mut bytes = 0;
    let mut after = None;
    let limit = Limit::new(SCAN_PAGE).unwrap_or_default();
    loop {
        let found = names.snapshot(limit, after.as_ref(), &visible).await?;
        for record in &found.items {
            let shown = Record::from(record);
            bytes += page::json_bytes(&shown)? + 1;
            if bytes > page::MAX_PAGE_BYTES {
                return Err(Problem::answer_too_large("read it in pages from /v1/snapshot"));
            }
            match shown {
                Record::Ledger(ledger) => snapshot.ledgers.push(ledger),
                Record::GraphSource(graph_source) => snapshot.graph_sources.push(graph_source),
            }
        }
        match found.cursor {
            Some(cursor) => after = Some(cursor),
            None => return Ok(Json(snapshot)),
        }
    }
}

/// Move a ref, or create a ledger
///
/// The path ends in what is asked for: `{address}/commit` and `{address}/index` compare and set, `{address}/init`
/// creates a ledger without commits where there is none, and takes no body.
#[utoipa::path(
    post,
    path = "/nameservice/refs/{*address}",
    tag = "fluree",
    params(("address" = String, Path, description = "`{address}/commit`, `{address}/index` or `{address}/init`",
        example = "mydb:main/commit")),
    request_body = Option<Push>,
    responses(
        (status = OK, description = "In place; of `init`, whether it was created", body = RefAnswer),
        (status = CONFLICT, description = "Nothing was written", body = PushAnswer),
        RefRefusals,
    ),
    security(("bearer" = [])),
)]
async fn fluree_ref_post(
    State(refs): State<Arc<dyn RefPublisher>>,
    State(ledgers): State<Arc<dyn Publisher>>,
    caller: Allowed<Write>,
    Rest(rest): Rest,
    body: Result<Body<Push>, Problem>,
) -> Result<Response, Problem> {
    let (address, operation) = split(&rest)?;
    match operation {
        Operation::Init => {
            let target = caller.target(address)?;
            let created = ledgers.create_ledger(target.call(), target.address(), None, None).await?;
            let init = Init { created: matches!(created, Created::Created(_)) };
            Ok(Json(RefAnswer::Init(init)).into_response())
        }
        Operation::Commit => {
            let push = body?.0.into_head()?;
            let Some(target) = known(caller, address, push.expected())? else { return Ok(conflict(None)) };
            answer(&target, refs.push_head(target.call(), target.address(), &push).await?)
        }
        Operation::Index => {
            let push = body?.0.into_index()?;
            let Some(target) = known(caller, address, push.expected())? else { return Ok(conflict(None)) };
            answer(&target, refs.push_index(target.call(), target.address(), &push).await?)
        }
    }
}

#[derive(Debug)]
enum Operation {
    Commit,
    Index,
    Init,
}

/// Splits what follows `refs/`. The address before the last segment holds slashes of its own.
fn split(rest: &str) -> Result<(Address, Operation), Problem> {
    let unknown = || Problem::not_found(&format!("refs/{rest}"));
    let (address, last) = rest.rsplit_once('/').ok_or_else(unknown)?;
    let operation = match last {
        "commit" => Operation::Commit,
        "index" => Operation::Index,
        "init" => Operation::Init,
        _ => return Err(unknown()),
    };
    Ok((Address::parse(address).map_err(Problem::invalid_address)?, operation))
}

/// The target of a push; `None` where the caller may not know it, which then reads as an unknown record does here:
/// a conflict with nothing.
fn known<T>(
    caller: Allowed<Write>,
    address: Address,
    expected: &Expected<T>,
) -> Result<Option<Target<Write>>, Problem> {
    match caller.target(address) {
        Err(problem) if problem.kind() == Kind::UnknownRecord && matches!(expected, Expected::Value(_)) => Ok(None),
        target => target.map(Some),
    }
}

fn answer<T>(target: &Target<Write>, outcome: PushOutcome<T>) -> Result<Response, Problem>
where
    Ref: From<ConcernValue<T>>,
{
    match outcome {
        PushOutcome::Updated { value, .. } => {
            Ok(Json(RefAnswer::Push(PushAnswer::Updated { at: value.into() })).into_response())
        }
        PushOutcome::Stale { actual } => Ok(conflict(Some(actual.into()))),
        PushOutcome::Conflict { actual } => Ok(conflict(actual.map(Ref::from))),
        // No push of this wire claims a lease.
        PushOutcome::Unknown | PushOutcome::WrongKind(_) | PushOutcome::LeaseLost { .. } => Ok(conflict(None)),
        PushOutcome::Retracted => Err(Problem::retracted(target.address())),
        _ => Err(Problem::unknown_outcome()),
    }
}

fn conflict(actual: Option<Ref>) -> Response {
    (StatusCode::CONFLICT, Json(RefAnswer::Push(PushAnswer::Conflict { actual }))).into_response()
}

/// The room's one door.
pub fn route() -> Route {
    let rooms = Route::new()
        .routes(routes!(fluree_record_get))
        .routes(routes!(fluree_snapshot_get))
        .routes(routes!(fluree_ref_post));
    // The OpenAPI document describes them once, under the shorter path.
    let again = Router::new().nest("/v1/fluree", rooms.clone().into());
    Route::new().nest("/fluree", rooms).merge(again.into())
}
