//! DynamoDB's condition and update expressions, as far as the store and the feed write them. Anything else is a panic: what is
//! not understood must not be explored as if it were.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::reader::Reader;

/// An attribute value of the types that items have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attribute {
    /// Text.
    S(String),
    /// A whole number.
    N(i64),
    /// A truth value.
    Bool(bool),
    /// NULL.
    Null,
    /// Bytes, as Base64.
    B(String),
    /// A list.
    L(Vec<Attribute>),
    /// A map.
    M(Item),
}

/// An item, or the members of a map.
pub type Item = BTreeMap<String, Attribute>;

/// An attribute, or a member in a map in it.
pub type Path = Vec<String>;

impl Attribute {
    pub(crate) fn of(value: &Value) -> Self {
        let members = value.as_object().expect("an attribute value is an object");
        let (name, value) = members.iter().next().expect("an attribute value has a type");
        let text = || value.as_str().expect("it is text").to_owned();
        match name.as_str() {
            "S" => Self::S(text()),
            "N" => Self::N(text().parse().expect("only whole numbers are modelled")),
            "BOOL" => Self::Bool(value.as_bool().expect("it is a truth value")),
            "NULL" => Self::Null,
            "B" => Self::B(text()),
            "L" => Self::L(value.as_array().expect("it is a list").iter().map(Self::of).collect()),
            "M" => Self::M(item_of(value)),
            other => panic!("attributes of the type {other} are not modelled"),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::S(text) => json!({ "S": text }),
            Self::N(number) => json!({ "N": number.to_string() }),
            Self::Bool(yes) => json!({ "BOOL": yes }),
            Self::Null => json!({ "NULL": true }),
            Self::B(bytes) => json!({ "B": bytes }),
            Self::L(values) => json!({ "L": values.iter().map(Self::to_json).collect::<Vec<_>>() }),
            Self::M(members) => json!({ "M": json_of(members) }),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::S(_) => "S",
            Self::N(_) => "N",
            Self::Bool(_) => "BOOL",
            Self::Null => "NULL",
            Self::B(_) => "B",
            Self::L(_) => "L",
            Self::M(_) => "M",
        }
    }
}

/// Reads an item, or the named values of an expression; an absent one is empty.
pub fn item_of(value: &Value) -> Item {
    let members = value.as_object().into_iter().flatten();
    members.map(|(name, value)| (name.clone(), Attribute::of(value))).collect()
}

/// An item in the JSON of DynamoDB.
pub fn json_of(item: &Item) -> Value {
    Value::Object(item.iter().map(|(name, value)| (name.clone(), value.to_json())).collect::<Map<_, _>>())
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// All of them hold.
    All(Vec<Condition>),
    /// One of them holds.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// Two values compare in this way.
    Compare(Operand, Comparison, Operand),
    /// A value lies between two others, inclusive.
    Between(Operand, Operand, Operand),
    /// `attribute_exists`.
    Exists(Path),
    /// `attribute_not_exists`.
    NotExists(Path),
    /// `attribute_type`.
    HasType(Path, Operand),
    /// `begins_with`.
    BeginsWith(Path, Operand),
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What is compared or set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operand {
    /// The value at a path.
    At(Path),
    /// A value that the request brings.
    Value(Attribute),
    /// The value at a path, or another where there is none.
    IfNotExists(Path, Box<Operand>),
    /// A sum.
    Sum(Box<Operand>, Box<Operand>),
}

/// A part of an update.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Update {
    /// Sets what is at a path.
    Set(Path, Operand),
    /// Removes it.
    Remove(Path),
}

impl Default for Condition {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl Condition {
    /// Reads a condition with the names and values that the request gives it.
    pub fn read(text: &str, request: &Value) -> Self {
        let mut reader = Reader::new(text, request);
        let condition = reader.any();
        reader.ends();
        condition
    }

    /// Whether it holds on an item.
    pub fn holds(&self, item: &Item) -> bool {
        match self {
            Self::All(conditions) => conditions.iter().all(|condition| condition.holds(item)),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.holds(item)),
            Self::Not(condition) => !condition.holds(item),
            Self::Compare(a, comparison, b) => match (a.value(item), b.value(item)) {
                (Some(a), Some(b)) => comparison.holds(&a, &b),
                _ => false,
            },
            Self::Between(value, low, high) => {
                let holds = |a: &Operand, b: &Operand| match (a.value(item), b.value(item)) {
                    (Some(a), Some(b)) => Comparison::LessOrEqual.holds(&a, &b),
                    _ => false,
                };
                holds(low, value) && holds(value, high)
            }
            Self::Exists(path) => at(item, path).is_some(),
            Self::NotExists(path) => at(item, path).is_none(),
            Self::HasType(path, name) => match (at(item, path), name.value(item)) {
                (Some(value), Some(Attribute::S(name))) => value.type_name() == name,
                _ => false,
            },
            Self::BeginsWith(path, prefix) => match (at(item, path), prefix.value(item)) {
                (Some(Attribute::S(text)), Some(Attribute::S(prefix))) => text.starts_with(&prefix),
                _ => false,
            },
        }
    }

