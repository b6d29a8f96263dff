//! Rows as a Fluree server writes them, and Fluree's own updates.
//!
//! A row is DynamoDB's typed JSON: `{"pk": {"S": "mydb:main"}, "commit_t": {"N": "3"}}`.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, error::SdkError, operation::update_item::UpdateItemError, types::AttributeValue};
use nameservice_model::ContentId;
use serde_json::{Map, Value, json};

use crate::table::Table;

/// A row in typed JSON.
pub type Row = Map<String, Value>;

/// When Fluree wrote the rows of these tests, epoch milliseconds.
pub const WRITTEN_AT_MS: i64 = 1_700_000_000_123;

/// Typed JSON to the SDK's type.
pub fn to_attribute(value: &Value) -> AttributeValue {
    let (kind, value) = value.as_object().and_then(|object| object.iter().next()).expect("one type, one value");
    match (kind.as_str(), value) {
        ("S", Value::String(text)) => AttributeValue::S(text.clone()),
        ("N", Value::String(number)) => AttributeValue::N(number.clone()),
        ("BOOL", Value::Bool(truth)) => AttributeValue::Bool(*truth),
        ("NULL", Value::Bool(true)) => AttributeValue::Null(true),
        ("L", Value::Array(values)) => AttributeValue::L(values.iter().map(to_attribute).collect()),
        ("M", Value::Object(members)) => AttributeValue::M(to_item(members)),
        ("SS", Value::Array(values)) => {
            AttributeValue::Ss(values.iter().map(|value| value.as_str().unwrap().to_owned()).collect())
        }
        (kind, value) => panic!("{{{kind}: {value}}} is no attribute"),
    }
}

/// The SDK's type to typed JSON.
pub fn from_attribute(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(number) => json!({ "N": number }),
        AttributeValue::Bool(truth) => json!({ "BOOL": truth }),
        AttributeValue::Null(_) => json!({ "NULL": true }),
        AttributeValue::L(values) => json!({ "L": values.iter().map(from_attribute).collect::<Vec<_>>() }),
        AttributeValue::M(members) => json!({ "M": from_item(members) }),
        AttributeValue::Ss(values) => json!({ "SS": values }),
        other => panic!("{other:?} is not used here"),
    }
}

/// A row to an item of the SDK.
pub fn to_item(row: &Row) -> HashMap<String, AttributeValue> {
    row.iter().map(|(name, value)| (name.clone(), to_attribute(value))).collect()
}

/// An item of the SDK to a row.
pub fn from_item(item: &HashMap<String, AttributeValue>) -> Row {
    item.iter().map(|(name, value)| (name.clone(), from_attribute(value))).collect()
}

/// A text attribute.
pub fn s(text: impl Into<String>) -> Value {
    json!({ "S": text.into() })
}

/// A number attribute.
pub fn n(number: i64) -> Value {
    json!({ "N": number.to_string() })
}

/// A truth attribute.
pub fn truth(value: bool) -> Value {
    json!({ "BOOL": value })
}

/// The NULL attribute.
pub fn null() -> Value {
    json!({ "NULL": true })
}

/// A list of texts.
pub fn texts(values: &[&str]) -> Value {
    json!({ "L": values.iter().map(|text| s(*text)).collect::<Vec<_>>() })
}

/// A row with the four attributes that every row of Fluree's has, and more.
pub fn row<const N: usize>(pk: &str, sk: &str, attributes: [(&str, Value); N]) -> Row {
    let mut row = bare(pk, sk);
    row.insert("schema".into(), n(2));
    row.insert("updated_at_ms".into(), n(WRITTEN_AT_MS));
    row.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
    row
}

/// A row with nothing but its keys.
pub fn bare(pk: &str, sk: &str) -> Row {
    Row::from_iter([("pk".to_owned(), s(pk)), ("sk".to_owned(), s(sk))])
}

fn parts(pk: &str) -> (&str, &str) {
    pk.split_once(':').expect("name:branch")
}

/// The 5 items of a ledger as Fluree writes them.
pub struct Ledger {
    pk: String,
    head: Option<(ContentId, i64)>,
    index: Option<(ContentId, i64)>,
    context: Option<(String, i64)>,
    source: Option<String>,
    branches: Option<i64>,
    retracted: bool,
    nulls: bool,
}

/// An unborn ledger of Fluree's.
pub fn ledger(pk: &str) -> Ledger {
    Ledger {
        pk: pk.into(),
        head: None,
        index: None,
        context: None,
        source: None,
        branches: None,
        retracted: false,
        nulls: false,
    }
}

