use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::operation::query::{QueryOutput, builders::QueryFluentBuilder};
use nameservice_dynamo::{Item, READ_BATCH, as_integer};
use serde::de::DeserializeOwned;

use crate::{
    Error, KeyValue, Result, RowKey, View,
    error::{Source, broken},
    rows::from_item,
};

const LOAD: &str = "load rows";

/// Selects rows of a partition, their order and their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Range {
    /// Only rows that come after this sort key, in the direction of the query.
    pub after: Option<KeyValue>,
    /// Only rows whose sort key begins with this, a string.
    pub prefix: Option<String>,
    /// Only rows whose sort key is between these two, both included.
    pub between: Option<(KeyValue, KeyValue)>,
    /// Only rows after the page that returned this, in addition to `after`: the rest of the range stays the same.
    pub continued: Option<Continuation>,
    /// The most rows to evaluate. `None`: as many as fit a page of DynamoDB (1 MB).
    pub limit: Option<usize>,
    /// From the greatest sort key to the smallest.
    pub descending: bool,
    /// Eventually consistent: half the price, and perhaps a second behind. Indexes always are.
    pub eventual: bool,
}

impl Range {
    /// Creates a range of all rows of a partition in ascending order, read consistently.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what comes after this sort key.
    #[must_use]
    pub fn after(self, sort: impl Into<KeyValue>) -> Self {
        Self { after: Some(sort.into()), ..self }
    }

    /// Only what begins with this. It replaces [`Range::after`] and [`Range::between`]: DynamoDB takes one condition on a sort
    /// key.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), after: None, between: None, ..self }
    }

    /// Only what is between two sort keys, both included. It replaces [`Range::after`] and [`Range::prefix`].
    #[must_use]
    pub fn between(self, first: impl Into<KeyValue>, last: impl Into<KeyValue>) -> Self {
        Self { between: Some((first.into(), last.into())), after: None, prefix: None, ..self }
    }

    /// Only what comes after a page.
    #[must_use]
    pub fn continued(self, continuation: Option<Continuation>) -> Self {
        Self { continued: continuation, ..self }
    }

    /// At most this many rows.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// In descending order.
    #[must_use]
    pub fn descending(self) -> Self {
        Self { descending: true, ..self }
    }

    /// Eventually consistent.
    #[must_use]
    pub fn eventual(self) -> Self {
        Self { eventual: true, ..self }
    }
}

/// The end of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation(Item);

/// Some rows of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct RangePage<T> {
    /// The rows, in order, without those that have expired at the time of [`View::alive_at`].
    pub rows: Vec<T>,
    /// The start of the next page; `None` at the end of the range. The next page may be empty.
    pub next: Option<Continuation>,
}

impl<T> RangePage<T> {
    /// Returns whether there may be more.
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }
}

impl View {
    /// Loads all rows of a partition, in the order of the sort key, consistently. Empty if there are none.
    ///
    /// Needs `dynamodb:Query` on the table.
    pub async fn load<T: DeserializeOwned>(&self, id: &str) -> Result<Vec<T>> {
        let loaded = async {
            let mut items = Vec::new();
            let mut range = Range::new();
            loop {
                let (found, next) = self.query(self.of_partition(id, &range)?).await?;
                items.extend(found);
                match next {
                    Some(next) => range = range.continued(Some(next)),
                    None => return self.rows(items),
                }
            }
        };
        let loaded = loaded.await;
        self.loaded("load", id, loaded)
    }

    /// Loads one row, consistently.
    ///
    /// Needs `dynamodb:GetItem` on the table.
    pub async fn load_one<T: DeserializeOwned>(&self, key: &RowKey) -> Result<Option<T>> {
        let loaded = async {
            let request = self
                .sender
                .client()
                .get_item()
                .table_name(self.table())
                .set_key(Some(key.item(self.description)?))
                .consistent_read(true);
            let item = self.sender.read(LOAD, || request.clone().send()).await?.item;
            item.filter(|item| !item.is_empty() && self.is_alive(item)).map(from_item).transpose()
        };
        let loaded = loaded.await;
        self.loaded("load one", &key.to_string(), loaded)
    }

