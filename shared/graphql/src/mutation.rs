//! Mutations: creations, pushes, retractions. Conflicts and their like are results, each a member of a union.

use async_graphql::{Context, Enum, InputObject, Json, MaybeUndefined, Object, Result, SimpleObject, Union};
use nameservice_api::{
    self as api,
    leases::Claim,
    requests::{self, GraphValue, HeadValue},
};
use nameservice_http::Problem;
use nameservice_model::{
    Address, ConcernValue, Created, LeaseName, Published, PushOutcome, RecordKind, Restored, Retracted,
};
use serde_json::{Map, Value};

use crate::{
    context::{caller, failed, parse, refused, service},
    objects::{Config, Head, Index, JsonObject, Record, Status},
    query::shown,
    scalars::{Kind, Long},
};

/// What can be written.
pub(crate) struct Mutation;

/// A commit or an index root, at its `t`.
#[derive(InputObject)]
pub(crate) struct RefInput {
    /// Its content id; null with a `t` of 0 for none.
    id: Option<String>,
    /// Its `t`.
    t: Long,
}

impl From<RefInput> for HeadValue {
    fn from(input: RefInput) -> Self {
        Self { id: input.id, t: input.t.0 }
    }
}

/// The index of a named graph.
#[derive(InputObject)]
pub(crate) struct GraphInput {
    /// The name of the graph.
    name: String,
    /// The index root; null where it has none yet.
    id: Option<String>,
    /// The `t` that it covers.
    t: Option<Long>,
    /// How often this `t` was indexed again.
    rev: Option<Long>,
}

fn graphs(input: Option<Vec<GraphInput>>) -> std::collections::BTreeMap<String, Option<GraphValue>> {
    let graph = |GraphInput { name, id, t, rev }: GraphInput| {
        let value = id.map(|id| GraphValue { id, t: t.map_or(0, |t| t.0), rev: rev.map(|rev| rev.0) });
        (name, value)
    };
    input.into_iter().flatten().map(graph).collect()
}

/// A lease that a push is made under: only its current holder can push.
#[derive(InputObject)]
pub(crate) struct LeaseInput {
    /// Its name.
    name: String,
    /// Who holds it.
    holder: String,
    /// Its fencing token.
    token: Long,
}

fn claim(input: Option<LeaseInput>) -> Result<Option<Claim>> {
    let Some(LeaseInput { name, holder, token }) = input else { return Ok(None) };
    let name: LeaseName = name.parse().map_err(|reason| refused(Problem::invalid_body("lease.name", reason)))?;
    Ok(Some(Claim { name, holder, token: token.0 }))
}

/// Left out: any older value. Null: no record. Else this value.
fn expected<T, V>(input: MaybeUndefined<T>, value: impl FnOnce(T) -> V) -> Option<Option<V>> {
    match input {
        MaybeUndefined::Undefined => None,
        MaybeUndefined::Null => Some(None),
        MaybeUndefined::Value(input) => Some(Some(value(input))),
    }
}

/// Moves the head of a ledger.
#[derive(InputObject)]
pub(crate) struct HeadPushInput {
    /// The ledger.
    address: String,
    /// The head that must be stored now. Null: no record, which creates a ledger. Left out: any older head.
    expected: MaybeUndefined<RefInput>,
    /// The new head, with a `t` greater than the stored one.
    new: RefInput,
    /// The lease that must be held.
    lease: Option<LeaseInput>,
}

/// An index, with those of named graphs.
#[derive(InputObject)]
pub(crate) struct IndexInput {
    /// The index root; null with a `t` of 0 for none.
    id: Option<String>,
    /// The `t` that it covers.
    t: Long,
    /// The named graphs to set, or to compare; others keep theirs.
    graphs: Option<Vec<GraphInput>>,
}

