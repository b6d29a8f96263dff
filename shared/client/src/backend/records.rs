//! Writes of whole records.

use async_trait::async_trait;
use http::Method;
use nameservice_api::{self as api, ProblemKind, requests};
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Created, Dropped, Error, Head, NewHead, NewLedger, Protection,
    Publisher, Purged, Record, RecordKind, Reset, ResetTo, Restored, Result, Retracted,
};
use serde_json::Value;

use crate::{Client, Request, client::Repeated, outcomes::invalid};

impl Client {
    /// Sends a write, and returns the record in the answer.
    async fn write_record(
        &self,
        operation: &'static str,
        request: &Request,
    ) -> Result<Result<Written, crate::RequestError>> {
        let Repeated { answer, unchanged, .. } = self.repeat::<api::Record>(request).await;
        match answer {
            Ok(record) => {
                let record = Box::new(record.try_into().map_err(invalid(operation))?);
                Ok(Ok(Written { record, unchanged }))
            }
            Err(error) => Ok(Err(error)),
        }
    }
}

/// A record as a write returned it.
struct Written {
    record: Box<Record>,
    /// Whether the write changed nothing.
    unchanged: bool,
}

#[async_trait]
impl Publisher for Client {
    async fn create(&self, call: &Call, ledger: &NewLedger) -> Result<Created> {
        const OPERATION: &str = "create a ledger";
        let body = requests::NewLedger::from(ledger);
        let request = Request::of_call(Method::POST, "ledgers", call).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => Ok(Created::Created(record)),
            Err(error) if error.problem() == Some(ProblemKind::AlreadyExists) => Ok(Created::AlreadyExists),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        const OPERATION: &str = "create a branch";
        if branch.name() != source.name() {
            let source = format!("{branch} cannot be a branch of {source}: their names differ").into();
            return Err(Error::Store { operation: OPERATION, source });
        }
        let body = requests::NewBranch::new(branch, source, at);
        let request = Request::of_call(Method::POST, "branches", call).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => Ok(BranchCreated::Created(record)),
            Err(error) => match error.problem() {
                Some(ProblemKind::AlreadyExists) => Ok(BranchCreated::AlreadyExists),
                Some(ProblemKind::UnknownSource) => Ok(BranchCreated::UnknownSource),
                Some(ProblemKind::UnbornSource) => Ok(BranchCreated::UnbornSource),
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        const OPERATION: &str = "retract a record";
        let mut request = Request::of_call(Method::POST, "retractions", call).at(address);
        if let Some(reason) = reason {
            request = request.body(&requests::Retraction { reason: Some(reason.to_owned()) });
        }
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, unchanged: true }) => Ok(Retracted::Already(record)),
            Ok(Written { record, unchanged: false }) => Ok(Retracted::Retracted(record)),
            Err(error) => match error.problem() {
                Some(ProblemKind::HasDependents) => Ok(Retracted::HasDependents),
                Some(ProblemKind::Protected) => Ok(Retracted::Protected),
                Some(ProblemKind::UnknownRecord) => Ok(Retracted::Unknown),
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        const OPERATION: &str = "restore a record";
        let request = Request::of_call(Method::POST, "restorations", call).at(address);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, unchanged: true }) => Ok(Restored::NotRetracted(record)),
            Ok(Written { record, unchanged: false }) => Ok(Restored::Restored(record)),
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(Restored::Unknown),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }
}

#[async_trait]
impl AdminPublisher for Client {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        const OPERATION: &str = "purge a record";
        let request = Request::of_call(Method::DELETE, "records", call).at(address);
        let Repeated { answer, maybe_applied, .. } = self.repeat::<Value>(&request).await;
        let Err(error) = answer else { return Ok(Purged::Purged) };
        match error.last_problem() {
            // An earlier attempt has purged it.
            Some(ProblemKind::UnknownRecord) if maybe_applied => Ok(Purged::Purged),
            _ if maybe_applied && error.may_be_applied() => Err(error.into_model(OPERATION)),
            Some(ProblemKind::HasDependents) => Ok(Purged::HasDependents),
            Some(ProblemKind::Protected) => Ok(Purged::Protected),
            Some(ProblemKind::UnknownRecord) => Ok(Purged::Unknown),
            _ => Err(error.into_model(OPERATION)),
        }
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        const OPERATION: &str = "protect a record";
        let body = requests::NewProtection { protected };
        let request = Request::of_call(Method::PUT, "protections", call).at(address).body(&body);
        let Repeated { answer, maybe_applied, unchanged, .. } = self.repeat::<api::Protection>(&request).await;
        match answer {
            Ok(_) if unchanged && !maybe_applied => Ok(Protection::Already),
            Ok(_) => Ok(Protection::Set),
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(Protection::Unknown),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        const OPERATION: &str = "drop a branch";
        let request = Request::of_call(Method::DELETE, "branches", call).at(address);
        let error = match self.repeat::<api::BranchDropped>(&request).await.answer {
            Ok(api::BranchDropped { parent_branches }) => return Ok(Dropped::Dropped { parent_branches }),
            Err(error) => error,
        };
        match error.problem() {
            Some(ProblemKind::HasDependents) => Ok(Dropped::HasDependents),
            Some(ProblemKind::Protected) => Ok(Dropped::Protected),
            Some(ProblemKind::NotABranch) => Ok(Dropped::NotABranch),
            Some(ProblemKind::UnknownRecord) => Ok(Dropped::Unknown),
            _ => Err(error.into_model(OPERATION)),
        }
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        const OPERATION: &str = "reset a ledger";
        let body = requests::Snapshot::from(to);
        let request = Request::of_call(Method::POST, "resets", call).at(address).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => {
                let Record { head, index, .. } = *record;
                Ok(Reset::Reset { head: head.unwrap_or_else(Head::unborn), index })
            }
            Err(error) => match error.problem() {
                Some(ProblemKind::UnknownRecord) => Ok(Reset::Unknown),
                Some(ProblemKind::Retracted) => Ok(Reset::Retracted),
                Some(ProblemKind::Protected) => Ok(Reset::Protected),
                Some(ProblemKind::WrongKind) => {
                    Ok(Reset::WrongKind(error.record_kind().unwrap_or(RecordKind::GraphSource)))
                }
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }
}
