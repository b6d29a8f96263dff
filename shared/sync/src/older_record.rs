//! Converts records of other programs and earlier formats to a form that every place takes.

use nameservice_model::{Address, Config, Head, Index, LEGACY_ADDRESS, Object, Record, RecordKind};
use serde_json::{Value, json};

use crate::{
    Found,
    legacy::{dependency, source_type},
};

/// The prefix of the keys of virtual graphs in older rows.
pub(crate) const VIRTUAL_GRAPH: &str = "vg:";

/// Returns a record under its regular address, and without heads and indexes that have no id.
pub(crate) fn mapped(record: Record) -> Found {
    let stored = record.address.as_str().to_owned();
    if record.address.is_well_formed() {
        return Found::Record(Box::new(without_lost_ids(record)));
    }
    let unreadable = |reason: String| Found::Unreadable { place: stored.clone(), reason };
    if let Some(name) = stored.strip_prefix(VIRTUAL_GRAPH) {
        return match virtual_graph(record, name) {
            Ok(record) => Found::Record(Box::new(without_lost_ids(record))),
            Err(reason) => unreadable(reason),
        };
    }
    unreadable(match Address::parse(&stored) {
        Err(error) => error.to_string(),
        Ok(address) => format!("its address is not in its normal form, {address}"),
    })
}

/// Converts a graph source under the key of a virtual graph.
fn virtual_graph(record: Record, name: &str) -> Result<Record, String> {
    let address = Address::parse(name).map_err(|error| error.to_string())?;
    if record.kind != RecordKind::GraphSource {
        return Err("it has the key of a virtual graph, and is a ledger".to_owned());
    }
    let dependencies: Result<Vec<String>, String> = record.dependencies.iter().map(|text| dependency(text)).collect();
    Ok(Record {
        address,
        source_type: record.source_type.as_deref().map(source_type),
        dependencies: dependencies?,
        ..record
    })
}

/// Moves watermarks without an id, which cannot be stored elsewhere, to the config, with the address if that is known.
fn without_lost_ids(mut record: Record) -> Record {
    let mut lost: Vec<(&str, i64)> = Vec::new();
    if let Some(head) = record.head.as_ref().filter(|head| head.payload.is_none() && head.v != 0) {
        lost.push(("head", head.v));
        record.head = Some(Head::unborn());
    }
    if record.index.payload.is_none() && record.index.v != 0 {
        lost.push(("index", record.index.v));
        record.index = Index::unborn();
    }
    if lost.is_empty() {
        return record;
    }
    let mut config = match record.config.payload.take() {
        Some(Value::Object(config)) => config,
        _ => Object::new(),
    };
    let kept = config.entry(LEGACY_ADDRESS).or_insert_with(|| Value::Object(Object::new()));
    for (concern, t) in lost {
        if let Some(kept) = kept.as_object_mut() {
            kept.entry(concern).or_insert_with(|| json!({ "address": null, "t": t }));
        }
    }
    record.config = Config::new(record.config.v.max(1), Value::Object(config));
    record
}
