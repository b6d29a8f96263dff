use nameservice_tests::prelude::*;

use super::{Fixture, born, branch, every_backend, found, retracted, source, unborn};

async fn purge(ns: &Fixture, address: &str) -> Purged {
    ns.purge(&Call::fresh(), &at(address)).await.unwrap()
}

#[every_backend]
async fn a_purged_record_leaves_nothing_and_can_be_created_again(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    assert_eq!(purge(ns, "mydb").await, Purged::Purged);
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
    assert_eq!(ns.lookup(&db).await.unwrap(), None);
    assert_eq!(purge(ns, "mydb").await, Purged::Unknown);
    unborn(ns, "mydb").await;
    assert_eq!(found(ns, &db).await.head, Some(Head::unborn()));
}

#[every_backend]
async fn a_retracted_record_can_be_purged(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    assert_eq!(purge(ns, "mydb").await, Purged::Purged);
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
}

#[every_backend]
async fn a_record_with_branches_or_dependents_stays(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    branch(ns, "mydb:dev", &db).await;
    assert_eq!(purge(ns, "mydb").await, Purged::HasDependents);
    assert_eq!(purge(ns, "mydb:dev").await, Purged::Purged);
    assert_eq!(found(ns, &db).await.branches, 0, "its branch is gone");
    source(ns, "search", &["mydb"]).await;
    assert_eq!(purge(ns, "mydb").await, Purged::HasDependents);
    assert_eq!(purge(ns, "search").await, Purged::Purged);
    assert_eq!(found(ns, &db).await.dependents, 0);
    assert_eq!(ns.dependents(&db).await.unwrap(), []);
    assert_eq!(purge(ns, "mydb").await, Purged::Purged);
    assert_eq!(ns.snapshot(at_most(10), None, &anything).await.unwrap().items, []);
}
