//! What holds for any payload and any foreign attribute.

use nameservice_tests::prelude::*;
use proptest::{
    prelude::*,
    test_runner::{Config as Cases, RngSeed, TestCaseError, TestRunner},
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
    let table = runtime.block_on(Table::fresh());
    let seed = match Cases::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => 1,
    };
    let cases = Cases { cases: 48, failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Cases::default() };
    let checked = TestRunner::new(cases).run(&strategy, |value| test(&runtime, &table, value));
    checked.unwrap_or_else(|error| panic!("PROPTEST_RNG_SEED={seed}: {error}"));
}

fn some_ledger(runtime: &Runtime, store: &Store) -> Address {
    let name = format!("db-{}", Call::fresh().request_id);
    let address = at(&name);
    runtime.block_on(store.create_ledger(&Call::fresh(), &address, Some(&new_head(1)), None)).unwrap().applied();
    address
}

#[test]
fn a_status_is_read_as_it_was_pushed() {
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
fn a_ledgers_config_is_read_as_it_was_pushed() {
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
fn a_graph_sources_config_is_read_as_it_was_published() {
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

/// What a push is made of, drawn from few values, so that many expected values are right.
struct Drawn<'a>(std::slice::Iter<'a, u8>);

impl Drawn<'_> {
    fn below(&mut self, n: u8) -> i64 {
        i64::from(self.0.next().copied().unwrap_or_default() % n)
    }

    fn index(&mut self) -> NewIndex {
        let new = index_of(self.below(3), 1 + self.below(3));
        match self.below(4) {
            0 => new.with_graph("g", Some(graph(self.below(2), 1 + self.below(3), None))).unwrap(),
            1 => new.with_graph("g", None).unwrap(),
            _ => new,
        }
    }

    fn payload(&mut self) -> Value {
        [json!({}), json!({ "a": 1 }), json!({ "a": 1.0 }), json!({ "a": { "b": [2] } })][self.below(4) as usize]
            .clone()
    }
}

/// Pushes over DynamoDB, whose conditions express what the model decides, and compares the two.
macro_rules! agrees {
    ($store:expr, $db:expr, $read:ident, $push:ident, |$stored:ident| $made:expr) => {{
        let $stored = $store.$read($db).await.unwrap().unwrap();
        let push = $made;
        let decided = push.judge(&$stored);
        let found = match $store.$push(&Call::fresh(), $db, &push).await.unwrap() {
            PushOutcome::Updated { replayed: false, .. } => Judgement::Admissible,
            PushOutcome::Updated { .. } => Judgement::Current,
            PushOutcome::Stale { .. } => Judgement::Stale,
            PushOutcome::Conflict { .. } => Judgement::Conflict,
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(found, decided, "{:?} at {:?}", push, $stored);
        let is_unchanged = $store.$read($db).await.unwrap() == Some($stored);
        prop_assert_eq!(is_unchanged, decided != Judgement::Admissible, "{:?}", push);
    }};
}

#[test]
fn a_push_over_dynamodb_does_what_the_model_decides() {
    check(prop::collection::vec(any::<u8>(), 160), |runtime, table, dice| {
        runtime.block_on(async {
            let (store, drawn) = (&table.store, &mut Drawn(dice.iter()));
            let db = &at(&format!("db-{}", Call::fresh().request_id));
            let head = (drawn.below(2) == 1).then(|| new_head(1));
            store.create_ledger(&Call::fresh(), db, head.as_ref(), None).await.unwrap().applied();
            for _ in 0..12 {
                match drawn.below(4) {
                    0 => agrees!(store, db, head, push_head, |stored| {
                        let new = NewHead::new(cid(drawn.below(3)), 1 + drawn.below(4)).unwrap();
                        match drawn.below(4) {
                            0 => HeadPush::monotonic(new),
                            1 => HeadPush::cas(Head::unborn(), new),
                            2 => HeadPush::cas(Head::new(1 + drawn.below(3), cid(drawn.below(3))), new),
                            _ => HeadPush::cas(stored.clone(), new),
                        }
                    }),
                    1 => agrees!(store, db, index, push_index, |stored| {
                        let new = drawn.index();
                        match drawn.below(5) {
                            0 => IndexPush::monotonic(new),
                            1 => IndexPush::overwrite(new),
                            2 => IndexPush::cas(Index::unborn(), new),
                            3 => IndexPush::cas(index_at(1 + drawn.below(3), drawn.below(2)), new),
                            _ => IndexPush::cas(stored.clone(), new),
                        }
                    }),
                    2 => agrees!(store, db, status, push_status, |stored| {
                        let state = ["ready", "busy"][drawn.below(2) as usize];
                        let new = NewStatus::new(StatusPayload { state: state.into(), meta: object(drawn.payload()) })
                            .unwrap();
                        let expected = match drawn.below(3) {
                            0 => Status::stored(drawn.below(4), None),
                            1 => status_with(1 + drawn.below(3), "ready", drawn.payload()),
                            _ => stored.clone(),
                        };
                        let new = if drawn.below(3) == 0 { new.with_v(1 + drawn.below(4)).unwrap() } else { new };
                        StatusPush::cas(expected, new)
                    }),
                    _ => agrees!(store, db, config, push_config, |stored| {
                        let new = NewConfig::new(object(drawn.payload())).unwrap();
                        let expected = match drawn.below(3) {
                            0 => Config::stored(drawn.below(3), None),
                            1 => Config::stored(drawn.below(3), Some(drawn.payload())),
                            _ => stored.clone(),
                        };
                        let new = if drawn.below(3) == 0 { new.with_v(1 + drawn.below(4)).unwrap() } else { new };
                        ConfigPush::cas(expected, new)
                    }),
                }
            }
            Ok(())
        })
    });
}
