//! The model's table against an engine: each request that the models have sent, on random items, is answered the same and leaves the
//! same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a comparison that cannot be set up has failed")]

use std::{collections::BTreeSet, sync::Arc};

use dynoxide::{Database, DynoxideError};
use nameservice_models::{
    expressions::{Attribute, Item, item_of, json_of},
    shared::Shared,
    table::{Effect, Key, Operation, Reply, Table},
    wire::Sent,
};
use proptest::{
    prelude::{ProptestConfig, any},
    sample::Index,
    test_runner::{RngSeed, TestError, TestRunner},
};
use serde_json::{Value, json};

/// Random decisions about the attributes of items, one a byte.
type Choices = Vec<u8>;

/// The rows that requests are sent to.
pub(crate) struct Rows {
    /// The names of the table's key.
    pub(crate) keys: [&'static str; 2],
    /// Those that queries may find.
    pub(crate) queried: Vec<Key>,
    /// One row in this many is absent.
    pub(crate) absent: u8,
}

/// A table of an engine.
struct Engine {
    database: Database,
    keys: [&'static str; 2],
}

fn sent<T>(answer: Result<T, DynoxideError>) -> Value
where
    T: serde::Serialize,
{
    match answer {
        Ok(answer) => serde_json::to_value(answer).unwrap(),
        Err(error) => serde_json::from_str(&error.to_json()).unwrap(),
    }
}

impl Engine {
    fn new(keys: [&'static str; 2]) -> Self {
        let database = Database::memory().unwrap();
        let attribute = |name| json!({ "AttributeName": name, "AttributeType": "S" });
        let schema = [(keys[0], "HASH"), (keys[1], "RANGE")];
        let schema = schema.map(|(name, role)| json!({ "AttributeName": name, "KeyType": role }));
        let table = json!({
            "TableName": "records",
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": keys.map(attribute),
            "KeySchema": schema,
        });
        database.create_table(serde_json::from_value(table).unwrap()).unwrap();
        Self { database, keys }
    }

    fn key(&self, key: &Key) -> Value {
        json!({ self.keys[0]: { "S": key.0 }, self.keys[1]: { "S": key.1 } })
    }

    fn set(&self, key: &Key, item: Option<&Item>) {
        match item {
            Some(item) => {
                let put = json!({ "TableName": "records", "Item": json_of(item) });
                self.database.put_item(serde_json::from_value(put).unwrap()).unwrap();
            }
            None => {
                let delete = json!({ "TableName": "records", "Key": self.key(key) });
                self.database.delete_item(serde_json::from_value(delete).unwrap()).unwrap();
            }
        }
    }

    fn get(&self, key: &Key) -> Option<Item> {
        let get = json!({ "TableName": "records", "Key": self.key(key), "ConsistentRead": true });
        let found = sent(self.database.get_item(serde_json::from_value(get).unwrap()));
        found.get("Item").map(item_of)
    }

    fn answer(&self, (target, request): &Sent) -> Value {
        let mut request = request.clone();
        request["TableName"] = json!("records");
        // Costs are not compared, and a token would keep a repeated request from being evaluated.
        let members = request.as_object_mut().unwrap();
        members.remove("ReturnConsumedCapacity");
        members.remove("ClientRequestToken");
        match target.as_str() {
            "UpdateItem" => sent(self.database.update_item(serde_json::from_value(request).unwrap())),
            "TransactWriteItems" => {
                for action in request["TransactItems"].as_array_mut().unwrap() {
                    action
                        .as_object_mut()
                        .unwrap()
                        .values_mut()
                        .for_each(|action| action["TableName"] = json!("records"));
                }
                sent(self.database.transact_write_items(serde_json::from_value(request).unwrap()))
            }
            "GetItem" => sent(self.database.get_item(serde_json::from_value(request).unwrap())),
            "Query" => sent(self.database.query(serde_json::from_value(request).unwrap())),
            other => panic!("{other}"),
        }
    }
}

/// What an answer says, under whatever name.
fn essence(answer: &Value) -> Value {
    let items = |name: &str| answer.get(name).map(|item| json_of(&item_of(item)));
    let reasons = answer["CancellationReasons"].as_array().map(|reasons| {
        let of = |reason: &Value| json!([reason["Code"], reason.get("Item").map(|item| json_of(&item_of(item)))]);
        reasons.iter().map(of).collect::<Vec<_>>()
    });
    let found =
        answer["Items"].as_array().map(|found| found.iter().map(|item| json_of(&item_of(item))).collect::<Vec<_>>());
    json!([answer["__type"], items("Attributes"), items("Item"), reasons, found])
}

/// Values that an expression may be about: those that the request brings, and some that it does not.
fn values_of(request: &Value, into: &mut BTreeSet<Attribute>) {
    match request {
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "ExpressionAttributeValues" => into.extend(item_of(value).into_values()),
                    _ => values_of(value, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| values_of(value, into)),
        _ => {}
    }
}

fn names_of(request: &Value, into: &mut BTreeSet<String>) {
    match request {
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "ExpressionAttributeNames" => {
                        into.extend(value.as_object().unwrap().values().map(|name| name.as_str().unwrap().to_owned()));
                    }
                    _ => names_of(value, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names_of(value, into)),
        _ => {}
    }
}

/// Counters are added to without a look at their type: anything else there would be rejected as invalid, whatever the condition.
const COUNTERS: [&str; 2] = ["status_v", "lease_token"];

fn attribute(name: &str, values: &[Attribute], choices: &mut impl Iterator<Item = u8>) -> Option<Attribute> {
    let mut choose = |of: usize| usize::from(choices.next().unwrap_or(0)) % of;
    if COUNTERS.contains(&name) {
        return [None, Some(0), Some(1), Some(2), Some(7)][choose(5)].map(Attribute::N);
    }
    match choose(8) {
        0 | 1 => None,
        2 => Some(Attribute::Null),
        3 => Some(Attribute::N(i64::try_from(choose(4)).unwrap())),
        4 => Some(Attribute::S("".to_owned())),
        _ => Some(values[choose(values.len())].clone()),
    }
}

/// A random item of a request's attributes, or none.
fn random_item(rows: &Rows, key: &Key, sent: &Sent, choices: &mut impl Iterator<Item = u8>) -> Option<Item> {
    let Rows { keys, absent, .. } = rows;
    if choices.next().unwrap_or(0).is_multiple_of(*absent) {
        return None;
    }
    let (mut names, mut values) = (BTreeSet::new(), BTreeSet::from([Attribute::Bool(false)]));
    names_of(&sent.1, &mut names);
    values_of(&sent.1, &mut values);
    let values: Vec<Attribute> = values.into_iter().collect();
    let mut item: Item =
        names.iter().filter_map(|name| Some((name.clone(), attribute(name, &values, choices)?))).collect();
    if names.contains("lease") && !choices.next().unwrap_or(0).is_multiple_of(4) {
        let members = ["name", "holder", "expires_at"];
        let lease = members.iter().filter_map(|name| Some(((*name).to_owned(), attribute(name, &values, choices)?)));
        item.insert("lease".to_owned(), Attribute::M(lease.collect()));
    }
    item.extend([(keys[0].to_owned(), Attribute::S(key.0.clone())), (keys[1].to_owned(), Attribute::S(key.1.clone()))]);
    Some(item)
}

/// Every key that a request is about.
fn keys_of(rows: &Rows, operation: &mut Operation) -> Vec<Key> {
    match operation {
        Operation::Get(key) => vec![key.clone()],
        Operation::Query { .. } => rows.queried.clone(),
        writes => writes.writes().iter().map(|write| write.key.clone()).collect(),
    }
}

/// Items that requests are compared on at a time, and writes that have to take effect among them all: some depend on so many
/// attributes that a condition rarely holds on a random item.
const ITEMS: u32 = 2_000;
const APPLIED: usize = 21;

/// Sends these requests to the model's table and to an engine, on random items, until enough of their writes have taken effect.
pub(crate) fn agrees(rows: &Rows, requests: &[Sent]) {
    let first = match ProptestConfig::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => 1,
    };
    let engine = Engine::new(rows.keys);
    let (mut items, mut applied) = (0, 0);
    for seed in first..first + 20 {
        items += ITEMS;
        applied += applied_in(rows, requests, &engine, seed);
        if applied >= APPLIED {
            println!("engine: {} requests, {items} random items, {applied} writes applied", requests.len());
            return;
        }
    }
    panic!("random items that no condition holds on compare little: {applied} of {items}, PROPTEST_RNG_SEED={first}");
}

/// The writes of some random items that took effect, in the model's table and in the engine alike.
fn applied_in(rows: &Rows, requests: &[Sent], engine: &Engine, seed: u64) -> usize {
    let keys = rows.keys;
    let applied = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: ITEMS,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    });
    let compared = runner.run(
        &(any::<Index>(), proptest::collection::vec(any::<u8>(), 256)),
        |(which, choices): (Index, Choices)| {
            let sent = which.get(requests);
            let mut operation = Operation::read(&sent.0, &sent.1, keys);
            let mut choices = choices.into_iter();
            let mut table: Table<()> = Table::default();
            let touched = keys_of(rows, &mut operation);
            for key in &touched {
                let item = random_item(rows, key, sent, &mut choices);
                engine.set(key, item.as_ref());
                if let Some(item) = item {
                    Arc::make_mut(&mut table.items).insert(key.clone(), Shared::new(item));
                }
            }
            let before = table.clone();
            let (reply, _): (Reply, bool) = table.answer(&operation, None, keys);
            let (_, ours) = reply.to_http(&operation).unwrap();
            let theirs = engine.answer(sent);
            assert_eq!(essence(&ours), essence(&theirs), "{sent:#?}\n{before:#?}");
            for key in &touched {
                assert_eq!(
                    table.items.get(key).map(|item| (**item).clone()),
                    engine.get(key),
                    "{sent:#?}\n{before:#?}"
                );
                engine.set(key, None);
            }
            let writes = operation.writes().iter().any(|write| write.effect != Effect::Check);
            let has_applied = writes && matches!(reply, Reply::Written(_) | Reply::Committed);
            applied.set(applied.get() + usize::from(has_applied));
            Ok(())
        },
    );
    if let Err(TestError::Fail(reason, input)) = compared {
        panic!("PROPTEST_RNG_SEED={seed}: {reason}\n{input:?}");
    }
    applied.get()
}
