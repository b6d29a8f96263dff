//! Writers, the table's stream, its consumers and the feed's table, event by event.
//!
//! A record's changes arrive in one shard of the stream. A consumer takes a batch of a shard, splits it by logs, and appends to
//! each log one transaction after the other, as `nameservice_feed::Feed::append` does: it expects the counter as it last saw it,
//! continues immediately with the value that a failed condition returns, and pauses after a conflict or a throttle. Where others move
//! the counter it is read first.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use fastrand::Rng;

use crate::{
    designs::{Design, Sharing, cut_units},
    dynamo::FeedTable,
    outcome::{End, Measured, Outcome},
    parameters::{Nanos, Parameters},
    stream::{Change, Shard},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Poll(usize),
    Attempt { shard: usize, log: usize },
    Commit { shard: usize, log: usize },
    Return { log: usize },
    LookAtCounters,
    Cut,
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
    measured: Measured,
}

impl<'a> Simulation<'a> {
    /// Creates a run with this many changes a second.
    pub fn new(parameters: &'a Parameters, design: Design, rate: u64) -> Self {
        let count = if design.one_consumer { 1 } else { parameters.shards_at(rate) };
        let mut seeds = Rng::with_seed(parameters.seed);
        let shards =
            (0..count).map(|first| Shard::new(parameters, seeds.u64(..), first, count, rate, design.logs)).collect();
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
            measured: Measured::new(parameters.duration / 2, parameters.records),
        };
        for shard in 0..run.shards.len() {
            let first = run.random.u64(0..=parameters.poll + parameters.window);
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

    /// Runs to the end, and returns the outcome and the table.
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
        self.shards.iter_mut().for_each(|shard| shard.arrive(end));
        let outcome = self.outcome();
        (outcome, self.table)
    }

