//! A second judge of linearizability: another search, over another specification.
//!
//! It shares no logic with `judge.rs` and `spec.rs`, so that a mistake in one of them does not hide a mistake of the service: the
//! search is Porcupine's, over single calls instead of the clients' sequences; the specification (`objects.rs`, `leases.rs`) uses
//! typed values.

mod leases;
mod objects;
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use porcupine_rs::{CheckResult, Model, Operation, check_operations_info_timeout, check_operations_timeout};
use serde_json::Value;

use self::objects::Objects;
use super::{
    judge::{Entry, Rejection},
    spec::{Answered, Asked, Spot},
};

/// How long a search may take: the library counts nothing else. Most take a few milliseconds.
const DEADLINE: Duration = Duration::from_secs(600);
/// How long a search among some of the calls may take. It saves work where it finds an order, and decides nothing otherwise.
const SHORTCUT: Duration = Duration::from_secs(60);
/// How many writes an item remembers (docs/specification.md, Answers).
const REMEMBERED: usize = 4;

/// A call.
#[derive(Clone, Debug)]
struct Call {
    asked: Arc<Asked>,
    invoked: u64,
    /// When it was answered, and how; `None` if nobody knows whether it was applied.
    answered: Option<(u64, Arc<Answered>)>,
    /// Whether an answer shows a value that it brings.
    is_shown: bool,
    /// When it was over at the latest: when it was answered, or when an answer shows what no other call brings.
    until: u64,
}

/// Judges a history. The error shows how far an order can go.
pub(super) fn judge(entries: &[Entry], leases_end: bool) -> Result<(), Rejection> {
    let mut undecided = None;
    for part in parts(entries) {
        let calls = calls(&part);
        match if leases_end { search::<true>(&calls) } else { search::<false>(&calls) } {
            Err(Rejection::Undecided(why)) => undecided = Some(Rejection::Undecided(why)),
            decided => decided?,
        }
    }
    undecided.map_or(Ok(()), Err)
}

/// Divides a history into parts that share no concern.
fn parts(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    fn root(of: &[usize], mut at: usize) -> usize {
        while of[at] != at {
            at = of[at];
        }
        at
    }
    // A union-find forest: each call points to another of its part.
    let mut of: Vec<usize> = (0..entries.len()).collect();
    let mut first: BTreeMap<Spot, usize> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        for spot in entry.asked.spots() {
            let other = *first.entry(spot).or_insert(at);
            let (from, to) = (root(&of, at), root(&of, other));
            of[from] = to;
        }
    }
    let mut parts: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        parts.entry(root(&of, at)).or_default().push(entry);
    }
    parts.into_values().collect()
}

/// Returns the calls of a part. A call that was sent more than once and rejected may have been applied all the same, if enough
/// others wrote meanwhile for its item to forget it: then its answer says nothing. A lease may then have been acquired or
/// refreshed a second time, also by a call that was never answered.
fn calls(part: &[&Entry]) -> Vec<Call> {
    let rejects = |answer: &Answered| answer.status == 409 || answer.body["status"] == "stale";
    let end = |entry: &Entry| entry.returned.as_ref().map_or(u64::MAX, |(at, _)| *at);
    let is_forgotten = |entry: &Entry| {
        entry.asked.spots().iter().any(|spot| {
            let wrote = |other: &&&Entry| {
                let not_rejected = other.returned.as_ref().is_none_or(|(_, answer)| !rejects(answer));
                other.asked.writes() && not_rejected && other.asked.spots().contains(spot)
            };
            let meanwhile = |other: &&&Entry| other.invoked < end(entry) && entry.invoked < end(other);
            part.iter().filter(wrote).filter(meanwhile).count() >= REMEMBERED
        })
    };
    let mut calls = Vec::new();
    for entry in part {
        let is_rejected = entry.returned.as_ref().is_some_and(|(_, answer)| rejects(answer));
        let is_forgotten = (entry.returned.is_some() || entry.repeated) && is_forgotten(entry);
        let says_nothing = entry.repeated && entry.asked.writes() && is_rejected && is_forgotten;
        let answered = entry.returned.clone().filter(|_| !says_nothing);
        let until = answered.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let call = Call { asked: entry.asked.clone(), invoked: entry.invoked, answered, is_shown: false, until };
        if let Asked::Lease(record, asked) = &*entry.asked
            && is_forgotten
            && !is_rejected
            && (asked.get("token").is_some() || lacks_a_token(part, record))
        {
            calls.push(Call { answered: None, until: u64::MAX, ..call.clone() });
        }
        calls.push(call);
    }
    note_shown(&mut calls);
    calls
}

/// Notes which calls of unknown outcome were applied, since an answer shows what they bring, and until when.
fn note_shown(calls: &mut [Call]) {
    let (mut shown, mut brought) = (BTreeMap::new(), BTreeMap::<_, usize>::new());
    for call in calls.iter() {
        if let Some((at, answer)) = &call.answered {
            for mark in marks(&answer.body) {
                let first = shown.entry(mark).or_insert(*at);
                *first = (*first).min(*at);
            }
        }
        brings(&call.asked).into_iter().for_each(|mark| *brought.entry(mark).or_default() += 1);
    }
    for call in calls.iter_mut().filter(|call| call.answered.is_none()) {
        for mark in brings(&call.asked) {
            let Some(at) = shown.get(&mark) else { continue };
            call.is_shown = true;
            // A value that is shown before its call began is the service's mistake, and the search has to find that.
            if brought[&mark] == 1 && call.invoked < *at {
                call.until = call.until.min(*at);
            }
        }
    }
}

