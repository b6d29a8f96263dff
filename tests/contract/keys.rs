//! What a repeated call and a reused key are answered with, for every operation and what may have happened in between
//! (docs/specification.md, Answers). Over HTTP a key is made of a whole request: this is about the backends themselves.

use nameservice_tests::{backends::Place, prelude::*};

use super::{Fixture, born, branch, found, run, source};

/// Requests of one caller under one key, distinguished by a number.
fn call(key: u8, n: u8) -> Call {
    Call::with_id(RequestId::from_hashes([key; 16], [n; 8]))
}

/// An operation on a ledger that exists, or creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Create,
    CreateByPush,
    PushHead,
    PushIndex,
    PushStatus,
    PushConfig,
    Commit,
    Retract,
    Restore,
    Reset,
    Protect,
    Unprotect,
    Acquire,
    Refresh,
    Release,
    Purge,
}

/// An item that remembers calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remembers {
    Head,
    Index,
    Status,
    Config,
    Meta,
    Address,
}

impl Op {
    const ALL: [Self; 16] = [
        Self::Create,
        Self::CreateByPush,
        Self::PushHead,
        Self::PushIndex,
        Self::PushStatus,
        Self::PushConfig,
        Self::Commit,
        Self::Retract,
        Self::Restore,
        Self::Reset,
        Self::Protect,
        Self::Unprotect,
        Self::Acquire,
        Self::Refresh,
        Self::Release,
        Self::Purge,
    ];

    /// The items in which it is remembered, and those in which it looks for its key.
    fn items(self) -> &'static [Remembers] {
        use Remembers::*;
        match self {
            Self::Create | Self::CreateByPush => &[Head, Index, Status, Config],
            Self::PushHead => &[Head],
            Self::PushIndex => &[Index],
            Self::PushConfig => &[Config],
            Self::Commit => &[Head, Config],
            Self::PushStatus | Self::Retract | Self::Restore | Self::Acquire | Self::Refresh | Self::Release => {
                &[Status]
            }
            Self::Reset => &[Head, Index],
            Self::Protect | Self::Unprotect => &[Meta],
            Self::Purge => &[Head, Index, Status, Config, Address],
        }
    }

    /// Prepares a ledger for it.
    async fn prepare(self, ns: &Fixture, name: &str) {
        match self {
            Self::Create | Self::CreateByPush => return,
            _ => born(ns, name, 1).await,
        };
        match self {
            Self::Restore => ns.retract(&Call::fresh(), &at(name), None).await.unwrap().applied(),
            Self::Unprotect => assert_eq!(ns.protect(&Call::fresh(), &at(name), true).await.unwrap(), Protection::Set),
            Self::Refresh | Self::Release => {
                ns.acquire_lease(&Call::fresh(), &at(name), &index_lock("me", 60)).await.unwrap().applied();
            }
            _ => {}
        }
    }

    /// Makes it. Returns the outcome, less its values.
    async fn make(self, ns: &Fixture, call: &Call, name: &str) -> Result<String> {
        fn word(outcome: impl std::fmt::Debug) -> String {
            format!("{outcome:?}").split([' ', '(', '{']).next().unwrap().to_owned()
        }
        let address = &at(name);
        let claim = || claim_of(LeaseName::INDEX, "me", 1);
        Ok(match self {
            Self::Create => word(ns.create_ledger(call, address, Some(&new_head(1)), None).await?),
            Self::CreateByPush => word(ns.push_head(call, address, &first(head(1))).await?),
            Self::PushHead => word(ns.push_head(call, address, &older(head(2))).await?),
            Self::PushIndex => word(ns.push_index(call, address, &older(index(1))).await?),
            Self::PushStatus => word(ns.push_status(call, address, &cas(status(1, "ready"), status(2, "busy"))).await?),
            Self::PushConfig => {
                word(ns.push_config(call, address, &cas(Config::unborn(), new_config(json!({ "n": 1 })))).await?)
            }
            Self::Commit => {
                let config = cas(Config::unborn(), new_config(json!({ "n": 1 })));
                let operations =
                    [Operation::new(address.clone(), older(head(2))), Operation::new(address.clone(), config)];
                word(ns.commit(call, &transaction(&operations)).await?)
            }
            Self::Retract => word(ns.retract(call, address, None).await?),
            Self::Restore => word(ns.restore(call, address).await?),
            Self::Reset => word(ns.reset_head(call, address, &ResetTo::new(None, None).unwrap()).await?),
            Self::Protect => word(ns.protect(call, address, true).await?),
            Self::Unprotect => word(ns.protect(call, address, false).await?),
            Self::Acquire => word(ns.acquire_lease(call, address, &index_lock("me", 60)).await?),
            Self::Refresh => word(ns.refresh_lease(call, address, &index_lock("me", 60), 1).await?),
            Self::Release => word(ns.release_lease(call, address, &claim()).await?),
            Self::Purge => word(ns.purge(call, address).await?),
        })
    }
}