impl Ledger {
    /// With a head.
    pub fn commit(self, id: ContentId, t: i64) -> Self {
        Self { head: Some((id, t)), ..self }
    }

    /// With an index.
    pub fn index(self, id: ContentId, t: i64) -> Self {
        Self { index: Some((id, t)), ..self }
    }

    /// With a default context, as the deployed code stores it.
    pub fn context(self, address: &str, v: i64) -> Self {
        Self { context: Some((address.into(), v)), ..self }
    }

    /// As a branch of another.
    pub fn branch_of(self, source: &str) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// With this many branches of its own.
    pub fn branches(self, count: i64) -> Self {
        Self { branches: Some(count), ..self }
    }

    /// Retracted as Fluree retracts: on the meta alone.
    pub fn retracted(self) -> Self {
        Self { retracted: true, ..self }
    }

    /// With NULL instead of absent ids and maps.
    pub fn nulls(self) -> Self {
        Self { nulls: true, ..self }
    }

    /// The rows: meta, head, index, config, status.
    pub fn rows(self) -> Vec<Row> {
        let pk = self.pk.as_str();
        let (name, branch) = parts(pk);
        let mut meta = row(
            pk,
            "meta",
            [("kind", s("ledger")), ("name", s(name)), ("branch", s(branch)), ("retracted", truth(self.retracted))],
        );
        let mut head = row(pk, "head", [("commit_t", n(self.head.as_ref().map_or(0, |head| head.1)))]);
        let mut index = row(pk, "index", [("index_t", n(self.index.as_ref().map_or(0, |index| index.1)))]);
        let mut config = row(pk, "config", [("config_v", n(self.context.as_ref().map_or(0, |context| context.1)))]);
        let mut status = row(pk, "status", [("status", s("ready")), ("status_v", n(1))]);
        if self.nulls {
            head.insert("commit_id".into(), null());
            index.insert("index_id".into(), null());
            config.insert("default_context_address".into(), null());
            config.insert("config_meta".into(), null());
            status.insert("status_meta".into(), null());
        }
        if let Some((id, _)) = self.head {
            head.insert("commit_id".into(), s(id.as_str()));
        }
        if let Some((id, _)) = self.index {
            index.insert("index_id".into(), s(id.as_str()));
        }
        if let Some((address, _)) = self.context {
            config.insert("default_context_address".into(), s(address));
        }
        if let Some(source) = self.source {
            meta.insert("bp_source".into(), s(source));
        }
        if let Some(count) = self.branches {
            meta.insert("branches".into(), n(count));
        }
        vec![meta, head, index, config, status]
    }
}

/// The 4 items of a graph source as Fluree writes them: no counters, no back references.
pub fn graph_source(pk: &str, source_type: &str, config_json: &str, dependencies: &[&str]) -> Vec<Row> {
    let (name, branch) = parts(pk);
    vec![
        row(
            pk,
            "meta",
            [
                ("kind", s("graph_source")),
                ("source_type", s(source_type)),
                ("name", s(name)),
                ("branch", s(branch)),
                ("dependencies", texts(dependencies)),
                ("retracted", truth(false)),
            ],
        ),
        row(pk, "config", [("config_json", s(config_json)), ("config_v", n(1))]),
        row(pk, "index", [("index_t", n(0))]),
        row(pk, "status", [("status", s("ready")), ("status_v", n(1))]),
    ]
}

/// A row of the commit log that Fluree writes best-effort.
pub fn commit_log(pk: &str, id: &ContentId, t: i64) -> Row {
    let mut row = row(pk, &format!("commit#{t:020}"), [("commit_cid", s(id.as_str())), ("commit_t", n(t))]);
    row.insert("ttl".into(), n(4_000_000_000));
    row
}

/// The meta that an unguarded update of Fluree's leaves where there was none: no kind.
pub fn ghost_meta(pk: &str) -> Row {
    let mut ghost = bare(pk, "meta");
    ghost.insert("retracted".into(), truth(true));
    ghost.insert("updated_at_ms".into(), n(WRITTEN_AT_MS));
    ghost
}

/// A ledger of which nothing but the meta is left.
pub fn meta_only(pk: &str) -> Vec<Row> {
    ledger(pk).rows().into_iter().filter(|row| row["sk"] == s("meta")).collect()
}

/// A ledger's concern items without the meta that makes them a record.
pub fn orphans(pk: &str, id: ContentId, t: i64) -> Vec<Row> {
    ledger(pk).commit(id, t).rows().into_iter().filter(|row| row["sk"] != s("meta")).collect()
}

/// A Fluree server's own calls on the same table (the guide's "How Updates Work").
pub struct Fluree<'a> {
    client: &'a Client,
    table: &'a str,
}

