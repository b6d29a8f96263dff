use nameservice_tests::prelude::*;

use super::{Fixture, every_backend, found, retracted, source, unborn};

#[every_backend]
async fn a_new_ledger_is_live_unborn_and_ready(ns: &Fixture) {
    let db = at("tenant/a/mydb:feature.x");
    let Created::Created(record) = ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap() else {
        panic!("not created")
    };
    assert_eq!(*record, found(ns, &db).await);
    assert_eq!((record.kind, record.retracted, record.branches, record.dependents), (RecordKind::Ledger, false, 0, 0));
    assert_eq!(record.address, db);
    assert_eq!(record.head, Some(Head::unborn()));
    assert_eq!(record.index, Index::unborn());
    assert_eq!(record.status, status(1, "ready"));
    assert_eq!(record.config, Config::unborn());
    assert!(record.created_at.is_some());
    assert_eq!((record.source_branch, record.source_type, record.dependencies), (None, None, vec![]));
}

#[every_backend(AnyAddress)]
async fn a_branch_may_have_segments(ns: &Fixture) {
    let db = unborn(ns, "tenant/a/mydb:feature/x").await;
    assert_eq!(found(ns, &db).await.address, db);
}

#[every_backend]
async fn a_head_and_a_config_can_be_given_along(ns: &Fixture) {
    let db = at("mydb");
    let config = json!({ "default_context_id": cid(9).as_str(), "theme": { "dark": true } });
    let outcome =
        ns.create_ledger(&Call::fresh(), &db, Some(&new_head(7)), Some(&new_config(config.clone()))).await.unwrap();
    let Created::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(head(7)));
    assert_eq!(record.config, Config::new(1, config));
    assert_eq!(*record, found(ns, &db).await);
}

#[every_backend]
async fn creating_twice_answers_already_exists_and_changes_nothing(ns: &Fixture) {
    let db = at("mydb");
    ns.create_ledger(&Call::fresh(), &db, Some(&new_head(3)), None).await.unwrap().applied();
    let before = found(ns, &db).await;
    let again = ns.create_ledger(&Call::fresh(), &db, Some(&new_head(1)), None).await.unwrap();
    assert_eq!(again, Created::AlreadyExists);
    assert_eq!(found(ns, &db).await, before);
}

#[every_backend]
async fn a_call_that_arrives_twice_creates_once_and_answers_created_twice(ns: &Fixture) {
    let (db, call) = (at("mydb"), Call::fresh());
    let one = ns.create_ledger(&call, &db, Some(&new_head(3)), None).await.unwrap();
    let two = ns.create_ledger(&call, &db, Some(&new_head(3)), None).await.unwrap();
    assert!(matches!(one, Created::Created(_)));
    assert!(matches!(two, Created::Created(_)), "{two:?}");
}

#[every_backend]
async fn a_retracted_ledger_still_exists(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    let outcome = ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    assert_eq!(outcome, Created::AlreadyExists);
}

#[every_backend]
async fn a_graph_source_of_the_same_address_already_exists(ns: &Fixture) {
    let address = source(ns, "search", &[]).await;
    let outcome = ns.create_ledger(&Call::fresh(), &address, None, None).await.unwrap();
    assert_eq!(outcome, Created::AlreadyExists);
}

#[every_backend]
async fn unknown_records_are_none_everywhere(ns: &Fixture) {
    let (ns, nobody) = (ns, at("nobody"));
    assert_eq!(ns.lookup(&nobody).await.unwrap(), None);
    assert_eq!(ns.graph_source(&nobody).await.unwrap(), None);
    assert_eq!(ns.head(&nobody).await.unwrap(), None);
    assert_eq!(ns.index(&nobody).await.unwrap(), None);
    assert_eq!(ns.status(&nobody).await.unwrap(), None);
    assert_eq!(ns.config(&nobody).await.unwrap(), None);
    assert_eq!(ns.dependents(&nobody).await.unwrap(), []);
}
