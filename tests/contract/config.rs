use nameservice_tests::prelude::*;

use super::{Fixture, every_backend, found, retracted, source, unborn};

async fn push(ns: &Fixture, db: &Address, expected: Config, new: Config) -> PushOutcome<Value> {
    ns.push_config(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

fn context(n: i64) -> Value {
    json!({ "default_context_id": cid(n).as_str() })
}

#[every_backend]
async fn the_expected_config_is_replaced(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let one = Config::new(1, json!({ "default_context_id": cid(1).as_str(), "a": [1, { "b": null }] }));
    assert_eq!(push(ns, &db, Config::unborn(), one.clone()).await, updated(one.clone()));
    assert_eq!(ns.config(&db).await.unwrap(), Some(one.clone()));

    let two = Config::new(2, json!({ "c": "only" }));
    assert_eq!(push(ns, &db, one, two.clone()).await, updated(two.clone()));
    assert_eq!(found(ns, &db).await.config, two);
}

#[every_backend]
async fn another_watermark_or_payload_is_a_conflict_that_shows_it(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let there = Config::new(2, json!({ "default_context_id": cid(1).as_str(), "a": 1 }));
    push(ns, &db, Config::unborn(), there.clone()).await.applied();
    for expected in [
        Config::unborn(),
        Config::stored(1, None),
        Config::new(3, there.payload.clone().unwrap()),
        Config::new(2, json!({ "default_context_id": cid(1).as_str(), "a": 2 })),
        Config::new(2, json!({ "default_context_id": cid(2).as_str(), "a": 1 })),
        Config::new(2, json!({ "a": 1 })),
    ] {
        let outcome = push(ns, &db, expected.clone(), Config::new(9, json!({}))).await;
        assert_eq!(outcome, conflict(there.clone()), "{expected:?}");
    }
    for v in [1, 2] {
        let outcome = push(ns, &db, there.clone(), Config::new(v, json!({}))).await;
        assert_eq!(outcome, conflict(there.clone()), "the watermark must grow");
    }
    let watermark = Config::stored(2, None);
    let new = Config::new(3, json!({ "a": 2 }));
    assert_eq!(push(ns, &db, watermark, new.clone()).await, updated(new));
}

#[every_backend]
async fn an_unknown_record_is_unknown_and_stays_so(ns: &Fixture) {
    let outcome = push(ns, &at("mydb"), Config::unborn(), Config::new(1, context(1))).await;
    assert_eq!(outcome, PushOutcome::Unknown);
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
}

#[every_backend]
async fn a_retracted_record_takes_no_config(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    let outcome = push(ns, &db, Config::unborn(), Config::new(1, context(1))).await;
    assert_eq!(outcome, PushOutcome::Retracted);
}

#[every_backend]
async fn a_graph_source_keeps_its_config_for_itself(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    for expected in [Config::stored(1, None), Config::new(1, json!({ "k1": 1.2 })), Config::unborn()] {
        let outcome = push(ns, &search, expected, Config::new(2, context(1))).await;
        assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    }
    assert_eq!(ns.config(&search).await.unwrap(), Some(Config::new(1, json!({ "k1": 1.2 }))));
}

#[every_backend]
async fn a_config_push_that_arrives_again_after_others_wrote_is_updated_and_applies_once(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let at = |v: i64| Config::new(v, json!({ "default_context_id": cid(v).as_str(), "n": v }));
    let (call, pushed) = (Call::fresh(), cas(Config::unborn(), at(1)));
    assert_eq!(ns.push_config(&call, &db, &pushed).await.unwrap(), updated(at(1)));
    for v in 2..=4 {
        assert_eq!(push(ns, &db, at(v - 1), at(v)).await, updated(at(v)));
    }
    assert_eq!(ns.push_config(&call, &db, &pushed).await.unwrap(), replayed(at(1)), "the value that was written");
    assert_eq!(ns.config(&db).await.unwrap(), Some(at(4)));
}
