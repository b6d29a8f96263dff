//! The session of a command.

use std::ops::Deref;

use nameservice_api::Record;
use nameservice_model::{Address, ConcernKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    client::{Client, Request},
    failure::Failure,
    options::{Missing, TargetArgs},
    output::Output,
};

/// The session of a command.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
}

impl Session {
    pub(crate) async fn start(target: &TargetArgs, missing: Missing, json: bool) -> Result<Self, Failure> {
        Ok(Self { client: target.client(missing).await?, output: Output::new(json) })
    }

    /// Sends a request and reads its answer. The JSON is kept as the service wrote it, to be printed.
    pub(crate) async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<Answer<T>, Failure> {
        let json: Value = self.client.send(&request).await?;
        let value = T::deserialize(&json).map_err(|error| Failure::BadAnswer(error.into()))?;
        Ok(Answer { json, value })
    }

    /// Returns the record, or only the given concern of it.
    pub(crate) async fn record(
        &self,
        address: &Address,
        concern: Option<ConcernKind>,
    ) -> Result<Answer<Record>, Failure> {
        self.send(Request::get("records").at(address).query("concerns", concern)).await
    }
}

/// An answer: the received JSON, and its value.
pub(crate) struct Answer<T> {
    pub(crate) json: Value,
    pub(crate) value: T,
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The error for an answer that lacks a part that it always has.
pub(crate) fn incomplete(part: &'static str) -> Failure {
    Failure::BadAnswer(format!("it has no `{part}`").into())
}
