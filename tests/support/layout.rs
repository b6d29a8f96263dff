//! The shape of every row that we write (docs/specification.md, Table), walked attribute by attribute.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::rows::Row;

const REQUEST_IDS: [&str; 4] = ["request_id", "request_id_1", "request_id_2", "request_id_3"];

/// What a row of this kind may and must have: name, type, whether it must be there.
fn attributes_of(sk: &str, graph_source: bool) -> Vec<(&'static str, &'static str, bool)> {
    let mut known = vec![("pk", "S", true), ("sk", "S", true), ("schema", "N", true), ("updated_at_ms", "N", true)];
    match sk {
        "meta" => {
            known.extend([
                ("kind", "S", true),
                ("name", "S", true),
                ("branch", "S", true),
                ("retracted", "BOOL", true),
                ("branches", "N", false),
                ("created_at", "N", true),
                ("dependents", "N", false),
            ]);
            if graph_source {
                known.extend([("source_type", "S", true), ("dependencies", "L", true), ("counted", "L", false)]);
            } else {
                known.push(("bp_source", "S", false));
            }
        }
        "head" => known.extend([("commit_id", "S", false), ("commit_t", "N", true)]),
        "index" => known.extend([
            ("index_id", "S", false),
            ("index_t", "N", true),
            ("rev", "N", false),
            ("rev_id", "S", false),
            ("graphs", "M", false),
        ]),
        "config" if graph_source => known.extend([("config_json", "S", true), ("config_v", "N", true)]),
        "config" => known.extend([
            ("default_context_address", "S", false),
            ("default_context_id", "S", false),
            ("config_v", "N", true),
            ("config_meta", "M", false),
        ]),
        "status" => known.extend([
            ("status", "S", true),
            ("status_v", "N", true),
            ("status_meta", "M", false),
            ("lease", "M", false),
            ("lease_token", "N", false),
        ]),
        backref if backref.starts_with("backref#") => known.push(("dependent", "S", true)),
        other => panic!("no row of ours has the sort key {other}"),
    }
    if ["head", "index", "config", "status"].contains(&sk) {
        known.push(("retracted", "BOOL", false));
        known.extend(REQUEST_IDS.map(|name| (name, "S", false)));
    }
    known
}

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
    let known = attributes_of(sk, graph_source);
    for (name, value) in row {
        let Some((_, kind, _)) = known.iter().find(|(known, ..)| known == name) else {
            panic!("{sk}: the layout knows no attribute `{name}`: {row:#?}");
        };
        assert!(value.get(kind).is_some(), "{sk}.{name} must be {kind}: {value}");
    }
    for (name, _, required) in known {
        assert!(!required || row.contains_key(name), "{sk} lacks `{name}`: {row:#?}");
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