    /// Loads many rows, in the order of their keys: `None` for those that do not exist. Takes a request for each hundred keys, and as many
    /// again for what the first ones did not find: they are eventually consistent, at half the price. So this is for rows that never change
    /// once they exist.
    ///
    /// Needs `dynamodb:BatchGetItem` on the table.
    pub async fn load_batch<T: DeserializeOwned>(&self, keys: &[RowKey]) -> Result<Vec<Option<T>>> {
        let loaded = async {
            let mut found: HashMap<RowKey, Item> = HashMap::new();
            for is_consistent in [false, true] {
                let missing: HashSet<&RowKey> = keys.iter().filter(|key| !found.contains_key(*key)).collect();
                let missing =
                    missing.into_iter().map(|key| key.item(self.description)).collect::<Result<Vec<_>, _>>()?;
                for batch in missing.chunks(READ_BATCH) {
                    for item in self.sender.read_batch(LOAD, batch.to_vec(), is_consistent).await? {
                        found.insert(RowKey::of(&item, self.description)?, item);
                    }
                }
            }
            let row = |key| found.get(key).filter(|item| self.is_alive(item)).cloned().map(from_item).transpose();
            keys.iter().map(row).collect()
        };
        let loaded = loaded.await;
        let id = keys.first().map_or_else(String::new, RowKey::to_string);
        self.loaded("load batch", &id, loaded)
    }

    /// Loads a page of a partition, with one request.
    ///
    /// Needs `dynamodb:Query` on the table.
    pub async fn load_range<T: DeserializeOwned>(&self, id: &str, range: &Range) -> Result<RangePage<T>> {
        let loaded = async { self.page(self.of_partition(id, range)?).await };
        let loaded = loaded.await;
        self.loaded("load range", id, loaded)
    }

    /// Loads a page of the rows that an index has under a value of its partition key, with one request. An index follows its
    /// table within about a second and projects only some attributes: `T` must deserialize from those.
    ///
    /// Needs `dynamodb:Query` on the index.
    pub async fn query_index<T: DeserializeOwned>(
        &self,
        index: &str,
        value: impl Into<KeyValue>,
        range: &Range,
    ) -> Result<RangePage<T>> {
        let value = value.into();
        let loaded = async { self.page(self.of_index(index, &value, range)?).await };
        let loaded = loaded.await;
        self.loaded("query index", &format!("{index}={value}"), loaded)
    }

    /// Loads a page of all rows, in no particular order, consistently, with one request.
    ///
    /// Needs `dynamodb:Scan` on the table.
    pub async fn scan<T: DeserializeOwned>(&self, continued: Option<Continuation>) -> Result<RangePage<T>> {
        let loaded = async {
            let request = self.sender.client().scan().table_name(self.table()).consistent_read(true);
            let request = request.set_exclusive_start_key(continued.map(|continuation| continuation.0));
            let output = self.sender.read(LOAD, || request.clone().send()).await?;
            let next = output.last_evaluated_key.filter(|key| !key.is_empty()).map(Continuation);
            Ok(RangePage { rows: self.rows(output.items.unwrap_or_default())?, next })
        };
        let loaded = loaded.await;
        self.loaded("scan", "all rows", loaded)
    }

    fn loaded<T>(&self, operation: &'static str, id: &str, loaded: Result<T, Source>) -> Result<T> {
        let not_loaded = |source| Error::NotLoaded { table: self.table().to_owned(), id: id.to_owned(), source };
        self.logged(operation, id, loaded.map_err(not_loaded))
    }

