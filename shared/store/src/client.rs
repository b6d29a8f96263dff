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
