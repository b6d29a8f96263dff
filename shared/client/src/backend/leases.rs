//! Leases.

use async_trait::async_trait;
use http::Method;
use nameservice_api::{ProblemKind, leases};
use nameservice_model::{Address, Call, LeaseClaim, LeasePublisher, LeaseRequest, Leased, Released, Result};
use serde_json::Value;

use super::put;
use crate::{Client, Request};

impl Client {
    async fn lease_write(
        &self,
        operation: &'static str,
        call: &Call,
        address: &Address,
        wanted: &leases::Wanted,
    ) -> Result<Leased> {
        match self.send::<leases::Held>(&put("leases", call, address, wanted)).await {
            Ok(held) => Ok(Leased::Held(held.into())),
            Err(error) => match (error.problem(), error.lease()) {
                (Some(ProblemKind::LeaseHeld), Some(lease)) => Ok(Leased::Busy(lease)),
                (Some(ProblemKind::LeaseLost), lease) => Ok(Leased::Lost { lease }),
                (Some(ProblemKind::UnknownRecord), _) => Ok(Leased::Unknown),
                (Some(ProblemKind::Retracted), _) => Ok(Leased::Retracted),
                _ => Err(error.into_model(operation)),
            },
        }
    }
}

#[async_trait]
impl LeasePublisher for Client {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        self.lease_write("acquire a lease", call, address, &leases::Wanted::new(request, None)).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        self.lease_write("refresh a lease", call, address, &leases::Wanted::new(request, Some(token))).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let request = Request::of_call(Method::DELETE, "leases", call)
            .at(address)
            .query("name", Some(&claim.name))
            .query("holder", Some(&claim.holder))
            .query("token", Some(claim.token));
        match self.send::<Value>(&request).await {
            Ok(_) => Ok(Released::Released),
            Err(error) => match error.problem() {
                Some(ProblemKind::LeaseLost) => Ok(Released::Lost { lease: error.lease() }),
                Some(ProblemKind::UnknownRecord) => Ok(Released::Unknown),
                Some(ProblemKind::Retracted) => Ok(Released::Retracted),
                _ => Err(error.into_model("release a lease")),
            },
        }
    }
}
