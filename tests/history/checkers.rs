//! Handwritten histories, for both judges: they accept what some order explains, and nothing else.

use std::sync::Arc;

use futures_util::future::join_all;
use nameservice_http::Auth;
use nameservice_tests::{in_process::InProcess, prelude::*};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{
    CLIENTS, STEPS,
    clients::{Client, Mix, World},
    create, elle,
    judge::{Entry, Rejection, is_rejected, judge, judge_within},
    second,
    spec::{Answered, Asked, Concern, Spot},
};

fn entry(client: u32, from: u64, to: u64, asked: Asked, answer: (u16, Value)) -> Entry {
    let answer = Answered { status: answer.0, body: answer.1 };
    Entry { client, asked: Arc::new(asked), invoked: from, returned: Some((to, Arc::new(answer))), repeated: false }
}

fn open(client: u32, from: u64, asked: Asked) -> Entry {
    Entry { client, asked: Arc::new(asked), invoked: from, returned: None, repeated: false }
}

fn at_t(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

fn reads_head(client: u32, from: u64, to: u64, n: i64) -> Entry {
    let shown = if n == 0 { Concern::Head.unborn() } else { at_t(n) };
    entry(client, from, to, Asked::Read(Spot::new("a", Concern::Head)), (200, shown))
}

fn pushes_head(n: i64) -> Asked {
    Asked::Push(Spot::new("a", Concern::Head), json!({ "new": at_t(n) }))
}

fn was_updated(n: i64) -> (u16, Value) {
    (200, json!({ "status": "updated", "value": at_t(n) }))
}

fn was_rejected(n: i64) -> (u16, Value) {
    (409, json!({ "type": "x/conflict", "actual": at_t(n) }))
}

fn expects(before: i64, n: i64) -> Asked {
    Asked::Push(Spot::new("a", Concern::Head), json!({ "expected": at_t(before), "new": at_t(n) }))
}

fn leases(holder: &str) -> Asked {
    Asked::Lease("a".into(), json!({ "name": "index_lock", "holder": holder }))
}

fn was_leased(holder: &str, token: i64) -> (u16, Value) {
    let lease = json!({ "name": "index_lock", "holder": holder, "acquired_at": 100, "expires_at": 200 });
    (200, json!({ "lease": lease, "token": token }))
}

/// An index replaces another at its `t`, and is answered with this revision: pushed alone, under a lease, and in a transaction.
fn indexed_again(rev: i64) -> [Vec<Entry>; 3] {
    let index = |n: i64, rev: i64| json!({ "id": cid(n).as_str(), "t": 1, "rev": rev });
    let updated = |value: Value| json!({ "status": "updated", "value": value });
    let push = |body: Value| Asked::Push(Spot::new("a", Concern::Index), body);
    let new = |n: i64| json!({ "id": cid(n).as_str(), "t": 1 });
    let first = entry(0, 0, 1, push(json!({ "new": new(1) })), (200, updated(index(1, 0))));
    let alone = json!({ "expected": index(1, 0), "new": new(2) });
    let mut under_a_lease = alone.clone();
    under_a_lease["lease"] = json!({ "name": "index_lock", "holder": "a", "token": 1 });
    let mut operation = alone.clone();
    operation["op"] = json!("push_index");
    operation["address"] = json!("a");
    let transaction = Asked::Transaction(serde_json::from_value(json!([operation])).unwrap());
    let answer = || updated(index(2, rev));
    [
        vec![first.clone(), entry(0, 2, 3, push(alone), (200, answer()))],
        vec![
            first.clone(),
            entry(0, 2, 3, leases("a"), was_leased("a", 1)),
            entry(0, 4, 5, push(under_a_lease), (200, answer())),
        ],
        vec![first, entry(0, 2, 3, transaction, (200, json!({ "results": [answer()] })))],
    ]
}

/// A status that a lost push has written, shown beside a lease, and lost calls that nobody saw: each of them may have been applied,
/// before or after each of the others.
fn shown_beside_lost_calls() -> Vec<Entry> {
    let status = |n: i64| json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "s1", "n": n } } });
    let push = |concern: Concern, body: Value| Asked::Push(Spot::new("a", concern), body);
    let both = |n: i64| {
        let mut push_status = status(n);
        push_status["op"] = json!("push_status");
        push_status["address"] = json!("a");
        Asked::Transaction(vec![json!({ "op": "push_head", "address": "a", "new": at_t(n) }), push_status])
    };
    let asked = (1..=6).flat_map(|n| {
        let holder = ["b", "c", "d"][n as usize % 3];
        let index = json!({ "expected": { "id": null, "t": 0, "rev": 0 }, "new": at_t(10 + n) });
        [leases(holder), pushes_head(20 + n), push(Concern::Index, index), both(30 + n)]
    });
    let lost = asked.chain([push(Concern::Status, status(4))]);
    let mut history: Vec<Entry> = lost.zip(0..).map(|(asked, n)| open(n as u32, n, asked)).collect();
    let shown = was_leased("a", 1).1["lease"].clone();
    let status = json!({ "v": 3, "payload": { "state": "indexing", "n": 4, "index_lock": shown } });
    history.extend([
        entry(100, 100, 101, leases("a"), was_leased("a", 1)),
        entry(100, 102, 103, Asked::Read(Spot::status_of("a")), (200, status)),
        reads_head(100, 104, 105, 0),
    ]);
    history
}

