//! Ceilings that follow from one limit each.

use crate::{
    designs::{FIRST, PRESENT, Rows},
    parameters::{MS, Parameters, SECOND, thousands},
};

/// Write units a second of a table that an account has without asking.
pub const TABLE_QUOTA: u64 = 40_000;

/// Messages of the topic between two checkpoints of its publisher: as many as its requests at the same time hold.
pub const TOPIC_RUN: u64 = 100;
/// Messages in a request.
pub const TOPIC_REQUEST: u64 = 10;

/// The most changes a second that one limit allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// What is limited.
    pub what: String,
    /// Changes in a transaction.
    pub batch: usize,
    /// Changes a second.
    pub changes: u64,
    /// How it follows.
    pub because: String,
}

/// Returns the ceilings of a feed on DynamoDB.
pub fn all(parameters: &Parameters) -> Vec<Ceiling> {
    let units = parameters.partition_units;
    let mut ceilings = Vec::new();
    let mut add = |what: &str, batch: usize, changes: u64, because: String| {
        ceilings.push(Ceiling { what: what.to_owned(), batch, changes, because });
    };
    for (form, rows, batches) in [
        ("the first form's rows", Rows::First, [21, FIRST.per_transaction]),
        ("segments", Rows::Segments, [20, PRESENT.per_transaction]),
    ] {
        for batch in batches {
            let cost = rows.cost(batch).log;
            let because = format!("{} units of one partition; a transaction takes {cost}", thousands(units));
            add(form, batch, units * batch as u64 / cost, because);
        }
    }
    for batch in [20, 98] {
        let cost = Rows::Segments.cost(batch).counter;
        add(
            "the counter's units",
            batch,
            units / cost * batch as u64,
            format!("{} transactions a second", units / cost),
        );
    }
    for ms in [5, 10, 20] {
        for batch in [20, 98] {
            let because = format!("{} transactions a second of {ms} ms, one after the other", SECOND / (ms * MS));
            add("the counter, in turn", batch, SECOND / (ms * MS) * batch as u64, because);
        }
    }
    let record = Rows::Segments.cost(1).record;
    add(
        "changes of one record",
        98,
        units / record,
        format!("{} units of the partition of its history", thousands(units)),
    );
    for batch in [20, 98] {
        let each = Rows::Segments.units_a_change(batch);
        let because = format!("{} units of the feed's table by default, {each:.2} per change", thousands(TABLE_QUOTA));
        add("the table's quota", batch, (TABLE_QUOTA as f64 / each) as u64, because);
    }
    let batch = PRESENT.per_transaction;
    for (whose, read) in [("a shard", 0), ("one of several shards", parameters.single)] {
        let took = parameters.fetch + read + parameters.transaction;
        let reading = if read > 0 { format!(", {} of them for reading the counter", read / MS) } else { String::new() };
        add(whose, batch, batch as u64 * SECOND / took, format!("{} ms per batch{reading}", took / MS));
    }
    // The publisher of the topic reads the counter and the changes, publishes, and saves its checkpoint.
    for (what, waves) in [("messages of many records", 1), ("messages of one record", TOPIC_RUN / TOPIC_REQUEST)] {
        let publishing = waves * parameters.publish;
        let took = 3 * parameters.single + publishing;
        let because = format!("{} ms per {TOPIC_RUN} messages, {} of them for publishing", took / MS, publishing / MS);
        add(what, batch, TOPIC_RUN * SECOND / took, because);
    }
    ceilings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceilings_are_those_of_the_specification() {
        let ceilings = all(&Parameters::default());
        let of = |what: &str, batch: usize| -> Vec<u64> {
            ceilings
                .iter()
                .filter(|found| found.what == what && found.batch == batch)
                .map(|found| found.changes)
                .collect()
        };
        assert_eq!(of("the first form's rows", 49), [500]);
        assert_eq!(of("segments", 20), [5_000]);
        assert_eq!(of("segments", 98), [9_800]);
        assert_eq!(of("the counter's units", 98), [49_000]);
        assert_eq!(of("the counter, in turn", 20), [4_000, 2_000, 1_000]);
        assert_eq!(of("changes of one record", 98), [500]);
        assert_eq!(of("one of several shards", 98), [3_266]);
        assert_eq!(of("messages of one record", 98), [869]);
    }
}
