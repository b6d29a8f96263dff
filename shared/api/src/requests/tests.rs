use std::collections::BTreeMap;

use nameservice_model::{Expected, StatusPayload};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::InvalidKind;

const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

fn read<T: DeserializeOwned>(body: Value) -> T {
    serde_json::from_value(body).unwrap()
}

#[track_caller]
fn rejected<T: std::fmt::Debug>(result: Result<T, Invalid>, field: &str) {
    let problem = result.unwrap_err();
    assert_ne!(problem.kind, InvalidKind::Parameter, "{problem:?}");
    assert_eq!(problem.field, field, "{problem:?}");
}

#[test]
fn what_a_head_push_expects_is_distinguished() {
    let push = |body: Value| read::<HeadPush>(body).into_push();
    let new = json!({"id": ID, "t": 2});
    assert_eq!(push(json!({"new": new})).unwrap().expected(), &Expected::Older);
    assert_eq!(push(json!({"new": new, "expected": null})).unwrap().expected(), &Expected::NoRecord);
    let unborn = push(json!({"new": new, "expected": {"id": null, "t": 0}})).unwrap();
    assert_eq!(unborn.expected(), &Expected::Value(ConcernValue::unborn()));
    // A `t` that is not greater than the expected one is for the store to reject.
    assert!(push(json!({"new": new, "expected": {"id": ID, "t": 7}})).is_ok());
    for (body, field) in [
        (json!({"new": {"id": null, "t": 1}}), "new.id"),
        (json!({"new": {"t": 1}}), "new.id"),
        (json!({"new": {"id": "Qm", "t": 1}}), "new.id"),
        (json!({"new": {"id": ID, "t": 0}}), "new.t"),
        (json!({"new": new, "expected": {"id": null, "t": 1}}), "expected.t"),
        (json!({"new": new, "expected": {"id": ID, "t": 0}}), "expected.t"),
        (json!({"new": new, "expected": {"id": ID, "t": -1}}), "expected.t"),
    ] {
        rejected(push(body), field);
    }
}

#[test]
fn an_index_push_checks_its_graphs() {
    let push = |body: Value| read::<IndexPush>(body).into_push();
    let new = json!({"id": ID, "t": 2, "graphs": {"g": {"id": ID, "t": 2}, "h": null}});
    let good = push(json!({"new": new, "expected": {"id": ID, "t": 2, "rev": 3}})).unwrap();
    assert_eq!(good.desired().graphs().len(), 2);
    assert!(push(json!({"new": new, "allow_equal": true})).unwrap().allows_equal());
    rejected(push(json!({"new": new, "allow_equal": true, "expected": null})), "allow_equal");
    let long = "g".repeat(256);
    for (graphs, field) in [
        (json!({" ": null}), "new.graphs"),
        (json!({&long: null}), "new.graphs"),
        (json!({"g": {"id": "x", "t": 1}}), "new.graphs.g.id"),
        (json!({"g": {"id": ID, "t": 0}}), "new.graphs.g.t"),
        (json!({"g": {"id": ID, "t": 1, "rev": -1}}), "new.graphs.g.rev"),
    ] {
        rejected(push(json!({"new": {"id": ID, "t": 2, "graphs": graphs}})), field);
    }
    let many: BTreeMap<_, _> = (0..=model::MAX_GRAPHS).map(|i| (i.to_string(), Value::Null)).collect();
    rejected(push(json!({"new": {"id": ID, "t": 2, "graphs": many}})), "new.graphs");
}

#[test]
fn a_status_push_names_its_expectation_and_no_lease() {
    let push = |body: Value| read::<StatusPush>(body).into_push();
    let ready = json!({"payload": {"state": "ready"}});
    let good = push(json!({"expected": {"v": 4, "payload": {"state": "indexing", "index_lock": {}}}, "new": ready}));
    let good = good.unwrap();
    assert_eq!(good.new_v(), 5);
    let expected = ConcernValue::new(4, StatusPayload::state("indexing"));
    assert_eq!(good.expected(), &Expected::Value(expected));
    for (body, field) in [
        (json!({"new": ready}), "expected"),
        (json!({"expected": null, "new": ready}), "expected"),
        (json!({"expected": {"v": 0}, "new": ready}), "expected.v"),
        (json!({"expected": {"v": i64::MAX}, "new": ready}), "expected.v"),
        (json!({"expected": {"v": 1, "payload": {}}, "new": ready}), "expected.payload.state"),
        (json!({"expected": {"v": 1}, "new": {"v": 0, "payload": {"state": "a"}}}), "new.v"),
        (json!({"expected": {"v": 1}, "new": {"payload": {}}}), "new.payload.state"),
        (json!({"expected": {"v": 1}, "new": {"payload": {"state": " "}}}), "new.payload.state"),
        (json!({"expected": {"v": 1}, "new": {"payload": {"state": 1}}}), "new.payload.state"),
        (json!({"expected": {"v": 1}, "new": {"payload": {"state": "a", "": 1}}}), "new.payload."),
        (
            json!({"expected": {"v": 1}, "new": {"payload": {"state": "a", "reindex_lock": 1}}}),
            "new.payload.reindex_lock",
        ),
    ] {
        rejected(push(body), field);
    }
}

