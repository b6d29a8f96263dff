//! The figures of a round, and of a run.

use std::time::Duration;

use super::{
    faults::{EXPIRED, Faults, REPLICA_KILLED, SERVICE_KILLED},
    ground::Kind,
    readers::Events,
};
use crate::history::judge::Judged;

/// The figures of a round without a violation.
pub(super) struct Report {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) expires: bool,
    pub(super) judged: Judged,
    pub(super) faults: Faults,
    /// Changes of the feed, and how many times the next ones had expired.
    pub(super) changes: usize,
    pub(super) gaps: u64,
    pub(super) events: Events,
    /// Reads and writes at the replicas.
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Calls of administrators, and of the clients that push beside them.
    pub(super) calls: u64,
    /// Records at replicas, and rows of read models, that were compared.
    pub(super) records: usize,
    pub(super) rows: usize,
    /// Latencies of the clients of the histories, sorted.
    pub(super) latencies: Vec<Duration>,
    /// The peak memory of the service, in MiB.
    pub(super) memory: f64,
}

/// Returns the latency that this share of the sorted latencies does not exceed.
fn percentile(latencies: &[Duration], share: f64) -> Duration {
    let at = (latencies.len().saturating_sub(1) as f64 * share) as usize;
    latencies.get(at).copied().unwrap_or_default()
}

fn listed(faults: &Faults) -> String {
    let listed: Vec<_> = faults.iter().map(|(kind, times)| format!("{times} {kind}")).collect();
    if listed.is_empty() { "none".to_owned() } else { listed.join(", ") }
}

impl Report {
    fn operations(&self) -> u64 {
        self.judged.operations as u64 + self.reads + self.writes + self.calls
    }

    /// Returns the line of the round.
    pub(super) fn line(&self, seed: u64) -> String {
        let Self { number, kind, expires, judged, faults, changes, memory, .. } = self;
        let kind = format!("{}{}", kind.name(), if *expires { ", expiring" } else { "" });
        format!(
            "round {number} ({kind}), seed {seed}: {} operations, {} histories, {changes} changes; no violations; p50 {:.1?}, p99 {:.1?}; \
             {memory:.0} MiB; faults: {}",
            self.operations(),
            judged.histories,
            percentile(&self.latencies, 0.5),
            percentile(&self.latencies, 0.99),
            listed(faults),
        )
    }
}

/// The figures of all rounds of a run.
#[derive(Default)]
pub(super) struct Total {
    rounds: u64,
    expiring: u64,
    operations: u64,
    judged: Judged,
    faults: Faults,
    changes: usize,
    gaps: u64,
    events: Events,
    reads: u64,
    writes: u64,
    calls: u64,
    records: usize,
    rows: usize,
    /// For each round: the backend, p50, p99, and the peak memory of the service.
    services: Vec<(Kind, Duration, Duration, f64)>,
}

impl Total {
    pub(super) fn add(&mut self, report: &Report) {
        self.rounds += 1;
        self.expiring += u64::from(report.expires);
        self.operations += report.operations();
        self.judged.add(&report.judged);
        for (&kind, &times) in &report.faults {
            *self.faults.entry(kind).or_default() += times;
        }
        self.changes += report.changes;
        self.gaps += report.gaps;
        self.events.changes += report.events.changes;
        self.events.gaps += report.events.gaps;
        self.reads += report.reads;
        self.writes += report.writes;
        self.calls += report.calls;
        self.records += report.records;
        self.rows += report.rows;
        let at = |share| percentile(&report.latencies, share);
        self.services.push((report.kind, at(0.5), at(0.99), report.memory));
    }

    /// Returns how many processes were killed.
    pub(super) fn kills(&self) -> u64 {
        [SERVICE_KILLED, REPLICA_KILLED].iter().filter_map(|kind| self.faults.get(kind)).sum()
    }

    /// Returns the figures as the rows of the table in docs/testing.md.
    pub(super) fn table(&self, took: Duration) -> String {
        let Self { rounds, expiring, operations, judged, changes, gaps, events, .. } = self;
        let Judged { histories, open, transactions, .. } = judged;
        let hours = took.as_secs_f64() / 3_600.0;
        let expired = self.faults.get(EXPIRED).copied().unwrap_or(0);
        let mut rows = vec!["| | |".to_owned(), "|---|---|".to_owned()];
        let mut row = |name: &str, value: String| rows.push(format!("| {name} | {value} |"));
        row("rounds", format!("{rounds} in {hours:.1} hours, {expiring} of them with positions that expire"));
        row("operations", format!("{operations}, {} of them in {histories} histories", judged.operations));
        row("of those, never answered; transactions", format!("{open}; {transactions}"));
        row("reads and own writes at replicas", format!("{}, {}", self.reads, self.writes));
        row("calls of administrators, and pushes beside them", self.calls.to_string());
        row(
            "changes of the feed",
            format!("{changes}; {expired} times everything expired, {gaps} times before a reader"),
        );
        row(
            "changes that readers of events received",
            format!("{}; sent to a snapshot {} times", events.changes, events.gaps),
        );
        row("records compared at replicas; rows of read models", format!("{}; {}", self.records, self.rows));
        row("faults", listed(&self.faults));
        for kind in [Kind::Embedded, Kind::DynamoDb] {
            let mut of: Vec<_> = self.services.iter().filter(|(of, ..)| *of == kind).collect();
            of.sort_by_key(|(_, p50, ..)| *p50);
            let (Some(least), Some(most)) = (of.first(), of.last()) else { continue };
            let p99 = of.iter().map(|(_, _, p99, _)| *p99).max().unwrap_or_default();
            let memory = of.iter().map(|(.., memory)| *memory).fold(0.0, f64::max);
            row(
                &format!("{}, by round", kind.name()),
                format!("p50 {:.1?} to {:.1?}, p99 up to {p99:.1?}, memory up to {memory:.0} MiB", least.1, most.1),
            );
        }
        row("violations", "none".to_owned());
        rows.join("\n")
    }
}
