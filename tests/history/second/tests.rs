//! Short histories of each kind of call, for the second judge alone. `checkers.rs` has those that both judge.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Entry, judge};
use crate::history::{
    judge::is_rejected,
    spec::{Answered, Asked, Concern, Spot},
};

/// Calls one after the other.
fn sequence(calls: Vec<(Asked, u16, Value)>) -> Vec<Entry> {
    let each = calls.into_iter().zip(0..).map(|((asked, status, body), n)| {
        let returned = Some((2 * n + 1, Arc::new(Answered { status, body })));
        Entry { client: 0, asked: Arc::new(asked), invoked: 2 * n, returned, repeated: false }
    });
    each.collect()
}

fn pushes(concern: Concern, body: Value) -> Asked {
    Asked::Push(Spot::new("a", concern), body)
}

fn reads(concern: Concern, value: Value) -> (Asked, u16, Value) {
    (Asked::Read(Spot::new("a", concern)), 200, value)
}

fn updated(value: Value) -> Value {
    json!({ "status": "updated", "value": value })
}

fn conflict(actual: Value) -> Value {
    json!({ "type": "x/conflict", "actual": actual })
}

fn at(id: &str, t: i64) -> Value {
    json!({ "id": id, "t": t })
}

fn index(id: &str, t: i64, rev: i64) -> Value {
    json!({ "id": id, "t": t, "rev": rev })
}

/// Asserts that a sequence is accepted, and rejected once this is its last answer.
fn only_as_it_is(calls: Vec<(Asked, u16, Value)>, instead: (u16, Value)) {
    let mut entries = sequence(calls);
    assert_eq!(judge(&entries, false), Ok(()));
    let last = entries.last_mut().unwrap();
    let answer = Answered { status: instead.0, body: instead.1 };
    last.returned = Some((last.invoked + 1, Arc::new(answer)));
    assert!(is_rejected(&judge(&entries, false)));
}

#[test]
fn an_index_of_the_same_t_is_counted() {
    let first = || (pushes(Concern::Index, json!({ "new": at("i", 3) })), 200, updated(index("i", 3, 0)));
    let overwrite = |expected: Value| pushes(Concern::Index, json!({ "expected": expected, "new": at("j", 3) }));
    only_as_it_is(
        vec![first(), (overwrite(at("i", 3)), 200, updated(index("j", 3, 1)))],
        (200, updated(index("j", 3, 0))),
    );
    only_as_it_is(
        vec![first(), (overwrite(at("k", 3)), 409, conflict(index("i", 3, 0)))],
        (200, updated(index("j", 3, 1))),
    );
    let equal = pushes(Concern::Index, json!({ "new": at("j", 3) }));
    only_as_it_is(
        vec![first(), (equal, 200, json!({ "status": "stale", "value": index("i", 3, 0) }))],
        (200, updated(index("j", 3, 1))),
    );
}

#[test]
fn a_value_that_is_stored_already_is_a_replay() {
    let push = || pushes(Concern::Head, json!({ "new": at("h", 1) }));
    let replayed = json!({ "status": "updated", "replayed": true, "value": at("h", 1) });
    only_as_it_is(vec![(push(), 200, updated(at("h", 1))), (push(), 200, replayed)], (200, updated(at("h", 1))));
}

#[test]
fn a_transaction_shows_the_exact_revision_of_an_index_that_replaced_any_other_as_a_push_alone_does() {
    let first = || (pushes(Concern::Index, json!({ "new": at("i", 3) })), 200, updated(index("i", 3, 0)));
    let body = || json!({ "op": "push_index", "address": "a", "new": at("j", 3), "allow_equal": true });
    let with = |rev: i64| json!({ "results": [updated(index("j", 3, rev))] });
    let commit = (Asked::Transaction(vec![body()]), 200, with(1));
    for guessed in [0, 2] {
        only_as_it_is(vec![first(), commit.clone()], (200, with(guessed)));
    }
    only_as_it_is(vec![first(), commit, reads(Concern::Index, index("j", 3, 1))], (200, index("j", 3, 0)));
    let alone = pushes(Concern::Index, json!({ "new": at("j", 3), "allow_equal": true }));
    only_as_it_is(vec![first(), (alone, 200, updated(index("j", 3, 1)))], (200, updated(index("j", 3, 0))));
}

