//! The shape of every row that we write (docs/specification.md, Table), walked attribute by attribute.

use std::collections::{BTreeMap, BTreeSet};

use nameservice_model::RecordKind;
use nameservice_store::schema;
use serde_json::{Value, json};

use crate::rows::Row;

/// Panics unless every row of one partition has exactly the attributes and types of the layout.
pub fn assert_ours<'a>(rows: impl IntoIterator<Item = &'a Row>) {
    let rows: Vec<&Row> = rows.into_iter().collect();
    let graph_source = rows.iter().any(|row| row.get("kind") == Some(&json!({ "S": "graph_source" })));
    for row in rows {
        assert_row(row, graph_source);
    }
}

/// Panics unless every row of a table that only we have written has the layout and belongs to a record.
pub fn assert_table(rows: &[Row]) {
    let mut partitions: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        partitions.entry(row["pk"]["S"].as_str().unwrap()).or_default().push(row);
    }
    for (pk, rows) in partitions {
        assert!(rows.iter().any(|row| row.contains_key("kind")), "{pk} has rows and is no record: {rows:#?}");
        assert_ours(rows);
    }
}

/// Asserts the invariants of references while there are no writes.
pub fn assert_references(rows: &[Row]) {
    let text =
        |row: &Row, name: &str| row.get(name).and_then(|value| value["S"].as_str()).unwrap_or_default().to_owned();
    let number =
        |row: &Row, name: &str| row.get(name).map_or(0, |value| value["N"].as_str().unwrap().parse::<i64>().unwrap());
    let metas: BTreeMap<String, &Row> =
        rows.iter().filter(|row| text(row, "sk") == "meta").map(|row| (text(row, "pk"), row)).collect();
    let live = |pk: &str| metas.get(pk).is_some_and(|meta| meta["retracted"] == json!({ "BOOL": false }));
    let mut depending: BTreeSet<(String, String)> = BTreeSet::new();
    for (pk, meta) in &metas {
        let listed = |name: &str| {
            let list = meta.get(name).map_or(&[] as &[Value], |list| list["L"].as_array().unwrap());
            list.iter().map(|entry| entry["S"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(listed("counted"), listed("dependencies"), "{pk}: every dependency is counted");
        for target in listed("counted") {
            assert!(!live(pk) || live(&target), "{pk} is live and depends on {target}, which is not");
            assert!(metas.contains_key(&target), "{pk} depends on {target}, which is gone");
            depending.insert((target, pk.clone()));
        }
    }
    let backrefs: BTreeSet<(String, String)> = rows
        .iter()
        .filter(|row| text(row, "sk").starts_with("backref#"))
        .map(|row| (text(row, "pk"), text(row, "dependent")))
        .collect();
    assert_eq!(backrefs, depending, "one back reference for each dependency, and none else");
    for (pk, meta) in &metas {
        let dependents = depending.iter().filter(|(target, _)| target == pk).count();
        assert_eq!(number(meta, "dependents"), dependents as i64, "the count of {pk}");
        let name = text(meta, "name");
        let branch = text(meta, "branch");
        let children = metas.values().filter(|meta| text(meta, "name") == name && text(meta, "bp_source") == branch);
        assert_eq!(number(meta, "branches"), children.count() as i64, "the branches of {pk}");
    }
}

fn assert_row(row: &Row, graph_source: bool) {
    let sk = row["sk"]["S"].as_str().unwrap();
    assert!(!sk.starts_with(schema::SK_COMMIT_PREFIX), "only Fluree writes its commit log: {row:#?}");
    let kind = if graph_source { RecordKind::GraphSource } else { RecordKind::Ledger };
    let known: Vec<_> = schema::attributes_of(sk).filter(|known| known.only.is_none_or(|only| only == kind)).collect();
    for (name, value) in row {
        let Some(known) = known.iter().find(|known| known.name == name) else {
            panic!("{sk}: the layout knows no attribute `{name}`: {row:#?}");
        };
        let expected = known.shape.type_name();
        assert!(value.get(expected).is_some(), "{sk}.{name} must be {expected}: {value}");
    }
    for known in known {
        assert!(known.nullable || row.contains_key(known.name), "{sk} lacks `{}`: {row:#?}", known.name);
    }
    assert_eq!(row["schema"], json!({ "N": "2" }), "{sk}");
    assert_eq!(
        row.get("default_context_address"),
        row.get("default_context_id"),
        "both names of the default context hold the same"
    );
    for (id, t) in [("commit_id", "commit_t"), ("index_id", "index_t")] {
        if let Some(t) = row.get(t) {
            assert_eq!(*t == json!({ "N": "0" }), !row.contains_key(id), "{sk}: an id is absent exactly while unborn");
        }
    }
    for list in ["dependencies", "counted"] {
        for entry in row.get(list).map_or(&[] as &[Value], |list| list["L"].as_array().unwrap()) {
            assert!(entry.get("S").is_some(), "{list} holds texts: {entry}");
        }
    }
}