/// The records, in the order of their addresses.
async fn records(ns: &Fixture) -> Vec<Record> {
    let mut records = ns.snapshot(at_most(1_000), None, &anything).await.unwrap().items;
    records.sort_by(|a, b| a.address.cmp(&b.address));
    records
}

async fn an_operation_that_is_repeated_is_answered_as_at_first_and_writes_nothing(ns: &Fixture) {
    for op in Op::ALL {
        let name = format!("{op:?}").to_lowercase();
        op.prepare(ns, &name).await;
        let first = op.make(ns, &call(1, 1), &name).await.unwrap();
        let before = records(ns).await;
        assert_eq!(op.make(ns, &call(1, 1), &name).await.unwrap(), first, "{op:?}");
        assert_eq!(records(ns).await, before, "{op:?}");
    }
}

async fn a_key_that_was_used_for_another_request_is_rejected_by_every_operation_on_what_remembers_it(ns: &Fixture) {
    let mut pairs = 0;
    // After a purge there is no record, and no other operation finds what it could be rejected by.
    for one in Op::ALL.into_iter().filter(|op| *op != Op::Purge) {
        for other in Op::ALL {
            if !other.items().iter().any(|item| one.items().contains(item)) {
                continue;
            }
            let name = format!("{one:?}-{other:?}").to_lowercase();
            one.prepare(ns, &name).await;
            one.make(ns, &call(2, 1), &name).await.unwrap();
            let before = found(ns, &at(&name)).await;
            let answer = other.make(ns, &call(2, 2), &name).await;
            assert!(
                matches!(answer, Err(Error::IdempotencyKeyReused { .. })),
                "{one:?}, then {other:?} under its key: {answer:?}"
            );
            assert_eq!(found(ns, &at(&name)).await, before, "{one:?}, then {other:?}");
            pairs += 1;
        }
    }
    assert!(pairs > 100, "{pairs}");
}

