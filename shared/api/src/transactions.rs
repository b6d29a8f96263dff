//! Transactions on the wire.

use std::fmt;

use super::{
    Config, Head, Index, Status, leases,
    requests::{
        self, ConfigPush, ExpectedConfig, ExpectedIndex, ExpectedStatus, HeadPush, HeadValue, IndexPush, StatusPush,
    },
};
pub use crate::check::{Check, ConcernName};
use crate::{Invalid, json::from_slice_at};
use nameservice_model::{
    self as model, Committed, ConcernState, Lease, MAX_OPERATIONS, OperationKind, OperationOutcome,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error, MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

/// Several operations, all or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// At most 48, no two about the same concern of the same record.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::openapi::Operation>, min_items = 1, max_items = 48))]
    pub(crate) operations: Vec<Members>,
}

/// The members of an object, each at most once. An operation is read in two steps: its type and address first, then
/// the rest as the push or check that it is.
#[derive(Clone, Debug)]
pub(crate) struct Members(Vec<(String, Box<RawValue>)>);

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

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
    fn take<T: DeserializeOwned>(&mut self, name: &str, at: &str) -> Result<T, Invalid> {
        let field = format!("{at}.{name}");
        match self.0.iter().position(|(member, _)| member == name) {
            Some(i) => from_slice_at(&field, self.0.swap_remove(i).1.get().as_bytes()),
            None => Err(Invalid::body(&field, "is required")),
        }
    }

    /// Deserializes the remaining members as a `T`.
    fn rest<T: DeserializeOwned>(self, at: &str) -> Result<T, Invalid> {
        let members = self.0.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get()));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        from_slice_at(at, text.as_bytes())
    }
}

impl Transaction {
    /// Validates it and converts it to the model.
    pub fn into_model(self) -> Result<model::Transaction, Invalid> {
        // One more than the maximum is enough for the model to reject the transaction.
        let members = self.operations.into_iter().take(MAX_OPERATIONS + 1).enumerate();
        let operations = members.map(|(i, members)| operation(members, &format!("operations[{i}]")));
        Ok(model::Transaction::new(operations.collect::<Result<_, _>>()?)?)
    }
}

fn operation(mut members: Members, at: &str) -> Result<model::Operation, Invalid> {
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
            let reason = format!("`{other}` is not one of push_head, push_index, push_status, push_config, check");
            return Err(Invalid::body(&format!("{at}.op"), reason));
        }
    };
    Ok(model::Operation { address, action })
}

/// Names the operation in which a field was rejected.
fn within(at: &str) -> impl Fn(Invalid) -> Invalid {
    move |problem| problem.within(at)
}

impl Check {
    fn into_state(self, at: &str) -> Result<ConcernState, Invalid> {
        let field = format!("{at}.expected");
        let text = self.expected.get().as_bytes();
        let state = match self.concern {
            ConcernName::Head => {
                from_slice_at::<HeadValue>(&field, text)?.born_or_not("expected").map(ConcernState::Head)
            }
            ConcernName::Index => from_slice_at::<ExpectedIndex>(&field, text)?.into_value().map(ConcernState::Index),
            ConcernName::Status => {
                from_slice_at::<ExpectedStatus>(&field, text)?.into_value().map(ConcernState::Status)
            }
            ConcernName::Config => {
                from_slice_at::<ExpectedConfig>(&field, text)?.into_value().map(ConcernState::Config)
            }
        };
        state.map_err(within(at))
    }
}

/// The result of each operation, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransactionAnswer {
    /// One per operation.
    pub results: Vec<OperationResult>,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ResultStatus {
    /// Its value is stored.
    Updated,
    /// A check that passed; in a rejected transaction, also an operation that alone would have been applied.
    Passed,
    /// The stored value is as new or newer.
    Stale,
    /// The expected value does not match.
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

/// Distinguishes `null` from an absent member.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The result of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationResult {
    /// Its outcome.
    pub status: ResultStatus,
    /// The value that it stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub value: Option<Value>,
    /// The stored value that it conflicts with; null if there is none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub actual: Option<Value>,
    /// The current lease, if the claimed one is lost and there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<leases::Lease>,
    /// Whether the value was already stored when this request arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
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
    match state {
        ConcernState::Head(value) => json!(Head::from(value)),
        ConcernState::Index(value) => json!(Index::from(value)),
        ConcernState::Status(value) => json!(Status::from(value)),
        ConcernState::Config(value) => json!(Config::from(value)),
    }
}

impl TransactionAnswer {
    /// Returns the answer to a committed transaction, or the results of one that was not applied.
    pub fn from_outcome(outcome: Committed) -> Result<Self, Vec<OperationResult>> {
        let results = |outcomes: Vec<OperationOutcome>| outcomes.into_iter().map(OperationResult::from).collect();
        match outcome {
            Committed::Committed(outcomes) => Ok(Self { results: results(outcomes) }),
            Committed::Rejected(outcomes) => Err(results(outcomes)),
        }
    }
}
