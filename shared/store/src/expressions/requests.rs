//! The requests and the actions of transactions that a condition and an update become.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
    builders::{ConditionCheckBuilder, DeleteBuilder, PutBuilder, UpdateBuilder},
};
use nameservice_dynamo::Sender;

use super::{Expression, Key};
use crate::items::Item;

impl Expression {
    // ---- requests ----

    fn condition(&self) -> Option<String> {
        (!self.conditions.is_empty()).then(|| self.conditions.join(" AND "))
    }

    pub(super) fn update(&self) -> String {
        let mut update = format!("SET {}", self.sets.join(", "));
        if !self.removes.is_empty() {
            update.push_str(" REMOVE ");
            update.push_str(&self.removes.join(", "));
        }
        update
    }

    fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }

    fn names(&self) -> Option<HashMap<String, String>> {
        (!self.names.is_empty()).then(|| self.names.clone())
    }

    /// Returns a request of its own, which returns the item as it was written.
    pub(crate) fn into_update_item(
        self,
        sender: &Sender,
        key: &Key,
    ) -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder {
        sender
            .client()
            .update_item()
            .table_name(sender.table())
            .set_key(Some(key.item()))
            .update_expression(self.update())
            .set_condition_expression(self.condition())
            .set_expression_attribute_names(self.names())
            .set_expression_attribute_values(self.values())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Returns an update within a transaction.
    pub(crate) fn into_update(self, key: &Key) -> Action {
        Action::Update(
            Update::builder()
                .set_key(Some(key.item()))
                .update_expression(self.update())
                .set_condition_expression(self.condition())
                .set_expression_attribute_names(self.names())
                .set_expression_attribute_values(self.values())
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld),
        )
    }

    /// Returns a put within a transaction, on this condition.
    pub(crate) fn into_put(self, item: Item) -> Action {
        Action::Put(
            Put::builder()
                .set_item(Some(item))
                .set_condition_expression(self.condition())
                .set_expression_attribute_names(self.names())
                .set_expression_attribute_values(self.values())
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld),
        )
    }

    /// Returns a deletion within a transaction, on this condition.
    pub(crate) fn into_delete(self, key: &Key) -> Action {
        Action::Delete(
            Delete::builder()
                .set_key(Some(key.item()))
                .set_condition_expression(self.condition())
                .set_expression_attribute_names(self.names())
                .set_expression_attribute_values(self.values())
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld),
        )
    }

    /// Returns a check within a transaction.
    pub(crate) fn into_check(self, key: &Key) -> Action {
        Action::Check(
            ConditionCheck::builder()
                .set_key(Some(key.item()))
                .set_condition_expression(self.condition())
                .set_expression_attribute_names(self.names())
                .set_expression_attribute_values(self.values())
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld),
        )
    }
}

/// One action of a transaction, without the table yet.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Update(UpdateBuilder),
    Put(PutBuilder),
    Delete(DeleteBuilder),
    Check(ConditionCheckBuilder),
}

impl Action {
    pub(crate) fn on(self, table: &str) -> Result<TransactWriteItem, aws_sdk_dynamodb::error::BuildError> {
        let item = TransactWriteItem::builder();
        Ok(match self {
            Self::Update(update) => item.update(update.table_name(table).build()?),
            Self::Put(put) => item.put(put.table_name(table).build()?),
            Self::Delete(delete) => item.delete(delete.table_name(table).build()?),
            Self::Check(check) => item.condition_check(check.table_name(table).build()?),
        }
        .build())
    }
}
