//! Writers, the table's stream, its consumers and the feed's table, event by event.
//!
//! A record's changes arrive in one shard of the stream. A consumer takes a batch of a shard, splits it by logs, and appends to
//! each log one transaction after the other, as `nameservice_feed::Feed::append` does: it expects the counter as it last saw it,
//! goes on at once with the value that a failed condition returns, and pauses after a conflict or a throttle. Then it publishes.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use fastrand::Rng;

use crate::{
    designs::{Design, Publication, Sharing, cut_units},
    dynamo::{FeedTable, Limit},
    parameters::{Nanos, Parameters, SECOND},
};

/// What came of a run. Rates and delays are those of its second half.
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
    /// Read units for each change: those of a sequencer.
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
}

impl Outcome {
    /// Returns whether the feed keeps up: the backlog grows by less than a hundredth of what is offered.
    pub fn keeps_up(&self) -> bool {
        self.growth < self.offered as f64 / 100.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    at: Nanos,
    record: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Poll(usize),
    Attempt { shard: usize, log: usize },
    Commit { shard: usize, log: usize },
    Return { log: usize },
    LookAtCounters,
    Cut,
}

#[derive(Debug)]
struct Shard {
    random: Rng,
    /// The mean time between two changes.
    mean: Nanos,
    next: Nanos,
    waiting: VecDeque<Change>,
    looked: Nanos,
    /// Since when records are gathered for a batch.
    gathering: Option<Nanos>,
    batch: usize,
    unfinished: usize,
    logs: Vec<Appending>,
}

/// What a consumer appends to one log.
#[derive(Debug, Default)]
struct Appending {
    chunks: VecDeque<Vec<Change>>,
    /// The counter as it was last seen.
    observed: u64,
    /// Whether `observed` was read for this transaction, or comes with the turn.
    fresh: bool,
    has_turn: bool,
    failures: u32,
}

#[derive(Debug, Default)]
struct Log {
    n: u64,
    /// The end of the transaction that holds the counter.
    held: Nanos,
    busy: Nanos,
    /// Whether a consumer has the turn.
    taken: bool,
    uncut: VecDeque<Change>,
    cut: u64,
}

/// A run of one design at one rate.
#[derive(Debug)]
pub struct Simulation<'a> {
    parameters: &'a Parameters,
    design: Design,
    rate: u64,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    random: Rng,
    shards: Vec<Shard>,
    logs: Vec<Log>,
    table: FeedTable,
    cutting: Vec<u64>,
    position: u64,
    newest: Vec<Nanos>,
    delays: Vec<Nanos>,
    arrived_early: u64,
    arrived: u64,
    early: u64,
    visible: u64,
    units: u64,
    reads: u64,
    applied: u64,
    appended: u64,
    cancelled: u64,
    throttles: [u64; 4],
    out_of_order: u64,
}

impl<'a> Simulation<'a> {
    /// Creates a run with this many changes a second.
    pub fn new(parameters: &'a Parameters, design: Design, rate: u64) -> Self {
        let count = if design.one_consumer { 1 } else { parameters.shards_at(rate) as usize };
        let mut seeds = Rng::with_seed(parameters.seed);
        let mean = count as u64 * SECOND / rate.max(1);
        let shard = |mut random: Rng| Shard {
            mean,
            next: random.u64(0..=2 * mean),
            random,
            waiting: VecDeque::new(),
            looked: 0,
            gathering: None,
            batch: 0,
            unfinished: 0,
            logs: (0..design.logs).map(|_| Appending::default()).collect(),
        };
        let shards: Vec<_> = (0..count).map(|_| shard(Rng::with_seed(seeds.u64(..)))).collect();
        let mut run = Self {
            parameters,
            design,
            rate,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            random: seeds,
            shards,
            logs: (0..design.logs).map(|_| Log::default()).collect(),
            table: FeedTable::new(parameters, design.logs),
            cutting: vec![0; design.logs],
            position: 0,
            newest: vec![0; parameters.records as usize],
            delays: Vec::new(),
            arrived_early: 0,
            arrived: 0,
            early: 0,
            visible: 0,
            units: 0,
            reads: 0,
            applied: 0,
            appended: 0,
            cancelled: 0,
            throttles: [0; 4],
            out_of_order: 0,
        };
        for shard in 0..count {
            let first = run.random.u64(0..=parameters.poll);
            run.schedule(first, Event::Poll(shard));
        }
        if design.sequenced {
            run.schedule(parameters.cut, Event::LookAtCounters);
        }
        run
    }

