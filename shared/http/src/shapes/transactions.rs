//! Transactions on the wire.

use std::{collections::HashSet, fmt};

use nameservice_model::{
    self as model, Committed, ConcernState, Expected, Lease, MAX_OPERATIONS, OperationKind, OperationOutcome,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type},
};

use super::{
    Config, Head, Index, Status, leases,
    requests::{
        self, ConfigPush, ExpectedConfig, ExpectedIndex, ExpectedStatus, HeadPush, HeadValue, IndexPush, StatusPush,
    },
};
use crate::{extract::from_json_at, problem::Problem};

/// Several operations, all or none.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// At most 48, no two about the same concern of the same record.
    #[schema(value_type = Vec<Operation>, min_items = 1, max_items = 48)]
    operations: Vec<Members>,
}

/// An operation as the document describes it: `op`, `address`, and the members of a push as its own route takes them.
#[allow(dead_code, reason = "describes a shape, is never made")]
pub enum Operation {
    /// Moves a head.
    PushHead(HeadPush),
    /// Moves an index.
    PushIndex(IndexPush),
    /// Changes a status.
    PushStatus(StatusPush),
    /// Changes the config of a ledger.
    PushConfig(ConfigPush),
    /// Writes nothing: a concern must be at a value.
    Check(Check),
}

impl PartialSchema for Operation {
    /// Each is one closed object. Composed of several, each closed to what the others know, nothing would fit it.
    fn schema() -> RefOr<Schema> {
        let operations = [
            ("push_head", "Moves a head.", HeadPush::schema()),
            ("push_index", "Moves an index.", IndexPush::schema()),
            ("push_status", "Changes a status.", StatusPush::schema()),
            ("push_config", "Changes the config of a ledger.", ConfigPush::schema()),
            ("check", "Writes nothing: a concern must be at a value.", Check::schema()),
        ];
        let any = operations.into_iter().fold(OneOfBuilder::new(), |any, (op, description, members)| {
            let RefOr::T(Schema::Object(mut object)) = members else { return any };
            object.description = Some(description.to_owned());
            let only = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([op]));
            let address = ObjectBuilder::new().schema_type(Type::String).description(Some("The record."));
            for (name, schema) in [("op", only), ("address", address.examples(["mydb:main"]))] {
                object.properties.insert(name.to_owned(), schema.into());
                object.required.push(name.to_owned());
            }
            any.item(object)
        });
        any.description(Some("An operation, with the members of a push as its own route takes them.")).into()
    }
}

impl ToSchema for Operation {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        HeadPush::schemas(schemas);
        IndexPush::schemas(schemas);
        StatusPush::schemas(schemas);
        ConfigPush::schemas(schemas);
        Check::schemas(schemas);
    }
}

/// What must be in place.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Which concern.
    concern: ConcernName,
    /// Its value, as a push of that concern expects it.
    #[schema(value_type = Object)]
    expected: Box<RawValue>,
}

/// One of the four concerns.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConcernName {
    /// Where the latest commit is.
    Head,
    /// Where the latest index is.
    Index,
    /// The state.
    Status,
    /// The configuration.
    Config,
}

/// The members of an object, each once. An operation is read in two steps: what it is and where, then the rest as the
/// push that it is.
#[derive(Clone, Debug)]
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an operation, an object with `op` and `address`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::<(String, Box<RawValue>)>::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

impl Members {
    fn take<T: DeserializeOwned>(&mut self, name: &str, at: &str) -> Result<T, Problem> {
        let field = format!("{at}.{name}");
        match self.0.iter().position(|(member, _)| member == name) {
            Some(i) => from_json_at(&field, self.0.swap_remove(i).1.get().as_bytes()),
            None => Err(Problem::invalid_body(&field, "is required")),
        }
    }

    /// The members that are left, as the shape that they must have.
    fn rest<T: DeserializeOwned>(self, at: &str) -> Result<T, Problem> {
        let members = self.0.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get()));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        from_json_at(at, text.as_bytes())
    }
}

impl Transaction {
    /// Checks it.
    pub fn into_operations(self) -> Result<Vec<model::Operation>, Problem> {
        if self.operations.is_empty() || self.operations.len() > MAX_OPERATIONS {
            return Err(Problem::invalid_body("operations", format!("must be 1 to {MAX_OPERATIONS} operations")));
        }
        let mut seen = HashSet::new();
        let checked = |(i, members): (usize, Members)| {
            let at = format!("operations[{i}]");
            let operation = operation(members, &at)?;
            let concern = operation.action.concern();
            if !seen.insert((operation.address.clone(), concern)) {
                let reason = format!("the {concern} of `{}` is there twice", operation.address);
                return Err(Problem::invalid_body(&at, reason));
            }
            Ok(operation)
        };
        self.operations.into_iter().enumerate().map(checked).collect()
    }
}