impl<'a> Fluree<'a> {
    /// One that shares this table with us.
    pub fn on(table: &'a Table) -> Self {
        Self { client: &table.client, table: &table.name }
    }

    /// One that shares the table of this name.
    pub fn with(client: &'a Client, table: &'a str) -> Self {
        Self { client, table }
    }

    /// Publishes a commit. Whether it was written.
    pub async fn commit(&self, pk: &str, id: &ContentId, t: i64) -> bool {
        self.update(
            pk,
            "head",
            "SET commit_id = :cid, commit_t = :t, updated_at_ms = :now",
            Some("attribute_exists(pk) AND commit_t < :t"),
            &[(":cid", s(id.as_str())), (":t", n(t))],
            &[],
        )
        .await
    }

    /// Publishes an index. Whether it was written.
    pub async fn publish_index(&self, pk: &str, id: &ContentId, t: i64) -> bool {
        self.update(
            pk,
            "index",
            "SET index_id = :cid, index_t = :t, updated_at_ms = :now",
            Some("attribute_exists(pk) AND index_t < :t"),
            &[(":cid", s(id.as_str())), (":t", n(t))],
            &[],
        )
        .await
    }

    /// Publishes an index at the same `t` (compare-and-set of a reference). Whether it was written.
    pub async fn reindex(&self, pk: &str, id: &ContentId, t: i64) -> bool {
        self.update(
            pk,
            "index",
            "SET index_id = :cid, index_t = :t, updated_at_ms = :now",
            Some("attribute_exists(pk) AND index_t <= :t"),
            &[(":cid", s(id.as_str())), (":t", n(t))],
            &[],
        )
        .await
    }

    /// Pushes a status. Whether it was written.
    pub async fn push_status(&self, pk: &str, expected: (i64, &str), new: (i64, &str)) -> bool {
        self.update(
            pk,
            "status",
            "SET #st = :new_state, status_v = :new_v, updated_at_ms = :now",
            Some("status_v = :expected_v AND #st = :expected_state"),
            &[
                (":new_state", s(new.1)),
                (":new_v", n(new.0)),
                (":expected_v", n(expected.0)),
                (":expected_state", s(expected.1)),
            ],
            &[("#st", "status")],
        )
        .await
    }

    /// Pushes a default context, as the deployed code does. Whether it was written.
    pub async fn push_config(&self, pk: &str, expected_v: i64, context: &str, new_v: i64) -> bool {
        self.update(
            pk,
            "config",
            "SET default_context_address = :ctx, config_v = :new_v, updated_at_ms = :now",
            Some("config_v = :expected_v"),
            &[(":ctx", s(context)), (":new_v", n(new_v)), (":expected_v", n(expected_v))],
            &[],
        )
        .await
    }

    /// Removes the default context, as the deployed code does. Whether it was written.
    pub async fn clear_config(&self, pk: &str, expected_v: i64, new_v: i64) -> bool {
        self.update(
            pk,
            "config",
            "SET config_v = :new_v, updated_at_ms = :now REMOVE default_context_address",
            Some("config_v = :expected_v"),
            &[(":new_v", n(new_v)), (":expected_v", n(expected_v))],
            &[],
        )
        .await
    }

    /// Retracts: the meta alone, unguarded.
    pub async fn retract(&self, pk: &str) {
        let expression = "SET retracted = :true, updated_at_ms = :now";
        assert!(self.update(pk, "meta", expression, None, &[(":true", truth(true))], &[]).await);
    }

    async fn update(
        &self,
        pk: &str,
        sk: &str,
        expression: &str,
        condition: Option<&str>,
        values: &[(&str, Value)],
        names: &[(&str, &str)],
    ) -> bool {
        let mut update = self
            .client
            .update_item()
            .table_name(self.table)
            .key("pk", AttributeValue::S(pk.into()))
            .key("sk", AttributeValue::S(sk.into()))
            .update_expression(expression)
            .set_condition_expression(condition.map(String::from))
            .expression_attribute_values(":now", to_attribute(&n(WRITTEN_AT_MS)));
        for (name, value) in values {
            update = update.expression_attribute_values(*name, to_attribute(value));
        }
        for (name, attribute) in names {
            update = update.expression_attribute_names(*name, *attribute);
        }
        match update.send().await {
            Ok(_) => true,
            Err(SdkError::ServiceError(failure))
                if matches!(failure.err(), UpdateItemError::ConditionalCheckFailedException(_)) =>
            {
                false
            }
            Err(error) => panic!("{expression}: {error:?}"),
        }
    }
}
