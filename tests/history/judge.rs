//! Records histories and judges them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nameservice_tests::seeds::SEED;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

use crate::history::spec::{Answered, Asked, Records, Spot, Step};

/// How many steps the search for an order may try. If there is an order, it takes a few hundred.
const STEPS: i64 = 1_000_000;

/// How many writes an item remembers (docs/specification.md, Answers).
const REMEMBERED: usize = 4;

/// A call, from before it was sent until its answer arrived.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The client. It makes one call at a time.
    pub(crate) client: u32,
    pub(crate) asked: Arc<Asked>,
    pub(crate) invoked: u64,
    /// `None` if no answer came: it may have been applied, at any time since.
    pub(crate) returned: Option<(u64, Arc<Answered>)>,
    /// Whether the client sent it more than once.
    pub(crate) repeated: bool,
}

impl Entry {
    fn end(&self) -> u64 {
        self.returned.as_ref().map_or(u64::MAX, |(at, _)| *at)
    }
}

/// The log of all clients of a history.
#[derive(Default)]
pub(crate) struct Recorder {
    ticks: AtomicU64,
    answers: AtomicU64,
    entries: Mutex<Vec<Entry>>,
    latencies: Mutex<Vec<Duration>>,
}

impl Recorder {
    /// The next point of time.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn record(&self, entry: Entry) {
        if entry.returned.is_some() {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        self.entries.lock().unwrap().push(entry);
    }

    /// How many answers were recorded; one that shows several concerns counts for each.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.entries.lock().unwrap())
    }

    /// Notes how long an answer took.
    pub(crate) fn answered(&self, after: Duration) {
        self.latencies.lock().unwrap().push(after);
    }

    pub(crate) fn take_latencies(&self) -> Vec<Duration> {
        std::mem::take(&mut self.latencies.lock().unwrap())
    }
}

/// Counts of what was judged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// Histories of one concern each, or of all concerns that transactions and leases connect.
    pub(crate) histories: usize,
    pub(crate) operations: usize,
    /// Those of them that were never answered.
    pub(crate) open: usize,
    pub(crate) transactions: usize,
    /// The seeds of the histories that a judge could not decide about.
    pub(crate) undecided: Vec<u64>,
}

/// Why a judge does not accept a history.
#[derive(Debug, PartialEq)]
pub(crate) enum Rejection {
    /// No order explains its answers.
    Impossible(String),
    /// The search for an order has reached its limit: none was found, and none is excluded.
    Undecided(String),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(why) => write!(f, "{why}"),
            Self::Undecided(why) => write!(f, "undecided: {why}"),
        }
    }
}

/// Returns whether a judge has found that no order explains a history. It must have decided.
pub(super) fn is_rejected<T>(judged: &Result<T, Rejection>) -> bool {
    assert!(!matches!(judged, Err(Rejection::Undecided(_))), "a judge is undecided");
    judged.is_err()
}

impl Judged {
    pub(crate) fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.open += other.open;
        self.transactions += other.transactions;
        self.undecided.extend(&other.undecided);
    }

    /// Panics if a judge could not decide about a history: that says nothing about the service, but it is not accepted either.
    pub(crate) fn all_are_decided(&self) {
        let seeds: Vec<_> = self.undecided.iter().map(|seed| format!("{SEED}={seed}")).collect();
        assert!(seeds.is_empty(), "undecided, neither accepted nor rejected: {}", seeds.join(" "));
    }
}

/// Judges a history, in parts that have no concern in common. The error shows the first part that no order explains, up to
/// the impossible answer.
pub(crate) fn judge(entries: Vec<Entry>, leases_end: bool) -> Result<Judged, Rejection> {
    judge_within(STEPS, entries, leases_end)
}

/// Judges a history by searches of at most this many steps.
pub(super) fn judge_within(steps: i64, entries: Vec<Entry>, leases_end: bool) -> Result<Judged, Rejection> {
    let (mut judged, mut undecided) = (Judged::default(), None);
    for part in parts(entries) {
        judged.histories += 1;
        judged.operations += part.len();
        judged.open += part.iter().filter(|entry| entry.returned.is_none()).count();
        judged.transactions += part.iter().filter(|entry| matches!(*entry.asked, Asked::Transaction(_))).count();
        let part = honest(part);
        match linearizable(&part, leases_end, steps) {
            Some(true) => {}
            Some(false) => return Err(Rejection::Impossible(explained(&part, leases_end, steps))),
            None => {
                undecided = Some(Rejection::Undecided(format!("no order found in {steps} steps:\n{}", shown(&part))));
            }
        }
    }
    undecided.map_or(Ok(judged), Err)
}