    /// The same condition without the parts that are about these attributes.
    #[must_use]
    pub fn without(self, attributes: &[&str]) -> Self {
        match self {
            Self::All(demands) => {
                Self::All(demands.into_iter().filter(|demand| !demand.is_about(attributes)).collect())
            }
            demand if demand.is_about(attributes) => Self::All(Vec::new()),
            demand => demand,
        }
    }

    fn is_about(&self, attributes: &[&str]) -> bool {
        let is_one = |path: &Path| attributes.contains(&path[0].as_str());
        match self {
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().any(|condition| condition.is_about(attributes))
            }
            Self::Not(condition) => condition.is_about(attributes),
            Self::Compare(operand, _, other) => operand.is_about(attributes) || other.is_about(attributes),
            Self::Between(operand, _, _) => operand.is_about(attributes),
            Self::Exists(path) | Self::NotExists(path) | Self::HasType(path, _) | Self::BeginsWith(path, _) => {
                is_one(path)
            }
        }
    }
}

impl Comparison {
    /// Values of different types are neither equal nor in an order.
    fn holds(self, a: &Attribute, b: &Attribute) -> bool {
        if self == Self::Equal {
            return a == b;
        }
        let order = match (a, b) {
            (Attribute::S(a), Attribute::S(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Attribute::N(a), Attribute::N(b)) => a.cmp(b),
            _ => return false,
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Operand {
    /// Its value on an item; `None` if it has none.
    fn value(&self, item: &Item) -> Option<Attribute> {
        match self {
            Self::At(path) => at(item, path).cloned(),
            Self::Value(value) => Some(value.clone()),
            Self::IfNotExists(path, other) => at(item, path).cloned().or_else(|| other.value(item)),
            Self::Sum(a, b) => match (a.value(item)?, b.value(item)?) {
                (Attribute::N(a), Attribute::N(b)) => Some(Attribute::N(a + b)),
                (a, b) => panic!("DynamoDB rejects the sum of {a:?} and {b:?}"),
            },
        }
    }

    fn is_about(&self, attributes: &[&str]) -> bool {
        matches!(self, Self::At(path) if attributes.contains(&path[0].as_str()))
    }
}

impl Update {
    /// Reads an update with the names and values that the request gives it.
    pub fn read(text: &str, request: &Value) -> Vec<Self> {
        let mut reader = Reader::new(text, request);
        let mut changes = Vec::new();
        while let Some(clause) = reader.next() {
            loop {
                let path = reader.path();
                changes.push(match clause.as_str() {
                    "SET" => {
                        reader.takes("=");
                        Self::Set(path, reader.sum())
                    }
                    "REMOVE" => Self::Remove(path),
                    other => panic!("the clause {other} is not modelled"),
                });
                if !reader.has(",") {
                    break;
                }
            }
        }
        // Their order means nothing, and the code takes it from a hash map.
        changes.sort();
        changes
    }

    /// Applies an update: every value is computed from the item as it was before.
    pub fn apply(changes: &[Self], item: &mut Item) {
        let before = item.clone();
        for change in changes {
            match change {
                Self::Set(path, operand) => {
                    let value = operand.value(&before).expect("DynamoDB rejects a value that is missing");
                    let (name, members) = parent(item, path).expect("DynamoDB rejects a path into what is no map");
                    members.insert(name, value);
                }
                Self::Remove(path) => {
                    let (name, members) = parent(item, path).expect("DynamoDB rejects a path into what is no map");
                    members.remove(&name);
                }
            }
        }
    }

    /// The attribute that it changes.
    pub fn attribute(&self) -> &str {
        let (Self::Set(path, _) | Self::Remove(path)) = self;
        &path[0]
    }
}

fn at<'a>(item: &'a Item, path: &[String]) -> Option<&'a Attribute> {
    let (name, rest) = path.split_first()?;
    match (item.get(name)?, rest) {
        (value, []) => Some(value),
        (Attribute::M(members), rest) => at(members, rest),
        _ => None,
    }
}

/// The map that holds what is at a path, and its name there.
fn parent<'a>(item: &'a mut Item, path: &[String]) -> Option<(String, &'a mut Item)> {
    let (name, rest) = path.split_first()?;
    if rest.is_empty() {
        return Some((name.clone(), item));
    }
    match item.get_mut(name)? {
        Attribute::M(members) => parent(members, rest),
        _ => None,
    }
}
