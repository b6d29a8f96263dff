//! `/fluree` and `/v1/fluree`: the wire that Fluree's servers and command-line tool speak to a remote nameservice
//! (docs/specification.md, Fluree wire).

mod snapshot;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::TryStreamExt as _;
use nameservice_http::{
    AddressInPath, Problem, Route, WholeAnswers,
    extract::{Allowed, Body, Read, Rest, Target, Write},
    shapes::fluree::{Init, Ledger, Push, PushAnswer, Record, Ref, RefAnswer, Snapshot},
};
use nameservice_model::{
    Address, ConcernValue, Created, NameService, Publisher, PushOutcome, RecordKind, RefPublisher,
};
use utoipa_axum::routes;

nameservice_http::rejections!(GetRejections: READS; InvalidAddress UnknownRecord);
nameservice_http::rejections!(SnapshotRejections: READS; PayloadTooLarge);
nameservice_http::rejections!(
    RefRejections: READS WRITES TAKES_BODY;
    InvalidAddress InvalidContentId NotFluree NotFound UnknownRecord
);

/// Get a ledger, in Fluree's format
///
/// This returns ledgers only: graph sources are in `snapshot` and `events`.
#[utoipa::path(
    get,
    path = "/storage/ns/{*address}",
    tag = "fluree",
    params(AddressInPath),
    responses((status = OK, description = "The ledger", body = Ledger), GetRejections),
    security(("bearer" = [])),
)]
async fn fluree_record_get(
    State(names): State<Arc<dyn NameService>>,
    target: Target<Read>,
) -> Result<Json<Record>, Problem> {
    // As Fluree's own server answers for graph sources: its clients can decode nothing else.
    let record = names.lookup(target.address()).await?.filter(|record| record.kind == RecordKind::Ledger);
    Ok(Json((&target.shown(record.ok_or_else(|| target.unknown())?)).into()))
}

/// Get all records, in Fluree's format
///
/// One streamed answer with everything. Behind a gateway, which does not stream, an answer that is too large becomes a
/// 413: read `/v1/snapshot` in pages.
#[utoipa::path(
    get,
    path = "/nameservice/snapshot",
    tag = "fluree",
    responses((status = OK, description = "All records", body = Snapshot), SnapshotRejections),
    security(("bearer" = [])),
)]
async fn fluree_snapshot_get(
    State(names): State<Arc<dyn NameService>>,
    caller: Allowed<Read>,
    whole: Option<Extension<WholeAnswers>>,
) -> Result<Response, Problem> {
    let mut frames = Box::pin(snapshot::frames(names, caller));
    match whole {
        None => {
            // A failure before anything was sent is still answered with a problem.
            let first = frames.try_next().await?.unwrap_or_default();
            snapshot::streamed(first, frames)
        }
        Some(_) => snapshot::whole(frames).await,
    }
}

/// Move a ref, or create a ledger
///
/// The path ends in the operation: `{address}/commit` and `{address}/index` compare and set; `{address}/init` creates a
/// ledger without commits unless it exists, and takes no body. A retracted record rejects all three with the conflict that
/// Fluree's clients understand.
#[utoipa::path(
    post,
    path = "/nameservice/refs/{*address}",
    tag = "fluree",
    params(("address" = String, Path, description = "`{address}/commit`, `{address}/index` or `{address}/init`",
        example = "mydb:main/commit")),
    request_body = Option<Push>,
    responses(
        (status = OK, description = "The stored value; for `init`, whether it was created", body = RefAnswer),
        (status = CONFLICT, description = "Nothing was written", body = PushAnswer),
        RefRejections,
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
            match ledgers.create_ledger(target.call(), target.address(), None, None).await? {
                Created::Created(_) => Ok(init(true)),
                Created::AlreadyExists => match ledgers.lookup(target.address()).await? {
                    Some(record) if record.retracted => Ok(conflict(record.head.map(Ref::from))),
                    _ => Ok(init(false)),
                },
                _ => Err(Problem::unknown_outcome()),
            }
        }
        Operation::Commit => {
            let push = body?.0.into_head()?;
            let target = caller.target(address)?;
            match refs.push_head(target.call(), target.address(), &push).await? {
                PushOutcome::Retracted => Ok(conflict(refs.head(target.address()).await?.map(Ref::from))),
                outcome => answer(outcome),
            }
        }
        Operation::Index => {
            let push = body?.0.into_index()?;
            let target = caller.target(address)?;
            match refs.push_index(target.call(), target.address(), &push).await? {
                PushOutcome::Retracted => Ok(conflict(refs.index(target.address()).await?.map(Ref::from))),
                outcome => answer(outcome),
            }
        }
    }
}

#[derive(Debug)]
enum Operation {
    Commit,
    Index,
    Init,
}

/// Splits what follows `refs/`. The address, before the last segment, may contain slashes.
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

fn init(created: bool) -> Response {
    Json(RefAnswer::Init(Init { created })).into_response()
}

fn answer<T>(outcome: PushOutcome<T>) -> Result<Response, Problem>
where
    Ref: From<ConcernValue<T>>,
{
    match outcome {
        PushOutcome::Updated { value, .. } => {
            Ok(Json(RefAnswer::Push(PushAnswer::Updated { at: value.into() })).into_response())
        }
        PushOutcome::Stale { actual } => Ok(conflict(Some(actual.into()))),
        PushOutcome::Conflict { actual } => Ok(conflict(actual.map(Ref::from))),
        // `LeaseLost` cannot occur: pushes over this wire claim no lease.
        PushOutcome::Unknown | PushOutcome::WrongKind(_) | PushOutcome::LeaseLost { .. } => Ok(conflict(None)),
        _ => Err(Problem::unknown_outcome()),
    }
}

fn conflict(actual: Option<Ref>) -> Response {
    (StatusCode::CONFLICT, Json(RefAnswer::Push(PushAnswer::Conflict { actual }))).into_response()
}

/// The routes of this operation.
pub fn route() -> Route {
    let routes = Route::new()
        .routes(routes!(fluree_record_get))
        .routes(routes!(fluree_snapshot_get))
        .routes(routes!(fluree_ref_post));
    // The OpenAPI document describes them once, under the shorter path.
    let again = Router::new().nest("/v1/fluree", routes.clone().into());
    Route::new().nest("/fluree", routes).merge(again.into())
}
