use std::collections::HashSet;

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use nameservice_dynamo::{Attempts, Item, Outcome};
use serde::Serialize;

use crate::{
    Error, Result, RowKey, SaveMode, View,
    error::{Source, broken},
    rows::to_item,
};

const TRANSACT: &str = "write a transaction";

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Saves a row, as [`View::save`] does.
    Save {
        /// The row: see [`to_item`] and [`Write::save`].
        row: Item,
        /// What to do if the row exists.
        mode: SaveMode,
        /// When it expires, epoch seconds.
        ttl: Option<i64>,
    },
    /// Advances a number of a row on the condition that it still has the value that the caller read.
    Advance {
        /// The row.
        key: RowKey,
        /// The number.
        field: String,
        /// The expected value. 0 also matches a missing row or field; the row is then created.
        from: i64,
        /// The new value.
        to: i64,
        /// Other attributes to set with it.
        set: Item,
    },
}

impl Write {
    /// Creates a write that saves a row.
    pub fn save<T: Serialize + ?Sized>(row: &T, mode: SaveMode, ttl: Option<i64>) -> Result<Self> {
        let row = to_item(row).map_err(|source| Error::NotSaved {
            table: "a transaction".to_owned(),
            id: "a row".to_owned(),
            source,
        })?;
        Ok(Self::Save { row, mode, ttl })
    }
}

/// A write of a transaction whose condition failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// Its position in the call.
    pub position: usize,
    /// The stored row, `None` if there is none.
    pub item: Option<Item>,
}

impl View {
    /// Writes all or nothing, at most 100 rows, each once. A rejection holds the writes whose conditions failed, with the
    /// stored rows.
    ///
    /// All attempts carry one client request token. If a reply is lost and the condition of a retry fails nevertheless, the
    /// outcome is unknown ([`Error::is_outcome_unknown`]): read again.
    ///
    /// Needs `dynamodb:PutItem` and `UpdateItem` on the table.
    pub async fn transact(&self, writes: Vec<Write>) -> Result<Outcome<(), Vec<Rejected>>> {
        let count = writes.len();
        let written = async {
            if writes.is_empty() {
                return Ok(Outcome::Applied(()));
            }
            let mut seen = HashSet::new();
            let mut actions = Vec::with_capacity(count);
            for (position, write) in writes.into_iter().enumerate() {
                let (key, action) = self.action(write)?;
                // DynamoDB rejects this too; local engines may report it as a failed condition.
                if let Some(twice) = seen.replace(key) {
                    return Err(broken(TRANSACT, format!("`{twice}` is written twice")));
                }
                actions.push((position, action));
            }
            let mut attempts = Attempts::default();
            match self.sender.transact(TRANSACT, actions, &mut attempts).await? {
                Outcome::Applied(()) => Ok(Outcome::Applied(())),
                Outcome::Rejected(failed) => {
                    let rejected = failed.into_iter().map(|(position, failed)| Rejected {
                        position,
                        item: failed.0.filter(|item| !item.is_empty()),
                    });
                    attempts.rejection(TRANSACT, Outcome::Rejected(rejected.collect()))
                }
            }
        };
        let written = written.await.map_err(|source| Error::NotWritten { table: self.table().to_owned(), source });
        self.logged("transact", &format!("{count} rows"), written)
    }

    fn action(&self, write: Write) -> Result<(RowKey, TransactWriteItem), Source> {
        let unbuilt = |error: aws_sdk_dynamodb::error::BuildError| broken(TRANSACT, error);
        let action = TransactWriteItem::builder();
        Ok(match write {
            Write::Save { row, mode, ttl } => {
                let (key, item) = self.with_ttl(row, ttl)?;
                let mut put = Put::builder().table_name(self.table()).set_item(Some(item));
                if mode == SaveMode::Init {
                    let absent = self.absent();
                    put = put
                        .condition_expression(absent.condition)
                        .set_expression_attribute_names(Some(absent.names.into_iter().collect()))
                        .set_expression_attribute_values(
                            (!absent.values.is_empty()).then(|| absent.values.into_iter().collect()),
                        )
                        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
                }
                (key, action.put(put.build().map_err(unbuilt)?).build())
            }
            Write::Advance { key, field, from, to, set } => {
                let mut condition = "#field = :from".to_owned();
                if from == 0 {
                    condition.push_str(" OR attribute_not_exists(#field)");
                }
                let mut sets = vec!["#field = :to".to_owned()];
                let mut update = Update::builder()
                    .table_name(self.table())
                    .set_key(Some(key.item(self.description)?))
                    .condition_expression(condition)
                    .expression_attribute_names("#field", field)
                    .expression_attribute_values(":from", AttributeValue::N(from.to_string()))
                    .expression_attribute_values(":to", AttributeValue::N(to.to_string()))
                    .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
                for (i, (attribute, value)) in set.into_iter().enumerate() {
                    sets.push(format!("#set{i} = :set{i}"));
                    update = update
                        .expression_attribute_names(format!("#set{i}"), attribute)
                        .expression_attribute_values(format!(":set{i}"), value);
                }
                let update = update.update_expression(format!("SET {}", sets.join(", ")));
                (key, action.update(update.build().map_err(unbuilt)?).build())
            }
        })
    }
}
