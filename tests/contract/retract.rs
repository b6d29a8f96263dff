use nameservice_tests::{layout, prelude::*};

use super::{born, branch, found, retracted, source, unborn};

#[tokio::test]
async fn a_retracted_record_is_marked_everywhere_and_says_why() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 3).await;
    let outcome = table.store.retract(&Call::fresh(), &db, Some("moved away")).await.unwrap();
    let Retracted::Retracted(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(&table.store, &db).await);
    assert!(record.retracted);
    assert_eq!(record.head, Some(head(3)), "its data stays");
    assert_eq!(record.status.v, 2);
    let payload = record.status.payload.unwrap();
    assert_eq!((payload.state.as_str(), &payload.meta["reason"]), ("retracted", &json!("moved away")));
    assert!(!payload.meta["retracted_at"].is_null());
    let rows = table.rows("mydb:main").await;
    layout::assert_ours(rows.values());
    for sk in ["meta", "head", "index", "config"] {
        assert_eq!(rows[sk]["retracted"], rows::truth(true), "{sk}");
    }
}

#[tokio::test]
async fn retracting_twice_answers_already() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    retracted(&table.store, &db).await;
    let outcome = table.store.retract(&Call::fresh(), &db, None).await.unwrap();
    let Retracted::Already(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.status.v, 2, "nothing was written");
}

#[tokio::test]
async fn an_unknown_record_is_unknown_and_stays_so() {
    let table = Table::fresh().await;
    assert_eq!(table.store.retract(&Call::fresh(), &at("mydb"), None).await.unwrap(), Retracted::Unknown);
    assert_eq!(table.store.restore(&Call::fresh(), &at("mydb")).await.unwrap(), Restored::Unknown);
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    assert_eq!(table.store.retract(&Call::fresh(), &at("mydb"), None).await.unwrap(), Retracted::Unknown);
    assert_eq!(table.store.restore(&Call::fresh(), &at("mydb")).await.unwrap(), Restored::Unknown);
    assert_eq!(table.rows("mydb:main").await.len(), 1);
}

#[tokio::test]
async fn a_record_with_branches_or_dependents_stays_and_names_them() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 3).await);
    branch(store, "mydb:dev", &db).await;
    assert_eq!(store.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::HasDependents);
    source(store, "search", &["mydb"]).await;
    let dependents = store.dependents(&db).await.unwrap();
    assert!(dependents.contains(&at("search")) && dependents.contains(&at("mydb:dev")), "{dependents:?}");
    store.drop_branch(&Call::fresh(), &at("mydb:dev")).await.unwrap();
    assert_eq!(store.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::HasDependents);
    assert_eq!(store.dependents(&db).await.unwrap(), [at("search")]);
    retracted(store, &at("search")).await;
    let outcome = store.retract(&Call::fresh(), &db, None).await.unwrap();
    assert_eq!(outcome, Retracted::HasDependents, "a retracted dependent can be restored, so it still counts");
    assert_eq!(store.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
    retracted(store, &db).await;
}

#[tokio::test]
async fn a_restored_record_is_live_ready_and_takes_pushes() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 3).await);
    retracted(store, &db).await;
    let outcome = store.restore(&Call::fresh(), &db).await.unwrap();
    let Restored::Restored(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(store, &db).await);
    assert!(!record.retracted);
    assert_eq!(record.status, status(3, "ready"));
    assert_eq!(store.push_head(&Call::fresh(), &db, &older(head(4))).await.unwrap(), updated(head(4)));
    assert_eq!(store.push_index(&Call::fresh(), &db, &older(index(4))).await.unwrap(), updated(index_at(4, 0)));
    let config = Config::new(1, json!({ "a": 1 }));
    let outcome = store.push_config(&Call::fresh(), &db, &cas(Config::unborn(), config.clone())).await.unwrap();
    assert_eq!(outcome, updated(config));
    let outcome = store.push_status(&Call::fresh(), &db, &cas(status(3, "ready"), status(4, "x"))).await.unwrap();
    assert_eq!(outcome, updated(status(4, "x")));
    layout::assert_ours(table.rows("mydb:main").await.values());
}

#[tokio::test]
async fn restoring_a_live_record_changes_nothing() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let outcome = table.store.restore(&Call::fresh(), &db).await.unwrap();
    let Restored::NotRetracted(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.status, status(1, "ready"));
}

#[tokio::test]
async fn a_graph_source_is_retracted_and_restored_alike() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    retracted(&table.store, &search).await;
    assert!(found(&table.store, &search).await.retracted);
    let pushed = table.store.push_index(&Call::fresh(), &search, &older(index(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    let outcome = table.store.restore(&Call::fresh(), &search).await.unwrap();
    assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    assert!(table.row("search:main", "head").await.is_none(), "a graph source has no head");
    layout::assert_ours(table.rows("search:main").await.values());
}

#[tokio::test]
async fn flurees_retraction_is_read_and_restored() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(1), 1).rows()).await;
    Fluree::on(&table).retract("mydb:main").await;
    let db = at("mydb");
    assert!(found(&table.store, &db).await.retracted);
    let outcome = table.store.restore(&Call::fresh(), &db).await.unwrap();
    assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    assert!(!found(&table.store, &db).await.retracted);
}

#[tokio::test]
async fn a_record_of_which_only_the_meta_is_left_is_retracted_and_restored() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let db = at("mydb");
    retracted(&table.store, &db).await;
    let record = found(&table.store, &db).await;
    assert!(record.retracted);
    assert_eq!(record.status.payload.unwrap().state, "retracted");
    let pushed = table.store.push_head(&Call::fresh(), &db, &older(head(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    let outcome = table.store.restore(&Call::fresh(), &db).await.unwrap();
    assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    assert_eq!(found(&table.store, &db).await.head, Some(Head::unborn()));
}
