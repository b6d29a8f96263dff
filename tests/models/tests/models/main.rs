//! Every model holds its properties to the last state, and every planted bug is found. `cargo models` prints the figures.

mod engine;

use nameservice_models::{
    Explored, depth, explore, faults,
    feed::{self, Consumers},
    machine::Machine,
    network::{
        Fault, Network, Service,
        Task::{self, Acquire, Push, PushOlder, PushUnderLease, Release},
    },
    replica::{self, Replication},
    store::{Calls, Origin},
};

/// Clients that push one head, one of them more often than an item remembers.
const CONTENTION: &[&[Task]] = &[&[Push], &[Push], &[PushOlder, PushOlder, PushOlder, PushOlder]];
/// The same with five writes of others after a push.
const FIVE_WRITES: &[&[Task]] =
    &[&[Push], &[Push], &[PushOlder, PushOlder, PushOlder, PushOlder, PushOlder, PushOlder]];
/// The same with one client fewer, which makes a planted bug quick to find.
const PAIR: &[&[Task]] = &[&[Push], &[PushOlder, PushOlder, PushOlder, PushOlder, PushOlder]];
/// A holder with a push under way, the same holder started again, and another one.
const SUCCESSION: &[&[Task]] =
    &[&[Acquire { holder: 1 }, PushUnderLease], &[Acquire { holder: 1 }], &[Acquire { holder: 2 }]];
/// The first push and the first lease of a record, at once.
const FIRST: &[&[Task]] = &[&[Acquire { holder: 1 }, PushUnderLease], &[Push]];
/// A holder that releases its lease, and a successor that pushes.
const RELEASE: &[&[Task]] =
    &[&[Acquire { holder: 1 }, PushUnderLease, Release { holder: 1 }], &[Acquire { holder: 2 }, PushUnderLease]];

/// Explores everything: no property is violated, and what must be possible was reached.
#[track_caller]
fn holds<S: Service>(name: &str, tasks: &[&[Task]], clock_steps: usize, possible: usize) {
    let mut tasks: Vec<Vec<Task>> = tasks.iter().map(|tasks| tasks.to_vec()).collect();
    // Deeper: the first client pushes again and again.
    tasks[0].extend(std::iter::repeat_n(Push, depth()));
    let tasks: Vec<&[Task]> = tasks.iter().map(Vec::as_slice).collect();
    all_hold(&explore(name, Network::<S>::new(&tasks, clock_steps, Fault::None), None), possible);
}

/// The same of the DynamoDB backend.
#[track_caller]
fn store_holds(name: &str, tasks: &[&[Task]], possible: usize, set: impl Fn(&mut Calls)) {
    let mut calls = Calls::new(tasks);
    calls.tasks[0].extend(std::iter::repeat_n(Push, depth()));
    set(&mut calls);
    all_hold(&explore(name, calls, None), possible);
}

#[track_caller]
fn all_hold(explored: &Explored, possible: usize) {
    let violated: Vec<String> = explored
        .violated
        .iter()
        .map(|(property, steps)| format!("it does not hold that {property}:\n{steps}"))
        .collect();
    assert!(violated.is_empty(), "{}", violated.join("\n"));
    assert_eq!(explored.possible.len(), possible, "only this was reached: {:?}", explored.possible);
}

/// Explores until a planted bug violates a property.
#[track_caller]
fn finds<S: Service>(name: &str, tasks: &[&[Task]], fault: Fault, property: &'static str) {
    is_found(&explore(name, Network::<S>::new(tasks, 1, fault), Some(property)), property);
}

#[track_caller]
fn is_found(explored: &Explored, property: &str) {
    let found = explored.violated.iter().any(|(violated, _)| *violated == property);
    assert!(found, "the planted bug was not found: {:?}", explored.violated);
}

const NO_FALSE_CONFLICT: &str = "a rejected push was not applied, and never is";
const KNOWN: &str = "an applied push is unknown only after four writes of others";
const ONCE: &str = "a call is applied at most once";
const GROWS: &str = "watermarks and tokens only grow";
const FENCED: &str = "no push is applied under an overtaken token";
const EXPLAINED: &str = "changes are dense, and explain the record";
const PREFIX: &str = "the replica shows what its upstream showed at its position";

#[test]
fn the_state_machine_answers_contending_clients_truly() {
    holds::<Machine>("machine, contention", CONTENTION, 0, 2);
}

#[test]
fn the_state_machine_fences_overtaken_holders() {
    holds::<Machine>("machine, succession", SUCCESSION, 1, 2);
    holds::<Machine>("machine, release", RELEASE, 1, 2);
}

#[test]
fn the_store_answers_contending_clients_truly() {
    store_holds("store, contention", FIVE_WRITES, 3, |_| {});
}