#[test]
fn a_document_is_compared_by_its_counter_and_where_it_is_given_by_its_payload() {
    let ready = json!({ "v": 1, "payload": { "state": "ready" } });
    let next = json!({ "v": 2, "payload": { "state": "s", "n": 1 } });
    let push = |expected: Value| {
        pushes(Concern::Status, json!({ "expected": expected, "new": { "payload": { "state": "s", "n": 1 } } }))
    };
    only_as_it_is(vec![(push(json!({ "v": 1 })), 200, updated(next.clone()))], (409, conflict(ready.clone())));
    only_as_it_is(vec![(push(ready.clone()), 200, updated(next.clone()))], (409, conflict(ready.clone())));
    let other = json!({ "v": 1, "payload": { "state": "other" } });
    only_as_it_is(vec![(push(other), 409, conflict(ready.clone()))], (200, updated(next.clone())));
    only_as_it_is(
        vec![(push(json!({ "v": 1 })), 200, updated(next.clone())), reads(Concern::Status, next)],
        (200, ready),
    );
}

#[test]
fn a_transaction_is_applied_whole_or_not_at_all() {
    let both = |expected: i64| {
        Asked::Transaction(vec![
            json!({ "op": "check", "address": "a", "concern": "config", "expected": { "v": expected } }),
            json!({ "op": "push_head", "address": "a", "new": at("h", 1) }),
        ])
    };
    let committed = json!({ "results": [{ "status": "passed" }, updated(at("h", 1))] });
    let unborn = json!({ "v": 0, "payload": null });
    let rejected = json!({ "results": [{ "status": "conflict", "actual": unborn }, { "status": "passed" }] });
    only_as_it_is(vec![(both(0), 200, committed.clone())], (409, rejected.clone()));
    only_as_it_is(vec![(both(1), 409, rejected.clone())], (200, committed.clone()));
    only_as_it_is(
        vec![(both(0), 200, committed), reads(Concern::Head, at("h", 1))],
        (200, json!({ "id": null, "t": 0 })),
    );
    only_as_it_is(
        vec![(both(1), 409, rejected), reads(Concern::Head, json!({ "id": null, "t": 0 }))],
        (200, at("h", 1)),
    );
}

#[test]
fn a_rejected_call_that_was_sent_twice_may_have_been_applied_after_four_others() {
    let push = |n: i64| pushes(Concern::Head, json!({ "new": at(&format!("h{n}"), n) }));
    let mut entries = sequence((1..=6).map(|n| (push(n), 200, updated(at(&format!("h{n}"), n)))).collect());
    entries.push(entries[0].clone());
    // The first push is answered after all others, as stale, although a client has read its value.
    let stale = json!({ "status": "stale", "value": at("h6", 6) });
    entries[0].returned = Some((100, Arc::new(Answered { status: 200, body: stale })));
    let (asked, status, body) = reads(Concern::Head, at("h1", 1));
    let read = Entry { client: 1, asked: Arc::new(asked), invoked: 1, ..entries[0].clone() };
    entries[6] = Entry { returned: Some((2, Arc::new(Answered { status, body }))), ..read };
    assert!(is_rejected(&judge(&entries, false)));
    entries[0].repeated = true;
    assert_eq!(judge(&entries, false), Ok(()));
}

fn lease(holder: &str, token: i64, acquired_at: i64) -> Value {
    let lease =
        json!({ "name": "index_lock", "holder": holder, "acquired_at": acquired_at, "expires_at": acquired_at + 10 });
    json!({ "lease": lease, "token": token })
}

fn acquires(holder: &str) -> Asked {
    Asked::Lease("a".into(), json!({ "name": "index_lock", "holder": holder }))
}

fn lost(lease: &Value) -> Value {
    json!({ "type": "x/lease-lost", "lease": lease["lease"] })
}

