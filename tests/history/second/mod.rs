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
        let call = Call { asked: entry.asked.clone(), invoked: entry.invoked, answered };
        if let Asked::Lease(record, asked) = &*entry.asked
            && is_forgotten
            && !is_rejected
            && (asked.get("token").is_some() || lacks_a_token(part, record))
        {
            calls.push(Call { answered: None, ..call.clone() });
        }
        calls.push(call);
    }
    calls
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
/// never applied, or no answer shows them: it tries an order without them first, and then one with those whose values an answer shows.
fn search<const LEASES_END: bool>(calls: &[Call]) -> Result<(), Rejection> {
    let seen = values(calls);
    let answered = || calls.iter().filter(|call| call.answered.is_some());
    let shown_too = || calls.iter().filter(|call| call.answered.is_some() || is_shown(&call.asked, &seen));
    for some in [answered().collect::<Vec<_>>(), shown_too().collect()] {
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
            return_time: time(call.answered.as_ref().map_or(u64::MAX, |(at, _)| *at)),
            op: call.clone(),
            metadata: None,
        })
        .collect()
}

/// Returns the content ids and payloads in the answers of calls.
fn values(calls: &[Call]) -> BTreeSet<String> {
    fn collect(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                let named = ["id", "payload"].into_iter().filter_map(|name| members.get(name));
                into.extend(named.map(Value::to_string));
                members.values().for_each(|member| collect(member, into));
            }
            Value::Array(members) => members.iter().for_each(|member| collect(member, into)),
            _ => {}
        }
    }
    let mut values = BTreeSet::new();
    for (_, answer) in calls.iter().filter_map(|call| call.answered.as_ref()) {
        collect(&answer.body, &mut values);
    }
    values
}

/// Returns whether some value that a call brings is among these. What a lease brings is in no value.
fn is_shown(asked: &Asked, values: &BTreeSet<String>) -> bool {
    let brings = |body: &Value| {
        let new = &body["new"];
        ["id", "payload"].iter().filter_map(|name| new.get(name)).any(|value| values.contains(&value.to_string()))
    };
    match asked {
        Asked::Read(_) => false,
        Asked::Push(_, body) => brings(body),
        Asked::Lease(..) | Asked::Release(..) => true,
        Asked::Transaction(operations) => operations.iter().any(brings),
    }
}

/// The order that goes furthest, and the calls that are left.
fn shown<const LEASES_END: bool>(calls: &[Call], order: &[usize]) -> String {
    let mut text = String::new();
    let mut line = |at: usize| {
        let Call { asked, invoked, answered } = &calls[at];
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