/// Moves the index of a record.
#[derive(InputObject)]
pub(crate) struct IndexPushInput {
    /// The record.
    address: String,
    /// The index that must be stored now. Null: no record, which creates a ledger. Left out: any older index.
    expected: MaybeUndefined<IndexInput>,
    /// The new index.
    new: IndexInput,
    /// The lease that must be held.
    lease: Option<LeaseInput>,
}

/// A status or a config.
#[derive(InputObject)]
pub(crate) struct ValueInput {
    /// Its version. Of a new value, one more than the expected one where it is left out.
    v: Option<Long>,
    /// The payload. Of an expected value, compared where it is given.
    payload: Option<JsonObject>,
}

/// Changes the status of a record, or the configuration of a ledger.
#[derive(InputObject)]
pub(crate) struct ValuePushInput {
    /// The record.
    address: String,
    /// The value that must be stored now, with its `v`.
    expected: ValueInput,
    /// The new value, with its payload.
    new: ValueInput,
    /// The lease that must be held.
    lease: Option<LeaseInput>,
}

fn payload(input: Option<JsonObject>) -> Result<Map<String, Value>> {
    input.map(|Json(payload)| payload).ok_or_else(|| refused(Problem::invalid_body("new.payload", "is required")))
}

/// Which value a push has left.
#[derive(Enum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushStatus {
    /// The new one, written by this call.
    Updated,
    /// The new one, which was stored before.
    Replayed,
}

/// There is no such record, or none that the caller may see.
#[derive(SimpleObject)]
pub(crate) struct UnknownRecord {
    /// Its address.
    address: String,
}

/// The record is retracted.
#[derive(SimpleObject)]
pub(crate) struct RetractedRecord {
    /// Its address.
    address: String,
}

/// The record is of another kind.
#[derive(SimpleObject)]
pub(crate) struct WrongKind {
    /// Its address.
    address: String,
    /// Its kind.
    kind: Kind,
}

/// The lease of the push is not held: nothing was written.
#[derive(SimpleObject)]
pub(crate) struct LeaseLost {
    /// The current lease, if there is one.
    lease: Option<Json<Value>>,
}

fn kind(kind: RecordKind) -> Kind {
    api::Kind::from(kind).into()
}

/// The result of pushes of a concern: a union of what can come of it.
macro_rules! pushes {
    ($result:ident $pushed:ident $stale:ident $conflict:ident $value:ident $api:ty) => {
        /// The value is stored.
        #[derive(SimpleObject)]
        pub(crate) struct $pushed {
            /// Whether this call wrote it.
            status: PushStatus,
            /// The value that is stored.
            value: $value,
        }

        /// Certainly not written: the stored value is as new or newer.
        #[derive(SimpleObject)]
        pub(crate) struct $stale {
            /// The value that is stored.
            actual: $value,
        }

        /// Certainly not written: the stored value is not the expected one, or the new value does not advance it.
        #[derive(SimpleObject)]
        pub(crate) struct $conflict {
            /// The value that is stored; null where there is no record.
            actual: Option<$value>,
        }

        /// What has come of a push.
        #[derive(Union)]
        pub(crate) enum $result {
            /// It is stored.
            Pushed($pushed),
            /// It is older than what is stored.
            Stale($stale),
            /// Something else is stored than was expected.
            Conflict($conflict),
            /// There is no record.
            Unknown(UnknownRecord),
            /// The record is retracted.
            Retracted(RetractedRecord),
            /// The record has no such concern.
            WrongKind(WrongKind),
            /// The lease is not held.
            LeaseLost(LeaseLost),
        }

        impl $result {
            fn of<T>(address: &str, outcome: PushOutcome<T>) -> Result<Self>
            where
                $api: From<ConcernValue<T>>,
            {
                let value = |value: ConcernValue<T>| $value::from(<$api>::from(value));
                let address = address.to_owned();
                Ok(match outcome {
                    PushOutcome::Updated { value: stored, replayed } => {
                        let status = if replayed { PushStatus::Replayed } else { PushStatus::Updated };
                        Self::Pushed($pushed { status, value: value(stored) })
                    }
                    PushOutcome::Stale { actual } => Self::Stale($stale { actual: value(actual) }),
                    PushOutcome::Conflict { actual } => Self::Conflict($conflict { actual: actual.map(value) }),
                    PushOutcome::Unknown => Self::Unknown(UnknownRecord { address }),
                    PushOutcome::Retracted => Self::Retracted(RetractedRecord { address }),
                    PushOutcome::WrongKind(found) => Self::WrongKind(WrongKind { address, kind: kind(found) }),
                    PushOutcome::LeaseLost { lease } => {
                        let lease = lease.and_then(|lease| serde_json::to_value(api::leases::Lease::from(lease)).ok());
                        Self::LeaseLost(LeaseLost { lease: lease.map(Json) })
                    }
                    _ => return Err(refused(Problem::unknown_outcome())),
                })
            }
        }
    };
}

