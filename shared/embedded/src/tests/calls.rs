//! Calls that are repeated: after the record has changed, was purged, or was created again.

use nameservice_model::{
    AdminPublisher as _, BranchCreated, Call, Created, Dropped, Error, GraphSourcePublication,
    GraphSourcePublisher as _, HeadPush, IndexPush, LeaseName, LeasePublisher as _, LeaseRequest, NameService as _,
    NewIndex, NewLedger, NewStatus, Object, Protection, Published, Publisher as _, Purged, PushOutcome,
    RefPublisher as _, RequestId, Reset, ResetTo, Restored, Retracted, Status, StatusPayload, StatusPublisher as _,
    StatusPush, Write, Written,
};

use super::{at, head, id, open, pushed};
use crate::{
    Embedded, Options,
    state::{Command, MAX_REMEMBERED, Now, State},
};

fn memory() -> Embedded {
    Embedded::memory(Options::default()).unwrap()
}

/// Another request under one key.
fn under_one_key(rest: u8) -> Call {
    Call::with_id(RequestId::from_hashes([7; 16], [rest; 8]))
}

fn is_reused<T: std::fmt::Debug>(answer: nameservice_model::Result<T>) {
    assert!(matches!(answer, Err(Error::IdempotencyKeyReused { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_purge_is_answered_again_as_at_first_and_spares_the_successor() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    pushed(&names, "a", 1).await;
    let purge = Call::fresh();
    assert_eq!(names.purge(&purge, &at("a")).await.unwrap(), Purged::Purged);
    assert_eq!(names.purge(&purge, &at("a")).await.unwrap(), Purged::Purged);
    assert_eq!(names.purge(&Call::fresh(), &at("a")).await.unwrap(), Purged::Unknown);
    pushed(&names, "a", 1).await;
    drop(names);
    let names = open(directory.path());
    assert_eq!(names.purge(&purge, &at("a")).await.unwrap(), Purged::Purged);
    assert!(names.lookup(&at("a")).await.unwrap().is_some(), "its successor stays");
    assert_eq!(names.purge(&Call::fresh(), &at("a")).await.unwrap(), Purged::Purged);
    assert!(names.lookup(&at("a")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_drop_is_answered_again_with_the_present_count() {
    let names = memory();
    pushed(&names, "a", 1).await;
    let (create, other, dropped) = (Call::fresh(), Call::fresh(), Call::fresh());
    let _ = names.create_branch(&create, &at("a:dev"), &at("a"), None).await.unwrap();
    assert_eq!(names.drop_branch(&dropped, &at("a:dev")).await.unwrap(), Dropped::Dropped { parent_branches: 0 });
    let _ = names.create_branch(&other, &at("a:dev"), &at("a"), None).await.unwrap();
    assert_eq!(names.drop_branch(&dropped, &at("a:dev")).await.unwrap(), Dropped::Dropped { parent_branches: 1 });
    assert!(names.lookup(&at("a:dev")).await.unwrap().is_some());
    // The creation of the branch that was dropped comes again, late.
    let again = names.create_branch(&create, &at("a:dev"), &at("a"), None).await.unwrap();
    assert!(matches!(again, BranchCreated::Created(_)), "{again:?}");
    assert_eq!(names.lookup(&at("a")).await.unwrap().unwrap().branches, 1);
}

#[tokio::test]
async fn late_duplicates_of_creations_create_nothing_after_a_purge() {
    let names = memory();
    pushed(&names, "source", 1).await;
    let (ledger, bootstrap, branch, graph, index) =
        (Call::fresh(), Call::fresh(), Call::fresh(), Call::fresh(), Call::fresh());
    let publication = GraphSourcePublication::new(at("g"), "f:X", Object::new()).unwrap();
    let publication = publication.with_dependencies(vec![at("source")]).unwrap();
    let new_index = || IndexPush::create(NewIndex::new(id(1), 1).unwrap());
    for round in 0..3 {
        let created = names.create_ledger(&ledger, &at("l"), Some(&head(3)), None).await.unwrap();
        assert!(matches!(&created, Created::Created(record) if record.head == Some(head(3).value())), "{created:?}");
        let pushed = names.push_head(&bootstrap, &at("p"), &HeadPush::create(head(1))).await.unwrap();
        assert_eq!(pushed, PushOutcome::Updated { value: head(1).value(), replayed: round > 0 });
        let pushed = names.push_index(&index, &at("i"), &new_index()).await.unwrap();
        assert!(matches!(pushed, PushOutcome::Updated { replayed, .. } if replayed == (round > 0)), "{pushed:?}");
        let created = names.create_branch(&branch, &at("source:dev"), &at("source"), None).await.unwrap();
        assert!(matches!(created, BranchCreated::Created(_)), "{created:?}");
        let published = names.publish_graph_source(&graph, &publication).await.unwrap();
        assert!(matches!(published, Published::Created(_)), "{published:?}");
        if round == 0 {
            for address in ["l", "p", "i", "source:dev", "g"] {
                assert_eq!(names.purge(&Call::fresh(), &at(address)).await.unwrap(), Purged::Purged);
            }
        }
        assert_eq!(names.view().len(), 1, "round {round}");
        let source = names.lookup(&at("source")).await.unwrap().unwrap();
        assert_eq!((source.branches, source.dependents), (0, 0), "round {round}");
    }
    // Another call creates.
    let created = names.create_ledger(&Call::fresh(), &at("l"), None, None).await.unwrap();
    assert!(matches!(created, Created::Created(_)));
    let again = names.create_ledger(&ledger, &at("l"), Some(&head(3)), None).await.unwrap();
    assert!(matches!(&again, Created::Created(record) if record.head == Some(head(3).value())), "{again:?}");
}

#[tokio::test]
async fn an_address_is_forgotten_after_two_days() {
    let (mut state, create) = (State::new(), Call::fresh());
    let mut apply = |call: &Call, action: Write, hours: i64| {
        state.apply(&Command::new(call, action), Now::from_millis(hours * 3_600_000)).outcome.unwrap()
    };
    let (address, purge) = (at("a"), Call::fresh());
    let creation = || Write::CreateLedger(NewLedger::at(address.clone()));
    let _ = apply(&create, creation(), 0);
    let _ = apply(&purge, Write::Purge { address: address.clone() }, 1);
    let _ = apply(&create, creation(), 48);
    assert_eq!(apply(&purge, Write::Purge { address: address.clone() }, 48), Some(Written::Purged(Purged::Purged)));
    assert_eq!(apply(&purge, Write::Purge { address: address.clone() }, 49), Some(Written::Purged(Purged::Unknown)));
    let _ = apply(&Call::fresh(), Write::CreateLedger(NewLedger::at(at("b"))), 49);
    let _ = apply(&Call::fresh(), Write::Purge { address: at("b") }, 49);
    assert!(!state.dump().contains("a:main"), "{}", state.dump());
}

#[tokio::test]
async fn beyond_a_number_of_addresses_those_that_were_purged_first_are_forgotten_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let purges: Vec<Call> = (0..MAX_REMEMBERED + 5).map(|_| Call::fresh()).collect();
    for (n, purge) in purges.iter().enumerate() {
        pushed(&names, &format!("a{n}"), 1).await;
        assert_eq!(names.purge(purge, &at(&format!("a{n}"))).await.unwrap(), Purged::Purged);
    }
    let dump = names.view().state().dump();
    drop(names);
    let names = open(directory.path());
    assert_eq!(names.view().state().dump(), dump);
    for (n, purge) in purges.iter().enumerate() {
        let again = names.purge(purge, &at(&format!("a{n}"))).await.unwrap();
        assert_eq!(again, if n < 5 { Purged::Unknown } else { Purged::Purged }, "{n}");
    }
    // One that is purged again is no further address, and the last to be forgotten.
    pushed(&names, "a5", 1).await;
    assert_eq!(names.purge(&Call::fresh(), &at("a5")).await.unwrap(), Purged::Purged);
    for n in [5, 6] {
        assert_eq!(names.purge(&purges[n], &at(&format!("a{n}"))).await.unwrap(), Purged::Purged, "{n}");
    }
    pushed(&names, "b", 1).await;
    assert_eq!(names.purge(&Call::fresh(), &at("b")).await.unwrap(), Purged::Purged);
    assert_eq!(names.purge(&purges[5], &at("a5")).await.unwrap(), Purged::Purged);
    assert_eq!(names.purge(&purges[6], &at("a6")).await.unwrap(), Purged::Unknown);
}

#[tokio::test]
async fn operations_on_a_record_are_answered_again_as_at_first_and_write_nothing() {
    let names = memory();
    pushed(&names, "a", 1).await;
    let (retract, restore, reset, protect) = (Call::fresh(), Call::fresh(), Call::fresh(), Call::fresh());
    let to = ResetTo::new(Some(head(2)), None).unwrap();
    let _ = names.retract(&retract, &at("a"), None).await.unwrap();
    let _ = names.restore(&restore, &at("a")).await.unwrap();
    let _ = names.reset_head(&reset, &at("a"), &to).await.unwrap();
    assert_eq!(names.protect(&protect, &at("a"), true).await.unwrap(), Protection::Set);
    assert_eq!(names.protect(&Call::fresh(), &at("a"), false).await.unwrap(), Protection::Set);
    pushed(&names, "a", 9).await;
    let before = names.view().state().dump();
    let again = names.retract(&retract, &at("a"), None).await.unwrap();
    assert!(matches!(&again, Retracted::Retracted(record) if !record.retracted), "{again:?}");
    let again = names.restore(&restore, &at("a")).await.unwrap();
    assert!(matches!(&again, Restored::Restored(_)), "{again:?}");
    let again = names.reset_head(&reset, &at("a"), &to).await.unwrap();
    assert!(matches!(&again, Reset::Reset { head: now, .. } if *now == head(9).value()), "{again:?}");
    assert_eq!(names.protect(&protect, &at("a"), true).await.unwrap(), Protection::Set);
    assert_eq!(names.view().state().dump(), before);
}

#[tokio::test]
async fn a_publication_is_answered_again_as_at_first() {
    let names = memory();
    let of = |n: i64| {
        let config = Object::from_iter([("n".to_owned(), n.into())]);
        GraphSourcePublication::new(at("g"), "f:X", config).unwrap()
    };
    let calls: Vec<Call> = (0..4).map(|_| Call::fresh()).collect();
    for (call, n) in calls.iter().zip(0..) {
        let _ = names.publish_graph_source(call, &of(n)).await.unwrap();
    }
    for (call, n) in calls.iter().zip(0..) {
        let again = names.publish_graph_source(call, &of(n)).await.unwrap();
        assert_eq!(matches!(again, Published::Created(_)), n == 0, "{n}: {again:?}");
        let (Published::Created(record) | Published::Updated(record)) = again else { panic!("{again:?}") };
        assert_eq!(record.config.v, 4);
    }
}

#[tokio::test]
async fn a_key_that_was_used_for_something_else_is_rejected_by_every_operation() {
    let names = memory();
    let status = NewStatus::new(StatusPayload::state("busy")).unwrap();
    let push = StatusPush::cas(Status::stored(1, None), status);
    pushed(&names, "a", 1).await;
    let _ = names.push_status(&under_one_key(1), &at("a"), &push).await.unwrap();
    is_reused(names.purge(&under_one_key(2), &at("a")).await);
    is_reused(names.retract(&under_one_key(3), &at("a"), None).await);
    is_reused(names.restore(&under_one_key(3), &at("a")).await);
    is_reused(names.create_ledger(&under_one_key(4), &at("a"), None, None).await);
    let request = LeaseRequest::new(LeaseName::INDEX, "h").unwrap();
    is_reused(names.acquire_lease(&under_one_key(5), &at("a"), &request).await);
    assert!(names.lookup(&at("a")).await.unwrap().is_some());

    // What a drop, a protection and a reset look at.
    let _ = names.create_branch(&under_one_key(6), &at("a:dev"), &at("a"), None).await.unwrap();
    is_reused(names.drop_branch(&under_one_key(7), &at("a:dev")).await);
    is_reused(names.reset_head(&under_one_key(8), &at("a:dev"), &ResetTo::new(None, None).unwrap()).await);
    assert_eq!(names.protect(&under_one_key(9), &at("a"), true).await.unwrap(), Protection::Set);
    is_reused(names.protect(&under_one_key(10), &at("a"), false).await);
    is_reused(names.protect(&under_one_key(11), &at("a"), true).await);

    // After a purge, the address remembers the key.
    pushed(&names, "b", 1).await;
    assert_eq!(names.purge(&under_one_key(12), &at("b")).await.unwrap(), Purged::Purged);
    is_reused(names.create_ledger(&under_one_key(13), &at("b"), None, None).await);
    is_reused(names.push_head(&under_one_key(14), &at("b"), &HeadPush::create(head(1))).await);
    let publication = GraphSourcePublication::new(at("b"), "f:X", Object::new()).unwrap();
    is_reused(names.publish_graph_source(&under_one_key(15), &publication).await);
    // There is nothing to purge: that comes first.
    assert_eq!(names.purge(&under_one_key(17), &at("b")).await.unwrap(), Purged::Unknown);
}

#[tokio::test]
async fn a_creation_is_remembered_over_a_purge_if_any_concern_remembers_it() {
    let names = memory();
    let create = Call::fresh();
    let _ = names.create_ledger(&create, &at("a"), None, None).await.unwrap();
    // More calls than a concern remembers have written the head and the index, and others the status.
    for t in 1..6 {
        let to = ResetTo::new(Some(head(t)), None).unwrap();
        let _ = names.reset_head(&Call::fresh(), &at("a"), &to).await.unwrap();
        let _ = names.retract(&Call::fresh(), &at("a"), None).await.unwrap();
        let _ = names.restore(&Call::fresh(), &at("a")).await.unwrap();
    }
    assert_eq!(names.purge(&Call::fresh(), &at("a")).await.unwrap(), Purged::Purged);
    let again = names.create_ledger(&create, &at("a"), None, None).await.unwrap();
    assert!(matches!(again, Created::Created(_)), "{again:?}");
    assert!(names.lookup(&at("a")).await.unwrap().is_none(), "nothing is created again");
}
