//! A table of DynamoDB in memory: single writes, transactions with their tokens, and consistent reads, each in one step.
//!
//! Requests come as the SDK has written them, and replies go back as it reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    expressions::{Attribute, Condition, Item, Update, item_of, json_of},
    shared::Shared,
};

/// The partition and the sort key of an item.
pub type Key = (String, String);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// UpdateItem.
    Update(Write),
    /// TransactWriteItems.
    Transact(Vec<Write>),
    /// GetItem.
    Get(Key),
    /// Query.
    Query {
        /// The condition on the keys.
        condition: Condition,
        /// From the lowest key to the highest.
        is_forward: bool,
        /// The most items.
        limit: usize,
    },
}

/// A write of one item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    /// Its key.
    pub key: Key,
    /// What it does.
    pub effect: Effect,
    /// The condition under which it does.
    pub condition: Condition,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Changes attributes.
    Update(Vec<Update>),
    /// Puts the item.
    Put(Item),
    /// Nothing: only the condition counts.
    Check,
}

/// What DynamoDB answers, or what the network makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// A single write was applied, and left this.
    Written(Shared<Item>),
    /// A transaction was applied.
    Committed,
    /// The condition of a single write did not hold on this item.
    Rejected(Option<Shared<Item>>),
    /// A transaction was cancelled: for each write whose condition did not hold, the item.
    Cancelled(Vec<Option<Option<Shared<Item>>>>),
    /// What was read.
    Items(Vec<Shared<Item>>),
    /// No reply came.
    Lost,
    /// Nothing listens there, as far as the service can see.
    Unreachable,
    /// No reply came, and then it was too late for another attempt.
    TimedOut,
}

/// The items of a table, and the transactions that it has applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table<T: Ord> {
    /// The items that exist.
    pub items: Arc<BTreeMap<Key, Shared<Item>>>,
    committed: BTreeSet<T>,
}

impl<T: Ord> Default for Table<T> {
    fn default() -> Self {
        Self { items: Arc::default(), committed: BTreeSet::new() }
    }
}

impl Operation {
    /// Reads a request of a table with these names of its key.
    pub fn read(target: &str, request: &Value, keys: [&str; 2]) -> Self {
        match target {
            "UpdateItem" => {
                assert_eq!(request["ReturnValues"], "ALL_NEW");
                Self::Update(Write::read("Update", request, keys))
            }
            "TransactWriteItems" => {
                let actions = request["TransactItems"].as_array().expect("a transaction has actions");
                let write = |action: &Value| {
                    let (name, action) = action.as_object().and_then(|action| action.iter().next()).expect("an action");
                    Write::read(name, action, keys)
                };
                Self::Transact(actions.iter().map(write).collect())
            }
            "GetItem" => {
                assert_eq!(request["ConsistentRead"], true);
                Self::Get(key_of(&item_of(&request["Key"]), keys))
            }
            "Query" => {
                assert_eq!(request["ConsistentRead"], true);
                assert!(
                    request["IndexName"].is_null()
                        && request["ExclusiveStartKey"].is_null()
                        && request["ProjectionExpression"].is_null(),
                    "not modelled"
                );
                let condition = request["KeyConditionExpression"].as_str().expect("a Query has a condition");
                Self::Query {
                    condition: Condition::read(condition, request),
                    is_forward: request["ScanIndexForward"].as_bool().unwrap_or(true),
                    limit: request["Limit"]
                        .as_u64()
                        .and_then(|limit| usize::try_from(limit).ok())
                        .unwrap_or(usize::MAX),
                }
            }
            other => panic!("the request {other} is not modelled"),
        }
    }

    /// Its writes.
    pub fn writes(&mut self) -> &mut [Write] {
        match self {
            Self::Update(write) => std::slice::from_mut(write),
            Self::Transact(writes) => writes,
            Self::Get(_) | Self::Query { .. } => &mut [],
        }
    }
}