    fn of_partition(&self, id: &str, range: &Range) -> Result<QueryFluentBuilder, Source> {
        let request = self.sender.client().query().table_name(self.table()).consistent_read(!range.eventual);
        let keys = (self.description.partition_key, self.description.sort_key);
        asked(request, keys, &KeyValue::from(id), range)
    }

    fn of_index(&self, index: &str, value: &KeyValue, range: &Range) -> Result<QueryFluentBuilder, Source> {
        let described =
            self.description.index(index).ok_or_else(|| broken(LOAD, format!("no index `{index}` is described")))?;
        if !value.is_of(described.partition_key.key_type) {
            return Err(broken(LOAD, format!("`{}` has another key type", described.partition_key.name)));
        }
        let request = self.sender.client().query().table_name(self.table()).index_name(described.name);
        asked(request, (described.partition_key.name, described.sort_key.map(|key| key.name)), value, range)
    }

    async fn page<T: DeserializeOwned>(&self, request: QueryFluentBuilder) -> Result<RangePage<T>, Source> {
        let (items, next) = self.query(request).await?;
        Ok(RangePage { rows: self.rows(items)?, next })
    }

    async fn query(&self, request: QueryFluentBuilder) -> Result<(Vec<Item>, Option<Continuation>), Source> {
        let output: QueryOutput = self.sender.read(LOAD, || request.clone().send()).await?;
        let next = output.last_evaluated_key.filter(|key| !key.is_empty()).map(Continuation);
        Ok((output.items.unwrap_or_default(), next))
    }

    fn rows<T: DeserializeOwned>(&self, items: Vec<Item>) -> Result<Vec<T>, Source> {
        items.into_iter().filter(|item| self.is_alive(item)).map(from_item).collect()
    }

    fn is_alive(&self, item: &Item) -> bool {
        let end = self.description.ttl.and_then(|attribute| as_integer(item.get(attribute)?));
        !matches!((end, self.alive_at), (Some(end), Some(now)) if end <= now)
    }
}

fn asked(
    request: QueryFluentBuilder,
    (partition, sort): (&str, Option<&str>),
    value: &KeyValue,
    range: &Range,
) -> Result<QueryFluentBuilder, Source> {
    let conditions = [range.prefix.is_some(), range.after.is_some(), range.between.is_some()];
    if conditions.into_iter().filter(|given| *given).count() > 1 {
        return Err(broken(LOAD, "a range takes only one of `prefix`, `after` and `between`"));
    }
    let mut condition = "#id = :id".to_owned();
    let mut request = request
        .expression_attribute_names("#id", partition)
        .expression_attribute_values(":id", value.attribute())
        .scan_index_forward(!range.descending)
        .set_limit(range.limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)))
        .set_exclusive_start_key(range.continued.clone().map(|continuation| continuation.0));
    if let Some(prefix) = &range.prefix {
        let sort = sort.ok_or_else(|| broken(LOAD, "a range requires a sort key"))?;
        condition.push_str(" AND begins_with(#sort, :prefix)");
        request = request
            .expression_attribute_names("#sort", sort)
            .expression_attribute_values(":prefix", KeyValue::from(prefix.as_str()).attribute());
    }
    if let Some(after) = &range.after {
        let sort = sort.ok_or_else(|| broken(LOAD, "a range requires a sort key"))?;
        condition.push_str(if range.descending { " AND #sort < :after" } else { " AND #sort > :after" });
        request =
            request.expression_attribute_names("#sort", sort).expression_attribute_values(":after", after.attribute());
    }
    if let Some((first, last)) = &range.between {
        let sort = sort.ok_or_else(|| broken(LOAD, "a range requires a sort key"))?;
        condition.push_str(" AND #sort BETWEEN :first AND :last");
        request = request
            .expression_attribute_names("#sort", sort)
            .expression_attribute_values(":first", first.attribute())
            .expression_attribute_values(":last", last.attribute());
    }
    Ok(request.key_condition_expression(condition))
}
