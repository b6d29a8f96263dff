//! The properties of every model hold in all its states, and every planted bug is found. `cargo models` prints the figures.

mod engine;

use nameservice_feed::MAX_TRANSACTION;
use nameservice_models::{
    Explored, depth, explore,
    faults::{self, FeedFault},
    feed::{
        self, Consumers,
        Role::{self, Consumer, Epoch, Reader},
    },
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
/// The first push and the first lease of a record, at the same time.
const FIRST: &[&[Task]] = &[&[Acquire { holder: 1 }, PushUnderLease], &[Push]];
/// A holder that releases its lease, and a successor that pushes.
const RELEASE: &[&[Task]] =
    &[&[Acquire { holder: 1 }, PushUnderLease, Release { holder: 1 }], &[Acquire { holder: 2 }, PushUnderLease]];

/// Two shards, each with a consumer.
const SHARDS: &[Role] = &[Consumer { shard: 0, batch: 1 }, Consumer { shard: 1, batch: 1 }];
/// A shard with a consumer in another environment beside its own: their batches overlap, and have different ends.
const TAKEOVER: &[Role] = &[Consumer { shard: 0, batch: 2 }, Consumer { shard: 0, batch: 1 }];
/// A consumer, an epoch and a reader at the same time.
const EPOCH: &[Role] = &[Consumer { shard: 0, batch: 1 }, Epoch, Reader { reads: 2 }];

/// Explores everything: no property is violated, and what must be possible was reached.
#[track_caller]
fn holds<S: Service>(name: &str, tasks: &[&[Task]], clock_steps: usize, possible: usize) {
    let mut tasks: Vec<Vec<Task>> = tasks.iter().map(|tasks| tasks.to_vec()).collect();
    // Deeper: the first client pushes again and again.
    tasks[0].extend(std::iter::repeat_n(Push, depth()));
    let tasks: Vec<&[Task]> = tasks.iter().map(Vec::as_slice).collect();
    all_hold(&explore(name, Network::<S>::new(&tasks, clock_steps, Fault::None), None), possible);
}

/// The same for the DynamoDB backend.
#[track_caller]
fn store_holds(name: &str, tasks: &[&[Task]], possible: usize, set: impl Fn(&mut Calls)) {
    let mut calls = Calls::new(tasks);
    calls.tasks[0].extend(std::iter::repeat_n(Push, depth()));
    set(&mut calls);
    all_hold(&explore(name, calls, None), possible);
}

/// The same for the feed on DynamoDB.
#[track_caller]
fn feed_holds(name: &str, shards: &[usize], roles: &[Role], possible: usize, set: impl Fn(&mut Consumers)) {
    let mut consumers = Consumers::new(shards, roles);
    set(&mut consumers);
    all_hold(&explore(name, consumers, None), possible);
}

/// A consumer dies and starts again, or gives up and continues.
fn starts_again(consumers: &mut Consumers) {
    (consumers.lives, consumers.times_out) = (2, true);
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
    let queried = ["config", "head", "meta", "status"].map(|sort| ("mydb:main".to_owned(), sort.to_owned()));
    engine::agrees(&engine::Rows { keys: ["pk", "sk"], queried: queried.into(), absent: 5 }, &requests);
    let mut requests = Vec::new();
    let sets: [(&[usize], &[Role]); 3] = [(&[1, 1], SHARDS), (&[2], TAKEOVER), (&[2], EPOCH)];
    for (shards, roles) in sets {
        let consumers = Consumers::new(shards, roles);
        explore("feed, for its requests", consumers.clone(), None);
        requests.extend(consumers.sent());
    }
    let queried = [0, 1, 2, 3].map(|position| ("feed#0".to_owned(), format!("{position:020}")));
    engine::agrees(&engine::Rows { keys: ["id", "position"], queried: queried.into(), absent: 2 }, &requests);
}

#[test]
fn consumers_of_two_shards_share_one_feed() {
    feed_holds("feed, two shards", &[3 + depth(), 2], SHARDS, 2, |_| {});
    feed_holds("feed, two shards, tokens forgotten", &[2 + depth(), 1], SHARDS, 2, |consumers| {
        consumers.remembers_tokens = false;
    });
}

#[test]
fn an_overtaken_consumer_appends_nothing_twice() {
    feed_holds("feed, takeover", &[3 + depth()], TAKEOVER, 2, |_| {});
}

#[test]
fn a_consumer_resumes_where_its_feed_ends() {
    feed_holds("feed, restart", &[3 + depth()], &[Consumer { shard: 0, batch: 2 }], 1, starts_again);
    // A batch of two transactions.
    let all = MAX_TRANSACTION + 1;
    feed_holds("feed, chunks", &[all], &[Consumer { shard: 0, batch: all }], 1, starts_again);
}

#[test]
fn readers_follow_the_feed_across_an_epoch() {
    feed_holds("feed, epoch", &[2 + depth()], EPOCH, 3, |_| {});
}

#[test]
fn planted_bugs_of_the_feed_are_found() {
    let found = |name: &str, shards: &[usize], roles: &[Role], fault: FeedFault, property: &'static str| {
        let mut consumers = Consumers::new(shards, roles);
        consumers.fault = fault;
        is_found(&explore(name, consumers, Some(property)), property);
    };
    found("feed, stream records not looked for", &[2], TAKEOVER, FeedFault::SeenUnread, feed::ONCE);
    found("feed, the counter unread", &[1, 1], SHARDS, FeedFault::CounterUnread, feed::HISTORIES);
    found("feed, epochs without a look at the counter", &[2], EPOCH, FeedFault::EpochUnread, feed::STAYS);
    found("feed, checkpoints before their batches", &[2], TAKEOVER, FeedFault::SavesFirst, feed::NOT_LOST);
    found("feed, doubtful batches passed over", &[2], TAKEOVER, FeedFault::PassesOver, feed::NOT_LOST);
    let all = MAX_TRANSACTION + 1;
    let alone = &[Consumer { shard: 0, batch: all }];
    found("feed, done after the first transaction", &[all], alone, FeedFault::FirstTransaction, feed::NOT_LOST);
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