fn fine() -> [(&'static str, Vec<Entry>); 8] {
    let [alone, under_a_lease, in_a_transaction] = indexed_again(1);
    [
        ("an index again", alone),
        ("an index again, under a lease", under_a_lease),
        ("an index again, in a transaction", in_a_transaction),
        ("a read of what a lost push has written", vec![open(0, 0, pushes_head(1)), reads_head(1, 1, 2, 1)]),
        (
            "a read beside a push, of either value",
            vec![entry(0, 0, 9, pushes_head(1), was_updated(1)), reads_head(1, 1, 2, 0), reads_head(1, 3, 4, 1)],
        ),
        (
            "a lost push that is applied late",
            vec![open(0, 0, pushes_head(1)), reads_head(1, 1, 2, 0), reads_head(1, 3, 4, 1)],
        ),
        (
            "the token after a lost acquisition",
            vec![open(0, 0, leases("a")), entry(1, 1, 2, leases("a"), was_leased("a", 2))],
        ),
        ("a value beside a lease and lost calls", shown_beside_lost_calls()),
    ]
}

fn broken() -> [(&'static str, Vec<Entry>); 14] {
    let [alone, under_a_lease, in_a_transaction] = indexed_again(0);
    let two = |results: Value| Asked::Transaction(serde_json::from_value(results).unwrap());
    let both = two(json!([
        { "op": "push_head", "address": "a", "new": at_t(1) },
        { "op": "push_head", "address": "b", "new": at_t(1) },
    ]));
    let written = json!({ "status": "updated", "value": at_t(1) });
    let committed = (200, json!({ "results": [written, written] }));
    let reads_b = |n: i64| {
        let shown = if n == 0 { Concern::Head.unborn() } else { at_t(n) };
        Asked::Read(Spot::new("b", Concern::Head)).into_read(shown)
    };
    [
        ("an acknowledged push is lost", vec![entry(0, 0, 1, pushes_head(1), was_updated(1)), reads_head(0, 2, 3, 0)]),
        (
            "a read goes back",
            vec![entry(0, 0, 9, pushes_head(1), was_updated(1)), reads_head(1, 1, 2, 1), reads_head(2, 3, 4, 0)],
        ),
        ("a value from nowhere", vec![reads_head(0, 0, 1, 7)]),
        (
            "a conflict that was applied",
            vec![
                entry(0, 0, 1, pushes_head(1), was_updated(1)),
                entry(1, 2, 3, expects(1, 2), was_rejected(1)),
                reads_head(1, 4, 5, 2),
            ],
        ),
        (
            "two winners over one expectation",
            vec![
                entry(0, 0, 1, pushes_head(1), was_updated(1)),
                entry(0, 2, 9, expects(1, 2), was_updated(2)),
                entry(1, 3, 8, expects(1, 3), was_updated(3)),
            ],
        ),
        (
            "a stale push that was answered as updated",
            vec![entry(0, 0, 1, pushes_head(5), was_updated(5)), entry(1, 2, 3, pushes_head(4), was_updated(4))],
        ),
        (
            "a matching expectation, rejected",
            vec![entry(0, 0, 1, pushes_head(1), was_updated(1)), entry(1, 2, 3, expects(1, 2), was_rejected(1))],
        ),
        (
            "a token given twice",
            vec![entry(0, 0, 1, leases("a"), was_leased("a", 1)), entry(1, 2, 3, leases("a"), was_leased("a", 1))],
        ),
        (
            "two holders at the same time",
            vec![entry(0, 0, 1, leases("a"), was_leased("a", 1)), entry(1, 2, 3, leases("b"), was_leased("b", 2))],
        ),
        (
            "half a transaction",
            vec![
                entry(0, 0, 1, both.clone(), committed.clone()),
                reads_head(1, 2, 3, 1),
                entry(1, 4, 5, reads_b(0).0, reads_b(0).1),
            ],
        ),
        (
            "a transaction that is seen in two halves",
            vec![entry(0, 0, 9, both, committed), reads_head(1, 1, 2, 1), entry(1, 3, 4, reads_b(0).0, reads_b(0).1)],
        ),
        ("another revision", alone),
        ("another revision, under a lease", under_a_lease),
        ("another revision, in a transaction", in_a_transaction),
    ]
}

#[test]
fn the_checker_takes_histories_that_some_order_explains() {
    for (name, history) in fine() {
        judge(history, false).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn the_checker_rejects_histories_that_no_order_explains() {
    for (name, history) in broken() {
        assert!(is_rejected(&judge(history, false)), "accepted: {name}");
    }
}

#[test]
fn a_search_that_may_not_try_enough_steps_neither_accepts_nor_rejects() {
    for (name, history) in fine().into_iter().chain(broken()) {
        let judged = judge_within(0, history, false);
        assert!(matches!(judged, Err(Rejection::Undecided(_))), "{name}: {judged:?}");
    }
}

#[test]
fn the_second_judge_takes_and_rejects_the_same_histories() {
    for (name, history) in fine() {
        second::judge(&history, false).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    for (name, history) in broken() {
        assert!(is_rejected(&second::judge(&history, false)), "accepted: {name}");
    }
}

#[test]
fn elles_check_names_what_it_rejects_of_the_same_histories() {
    let name_of = |history: &[Entry]| {
        let transactions: Vec<_> = history.iter().flat_map(elle::transactions_of).collect();
        elle::check(&transactions).err().map(|anomaly| anomaly.name)
    };
    for (name, history) in fine() {
        assert_eq!(name_of(&history), None, "{name}");
    }
    let found: Vec<_> = broken().iter().map(|(name, history)| (*name, name_of(history))).collect();
    let expected = [
        ("an acknowledged push is lost", Some("G-single-realtime")),
        ("a read goes back", Some("G-single-realtime")),
        ("a value from nowhere", Some("garbage read")),
        ("a conflict that was applied", Some("G1a")),
        ("two winners over one expectation", Some("G-single")),
        ("a stale push that was answered as updated", Some("G0-realtime")),
        // Elle's check knows nothing of conditions or leases.
        ("a matching expectation, rejected", None),
        ("a token given twice", None),
        ("two holders at the same time", None),
        ("half a transaction", Some("G-single-realtime")),
        ("a transaction that is seen in two halves", Some("G-single-realtime")),
        // It compares ids.
        ("another revision", None),
        ("another revision, under a lease", None),
        ("another revision, in a transaction", None),
    ];
    assert_eq!(found, expected.map(|(name, anomaly)| (name, anomaly.map(str::to_owned))));
}

/// How many changed answers have to be rejected, and in how many histories at most they are found.
const ENOUGH: usize = 6;
const MOST: u64 = 50;

impl Asked {
    fn into_read(self, shown: Value) -> (Self, (u16, Value)) {
        (self, (200, shown))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_rejects_what_was_answered_to_clients_once_an_answer_is_changed() {
    let service = Service::on(Proxied::fresh().await, Auth::Open).await;
    let (mut round, mut rejected) = (0, 0);
    while round < 3 || rejected < ENOUGH {
        assert!(round < MOST, "only {rejected} answers could be changed");
        round += 1;
        let names = vec![format!("c{round}:main")];
        create(service.url(), &names).await;
        let world = Arc::new(World::new(vec![service.url().to_owned()], names, Mix::PUSHES));
        let clients = (0..CLIENTS).map(|number| Client::new(number, round, world.clone()).run(STEPS));
        join_all(clients).await;
        let entries = world.recorder.take();
        judge(entries.clone(), false).unwrap_or_else(|why| panic!("round {round}: {why}"));
        second::judge(&entries, false).unwrap_or_else(|why| panic!("round {round}: {why}"));
        // Each applied push is reported as not applied: then a client has read, or expected, a value that no client wrote.
        for (at, entry) in entries.iter().enumerate() {
            let Asked::Push(spot, body) = &*entry.asked else { continue };
            let seen_later = |other: &Entry| {
                let shown = other.returned.as_ref().map(|(_, answer)| answer.body.to_string()).unwrap_or_default();
                matches!(spot.concern, Concern::Head | Concern::Index)
                    && shown.contains(body["new"]["id"].as_str().unwrap_or("never"))
            };
            let (_, answer) = entry.returned.as_ref().unwrap();
            let read = entries.iter().enumerate().any(|(other, entry)| other != at && seen_later(entry));
            if answer.body["status"] != "updated" || answer.body["replayed"] == true || !read {
                continue;
            }
            let mut changed = entries.clone();
            let changed_answer =
                Answered { status: 409, body: json!({ "type": "x/conflict", "actual": Concern::Head.unborn() }) };
            changed[at].returned = Some((entry.returned.as_ref().unwrap().0, Arc::new(changed_answer)));
            let (second, first) = (second::judge(&changed, false), judge(changed, false));
            assert!(is_rejected(&second), "{entry:?} may have been rejected, says the second judge");
            assert!(is_rejected(&first), "{entry:?} may have been rejected");
            rejected += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_judges_agree_on_real_histories_in_which_answers_were_exchanged() {
    let service = InProcess::new();
    let url = service.serve().await;
    let mut random = StdRng::seed_from_u64(1);
    let (mut round, mut accepted, mut rejected) = (0, 0, 0);
    while round < 3 || accepted == 0 || rejected == 0 {
        assert!(round < MOST, "{accepted} accepted, {rejected} rejected");
        round += 1;
        let names = vec![format!("x{round}:main")];
        create(&url, &names).await;
        let world = Arc::new(World::new(vec![url.clone()], names, Mix::PUSHES));
        join_all((0..CLIENTS).map(|number| Client::new(number, round, world.clone()).run(STEPS))).await;
        let entries = world.recorder.take();
        for _ in 0..20 {
            let one = random.random_range(0..entries.len());
            let alike = |other: &usize| {
                let (one, other) = (&*entries[one].asked, &*entries[*other].asked);
                one.spots() == other.spots() && one.writes() == other.writes()
            };
            let alike: Vec<usize> = (0..entries.len()).filter(alike).collect();
            let other = alike[random.random_range(0..alike.len())];
            let mut changed = entries.clone();
            let answer_of = |at: usize| entries[at].returned.as_ref().map(|(_, answer)| answer.clone());
            for (at, answer) in [(one, answer_of(other)), (other, answer_of(one))] {
                changed[at].returned = entries[at].returned.as_ref().map(|(end, _)| *end).zip(answer);
            }
            let (second, first) = (second::judge(&changed, false), judge(changed, false));
            let is_rejection = is_rejected(&first);
            assert_eq!(is_rejection, is_rejected(&second), "the first judge: {first:?}\nthe second judge: {second:?}");
            match is_rejection {
                false => accepted += 1,
                true => rejected += 1,
            }
        }
    }
}
