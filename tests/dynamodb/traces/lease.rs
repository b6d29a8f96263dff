//! Processes that want one lease, and pushes under it, for docs/tla/LeaseTrace.tla.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, UNIX_EPOCH},
};

use nameservice_tests::{engine, prelude::*};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{Log, Trace, sequence, write_all};

const DB: &str = "mydb:main";
/// The name that each process gives as holder. The second is the first one, started again.
const HOLDERS: [&str; 3] = ["one", "one", "two"];
const CALLS: usize = 6;
/// How long a lease lasts, and the latest time that the clock is set to, in seconds.
const TTL: u32 = 5;
const LAST_TIME: u64 = 12;
/// What the traces count seconds from.
const BEGINNING: u64 = 1_700_000_000;
/// The share of requests that meet a fault.
const FAULTS: f64 = 0.3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    Refresh,
    Release,
    Push,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Rejected,
    None,
}

/// An event of a process; processes are numbered from 1.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A call begins, with this token (0 if it has none) and at this time of its service's clock.
    Began { by: usize, kind: Kind, token: i64, time: u64 },
    /// A call ends. The token is that of an acquired lease, otherwise 0.
    Ended { by: usize, answer: Answer, token: i64 },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |word: &dyn fmt::Debug| format!("{word:?}").to_lowercase();
        match self {
            Self::Began { by, kind, token, time } => {
                let kind = word(kind);
                write!(f, "[kind |-> \"{kind}\", by |-> {by}, token |-> {token}, time |-> {time}]")
            }
            Self::Ended { by, answer, token } => {
                let answer = word(answer);
                write!(f, "[kind |-> \"end\", by |-> {by}, answer |-> \"{answer}\", token |-> {token}]")
            }
        }
    }
}

/// A log, and the lease in the end.
#[derive(Clone)]
struct Claims {
    log: Vec<Event>,
    token: i64,
    /// Its holder, and when it expires.
    lease: Option<(String, i64)>,
}

impl Trace for Claims {
    const SPECIFICATION: &'static str = "LeaseTrace";

    fn constants(&self) -> Vec<(&'static str, String)> {
        let holders: Vec<String> = HOLDERS.iter().map(|holder| format!("\"{holder}\"")).collect();
        let processes: Vec<String> = (1..=HOLDERS.len()).map(|process| process.to_string()).collect();
        let (holder, until) = self.lease.clone().unwrap_or_else(|| ("none".to_owned(), 0));
        vec![
            ("Processes", format!("{{{}}}", processes.join(", "))),
            ("Holder", sequence(&holders)),
            ("Ttl", TTL.to_string()),
            ("LastTime", LAST_TIME.to_string()),
            ("LastToken", (HOLDERS.len() * CALLS).to_string()),
            ("ChecksToken", "TRUE".to_owned()),
            ("TokensGrow", "TRUE".to_owned()),
            ("Log", sequence(&self.log)),
            ("Final", format!("[token |-> {}, holder |-> \"{holder}\", until |-> {until}]", self.token)),
        ]
    }

    fn changed(&self) -> Vec<(&'static str, Option<Self>)> {
        vec![("exchanged", self.exchanged()), ("overtaken", self.done_under_an_overtaken_token())]
    }
}

impl Claims {
    /// The indexes of the events at which a lease was acquired, with its token.
    fn acquired(&self) -> impl Iterator<Item = (usize, i64)> {
        self.log.iter().enumerate().filter_map(|(place, event)| match event {
            Event::Ended { answer: Answer::Done, token, .. } if *token > 0 => Some((place, *token)),
            _ => None,
        })
    }

    /// The same trace, but the tokens of two acquisitions, one after the other, are exchanged.
    fn exchanged(&self) -> Option<Self> {
        let (mut trace, acquired) = (self.clone(), self.acquired().collect::<Vec<_>>());
        let begins = |end: usize| {
            let Event::Ended { by: process, .. } = self.log[end] else { unreachable!() };
            self.log[..end].iter().rposition(|event| matches!(event, Event::Began { by, .. } if *by == process))
        };
        let (first, second) = acquired.iter().find_map(|(first, _)| {
            let second = acquired.iter().find(|(second, _)| begins(*second).is_some_and(|begun| begun > *first))?;
            Some((*first, second.0))
        })?;
        for (place, of) in [(first, second), (second, first)] {
            let Event::Ended { token: other, .. } = self.log[of] else { unreachable!() };
            let Event::Ended { token, .. } = &mut trace.log[place] else { unreachable!() };
            *token = other;
        }
        Some(trace)
    }

