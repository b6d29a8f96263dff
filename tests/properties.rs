//! What holds for any payload and any foreign attribute.

use nameservice_tests::prelude::*;
use proptest::{
    prelude::*,
    test_runner::{Config as Cases, TestCaseError, TestRunner},
};
use tokio::runtime::Runtime;

/// JSON that DynamoDB gives back as it was: no fraction that is a whole number, no member without a name.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-100_000i32..100_000).prop_map(|n| json!(f64::from(n) + 0.5)),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    prop::collection::btree_map(".{1,8}", value, 0..4).prop_map(|members| members.into_iter().collect())
}

/// Attributes that some other program has added to a row, in typed JSON.
fn foreign_attributes() -> impl Strategy<Value = Row> {
    let value = prop_oneof![
        ".{0,12}".prop_map(rows::s),
        any::<i64>().prop_map(rows::n),
        any::<bool>().prop_map(rows::truth),
        Just(rows::null()),
        Just(json!({ "L": [{ "S": "a" }, { "N": "1" }] })),
        Just(json!({ "M": { "a": { "M": {} } } })),
        Just(json!({ "SS": ["a", "b"] })),
    ];
    prop::collection::btree_map("x_[a-z#. ]{1,10}", value, 1..4).prop_map(|members| members.into_iter().collect())
}

fn check<S: Strategy>(strategy: S, test: impl Fn(&Runtime, &Table, S::Value) -> Result<(), TestCaseError>) {
    let runtime = Runtime::new().unwrap();
    let table = runtime.block_on(Table::without_stream());
    let cases = Cases { cases: 48, failure_persistence: None, ..Cases::default() };
    TestRunner::new(cases).run(&strategy, |value| test(&runtime, &table, value)).unwrap();
}

fn some_ledger(runtime: &Runtime, store: &Store) -> Address {
    let name = format!("db-{}", Call::fresh().request_id);
    let address = at(&name);
    runtime.block_on(store.create_ledger(&Call::fresh(), &address, Some(&new_head(1)), None)).unwrap().applied();
    address
}

#[test]
fn a_status_comes_back_as_it_was_pushed() {
    check((".{1,20}", members(json_value())), |runtime, table, (state, mut meta)| {
        meta.retain(|name, _| !name.ends_with("_lock") && name != "state");
        prop_assume!(!state.trim().is_empty());
        let db = some_ledger(runtime, &table.store);
        let new = Status::new(2, StatusPayload { state, meta });
        let pushed = cas(status(1, "ready"), new.clone());
        let outcome = runtime.block_on(table.store.push_status(&Call::fresh(), &db, &pushed)).unwrap();
        prop_assert_eq!(outcome, updated(new.clone()));
        prop_assert_eq!(runtime.block_on(table.store.status(&db)).unwrap(), Some(new.clone()));
        let pushed = cas(new, status(3, "ready"));
        let outcome = runtime.block_on(table.store.push_status(&Call::fresh(), &db, &pushed)).unwrap();
        prop_assert_eq!(outcome, updated(status(3, "ready")), "what was read can be expected");
        Ok(())
    });
}

#[test]
fn a_ledgers_config_comes_back_as_it_was_pushed() {
    check((any::<Option<i64>>(), members(json_value())), |runtime, table, (context, mut members)| {
        members.remove("default_context_id");
        if let Some(n) = context {
            members.insert("default_context_id".into(), cid(n).as_str().into());
        }
        let db = some_ledger(runtime, &table.store);
        let new = Config::new(1, Value::Object(members));
        let pushed = cas(Config::unborn(), new.clone());
        let outcome = runtime.block_on(table.store.push_config(&Call::fresh(), &db, &pushed)).unwrap();
        prop_assert_eq!(outcome, updated(new.clone()));
        prop_assert_eq!(runtime.block_on(table.store.config(&db)).unwrap(), Some(new.clone()));
        let pushed = cas(new, Config::new(2, json!({})));
        let outcome = runtime.block_on(table.store.push_config(&Call::fresh(), &db, &pushed)).unwrap();
        prop_assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{:?}", outcome);
        Ok(())
    });
}

#[test]
fn a_graph_sources_config_comes_back_as_it_was_published() {
    check(members(json_value()), |runtime, table, config| {
        let address = at(&format!("gs-{}", Call::fresh().request_id));
        let publication = bm25(&address, Value::Object(config.clone()), &[]);
        let outcome = runtime.block_on(table.store.publish_graph_source(&Call::fresh(), &publication));
        prop_assert!(matches!(outcome, Ok(Published::Created(_))), "{:?}", outcome);
        let stored = runtime.block_on(table.store.config(&address)).unwrap();
        prop_assert_eq!(stored, Some(Config::new(1, Value::Object(config))));
        Ok(())
    });
}

#[test]
fn attributes_of_others_survive_every_update() {
    check(foreign_attributes(), |runtime, table, foreign| {
        let (store, db) = (&table.store, some_ledger(runtime, &table.store));
        runtime.block_on(async {
            for sk in ["meta", "head", "index", "status", "config"] {
                for (name, value) in &foreign {
                    table.set(db.as_str(), sk, name, value.clone()).await;
                }
            }
            let call = Call::fresh;
            store.push_head(&call(), &db, &older(head(2))).await.unwrap().applied();
            store.push_index(&call(), &db, &older(index(2))).await.unwrap().applied();
            let again = index_of(7, 2);
            store.push_index(&call(), &db, &cas(index_at(2, 0), again)).await.unwrap().applied();
            let pushed = cas(status(1, "ready"), status_with(2, "syncing", json!({ "a": 1 })));
            store.push_status(&call(), &db, &pushed).await.unwrap().applied();
            store
                .push_config(&call(), &db, &cas(Config::unborn(), Config::new(1, json!({ "a": 1 }))))
                .await
                .unwrap()
                .applied();
            let branch = db.with_branch("dev").unwrap();
            store.create_branch(&call(), &branch, &db, None).await.unwrap().applied();
            store.drop_branch(&call(), &branch).await.unwrap().applied();
            store.retract(&call(), &db, Some("why")).await.unwrap().applied();
            store.restore(&call(), &db).await.unwrap().applied();
            let to = to_head(1);
            store.reset_head(&call(), &db, &to).await.unwrap().applied();
        });
        let rows = runtime.block_on(table.rows(db.as_str()));
        for sk in ["meta", "head", "index", "status", "config"] {
            for (name, value) in &foreign {
                prop_assert_eq!(rows[sk].get(name), Some(value), "{} {}", sk, name);
            }
        }
        Ok(())
    });
}
