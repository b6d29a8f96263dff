//! The formats of earlier versions under the same paths. They are read and never rewritten, since everything in them but
//! the ids that can be understood would be lost.

use nameservice_model::{ContentId, Object, RecordKind};
use serde_json::{Value, json};

use super::{
    IndexFile, Main,
    files::{
        self, LedgerIndex, LedgerIndexFile, LedgerMain, Reference, SourceIndex, SourceIndexFile, SourceMain, Text,
    },
    note,
};

/// A format of an earlier version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Former {
    /// Fluree 3: `f:commit`, `f:index`, `f:PhysicalDatabase`, `f:VirtualGraphDatabase`.
    V3,
    /// The spelling of the specification: `f:ledgerCommit`, `f:ledgerIndex.@id`, `f:indexId`, `f:indexT`.
    Specification,
}

impl Former {
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::V3 => "the format of Fluree 3",
            Self::Specification => "the specification's spelling (`f:ledgerCommit`)",
        }
    }

    pub(super) fn of_main(json: &Value) -> Option<Self> {
        let has_type = |name: &str| json["@type"].as_array().is_some_and(|types| types.iter().any(|t| t == name));
        if json.get("f:ledgerCommit").is_some() || json["f:ledgerIndex"].get("@id").is_some() {
            Some(Self::Specification)
        } else if json.get("f:commit").is_some() || has_type("f:PhysicalDatabase") || has_type("f:VirtualGraphDatabase")
        {
            Some(Self::V3)
        } else {
            None
        }
    }

    pub(super) fn of_index(json: &Value) -> Option<Self> {
        if json["f:ledgerIndex"].get("@id").is_some()
            || json.get("f:indexId").is_some()
            || json.get("f:indexT").is_some()
        {
            Some(Self::Specification)
        } else if json.get("f:index").is_some() && json.get("f:ledgerIndex").is_none() {
            Some(Self::V3)
        } else {
            None
        }
    }

    pub(super) fn main(self, json: &Value) -> Result<Main, String> {
        let context = json.get("@context").cloned().unwrap_or_else(note::context);
        let id = json["@id"].as_str().unwrap_or_default();
        let (id_name, id_branch) = id.split_once(':').unwrap_or((id, "main"));
        let branch = json["f:branch"].as_str().unwrap_or(id_branch).to_owned();
        let name = json["f:ledger"]["@id"].as_str().or(json["f:name"].as_str()).unwrap_or(id_name);
        if name.is_empty() {
            return Err("it names no record".to_owned());
        }
        // A name may carry its branch.
        let name = name.split_once(':').map_or(name, |(name, _)| name).to_owned();
        let status = json["f:status"].as_str().unwrap_or("ready").to_owned();
        let types: Vec<String> =
            json["@type"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        if types.iter().any(|kind| kind == "f:VirtualGraphDatabase") {
            let kind = types.iter().find(|kind| *kind != "f:VirtualGraphDatabase").map_or("", String::as_str);
            let kind = if kind.eq_ignore_ascii_case("fidx:bm25") { "f:Bm25Index" } else { kind };
            return Ok(Main::Source(Box::new(SourceMain {
                context,
                id: id.to_owned(),
                types: vec![files::marker_of(kind).to_owned(), kind.to_owned()],
                name,
                branch,
                config: Text { value: json["fidx:config"]["@value"].as_str().unwrap_or("{}").to_owned() },
                dependencies: texts(&json["fidx:dependencies"]),
                status,
            })));
        }
        let commit = [&json["f:ledgerCommit"]["@id"], &json["f:commit"]["@id"]];
        let index = [&json["f:ledgerIndex"], &json["f:index"]].into_iter().find(|index| index.is_object());
        Ok(Main::Ledger(Box::new(LedgerMain {
            context,
            id: id.to_owned(),
            types,
            ledger: Reference { id: name },
            branch,
            commit_cid: commit.into_iter().find_map(content_id),
            t: json["f:t"].as_i64().unwrap_or(0),
            index: index.map(|index| LedgerIndex { cid: content_id(&index["@id"]), t: t_of(index) }),
            status,
            default_context_cid: content_id(&json["f:defaultContextCid"]),
            status_v: None,
            status_meta: None,
            config_v: None,
            config_meta: None,
            config_cid: None,
            source_branch: None,
            branch_point: None,
            branches: None,
        })))
    }

    /// Returns the storage addresses that contain no content id, by concern (`head`, `index`), as a config keeps them.
    pub(super) fn addresses(main: &Value, index: Option<&Value>) -> Object {
        let mut kept = Object::new();
        let mut keep = |concern: &str, reference: &Value, t: i64| {
            if let Some(address) = reference["@id"].as_str().filter(|_| content_id(&reference["@id"]).is_none()) {
                kept.insert(concern.to_owned(), json!({ "address": address, "t": t }));
            }
        };
        for commit in [&main["f:ledgerCommit"], &main["f:commit"]] {
            keep("head", commit, main["f:t"].as_i64().unwrap_or(0));
        }
        // The later index wins, as it does if both have ids.
        let members = |file: &Value| {
            let spelled_out = json!({ "@id": file["f:indexId"], "f:t": file["f:indexT"] });
            [file["f:ledgerIndex"].clone(), file["f:index"].clone(), spelled_out]
        };
        let mut references: Vec<Value> = [Some(main), index].into_iter().flatten().flat_map(members).collect();
        references.sort_by_key(t_of);
        references.iter().for_each(|reference| keep("index", reference, t_of(reference)));
        kept
    }

    pub(super) fn index(self, json: &Value, kind: RecordKind) -> Result<IndexFile, String> {
        let context = json.get("@context").cloned().unwrap_or_else(note::context);
        let index = [&json["f:ledgerIndex"], &json["f:index"]].into_iter().find(|index| index.is_object());
        let cid = index.map_or_else(|| content_id(&json["f:indexId"]), |index| content_id(&index["@id"]));
        let t = index.map(t_of).or(json["f:indexT"].as_i64()).unwrap_or(0);
        Ok(match kind {
            RecordKind::Ledger => IndexFile::Ledger(LedgerIndexFile { context, index: LedgerIndex { cid, t } }),
            RecordKind::GraphSource => IndexFile::Source(SourceIndexFile {
                context,
                id: json["@id"].as_str().unwrap_or_default().to_owned(),
                index: SourceIndex { kind: json!("f:ContentId"), cid },
                t,
            }),
        })
    }
}

fn t_of(index: &Value) -> i64 {
    index["f:t"].as_i64().unwrap_or(0)
}

/// Returns the content id that an address is or ends in (`…/commit/bafy….json`); `None` if it has none.
fn content_id(address: &Value) -> Option<String> {
    let address = address.as_str()?;
    let last = address.rsplit('/').next().unwrap_or(address);
    let stem = last.split_once('.').map_or(last, |(stem, _)| stem);
    [address, stem].into_iter().find(|text| ContentId::parse(text).is_ok()).map(str::to_owned)
}

fn texts(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().or(value["@id"].as_str()).map(str::to_owned);
    match value {
        Value::Array(values) => values.iter().filter_map(text).collect(),
        other => text(other).into_iter().collect(),
    }
}
