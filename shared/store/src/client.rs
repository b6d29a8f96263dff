//! The store's own expressions and actions as requests. How they are sent, and what a lost answer means, is
//! `nameservice_dynamo`'s.

pub(crate) use nameservice_dynamo::{Attempts, Failed, Sender};
use nameservice_model::{Error, Result};

use crate::{
    Store,
    expressions::{Action, Expression, Key},
    items::Item,
};

impl Store {
    /// Sends a conditional update. `Ok(Err(item))`: refused, with the item as it stands.
    pub(crate) async fn update(
        &self,
        operation: &'static str,
        expression: Expression,
        key: &Key,
        attempts: &mut Attempts,
    ) -> Result<Result<Item, Option<Item>>> {
        self.sender.update(operation, expression.into_update_item(&self.sender, key), attempts).await
    }

    /// Sends a transaction whose actions are labelled. `Ok(Err(failed))`: refused, naming each action that was.
    pub(crate) async fn transact<L>(
        &self,
        operation: &'static str,
        actions: Vec<(L, Action)>,
        attempts: &mut Attempts,
    ) -> Result<Result<(), Vec<(L, Failed)>>> {
        let on_table = |(label, action): (L, Action)| Ok((label, action.on(self.table())?));
        let actions = actions
            .into_iter()
            .map(on_table)
            .collect::<Result<Vec<_>, aws_sdk_dynamodb::error::BuildError>>()
            .map_err(|error| Error::Store { operation, source: error.into() })?;
        self.sender.transact(operation, actions, attempts).await
    }
}

/// How often a write is planned anew from what a rejection has shown, before it gives up.
pub(crate) const MAX_PLANS: usize = 8;

/// The error of a call whose idempotency key was used for another request. Nothing was written, unless by an attempt of
/// unknown outcome.
pub(crate) fn key_reused(operation: &'static str, attempts: Attempts) -> Error {
    match attempts.uncertain {
        true => Error::OutcomeUnknown { operation, source: None },
        false => Error::IdempotencyKeyReused { operation },
    }
}

/// Others were faster every time: nothing was written, unless by an attempt of unknown outcome.
pub(crate) fn contended(operation: &'static str, attempts: Attempts) -> Error {
    let source = Some("the record changed at every attempt".into());
    match attempts.uncertain {
        true => Error::OutcomeUnknown { operation, source },
        false => Error::Unavailable { operation, source },
    }
}
