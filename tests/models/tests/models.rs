//! Every model holds its properties to the last state, and every planted bug is found. `cargo models` prints the figures.

use nameservice_models::{
    Explored, depth, explore,
    machine::Machine,
    network::{
        Fault, Network, Service,
        Task::{self, Acquire, Push, PushOlder, PushUnderLease, Release},
    },
    replica::{self, Replication},
};

/// Clients that push one head, one of them more often than an item remembers.
const CONTENTION: &[&[Task]] = &[&[Push], &[Push], &[PushOlder, PushOlder, PushOlder, PushOlder]];
/// The same with one client fewer, which makes a planted bug quick to find.
const PAIR: &[&[Task]] = &[&[Push], &[PushOlder, PushOlder, PushOlder, PushOlder, PushOlder]];
/// A holder with a push under way, the same holder started again, and another one.
const SUCCESSION: &[&[Task]] =
    &[&[Acquire { holder: 1 }, PushUnderLease], &[Acquire { holder: 1 }], &[Acquire { holder: 2 }]];
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
fn planted_bugs_of_a_replica_are_found() {
    for (name, fault) in [
        ("replica, changes numbered anew", replica::Fault::Renumbers),
        ("replica, a snapshot under a later position", replica::Fault::LatePosition),
    ] {
        is_found(&explore(name, Replication::new(6, 3, fault), Some(PREFIX)), PREFIX);
    }
}
