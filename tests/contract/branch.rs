use nameservice_tests::prelude::*;

use super::{Fixture, born, branch, every_backend, found, retracted, source, unborn};

async fn create(ns: &Fixture, address: &str, from: &str, commit: Option<&NewHead>) -> BranchCreated {
    ns.create_branch(&Call::fresh(), &at(address), &at(from), commit).await.unwrap()
}

#[every_backend]
async fn a_branch_starts_at_its_sources_head_and_is_counted(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    let outcome = create(ns, "mydb:dev", "mydb", None).await;
    let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(ns, &at("mydb:dev")).await);
    assert_eq!((record.head, record.source_branch.as_deref()), (Some(head(5)), Some("main")));
    assert_eq!((record.index, record.status), (Index::unborn(), status(1, "ready")));
    assert_eq!(found(ns, &db).await.branches, 1);
    create(ns, "mydb:dev2", "mydb", None).await.applied();
    create(ns, "mydb:dev3", "mydb:dev", None).await.applied();
    assert_eq!(found(ns, &db).await.branches, 2);
    assert_eq!(found(ns, &at("mydb:dev")).await.branches, 1);
}

#[every_backend]
async fn a_branch_can_start_at_a_given_commit(ns: &Fixture) {
    born(ns, "mydb", 5).await;
    let outcome = create(ns, "mydb:dev", "mydb", Some(&new_head(3))).await;
    let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(head(3)));
}

#[every_backend]
async fn a_branch_that_exists_is_not_counted_again(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    branch(ns, "mydb:dev", &db).await;
    assert_eq!(create(ns, "mydb:dev", "mydb", None).await, BranchCreated::AlreadyExists);
    assert_eq!(found(ns, &db).await.branches, 1);
}

#[every_backend]
async fn a_call_that_arrives_twice_counts_once(ns: &Fixture) {
    let (db, call) = (born(ns, "mydb", 5).await, Call::fresh());
    for _ in 0..2 {
        let outcome = ns.create_branch(&call, &at("mydb:dev"), &db, None).await.unwrap();
        assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    }
    assert_eq!(found(ns, &db).await.branches, 1);
}

#[every_backend]
async fn an_unknown_retracted_or_foreign_source_is_unknown(ns: &Fixture) {
    assert_eq!(create(ns, "mydb:dev", "mydb", None).await, BranchCreated::UnknownSource);
    let gone = born(ns, "gone", 1).await;
    retracted(ns, &gone).await;
    assert_eq!(create(ns, "gone:dev", "gone", None).await, BranchCreated::UnknownSource);
    source(ns, "search", &[]).await;
    assert_eq!(create(ns, "search:dev", "search", None).await, BranchCreated::UnknownSource);
    for pk in ["mydb:dev", "gone:dev", "search:dev"] {
        assert_eq!(ns.lookup(&at(pk)).await.unwrap(), None, "{pk}");
    }
}

#[every_backend]
async fn an_unborn_source_has_nothing_to_start_from(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(create(ns, "mydb:dev", "mydb", None).await, BranchCreated::UnbornSource);
    assert_eq!(found(ns, &db).await.branches, 0);
}

#[every_backend]
async fn a_dropped_branch_is_gone_and_uncounted(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    for name in ["mydb:a", "mydb:b"] {
        branch(ns, name, &db).await;
    }
    let drop = async |address: &str| ns.drop_branch(&Call::fresh(), &at(address)).await.unwrap();
    assert_eq!(drop("mydb:a").await, Dropped::Dropped { parent_branches: 1 });
    assert_eq!(drop("mydb:b").await, Dropped::Dropped { parent_branches: 0 });
    assert_eq!(drop("mydb:b").await, Dropped::Unknown);
    assert_eq!(ns.lookup(&at("mydb:a")).await.unwrap(), None);
    assert_eq!(found(ns, &db).await.branches, 0);
    assert_eq!(ns.lookup(&at("mydb:a")).await.unwrap(), None);
}

#[every_backend]
async fn a_branch_with_branches_and_what_is_no_branch_are_not_dropped(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    let a = branch(ns, "mydb:a", &db).await;
    branch(ns, "mydb:b", &a).await;
    assert_eq!(ns.drop_branch(&Call::fresh(), &a).await.unwrap(), Dropped::HasDependents);
    assert_eq!(found(ns, &db).await.branches, 1);
    let lone = born(ns, "lone", 1).await;
    assert_eq!(ns.drop_branch(&Call::fresh(), &lone).await.unwrap(), Dropped::NotABranch);
    assert_eq!(ns.drop_branch(&Call::fresh(), &at("nobody:dev")).await.unwrap(), Dropped::Unknown);
}