async fn a_repetition_after_the_inverse_is_answered_as_at_first_and_writes_nothing(ns: &Fixture) {
    for (one, inverse) in [
        (Op::Retract, Op::Restore),
        (Op::Restore, Op::Retract),
        (Op::Protect, Op::Unprotect),
        (Op::Unprotect, Op::Protect),
        (Op::Reset, Op::PushHead),
        (Op::Release, Op::Acquire),
    ] {
        let name = format!("{one:?}").to_lowercase();
        one.prepare(ns, &name).await;
        let first = one.make(ns, &call(3, 1), &name).await.unwrap();
        inverse.make(ns, &Call::fresh(), &name).await.unwrap();
        let before = records(ns).await;
        assert_eq!(one.make(ns, &call(3, 1), &name).await.unwrap(), first, "{one:?}");
        assert_eq!(records(ns).await, before, "{one:?}");
    }
    // The record that is shown is the one that is there.
    let Ok(Retracted::Retracted(shown)) = ns.retract(&call(3, 1), &at("retract"), None).await else { panic!() };
    assert!(!shown.retracted);
    let Ok(Restored::Restored(shown)) = ns.restore(&call(3, 1), &at("restore")).await else { panic!() };
    assert!(shown.retracted);
    let Ok(Reset::Reset { head: shown, .. }) =
        ns.reset_head(&call(3, 1), &at("reset"), &ResetTo::new(None, None).unwrap()).await
    else {
        panic!()
    };
    assert_eq!(shown, head(2));
    let publish = |n: i64| bm25("search", json!({ "n": n }), &[]);
    assert!(matches!(ns.publish_graph_source(&call(3, 1), &publish(1)).await, Ok(Published::Created(_))));
    ns.publish_graph_source(&Call::fresh(), &publish(2)).await.unwrap().applied();
    let again = ns.publish_graph_source(&call(3, 1), &publish(1)).await.unwrap();
    assert!(matches!(&again, Published::Created(record) if record.config.v == 2), "{again:?}");
}

async fn a_purge_that_is_repeated_is_purged_and_what_was_created_since_stays(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    let purge = async |n| ns.purge(&call(4, n), &db).await;
    assert_eq!(purge(1).await.unwrap(), Purged::Purged);
    assert_eq!(purge(1).await.unwrap(), Purged::Purged, "immediately");
    assert_eq!(ns.purge(&Call::fresh(), &db).await.unwrap(), Purged::Unknown);
    born(ns, "mydb", 2).await;
    for prepared in ["plain", "protected", "with a branch"] {
        match prepared {
            "protected" => assert_eq!(ns.protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set),
            "with a branch" => drop(branch(ns, "mydb:dev", &db).await),
            _ => {}
        }
        let before = records(ns).await;
        assert_eq!(purge(1).await.unwrap(), Purged::Purged, "{prepared}");
        let answer = purge(2).await;
        assert!(matches!(answer, Err(Error::IdempotencyKeyReused { .. })), "{prepared}: {answer:?}");
        assert_eq!(records(ns).await, before, "{prepared}");
    }
    let other = ns.create_ledger(&call(4, 3), &at("mydb"), None, None).await;
    assert!(matches!(other, Err(Error::IdempotencyKeyReused { .. })), "{other:?}");
}

async fn a_drop_that_is_repeated_is_dropped_and_what_was_created_since_stays(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    branch(ns, "mydb:dev", &db).await;
    branch(ns, "mydb:other", &db).await;
    let drop_branch = async |n| ns.drop_branch(&call(5, n), &at("mydb:dev")).await;
    assert_eq!(drop_branch(1).await.unwrap(), Dropped::Dropped { parent_branches: 1 });
    assert_eq!(drop_branch(1).await.unwrap(), Dropped::Dropped { parent_branches: 1 });
    // The count is the present one.
    branch(ns, "mydb:third", &db).await;
    assert_eq!(drop_branch(1).await.unwrap(), Dropped::Dropped { parent_branches: 2 });
    born(ns, "mydb:dev", 7).await;
    let before = records(ns).await;
    assert_eq!(drop_branch(1).await.unwrap(), Dropped::Dropped { parent_branches: 2 });
    let answer = drop_branch(2).await;
    assert!(matches!(answer, Err(Error::IdempotencyKeyReused { .. })), "{answer:?}");
    assert_eq!(records(ns).await, before);
}