pushes! { PushHeadResult HeadPushed HeadStale HeadConflict Head api::Head }
pushes! { PushIndexResult IndexPushed IndexStale IndexConflict Index api::Index }
pushes! { PushStatusResult StatusPushed StatusStale StatusConflict Status api::Status }
pushes! { PushConfigResult ConfigPushed ConfigStale ConfigConflict Config api::Config }

/// A record as a write has left it.
#[derive(SimpleObject)]
pub(crate) struct Written {
    /// The record.
    record: Record,
    /// Whether this call changed anything.
    changed: bool,
}

/// A record of the address exists, live or retracted.
#[derive(SimpleObject)]
pub(crate) struct AlreadyExists {
    /// Its address.
    address: String,
}

/// Others depend on the record: these, as far as the caller may see them.
#[derive(SimpleObject)]
pub(crate) struct HasDependents {
    /// Their addresses.
    dependents: Vec<String>,
}

/// Dependencies that do not exist, or are retracted.
#[derive(SimpleObject)]
pub(crate) struct MissingDependencies {
    /// Their addresses.
    missing: Vec<String>,
}

/// What has come of the creation of a ledger.
#[derive(Union)]
pub(crate) enum CreateLedgerResult {
    /// It was created.
    Written(Box<Written>),
    /// The address is taken.
    AlreadyExists(AlreadyExists),
}

/// What has come of the publication of a graph source.
#[derive(Union)]
pub(crate) enum PublishGraphSourceResult {
    /// It is published.
    Written(Box<Written>),
    /// The stored config is another one than expected.
    Conflict(ConfigConflict),
    /// It depends on records that are not there.
    Missing(MissingDependencies),
    /// The address is that of a ledger, or of a graph source of another type.
    WrongKind(WrongKind),
    /// The graph source is retracted.
    Retracted(RetractedRecord),
}

/// What has come of a retraction or restoration.
#[derive(Union)]
pub(crate) enum RetractionResult {
    /// It is as wanted.
    Written(Box<Written>),
    /// Others depend on it.
    HasDependents(HasDependents),
    /// There is no record.
    Unknown(UnknownRecord),
}

/// All dependencies that do not exist as far as the caller may know: those that it may not see are in one list with those
/// that are not there.
async fn missing(context: &Context<'_>, dependencies: &[Address]) -> Result<MissingDependencies> {
    let mut missing = Vec::new();
    for dependency in dependencies {
        let is_live = caller(context).sees(dependency) && {
            let found = service(context).names.lookup(dependency).await.map_err(failed)?;
            found.is_some_and(|record| !record.retracted)
        };
        if !is_live {
            missing.push(dependency.as_str().to_owned());
        }
    }
    Ok(MissingDependencies { missing })
}

