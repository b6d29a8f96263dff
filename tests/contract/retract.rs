use nameservice_tests::prelude::*;

use super::{Fixture, born, branch, every_backend, found, retracted, source, unborn};

#[every_backend]
async fn a_retracted_record_keeps_its_data_and_says_why(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    let outcome = ns.retract(&Call::fresh(), &db, Some("moved away")).await.unwrap();
    let Retracted::Retracted(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(ns, &db).await);
    assert!(record.retracted);
    assert_eq!(record.head, Some(head(3)), "its data stays");
    assert_eq!(record.status.v, 2);
    let payload = record.status.payload.unwrap();
    assert_eq!((payload.state.as_str(), &payload.meta["reason"]), ("retracted", &json!("moved away")));
    assert!(!payload.meta["retracted_at"].is_null());
}

#[every_backend]
async fn retracting_twice_answers_already(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    let outcome = ns.retract(&Call::fresh(), &db, None).await.unwrap();
    let Retracted::Already(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.status.v, 2, "nothing was written");
}

#[every_backend]
async fn an_unknown_record_is_unknown_and_stays_so(ns: &Fixture) {
    assert_eq!(ns.retract(&Call::fresh(), &at("mydb"), None).await.unwrap(), Retracted::Unknown);
    assert_eq!(ns.restore(&Call::fresh(), &at("mydb")).await.unwrap(), Restored::Unknown);
    assert_eq!(ns.lookup(&at("mydb")).await.unwrap(), None);
}

#[every_backend]
async fn a_record_with_branches_or_dependents_stays_and_names_them(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    branch(ns, "mydb:dev", &db).await;
    assert_eq!(ns.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::HasDependents);
    source(ns, "search", &["mydb"]).await;
    let dependents = ns.dependents(&db).await.unwrap();
    assert!(dependents.contains(&at("search")) && dependents.contains(&at("mydb:dev")), "{dependents:?}");
    ns.drop_branch(&Call::fresh(), &at("mydb:dev")).await.unwrap().applied();
    assert_eq!(ns.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::HasDependents);
    assert_eq!(ns.dependents(&db).await.unwrap(), [at("search")]);
    retracted(ns, &at("search")).await;
    let outcome = ns.retract(&Call::fresh(), &db, None).await.unwrap();
    assert_eq!(outcome, Retracted::HasDependents, "a retracted dependent can be restored, so it still counts");
    assert_eq!(ns.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
    retracted(ns, &db).await;
}

#[every_backend]
async fn a_restored_record_is_live_ready_and_takes_pushes(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    retracted(ns, &db).await;
    let outcome = ns.restore(&Call::fresh(), &db).await.unwrap();
    let Restored::Restored(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(ns, &db).await);
    assert!(!record.retracted);
    assert_eq!(record.status, status(3, "ready"));
    assert_eq!(ns.push_head(&Call::fresh(), &db, &older(head(4))).await.unwrap(), updated(head(4)));
    assert_eq!(ns.push_index(&Call::fresh(), &db, &older(index(4))).await.unwrap(), updated(index_at(4, 0)));
    let config = Config::new(1, json!({ "a": 1 }));
    let outcome = ns.push_config(&Call::fresh(), &db, &cas(Config::unborn(), config.clone())).await.unwrap();
    assert_eq!(outcome, updated(config));
    let outcome = ns.push_status(&Call::fresh(), &db, &cas(status(3, "ready"), status(4, "x"))).await.unwrap();
    assert_eq!(outcome, updated(status(4, "x")));
}

#[every_backend]
async fn restoring_a_live_record_changes_nothing(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let outcome = ns.restore(&Call::fresh(), &db).await.unwrap();
    let Restored::NotRetracted(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.status, status(1, "ready"));
}

#[every_backend]
async fn a_graph_source_is_retracted_and_restored_alike(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    retracted(ns, &search).await;
    assert!(found(ns, &search).await.retracted);
    let pushed = ns.push_index(&Call::fresh(), &search, &older(index(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    let outcome = ns.restore(&Call::fresh(), &search).await.unwrap();
    assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    assert_eq!(found(ns, &search).await.head, None, "a graph source has no head");
}