impl Write {
    fn read(name: &str, request: &Value, keys: [&str; 2]) -> Self {
        let condition = request["ConditionExpression"].as_str().expect("every write has a condition");
        assert_eq!(request["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
        let (key, effect) = match name {
            "Update" => {
                let update = request["UpdateExpression"].as_str().expect("an update has an expression");
                (item_of(&request["Key"]), Effect::Update(Update::read(update, request)))
            }
            "Put" => (item_of(&request["Item"]), Effect::Put(item_of(&request["Item"]))),
            "ConditionCheck" => (item_of(&request["Key"]), Effect::Check),
            other => panic!("the action {other} is not modelled"),
        };
        Self { key: key_of(&key, keys), effect, condition: Condition::read(condition, request) }
    }
}

fn key_of(item: &Item, keys: [&str; 2]) -> Key {
    let text = |name: &str| match item.get(name) {
        Some(Attribute::S(text)) => text.clone(),
        other => panic!("the key {name} is {other:?}"),
    };
    (text(keys[0]), text(keys[1]))
}

impl<T: Ord + Clone> Table<T> {
    /// Answers a request. A transaction whose `token` was given to one that was applied is answered as that was.
    /// The second value is whether something was written.
    pub fn answer(&mut self, operation: &Operation, token: Option<T>, keys: [&str; 2]) -> (Reply, bool) {
        match operation {
            Operation::Update(write) => match self.failed(write) {
                Some(item) => (Reply::Rejected(item), false),
                None => {
                    self.write(write, keys);
                    (Reply::Written(self.items[&write.key].clone()), true)
                }
            },
            Operation::Transact(writes) => {
                if token.as_ref().is_some_and(|token| self.committed.contains(token)) {
                    return (Reply::Committed, false);
                }
                let failed: Vec<_> = writes.iter().map(|write| self.failed(write)).collect();
                if failed.iter().any(Option::is_some) {
                    return (Reply::Cancelled(failed), false);
                }
                writes.iter().for_each(|write| self.write(write, keys));
                self.committed.extend(token);
                (Reply::Committed, writes.iter().any(|write| write.effect != Effect::Check))
            }
            Operation::Get(key) => (Reply::Items(self.items.get(key).cloned().into_iter().collect()), false),
            Operation::Query { condition, is_forward, limit } => {
                let mut found: Vec<_> = self.items.values().filter(|item| condition.holds(item)).cloned().collect();
                if !is_forward {
                    found.reverse();
                }
                found.truncate(*limit);
                (Reply::Items(found), false)
            }
        }
    }

    /// Whether a write would be applied now.
    pub fn applies(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Update(write) => self.failed(write).is_none(),
            Operation::Transact(writes) => writes.iter().all(|write| self.failed(write).is_none()),
            Operation::Get(_) | Operation::Query { .. } => false,
        }
    }

    /// The item on which the condition does not hold.
    fn failed(&self, write: &Write) -> Option<Option<Shared<Item>>> {
        let item = self.items.get(&write.key);
        let holds = write.condition.holds(item.map_or(&Item::new(), |item| item));
        (!holds).then(|| item.cloned())
    }

    fn write(&mut self, write: &Write, keys: [&str; 2]) {
        let item = match &write.effect {
            Effect::Check => return,
            Effect::Put(item) => item.clone(),
            Effect::Update(changes) => {
                let mut item = self.items.get(&write.key).map(|item| (**item).clone()).unwrap_or_else(|| {
                    let key = [&write.key.0, &write.key.1];
                    keys.into_iter().map(str::to_owned).zip(key.map(|part| Attribute::S(part.clone()))).collect()
                });
                Update::apply(changes, &mut item);
                item
            }
        };
        Arc::make_mut(&mut self.items).insert(write.key.clone(), Shared::new(item));
    }
}

impl Reply {
    /// The status and the body that the SDK reads; `None` if no reply comes.
    pub fn to_http(&self, operation: &Operation) -> Option<(u16, Value)> {
        const PREFIX: &str = "com.amazonaws.dynamodb.v20120810#";
        let of = |item: &Option<Shared<Item>>| item.as_ref().map(|item| json_of(item));
        Some(match self {
            Self::Written(item) => (200, json!({ "Attributes": json_of(item) })),
            Self::Committed => (200, json!({})),
            Self::Rejected(item) => {
                let mut body = json!({
                    "__type": format!("{PREFIX}ConditionalCheckFailedException"),
                    "message": "The conditional request failed",
                });
                if let Some(item) = of(item) {
                    body["Item"] = item;
                }
                (400, body)
            }
            Self::Cancelled(failed) => {
                let reasons = failed.iter().map(|failed| match failed {
                    None => json!({ "Code": "None" }),
                    Some(item) => {
                        let message = "The conditional request failed";
                        let mut reason = json!({ "Code": "ConditionalCheckFailed", "Message": message });
                        if let Some(item) = of(item) {
                            reason["Item"] = item;
                        }
                        reason
                    }
                });
                let body = json!({
                    "__type": format!("{PREFIX}TransactionCanceledException"),
                    "Message": "Transaction cancelled, please refer cancellation reasons for specific reasons",
                    "CancellationReasons": reasons.collect::<Vec<_>>(),
                });
                (400, body)
            }
            Self::Items(items) => match operation {
                Operation::Get(_) => match items.first() {
                    Some(item) => (200, json!({ "Item": json_of(item) })),
                    None => (200, json!({})),
                },
                _ => {
                    let items: Vec<Value> = items.iter().map(|item| json_of(item)).collect();
                    (200, json!({ "Count": items.len(), "ScannedCount": items.len(), "Items": items }))
                }
            },
            Self::Lost | Self::Unreachable | Self::TimedOut => return None,
        })
    }
}