/// Returns whether some token of a record is in no answer although a later one is.
fn lacks_a_token(part: &[&Entry], record: &str) -> bool {
    let of_record = part.iter().filter(|entry| matches!(&*entry.asked, Asked::Lease(of, _) if of == record));
    let shown = of_record.filter_map(|entry| entry.returned.as_ref()?.1.body["token"].as_i64());
    let tokens: BTreeSet<i64> = shown.collect();
    tokens.iter().zip(1..).any(|(token, expected)| *token != expected)
}

/// The specification of records whose leases may end, or not, while a history lasts.
#[derive(Clone, Debug)]
struct Nameservice<const LEASES_END: bool>;

impl<const LEASES_END: bool> Model for Nameservice<LEASES_END> {
    type State = Objects;
    type Op = Call;
    type Metadata = ();

    fn init() -> Objects {
        Objects::new(LEASES_END)
    }

    /// A call whose answer is not known fits anywhere. One that was never applied comes last, where nobody sees its effect.
    fn step(objects: &Objects, call: &Call) -> (bool, Objects) {
        let mut after = objects.clone();
        let fits = match &call.answered {
            Some((_, answer)) => after.answers(&call.asked, answer),
            None => {
                after.make(&call.asked);
                true
            }
        };
        (fits, after)
    }
}

/// Searches for an order of calls. The error shows the longest that fits.
///
/// The search tries calls in the order in which they began, so every call of unknown outcome doubles its work. Most such calls were
/// never applied, or no answer shows them: it tries an order without them first, and then one with those that concern leases, whose
/// values an answer shows only in part.
fn search<const LEASES_END: bool>(calls: &[Call]) -> Result<(), Rejection> {
    let certain = |call: &&Call| call.answered.is_some() || call.is_shown;
    let leases = |call: &&Call| matches!(*call.asked, Asked::Lease(..) | Asked::Release(..));
    let certain_or_leases = calls.iter().filter(|call| certain(call) || leases(call));
    for some in [calls.iter().filter(certain).collect::<Vec<_>>(), certain_or_leases.collect()] {
        if check_operations_timeout(&operations::<LEASES_END>(some), SHORTCUT) == CheckResult::Ok {
            return Ok(());
        }
    }
    let operations = operations::<LEASES_END>(calls);
    // If partial orders were asked for, a search that ran out of time would count as one that found no order.
    let result = check_operations_timeout(&operations, DEADLINE);
    if result == CheckResult::Ok {
        return Ok(());
    }
    let (_, info) = check_operations_info_timeout(&operations, SHORTCUT);
    let longest = info.partial_linearizations.into_iter().flatten().max_by_key(Vec::len).unwrap_or_default();
    let shown = shown::<LEASES_END>(calls, &longest);
    Err(match result {
        CheckResult::Unknown => {
            Rejection::Undecided(format!("the second judge found no order in {} s; {shown}", DEADLINE.as_secs()))
        }
        _ => Rejection::Impossible(format!("the second judge: no order explains the answers; {shown}")),
    })
}

fn operations<'a, const LEASES_END: bool>(
    calls: impl IntoIterator<Item = &'a Call>,
) -> Vec<Operation<Nameservice<LEASES_END>>> {
    let time = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    calls
        .into_iter()
        .map(|call| Operation {
            client_id: None,
            call_time: time(call.invoked),
            return_time: time(call.until),
            op: call.clone(),
            metadata: None,
        })
        .collect()
}

/// What names a value. Clients bring each only once, unless they repeat what they have read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// The content id of a head or index.
    Id(String),
    /// The number in the payload of a status or config. A lease changes the state beside it.
    Number(i64),
}

/// Returns the marks in a value, at any depth.
fn marks(value: &Value) -> Vec<Mark> {
    match value {
        Value::Object(members) => {
            let id = members.get("id").and_then(Value::as_str).map(|id| Mark::Id(id.to_owned()));
            let number = members.get("payload").and_then(|payload| payload["n"].as_i64()).map(Mark::Number);
            id.into_iter().chain(number).chain(members.values().flat_map(marks)).collect()
        }
        Value::Array(members) => members.iter().flat_map(marks).collect(),
        _ => Vec::new(),
    }
}

/// Returns the marks of what a call writes. What a lease brings has none.
fn brings(asked: &Asked) -> Vec<Mark> {
    match asked {
        Asked::Read(_) | Asked::Lease(..) | Asked::Release(..) => Vec::new(),
        Asked::Push(_, body) => marks(&body["new"]),
        Asked::Transaction(operations) => operations.iter().flat_map(|operation| marks(&operation["new"])).collect(),
    }
}

/// The order that goes furthest, and the calls that are left.
fn shown<const LEASES_END: bool>(calls: &[Call], order: &[usize]) -> String {
    let mut text = String::new();
    let mut line = |at: usize| {
        let Call { asked, invoked, answered, .. } = &calls[at];
        match answered {
            Some((returned, answer)) => writeln!(text, "  [{invoked}..{returned}] {asked:?} -> {answer:?}").unwrap(),
            None => writeln!(text, "  [{invoked}..] {asked:?} -> not known").unwrap(),
        }
    };
    order.iter().copied().for_each(&mut line);
    (0..calls.len()).filter(|at| !order.contains(at)).for_each(&mut line);
    let fold = |objects, at: &usize| Nameservice::<LEASES_END>::step(&objects, &calls[*at]).1;
    let objects = order.iter().fold(Nameservice::<LEASES_END>::init(), fold);
    let made = order.len();
    format!("in this order the first {made} of these calls fit, and then none:\n{text}  {objects:?}")
}
