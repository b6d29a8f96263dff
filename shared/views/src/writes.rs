use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use nameservice_dynamo::{Attempts, Item, Outcome, as_integer};
use serde::Serialize;

use crate::{
    Error, Result, RowKey, View,
    error::{Source, broken},
    rows::{same_item, to_item},
};

const SAVE: &str = "save a row";
const COUNT: &str = "count";
const DELETE: &str = "delete a row";

/// What a save does if the row exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveMode {
    /// Fails with [`Error::AlreadyExists`]: of several writers exactly one succeeds.
    Init,
    /// Creates or replaces the row.
    Any,
    /// Replaces the row like `Any`, for callers that know that the row exists.
    Overwrite,
}

/// Which stored rows a [`View::save_newer`] replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Those of an older version.
    Older,
    /// Those of an older version, and of the same version.
    SameOrOlder,
}

/// The condition of a [`SaveMode::Init`], with its names and values.
pub(crate) struct Absent {
    pub(crate) condition: String,
    pub(crate) names: Vec<(String, String)>,
    pub(crate) values: Vec<(String, AttributeValue)>,
}

impl View {
    /// Saves a row, which expires at `ttl` (epoch seconds) if that is given.
    ///
    /// Returns [`Error::AlreadyExists`] for [`SaveMode::Init`] if the row exists. If a reply is lost, an identical
    /// existing row counts as this one; writers that need to distinguish their rows include an id of their own.
    ///
    /// Needs `dynamodb:PutItem` on the table.
    pub async fn save<T: Serialize + ?Sized>(&self, row: &T, mode: SaveMode, ttl: Option<i64>) -> Result<()> {
        let not_saved =
            |id: &str, source| Error::NotSaved { table: self.table().to_owned(), id: id.to_owned(), source };
        let (key, item) = match self.item(row, ttl) {
            Ok(made) => made,
            Err(source) => return self.logged("save", "?", Err(not_saved("a row", source))),
        };
        let saved = match self.put(item, mode).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::AlreadyExists { table: self.table().to_owned(), key: key.clone() }),
            Err(source) => Err(not_saved(&key.to_string(), source)),
        };
        self.logged("save", &key.to_string(), saved)
    }

    /// Saves a row over an older version of itself, or if none is stored: `version` is a number or a text of the row that only grows.
    /// Returns false if the stored row is as new or newer. Late and repeated writes of a version change nothing.
    ///
    /// Needs `dynamodb:PutItem` on the table.
    pub async fn save_newer<T: Serialize + ?Sized>(
        &self,
        row: &T,
        version: &str,
        age: Age,
        ttl: Option<i64>,
    ) -> Result<bool> {
        let not_saved =
            |id: &str, source| Error::NotSaved { table: self.table().to_owned(), id: id.to_owned(), source };
        let (key, item) = match self.item(row, ttl) {
            Ok(made) => made,
            Err(source) => return self.logged("save newer", "?", Err(not_saved("a row", source))),
        };
        let saved = self.put_newer(item, version, age).await;
        self.logged("save newer", &key.to_string(), saved.map_err(|source| not_saved(&key.to_string(), source)))
    }

    async fn put_newer(&self, item: Item, version: &str, age: Age) -> Result<bool, Source> {
        let Some(number) = item.get(version).cloned() else {
            return Err(broken(SAVE, format!("the row has no `{version}`, which is its version")));
        };
        let older = match age {
            Age::Older => "#version < :version",
            Age::SameOrOlder => "#version <= :version",
        };
        let request = self
            .sender
            .client()
            .put_item()
            .table_name(self.table())
            .set_item(Some(item))
            .condition_expression(format!("attribute_not_exists(#id) OR {older}"))
            .expression_attribute_names("#id", self.description.partition_key)
            .expression_attribute_names("#version", version)
            .expression_attribute_values(":version", number);
        match self.sender.send(SAVE, &mut Attempts::default(), || request.clone().send()).await? {
            Outcome::Applied(_) => Ok(true),
            // This also holds after an attempt whose reply was lost: then the stored row is this one, or newer.
            Outcome::Rejected(_) => Ok(false),
        }
    }

    /// Adds to a number of a row atomically, and returns the new value. A missing field or row counts as 0 and is created.
    ///
    /// It is retried only while it was certainly not applied: after a lost reply it fails with an unknown outcome
    /// ([`Error::is_outcome_unknown`]), and nothing is counted twice.
    ///
    /// Needs `dynamodb:UpdateItem` on the table.
    pub async fn count(&self, key: &RowKey, field: &str, by: i64) -> Result<i64> {
        let counted = async {
            let request = self
                .sender
                .client()
                .update_item()
                .table_name(self.table())
                .set_key(Some(key.item(self.description)?))
                .update_expression("ADD #field :by")
                .expression_attribute_names("#field", field)
                .expression_attribute_values(":by", AttributeValue::N(by.to_string()))
                .return_values(ReturnValue::UpdatedNew);
            let updated = self.sender.update(COUNT, request, &mut Attempts::once()).await?;
            let Outcome::Applied(item) = updated else {
                return Err(broken(COUNT, "the condition of a count failed"));
            };
            item.get(field).and_then(as_integer).ok_or_else(|| broken(COUNT, "the new value is not a 64-bit integer"))
        };
        let counted = counted.await.map_err(|source| Error::NotCounted {
            table: self.table().to_owned(),
            id: key.to_string(),
            field: field.to_owned(),
            source,
        });
        self.logged("count", &key.to_string(), counted)
    }

    /// Deletes a row. Deleting a missing row succeeds.
    ///
    /// Needs `dynamodb:DeleteItem` on the table.
    pub async fn delete(&self, key: &RowKey) -> Result<()> {
        let deleted = async {
            let request =
                self.sender.client().delete_item().table_name(self.table()).set_key(Some(key.item(self.description)?));
            let sent = self.sender.send(DELETE, &mut Attempts::default(), || request.clone().send()).await?;
            match sent {
                Outcome::Applied(_) => Ok(()),
                Outcome::Rejected(_) => Err(broken(DELETE, "the condition of a deletion failed")),
            }
        };
        let deleted = deleted.await.map_err(|source| Error::NotDeleted {
            table: self.table().to_owned(),
            id: key.to_string(),
            source,
        });
        self.logged("delete", &key.to_string(), deleted)
    }

    /// Puts a row. Returns false if it exists.
    async fn put(&self, item: Item, mode: SaveMode) -> Result<bool, Source> {
        let mut request = self.sender.client().put_item().table_name(self.table()).set_item(Some(item.clone()));
        if mode == SaveMode::Init {
            let absent = self.absent();
            request = request
                .condition_expression(absent.condition)
                .set_expression_attribute_names(Some(absent.names.into_iter().collect()))
                .set_expression_attribute_values(
                    (!absent.values.is_empty()).then(|| absent.values.into_iter().collect()),
                )
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        }
        let mut attempts = Attempts::default();
        match self.sender.send(SAVE, &mut attempts, || request.clone().send()).await? {
            Outcome::Applied(_) => Ok(true),
            Outcome::Rejected(rejection) => {
                let in_the_way = rejection.condition(SAVE)?;
                // An earlier attempt of this call, whose reply was lost.
                if attempts.uncertain && in_the_way.is_some_and(|other| same_item(&item, &other)) {
                    return Ok(true);
                }
                attempts.rejection(SAVE, false)
            }
        }
    }

    /// Returns the condition that the row does not exist or has expired.
    pub(crate) fn absent(&self) -> Absent {
        let mut absent = Absent {
            condition: "attribute_not_exists(#id)".to_owned(),
            names: vec![("#id".to_owned(), self.description.partition_key.to_owned())],
            values: Vec::new(),
        };
        if let (Some(attribute), Some(now)) = (self.description.ttl, self.alive_at) {
            absent.condition.push_str(" OR #ttl <= :now");
            absent.names.push(("#ttl".to_owned(), attribute.to_owned()));
            absent.values.push((":now".to_owned(), AttributeValue::N(now.to_string())));
        }
        absent
    }

    /// Converts a row to the item to store, with its key.
    pub(crate) fn item<T: Serialize + ?Sized>(&self, row: &T, ttl: Option<i64>) -> Result<(RowKey, Item), Source> {
        self.with_ttl(to_item(row)?, ttl)
    }

    pub(crate) fn with_ttl(&self, mut item: Item, ttl: Option<i64>) -> Result<(RowKey, Item), Source> {
        let key = RowKey::of(&item, self.description)?;
        if let Some(end) = ttl {
            let attribute = self.description.ttl.ok_or_else(|| broken(SAVE, "rows of this table do not expire"))?;
            item.insert(attribute.to_owned(), AttributeValue::N(end.to_string()));
        }
        Ok((key, item))
    }
}
