//! The forms of the feed that are compared, and what their transactions cost.

/// The rows of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// A row and a guard for each change, and an entry of an index by address.
    First,
    /// A segment for each transaction, and a guard for each change that is its place in the history.
    Segments,
}

/// How the consumers of several shards share a log's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each sends its transaction, expecting the counter as it last saw it. One succeeds; the others are cancelled.
    Expecting,
    /// The same. A consumer that was cancelled because another had moved the counter reads it before the first transaction of
    /// each later chunk of its batches, until such a read finds it where it was.
    ReadFirst,
    /// The same, also before it repeats a transaction that was cancelled because another was under way.
    ReadAgain,
    /// Each first takes the turn, an item that one conditional write takes and another returns, and that shows the counter. It is
    /// only advisory: the transaction still has its condition.
    Turns,
}

/// How changes get into the feed, and what makes their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// What it is called.
    pub name: &'static str,
    /// Logs, each with a counter; a record's changes go into the one that its name's hash selects.
    pub logs: usize,
    /// Rows of a change.
    pub rows: Rows,
    /// Changes that fit a transaction.
    pub per_transaction: usize,
    /// The most records that a consumer is given.
    pub batch: usize,
    /// How consumers share a counter.
    pub sharing: Sharing,
    /// Whether changes are visible once a sequencer's cut gives them positions.
    pub sequenced: bool,
    /// Whether one consumer reads all shards, instead of one each.
    pub one_consumer: bool,
}

/// The first form of the feed.
pub const FIRST: Design = Design {
    name: "first form",
    logs: 1,
    rows: Rows::First,
    per_transaction: 49,
    batch: 100,
    sharing: Sharing::Expecting,
    sequenced: false,
    one_consumer: false,
};

/// The feed as it is.
pub const PRESENT: Design = Design {
    name: "present form",
    rows: Rows::Segments,
    per_transaction: 98,
    batch: 98,
    sharing: Sharing::ReadFirst,
    ..FIRST
};

/// The same, whose consumers never read the counter first.
pub const EXPECTING: Design = Design { name: "present form, counter not read", sharing: Sharing::Expecting, ..PRESENT };

/// The same with one consumer for all shards, as `nameservice serve` has it.
pub const ONE_CONSUMER: Design =
    Design { name: "present form, one consumer", batch: 980, one_consumer: true, ..PRESENT };

/// The present form with turns: batches of ten transactions, appended in one turn.
pub const TURNS: Design = Design { name: "present form, turns", batch: 980, sharing: Sharing::Turns, ..PRESENT };

/// A batch for several logs: two transactions for each of 16, and below the 6 MB of an invocation.
const LARGE_BATCH: usize = 2 * 16 * 98;

/// Returns the design of several logs whose readers have a cursor of as many positions.
pub const fn cursors(logs: usize) -> Design {
    let name = match logs {
        4 => "4 logs, cursors",
        16 => "16 logs, cursors",
        _ => "logs, cursors",
    };
    Design { name, logs, batch: LARGE_BATCH, ..TURNS }
}

/// Returns the design of several logs and a sequencer, whose cuts give every change one position.
pub const fn sequenced(logs: usize) -> Design {
    let name = match logs {
        4 => "4 logs, sequencer",
        16 => "16 logs, sequencer",
        _ => "logs, sequencer",
    };
    Design { name, sequenced: true, ..cursors(logs) }
}

/// The designs of the page, in its order.
pub const ALL: [Design; 7] = [FIRST, PRESENT, TURNS, cursors(4), cursors(16), sequenced(4), sequenced(16)];

/// The write units of a transaction, by what limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Of the counter's item.
    pub counter: u64,
    /// Of the partition of the log's rows.
    pub log: u64,
    /// Of the partition of a record's history, for each change.
    pub record: u64,
    /// Of partitions that many keys share, for each change.
    pub elsewhere: u64,
}

impl Cost {
    /// Returns all units of a transaction of this many changes.
    pub fn total(&self, changes: usize) -> u64 {
        self.counter + self.log + (self.record + self.elsewhere) * changes as u64
    }
}

/// The bytes of a segment besides its changes.
const SEGMENT_BYTES: u64 = 280;
/// The bytes of a push of a head in a segment: 32 of its id are random, which nothing compresses.
const HEAD_BYTES: u64 = 42;

impl Rows {
    /// Returns what a transaction of this many pushes of heads costs, at two write units for each started KB of each item.
    pub fn cost(self, changes: usize) -> Cost {
        let changes = changes as u64;
        match self {
            Rows::First => Cost { counter: 2, log: 2 * changes, record: 1, elsewhere: 2 },
            Rows::Segments => {
                let kilobytes = (SEGMENT_BYTES + HEAD_BYTES * changes).div_ceil(1_024);
                Cost { counter: 2, log: 2 * kilobytes, record: 2, elsewhere: 0 }
            }
        }
    }

    /// Returns the write units per change in transactions of this many.
    pub fn units_a_change(self, changes: usize) -> f64 {
        self.cost(changes).total(changes) as f64 / changes as f64
    }
}

/// The bytes of a status in a segment whose payload has a row of its own: the random digits of the row's name.
const LARGE_BYTES: u64 = 36;
/// The bytes of a payload's row besides the payload.
const PAYLOAD_ROW_BYTES: u64 = 130;

/// Returns what a transaction of this many statuses costs, in rows of the present form. Each status has a payload of this many bytes
/// of JSON, more than 1,024, which are random letters and digits: gzip makes three bytes of four.
pub fn cost_of_payloads(changes: usize, bytes: u64) -> Cost {
    let kilobytes = (SEGMENT_BYTES + LARGE_BYTES * changes as u64).div_ceil(1_024);
    let payload = (PAYLOAD_ROW_BYTES + bytes * 3 / 4).div_ceil(1_024);
    Cost { counter: 2, log: 2 * kilobytes, record: 2, elsewhere: payload }
}

/// What a cut writes: its counter, itself, and for each log that grew where its positions begin.
pub fn cut_units(grown: usize) -> u64 {
    2 + 2 + 2 * grown as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hundredths(units: f64) -> u64 {
        (units * 100.0).round() as u64
    }

    /// What tests/stream/requests.rs counts at the wire, and what the specification of the first form had.
    #[test]
    fn costs_are_those_that_are_counted_at_the_wire() {
        assert_eq!(hundredths(Rows::First.units_a_change(21)), 510);
        assert_eq!(hundredths(Rows::First.units_a_change(49)), 504);
        assert_eq!(Rows::Segments.cost(1).total(1), 6);
        assert_eq!(hundredths(Rows::Segments.units_a_change(20)), 230);
        assert_eq!(hundredths(Rows::Segments.units_a_change(98)), 212);
        for (bytes, among, units) in [(1_100, 20, 320), (4_000, 20, 620), (16_000, 20, 1_420), (16_000, 98, 1_410)] {
            let cost = cost_of_payloads(among, bytes);
            assert_eq!(hundredths(cost.total(among) as f64 / among as f64), units, "{bytes} bytes among {among}");
        }
    }

    #[test]
    fn a_transaction_has_at_most_a_hundred_actions() {
        for design in ALL {
            let each = match design.rows {
                Rows::First => 1 + 2 * design.per_transaction,
                Rows::Segments => 2 + design.per_transaction,
            };
            assert!(each <= 100, "{}: {each}", design.name);
            // A sequencer's: its counter, the cut, and a row for each log.
            assert!(2 + design.logs <= 100, "{}", design.name);
        }
    }
}