async fn a_creation_that_is_repeated_after_a_purge_is_created_and_creates_nothing(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    for later in [false, true] {
        let name = |text: &str| format!("{text}{later}");
        let [ledger, pushed, search, dev] = ["ledger", "pushed", "search", "mydb:dev"].map(name);
        let create = async || ns.create_ledger(&call(6, 1), &at(&ledger), Some(&new_head(2)), None).await.unwrap();
        let push = async || ns.push_head(&call(6, 1), &at(&pushed), &first(head(2))).await.unwrap();
        let publish = async || ns.publish_graph_source(&call(6, 1), &bm25(&search, json!({}), &[])).await.unwrap();
        let branched = async || ns.create_branch(&call(6, 1), &at(&dev), &db, None).await.unwrap();
        create().await.applied();
        push().await.applied();
        publish().await.applied();
        branched().await.applied();
        for address in [&ledger, &pushed, &search, &dev] {
            ns.purge(&Call::fresh(), &at(address)).await.unwrap().applied();
            if later {
                source(ns, address, &[]).await;
            }
        }
        let before = records(ns).await;
        let created = create().await;
        assert!(matches!(&created, Created::Created(record) if record.head == Some(head(2))), "{created:?}");
        assert_eq!(push().await, replayed(head(2)));
        let published = publish().await;
        assert!(matches!(published, Published::Created(_)), "{published:?}");
        let created = branched().await;
        assert!(matches!(&created, BranchCreated::Created(record) if record.head == Some(head(3))), "{created:?}");
        assert_eq!(records(ns).await, before);
        // Under its key, nothing else is created there.
        let other = ns.create_ledger(&call(6, 2), &at(&ledger), None, None).await;
        assert!(matches!(other, Err(Error::IdempotencyKeyReused { .. })), "{other:?}");
    }
}

async fn a_branch_that_is_created_again_by_one_call_has_the_head_that_it_began_with(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    let create = async |name: &str, at_head| ns.create_branch(&call(9, 1), &at(name), &db, at_head).await;
    let explicit = new_head(2);
    for name in ["mydb:dev", "mydb:pushed"] {
        create(name, None).await.unwrap().applied();
    }
    create("mydb:at", Some(&explicit)).await.unwrap().applied();
    ns.push_head(&Call::fresh(), &db, &older(head(9))).await.unwrap().applied();
    ns.push_head(&Call::fresh(), &at("mydb:pushed"), &older(head(5))).await.unwrap().applied();
    ns.push_head(&Call::fresh(), &at("mydb:at"), &older(head(5))).await.unwrap().applied();
    for state in ["live", "purged"] {
        if state == "purged" {
            for name in ["mydb:dev", "mydb:pushed", "mydb:at"] {
                ns.purge(&Call::fresh(), &at(name)).await.unwrap().applied();
            }
        }
        let first = create("mydb:dev", None).await.unwrap();
        assert!(matches!(&first, BranchCreated::Created(record) if record.head == Some(head(3))), "{state}: {first:?}");
        let first = create("mydb:at", Some(&explicit)).await.unwrap();
        assert!(matches!(&first, BranchCreated::Created(record) if record.head == Some(head(2))), "{state}: {first:?}");
        let unknown = create("mydb:pushed", None).await;
        assert!(matches!(unknown, Err(Error::OutcomeUnknown { .. })), "{state}: {unknown:?}");
    }
}

async fn what_was_written_to_a_record_that_is_gone_is_unknown(ns: &Fixture) {
    for op in Op::ALL.into_iter().filter(|op| !matches!(op, Op::Create | Op::CreateByPush | Op::Purge)) {
        let name = format!("{op:?}").to_lowercase();
        op.prepare(ns, &name).await;
        op.make(ns, &call(7, 1), &name).await.unwrap();
        assert_ne!(ns.protect(&Call::fresh(), &at(&name), false).await.unwrap(), Protection::Unknown);
        ns.purge(&Call::fresh(), &at(&name)).await.unwrap().applied();
        for n in [1, 2] {
            let answer = op.make(ns, &call(7, n), &name).await.unwrap();
            let expected = if op == Op::Commit { "Rejected" } else { "Unknown" };
            assert_eq!(answer, expected, "{op:?}");
        }
    }
}

