//! Pushes of one head, for docs/tla/RingTrace.tla.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use nameservice_store::RetryPolicy;
use nameservice_tests::{cids::id_of, engine, prelude::*};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{Log, Trace, sequence, write_all};

const DB: &str = "mydb:main";
const CLIENTS: usize = 3;
/// How many pushes each client makes.
const PUSHES: usize = 5;
/// The share of requests that meet a fault.
const FAULTS: f64 = 0.4;

#[derive(Clone, Copy, Debug)]
enum Event {
    Began { call: usize, expects: usize },
    Ended { call: usize, answer: &'static str },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { call, expects } => write!(f, "[kind |-> \"begin\", call |-> {call}, expects |-> {expects}]"),
            Self::Ended { call, answer } => write!(f, "[kind |-> \"end\", call |-> {call}, answer |-> \"{answer}\"]"),
        }
    }
}

/// A log, and which call wrote each version.
#[derive(Clone)]
struct Pushes {
    log: Vec<Event>,
    written: Vec<usize>,
}

impl Trace for Pushes {
    const SPECIFICATION: &'static str = "RingTrace";

    fn constants(&self) -> Vec<(&'static str, String)> {
        let calls: Vec<String> = (1..=CLIENTS * PUSHES).map(|call| call.to_string()).collect();
        let on = || "TRUE".to_owned();
        vec![
            ("Expecting", format!("{{{}}}", calls.join(", "))),
            ("Blind", "{}".to_owned()),
            ("Writes", calls.len().to_string()),
            ("Slots", "4".to_owned()),
            ("LooksAtRing", on()),
            ("AdmitsDoubt", on()),
            ("Log", sequence(&self.log)),
            ("Written", sequence(&self.written)),
        ]
    }

    fn changed(&self) -> Vec<(&'static str, Option<Self>)> {
        vec![
            ("conflict", self.answered("updated", "conflict")),
            ("updated", self.answered("conflict", "updated")),
            ("exchanged", self.exchanged()),
        ]
    }
}

impl Pushes {
    /// The same trace, but with the first answer `from` replaced by `to`.
    fn answered(&self, from: &str, to: &'static str) -> Option<Self> {
        let mut trace = self.clone();
        let answer = trace.log.iter_mut().find_map(|event| match event {
            Event::Ended { answer, .. } if *answer == from => Some(answer),
            _ => None,
        })?;
        *answer = to;
        Some(trace)
    }

    /// The same trace, but the last two writes are exchanged.
    fn exchanged(&self) -> Option<Self> {
        let mut trace = self.clone();
        let last = trace.written.len().checked_sub(2)?;
        trace.written.swap(last, last + 1);
        Some(trace)
    }
}

/// Which call pushed each head that was read, by its `t`.
type Seen = Arc<Mutex<BTreeMap<i64, Head>>>;

/// The id that a call pushes.
fn id_by(call: usize) -> ContentId {
    id_of(&format!("call {call}"))
}

async fn read(store: &Store, seen: &Seen) -> Head {
    let head = store.head(&at(DB)).await.unwrap().unwrap();
    seen.lock().unwrap().insert(head.v, head.clone());
    head
}

/// Pushes, expecting the head that it has read or, now and then, the one before.
async fn client(n: usize, direct: Store, store: Store, log: Arc<Log<Event>>, seen: Seen, mut random: StdRng) {
    let mut last = read(&direct, &seen).await;
    for push in 0..PUSHES {
        let (call, current) = (1 + n * PUSHES + push, read(&direct, &seen).await);
        let expected = if random.random_bool(0.2) { last } else { current.clone() };
        last = current;
        let next = NewHead::new(id_by(call), expected.v + 1).unwrap();
        log.add(Event::Began { call, expects: (expected.v - 1) as usize });
        let pushed = store.push_head(&Call::fresh(), &at(DB), &cas(expected, next)).await;
        let answer = match pushed {
            Ok(PushOutcome::Updated { .. }) => "updated",
            Ok(PushOutcome::Conflict { .. } | PushOutcome::Stale { .. }) => "conflict",
            Ok(other) => panic!("{other:?}"),
            // A rejection after a lost reply has no source. With one, the call was given up: its client knows nothing.
            Err(Error::OutcomeUnknown { source: None, .. }) => "unknown",
            Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. }) => "none",
            Err(error) => panic!("{error:?}"),
        };
        log.add(Event::Ended { call, answer });
    }
}

async fn trace(seed: u64) -> Pushes {
    let table = Proxied::fresh().await;
    table.direct().create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
    table.proxy.strike_at_random(seed, FAULTS);
    let (log, seen) = (Arc::new(Log::new()), Seen::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let policy = RetryPolicy { deadline: LONG, base: Duration::from_millis(5), cap: Duration::from_millis(20) };
            let store = Store::new(engine::client(table.proxy.url()), table.store.table()).with_retry_policy(policy);
            let random = StdRng::seed_from_u64(seed * 10 + n as u64);
            tokio::spawn(client(n, table.direct().clone(), store, log.clone(), seen.clone(), random))
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let last = read(table.direct(), &seen).await.v;
    let seen = seen.lock().unwrap();
    let by = |head: &Head| {
        let id = head.payload.clone().unwrap();
        (1..=CLIENTS * PUSHES).find(|call| id_by(*call) == id).unwrap()
    };
    // A client reads a head before it overwrites it, so all of them were seen.
    let written = (2..=last).map(|t| by(&seen[&t])).collect();
    Pushes { log: log.take(), written }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "writes what .ci/proofs checks"]
async fn traces_of_pushes_are_written_for_the_checker() {
    write_all(trace).await;
}