/// Calls that have a concern in common, directly or through others.
fn parts(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut part_of: BTreeMap<Spot, usize> = BTreeMap::new();
    let mut parts: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        let spots = entry.asked.spots();
        let mut touched: Vec<usize> = spots.iter().filter_map(|spot| part_of.get(spot).copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        let into = touched.first().copied().unwrap_or_else(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        for &from in touched.iter().skip(1) {
            let moved = std::mem::take(&mut parts[from]);
            parts[into].extend(moved);
            part_of.values_mut().filter(|part| **part == from).for_each(|part| *part = into);
        }
        part_of.extend(spots.into_iter().map(|spot| (spot, into)));
        parts[into].push(entry);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// An item remembers four writes: a lost call that is repeated after more than that is no longer recognised. Then it may be
/// rejected although it was applied, or acquire its lease a second time; what such an answer does not show is left open.
fn honest(part: Vec<Entry>) -> Vec<Entry> {
    let rejected = |answer: &Answered| answer.status >= 400 || answer.body["status"] == "stale";
    let may_have_written =
        |entry: &&Entry| entry.asked.writes() && entry.returned.as_ref().is_none_or(|(_, answer)| !rejected(answer));
    let writes: Vec<Entry> = part.iter().filter(may_have_written).cloned().collect();
    let mut honest = Vec::new();
    for entry in &part {
        let others = |spot: &Spot| {
            writes
                .iter()
                .filter(|other| other.invoked != entry.invoked && other.asked.spots().contains(spot))
                .filter(|other| other.invoked < entry.end() && other.end() > entry.invoked)
                .count()
        };
        let forgotten = entry.asked.spots().iter().any(|spot| others(spot) >= REMEMBERED);
        let is_rejected = entry.returned.as_ref().is_some_and(|(_, answer)| rejected(answer));
        if forgotten && is_rejected && entry.repeated && entry.asked.writes() {
            honest.push(Entry { returned: None, ..entry.clone() });
            continue;
        }
        if forgotten
            && !is_rejected
            && (entry.returned.is_some() || entry.repeated)
            && let Asked::Lease(record, asked) = &*entry.asked
            && (asked.get("token").is_some() || lacks_a_token(&part, record))
        {
            honest.push(Entry { returned: None, ..entry.clone() });
        }
        honest.push(entry.clone());
    }
    honest
}

/// Returns whether a token of a record was issued that no answer shows.
fn lacks_a_token(part: &[Entry], record: &str) -> bool {
    let given: BTreeSet<i64> = part
        .iter()
        .filter(|entry| matches!(&*entry.asked, Asked::Lease(of, _) if of == record))
        .filter_map(|entry| entry.returned.as_ref()?.1.body["token"].as_i64())
        .collect();
    given.last().is_some_and(|last| *last > given.len() as i64)
}

/// Returns whether some order of the calls, each between its start and its end, explains all answers; `None` if it is not found in
/// so many steps.
fn linearizable(part: &[Entry], leases_end: bool, steps: i64) -> Option<bool> {
    #[derive(Clone, Copy)]
    enum Event {
        Invoke(usize),
        Return(usize),
    }
    // An open call never ends, so its client continues under another name. Each concern of a read is a call of its own.
    let thread = |at: usize| match (&*part[at].asked, part[at].returned.is_some()) {
        // Calls that change nothing are tried first, those that may never have been applied last.
        (_, false) => (2, at, 0),
        (Asked::Read(spot), _) => (0, part[at].client as usize, spot.concern as usize),
        _ => (1, part[at].client as usize, 0),
    };
    let mut events: Vec<(u64, Event)> = Vec::new();
    for (at, entry) in part.iter().enumerate() {
        events.push((entry.invoked, Event::Invoke(at)));
        // A call that was never answered may be applied at any time: it ends after all others.
        events.push((entry.end(), Event::Return(at)));
    }
    events.sort_by_key(|(at, _)| *at);
    let answered = part.iter().filter(|entry| entry.returned.is_some()).count();
    let records = Records::new(leases_end, answered, steps);
    let mut tester = LinearizabilityTester::new(records.clone());
    for (_, event) in events {
        match event {
            Event::Invoke(at) => tester.on_invoke(thread(at), Step { at, asked: part[at].asked.clone() }).map(drop),
            Event::Return(at) => {
                let answer = part[at].returned.as_ref().map_or_else(Answered::never, |(_, answer)| answer.clone());
                tester.on_return(thread(at), answer).map(drop)
            }
        }
        .unwrap();
    }
    let search = std::thread::Builder::new().stack_size(64 << 20).spawn(move || tester.is_consistent());
    let is_found = search.unwrap().join().unwrap();
    (is_found || !records.has_given_up()).then_some(is_found)
}

/// Returns the shortest prefix of a history that no order explains.
fn explained(part: &[Entry], leases_end: bool, steps: i64) -> String {
    let mut ends: Vec<u64> = part.iter().map(Entry::end).filter(|end| *end < u64::MAX).collect();
    ends.sort_unstable();
    let until = |end: u64| -> Vec<Entry> {
        let begun = part.iter().filter(|entry| entry.invoked < end);
        begun
            .map(|entry| Entry { returned: entry.returned.clone().filter(|(at, _)| *at <= end), ..entry.clone() })
            .collect()
    };
    let explained = ends.partition_point(|end| linearizable(&until(*end), leases_end, steps) != Some(false));
    if let Some(end) = ends.get(explained) {
        return format!("no order explains the last answer:\n{}", shown(&until(*end)));
    }
    format!("no order explains these answers:\n{}", shown(part))
}

fn shown(part: &[Entry]) -> String {
    let mut sorted: Vec<&Entry> = part.iter().collect();
    sorted.sort_by_key(|entry| entry.end());
    let mut text = String::new();
    for entry in sorted {
        let Entry { client, asked, invoked, repeated, .. } = entry;
        let repeated = if *repeated { " (repeated)" } else { "" };
        match &entry.returned {
            Some((at, answer)) => writeln!(text, "  {client} [{invoked}..{at}]{repeated} {asked:?} -> {answer:?}"),
            None => writeln!(text, "  {client} [{invoked}..     ]{repeated} {asked:?} -> never answered"),
        }
        .unwrap();
    }
    without_long_ids(&text)
}

/// Shortens content ids to their ends, which are distinct.
fn without_long_ids(text: &str) -> String {
    text.split('"')
        .map(
            |word| {
                if word.len() == 59 && word.starts_with("baf") {
                    format!("…{}", &word[53..])
                } else {
                    word.to_owned()
                }
            },
        )
        .collect::<Vec<_>>()
        .join("\"")
}
