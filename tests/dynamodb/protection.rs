use nameservice_tests::prelude::*;

use crate::contract::{born, found};

#[tokio::test]
async fn a_protection_is_one_conditional_write_in_every_outcome() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 3).await;
    for (address, protected, outcome) in [
        (&db, false, Protection::Already),
        (&db, true, Protection::Set),
        (&db, true, Protection::Already),
        (&db, false, Protection::Set),
        (&at("nobody"), true, Protection::Unknown),
        (&at("nobody"), false, Protection::Unknown),
    ] {
        table.proxy.take_operations();
        assert_eq!(table.store.protect(&Call::fresh(), address, protected).await.unwrap(), outcome);
        assert_eq!(table.proxy.take_operations(), ["UpdateItem"], "{outcome:?}");
    }
    assert!(table.rows("nobody:main").await.is_empty());
}

#[tokio::test]
async fn what_the_mark_rejects_costs_a_read_or_two() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 3).await;
    assert_eq!(table.direct().protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set);
    table.proxy.take_operations();
    assert_eq!(table.store.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::Protected);
    assert_eq!(table.proxy.take_operations(), ["Query"]);
    // The record may be a later one than that which this call has purged before: the memory of the address says so.
    assert_eq!(table.store.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected);
    assert_eq!(table.proxy.take_operations(), ["Query", "GetItem"]);
}

#[tokio::test]
async fn a_mark_that_is_set_after_the_record_was_read_still_rejects() {
    let table = Proxied::fresh().await;
    for retract in [true, false] {
        let db = born(table.direct(), &format!("mydb{retract}"), 3).await;
        let (direct, address) = (table.direct().clone(), db.clone());
        // Between the read of the record and the transaction.
        let protect = move || {
            let (direct, address) = (direct.clone(), address.clone());
            async move {
                assert_eq!(direct.protect(&Call::fresh(), &address, true).await.unwrap(), Protection::Set);
            }
        };
        table.proxy.on("TransactWriteItems", Fault::none().before(protect));
        match retract {
            true => {
                let outcome = table.store.retract(&Call::fresh(), &db, None).await.unwrap();
                assert_eq!(outcome, Retracted::Protected);
            }
            false => assert_eq!(table.store.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected),
        }
        let record = found(table.direct(), &db).await;
        assert!(record.protected && !record.retracted);
    }
}

#[tokio::test]
async fn a_protection_whose_answer_is_lost_is_set_and_says_so() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 3).await;
    for protected in [true, false] {
        table.proxy.on_writes(Fault::cut_reply());
        assert_eq!(table.store.protect(&Call::fresh(), &db, protected).await.unwrap(), Protection::Set);
        assert_eq!(found(table.direct(), &db).await.protected, protected);
    }
}

#[tokio::test]
async fn flurees_own_retraction_is_not_stopped_and_keeps_the_mark() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 3).await;
    assert_eq!(table.store.protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set);
    Fluree::on(&table).retract("mydb:main").await;
    let record = found(&table.store, &db).await;
    assert!(record.retracted && record.protected);
    assert_eq!(table.store.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected);
}