#[test]
fn the_store_fences_overtaken_holders() {
    store_holds("store, succession", SUCCESSION, 2, |calls| calls.clock_steps = 1);
    store_holds("store, release", RELEASE, 2, |calls| calls.clock_steps = 1);
    store_holds("store, succession, tokens forgotten", SUCCESSION, 2, |calls| {
        (calls.clock_steps, calls.repeats, calls.remembers_tokens) = (1, 0, false);
    });
}

#[test]
fn the_store_completes_what_other_servers_have_left_out() {
    store_holds("store, a meta item alone", FIRST, 2, |calls| calls.origin = Origin::Meta);
}

#[test]
fn the_table_of_the_models_answers_as_an_engine_does() {
    let mut requests = Vec::new();
    let sets: [(&[&[Task]], Origin); 4] =
        [(PAIR, Origin::Ours), (SUCCESSION, Origin::Ours), (RELEASE, Origin::Ours), (FIRST, Origin::Meta)];
    for (tasks, origin) in sets {
        let mut calls = Calls::new(tasks);
        (calls.origin, calls.clock_steps, calls.repeats) = (origin, usize::from(tasks == SUCCESSION), 0);
        explore("store, for its requests", calls.clone(), None);
        requests.extend(calls.sent());
    }
    engine::agrees(["pk", "sk"], &requests);
}

#[test]
fn the_feed_is_dense_and_in_order_whatever_becomes_of_its_consumers() {
    all_hold(&explore("feed, takeover", Consumers::new(2 + depth().min(2), 2, 1), None), 1);
    all_hold(&explore("feed, restart", Consumers::new(3 + depth().min(1), 1, 2), None), 1);
}

#[test]
fn planted_bugs_of_the_feed_are_found() {
    use feed::Fault;
    for (name, fault, property) in [
        ("feed, stream records not looked for", Fault::SeenUnread, "a record is in the feed once"),
        ("feed, the counter unread", Fault::CounterUnread, "a consumer is returned where its records are"),
        ("feed, checkpoints before their batches", Fault::SavesFirst, "what need not be delivered again is in the feed"),
        ("feed, doubtful batches passed over", Fault::PassesOver, "what need not be delivered again is in the feed"),
    ] {
        let mut consumers = Consumers::new(2, 2, 1);
        consumers.fault = fault;
        is_found(&explore(name, consumers, Some(property)), property);
    }
}

#[test]
fn a_replica_shows_a_prefix_of_its_upstream() {
    let writes = 6 + depth();
    all_hold(&explore("replica", Replication::new(writes, 3, replica::Fault::None), None), 1);
}

#[test]
fn planted_bugs_of_the_state_machine_are_found() {
    finds::<Machine>("machine, retries under fresh ids", PAIR, Fault::FreshIds, NO_FALSE_CONFLICT);
    finds::<Machine>("machine, lost replies forgotten", PAIR, Fault::NoDoubt, NO_FALSE_CONFLICT);
    finds::<Machine>("machine, pushes without their lease", SUCCESSION, Fault::NoLease, FENCED);
    finds::<Machine>("machine, pushes under any token", SUCCESSION, Fault::AnyToken, FENCED);
    finds::<Machine>("machine, a change lost", PAIR, Fault::LostChange, EXPLAINED);
}

#[test]
fn planted_bugs_of_the_store_are_found() {
    use faults::Fault;
    let found = |name: &str, tasks: &[&[Task]], fault: Fault, property: &'static str| {
        let mut calls = Calls::new(tasks);
        (calls.fault, calls.clock_steps) = (fault, 1);
        is_found(&explore(name, calls, Some(property)), property);
    };
    found("store, the ring unread", SUCCESSION, Fault::RingUnread, ONCE);
    found("store, the ring unwritten", PAIR, Fault::RingUnwritten, KNOWN);
    found("store, a ring of two", PAIR, Fault::ShortRing, KNOWN);
    found("store, the head unread", PAIR, Fault::HeadUnread, GROWS);
    found("store, lost replies forgotten", PAIR, Fault::NoDoubt, NO_FALSE_CONFLICT);
    found("store, repeats under fresh ids", PAIR, Fault::FreshIds, NO_FALSE_CONFLICT);
    found("store, the lease unread", SUCCESSION, Fault::LeaseUnread, FENCED);
    found("store, the token unread", SUCCESSION, Fault::TokenUnread, FENCED);
    found("store, the token kept", SUCCESSION, Fault::TokenKept, FENCED);
}

#[test]
fn planted_bugs_of_a_replica_are_found() {
    for (name, fault) in [
        ("replica, changes numbered anew", replica::Fault::Renumbers),
        ("replica, a snapshot under a later position", replica::Fault::LatePosition),
    ] {
        is_found(&explore(name, Replication::new(6, 3, fault), Some(PREFIX)), PREFIX);
    }
}
