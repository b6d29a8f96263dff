//! The expected feed, derived from the rows of the table before and after each write, not from its stream.

use std::collections::BTreeMap;

use nameservice_tests::prelude::*;

/// One part of one record: key, kind, watermark.
pub(super) type Reported = (String, &'static str, &'static str, i64);

/// All rows of the table that are parts of records.
pub(super) type Rows = BTreeMap<(String, String), Row>;

/// The rows as they are now.
pub(super) async fn rows_of(table: &Table) -> Rows {
    let rows = table.all_rows().await.into_iter();
    let key = |row: &Row, name: &str| row[name]["S"].as_str().unwrap().to_owned();
    rows.map(|row| ((key(&row, "pk"), key(&row, "sk")), row)).collect()
}

/// What one write has changed, in no order.
pub(super) fn changes_between(before: &Rows, after: &Rows) -> Vec<Reported> {
    let mut changes = Vec::new();
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let Some(part) = ChangedPart::ALL.iter().find(|part| part.as_str() == key.1) else { continue };
        let (old, new) = (before.get(key).and_then(part_of), after.get(key).and_then(part_of));
        if let Some(kind) = kind_of(old.as_ref(), new.as_ref(), part.as_str()) {
            changes.push((key.0.clone(), part.as_str(), kind, new.map_or(0, |part| part.v)));
        }
    }
    changes
}

#[derive(PartialEq)]
struct Part {
    v: i64,
    /// What decides whether two payloads are the same.
    content: Vec<Value>,
    born: bool,
    marked: bool,
}

fn part_of(row: &Row) -> Option<Part> {
    let get = |name: &str| row.get(name).filter(|value| value.get("NULL").is_none()).cloned().unwrap_or_default();
    let number = |name: &str| get(name)["N"].as_str().map_or(0, |text| text.parse().unwrap());
    let marked = get("retracted")["BOOL"] == true;
    let part = match row["sk"]["S"].as_str().unwrap() {
        "meta" => {
            if get("kind").is_null() {
                return None;
            }
            let content = ["kind", "source_type", "dependencies", "bp_source"].map(get).to_vec();
            Part { v: 0, content, born: true, marked }
        }
        "head" => {
            let id = get("commit_id");
            Part { v: number("commit_t"), born: !id.is_null() || number("commit_t") != 0, content: vec![id], marked }
        }
        "index" => {
            let (id, t) = (get("index_id"), number("index_t"));
            let rev = if get("rev_id") == id { number("rev") } else { 0 };
            let empty = json!({ "M": {} });
            let graphs = Some(get("graphs")).filter(|graphs| !graphs.is_null() && !id.is_null()).unwrap_or(empty);
            Part { v: t, born: !id.is_null() || t != 0, content: vec![id, rev.into(), graphs], marked }
        }
        "status" => {
            let meta = Some(get("status_meta")).filter(|meta| !meta.is_null()).unwrap_or(json!({ "M": {} }));
            Part { v: number("status_v"), born: true, content: vec![get("status"), meta, get("lease")], marked }
        }
        "config" => {
            let names = ["config_json", "default_context_address", "config_meta"];
            let content: Vec<Value> = names.map(get).to_vec();
            let born = number("config_v") > 0 || content.iter().any(|value| !value.is_null());
            Part { v: number("config_v"), born, content, marked }
        }
        other => panic!("{other} is no part"),
    };
    Some(part)
}

fn kind_of(old: Option<&Part>, new: Option<&Part>, part: &str) -> Option<&'static str> {
    let marked = |part: Option<&Part>| part.is_some_and(|part| part.marked);
    let born = |part: Option<&Part>| part.is_some_and(|part| part.born);
    let Some(now) = new else { return born(old).then_some("purged") };
    let begins = part == "meta" && old.is_none();
    if !begins && marked(old) != now.marked {
        return Some(if now.marked { "retracted" } else { "restored" });
    }
    let Some(old) = old.filter(|old| old.born) else { return now.born.then_some("created") };
    if old == now {
        return None;
    }
    Some(if now.v < old.v || (now.v == old.v && part == "head") { "reset" } else { "updated" })
}

/// Panics unless the feed says of every address what was expected, write by write in their order, each once.
pub(super) fn assert_reported(changes: &[Change], expected: &[Vec<Reported>]) {
    for (change, position) in changes.iter().zip(1..) {
        assert_eq!(change.position, position, "positions have no gap");
    }
    let mut by_address: BTreeMap<&str, Vec<Reported>> = BTreeMap::new();
    for change in changes {
        by_address.entry(change.address.as_str()).or_default().push(super::reported(change));
    }
    let mut wanted: BTreeMap<&str, Vec<Vec<Reported>>> = BTreeMap::new();
    for write in expected {
        let mut parts: BTreeMap<&str, Vec<Reported>> = BTreeMap::new();
        for reported in write {
            parts.entry(reported.0.as_str()).or_default().push(reported.clone());
        }
        for (address, reported) in parts {
            wanted.entry(address).or_default().push(reported);
        }
    }
    let shown: Vec<_> = by_address.keys().collect();
    let listed: Vec<_> = wanted.keys().collect();
    assert_eq!(shown, listed, "the feed reports the records that have changed");
    for (address, writes) in wanted {
        let mut reported = by_address.remove(address).unwrap().into_iter();
        for (n, mut write) in writes.into_iter().enumerate() {
            // The items of one transaction come in any order.
            let mut next: Vec<Reported> = reported.by_ref().take(write.len()).collect();
            next.sort();
            write.sort();
            assert_eq!(next, write, "{address}, change {n}");
        }
        assert_eq!(reported.next(), None, "{address}: more than was changed");
    }
    assert_watermarks_grow(changes);
}

/// Panics unless watermarks grow, except across changes that set them back.
pub(super) fn assert_watermarks_grow(changes: &[Change]) {
    let mut last: BTreeMap<(&Address, ChangedPart), i64> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.part != ChangedPart::Meta) {
        let before = last.insert((&change.address, change.part), change.watermark);
        match change.kind {
            ChangeKind::Reset | ChangeKind::Purged => {}
            // An index may be built again at the same `t`; a mark changes none of the watermarks but the status'.
            _ if change.part == ChangedPart::Concern(ConcernKind::Index)
                || matches!(change.kind, ChangeKind::Retracted | ChangeKind::Restored) =>
            {
                assert!(before.is_none_or(|before| before <= change.watermark), "{change:?}");
            }
            _ => assert!(before.is_none_or(|before| before < change.watermark), "{change:?}"),
        }
    }
}
