//! The files as Fluree 4.1.6 writes and reads them, member by member. Like Fluree, this crate drops unknown members when
//! it rewrites a file.

use nameservice_model::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of ledgers.
pub(crate) const LEDGER: &str = "f:LedgerSource";
pub(crate) const INDEX_SOURCE: &str = "f:IndexSource";
pub(crate) const MAPPED_SOURCE: &str = "f:MappedSource";
const IRI: &str = "https://ns.flur.ee/db#";
/// Types whose full IRI Fluree understands.
const KNOWN_TYPES: [&str; 7] =
    ["IndexSource", "MappedSource", "Bm25Index", "HnswIndex", "GeoIndex", "R2rmlMapping", "IcebergMapping"];

/// The main file of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerMain {
    #[serde(rename = "@context")]
    pub(crate) context: Value,
    #[serde(rename = "@id")]
    pub(crate) id: String,
    #[serde(rename = "@type")]
    pub(crate) types: Vec<String>,
    #[serde(rename = "f:ledger")]
    pub(crate) ledger: Reference,
    #[serde(rename = "f:branch")]
    pub(crate) branch: String,
    #[serde(rename = "f:commitCid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit_cid: Option<String>,
    #[serde(rename = "f:t")]
    pub(crate) t: i64,
    #[serde(rename = "f:ledgerIndex", default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<LedgerIndex>,
    #[serde(rename = "f:status")]
    pub(crate) status: String,
    #[serde(rename = "f:defaultContextCid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_context_cid: Option<String>,
    #[serde(rename = "f:statusV", default, skip_serializing_if = "Option::is_none")]
    pub(crate) status_v: Option<i64>,
    #[serde(rename = "f:statusMeta", default, skip_serializing_if = "is_empty")]
    pub(crate) status_meta: Option<Object>,
    #[serde(rename = "f:configV", default, skip_serializing_if = "Option::is_none")]
    pub(crate) config_v: Option<i64>,
    #[serde(rename = "f:configMeta", default, skip_serializing_if = "is_empty")]
    pub(crate) config_meta: Option<Object>,
    #[serde(rename = "f:configCid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) config_cid: Option<String>,
    #[serde(rename = "f:sourceBranch", default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_branch: Option<String>,
    #[serde(rename = "f:branchPoint", default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch_point: Option<BranchPoint>,
    #[serde(rename = "f:branches", default, skip_serializing_if = "is_zero")]
    pub(crate) branches: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reference {
    #[serde(rename = "@id")]
    pub(crate) id: String,
}

/// An index inside a main file, or in an index file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerIndex {
    #[serde(rename = "f:cid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) cid: Option<String>,
    #[serde(rename = "f:t")]
    pub(crate) t: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BranchPoint {
    #[serde(rename = "f:source")]
    pub(crate) source: String,
    #[serde(rename = "f:commitCid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit_cid: Option<String>,
    #[serde(rename = "f:t")]
    pub(crate) t: i64,
}

/// The main file of a graph source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceMain {
    #[serde(rename = "@context")]
    pub(crate) context: Value,
    #[serde(rename = "@id")]
    pub(crate) id: String,
    #[serde(rename = "@type")]
    pub(crate) types: Vec<String>,
    #[serde(rename = "f:name")]
    pub(crate) name: String,
    #[serde(rename = "f:branch")]
    pub(crate) branch: String,
    #[serde(rename = "f:graphSourceConfig")]
    pub(crate) config: Text,
    #[serde(rename = "f:graphSourceDependencies")]
    pub(crate) dependencies: Vec<String>,
    #[serde(rename = "f:status")]
    pub(crate) status: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Text {
    #[serde(rename = "@value")]
    pub(crate) value: String,
}

/// The index file of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerIndexFile {
    #[serde(rename = "@context")]
    pub(crate) context: Value,
    #[serde(rename = "f:ledgerIndex")]
    pub(crate) index: LedgerIndex,
}

/// The index file of a graph source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceIndexFile {
    #[serde(rename = "@context")]
    pub(crate) context: Value,
    #[serde(rename = "@id")]
    pub(crate) id: String,
    #[serde(rename = "f:graphSourceIndex")]
    pub(crate) index: SourceIndex,
    #[serde(rename = "f:graphSourceIndexT")]
    pub(crate) t: i64,
}

/// Fluree requires the type in a bucket, but does not write it in a directory. This crate always writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceIndex {
    #[serde(rename = "@type", default = "SourceIndex::content_id")]
    pub(crate) kind: Value,
    #[serde(rename = "f:graphSourceIndexCid", default, skip_serializing_if = "Option::is_none")]
    pub(crate) cid: Option<String>,
}

impl SourceIndex {
    pub(crate) fn content_id() -> Value {
        Value::from("f:ContentId")
    }
}

fn is_empty(object: &Option<Object>) -> bool {
    object.as_ref().is_none_or(Object::is_empty)
}

fn is_zero(count: &Option<u32>) -> bool {
    count.is_none_or(|count| count == 0)
}

/// Returns a type in its prefixed spelling.
pub(crate) fn prefixed(kind: &str) -> String {
    match kind.strip_prefix(IRI).filter(|name| KNOWN_TYPES.contains(name)) {
        Some(name) => format!("f:{name}"),
        None => kind.to_owned(),
    }
}

/// Whether it marks the kind of a graph source.
pub(crate) fn is_kind_marker(kind: &str) -> bool {
    matches!(&*prefixed(kind), INDEX_SOURCE | MAPPED_SOURCE)
}

/// The kind marker of a graph source of this type.
pub(crate) fn marker_of(source_type: &str) -> &'static str {
    match source_type {
        "f:R2rmlMapping" | "f:IcebergMapping" => MAPPED_SOURCE,
        _ => INDEX_SOURCE,
    }
}
