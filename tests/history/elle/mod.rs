//! Elle's check (Kingsbury and Alvaro, "Elle: inferring isolation anomalies from experimental observations"), of transactions
//! that append to lists: the list of a record is the sequence of its heads, an element is a content id, and no id is pushed
//! twice.
//!
//! What a transaction read and appended shows which others come before and after it: ww, wr and rw by the data, and by
//! time where one ended before another began. A cycle is an anomaly, and is named as Adya names it. The check is no search, so it
//! takes histories of any length, and of what a push does it knows only two rules: a transaction is applied whole or not at all,
//! and `t` gives the order of a record's heads.

mod graph;
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::{self, Write as _},
};

use serde_json::{Value, json};

use self::graph::{Graph, Kind};
use super::{
    judge::Entry,
    spec::{Asked, Concern, spot_of},
};

/// An element of a record's list: a head.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) t: i64,
    /// `None` of the head of a record that has none yet.
    pub(super) id: Option<String>,
}

impl Version {
    /// Returns the head that an answer or a request shows; `None` if it shows none.
    pub(super) fn shown(value: &Value) -> Option<Self> {
        let t = value.get("t")?.as_i64()?;
        Some(Self { t, id: value["id"].as_str().map(str::to_owned) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            // Content ids have distinct ends.
            Some(id) => write!(f, "t{} …{}", self.t, &id[id.len().saturating_sub(6)..]),
            None => write!(f, "t{}", self.t),
        }
    }
}

/// What was read of a record.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// The last element of its list.
    Last(Version),
    /// The whole list.
    All(Vec<Version>),
}

/// How a transaction ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Committed,
    Rejected,
    /// It may have been applied, at any time since it was sent.
    Unknown,
}

/// A transaction as a client saw it.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) client: u32,
    pub(super) invoked: u64,
    /// `None` if its end is unknown.
    pub(super) returned: Option<u64>,
    pub(super) end: End,
    /// All that it read of records, at one time.
    pub(super) reads: Vec<(String, Seen)>,
    pub(super) appends: Vec<(String, Version)>,
    /// The replica that answered it from its own memory: it may show an earlier time, but one client's reads there never go back.
    pub(super) replica: Option<usize>,
}

impl Transaction {
    /// Creates one that only reads.
    pub(super) fn reading(client: u32, invoked: u64, returned: u64, reads: Vec<(String, Seen)>) -> Self {
        let (end, appends) = (End::Committed, Vec::new());
        Self { client, invoked, returned: Some(returned), end, reads, appends, replica: None }
    }
}

/// Returns the transactions that a call of a client stands for: of a transaction that was rejected, its appends, and what its
/// answer shows as a read. Calls about other concerns than the head are left out.
pub(super) fn transactions_of(entry: &Entry) -> Vec<Transaction> {
    let Entry { client, invoked, returned, .. } = entry;
    let answer = returned.as_ref().map(|(at, answer)| (*at, answer));
    let (operations, results) = match (&*entry.asked, answer) {
        (Asked::Read(spot), Some((at, answer))) if spot.concern == Concern::Head => {
            let seen = Version::shown(&answer.body).map(|version| (spot.record.clone(), Seen::Last(version)));
            return vec![Transaction::reading(*client, *invoked, at, seen.into_iter().collect())];
        }
        (Asked::Transaction(operations), answer) => {
            let results = answer.and_then(|(_, answer)| answer.body["results"].as_array().cloned());
            (operations.clone(), results.unwrap_or_default())
        }
        (Asked::Push(spot, body), answer) if spot.concern == Concern::Head => {
            let mut operation = body.clone();
            operation["op"] = json!("push_head");
            operation["address"] = json!(spot.record);
            let shown = answer.map(|(_, answer)| &answer.body);
            let actual = shown.map(|shown| shown.get("actual").unwrap_or(&shown["value"]));
            (vec![operation], vec![json!({ "actual": actual })])
        }
        _ => return Vec::new(),
    };
    let of_heads =
        || operations.iter().enumerate().filter(|(_, operation)| spot_of(operation).concern == Concern::Head);
    let version =
        |operation: &Value, value: &Value| Version::shown(value).map(|version| (spot_of(operation).record, version));
    let appends: Vec<(String, Version)> =
        of_heads().filter_map(|(_, operation)| version(operation, &operation["new"])).collect();
    let end = match answer {
        None => End::Unknown,
        Some((_, answer)) if answer.status == 200 && answer.body["status"] != "stale" => End::Committed,
        // A transaction that was sent more than once may be rejected although it was applied: an item remembers four writes.
        Some(_) if entry.repeated => End::Unknown,
        Some(_) => End::Rejected,
    };
    let read = |shown: Vec<(String, Version)>| -> Vec<(String, Seen)> {
        shown.into_iter().map(|(record, version)| (record, Seen::Last(version))).collect()
    };
    // What it expected is what it read, if it was applied.
    let expected = read(of_heads().filter_map(|(_, operation)| version(operation, &operation["expected"])).collect());
    let made = Transaction {
        client: *client,
        invoked: *invoked,
        returned: answer.map(|(at, _)| at).filter(|_| end != End::Unknown),
        end,
        reads: expected,
        appends,
        replica: None,
    };
    match (end, answer) {
        (End::Rejected | End::Unknown, Some((at, _))) => {
            let actual = of_heads().filter_map(|(n, operation)| version(operation, &results.get(n)?["actual"]));
            vec![made, Transaction::reading(*client, *invoked, at, read(actual.collect()))]
        }
        _ => vec![made],
    }
}

