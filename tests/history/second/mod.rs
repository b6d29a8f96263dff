//! A second judge of linearizability: another search, over another specification.
//!
//! It shares no judgement with `judge.rs` and `spec.rs`, so that a mistake in one of them does not hide a mistake of the service: the
//! search is that of Wing and Gong with Lowe's memory of configurations, as Porcupine makes it, over single calls instead of
//! the clients' sequences; the specification (`objects.rs`, `leases.rs`) is of typed values.

mod leases;
mod objects;
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt::Write as _,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use self::objects::Objects;
use super::{
    judge::Entry,
    spec::{Answered, Asked, Spot},
};

/// The most configurations that are looked at of a history. Most have fewer than a thousand.
const CONFIGURATIONS: usize = 1_000_000;
/// How many writes an item remembers (docs/specification.md, Answers).
const REMEMBERED: usize = 4;

/// A call.
#[derive(Clone, Debug)]
struct Call {
    asked: Arc<Asked>,
    invoked: u64,
    /// When it was answered, and how; `None` where nobody knows whether it was applied.
    answered: Option<(u64, Arc<Answered>)>,
}

/// Judges a history. The error shows how far an order can go.
pub(super) fn judge(entries: &[Entry], leases_end: bool) -> Result<(), String> {
    for part in parts(entries) {
        let mut search = Search::of(calls(&part), leases_end);
        let why = match search.run() {
            Some(true) => continue,
            Some(false) => "there is no order".to_owned(),
            None => format!("undecided after {CONFIGURATIONS} configurations"),
        };
        return Err(format!("the second judge: {why}:\n{}", search.shown()));
    }
    Ok(())
}

/// Divides a history into parts that share no concern.
fn parts(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    fn root(of: &[usize], mut at: usize) -> usize {
        while of[at] != at {
            at = of[at];
        }
        at
    }
    // A forest of calls: each points to another of its part.
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

/// Returns the calls of a part. One that was sent more than once and rejected may have been applied all the same, where
/// enough others wrote meanwhile for its item to forget it: then its answer says nothing. A lease may then have been acquired or
/// refreshed a second time.
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
        let is_forgotten = entry.returned.is_some() && is_forgotten(entry);
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

/// A place in the search: the objects after some of the calls, and what can come next.
struct Place {
    made: Vec<bool>,
    options: std::vec::IntoIter<(usize, Objects)>,
}

/// A search for an order of calls.
struct Search {
    calls: Vec<Call>,
    /// The order that answered most calls, and the objects after it.
    furthest: (Vec<usize>, Objects),
}

impl Search {
    fn of(calls: Vec<Call>, leases_end: bool) -> Self {
        Self { calls, furthest: (Vec::new(), Objects::new(leases_end)) }
    }

    /// Returns whether there is an order; `None` where the search is too long.
    fn run(&mut self) -> Option<bool> {
        let hasher = RandomState::new();
        let all = self.answered(&vec![true; self.calls.len()]);
        let mut known: HashSet<u64> = HashSet::new();
        let none = vec![false; self.calls.len()];
        let options = self.options(&none, &self.furthest.1);
        let mut way = vec![Place { made: none, options: options.into_iter() }];
        let (mut order, mut best) = (Vec::new(), 0);
        loop {
            let Some(place) = way.last_mut() else { return Some(false) };
            if self.answered(&place.made) == all {
                return Some(true);
            }
            let Some((next, objects)) = place.options.next() else {
                way.pop();
                order.pop();
                continue;
            };
            let mut made = place.made.clone();
            made[next] = true;
            // The same calls with the same objects after them can go on in the same ways.
            if !known.insert(hasher.hash_one((&made, &objects))) {
                continue;
            }
            if known.len() > CONFIGURATIONS {
                return None;
            }
            order.push(next);
            let answered = self.answered(&made);
            if answered > best {
                best = answered;
                self.furthest = (order.clone(), objects.clone());
            }
            let options = self.options(&made, &objects).into_iter();
            way.push(Place { made, options });
        }
    }

    /// How many answered calls are made.
    fn answered(&self, made: &[bool]) -> usize {
        self.calls.iter().zip(made).filter(|(call, made)| **made && call.answered.is_some()).count()
    }

    /// The calls that can come next, and the objects after each: those that began before any other had to have ended, and whose
    /// answer is what the objects give.
    fn options(&self, made: &[bool], objects: &Objects) -> Vec<(usize, Objects)> {
        let left = || self.calls.iter().enumerate().filter(move |(at, _)| !made[*at]);
        let deadline = left().filter_map(|(_, call)| call.answered.as_ref()).map(|(at, _)| *at).min();
        let deadline = deadline.unwrap_or(u64::MAX);
        let mut options = Vec::new();
        for (at, call) in left().filter(|(_, call)| call.invoked < deadline) {
            let mut after = objects.clone();
            let fits = match &call.answered {
                Some((_, answer)) => after.answers(&call.asked, answer),
                None => {
                    after.make(&call.asked);
                    // Without an effect it need not be made.
                    after != *objects
                }
            };
            if !fits {
                continue;
            }
            if after == *objects {
                // It can be made now in every order that goes on from here.
                return vec![(at, after)];
            }
            options.push((call.answered.is_none(), at, after));
        }
        // Those that may never have been applied come last.
        options.sort_by_key(|(is_open, at, _)| (*is_open, *at));
        options.into_iter().map(|(_, at, after)| (at, after)).collect()
    }

    /// The order that goes furthest, and what would have to come next.
    fn shown(&self) -> String {
        let (order, objects) = &self.furthest;
        let mut text = String::new();
        let mut line = |at: usize| {
            let Call { asked, invoked, answered } = &self.calls[at];
            match answered {
                Some((returned, answer)) => {
                    writeln!(text, "  [{invoked}..{returned}] {asked:?} -> {answer:?}").unwrap()
                }
                None => writeln!(text, "  [{invoked}..] {asked:?} -> not known").unwrap(),
            }
        };
        order.iter().copied().for_each(&mut line);
        (0..self.calls.len()).filter(|at| !order.contains(at)).for_each(&mut line);
        let made = order.len();
        format!("in this order the first {made} of these calls fit, and then none:\n{text}  {objects:?}")
    }
}
