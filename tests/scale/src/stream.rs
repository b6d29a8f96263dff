//! The table's stream: writers, shards, and what a consumer has taken from one.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::parameters::{Nanos, Parameters, SECOND};

/// A change, when it was written and of which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: Nanos,
    pub(crate) record: u32,
}

impl Change {
    /// Returns which of this many logs it goes into, by the hash of its record.
    pub(crate) fn log(self, logs: usize) -> usize {
        // Fibonacci hashing: neighbours go into different logs, whatever shard they are in.
        let hash = (u64::from(self.record) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        hash as usize % logs
    }
}

/// A shard of the stream, and its consumer.
#[derive(Debug)]
pub(crate) struct Shard {
    random: Rng,
    /// The mean time between two changes.
    mean: Nanos,
    next: Nanos,
    /// Its first record; the others follow in steps of `shards`.
    first: u32,
    shards: u32,
    records: u32,
    /// Changes that have arrived and were not taken.
    pub(crate) waiting: VecDeque<Change>,
    pub(crate) arrived: u64,
    /// How many changes arrived before the measured part of the run.
    pub(crate) arrived_early: u64,
    measured_from: Nanos,
    /// When it was looked at last.
    pub(crate) looked: Nanos,
    /// Since when records are gathered for a batch.
    pub(crate) gathering: Option<Nanos>,
    /// The size of the batch that its consumer has.
    pub(crate) batch: usize,
    /// How many logs the batch still has to be appended to.
    pub(crate) unfinished: usize,
    pub(crate) logs: Vec<Appending>,
}

/// What a consumer appends to one log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appending {
    /// What is left, by transactions.
    pub(crate) chunks: VecDeque<Vec<Change>>,
    /// The counter as it was last seen.
    pub(crate) observed: u64,
    /// Whether another consumer has moved the counter since then, when that was last seen.
    pub(crate) is_shared: bool,
    /// Whether this chunk's transaction was sent, or the counter read for it.
    pub(crate) has_begun: bool,
    pub(crate) has_turn: bool,
    /// Conflicts, throttles and turns of others since the last success.
    pub(crate) failures: u32,
}

impl Shard {
    /// Creates one of the `shards` of a stream to which changes arrive at `rate` a second in all; it has its part of the records.
    pub(crate) fn new(parameters: &Parameters, seed: u64, first: u32, shards: u32, rate: u64, logs: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let mean = u64::from(shards) * SECOND / rate.max(1);
        let next = random.u64(0..=2 * mean);
        Self {
            random,
            mean,
            next,
            first,
            shards,
            records: parameters.records,
            waiting: VecDeque::new(),
            arrived: 0,
            arrived_early: 0,
            measured_from: parameters.duration / 2,
            looked: 0,
            gathering: None,
            batch: 0,
            unfinished: 0,
            logs: vec![Appending::default(); logs],
        }
    }

    /// Lets changes arrive until a time. The time between two is drawn evenly from nothing to twice the mean.
    pub(crate) fn arrive(&mut self, until: Nanos) {
        let own = self.records.div_ceil(self.shards).max(1);
        while self.next <= until {
            let record = (self.first + self.shards * self.random.u32(..own)) % self.records;
            self.waiting.push_back(Change { at: self.next, record });
            self.arrived += 1;
            self.arrived_early += u64::from(self.next < self.measured_from);
            self.next += self.random.u64(0..=2 * self.mean);
        }
    }

    /// Returns how many changes wait: in the stream, or at the consumer.
    pub(crate) fn waiting(&self) -> usize {
        let chunks = self.logs.iter().flat_map(|appending| &appending.chunks);
        self.waiting.len() + chunks.map(Vec::len).sum::<usize>()
    }
}