/// Counts of what was checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Checked {
    /// Transactions that were applied, reads among them.
    pub(super) transactions: usize,
    /// Those of them whose clients never learned it.
    pub(super) unknown: usize,
    pub(super) appends: usize,
    pub(super) dependencies: usize,
}

impl Checked {
    pub(super) fn add(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.unknown += other.unknown;
        self.appends += other.appends;
        self.dependencies += other.dependencies;
    }
}

/// What no serial order of the transactions explains.
#[derive(Debug)]
pub(super) struct Anomaly {
    /// `G0`, `G1a`, `G1c`, `G-single`, `G2`, with `-realtime` or `-session` where data alone do not show it;
    /// `garbage read`, `incompatible order`.
    pub(super) name: String,
    /// The transactions and their dependencies, around the cycle.
    shown: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n{}", self.name, self.shown)
    }
}

fn anomaly(name: &str, shown: String) -> Anomaly {
    Anomaly { name: name.to_owned(), shown }
}

/// Checks a history of transactions.
pub(super) fn check(transactions: &[Transaction]) -> Result<Checked, Anomaly> {
    let history = History::of(transactions)?;
    let graph = history.graph();
    if let Some((name, cycle)) = graph.phenomenon() {
        let mut shown = String::new();
        for (from, edge) in &cycle {
            let about = if edge.about.is_empty() { String::new() } else { format!(" ({})", edge.about) };
            writeln!(shown, "  {}\n    {}{about} to", history.line(*from), edge.kind.name()).unwrap();
        }
        if let Some((first, _)) = cycle.first() {
            writeln!(shown, "  {}", history.line(*first)).unwrap();
        }
        return Err(anomaly(&name, shown));
    }
    history.one_order()?;
    let applied = || history.applied.iter().map(|at| &transactions[*at]);
    Ok(Checked {
        transactions: history.applied.len(),
        unknown: applied().filter(|transaction| transaction.end == End::Unknown).count(),
        appends: applied().map(|transaction| transaction.appends.len()).sum(),
        dependencies: graph.len(),
    })
}

/// A history, and which of its transactions were applied.
struct History<'a> {
    transactions: &'a [Transaction],
    applied: BTreeSet<usize>,
    /// The elements of each record in order, with the transactions that appended them.
    lists: BTreeMap<&'a str, Vec<(&'a Version, usize)>>,
}

impl<'a> History<'a> {
    /// Finds out what was applied: what was acknowledged, and of what may have been, the part that was read.
    fn of(transactions: &'a [Transaction]) -> Result<Self, Anomaly> {
        let mut history = Self { transactions, applied: BTreeSet::new(), lists: BTreeMap::new() };
        let mut by: HashMap<(&str, Option<&str>), (usize, i64)> = HashMap::new();
        for (at, transaction) in transactions.iter().enumerate() {
            for (record, version) in &transaction.appends {
                let before = by.insert((record.as_str(), version.id.as_deref()), (at, version.t));
                assert!(before.is_none(), "{record} {version} is appended twice: this is no history of appends");
            }
        }
        let committed = |at: &usize| transactions[*at].end == End::Committed;
        let mut next: Vec<usize> = (0..transactions.len()).filter(committed).collect();
        while let Some(at) = next.pop() {
            if !history.applied.insert(at) {
                continue;
            }
            for (record, version) in transactions[at].reads.iter().flat_map(versions) {
                if version.id.is_none() {
                    continue;
                }
                let line = || format!("  {}\n    reads {record} {version}\n", history.line(at));
                let Some((writer, t)) = by.get(&(record, version.id.as_deref())) else {
                    return Err(anomaly("garbage read", format!("{}  which no transaction appended\n", line())));
                };
                if *t != version.t {
                    return Err(anomaly("garbage read", format!("{}  which was appended at t{t}\n", line())));
                }
                if transactions[*writer].end == End::Rejected {
                    return Err(anomaly("G1a", format!("{}  of\n  {}\n", line(), history.line(*writer))));
                }
                next.push(*writer);
            }
        }
        for &at in &history.applied {
            for (record, version) in &transactions[at].appends {
                history.lists.entry(record).or_default().push((version, at));
            }
        }
        history.lists.values_mut().for_each(|list| list.sort());
        Ok(history)
    }