    fn schedule(&mut self, delay: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now + delay, self.scheduled, event)));
    }

    /// Looks at a shard, and begins a batch where there is one.
    fn poll(&mut self, shard: usize) {
        let Parameters { visible, poll, window, fetch, .. } = *self.parameters;
        if let Some(until) = self.now.checked_sub(visible) {
            self.shards[shard].arrive(until);
        }
        let (now, batch, logs, per) = (self.now, self.design.batch, self.design.logs, self.design.per_transaction);
        let state = &mut self.shards[shard];
        state.looked = now;
        let found = state.waiting.len();
        let mut pause = || poll * self.random.u64(900..=1_100) / 1_000;
        if found == 0 {
            let pause = pause();
            return self.schedule(pause, Event::Poll(shard));
        }
        if window > 0 && found < batch {
            let until = *state.gathering.get_or_insert(now) + window;
            if now < until {
                let pause = pause().min(until - now);
                return self.schedule(pause, Event::Poll(shard));
            }
        }
        state.gathering = None;
        state.batch = found.min(batch);
        let mut split = vec![Vec::new(); logs];
        for change in state.waiting.drain(..state.batch) {
            split[change.log(logs)].push(change);
        }
        for (log, changes) in split.into_iter().enumerate() {
            if !changes.is_empty() {
                let appending = &mut state.logs[log];
                appending.chunks = changes.chunks(per).map(<[Change]>::to_vec).collect();
                (appending.failures, appending.has_begun) = (0, false);
                state.unfinished += 1;
            }
        }
        for log in 0..logs {
            if !self.shards[shard].logs[log].chunks.is_empty() {
                self.schedule(fetch, Event::Attempt { shard, log });
            }
        }
    }

    /// Takes the turn, or reads the counter, if the design has that before a transaction. Returns false if it waits.
    fn may_append(&mut self, shard: usize, log: usize) -> bool {
        let Parameters { single, turn_cap, .. } = *self.parameters;
        let (now, n) = (self.now, self.logs[log].n);
        match self.design.sharing {
            Sharing::Turns if !self.shards[shard].logs[log].has_turn => {
                let written = self.table.charge_turn(now, log);
                if let Some(counted) = self.measured.at(now) {
                    counted.units += u64::from(written);
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
            Sharing::ReadFirst | Sharing::ReadAgain => {
                let appending = &mut self.shards[shard].logs[log];
                let is_first = !std::mem::replace(&mut appending.has_begun, true);
                if !is_first || !appending.is_shared {
                    return true;
                }
                (appending.is_shared, appending.observed) = (n != appending.observed, n);
                if let Some(counted) = self.measured.at(now) {
                    counted.reads += 1;
                }
                self.schedule(single, Event::Attempt { shard, log });
                false
            }
            Sharing::Turns | Sharing::Expecting => true,
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
            if !conflict {
                (appending.is_shared, appending.observed, appending.failures) = (true, n, 0);
            } else if self.design.sharing == Sharing::ReadAgain {
                (appending.is_shared, appending.has_begun) = (true, false);
            }
            let units = self.table.charge_cancelled(self.now, log, &cost, &records, cancelled_percent);
            if let Some(counted) = self.measured.at(self.now) {
                counted.cancelled += 1;
                counted.units += units;
            }
            return self.schedule(rejection + pause, Event::Attempt { shard, log });
        }
        if let Err(limit) = self.table.charge(self.now, log, &cost, &records) {
            if let Some(counted) = self.measured.at(self.now) {
                counted.throttles[limit as usize] += 1;
            }
            let pause = self.pause(shard, log, backoff_cap);
            return self.schedule(rejection + pause, Event::Attempt { shard, log });
        }
        // A fifth more or less.
        let took = transaction * self.random.u64(800..=1_200) / 1_000;
        self.logs[log].held = self.now + took;
        if let Some(counted) = self.measured.at(self.now) {
            self.logs[log].busy += took;
            counted.units += cost.total(records.len());
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
        self.measured.not_isolated += u64::from(self.shards[shard].logs[log].observed != self.logs[log].n);
        self.logs[log].n += chunk.len() as u64;
        if let Some(counted) = self.measured.at(self.now) {
            counted.applied += 1;
            counted.appended += chunk.len() as u64;
        }
        if self.design.sequenced {
            self.logs[log].uncut.extend(chunk);
        } else {
            self.position += chunk.len() as u64;
            chunk.into_iter().for_each(|change| self.measured.show(self.now, change));
        }
        let state = &mut self.shards[shard];
        let appending = &mut state.logs[log];
        (appending.observed, appending.failures, appending.has_begun) = (self.logs[log].n, 0, false);
        if !appending.chunks.is_empty() {
            return self.schedule(0, Event::Attempt { shard, log });
        }
        let had_turn = std::mem::take(&mut appending.has_turn);
        state.unfinished -= 1;
        if had_turn {
            self.table.charge_turn(self.now, log);
            if let Some(counted) = self.measured.at(self.now) {
                counted.units += 1;
            }
            self.schedule(self.parameters.single, Event::Return { log });
        }
        let state = &self.shards[shard];
        if state.unfinished > 0 {
            return;
        }
        let poll = self.parameters.poll;
        // Immediately after a full batch.
        let (full, looked) = (state.batch == self.design.batch, state.looked);
        let next =
            if full { 0 } else { (looked + poll * self.random.u64(900..=1_100) / 1_000).saturating_sub(self.now) };
        self.schedule(next, Event::Poll(shard));
    }

    fn look_at_counters(&mut self) {
        self.cutting = self.logs.iter().map(|log| log.n).collect();
        if let Some(counted) = self.measured.at(self.now) {
            counted.reads += self.logs.len() as u64;
        }
        let grown = self.logs.iter().filter(|log| log.n > log.cut).count();
        if grown == 0 {
            return self.schedule(self.parameters.cut, Event::LookAtCounters);
        }
        let units = cut_units(grown);
        self.table.table.drain(self.now, units);
        if let Some(counted) = self.measured.at(self.now) {
            counted.units += units;
        }
        let took = self.parameters.transaction * self.random.u64(800..=1_200) / 1_000;
        self.schedule(self.parameters.single + took, Event::Cut);
    }

    /// Gives positions to what the logs had when they were looked at, log by log.
    fn cut(&mut self) {
        for log in 0..self.logs.len() {
            let until = self.cutting[log];
            let grown = until - std::mem::replace(&mut self.logs[log].cut, until);
            self.position += grown;
            for change in self.logs[log].uncut.drain(..grown as usize) {
                self.measured.show(self.now, change);
            }
        }
        let took = self.parameters.single + self.parameters.transaction;
        self.schedule(self.parameters.cut.saturating_sub(took), Event::LookAtCounters);
    }

    fn outcome(&mut self) -> Outcome {
        let at_consumers: usize = self.shards.iter().map(Shard::waiting).sum();
        let uncut: usize = self.logs.iter().map(|log| log.uncut.len()).sum();
        let end = End {
            offered: self.rate,
            duration: self.parameters.duration,
            arrived: self.shards.iter().map(|shard| shard.arrived).sum(),
            arrived_early: self.shards.iter().map(|shard| shard.arrived_early).sum(),
            waiting: (at_consumers + uncut) as u64,
            last_position: self.position,
            busy: self.logs.iter().map(|log| log.busy).max().unwrap_or_default(),
        };
        std::mem::replace(&mut self.measured, Measured::new(0, 0)).outcome(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{designs::PRESENT, parameters::SECOND};

    /// What tests/stream/requests.rs asserts of the code.
    #[test]
    fn a_consumer_reads_the_counter_first_until_a_read_finds_it_where_it_was() {
        let parameters = Parameters { duration: 0, ..Parameters::default() };
        let mut run = Simulation::new(&parameters, PRESENT, 100);
        // Returns the reads and cancelled transactions of a chunk, before which others have moved the counter this far.
        let mut next = |moved: u64| {
            run.now += SECOND;
            run.logs[0].n += moved;
            run.shards[0].unfinished = 1;
            run.shards[0].logs[0].chunks.push_back(vec![Change { at: run.now, record: 0 }]);
            while run.logs[0].held <= run.now {
                run.attempt(0, 0);
            }
            run.commit(0, 0);
            let counted = run.measured.at(run.now).map(std::mem::take).unwrap_or_default();
            assert_eq!(counted.applied, 1);
            (counted.reads, counted.cancelled)
        };
        assert_eq!([next(0), next(0)], [(0, 0); 2], "it is alone");
        assert_eq!(next(5), (0, 1), "the answer of the cancelled transaction shows the counter");
        assert_eq!([next(1), next(2)], [(1, 0); 2]);
        assert_eq!([next(0), next(0)], [(1, 0), (0, 0)], "the read finds the counter unchanged");
        assert_eq!([next(4), next(4)], [(0, 1), (1, 0)]);
    }
}
