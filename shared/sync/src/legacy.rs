//! Records of the two older table layouts: `v1` (one item per ledger, keyed by `ledger_alias` or `pk`) and the single
//! item of `v = 2` that preceded today's table.
//!
//! Old rows hold storage addresses instead of content ids. An address that ends in a content id is converted. Any other
//! is kept in the config, as `legacy_address`, and the id stays absent: it is never made up.

use jiff::Timestamp;
use nameservice_model::{
    Address, Config, ContentId, GraphIndex, Head, Index, IndexRoot, Object, Record, RecordAttributes, RecordKind,
    Status, StatusPayload,
};
use serde_json::{Map, Value, json};

use crate::Found;

pub use nameservice_model::LEGACY_ADDRESS;

/// Reads a row of an older table, given as JSON. A row without `v`, or with one below 2, is of the first layout.
pub fn read_row(row: &Object) -> Found {
    let key = text(row, "pk").or_else(|| text(row, "ledger_alias"));
    let place = key.clone().unwrap_or_else(|| "a row without a key".to_owned());
    let unreadable = |reason: String| Found::Unreadable { place: place.clone(), reason };
    let Some(key) = key else { return unreadable("it has neither `pk` nor `ledger_alias`".to_owned()) };
    let address = match address_of(row, &key) {
        Ok(address) => address,
        Err(reason) => return unreadable(reason),
    };
    let record = match integer(row, "v") {
        Some(v) if v >= 2 => single_item(row, address),
        _ => first_layout(row, address),
    };
    match record {
        Ok(record) => Found::Record(Box::new(record)),
        Err(reason) => unreadable(reason),
    }
}

/// What the index of a virtual graph has besides an id and a watermark, and the member of the config that keeps it.
const SYNC: [(&str, &str); 3] =
    [("sync_t", "legacy_sync_t"), ("sync_address", "legacy_sync_address"), ("snapshot_id", "legacy_snapshot_id")];

/// Returns whether a record keeps, in its config, addresses that have no content id, or other values of an older layout.
pub fn keeps_addresses(record: &Record) -> bool {
    let Some(config) = &record.config.payload else { return false };
    config.get(LEGACY_ADDRESS).is_some() || SYNC.iter().any(|(_, kept)| config.get(kept).is_some())
}

fn address_of(row: &Object, key: &str) -> Result<Address, String> {
    let name = text(row, "name").or_else(|| text(row, "ledger_name"));
    let address = match (name, text(row, "branch")) {
        (Some(name), Some(branch)) => Address::from_parts(&name, &branch),
        _ => Address::parse(key.strip_prefix("vg:").unwrap_or(key)),
    };
    address.map_err(|error| error.to_string())
}

/// The parts of a row, before they are a record.
struct Parts {
    address: Address,
    kind: RecordKind,
    source_type: Option<String>,
    dependencies: Vec<String>,
    retracted: bool,
    created_at: Option<i64>,
    updated_at: Option<i64>,
    head: Option<Head>,
    index: Index,
    status_v: i64,
    status: StatusPayload,
    config_v: i64,
    config: Option<Object>,
    legacy: Map<String, Value>,
}

impl Parts {
    fn into_record(mut self) -> Record {
        if !self.legacy.is_empty() {
            let config = self.config.get_or_insert_default();
            config.insert(LEGACY_ADDRESS.to_owned(), Value::Object(self.legacy));
        }
        // A config that exists has a version of at least 1.
        let config = match self.config {
            Some(config) => Config::new(self.config_v.max(1), Value::Object(config)),
            None => Config::unborn(),
        };
        let time = |seconds: Option<i64>| seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let created_at = time(self.created_at);
        let attributes = RecordAttributes {
            source_type: self.source_type,
            dependencies: self.dependencies,
            ..RecordAttributes::default()
        };
        Record {
            updated_at: time(self.updated_at).or(created_at).unwrap_or(Timestamp::UNIX_EPOCH),
            retracted: self.retracted,
            created_at,
            head: self.head,
            index: self.index,
            status: Status::new(self.status_v, self.status),
            config,
            ..Record::base(self.address, self.kind, attributes)
        }
    }
}

