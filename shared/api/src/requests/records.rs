//! Requests that create, publish, retract, protect and reset records.

use nameservice_model::{self as model, Address, GraphSourcePublication, MAX_DEPENDENCIES, Object, ResetTo};
use serde::{Deserialize, Serialize};

use super::{HeadValue, address};
use crate::Invalid;

/// Creates a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewLedger {
    /// `name:branch`; `mydb` means `mydb:main`.
    #[cfg_attr(feature = "openapi", schema(example = "mydb:main"))]
    pub address: String,
    /// Its head, if it has one already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadValue>,
    /// Its configuration.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
}

impl NewLedger {
    /// Returns the request for a ledger without data.
    pub const fn at(address: String) -> Self {
        Self { address, head: None, config: None }
    }

    /// Validates it and converts it to the model.
    pub fn into_model(self) -> Result<model::NewLedger, Invalid> {
        Ok(model::NewLedger {
            address: address(&self.address, "address")?,
            head: self.head.map(|head| head.born("head")).transpose()?,
            config: self.config.map(initial_config).transpose()?,
        })
    }
}

impl From<&model::NewLedger> for NewLedger {
    fn from(ledger: &model::NewLedger) -> Self {
        Self {
            address: ledger.address.to_string(),
            head: ledger.head.as_ref().map(HeadValue::from),
            config: ledger.config.as_ref().map(|config| config.payload().clone()),
        }
    }
}

/// Converts an initial config. Errors name its fields under `config`, not `payload` as in a push.
fn initial_config(config: Object) -> Result<model::NewConfig, Invalid> {
    model::NewConfig::new(config).map_err(|error| {
        let path = error.path.replacen("payload", "config", 1);
        model::InvalidPayload { path, ..error }.into()
    })
}

/// Creates a graph source, or replaces its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GraphSource {
    /// Its type, without control characters. That of an existing graph source does not change.
    #[cfg_attr(feature = "openapi", schema(example = "f:Bm25Index", max_length = 128))]
    pub source_type: String,
    /// Its configuration, opaque to the nameservice.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub config: Object,
    /// The addresses that it depends on, at most 24. If left out, an existing graph source keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<String>>,
    /// The `v` of the config that must be stored now; 0 if the graph source must not exist.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_v: Option<i64>,
    /// The `v` that the config gets, greater than the current one; by default, one more.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<i64>,
}

impl GraphSource {
    /// Checks it, as the graph source of this address.
    pub fn into_publication(self, own: &Address) -> Result<GraphSourcePublication, Invalid> {
        let mut publication = GraphSourcePublication::new(own.clone(), self.source_type, self.config)?;
        if let Some(v) = self.expected_v {
            publication = publication.expecting(v)?;
        }
        if let Some(v) = self.v {
            publication = publication.with_v(v)?;
        }
        if let Some(texts) = self.dependencies {
            // One more than the maximum is enough for the model to reject the request.
            let texts = texts.iter().take(MAX_DEPENDENCIES + 1).enumerate();
            let addresses = texts.map(|(i, text)| address(text, &format!("dependencies[{i}]")));
            publication = publication.with_dependencies(addresses.collect::<Result<_, _>>()?)?;
        }
        Ok(publication)
    }
}

/// Creates a branch of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewBranch {
    /// The name that both branches share.
    #[cfg_attr(feature = "openapi", schema(example = "mydb"))]
    pub name: String,
    /// The branch to create.
    #[cfg_attr(feature = "openapi", schema(example = "dev"))]
    pub branch: String,
    /// The branch to start from.
    #[cfg_attr(feature = "openapi", schema(example = "main"))]
    pub source: String,
    /// The commit to start from; by default, the source's head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<HeadValue>,
}

/// A validated [`NewBranch`].
#[derive(Clone, Debug)]
pub struct BranchToCreate {
    /// The new branch.
    pub branch: Address,
    /// Its source.
    pub source: Address,
    /// The commit to start from, if it is not the source's head.
    pub at: Option<model::NewHead>,
}

impl NewBranch {
    /// Validates it and converts it to the model.
    pub fn into_model(self) -> Result<BranchToCreate, Invalid> {
        // The name is checked separately first, so that an error names the right field.
        let main = Address::from_parts(&self.name, "main").map_err(|reason| Invalid::address("name", reason))?;
        let branch = main.with_branch(&self.branch).map_err(|reason| Invalid::address("branch", reason))?;
        let source = main.with_branch(&self.source).map_err(|reason| Invalid::address("source", reason))?;
        if branch == source {
            return Err(Invalid::body("source", "is the branch itself"));
        }
        Ok(BranchToCreate { branch, source, at: self.at.map(|at| at.born("at")).transpose()? })
    }
}

/// Retracts a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Retraction {
    /// The reason, to be shown in the record's status.
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Retraction {
    /// The longest reason, in bytes.
    const MAX_REASON_BYTES: usize = 1024;

    /// Validates it and converts it to the model.
    pub fn into_reason(self) -> Result<Option<String>, Invalid> {
        match self.reason {
            Some(reason) if reason.len() > Self::MAX_REASON_BYTES => {
                Err(Invalid::body("reason", format!("has more than {} bytes", Self::MAX_REASON_BYTES)))
            }
            reason => Ok(reason),
        }
    }
}

/// Protects a record, or removes its protection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewProtection {
    /// Whether to protect the record.
    pub protected: bool,
}

/// Resets a ledger to a head and an index; `{id: null, t: 0}` means none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The head.
    pub head: HeadValue,
    /// The index.
    pub index: HeadValue,
}

impl Snapshot {
    /// Validates it and converts it to the model.
    pub fn into_model(self) -> Result<ResetTo, Invalid> {
        let head = if self.head.is_unborn("head")? { None } else { Some(self.head.born("head")?) };
        let index = if self.index.is_unborn("index")? { None } else { Some(self.index.born_index("index")?) };
        Ok(ResetTo::new(head, index)?)
    }
}