    /// Keeps lists of what is taken from the limits.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.table.trace();
        self
    }

    /// Runs to the end, and returns what came of it, and the table.
    pub fn run(mut self) -> (Outcome, FeedTable) {
        let end = self.parameters.duration;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            match event {
                Event::Poll(shard) => self.poll(shard),
                Event::Attempt { shard, log } => self.attempt(shard, log),
                Event::Commit { shard, log } => self.commit(shard, log),
                Event::Return { log } => self.logs[log].taken = false,
                Event::LookAtCounters => self.look_at_counters(),
                Event::Cut => self.cut(),
            }
        }
        self.now = end;
        for shard in 0..self.shards.len() {
            self.arrive(shard, end);
        }
        self.outcome()
    }

    fn schedule(&mut self, delay: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now + delay, self.scheduled, event)));
    }

    fn measured(&self) -> bool {
        self.now >= self.parameters.duration / 2
    }

    /// Lets changes arrive in a shard until a time.
    fn arrive(&mut self, shard: usize, until: Nanos) {
        let (count, records) = (self.shards.len() as u32, self.parameters.records);
        let middle = self.parameters.duration / 2;
        let first = shard as u32;
        let shard = &mut self.shards[shard];
        while shard.next <= until {
            let record = (first + count * shard.random.u32(..records.div_ceil(count).max(1))) % records;
            shard.waiting.push_back(Change { at: shard.next, record });
            self.arrived += 1;
            self.arrived_early += u64::from(shard.next < middle);
            shard.next += shard.random.u64(0..=2 * shard.mean);
        }
    }

    /// Looks at a shard, and begins a batch where there is one.
    fn poll(&mut self, shard: usize) {
        let Parameters { visible, poll, window, fetch, .. } = *self.parameters;
        if let Some(until) = self.now.checked_sub(visible) {
            self.arrive(shard, until);
        }
        let (now, batch, logs, per) =
            (self.now, self.design.batch, self.design.logs as u64, self.design.per_transaction);
        let state = &mut self.shards[shard];
        state.looked = now;
        let found = state.waiting.len();
        if found == 0 {
            let pause = poll * self.random.u64(900..=1_100) / 1_000;
            return self.schedule(pause, Event::Poll(shard));
        }
        if window > 0 && found < batch {
            let until = *state.gathering.get_or_insert(now) + window;
            if now < until {
                return self.schedule(poll.min(until - now), Event::Poll(shard));
            }
        }
        state.gathering = None;
        state.batch = found.min(batch);
        let mut split = vec![Vec::new(); logs as usize];
        for change in state.waiting.drain(..state.batch) {
            // Fibonacci hashing: neighbours go into different logs, whatever shard they are in.
            let hash = (u64::from(change.record) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            split[(hash % logs) as usize].push(change);
        }
        for (log, changes) in split.into_iter().enumerate() {
            if !changes.is_empty() {
                let appending = &mut state.logs[log];
                appending.chunks = changes.chunks(per).map(<[Change]>::to_vec).collect();
                (appending.failures, appending.fresh) = (0, false);
                state.unfinished += 1;
            }
        }
        for log in 0..logs as usize {
            if !self.shards[shard].logs[log].chunks.is_empty() {
                self.schedule(fetch, Event::Attempt { shard, log });
            }
        }
    }

    /// Takes the turn, or reads the counter, where the design has that before a transaction. Returns false where it waits.
    fn may_append(&mut self, shard: usize, log: usize) -> bool {
        let Parameters { single, turn_cap, .. } = *self.parameters;
        let (now, n) = (self.now, self.logs[log].n);
        match self.design.sharing {
            Sharing::Turns if !self.shards[shard].logs[log].has_turn => {
                let written = self.table.charge_turn(now, log);
                if self.measured() {
                    self.units += u64::from(written);
                }
                let mut delay = single;
                if written && !self.logs[log].taken {
                    self.logs[log].taken = true;
                    let appending = &mut self.shards[shard].logs[log];
                    (appending.has_turn, appending.observed, appending.failures) = (true, n, 0);
                } else {
                    delay += self.pause(shard, log, turn_cap);
                }
                self.schedule(delay, Event::Attempt { shard, log });
                false
            }
            Sharing::ReadFirst if !self.shards[shard].logs[log].fresh => {
                if self.measured() {
                    self.reads += 1;
                }
                let appending = &mut self.shards[shard].logs[log];
                (appending.fresh, appending.observed) = (true, n);
                self.schedule(single, Event::Attempt { shard, log });
                false
            }
            _ => true,
        }
    }

    fn attempt(&mut self, shard: usize, log: usize) {
        if !self.may_append(shard, log) {
            return;
        }
        let Parameters { rejection, cancelled_percent, transaction, backoff_cap, .. } = *self.parameters;
        let Some(chunk) = self.shards[shard].logs[log].chunks.front() else { return };
        let records: Vec<u32> = chunk.iter().map(|change| change.record).collect();
        let cost = self.design.rows.cost(records.len());
        let (n, held) = (self.logs[log].n, self.logs[log].held);
        let appending = &mut self.shards[shard].logs[log];
        if held > self.now || appending.observed != n {
            let conflict = held > self.now;
            let pause = if conflict { self.pause(shard, log, backoff_cap) } else { 0 };
            let appending = &mut self.shards[shard].logs[log];
            appending.fresh = !conflict;
            if !conflict {
                (appending.observed, appending.failures) = (n, 0);
            }
            let units = self.table.charge_cancelled(self.now, log, &cost, &records, cancelled_percent);
            if self.measured() {
                self.cancelled += 1;
                self.units += units;
            }
            return self.schedule(rejection + pause, Event::Attempt { shard, log });
        }
        if let Err(limit) = self.table.charge(self.now, log, &cost, &records) {
            if self.measured() {
                self.throttles[limit as usize] += 1;
            }
            let pause = self.pause(shard, log, backoff_cap);
            return self.schedule(rejection + pause, Event::Attempt { shard, log });
        }
        // A fifth more or less.
        let took = transaction * self.random.u64(800..=1_200) / 1_000;
        self.logs[log].held = self.now + took;
        if self.measured() {
            self.logs[log].busy += took;
            self.units += cost.total(records.len());
        }
        self.schedule(took, Event::Commit { shard, log });
    }

    /// Returns the pause after a failure: full jitter, doubling.
    fn pause(&mut self, shard: usize, log: usize, cap: Nanos) -> Nanos {
        let appending = &mut self.shards[shard].logs[log];
        let longest = cap.min(self.parameters.backoff << appending.failures.min(16));
        appending.failures += 1;
        self.random.u64(0..=longest)
    }

    fn commit(&mut self, shard: usize, log: usize) {
        let Some(chunk) = self.shards[shard].logs[log].chunks.pop_front() else { return };
        self.logs[log].n += chunk.len() as u64;
        if self.measured() {
            self.applied += 1;
            self.appended += chunk.len() as u64;
        }
        if self.design.sequenced {
            self.logs[log].uncut.extend(chunk);
        } else {
            self.position += chunk.len() as u64;
            chunk.into_iter().for_each(|change| self.show(change));
        }
        let state = &mut self.shards[shard];
        let appending = &mut state.logs[log];
        (appending.observed, appending.failures) = (self.logs[log].n, 0);
        if !appending.chunks.is_empty() {
            return self.schedule(0, Event::Attempt { shard, log });
        }
        let had_turn = std::mem::take(&mut appending.has_turn);
        state.unfinished -= 1;
        if had_turn {
            self.table.charge_turn(self.now, log);
            if self.measured() {
                self.units += 1;
            }
            self.schedule(self.parameters.single, Event::Return { log });
        }
        let state = &self.shards[shard];
        if state.unfinished > 0 {
            return;
        }
        let Parameters { publish, poll, .. } = *self.parameters;
        let publishing = match self.design.publication {
            Publication::InTurn => state.batch.div_ceil(10) as u64 * publish,
            Publication::AtOnce => publish,
            Publication::Elsewhere => 0,
        };
        // After a full batch at once.
        let (full, looked) = (state.batch == self.design.batch, state.looked);
        let next = if full { 0 } else { (looked + poll * self.random.u64(900..=1_100) / 1_000).saturating_sub(self.now) };
        self.schedule(publishing.max(next), Event::Poll(shard));
    }

    fn show(&mut self, change: Change) {
        self.visible += 1;
        if self.measured() {
            self.delays.push(self.now - change.at);
        } else {
            self.early += 1;
        }
        let newest = &mut self.newest[change.record as usize];
        self.out_of_order += u64::from(change.at < *newest);
        *newest = change.at;
    }

    fn look_at_counters(&mut self) {
        self.cutting = self.logs.iter().map(|log| log.n).collect();
        if self.measured() {
            self.reads += self.logs.len() as u64;
        }
        let grown = self.logs.iter().filter(|log| log.n > log.cut).count();
        if grown == 0 {
            return self.schedule(self.parameters.cut, Event::LookAtCounters);
        }
        let units = cut_units(grown);
        self.table.table.drain(self.now, units);
        if self.measured() {
            self.units += units;
        }
        let took = self.parameters.transaction * self.random.u64(800..=1_200) / 1_000;
        self.schedule(self.parameters.single + took, Event::Cut);
    }

    /// Gives positions to what the logs had when they were looked at, log by log.
    fn cut(&mut self) {
        for log in 0..self.logs.len() {
            let until = self.cutting[log];
            let grown = until - std::mem::replace(&mut self.logs[log].cut, until);
            let changes: Vec<Change> = self.logs[log].uncut.drain(..grown as usize).collect();
            self.position += grown;
            changes.into_iter().for_each(|change| self.show(change));
        }
        let took = self.parameters.single + self.parameters.transaction;
        self.schedule(self.parameters.cut.saturating_sub(took), Event::LookAtCounters);
    }

    fn outcome(mut self) -> (Outcome, FeedTable) {
        let half = (self.parameters.duration - self.parameters.duration / 2) as f64 / SECOND as f64;
        let late = self.visible - self.early;
        let each = |of: u64, by: u64| if by == 0 { 0.0 } else { of as f64 / by as f64 };
        self.delays.sort_unstable();
        let percentile = |of: usize| self.delays.get(self.delays.len().saturating_sub(1) * of / 100).copied();
        let at_consumers = |shard: &Shard| {
            let chunks = shard.logs.iter().flat_map(|appending| &appending.chunks);
            shard.waiting.len() + chunks.map(Vec::len).sum::<usize>()
        };
        let uncut: usize = self.logs.iter().map(|log| log.uncut.len()).sum();
        let limits = [Limit::Counter, Limit::Log, Limit::Record, Limit::Table];
        let worst = limits.into_iter().max_by_key(|limit| self.throttles[*limit as usize]);
        let arrived_late = self.arrived - self.arrived_early;
        let outcome = Outcome {
            offered: self.rate,
            sustained: late as f64 / half,
            growth: (arrived_late as f64 - late as f64) / half,
            units: each(self.units, self.appended),
            reads: each(self.reads, self.appended),
            batch: each(self.appended, self.applied),
            transactions: self.applied as f64 / half,
            cancelled: each(self.cancelled, self.applied),
            p50: percentile(50).unwrap_or_default(),
            p99: percentile(99).unwrap_or_default(),
            busy: self.logs.iter().map(|log| log.busy as f64 / SECOND as f64 / half).fold(0.0, f64::max),
            throttled: worst.filter(|limit| self.throttles[*limit as usize] > 0),
            arrived: self.arrived,
            visible: self.visible,
            waiting: (self.shards.iter().map(at_consumers).sum::<usize>() + uncut) as u64,
            last_position: self.position,
            out_of_order: self.out_of_order,
        };
        (outcome, self.table)
    }
}
