//! DynamoDB's limits: write units of items, partitions and tables, as token buckets.

use crate::{
    designs::Cost,
    parameters::{Nanos, Parameters, SECOND},
};

/// Units that flow in at a steady rate and are taken in lumps. Exact: it counts billionths of a unit.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u64,
    depth: u64,
    tokens: u64,
    at: Nanos,
    taken: u64,
    trace: Option<Vec<(Nanos, u64)>>,
}

impl Bucket {
    /// Creates an empty bucket of `rate` units a second, that holds those of a second and of `burst` seconds more.
    pub fn new(rate: u64, burst: u64) -> Self {
        Self { rate, depth: rate * SECOND * (1 + burst), tokens: 0, at: 0, taken: 0, trace: None }
    }

    /// The same, full.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.tokens = self.depth;
        self
    }

    /// The same, with a list of what is taken when.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// Takes units, all or none.
    pub fn take(&mut self, now: Nanos, units: u64) -> bool {
        let enough = self.has(now, units);
        if enough {
            self.remove(units);
        }
        enough
    }

    /// Takes as many of these units as there are, and returns how many.
    pub fn drain(&mut self, now: Nanos, units: u64) -> u64 {
        self.refill(now);
        let units = units.min(self.tokens / SECOND);
        self.remove(units);
        units
    }

    /// Returns whether there are this many units.
    pub fn has(&mut self, now: Nanos, units: u64) -> bool {
        self.refill(now);
        self.tokens >= units * SECOND
    }

    /// Returns all units that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns what was taken when, of a bucket that keeps a list.
    pub fn trace(&self) -> &[(Nanos, u64)] {
        self.trace.as_deref().unwrap_or_default()
    }

    fn refill(&mut self, now: Nanos) {
        self.tokens = self.depth.min(self.tokens + (now - self.at) * self.rate);
        self.at = now;
    }

    fn remove(&mut self, units: u64) {
        self.tokens -= units * SECOND;
        self.taken += units;
        if let Some(trace) = &mut self.trace {
            trace.push((self.at, units));
        }
    }

    fn give_back(&mut self, units: u64) {
        self.tokens += units * SECOND;
        self.taken -= units;
    }
}

/// Which limit a transaction ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The item of a log's counter.
    Counter,
    /// The partition of a log's rows.
    Log,
    /// The partition of a record's history.
    Record,
    /// The table.
    Table,
}

/// The write units of the feed's table. Every hot key has a partition of its own, as adaptive capacity arranges in time.
#[derive(Debug)]
pub struct FeedTable {
    /// The items of the logs' counters.
    pub counters: Vec<Bucket>,
    /// The partitions of the logs' rows.
    pub logs: Vec<Bucket>,
    /// The items of the logs' turns.
    pub turns: Vec<Bucket>,
    records: Vec<Bucket>,
    /// All of the table.
    pub table: Bucket,
}

impl FeedTable {
    /// Creates the table of a feed with this many logs, all buckets empty.
    pub fn new(parameters: &Parameters, logs: usize) -> Self {
        let bucket = Bucket::new(parameters.partition_units, parameters.burst_seconds);
        Self {
            counters: vec![bucket.clone(); logs],
            logs: vec![bucket.clone(); logs],
            turns: vec![bucket.clone(); logs],
            records: vec![bucket; parameters.records as usize],
            table: Bucket::new(parameters.table_units, parameters.burst_seconds),
        }
    }

    /// Keeps a list of what is taken from counters, logs, turns and the table.
    pub fn trace(&mut self) {
        for bucket in self.counters.iter_mut().chain(&mut self.logs).chain(&mut self.turns).chain([&mut self.table]) {
            *bucket = bucket.clone().traced();
        }
    }

    /// Consumes the units of a transaction that appends changes of these records to a log, all or none.
    pub fn charge(&mut self, now: Nanos, log: usize, cost: &Cost, records: &[u32]) -> Result<(), Limit> {
        let limits = [
            (&mut self.counters[log], cost.counter, Limit::Counter),
            (&mut self.logs[log], cost.log, Limit::Log),
            (&mut self.table, cost.total(records.len()), Limit::Table),
        ];
        for (bucket, units, limit) in limits {
            if !bucket.has(now, units) {
                return Err(limit);
            }
        }
        for (n, record) in records.iter().enumerate() {
            if !self.records[*record as usize].take(now, cost.record) {
                for record in &records[..n] {
                    self.records[*record as usize].give_back(cost.record);
                }
                return Err(Limit::Record);
            }
        }
        self.counters[log].take(now, cost.counter);
        self.logs[log].take(now, cost.log);
        self.table.take(now, cost.total(records.len()));
        Ok(())
    }

    /// Consumes the unit of a write of a log's turn.
    pub fn charge_turn(&mut self, now: Nanos, log: usize) -> bool {
        self.table.has(now, 1) && self.turns[log].take(now, 1) && self.table.take(now, 1)
    }

    /// Consumes the units of a cancelled transaction, as far as they are there, and returns how many.
    pub fn charge_cancelled(&mut self, now: Nanos, log: usize, cost: &Cost, records: &[u32], percent: u64) -> u64 {
        let part = |units: u64| units * percent / 100;
        self.counters[log].drain(now, part(cost.counter));
        self.logs[log].drain(now, part(cost.log));
        for record in records {
            self.records[*record as usize].drain(now, part(cost.record));
        }
        self.table.drain(now, part(cost.total(records.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::MS;

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        let mut bucket = Bucket::new(1_000, 0);
        let taken = (1..=10_000).filter(|ms| bucket.take(ms * MS, 3)).count() as u64 * 3;
        assert_eq!(taken, 9_999); // 10 s of 1,000, in lumps of 3
        assert_eq!(bucket.taken(), taken);
    }

    #[test]
    fn unused_units_are_kept_for_a_second_and_the_burst() {
        let mut plain = Bucket::new(1_000, 0);
        assert!(plain.take(3_600 * SECOND, 1_000));
        assert!(!plain.take(3_600 * SECOND, 1));
        let mut bursting = Bucket::new(1_000, 300);
        assert!(bursting.take(3_600 * SECOND, 301_000));
        assert!(!bursting.take(3_600 * SECOND, 1));
    }

    #[test]
    fn a_full_burst_carries_twice_the_rate_for_as_long_as_it_lasts() {
        let mut bucket = Bucket::new(1_000, 300).full();
        // 2 units a millisecond: 1 comes in, 1 goes out of 301,000.
        let lasted = (0..).take_while(|ms| bucket.take(ms * MS, 2)).count();
        assert_eq!(lasted, 301_000 - 1);
    }

    #[test]
    fn a_transaction_that_is_throttled_consumes_nothing() {
        let parameters = Parameters { records: 2, ..Parameters::default() };
        let mut table = FeedTable::new(&parameters, 1);
        let cost = Cost { counter: 2, log: 4, record: 2, elsewhere: 0 };
        // After 5 ms a partition has 5 units: enough for counter, log and two changes of a record, and not for three.
        assert_eq!(table.charge(5 * MS, 0, &cost, &[0, 1, 1, 1]), Err(Limit::Record));
        assert_eq!(table.table.taken(), 0);
        assert_eq!(table.charge(5 * MS, 0, &cost, &[0, 1, 1]), Ok(()));
        assert_eq!(table.table.taken(), 12);
        assert_eq!(table.charge(5 * MS, 0, &cost, &[0]), Err(Limit::Log));
    }
}
