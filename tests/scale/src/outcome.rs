//! The outcome of a run.

use crate::{
    dynamo::Limit,
    parameters::{Nanos, SECOND},
    stream::Change,
};

/// The outcome of a run. Rates and delays are those of its second half.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Changes a second that were written.
    pub offered: u64,
    /// Changes a second that became visible to readers.
    pub sustained: f64,
    /// By how many changes a second the backlog grew.
    pub growth: f64,
    /// Write units of the feed's table for each change, with those of cancelled transactions and of cuts.
    pub units: f64,
    /// Read units for each change: of counters that consumers or a sequencer read.
    pub reads: f64,
    /// Changes in a transaction.
    pub batch: f64,
    /// Transactions a second that were applied, of all logs.
    pub transactions: f64,
    /// Transactions that were cancelled for each one that was applied.
    pub cancelled: f64,
    /// The median from a write to its visibility, in nanoseconds.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The part of the time that the counter of the busiest log was in a transaction.
    pub busy: f64,
    /// What throttled most often, if anything did.
    pub throttled: Option<Limit>,
    /// All changes that were written.
    pub arrived: u64,
    /// All that became visible.
    pub visible: u64,
    /// All that wait: in the stream, at a consumer, in a log for a cut.
    pub waiting: u64,
    /// The last position: that of a sequencer, or the sum of those of all logs.
    pub last_position: u64,
    /// Changes that became visible after a later one of their record.
    pub out_of_order: u64,
    /// Transactions that were applied to another counter than they expected.
    pub not_isolated: u64,
}

impl Outcome {
    /// Returns whether the feed keeps up: the backlog grows by less than three hundredths of what is offered. It
    /// rises and falls by what arrives between two looks at a shard.
    pub fn keeps_up(&self) -> bool {
        self.growth < self.offered as f64 * 0.03
    }
}

/// What is counted in the second half of a run.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Write units that were consumed.
    pub(crate) units: u64,
    pub(crate) reads: u64,
    /// Transactions that were applied, and changes in them.
    pub(crate) applied: u64,
    pub(crate) appended: u64,
    /// Transactions that were cancelled by others.
    pub(crate) cancelled: u64,
    /// Throttles, by [`Limit`].
    pub(crate) throttles: [u64; 4],
    delays: Vec<Nanos>,
}

/// What a run measures.
#[derive(Debug)]
pub(crate) struct Measured {
    from: Nanos,
    counted: Counted,
    visible: u64,
    out_of_order: u64,
    /// Transactions that were applied to another counter than they expected.
    pub(crate) not_isolated: u64,
    /// When the last visible change of each record was written.
    newest: Vec<Nanos>,
}

/// What a run has at its end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) offered: u64,
    pub(crate) duration: Nanos,
    pub(crate) arrived: u64,
    pub(crate) arrived_early: u64,
    pub(crate) waiting: u64,
    pub(crate) last_position: u64,
    /// For how long the counter of the busiest log was in a transaction.
    pub(crate) busy: Nanos,
}

impl Measured {
    pub(crate) fn new(from: Nanos, records: u32) -> Self {
        Self {
            from,
            counted: Counted::default(),
            visible: 0,
            out_of_order: 0,
            not_isolated: 0,
            newest: vec![0; records as usize],
        }
    }

    /// Returns the counters, if this moment is in the second half.
    pub(crate) fn at(&mut self, now: Nanos) -> Option<&mut Counted> {
        (now >= self.from).then_some(&mut self.counted)
    }

    /// Notes that a change becomes visible.
    pub(crate) fn show(&mut self, now: Nanos, change: Change) {
        self.visible += 1;
        if let Some(counted) = self.at(now) {
            counted.delays.push(now - change.at);
        }
        let newest = &mut self.newest[change.record as usize];
        self.out_of_order += u64::from(change.at < *newest);
        *newest = change.at;
    }

    pub(crate) fn outcome(self, end: &End) -> Outcome {
        let Counted { units, reads, applied, appended, cancelled, throttles, mut delays } = self.counted;
        let seconds = (end.duration - self.from) as f64 / SECOND as f64;
        let each = |of: u64, by: u64| if by == 0 { 0.0 } else { of as f64 / by as f64 };
        delays.sort_unstable();
        let percentile = |of: usize| delays.get(delays.len().saturating_sub(1) * of / 100).copied().unwrap_or_default();
        let limits = [Limit::Counter, Limit::Log, Limit::Record, Limit::Table];
        let worst = limits.into_iter().max_by_key(|limit| throttles[*limit as usize]);
        Outcome {
            offered: end.offered,
            sustained: delays.len() as f64 / seconds,
            growth: ((end.arrived - end.arrived_early) as f64 - delays.len() as f64) / seconds,
            units: each(units, appended),
            reads: each(reads, appended),
            batch: each(appended, applied),
            transactions: applied as f64 / seconds,
            cancelled: each(cancelled, applied),
            p50: percentile(50),
            p99: percentile(99),
            busy: end.busy as f64 / SECOND as f64 / seconds,
            throttled: worst.filter(|limit| throttles[*limit as usize] > 0),
            arrived: end.arrived,
            visible: self.visible,
            waiting: end.waiting,
            last_position: end.last_position,
            out_of_order: self.out_of_order,
            not_isolated: self.not_isolated,
        }
    }
}
