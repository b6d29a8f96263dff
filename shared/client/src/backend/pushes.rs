//! Reads and pushes of concerns, and publications of graph sources.

use async_trait::async_trait;
use http::StatusCode;
use nameservice_api::{self as api, InvalidAnswer, ProblemKind, PushAnswer, PushStatus, requests};
use nameservice_model::{
    Address, Call, ConcernValue, Config, ConfigPublisher, ConfigPush, ContentId, GraphSourcePublication,
    GraphSourcePublisher, Head, HeadPush, Index, IndexPush, IndexRoot, Published, PushOutcome, RecordKind,
    RefPublisher, Result, Status, StatusPayload, StatusPublisher, StatusPush,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::put;
use crate::{
    Client, Request,
    client::Repeated,
    outcomes::{invalid, unknown},
};

/// How many writes of an item the service remembers: a write is recognised until this many others have followed.
const REMEMBERED: i64 = 4;

impl Client {
    /// Pushes a concern. `may_hide` returns whether an earlier attempt may have been applied and since superseded by this
    /// current value, which a rejection shows.
    async fn push<W, T>(
        &self,
        operation: &'static str,
        request: Request,
        may_hide: impl Fn(&ConcernValue<T>) -> bool,
    ) -> Result<PushOutcome<T>>
    where
        W: DeserializeOwned,
        ConcernValue<T>: TryFrom<W, Error = InvalidAnswer>,
    {
        let Repeated { answer, maybe_applied, .. } = self.repeat::<PushAnswer<W>>(&request).await;
        let outcome = match answer {
            Ok(PushAnswer { status, value, replayed }) => {
                let value = value.try_into().map_err(invalid(operation))?;
                match status {
                    PushStatus::Updated => PushOutcome::Updated { value, replayed },
                    PushStatus::Stale => PushOutcome::Stale { actual: value },
                }
            }
            Err(error) => error.into_push_outcome::<W, T>(operation)?,
        };
        match &outcome {
            PushOutcome::Stale { actual } | PushOutcome::Conflict { actual: Some(actual) }
                if maybe_applied && may_hide(actual) =>
            {
                Err(unknown(operation))
            }
            // The lease may have expired after an earlier attempt began, which may still be in flight; or that attempt was applied,
            // and the item no longer remembers it.
            PushOutcome::LeaseLost { .. } | PushOutcome::Conflict { actual: None } if maybe_applied => {
                Err(unknown(operation))
            }
            _ => Ok(outcome),
        }
    }
}

#[async_trait]
impl RefPublisher for Client {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        const OPERATION: &str = "read a head";
        let head = self.record(OPERATION, address, "head").await?.and_then(|record| record.head);
        head.map(Head::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        const OPERATION: &str = "read an index";
        let index = self.record(OPERATION, address, "index").await?.and_then(|record| record.index);
        index.map(Index::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        let request = put("heads", call, address, &requests::HeadPush::from(push));
        // Each push adds at least 1 to `t`.
        let may_hide = |actual: &Head| actual.v >= push.desired().t().saturating_add(REMEMBERED);
        self.push::<api::Head, _>("push a head", request, may_hide).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        let request = put("indexes", call, address, &requests::IndexPush::from(push));
        // Any number of pushes may have the same `t`.
        let may_hide = |actual: &Index| actual.v >= push.desired().t();
        self.push::<api::Index, _>("push an index", request, may_hide).await
    }
}

#[async_trait]
impl StatusPublisher for Client {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        const OPERATION: &str = "read a status";
        let status = self.record(OPERATION, address, "status").await?.and_then(|record| record.status);
        status.map(Status::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        let request = put("statuses", call, address, &requests::StatusPush::from(push));
        let may_hide = |actual: &Status| actual.v >= push.new_v().saturating_add(REMEMBERED);
        self.push::<api::Status, _>("push a status", request, may_hide).await
    }
}

#[async_trait]
impl ConfigPublisher for Client {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        const OPERATION: &str = "read a config";
        let config = self.record(OPERATION, address, "config").await?.and_then(|record| record.config);
        config.map(Config::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        let request = put("configs", call, address, &requests::ConfigPush::from(push));
        let may_hide = |actual: &Config| actual.v >= push.new_v().saturating_add(REMEMBERED);
        self.push::<api::Config, _>("push a config", request, may_hide).await
    }
}

#[async_trait]
impl GraphSourcePublisher for Client {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        const OPERATION: &str = "publish a graph source";
        let body = requests::GraphSource::from(publication);
        let request = put("graph-sources", call, publication.address(), &body);
        let Repeated { answer, maybe_applied, status, .. } = self.repeat::<api::Record>(&request).await;
        let error = match answer {
            Ok(record) => {
                let record = Box::new(record.try_into().map_err(invalid(OPERATION))?);
                let created = status == Some(StatusCode::CREATED);
                return Ok(if created { Published::Created(record) } else { Published::Updated(record) });
            }
            Err(error) => error,
        };
        match error.problem() {
            Some(ProblemKind::Conflict) => {
                let actual: Option<Config> = error.actual::<api::Config, _>().map_err(invalid(OPERATION))?;
                let written = publication.expected_v().map_or(1, |v| v.saturating_add(1));
                match &actual {
                    Some(actual) if maybe_applied && actual.v >= written.saturating_add(REMEMBERED) => {
                        Err(unknown(OPERATION))
                    }
                    None if maybe_applied => Err(unknown(OPERATION)),
                    _ => Ok(Published::Conflict { actual }),
                }
            }
            Some(ProblemKind::MissingDependencies) => Ok(Published::MissingDependencies(error.addresses("missing"))),
            Some(ProblemKind::WrongKind) => Ok(Published::WrongKind {
                kind: error.record_kind().unwrap_or(RecordKind::Ledger),
                source_type: error.member("source_type"),
            }),
            Some(ProblemKind::Retracted) => Ok(Published::Retracted),
            _ => Err(error.into_model(OPERATION)),
        }
    }
}
