//! Outcomes of lost answers and repeated calls. The contract suite tests the others.

use nameservice_model::{
    Call, Error, HeadPush, IndexPush, LeaseClaim, LeaseName, LeasePublisher, LeaseRequest, Leased, NewIndex, NewStatus,
    Publisher, PushOutcome, RefPublisher, Released, RequestId, Restored, Retracted, Status, StatusPayload,
    StatusPublisher, StatusPush,
};

use super::{at, head, id, pushed};
use crate::{Embedded, Options};

fn names() -> Embedded {
    Embedded::memory(Options::default()).unwrap()
}

fn call(key: u8, rest: u8) -> Call {
    Call::with_id(RequestId::from_hashes([key; 16], [rest; 8]))
}

#[tokio::test]
async fn a_key_that_comes_back_with_another_request_is_rejected_and_writes_nothing() {
    let names = names();
    pushed(&names, "a", 1).await;
    let push = |t| HeadPush::monotonic(head(t));
    assert!(names.push_head(&call(1, 1), &at("a"), &push(2)).await.unwrap().is_updated());
    let reused = names.push_head(&call(1, 2), &at("a"), &push(3)).await.unwrap_err();
    assert!(matches!(reused, Error::IdempotencyKeyReused { operation: "push a head" }), "{reused:?}");
    let again = names.push_head(&call(1, 1), &at("a"), &push(2)).await.unwrap();
    assert_eq!(again, PushOutcome::Updated { value: head(2).value(), replayed: true });
    for t in 3..=6 {
        pushed(&names, "a", t).await;
    }
    // Four writes later the key is no longer remembered.
    assert!(names.push_head(&call(1, 3), &at("a"), &push(7)).await.unwrap().is_updated());
}

#[tokio::test]
async fn a_call_is_remembered_by_four_writes_and_answered_what_it_wrote() {
    let names = names();
    pushed(&names, "a", 1).await;
    let (one, push) = (Call::fresh(), HeadPush::cas(head(1).value(), head(2)));
    assert!(names.push_head(&one, &at("a"), &push).await.unwrap().is_updated());
    for t in 3..=5 {
        pushed(&names, "a", t).await;
        let again = names.push_head(&one, &at("a"), &push).await.unwrap();
        assert_eq!(again, PushOutcome::Updated { value: head(2).value(), replayed: true });
    }
    pushed(&names, "a", 6).await;
    let late = names.push_head(&one, &at("a"), &push).await.unwrap();
    assert_eq!(late, PushOutcome::Conflict { actual: Some(head(6).value()) });
}

#[tokio::test]
async fn an_overwrite_that_was_overwritten_does_not_know_its_revision() {
    let names = names();
    pushed(&names, "a", 1).await;
    let overwrite = |n| IndexPush::overwrite(NewIndex::new(id(n), 1).unwrap());
    let one = Call::fresh();
    assert!(names.push_index(&one, &at("a"), &overwrite(1)).await.unwrap().is_updated());
    assert!(names.push_index(&Call::fresh(), &at("a"), &overwrite(2)).await.unwrap().is_updated());
    let again = names.push_index(&one, &at("a"), &overwrite(1)).await.unwrap_err();
    assert!(matches!(again, Error::OutcomeUnknown { .. }), "{again:?}");
}

#[tokio::test]
async fn a_lease_that_was_acquired_twice_by_one_call_is_acquired_once() {
    let names = names();
    pushed(&names, "a", 1).await;
    let request = LeaseRequest::new(LeaseName::INDEX, "one").unwrap();
    let one = Call::fresh();
    let first = names.acquire_lease(&one, &at("a"), &request).await.unwrap();
    assert_eq!(names.acquire_lease(&one, &at("a"), &request).await.unwrap(), first);
    let Leased::Held(held) = first else { panic!("{first:?}") };
    assert_eq!(held.token, 1);
    // The same holder takes over from itself under the next token, and then the first call cannot know its own.
    let next = names.acquire_lease(&Call::fresh(), &at("a"), &request).await.unwrap();
    assert!(matches!(next, Leased::Held(held) if held.token == 2));
    assert!(names.acquire_lease(&one, &at("a"), &request).await.is_err());
}

#[tokio::test]
async fn a_release_keeps_a_state_that_was_written_meanwhile() {
    let names = names();
    for (address, writes, state) in [("a", false, "ready"), ("b", true, "error")] {
        pushed(&names, address, 1).await;
        let request = LeaseRequest::new(LeaseName::parse("compaction_lock").unwrap(), "one").unwrap();
        let _ = names.acquire_lease(&Call::fresh(), &at(address), &request).await.unwrap();
        let held = names.status(&at(address)).await.unwrap().unwrap();
        assert_eq!((held.v, held.payload.unwrap().state.as_str()), (2, "compaction"));
        if writes {
            let new = NewStatus::new(StatusPayload::state("error")).unwrap();
            let push = StatusPush::cas(Status::stored(2, None), new);
            assert!(names.push_status(&Call::fresh(), &at(address), &push).await.unwrap().is_updated());
        }
        let claim = LeaseClaim::new(request.name().clone(), "one", 1).unwrap();
        assert_eq!(names.release_lease(&Call::fresh(), &at(address), &claim).await.unwrap(), Released::Released);
        assert_eq!(names.status(&at(address)).await.unwrap().unwrap().payload.unwrap().state, state);
    }
}

#[tokio::test]
async fn a_repeated_retraction_and_restoration_are_answered_as_the_first() {
    let names = names();
    pushed(&names, "a", 1).await;
    let (retract, restore) = (Call::fresh(), Call::fresh());
    for _ in 0..2 {
        let outcome = names.retract(&retract, &at("a"), None).await.unwrap();
        assert!(matches!(outcome, Retracted::Retracted(_)), "{outcome:?}");
    }
    assert!(matches!(names.retract(&Call::fresh(), &at("a"), None).await.unwrap(), Retracted::Already(_)));
    for _ in 0..2 {
        let outcome = names.restore(&restore, &at("a")).await.unwrap();
        assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
    }
    assert!(!names.view().record(&at("a")).unwrap().retracted);
}