#[Object]
impl Mutation {
    /// Creates a ledger, with a head and a configuration where they are given.
    async fn create_ledger(
        &self,
        context: &Context<'_>,
        address: String,
        head: Option<RefInput>,
        config: Option<JsonObject>,
    ) -> Result<CreateLedgerResult> {
        let new = requests::NewLedger { address, head: head.map(Into::into), config: config.map(|Json(config)| config) };
        let new = new.into_model().map_err(refused)?;
        let call = caller(context).write(&new.address)?;
        let publisher = &service(context).publisher;
        match publisher.create_ledger(&call, &new.address, new.head.as_ref(), new.config.as_ref()).await.map_err(failed)? {
            Created::Created(record) => {
                Ok(CreateLedgerResult::Written(Box::new(Written { record: shown(context, *record), changed: true })))
            }
            Created::AlreadyExists => {
                Ok(CreateLedgerResult::AlreadyExists(AlreadyExists { address: new.address.as_str().to_owned() }))
            }
            _ => Err(refused(Problem::unknown_outcome())),
        }
    }

    /// Creates a graph source, or replaces the configuration of one.
    async fn publish_graph_source(
        &self,
        context: &Context<'_>,
        address: String,
        source_type: String,
        config: JsonObject,
        #[graphql(desc = "Left out, those of an existing graph source stay.")] dependencies: Option<Vec<String>>,
        #[graphql(desc = "The `v` of the config that must be stored now; 0 where the graph source must not exist.")]
        expected_v: Option<Long>,
    ) -> Result<PublishGraphSourceResult> {
        let address = parse(&address)?;
        let body = serde_json::json!({
            "source_type": source_type,
            "config": config.0,
            "dependencies": dependencies,
            "expected_v": expected_v.map(|v| v.0),
        });
        let body: requests::GraphSource =
            serde_json::from_value(body).map_err(|error| refused(Problem::invalid_body("", error)))?;
        let publication = body.into_publication(&address).map_err(refused)?;
        let call = caller(context).write(&address)?;
        let dependencies = publication.dependencies().unwrap_or_default();
        if !dependencies.iter().all(|dependency| caller(context).sees(dependency)) {
            return Ok(PublishGraphSourceResult::Missing(missing(context, dependencies).await?));
        }
        let text = address.as_str().to_owned();
        let written = |record, changed| {
            PublishGraphSourceResult::Written(Box::new(Written { record: shown(context, record), changed }))
        };
        let published = service(context).sources.publish_graph_source(&call, &publication).await.map_err(failed)?;
        Ok(match published {
            Published::Created(record) | Published::Updated(record) => written(*record, true),
            Published::Conflict { actual } => {
                let actual = actual.map(|actual| Config::from(api::Config::from(actual)));
                PublishGraphSourceResult::Conflict(ConfigConflict { actual })
            }
            Published::MissingDependencies(missing) => {
                let missing = missing.iter().map(|address| address.as_str().to_owned()).collect();
                PublishGraphSourceResult::Missing(MissingDependencies { missing })
            }
            Published::Retracted => PublishGraphSourceResult::Retracted(RetractedRecord { address: text }),
            Published::WrongKind { kind: found, .. } => {
                PublishGraphSourceResult::WrongKind(WrongKind { address: text, kind: kind(found) })
            }
            _ => return Err(refused(Problem::unknown_outcome())),
        })
    }

