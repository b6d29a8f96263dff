//! Protected records: what would lose them, and nothing else, is rejected until the mark is removed.

use nameservice_tests::prelude::*;

use super::{Fixture, born, branch, every_backend, found, retracted, source, unborn};

async fn protect(ns: &Fixture, address: &Address) {
    assert_eq!(ns.protect(&Call::fresh(), address, true).await.unwrap(), Protection::Set);
    assert!(found(ns, address).await.protected);
}

async fn unprotect(ns: &Fixture, address: &Address) {
    assert_eq!(ns.protect(&Call::fresh(), address, false).await.unwrap(), Protection::Set);
    assert!(!found(ns, address).await.protected);
}

fn to_head(t: i64) -> ResetTo {
    ResetTo::new(Some(new_head(t)), None).unwrap()
}

#[every_backend]
async fn a_protected_record_is_not_retracted_purged_or_reset_until_it_is_unprotected(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    assert!(!found(ns, &db).await.protected, "a new record is not protected");
    protect(ns, &db).await;
    let before = found(ns, &db).await;
    assert_eq!(ns.retract(&Call::fresh(), &db, Some("gone")).await.unwrap(), Retracted::Protected);
    assert_eq!(ns.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected);
    assert_eq!(ns.reset_head(&Call::fresh(), &db, &to_head(1)).await.unwrap(), Reset::Protected);
    assert_eq!(found(ns, &db).await, before, "nothing was written");
    unprotect(ns, &db).await;
    ns.reset_head(&Call::fresh(), &db, &to_head(1)).await.unwrap().applied();
    retracted(ns, &db).await;
    assert_eq!(ns.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
    unborn(ns, "mydb").await;
    assert!(!found(ns, &db).await.protected, "its next life begins without the mark");
}

#[every_backend]
async fn a_protected_branch_is_not_dropped(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    let dev = branch(ns, "mydb:dev", &db).await;
    assert!(!found(ns, &dev).await.protected);
    protect(ns, &dev).await;
    assert_eq!(ns.drop_branch(&Call::fresh(), &dev).await.unwrap(), Dropped::Protected);
    assert_eq!(found(ns, &db).await.branches, 1);
    unprotect(ns, &dev).await;
    ns.drop_branch(&Call::fresh(), &dev).await.unwrap().applied();
    assert_eq!(found(ns, &db).await.branches, 0);
}

#[every_backend]
async fn a_branch_of_a_protected_ledger_is_not_protected_itself(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    protect(ns, &db).await;
    let dev = branch(ns, "mydb:dev", &db).await;
    assert!(!found(ns, &dev).await.protected);
    assert!(found(ns, &db).await.protected, "counting a branch keeps the mark");
    assert_eq!(ns.purge(&Call::fresh(), &dev).await.unwrap(), Purged::Purged);
    assert!(found(ns, &db).await.protected, "and so does counting it out");
}

#[every_backend]
async fn protecting_twice_and_unprotecting_what_is_not_protected_change_nothing(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    let before = found(ns, &db).await;
    assert_eq!(ns.protect(&Call::fresh(), &db, false).await.unwrap(), Protection::Already);
    assert_eq!(found(ns, &db).await, before);
    protect(ns, &db).await;
    let before = found(ns, &db).await;
    assert_eq!(ns.protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Already);
    assert_eq!(found(ns, &db).await, before);
}

#[every_backend]
async fn an_unknown_record_cannot_be_protected_and_stays_unknown(ns: &Fixture) {
    for protected in [true, false] {
        assert_eq!(ns.protect(&Call::fresh(), &at("mydb"), protected).await.unwrap(), Protection::Unknown);
    }
    assert_eq!(ns.lookup(&at("mydb")).await.unwrap(), None);
    let db = unborn(ns, "mydb").await;
    assert!(!found(ns, &db).await.protected);
}

#[every_backend]
async fn a_protected_record_takes_every_push_and_keeps_its_mark(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    protect(ns, &db).await;
    assert_eq!(ns.push_head(&Call::fresh(), &db, &older(head(4))).await.unwrap(), updated(head(4)));
    assert_eq!(ns.push_index(&Call::fresh(), &db, &older(index(4))).await.unwrap(), updated(index_at(4, 0)));
    let config = Config::new(1, json!({ "a": 1 }));
    let outcome = ns.push_config(&Call::fresh(), &db, &cas(Config::unborn(), config.clone())).await.unwrap();
    assert_eq!(outcome, updated(config));
    let outcome = ns.push_status(&Call::fresh(), &db, &cas(status(1, "ready"), status(2, "x"))).await.unwrap();
    assert_eq!(outcome, updated(status(2, "x")));
    let record = found(ns, &db).await;
    assert!(record.protected);
    assert_eq!(record.head, Some(head(4)));
}

#[every_backend]
async fn a_retracted_record_can_be_protected_from_its_purge_and_be_restored(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    retracted(ns, &db).await;
    protect(ns, &db).await;
    assert_eq!(ns.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected);
    let outcome = ns.retract(&Call::fresh(), &db, None).await.unwrap();
    assert!(matches!(outcome, Retracted::Already(_)), "{outcome:?}");
    let outcome = ns.restore(&Call::fresh(), &db).await.unwrap();
    assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    assert!(found(ns, &db).await.protected, "the restoration keeps the mark");
}

#[every_backend]
async fn a_protected_graph_source_is_reconfigured_and_stays(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    protect(ns, &search).await;
    let publication = bm25(&search, json!({ "k1": 2 }), &[]);
    let outcome = ns.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    assert!(found(ns, &search).await.protected);
    assert_eq!(ns.purge(&Call::fresh(), &search).await.unwrap(), Purged::Protected);
    assert_eq!(ns.retract(&Call::fresh(), &search, None).await.unwrap(), Retracted::Protected);
}

#[every_backend(Transactions)]
async fn a_transaction_pushes_to_a_protected_record_and_keeps_its_mark(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    protect(ns, &db).await;
    let operations = [
        super::transactions::push_head("mydb", cas(head(3), head(4))),
        super::transactions::push_status("mydb", 1, status(2, "syncing")),
    ];
    let outcome = ns.commit(&Call::fresh(), &transaction(&operations)).await.unwrap();
    assert!(matches!(outcome, Committed::Committed(_)), "{outcome:?}");
    let record = found(ns, &db).await;
    assert!(record.protected);
    assert_eq!(record.head, Some(head(4)));
}

#[every_backend(AtomicReferences)]
async fn whoever_is_first_of_a_protection_and_a_purge_wins_and_the_other_sees_it(ns: &Fixture) {
    for round in 0..8 {
        let db = born(ns, &format!("db{round}"), 3).await;
        let (call, other) = (Call::fresh(), Call::fresh());
        let (protected, purged) = tokio::join!(ns.protect(&call, &db, true), ns.purge(&other, &db));
        let there = ns.lookup(&db).await.unwrap();
        match (protected.unwrap(), purged.unwrap()) {
            (Protection::Set, Purged::Protected) => assert!(there.is_some_and(|record| record.protected)),
            (Protection::Unknown, Purged::Purged) => assert_eq!(there, None),
            other => panic!("{other:?}"),
        }
    }
}
