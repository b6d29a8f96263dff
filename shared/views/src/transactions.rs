use std::collections::HashSet;

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use nameservice_dynamo::{Attempts, Item};
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
        /// What to do about a row that is there already.
        mode: SaveMode,
        /// When it expires, epoch seconds.
        ttl: Option<i64>,
    },
    /// Moves a number of a row on, if it still is what the caller has read.
    Advance {
        /// The row.
        key: RowKey,
        /// The number.
        field: String,
        /// What it must be. 0 is also a row or a field that is not there; the row is then made.
        from: i64,
        /// What it becomes.
        to: i64,
        /// Other attributes to set with it.
        set: Item,
    },
}

impl Write {
    /// A row to save.
    pub fn save<T: Serialize + ?Sized>(row: &T, mode: SaveMode, ttl: Option<i64>) -> Result<Self> {
        let row = to_item(row).map_err(|source| Error::NotSaved {
            table: "a transaction".to_owned(),
            id: "a row".to_owned(),
            source,
        })?;
        Ok(Self::Save { row, mode, ttl })
    }
}

/// A write of a transaction whose condition did not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Its position in the call.
    pub position: usize,
    /// The row that stood in the way, `None` where there is none.
    pub item: Option<Item>,
}

impl View {
    /// Writes all or nothing, at most 100 rows, each once. `Ok(Err(refused))`: nothing was written, and these are the
    /// writes whose conditions did not hold, with the rows as they are.
    ///
    /// All attempts carry one token, by which DynamoDB knows them for one. If an answer is lost and a repetition is
    /// refused all the same, the outcome is unknown ([`Error::is_outcome_unknown`]): read again.
    ///
    /// Needs `dynamodb:PutItem` and `UpdateItem` on the table.
    pub async fn transact(&self, writes: Vec<Write>) -> Result<Result<(), Vec<Refused>>> {
        let count = writes.len();
        let written = async {
            if writes.is_empty() {
                return Ok(Ok(()));
            }
            let mut seen = HashSet::new();
            let mut actions = Vec::with_capacity(count);
            for (position, write) in writes.into_iter().enumerate() {
                let (key, action) = self.action(write)?;
                // DynamoDB refuses this too; engines for one machine may take it for a condition that does not hold.
                if let Some(twice) = seen.replace(key) {
                    return Err(broken(TRANSACT, format!("`{twice}` is written twice")));
                }
                actions.push((position, action));
            }
            let mut attempts = Attempts::default();
            match self.sender.transact(TRANSACT, actions, &mut attempts).await? {
                Ok(()) => Ok(Ok(())),
                Err(failed) => {
                    let refused = failed
                        .into_iter()
                        .map(|(position, failed)| Refused { position, item: failed.0.filter(|item| !item.is_empty()) });
                    attempts.refuse(TRANSACT, Err(refused.collect()))
                }
            }
        };
        let written = written.await.map_err(|source| Error::NotWritten { table: self.table().to_owned(), source });
        self.told("transact", &format!("{count} rows"), written)
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