fn operation(mut members: Members, at: &str) -> Result<model::Operation, Problem> {
    let op: String = members.take("op", at)?;
    let address: String = members.take("address", at)?;
    let address = requests::address(&address, &format!("{at}.address"))?;
    let action = match op.as_str() {
        "push_head" => OperationKind::PushHead(members.rest::<HeadPush>(at)?.into_push().map_err(within(at))?),
        "push_index" => OperationKind::PushIndex(members.rest::<IndexPush>(at)?.into_push().map_err(within(at))?),
        "push_status" => OperationKind::PushStatus(members.rest::<StatusPush>(at)?.into_push().map_err(within(at))?),
        "push_config" => OperationKind::PushConfig(members.rest::<ConfigPush>(at)?.into_push().map_err(within(at))?),
        "check" => OperationKind::Check(members.rest::<Check>(at)?.into_state(at)?),
        other => {
            let reason = format!("`{other}` is none of push_head, push_index, push_status, push_config, check");
            return Err(Problem::invalid_body(&format!("{at}.op"), reason));
        }
    };
    let creates = match &action {
        OperationKind::PushHead(push) => push.expected == Expected::NoRecord,
        OperationKind::PushIndex(push) => push.expected == Expected::NoRecord,
        _ => false,
    };
    if creates {
        let reason = "cannot be null: a transaction does not create records";
        return Err(Problem::invalid_body(&format!("{at}.expected"), reason));
    }
    Ok(model::Operation { address, action })
}

/// Names the operation in which a field was refused.
fn within(at: &str) -> impl Fn(Problem) -> Problem {
    move |problem| problem.within(at)
}

impl Check {
    fn into_state(self, at: &str) -> Result<ConcernState, Problem> {
        let field = format!("{at}.expected");
        let text = self.expected.get().as_bytes();
        let state = match self.concern {
            ConcernName::Head => {
                from_json_at::<HeadValue>(&field, text)?.born_or_not("expected").map(ConcernState::Head)
            }
            ConcernName::Index => from_json_at::<ExpectedIndex>(&field, text)?.into_value().map(ConcernState::Index),
            ConcernName::Status => from_json_at::<ExpectedStatus>(&field, text)?.into_value().map(ConcernState::Status),
            ConcernName::Config => from_json_at::<ExpectedConfig>(&field, text)?.into_value().map(ConcernState::Config),
        };
        state.map_err(within(at))
    }
}

/// What came of each operation, in order.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TransactionAnswer {
    /// One an operation.
    pub results: Vec<OperationResult>,
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResultStatus {
    /// Its value is in place.
    Updated,
    /// A check that held; or, of a refused transaction, an operation that nothing stood in the way of.
    Passed,
    /// What is there is as new or newer.
    Stale,
    /// Its expectation did not hold.
    Conflict,
    /// There is no such record.
    UnknownRecord,
    /// The record is retracted.
    Retracted,
    /// The record is of another kind.
    WrongKind,
    /// The lease is not held.
    LeaseLost,
}

/// The result of one operation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OperationResult {
    /// What came of it.
    pub status: ResultStatus,
    /// What it has put in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
    /// What is there instead; null where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub actual: Option<Value>,
    /// The lease that is there instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Lease>,
    /// It was in place before this request came.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

impl From<OperationOutcome> for OperationResult {
    fn from(outcome: OperationOutcome) -> Self {
        let result = |status| Self { status, value: None, actual: None, lease: None, replayed: false };
        let actual = |state: Option<ConcernState>| Some(state.map_or(Value::Null, value));
        match outcome {
            OperationOutcome::Updated { value: state, replayed } => {
                Self { value: Some(value(state)), replayed, ..result(ResultStatus::Updated) }
            }
            OperationOutcome::Passed => result(ResultStatus::Passed),
            OperationOutcome::Stale { actual: state } => {
                Self { actual: actual(Some(state)), ..result(ResultStatus::Stale) }
            }
            OperationOutcome::Conflict { actual: state } => {
                Self { actual: actual(state), ..result(ResultStatus::Conflict) }
            }
            OperationOutcome::Unknown => Self { actual: actual(None), ..result(ResultStatus::UnknownRecord) },
            OperationOutcome::Retracted => result(ResultStatus::Retracted),
            OperationOutcome::WrongKind(_) => result(ResultStatus::WrongKind),
            OperationOutcome::LeaseLost { lease } => {
                Self { lease: lease.map(|lease: Lease| lease.into()), ..result(ResultStatus::LeaseLost) }
            }
        }
    }
}

fn value(state: ConcernState) -> Value {
    let json = match state {
        ConcernState::Head(value) => serde_json::to_value(Head::from(value)),
        ConcernState::Index(value) => serde_json::to_value(Index::from(value)),
        ConcernState::Status(value) => serde_json::to_value(Status::from(value)),
        ConcernState::Config(value) => serde_json::to_value(Config::from(value)),
    };
    // Shapes of strings, numbers and JSON always have a JSON form.
    json.unwrap_or_default()
}

impl TransactionAnswer {
    /// The answer to a committed transaction, or the refusal of one.
    pub fn from_outcome(outcome: Committed) -> Result<Self, Problem> {
        let results = |outcomes: Vec<OperationOutcome>| outcomes.into_iter().map(OperationResult::from).collect();
        match outcome {
            Committed::Committed(outcomes) => Ok(Self { results: results(outcomes) }),
            Committed::Refused(outcomes) => {
                let results: Vec<OperationResult> = results(outcomes);
                Err(Problem::transaction_refused(serde_json::to_value(results).unwrap_or_default()))
            }
        }
    }
}