#[test]
fn a_lease_has_one_holder_and_its_token_only_grows() {
    let first = || (acquires("h"), 200, lease("h", 1, 100));
    let held = json!({ "type": "x/lease-held", "lease": lease("h", 1, 100)["lease"] });
    only_as_it_is(vec![first(), (acquires("i"), 409, held)], (200, lease("i", 2, 105)));
    only_as_it_is(vec![first(), (acquires("h"), 200, lease("h", 2, 105))], (200, lease("h", 1, 105)));
    let status = |state: &str, v: i64, lease: Value| {
        reads(Concern::Status, json!({ "v": v, "payload": { "state": state, "index_lock": lease } }))
    };
    let shown = lease("h", 1, 100)["lease"].clone();
    only_as_it_is(
        vec![first(), status("indexing", 2, shown)],
        (200, json!({ "v": 2, "payload": { "state": "indexing" } })),
    );
    let release = Asked::Release("a".into(), json!({ "name": "index_lock", "holder": "h", "token": 1 }));
    only_as_it_is(
        vec![
            first(),
            (release, 204, Value::Null),
            reads(Concern::Status, json!({ "v": 3, "payload": { "state": "ready" } })),
        ],
        (200, json!({ "v": 3, "payload": { "state": "indexing" } })),
    );
}

#[test]
fn a_push_under_a_superseded_token_is_rejected() {
    let push = |token: i64| {
        let claim = json!({ "name": "index_lock", "holder": "h", "token": token });
        pushes(Concern::Head, json!({ "new": at("h", 1), "lease": claim }))
    };
    let both = || vec![(acquires("h"), 200, lease("h", 1, 100)), (acquires("h"), 200, lease("h", 2, 101))];
    let with = |last: (Asked, u16, Value)| [both(), vec![last]].concat();
    let was_lost = lost(&lease("h", 2, 101));
    only_as_it_is(with((push(1), 409, was_lost.clone())), (200, updated(at("h", 1))));
    only_as_it_is(with((push(2), 200, updated(at("h", 1)))), (409, was_lost));
}

#[test]
fn a_lease_is_taken_from_another_holder_only_where_the_clock_may_have_passed_its_end() {
    let after =
        |at: i64| sequence(vec![(acquires("h"), 200, lease("h", 1, 100)), (acquires("i"), 200, lease("i", 2, at))]);
    assert!(is_rejected(&judge(&after(110), false)));
    assert_eq!(judge(&after(110), true), Ok(()));
    assert!(is_rejected(&judge(&after(109), true)));
}

#[test]
fn an_acquisition_that_was_sent_twice_and_never_answered_may_have_been_granted_twice_after_four_others() {
    let granted = |(holder, token): (&str, i64)| (acquires(holder), 200, lease(holder, token, 100));
    let tokens = [1, 3, 4, 5, 6, 8];
    let mut entries = sequence(tokens.map(|token| granted(("h", token))).to_vec());
    let open = Entry { client: 1, invoked: 1, asked: Arc::new(acquires("h")), returned: None, repeated: false };
    entries.push(open);
    assert!(is_rejected(&judge(&entries, false)));
    entries[tokens.len()].repeated = true;
    assert_eq!(judge(&entries, false), Ok(()));
}

/// Each of them may have been applied, before or after each of the others, and each order is another state.
#[test]
fn calls_of_unknown_outcome_that_nobody_saw_take_no_time() {
    let open = |n: u64| {
        let asked = Arc::new(pushes(Concern::Head, json!({ "new": at(&format!("open {n}"), n as i64) })));
        Entry { client: 1, asked, invoked: n, returned: None, repeated: false }
    };
    let read = |value: Value| {
        let asked = Arc::new(Asked::Read(Spot::new("a", Concern::Head)));
        let returned = Some((101, Arc::new(Answered { status: 200, body: value })));
        Entry { client: 0, asked, invoked: 100, returned, repeated: false }
    };
    let with = |last: Entry| (1..=40).map(open).chain([last]).collect::<Vec<_>>();
    assert_eq!(judge(&with(read(json!({ "id": null, "t": 0 }))), false), Ok(()));
    assert_eq!(judge(&with(read(at("open 7", 7))), false), Ok(()));
    // Only a few calls, since all orders are tried.
    let few = (1..=5).map(open).chain([read(at("open 7", 7))]).collect::<Vec<_>>();
    assert!(is_rejected(&judge(&few, false)));
}