    /// Moves the head of a ledger.
    async fn push_head(&self, context: &Context<'_>, push: HeadPushInput) -> Result<PushHeadResult> {
        let HeadPushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let body =
            requests::HeadPush { expected: expected(wanted, HeadValue::from), new: new.into(), lease: claim(lease)? };
        let push = body.into_push().map_err(refused)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context).refs.push_head(&call, &address, &push).await.map_err(failed)?;
        PushHeadResult::of(address.as_str(), outcome)
    }

    /// Moves the index of a record.
    async fn push_index(&self, context: &Context<'_>, push: IndexPushInput) -> Result<PushIndexResult> {
        let IndexPushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let value = |IndexInput { id, t, graphs: named }| requests::ExpectedIndex {
            id,
            t: t.0,
            rev: None,
            graphs: graphs(named),
        };
        let new = requests::NewIndex { id: new.id, t: new.t.0, graphs: graphs(new.graphs) };
        let body = requests::IndexPush { expected: expected(wanted, value), new, allow_equal: false, lease: claim(lease)? };
        let push = body.into_push().map_err(refused)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context).refs.push_index(&call, &address, &push).await.map_err(failed)?;
        PushIndexResult::of(address.as_str(), outcome)
    }

    /// Changes the status of a record.
    async fn push_status(&self, context: &Context<'_>, push: ValuePushInput) -> Result<PushStatusResult> {
        let ValuePushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let v = wanted.v.ok_or_else(|| refused(Problem::invalid_body("expected.v", "is required")))?;
        let body = requests::StatusPush {
            expected: Some(Some(requests::ExpectedStatus { v: v.0, payload: wanted.payload.map(|Json(payload)| payload) })),
            new: requests::NewStatus { v: new.v.map(|v| v.0), payload: payload(new.payload)? },
            lease: claim(lease)?,
        };
        let push = body.into_push().map_err(refused)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context).statuses.push_status(&call, &address, &push).await.map_err(failed)?;
        PushStatusResult::of(address.as_str(), outcome)
    }

    /// Changes the configuration of a ledger.
    async fn push_config(&self, context: &Context<'_>, push: ValuePushInput) -> Result<PushConfigResult> {
        let ValuePushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let v = wanted.v.ok_or_else(|| refused(Problem::invalid_body("expected.v", "is required")))?;
        let body = requests::ConfigPush {
            expected: Some(Some(requests::ExpectedConfig { v: v.0, payload: wanted.payload.map(|Json(payload)| payload) })),
            new: requests::NewConfig { v: new.v.map(|v| v.0), payload: payload(new.payload)? },
            lease: claim(lease)?,
        };
        let push = body.into_push().map_err(refused)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context).configs.push_config(&call, &address, &push).await.map_err(failed)?;
        PushConfigResult::of(address.as_str(), outcome)
    }

    /// Soft-deletes a record on which nothing depends.
    async fn retract(&self, context: &Context<'_>, address: String, reason: Option<String>) -> Result<RetractionResult> {
        let address = parse(&address)?;
        let reason = requests::Retraction { reason }.into_reason().map_err(refused)?;
        let call = caller(context).write(&address)?;
        let service = service(context);
        let written =
            |record, changed| RetractionResult::Written(Box::new(Written { record: shown(context, record), changed }));
        Ok(match service.publisher.retract(&call, &address, reason.as_deref()).await.map_err(failed)? {
            Retracted::Retracted(record) => written(*record, true),
            Retracted::Already(record) => written(*record, false),
            Retracted::HasDependents => {
                let found = service.names.dependents(&address).await.map_err(failed)?;
                let seen = found.into_iter().filter(|address| caller(context).sees(address));
                let dependents = seen.map(|address| address.as_str().to_owned()).collect();
                RetractionResult::HasDependents(HasDependents { dependents })
            }
            Retracted::Unknown => RetractionResult::Unknown(UnknownRecord { address: address.as_str().to_owned() }),
            _ => return Err(refused(Problem::unknown_outcome())),
        })
    }

    /// Undoes a retraction.
    async fn restore(&self, context: &Context<'_>, address: String) -> Result<RetractionResult> {
        let address = parse(&address)?;
        let call = caller(context).write(&address)?;
        let written =
            |record, changed| RetractionResult::Written(Box::new(Written { record: shown(context, record), changed }));
        Ok(match service(context).publisher.restore(&call, &address).await.map_err(failed)? {
            Restored::Restored(record) => written(*record, true),
            Restored::NotRetracted(record) => written(*record, false),
            Restored::Unknown => RetractionResult::Unknown(UnknownRecord { address: address.as_str().to_owned() }),
            _ => return Err(refused(Problem::unknown_outcome())),
        })
    }
}
