//! Mutations: creations, pushes, retractions. Conflicts and similar outcomes are results, each a member of a union.

mod inputs;
mod results;

use async_graphql::{Context, Json, Object, Result};
use nameservice_api::{
    self as api,
    requests::{self, HeadValue},
};
use nameservice_http::Problem;
use nameservice_model::{Address, Created, Published, Restored, Retracted};

use self::{
    inputs::{HeadPushInput, IndexInput, IndexPushInput, RefInput, ValuePushInput, claim, expected, graphs, payload},
    results::{
        AlreadyExists, ConfigConflict, CreateLedgerResult, HasDependents, MissingDependencies, ProtectedRecord,
        PublishGraphSourceResult, PushConfigResult, PushHeadResult, PushIndexResult, PushStatusResult, RetractedRecord,
        RetractionResult, UnknownRecord, Written, WrongKind, kind,
    },
};
use crate::{
    context::{caller, failed, parse, service},
    errors::problem,
    objects::{Config, JsonObject, Record, shown},
    scalars::Long,
};

/// What can be written.
pub(crate) struct Mutation;

/// Returns the dependencies that do not exist as far as the caller may know: one that it may not see is listed like one
/// that does not exist.
async fn missing(context: &Context<'_>, dependencies: &[Address]) -> Result<MissingDependencies> {
    let mut missing = Vec::new();
    for dependency in dependencies {
        let is_live = caller(context).sees(dependency) && {
            let found = service(context).names.lookup(dependency).await.map_err(|error| failed(context, error))?;
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
    /// Creates a ledger, with a head and a configuration if they are given.
    async fn create_ledger(
        &self,
        context: &Context<'_>,
        address: String,
        head: Option<RefInput>,
        config: Option<JsonObject>,
    ) -> Result<CreateLedgerResult> {
        let (head, config) = (head.map(Into::into), config.map(|Json(config)| config));
        let new = requests::NewLedger { head, config, ..requests::NewLedger::at(address) };
        let new = new.into_model().map_err(problem)?;
        let call = caller(context).write(&new.address)?;
        let publisher = &service(context).publisher;
        match publisher.create(&call, &new).await.map_err(|error| failed(context, error))? {
            Created::Created(record) => Ok(CreateLedgerResult::Written(Box::new(Written {
                record: Record::from(shown(context, *record)),
                changed: true,
            }))),
            Created::AlreadyExists => {
                Ok(CreateLedgerResult::AlreadyExists(AlreadyExists { address: new.address.as_str().to_owned() }))
            }
            _ => Err(problem(Problem::unknown_outcome())),
        }
    }

    /// Creates a graph source, or replaces the configuration of one.
    async fn publish_graph_source(
        &self,
        context: &Context<'_>,
        address: String,
        source_type: String,
        config: JsonObject,
        #[graphql(desc = "If left out, an existing graph source keeps its own.")] dependencies: Option<Vec<String>>,
        #[graphql(desc = "The `v` of the config that must be stored now; 0 if the graph source must not exist.")]
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
            serde_json::from_value(body).map_err(|error| problem(Problem::invalid_body("", error)))?;
        let publication = body.into_publication(&address).map_err(problem)?;
        let call = caller(context).write(&address)?;
        let dependencies = publication.dependencies().unwrap_or_default();
        if !dependencies.iter().all(|dependency| caller(context).sees(dependency)) {
            return Ok(PublishGraphSourceResult::Missing(missing(context, dependencies).await?));
        }
        let text = address.as_str().to_owned();
        let written = |record, changed| {
            PublishGraphSourceResult::Written(Box::new(Written {
                record: Record::from(shown(context, record)),
                changed,
            }))
        };
        let published = service(context)
            .sources
            .publish_graph_source(&call, &publication)
            .await
            .map_err(|error| failed(context, error))?;
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
            _ => return Err(problem(Problem::unknown_outcome())),
        })
    }

    /// Moves the head of a ledger.
    async fn push_head(&self, context: &Context<'_>, push: HeadPushInput) -> Result<PushHeadResult> {
        let HeadPushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let body =
            requests::HeadPush { expected: expected(wanted, HeadValue::from), new: new.into(), lease: claim(lease)? };
        let push = body.into_push().map_err(problem)?;
        let call = caller(context).write(&address)?;
        let outcome =
            service(context).refs.push_head(&call, &address, &push).await.map_err(|error| failed(context, error))?;
        PushHeadResult::of(address.as_str(), outcome)
    }

    /// Moves the index of a record.
    async fn push_index(&self, context: &Context<'_>, push: IndexPushInput) -> Result<PushIndexResult> {
        let IndexPushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        if new.rev.is_some() {
            return Err(problem(Problem::invalid_body("new.rev", "is counted by the service: leave it out")));
        }
        let value = |IndexInput { id, t, rev, graphs: named }| requests::ExpectedIndex {
            id,
            t: t.0,
            rev: rev.map(|rev| rev.0),
            graphs: graphs(named),
        };
        let new = requests::NewIndex { id: new.id, t: new.t.0, graphs: graphs(new.graphs) };
        let body =
            requests::IndexPush { expected: expected(wanted, value), new, allow_equal: false, lease: claim(lease)? };
        let push = body.into_push().map_err(problem)?;
        let call = caller(context).write(&address)?;
        let outcome =
            service(context).refs.push_index(&call, &address, &push).await.map_err(|error| failed(context, error))?;
        PushIndexResult::of(address.as_str(), outcome)
    }

    /// Changes the status of a record.
    async fn push_status(&self, context: &Context<'_>, push: ValuePushInput) -> Result<PushStatusResult> {
        let ValuePushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let v = wanted.v.ok_or_else(|| problem(Problem::invalid_body("expected.v", "is required")))?;
        let body = requests::StatusPush {
            expected: Some(Some(requests::ExpectedStatus {
                v: v.0,
                payload: wanted.payload.map(|Json(payload)| payload),
            })),
            new: requests::NewStatus { v: new.v.map(|v| v.0), payload: payload(new.payload)? },
            lease: claim(lease)?,
        };
        let push = body.into_push().map_err(problem)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context)
            .statuses
            .push_status(&call, &address, &push)
            .await
            .map_err(|error| failed(context, error))?;
        PushStatusResult::of(address.as_str(), outcome)
    }

    /// Changes the configuration of a ledger.
    async fn push_config(&self, context: &Context<'_>, push: ValuePushInput) -> Result<PushConfigResult> {
        let ValuePushInput { address, expected: wanted, new, lease } = push;
        let address = parse(&address)?;
        let v = wanted.v.ok_or_else(|| problem(Problem::invalid_body("expected.v", "is required")))?;
        let body = requests::ConfigPush {
            expected: Some(Some(requests::ExpectedConfig {
                v: v.0,
                payload: wanted.payload.map(|Json(payload)| payload),
            })),
            new: requests::NewConfig { v: new.v.map(|v| v.0), payload: payload(new.payload)? },
            lease: claim(lease)?,
        };
        let push = body.into_push().map_err(problem)?;
        let call = caller(context).write(&address)?;
        let outcome = service(context)
            .configs
            .push_config(&call, &address, &push)
            .await
            .map_err(|error| failed(context, error))?;
        PushConfigResult::of(address.as_str(), outcome)
    }

    /// Soft-deletes a record on which nothing depends.
    async fn retract(
        &self,
        context: &Context<'_>,
        address: String,
        reason: Option<String>,
    ) -> Result<RetractionResult> {
        let address = parse(&address)?;
        let reason = requests::Retraction { reason }.into_reason().map_err(problem)?;
        let call = caller(context).write(&address)?;
        let service = service(context);
        let written = |record, changed| {
            RetractionResult::Written(Box::new(Written { record: Record::from(shown(context, record)), changed }))
        };
        Ok(
            match service
                .publisher
                .retract(&call, &address, reason.as_deref())
                .await
                .map_err(|error| failed(context, error))?
            {
                Retracted::Retracted(record) => written(*record, true),
                Retracted::Already(record) => written(*record, false),
                Retracted::HasDependents => {
                    let found = service.names.dependents(&address).await.map_err(|error| failed(context, error))?;
                    let seen = found.into_iter().filter(|address| caller(context).sees(address));
                    let dependents = seen.map(|address| address.as_str().to_owned()).collect();
                    RetractionResult::HasDependents(HasDependents { dependents })
                }
                Retracted::Protected => {
                    RetractionResult::Protected(ProtectedRecord { address: address.as_str().to_owned() })
                }
                Retracted::Unknown => RetractionResult::Unknown(UnknownRecord { address: address.as_str().to_owned() }),
                _ => return Err(problem(Problem::unknown_outcome())),
            },
        )
    }

    /// Undoes a retraction.
    async fn restore(&self, context: &Context<'_>, address: String) -> Result<RetractionResult> {
        let address = parse(&address)?;
        let call = caller(context).write(&address)?;
        let written = |record, changed| {
            RetractionResult::Written(Box::new(Written { record: Record::from(shown(context, record)), changed }))
        };
        Ok(match service(context).publisher.restore(&call, &address).await.map_err(|error| failed(context, error))? {
            Restored::Restored(record) => written(*record, true),
            Restored::NotRetracted(record) => written(*record, false),
            Restored::Unknown => RetractionResult::Unknown(UnknownRecord { address: address.as_str().to_owned() }),
            _ => return Err(problem(Problem::unknown_outcome())),
        })
    }
}