    /// The same trace, but a rejected push under an overtaken token is answered as done.
    fn done_under_an_overtaken_token(&self) -> Option<Self> {
        let mut trace = self.clone();
        let place = self.log.iter().enumerate().find_map(|(begun, event)| {
            let Event::Began { by: process, kind: Kind::Push, token: under, .. } = event else { return None };
            let is_overtaken = self.acquired().any(|(place, token)| place < begun && token > *under);
            let ends = |event: &Event| matches!(event, Event::Ended { by, .. } if by == process);
            let end = begun + self.log[begun..].iter().position(ends)?;
            let is_rejected = matches!(self.log[end], Event::Ended { answer: Answer::Rejected, .. });
            (is_overtaken && is_rejected).then_some(end)
        })?;
        let Event::Ended { answer, .. } = &mut trace.log[place] else { unreachable!() };
        *answer = Answer::Done;
        Some(trace)
    }
}

/// The answer of a call in terms of the specification. A push that is rejected for its head says nothing of the lease.
fn answer<T>(called: Result<T>, of: impl FnOnce(T) -> Answer) -> Answer {
    match called {
        Ok(outcome) => of(outcome),
        Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. }) => Answer::None,
        Err(error) => panic!("{error:?}"),
    }
}

async fn process(by: usize, store: Store, next_t: Arc<AtomicU64>, log: Arc<Log<Event>>, mut random: StdRng) {
    let clock = Arc::new(AtomicU64::new(0));
    let reading = Arc::clone(&clock);
    let store = store.with_clock(move || UNIX_EPOCH + Duration::from_secs(BEGINNING + reading.load(SeqCst)));
    let (holder, db) = (HOLDERS[by - 1], at(DB));
    let mut token = 0;
    for _ in 0..CALLS {
        let kind = match random.random_range(0..10) {
            _ if token == 0 => Kind::Acquire,
            0 => Kind::Acquire,
            1..=2 => Kind::Refresh,
            3 => Kind::Release,
            _ => Kind::Push,
        };
        let time = random.random_range(0..=LAST_TIME);
        clock.store(time, SeqCst);
        let (call, request) = (Call::fresh(), index_lock(holder, TTL));
        let under = if kind == Kind::Acquire { 0 } else { token };
        log.add(Event::Began { by, kind, token: under, time });
        let mut given = 0;
        let answer = match kind {
            Kind::Acquire => answer(store.acquire_lease(&call, &db, &request).await, |outcome| match outcome {
                Leased::Held(held) => {
                    given = held.token;
                    Answer::Done
                }
                Leased::Busy(_) => Answer::Rejected,
                other => panic!("{other:?}"),
            }),
            Kind::Refresh => answer(store.refresh_lease(&call, &db, &request, token).await, |outcome| match outcome {
                Leased::Held(_) => Answer::Done,
                Leased::Lost { .. } => Answer::Rejected,
                other => panic!("{other:?}"),
            }),
            Kind::Release => {
                let claim = claim_of(LeaseName::INDEX, holder, token);
                answer(store.release_lease(&call, &db, &claim).await, |outcome| match outcome {
                    Released::Released => Answer::Done,
                    Released::Lost { .. } => Answer::Rejected,
                    other => panic!("{other:?}"),
                })
            }
            Kind::Push => {
                let t = next_t.fetch_add(1, SeqCst) as i64;
                let push = older(new_head(t)).under(claim_of(LeaseName::INDEX, holder, token)).unwrap();
                answer(store.push_head(&call, &db, &push).await, |outcome| match outcome {
                    PushOutcome::Updated { .. } => Answer::Done,
                    PushOutcome::LeaseLost { .. } => Answer::Rejected,
                    PushOutcome::Stale { .. } => Answer::None,
                    other => panic!("{other:?}"),
                })
            }
        };
        log.add(Event::Ended { by, answer, token: given });
        if kind == Kind::Acquire {
            token = given;
        }
    }
}

async fn trace(seed: u64) -> Claims {
    let table = Proxied::fresh().await;
    table.direct().create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
    table.proxy.strike_at_random(seed, FAULTS);
    let (log, next_t) = (Arc::new(Log::new()), Arc::new(AtomicU64::new(2)));
    let processes: Vec<_> = (1..=HOLDERS.len())
        .map(|by| {
            let random = StdRng::seed_from_u64(seed * 10 + by as u64);
            let store = Store::new(engine::client(table.proxy.url()), table.store.table());
            let store = store.with_retry_policy(engine::RETRIES);
            tokio::spawn(process(by, store, next_t.clone(), log.clone(), random))
        })
        .collect();
    for process in processes {
        process.await.unwrap();
    }
    let row = table.row(DB, "status").await.unwrap();
    let number = |value: &Value| value["N"].as_str().unwrap().parse().unwrap();
    let lease = row.get("lease").map(|lease| {
        let holder = lease["M"]["holder"]["S"].as_str().unwrap().to_owned();
        (holder, number(&lease["M"]["expires_at"]) - BEGINNING as i64)
    });
    Claims { log: log.take(), token: number(&row["lease_token"]), lease }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "writes what .ci/proofs checks"]
async fn traces_of_leases_are_written_for_the_checker() {
    write_all(trace).await;
}
