//! What the model takes as given: limits of AWS, and times that are assumed.

/// Nanoseconds, the unit of time in the model.
pub type Nanos = u64;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000 * MS;

/// Dollars for a million write units on demand, in us-east-1; infra/README.md has the date.
pub const DOLLARS_WRITES: f64 = 0.625;
/// Dollars for a million read units on demand.
pub const DOLLARS_READS: f64 = 0.125;

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Write units a second of one partition, and so of one item.
    pub partition_units: u64,
    /// Write units a second of the feed's table.
    pub table_units: u64,
    /// Seconds of unused units that a partition may use later.
    pub burst_seconds: u64,
    /// From a transaction's arrival to its answer. The counter's item is held for that long.
    pub transaction: Nanos,
    /// From a cancelled transaction's arrival to its answer.
    pub rejection: Nanos,
    /// The part of its write units that a cancelled transaction consumes, in percent.
    pub cancelled_percent: u64,
    /// From a write to its record in the stream.
    pub visible: Nanos,
    /// The pause between two looks at a shard in which there was less than a full batch.
    pub poll: Nanos,
    /// How long the event source mapping gathers records before it invokes the consumer.
    pub window: Nanos,
    /// From a look at a shard to the consumer's first transaction.
    pub fetch: Nanos,
    /// A request that publishes up to ten messages.
    pub publish: Nanos,
    /// The longest pause after a first conflict or throttle. It doubles with each; a pause is drawn evenly from nothing to it.
    pub backoff: Nanos,
    /// The longest pause of all.
    pub backoff_cap: Nanos,
    /// How often a sequencer cuts.
    pub cut: Nanos,
    /// A consistent read, or a write of one item that is no transaction.
    pub single: Nanos,
    /// The longest pause between two attempts to take a turn.
    pub turn_cap: Nanos,
    /// Records that are written, all alike.
    pub records: u32,
    /// The fewest shards of the stream: one for each partition of the table.
    pub shards: u32,
    /// Changes a second above which a shard splits.
    pub shard_changes: u64,
    /// How long a run is. Its second half is measured.
    pub duration: Nanos,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// Renders a number with commas.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            partition_units: 1_000,
            table_units: 400_000,
            burst_seconds: 0,
            transaction: 10 * MS,
            rejection: 5 * MS,
            cancelled_percent: 50,
            visible: 50 * MS,
            poll: 250 * MS,
            window: 0,
            fetch: 15 * MS,
            publish: 10 * MS,
            backoff: 25 * MS,
            backoff_cap: SECOND,
            cut: 50 * MS,
            single: 5 * MS,
            turn_cap: 200 * MS,
            records: 16_384,
            shards: 4,
            shard_changes: 1_000,
            duration: 30 * SECOND,
            seed: 1,
        }
    }
}

impl Parameters {
    /// Returns how many shards the stream of a table has if it is written at this rate: the smallest power of two that keeps
    /// each below its limit.
    pub fn shards_at(&self, rate: u64) -> u32 {
        let mut shards = self.shards.max(1);
        while rate > u64::from(shards) * self.shard_changes {
            shards *= 2;
        }
        shards
    }

    /// Returns each parameter: what it is, its value, and where that comes from.
    pub fn explained(&self) -> Vec<[String; 3]> {
        let ms = |nanos: Nanos| format!("{} ms", thousands(nanos / MS));
        let row = |what: &str, value: String, source: &str| [what.to_owned(), value, source.to_owned()];
        vec![
            row(
                "write units of a partition, and so of an item",
                format!("{} a second", thousands(self.partition_units)),
                "AWS [1]",
            ),
            row(
                "write units of the feed's table",
                format!("{} a second", thousands(self.table_units)),
                "the quota (40,000 by default [2]), raised",
            ),
            row(
                "burst beyond a partition's units",
                format!("{} s", self.burst_seconds),
                "AWS [3]: none above a partition's limit",
            ),
            row("a transaction's write units", "2 for each KB of each item".to_owned(), "AWS [4]"),
            row(
                "a transaction, and how long it holds the counter",
                format!("{} ± 20 %", ms(self.transaction)),
                "assumed",
            ),
            row("a cancelled transaction", ms(self.rejection), "assumed"),
            row(
                "write units of a cancelled transaction",
                format!("{} %", self.cancelled_percent),
                "assumed: those of its first phase, as others report [8]",
            ),
            row("from a write to its record in the stream", ms(self.visible), "assumed"),
            row(
                "polls of a shard",
                "4 a second ± 10 %; immediately after a full batch".to_owned(),
                "AWS [5]; the latter is assumed",
            ),
            row("batching window of the mapping", ms(self.window), "the module"),
            row("from a poll to the consumer's first transaction", ms(self.fetch), "assumed, of a warm function"),
            row("a request that publishes ten messages", ms(self.publish), "assumed"),
            row(
                "pauses after conflicts and throttles",
                format!("up to {}, doubling to {}", ms(self.backoff), ms(self.backoff_cap)),
                "the code: full jitter",
            ),
            row(
                "shards",
                format!(
                    "{} at least; one splits above {} changes a second",
                    self.shards,
                    thousands(self.shard_changes)
                ),
                "AWS [1] [6]; even splits are assumed",
            ),
            row("records that are written", thousands(self.records.into()), "assumed, all alike"),
            row(
                "a read, or a write of one item that is no transaction",
                ms(self.single),
                "assumed: a single-digit number of ms [7]",
            ),
            row(
                "pauses between attempts to take a turn",
                format!("up to {}, doubling to {}", ms(self.backoff), ms(self.turn_cap)),
                "the design",
            ),
            row("a sequencer's cuts", format!("every {}", ms(self.cut)), "the design"),
        ]
    }
}