fn first_layout(row: &Object, address: Address) -> Result<Record, String> {
    let mut legacy = Map::new();
    let head = reference(row.get("commit_address"), integer(row, "commit_t"), "head", &mut legacy)?;
    let index = reference(row.get("index_address"), integer(row, "index_t"), "index", &mut legacy)?;
    let index = match index.payload {
        Some(id) => Index::new(index.v, IndexRoot { id, rev: 0, graphs: Default::default() }),
        None => Index::unborn(),
    };
    let config = text(row, "default_context_address").map(|context| with_context(Object::new(), context));
    let state = text(row, "status").unwrap_or_else(|| StatusPayload::READY.to_owned());
    Ok(Parts {
        address,
        kind: RecordKind::Ledger,
        source_type: None,
        dependencies: Vec::new(),
        retracted: state == StatusPayload::RETRACTED,
        created_at: None,
        updated_at: integer(row, "updated_at"),
        head: Some(head),
        index,
        status_v: 1,
        status: StatusPayload::state(state),
        config_v: 1,
        config,
        legacy,
    }
    .into_record())
}

fn single_item(row: &Object, address: Address) -> Result<Record, String> {
    let mut legacy = Map::new();
    let kind = text(row, "type").unwrap_or_else(|| "ledger".to_owned());
    let source_type = (kind != "ledger").then(|| source_type(&kind));
    let is_ledger = source_type.is_none();
    let head = match row.get("head") {
        Some(Value::Object(head)) if is_ledger => {
            let t = integer(head, "t").or_else(|| integer(row, "head_v"));
            Some(reference(head.get("address"), t, "head", &mut legacy)?)
        }
        _ => is_ledger.then(Head::unborn),
    };
    let of_index = match row.get("index") {
        Some(Value::Object(index)) if is_ledger => named_graphs(index, &mut legacy)?,
        Some(Value::Object(index)) => {
            let found = reference(index.get("address"), integer(index, "sync_t"), "index", &mut legacy)?;
            match found.payload {
                Some(id) => Index::new(found.v, IndexRoot { id, rev: 0, graphs: Default::default() }),
                None => Index::unborn(),
            }
        }
        _ => Index::unborn(),
    };
    let status = match row.get("status") {
        Some(Value::Object(status)) => {
            let mut meta = status.clone();
            let state = meta.remove("state").and_then(|state| state.as_str().map(str::to_owned));
            let state = state.unwrap_or_else(|| StatusPayload::READY.to_owned());
            StatusPayload { state, meta }.without_leases()
        }
        _ => StatusPayload::state(StatusPayload::READY),
    };
    let mut config = match row.get("config") {
        Some(Value::Object(config)) => Some(config.clone()),
        Some(Value::Null) | None => source_type.is_some().then(Object::new),
        Some(_) => return Err("its config is not a map".to_owned()),
    };
    if let (false, Some(Value::Object(index))) = (is_ledger, row.get("index")) {
        for (name, kept) in SYNC {
            // As the watermark of the index, `sync_t` is not lost.
            let is_lost = name != "sync_t" || integer(index, name).is_none_or(|t| of_index.v != t);
            if let Some(value) = index.get(name).filter(|value| is_lost && !value.is_null()) {
                config.get_or_insert_default().insert(kept.to_owned(), value.clone());
            }
        }
    }
    let dependencies = match row.get("deps") {
        Some(Value::Array(deps)) => deps.iter().filter_map(Value::as_str).map(dependency).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    let is_marked = row.get("retracted").and_then(Value::as_bool).unwrap_or(false);
    Ok(Parts {
        address,
        kind: if is_ledger { RecordKind::Ledger } else { RecordKind::GraphSource },
        source_type,
        dependencies,
        retracted: is_marked || status.state == StatusPayload::RETRACTED,
        created_at: integer(row, "created_at"),
        updated_at: None,
        head,
        index: of_index,
        status_v: integer(row, "status_v").unwrap_or(1).max(1),
        status,
        config_v: integer(row, "config_v").unwrap_or(1),
        config,
        legacy,
    }
    .into_record())
}

/// Reads the indexes of named graphs. That of the graph `default` is the ledger's; the others keep their own.
fn named_graphs(index: &Object, legacy: &mut Map<String, Value>) -> Result<Index, String> {
    let mut lost = Map::new();
    let mut graphs = std::collections::BTreeMap::new();
    let mut main = None;
    for (name, graph) in index {
        let found = match graph {
            Value::Object(graph) => {
                let (t, rev) = (integer(graph, "t").unwrap_or(0), integer(graph, "rev").unwrap_or(0));
                match graph.get("address").and_then(Value::as_str).and_then(content_id) {
                    Some(id) if t >= 1 => Some(GraphIndex { id, t, rev }),
                    _ => {
                        lost.insert(name.clone(), Value::Object(graph.clone()));
                        continue;
                    }
                }
            }
            Value::Null => None,
            _ => return Err(format!("its index of the graph `{name}` is not a map")),
        };
        if name == "default" {
            main = found;
        } else {
            graphs.insert(name.clone(), found);
        }
    }
    let Some(GraphIndex { id, t, rev }) = main else {
        // A ledger without an index of its own has no place for those of its graphs.
        for (name, graph) in graphs {
            let graph = graph.map(|graph| json!({"address": graph.id.as_str(), "t": graph.t, "rev": graph.rev}));
            lost.insert(name, graph.unwrap_or(Value::Null));
        }
        if lost.values().any(|graph| !graph.is_null()) {
            legacy.insert("index".to_owned(), Value::Object(lost));
        }
        return Ok(Index::unborn());
    };
    if !lost.is_empty() {
        legacy.insert("index".to_owned(), Value::Object(lost));
    }
    Ok(Index::new(t, IndexRoot { id, rev, graphs }))
}

/// Reads a reference by address and `t`, with its content id if the address contains one.
fn reference(
    address: Option<&Value>,
    t: Option<i64>,
    what: &str,
    legacy: &mut Map<String, Value>,
) -> Result<Head, String> {
    let address = match address {
        Some(Value::String(address)) if !address.is_empty() => address,
        Some(Value::Null | Value::String(_)) | None => return Ok(Head::unborn()),
        Some(_) => return Err(format!("the address of its {what} is not text")),
    };
    match (content_id(address), t) {
        (Some(id), Some(t)) if t >= 1 => Ok(Head::new(t, id)),
        _ => {
            legacy.insert(what.to_owned(), json!({"address": address, "t": t}));
            Ok(Head::unborn())
        }
    }
}

/// Returns the content id that an address ends in, with or without an extension.
fn content_id(address: &str) -> Option<ContentId> {
    let last = address.rsplit(['/', ':']).next()?;
    let stem = last.split('.').next()?;
    ContentId::parse(stem).ok()
}

fn with_context(mut config: Object, context: String) -> Object {
    match content_id(&context) {
        Some(id) => config.insert("default_context_id".to_owned(), Value::String(id.as_str().to_owned())),
        None => config.insert("default_context".to_owned(), Value::String(context)),
    };
    config
}

/// Returns today's type of a graph source; a type without a counterpart is kept.
pub(crate) fn source_type(kind: &str) -> String {
    match kind {
        "vg:bm25" => "f:Bm25Index",
        "vg:vector" => "f:HnswIndex",
        "vg:geo" => "f:GeoIndex",
        "vg:iceberg" => "f:IcebergMapping",
        "vg:r2rml" => "f:R2rmlMapping",
        other => other,
    }
    .to_owned()
}

pub(crate) fn dependency(text: &str) -> Result<String, String> {
    let address = Address::parse(text.strip_prefix("vg:").unwrap_or(text));
    address.map(|address| address.to_string()).map_err(|error| error.to_string())
}

fn text(row: &Object, name: &str) -> Option<String> {
    row.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn integer(row: &Object, name: &str) -> Option<i64> {
    let value = row.get(name)?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    fn record(row: Value) -> Record {
        match read_row(row.as_object().unwrap()) {
            Found::Record(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_layout_is_mapped_under_both_keys() {
        for key in ["ledger_alias", "pk"] {
            let mapped = record(json!({
                key: "mydb:main", "ledger_name": "mydb", "branch": "main", "status": "ready", "updated_at": 1705312200,
                "commit_address": format!("fluree:s3://bucket/commits/{CID}.json"), "commit_t": 42,
                "index_address": "fluree:s3://bucket/index/abc", "index_t": 40,
                "default_context_address": "fluree:s3://contexts/v1.json",
            }));
            assert_eq!(mapped.head, Some(Head::new(42, ContentId::parse(CID).unwrap())));
            assert_eq!((mapped.index.v, mapped.status.v, mapped.config.v), (0, 1, 1));
            let config = mapped.config.payload.clone().unwrap();
            assert_eq!(config["default_context"], "fluree:s3://contexts/v1.json");
            assert_eq!(config[LEGACY_ADDRESS]["index"], json!({"address": "fluree:s3://bucket/index/abc", "t": 40}));
            assert!(keeps_addresses(&mapped) && !mapped.retracted);
        }
        assert!(record(json!({"pk": "a:b", "status": "retracted"})).retracted);
        // An item may hold index attributes alone.
        let bare = record(json!({"ledger_alias": "a/b", "index_address": CID, "index_t": 3}));
        assert_eq!((bare.address.as_str(), bare.index.v, bare.head), ("a/b:main", 3, Some(Head::unborn())));
    }

    #[test]
    fn a_single_item_is_mapped() {
        let mapped = record(json!({
            "pk": "mydb:main", "v": 2, "type": "ledger", "name": "mydb", "branch": "main", "created_at": 1705312200,
            "head_v": 42, "head": {"address": CID, "t": 42},
            "index_v": 17, "index": {
                "default": {"address": CID, "t": 41, "rev": 1},
                "txn": {"address": CID, "t": 40, "rev": 0}, "log": null, "lost": {"address": "s3://x", "t": 3, "rev": 0},
            },
            "status_v": 9, "status": {"state": "indexing", "queue": 3, "index_lock": {"holder": "h", "acquired_at": 1, "expires_at": 2}},
            "config_v": 4, "config": {"index_threshold": 1000},
        }));
        let root = mapped.index.payload.clone().unwrap();
        assert_eq!((mapped.index.v, root.rev, root.graphs.len()), (41, 1, 2));
        assert_eq!(mapped.status.payload.clone().unwrap().meta, *json!({"queue": 3}).as_object().unwrap());
        assert_eq!((mapped.status.v, mapped.config.v), (9, 4));
        assert_eq!(mapped.config.payload.unwrap()[LEGACY_ADDRESS]["index"]["lost"]["t"], 3);
    }

    #[test]
    fn virtual_graphs_become_graph_sources() {
        for (kind, source_type) in
            [("vg:bm25", "f:Bm25Index"), ("vg:iceberg", "f:IcebergMapping"), ("vg:jdbc", "vg:jdbc")]
        {
            let mapped = record(json!({
                "pk": "vg:search:main", "v": 2, "type": kind, "name": "search", "branch": "main",
                "deps": ["mydb:main", "vg:other:main"], "head_v": 0, "head": null, "retracted": true,
                "index_v": 5, "index": {"address": format!("fluree:s3://b/{CID}"), "sync_t": 42},
                "status_v": 12, "status": {"state": "ready"}, "config_v": 2, "config": {"k1": 1.2},
            }));
            assert_eq!((mapped.address.as_str(), mapped.source_type.as_deref()), ("search:main", Some(source_type)));
            assert_eq!(mapped.dependencies, ["mydb:main", "other:main"]);
            assert_eq!((mapped.head, mapped.index.v, mapped.retracted), (None, 42, true));
        }
    }

    #[test]
    fn what_a_virtual_graph_has_synchronised_is_kept() {
        let row = |index: Value| {
            let config = json!({"k1": 1.2});
            record(json!({"pk": "vg:g", "v": 2, "type": "vg:bm25", "index_v": 5, "index": index, "config": config}))
        };
        let synchronised = json!({"address": "s3://b/x", "sync_t": 42, "sync_address": "s3://b/c", "snapshot_id": 7});
        let config = row(synchronised.clone()).config.payload.unwrap();
        assert_eq!(config[LEGACY_ADDRESS]["index"], json!({"address": "s3://b/x", "t": 42}));
        let kept = ["legacy_sync_t", "legacy_sync_address", "legacy_snapshot_id"].map(|name| config[name].clone());
        assert_eq!(kept, [json!(42), json!("s3://b/c"), json!(7)]);
        let mapped =
            row(json!({"address": format!("s3://b/{CID}"), "sync_t": 42, "snapshot_id": "8293847239847239847"}));
        assert!(keeps_addresses(&mapped) && mapped.index.v == 42);
        let kept = json!({"k1": 1.2, "legacy_snapshot_id": "8293847239847239847"});
        assert_eq!(mapped.config.payload, Some(kept));
        let plain = row(json!({"address": format!("s3://b/{CID}"), "sync_t": 42, "snapshot_id": null}));
        assert!(!keeps_addresses(&plain));
    }

    #[test]
    fn rows_that_are_no_records_say_why() {
        for (row, reason) in [
            (json!({"v": 2}), "neither"),
            (json!({"pk": "a:b:c"}), "contains `:`"),
            (json!({"pk": "a:main", "commit_address": 5}), "not text"),
            (json!({"pk": "a:main", "v": 2, "type": "ledger", "config": 5}), "not a map"),
        ] {
            let found = read_row(row.as_object().unwrap());
            assert!(matches!(&found, Found::Unreadable { reason: found, .. } if found.contains(reason)), "{found:?}");
        }
    }
}