async fn rejections_are_answered_in_one_order(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    ns.push_status(&call(8, 1), &db, &cas(status(1, "ready"), status(2, "busy"))).await.unwrap().applied();
    let reused = |answer: String| assert!(answer.starts_with("Err(IdempotencyKeyReused"), "{answer}");
    let key = || call(8, 2);
    // A live record, dependents, protection, a lost lease, another kind: the key comes first.
    reused(format!("{:?}", ns.restore(&key(), &db).await));
    branch(ns, "mydb:dev", &db).await;
    reused(format!("{:?}", ns.retract(&key(), &db, None).await));
    reused(format!("{:?}", ns.purge(&key(), &db).await));
    reused(format!("{:?}", ns.drop_branch(&key(), &db).await));
    assert_eq!(ns.protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set);
    reused(format!("{:?}", ns.retract(&key(), &db, None).await));
    reused(format!("{:?}", ns.purge(&key(), &db).await));
    reused(format!("{:?}", ns.release_lease(&key(), &db, &claim_of(LeaseName::INDEX, "me", 9)).await));
    let under = cas(status(2, "busy"), status(3, "x")).under(claim_of(LeaseName::INDEX, "me", 9)).unwrap();
    reused(format!("{:?}", ns.push_status(&key(), &db, &under).await));
    // Without such a key, protection comes before dependents.
    assert_eq!(ns.purge(&Call::fresh(), &db).await.unwrap(), Purged::Protected);
    assert_eq!(ns.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::Protected);
    assert_eq!(ns.drop_branch(&Call::fresh(), &db).await.unwrap(), Dropped::NotABranch);
}

/// A key is looked up in what the operation writes, not in what it reads.
async fn a_key_that_only_the_status_remembers_is_rejected_by_no_push_of_another_concern_under_a_lease(ns: &Fixture) {
    let db = at("mydb");
    born(ns, "mydb", 1).await;
    ns.acquire_lease(&call(3, 1), &db, &index_lock("one", 60)).await.unwrap().applied();
    ns.release_lease(&Call::fresh(), &db, &index_lock("one", 60).claim(1)).await.unwrap().applied();
    let claim = index_lock("one", 60).claim(1);
    let pushed = ns.push_head(&call(3, 2), &db, &older(head(2)).under(claim.clone()).unwrap()).await.unwrap();
    assert!(matches!(pushed, PushOutcome::LeaseLost { .. }), "{pushed:?}");
    let push = cas(Status::stored(3, None), status(4, "indexing")).under(claim).unwrap();
    let pushed = ns.push_status(&call(3, 2), &db, &push).await;
    assert!(matches!(pushed, Err(Error::IdempotencyKeyReused { .. })), "{pushed:?}");
}

macro_rules! on_both {
    ($($test:ident,)*) => {
        mod dynamodb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::run(super::Place::DynamoDb, module_path!(), &[], super::$test).await;
            })*
        }

        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::run(super::Place::Memory, module_path!(), &[], super::$test).await;
            })*
        }
    };
}

on_both! {
    an_operation_that_is_repeated_is_answered_as_at_first_and_writes_nothing,
    a_key_that_was_used_for_another_request_is_rejected_by_every_operation_on_what_remembers_it,
    a_repetition_after_the_inverse_is_answered_as_at_first_and_writes_nothing,
    a_purge_that_is_repeated_is_purged_and_what_was_created_since_stays,
    a_drop_that_is_repeated_is_dropped_and_what_was_created_since_stays,
    a_creation_that_is_repeated_after_a_purge_is_created_and_creates_nothing,
    a_branch_that_is_created_again_by_one_call_has_the_head_that_it_began_with,
    what_was_written_to_a_record_that_is_gone_is_unknown,
    rejections_are_answered_in_one_order,
    a_key_that_only_the_status_remembers_is_rejected_by_no_push_of_another_concern_under_a_lease,
}