#[test]
fn a_config_push_checks_its_context() {
    let push = |body: Value| read::<ConfigPush>(body).into_push();
    let new = json!({"payload": {"default_context_id": ID}});
    assert_eq!(push(json!({"expected": {"v": 0, "payload": null}, "new": new})).unwrap().new_v(), 1);
    for (body, field) in [
        (json!({"new": new}), "expected"),
        (json!({"expected": {"v": -1}, "new": new}), "expected.v"),
        (json!({"expected": {"v": 0, "payload": {}}, "new": new}), "expected.payload"),
        (
            json!({"expected": {"v": 0}, "new": {"payload": {"default_context_id": "x"}}}),
            "new.payload.default_context_id",
        ),
        (
            json!({"expected": {"v": 0}, "new": {"payload": {"default_context_id": 1}}}),
            "new.payload.default_context_id",
        ),
        (json!({"expected": {"v": 0}, "new": {"payload": {"a": 1e300}}}), "new.payload.a"),
    ] {
        rejected(push(body), field);
    }
}

#[test]
fn a_graph_source_depends_on_distinct_others() {
    let own = Address::parse("search").unwrap();
    let publish = |body: Value| read::<GraphSource>(body).into_publication(&own);
    let good = publish(json!({"source_type": "f:X", "config": {}, "dependencies": ["mydb"]})).unwrap();
    assert_eq!(good.dependencies().unwrap()[0].as_str(), "mydb:main");
    let many: Vec<_> = (0..25).map(|i| format!("a{i}")).collect();
    for (change, field) in [
        (json!({"source_type": " "}), "source_type"),
        (json!({"source_type": "s".repeat(129)}), "source_type"),
        (json!({"expected_v": -1}), "expected_v"),
        (json!({"v": 0}), "v"),
        (json!({"dependencies": ["search"]}), "dependencies[0]"),
        (json!({"dependencies": ["a", "a:main"]}), "dependencies[1]"),
        (json!({"dependencies": ["a", "a@b"]}), "dependencies[1]"),
        (json!({"dependencies": many}), "dependencies"),
    ] {
        let mut body = json!({"source_type": "f:X", "config": {}});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        rejected(publish(body), field);
    }
}

#[test]
fn creations_and_resets_name_the_field() {
    let ledger = |body: Value| read::<NewLedger>(body).into_model();
    rejected(ledger(json!({"address": "a:b:c"})), "address");
    rejected(ledger(json!({"address": "a", "head": {"id": ID, "t": 0}})), "head.t");
    rejected(ledger(json!({"address": "a", "config": {"default_context_id": "x"}})), "config.default_context_id");
    let branch = |body: Value| read::<NewBranch>(body).into_model();
    rejected(branch(json!({"name": "a:b", "branch": "c", "source": "main"})), "name");
    rejected(branch(json!({"name": "a", "branch": "c:d", "source": "main"})), "branch");
    rejected(branch(json!({"name": "a", "branch": "c", "source": ""})), "source");
    rejected(branch(json!({"name": "a", "branch": "c", "source": "c"})), "source");
    rejected(branch(json!({"name": "a", "branch": "c", "source": "main", "at": {"id": null, "t": 0}})), "at.id");
    let reset = |body: Value| read::<Snapshot>(body).into_model();
    assert!(reset(json!({"head": {"id": ID, "t": 1}, "index": {"id": null, "t": 0}})).is_ok());
    rejected(reset(json!({"head": {"id": ID, "t": 1}, "index": {"id": null, "t": 1}})), "index.t");
}

#[test]
fn unknown_fields_are_rejected() {
    let new = json!({"id": ID, "t": 1});
    assert!(serde_json::from_value::<HeadPush>(json!({"new": new, "lease": {}})).is_err());
    assert!(serde_json::from_value::<HeadPush>(json!({"new": new, "allow_equal": true})).is_err());
    assert!(serde_json::from_value::<IndexPush>(json!({"new": {"id": ID, "t": 1, "rev": 1}})).is_err());
    assert!(serde_json::from_value::<Retraction>(json!({"why": ""})).is_err());
}