    /// Checks that no two elements of a list are in one place, and that every read of a whole list has it in order.
    fn one_order(&self) -> Result<(), Anomaly> {
        for (record, list) in &self.lists {
            if let Some([(one, by), (other, and)]) = list.windows(2).find(|pair| pair[0].0.t == pair[1].0.t) {
                let lines = format!("  {}\n  {}\n", self.line(*by), self.line(*and));
                return Err(anomaly("incompatible order", format!("  {record} has {one} and {other}\n{lines}")));
            }
        }
        for at in &self.applied {
            for (record, seen) in &self.transactions[*at].reads {
                let Seen::All(list) = seen else { continue };
                if list.windows(2).any(|pair| pair[0].t >= pair[1].t) {
                    let lines = format!("  {}\n    reads {record} in another order than that of t\n", self.line(*at));
                    return Err(anomaly("incompatible order", lines));
                }
            }
        }
        Ok(())
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.transactions.len());
        for (record, list) in &self.lists {
            for pair in list.windows(2) {
                let [(one, from), (next, to)] = pair else { continue };
                graph.add(*from, *to, Kind::Ww, format!("{record}: {one}, then {next}"));
            }
        }
        for &at in &self.applied {
            for (record, seen) in &self.transactions[at].reads {
                let list = self.lists.get(record.as_str()).map(Vec::as_slice).unwrap_or_default();
                let (read, missing): (Vec<_>, Vec<_>) = list.iter().partition(|(version, _)| match seen {
                    Seen::Last(last) => version.t <= last.t,
                    Seen::All(all) => all.contains(version),
                });
                if let Some((version, writer)) = read.last() {
                    graph.add(*writer, at, Kind::Wr, format!("{record}: {version}"));
                }
                // All others come after the first by ww.
                if let Some((version, writer)) = missing.first() {
                    graph.add(at, *writer, Kind::Rw, format!("{record}: {version}"));
                }
            }
            self.add_times(&mut graph, at);
        }
        graph
    }

    /// Adds an edge to what began after a transaction had ended. A replica may show an older state: only data, or an earlier read by
    /// its client there, comes before a read at a replica.
    fn add_times(&self, graph: &mut Graph, at: usize) {
        let one = &self.transactions[at];
        let Some(end) = one.returned else { return };
        for &other in &self.applied {
            let then = &self.transactions[other];
            if end >= then.invoked {
                continue;
            }
            if then.replica.is_none() {
                graph.add(at, other, Kind::Realtime, String::new());
            } else if one.replica == then.replica && one.client == then.client {
                graph.add(at, other, Kind::Session, String::new());
            }
        }
    }

    /// A transaction in a line.
    fn line(&self, at: usize) -> String {
        let Transaction { client, invoked, returned, end, reads, appends, replica } = &self.transactions[at];
        let mut line = match returned {
            Some(returned) => format!("T{at} [client {client}, {invoked}..{returned}]"),
            None => format!("T{at} [client {client}, {invoked}..]"),
        };
        let mut say = |words: String| line.push_str(&words);
        if let Some(replica) = replica {
            say(format!(" at replica {replica}"));
        }
        for (record, seen) in reads {
            match seen {
                Seen::Last(version) => say(format!(" reads {record} {version},")),
                Seen::All(list) => {
                    let list: Vec<String> = list.iter().map(Version::to_string).collect();
                    say(format!(" reads {record} [{}],", list.join(", ")));
                }
            }
        }
        appends.iter().for_each(|(record, version)| say(format!(" appends {record} {version},")));
        match end {
            End::Committed => say(" committed".to_owned()),
            End::Rejected => say(" rejected".to_owned()),
            End::Unknown => say(" never answered for certain".to_owned()),
        }
        line
    }
}

/// The elements that a read shows.
fn versions((record, seen): &(String, Seen)) -> impl Iterator<Item = (&str, &Version)> {
    let versions = match seen {
        Seen::Last(version) => std::slice::from_ref(version),
        Seen::All(list) => list.as_slice(),
    };
    versions.iter().map(move |version| (record.as_str(), version))
}
