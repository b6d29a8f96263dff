use nameservice_tests::prelude::*;

use crate::contract::{found, retracted};

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

#[tokio::test]
async fn a_ghost_is_unknown_and_stays_as_it_was() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    assert_eq!(table.store.retract(&Call::fresh(), &at("mydb"), None).await.unwrap(), Retracted::Unknown);
    assert_eq!(table.store.restore(&Call::fresh(), &at("mydb")).await.unwrap(), Restored::Unknown);
    assert_eq!(table.rows("mydb:main").await.len(), 1);
}
