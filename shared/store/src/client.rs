//! Sends the store's own expressions and actions as requests. Retries, and the meaning of a lost answer, belong to
//! `nameservice_dynamo`.

pub(crate) use nameservice_dynamo::{Attempts, Failed, Outcome, Sender};
use nameservice_model::{Address, Error, Result};

use crate::{
    Store,
    expressions::{Action, Expression, Key},
    items::Item,
};

impl Store {
    /// Sends a conditional update. A rejection contains the stored item.
    pub(crate) async fn update(
        &self,
        operation: &'static str,
        expression: Expression,
        key: &Key,
        attempts: &mut Attempts,
    ) -> Result<Outcome<Item, Option<Item>>> {
        let request = expression.into_update_item(&self.sender, key);
        self.sender.update(operation, request, attempts).await.map_err(of_table)
    }

    /// Sends a transaction whose actions are labelled. A rejection names each action that failed.
    pub(crate) async fn transact<L>(
        &self,
        operation: &'static str,
        actions: Vec<(L, Action)>,
        attempts: &mut Attempts,
    ) -> Result<Outcome<(), Vec<(L, Failed)>>> {
        let on_table = |(label, action): (L, Action)| Ok((label, action.on(self.table())?));
        let actions = actions
            .into_iter()
            .map(on_table)
            .collect::<Result<Vec<_>, aws_sdk_dynamodb::error::BuildError>>()
            .map_err(|error| Error::Store { operation, source: error.into() })?;
        self.sender.transact(operation, actions, attempts).await.map_err(of_table)
    }
}

impl Store {
    /// Awaits another part of an operation: see [`Sender::within`].
    pub(crate) async fn within<T>(
        &self,
        operation: &'static str,
        attempts: &mut Attempts,
        part: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.sender.within(operation, attempts, part).await.map_err(of_table)?
    }

    /// Awaits what follows a write that was applied. It cannot change the answer any more: what it leaves undone is
    /// logged, and found by the doctor. Returns `None` if it failed.
    pub(crate) async fn afterwards<T>(
        &self,
        operation: &'static str,
        address: &Address,
        attempts: &mut Attempts,
        part: impl Future<Output = Result<T>>,
    ) -> Option<T> {
        let done = self.within(operation, attempts, part).await;
        if let Err(error) = &done {
            let error = nameservice_model::chain(error);
            tracing::warn!(operation, %address, %error, "the write was applied, and what follows it has failed");
        }
        done.ok()
    }
}

/// How often a write is planned again from the items that a rejection returned, before it gives up.
pub(crate) const MAX_PLANS: usize = 8;

/// Returns the error for a call whose idempotency key was used for another request. Nothing was written, unless by an
/// attempt of unknown outcome.
pub(crate) fn key_reused(operation: &'static str, attempts: Attempts) -> Error {
    match attempts.uncertain {
        true => Error::OutcomeUnknown { operation, source: None },
        false => Error::IdempotencyKeyReused { operation },
    }
}

/// Returns the error for a record that other writers changed at every attempt. Nothing was written, unless by an
/// attempt of unknown outcome.
pub(crate) fn contended(operation: &'static str, attempts: Attempts) -> Error {
    let source = Some("the record changed at every attempt".into());
    match attempts.uncertain {
        true => Error::OutcomeUnknown { operation, source },
        false => Error::Unavailable { operation, source },
    }
}

/// Returns the error for a counter that cannot grow. Nothing was written, unless by an attempt of unknown outcome.
pub(crate) fn limit_reached(operation: &'static str, counter: &'static str, attempts: Attempts) -> Error {
    match attempts.uncertain {
        true => Error::OutcomeUnknown { operation, source: None },
        false => Error::LimitReached { counter },
    }
}

/// Converts the error of a request to one of the nameservice.
pub(crate) fn of_table(error: nameservice_dynamo::Error) -> Error {
    use nameservice_dynamo::Error as Failure;
    match error {
        Failure::OutcomeUnknown { operation, source } => Error::OutcomeUnknown { operation, source },
        Failure::Unavailable { operation, source } => Error::Unavailable { operation, source },
        Failure::TooLarge => Error::TooLarge,
        Failure::Failed { operation, source } => Error::Store { operation, source },
        other => Error::Store { operation: "use the table", source: other.into() },
    }
}

/// Converts rejections to outcomes of the nameservice.
pub(crate) trait Reject {
    /// Returns a rejection as the outcome, unless an attempt of unknown outcome came before it.
    fn reject<T>(self, operation: &'static str, outcome: T) -> Result<T>;
}

impl Reject for Attempts {
    fn reject<T>(self, operation: &'static str, outcome: T) -> Result<T> {
        self.rejection(operation, outcome).map_err(of_table)
    }
}
