//! The request bodies of the service. Each type rejects unknown fields, and converts itself to a value of the model
//! under the rules of docs/specification.md (Words, HTTP). An error names the field that breaks a rule.

mod pushes;
mod records;
#[cfg(test)]
mod tests;

use nameservice_model::{self as model, Address, ConcernValue, ContentId};
use serde::{Deserialize, Serialize};

pub use self::{
    pushes::{
        ConfigPush, ExpectedConfig, ExpectedIndex, ExpectedStatus, GraphValue, HeadPush, IndexPush, NewConfig,
        NewIndex, NewStatus, StatusPush,
    },
    records::{BranchToCreate, GraphSource, NewBranch, NewLedger, NewProtection, Retraction, Snapshot},
};
use crate::Invalid;

/// A head: `{id, t}`, or `{id: null, t: 0}` for none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeadValue {
    /// The commit.
    pub id: Option<String>,
    /// Its `t`.
    pub t: i64,
}

impl HeadValue {
    /// A commit: it has an id, and a `t` from 1 on.
    pub fn born(self, field: &str) -> Result<model::NewHead, Invalid> {
        let (id, t) = self.parts(field)?;
        Ok(model::NewHead::new(id, t).map_err(|error| error.within(field))?)
    }

    /// An index, under the same rules.
    pub fn born_index(self, field: &str) -> Result<model::NewIndex, Invalid> {
        let (id, t) = self.parts(field)?;
        Ok(model::NewIndex::new(id, t).map_err(|error| error.within(field))?)
    }

    fn parts(self, field: &str) -> Result<(ContentId, i64), Invalid> {
        let id = self.id.ok_or_else(|| Invalid::body(&format!("{field}.id"), "is required"))?;
        Ok((content_id(&id, &format!("{field}.id"))?, self.t))
    }

    /// Whether there is no commit: without an id, and with a `t` of 0.
    fn is_unborn(&self, field: &str) -> Result<bool, Invalid> {
        match (&self.id, self.t) {
            (None, 0) => Ok(true),
            (None, _) => Err(Invalid::body(&format!("{field}.t"), "must be 0 if id is null")),
            (Some(_), _) => Ok(false),
        }
    }

    /// A commit, or none.
    pub fn born_or_not(self, field: &str) -> Result<model::Head, Invalid> {
        if self.is_unborn(field)? { Ok(ConcernValue::unborn()) } else { Ok(self.born(field)?.value()) }
    }
}

fn content_id(text: &str, field: &str) -> Result<ContentId, Invalid> {
    ContentId::parse(text).map_err(|reason| Invalid::content_id(field, reason))
}

/// An address in a body.
pub fn address(text: &str, field: &str) -> Result<Address, Invalid> {
    Address::parse(text).map_err(|reason| Invalid::address(field, reason))
}
