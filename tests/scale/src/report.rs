//! The figures of docs/scale.md.

use std::{
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    ceilings,
    designs::{
        ALL, Design, EXPECTING, FIRST, ONE_CONSUMER, PRESENT, Rows, Sharing, TURNS, cost_of_payloads, cursors,
        sequenced,
    },
    dynamo::Limit,
    outcome::Outcome,
    parameters::{DOLLARS_READS, DOLLARS_WRITES, MS, Nanos, Parameters, SECOND, thousands},
    simulation::Simulation,
};

/// The rates of the page, in changes a second.
pub const RATES: [u64; 8] = [100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

/// A part of the page: its name, and what it shows in Markdown.
pub type Block = (&'static str, String);

/// Returns all blocks of the page.
pub fn blocks(parameters: &Parameters) -> Vec<Block> {
    vec![
        ("ceilings", ceilings_table(parameters)),
        ("units", units_table()),
        ("payloads", payloads_table(parameters)),
        ("parameters", table(["what", "value", "from"], parameters.explained())),
        ("simulation", simulation_table(parameters)),
        ("transactions", transactions_table(parameters)),
        ("changes", changes_table(parameters)),
        ("money", money_table(parameters)),
    ]
}

/// Runs designs under parameters at rates, on all processors, and returns their outcomes in the order of the list.
pub fn run(runs: &[(Parameters, Design, u64)]) -> Vec<Outcome> {
    on_all_processors(runs, |(parameters, design, rate)| Simulation::new(parameters, *design, *rate).run().0)
}

fn on_all_processors<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some((n, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns a row of a run: its columns are those of [`RUN`].
pub fn run_row(outcome: &Outcome) -> Vec<String> {
    let delay = |nanos: Nanos| if outcome.keeps_up() { milliseconds(nanos) } else { "grows".to_owned() };
    vec![
        count(outcome.offered as f64),
        count(outcome.sustained),
        if outcome.keeps_up() { "–".to_owned() } else { count(outcome.growth) },
        delay(outcome.p50),
        delay(outcome.p99),
        format!("{:.1}", outcome.batch),
        format!("{:.2}", outcome.units),
        format!("{:.2}", outcome.cancelled),
        limit(outcome),
    ]
}

/// What the columns of a run are.
pub const RUN: [&str; 9] = [
    "offered",
    "sustained",
    "backlog grows by",
    "p50, ms",
    "p99, ms",
    "changes per transaction",
    "units per change",
    "cancelled per applied",
    "limited by",
];

fn limit(outcome: &Outcome) -> String {
    let limit = match outcome.throttled {
        _ if outcome.keeps_up() => "–",
        _ if outcome.cancelled > 0.5 => "consumers that compete for the counter",
        Some(Limit::Counter) => "the counter's units",
        Some(Limit::Log) => "the units of a log's partition",
        Some(Limit::Record) => "the units of a record's partition",
        Some(Limit::Table) => "the table's units",
        None if outcome.busy > 0.5 => "transactions, one after the other",
        None => "a consumer's time for a batch",
    };
    limit.to_owned()
}

fn ceilings_table(parameters: &Parameters) -> String {
    let row =
        |found: ceilings::Ceiling| [found.what, found.batch.to_string(), count(found.changes as f64), found.because];
    table(
        ["limit", "changes per transaction", "changes per second", "why"],
        ceilings::all(parameters).into_iter().map(row),
    )
}

fn units_table() -> String {
    let rows = [1, 5, 10, 20, 21, 49, 98].map(|batch| {
        let of = |rows: Rows| {
            let units = rows.units_a_change(batch);
            [format!("{units:.2}"), format!("${:.2}", units * DOLLARS_WRITES)]
        };
        let [first, first_dollars] = if batch > 49 { ["–".to_owned(), "–".to_owned()] } else { of(Rows::First) };
        let [units, dollars] = of(Rows::Segments);
        [batch.to_string(), first, first_dollars, units, dollars]
    });
    table(["changes per transaction", "first form, units", "per million", "present form, units", "per million"], rows)
}

fn payloads_table(parameters: &Parameters) -> String {
    let cases = [1_100, 4_000, 16_000].into_iter().flat_map(|bytes| [1, 20, 98].map(|changes| (bytes, changes)));
    let rows = cases.map(|(bytes, changes)| {
        let cost = cost_of_payloads(changes, bytes);
        let each = cost.total(changes) as f64 / changes as f64;
        let segments = parameters.partition_units * changes as u64 / cost.log;
        let quota = ceilings::TABLE_QUOTA as f64 / each;
        let megabytes = quota.min(segments as f64) * bytes as f64 / 1e6;
        [
            thousands(bytes),
            changes.to_string(),
            format!("{each:.2}"),
            format!("${:.2}", each * DOLLARS_WRITES),
            thousands(segments),
            count(quota),
            format!("{megabytes:.1}"),
        ]
    });
    let columns = [
        "bytes of JSON",
        "changes per transaction",
        "units per change",
        "per million",
        "changes per second, segments",
        "changes per second, the table's quota",
        "the lower one, MB per second",
    ];
    table(columns, rows)
}

fn simulation_table(parameters: &Parameters) -> String {
    let runs: Vec<_> = ALL.iter().flat_map(|design| RATES.map(|rate| (parameters.clone(), *design, rate))).collect();
    let rows = runs.iter().zip(run(&runs)).map(|((_, design, rate), outcome)| {
        let name = if *rate == RATES[0] { design.name } else { "" };
        [vec![name.to_owned()], run_row(&outcome)].concat()
    });
    table([&["design"][..], &RUN].concat(), rows)
}

/// Rates that are tried one after the other, until a design falls behind.
const STEPS: [u64; 20] = [
    100, 250, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000, 10_000, 15_000, 20_000,
    30_000, 40_000, 50_000,
];

/// For several transaction times, which AWS does not document: the rate that a design keeps up with, and its rate under far more.
fn transactions_table(parameters: &Parameters) -> String {
    let designs = [FIRST, EXPECTING, PRESENT, ONE_CONSUMER, TURNS, cursors(4), cursors(16)];
    let times = [5, 10, 20];
    let cases: Vec<(Design, u64)> = designs.iter().flat_map(|design| times.map(|ms| (*design, ms))).collect();
    let cells = on_all_processors(&cases, |(design, ms)| {
        let parameters = Parameters { transaction: ms * MS, rejection: ms * MS / 2, ..parameters.clone() };
        let at = |rate: u64| Simulation::new(&parameters, *design, rate).run().0;
        let keeps_up = STEPS.into_iter().take_while(|rate| at(*rate).keeps_up()).last().unwrap_or_default();
        format!("{}; {}", thousands(keeps_up), count(at(50_000).sustained))
    });
    let rows =
        cells.chunks(times.len()).zip(designs).map(|(cells, design)| [&[design.name.to_owned()][..], cells].concat());
    table(["keeps up with; sustains at 50,000 offered", "transactions of 5 ms", "10 ms", "20 ms"], rows)
}

/// The present form, with one choice changed at a time.
fn changes_table(parameters: &Parameters) -> String {
    let with = |change: fn(&mut Parameters)| {
        let mut changed = parameters.clone();
        change(&mut changed);
        changed
    };
    let same = |_: &mut Parameters| {};
    let read_again = Design { sharing: Sharing::ReadAgain, ..PRESENT };
    let cases: [(&str, Design, Parameters); 11] = [
        ("as it is", PRESENT, with(same)),
        ("a batching window of 1 s", PRESENT, with(|changed| changed.window = SECOND)),
        ("the counter is not read first", EXPECTING, with(same)),
        ("the counter is read again after a conflict", read_again, with(same)),
        ("turns", TURNS, with(same)),
        ("one consumer of all shards", ONE_CONSUMER, with(same)),
        ("cancelled transactions cost nothing", PRESENT, with(|changed| changed.cancelled_percent = 0)),
        ("cancelled transactions cost as much as others", PRESENT, with(|changed| changed.cancelled_percent = 100)),
        ("twice as many shards", PRESENT, with(|changed| changed.shard_changes = 500)),
        ("pauses after conflicts five times as long", PRESENT, with(|changed| changed.backoff *= 5)),
        ("a record in the stream after 200 ms", PRESENT, with(|changed| changed.visible = 200 * MS)),
    ];
    let rates = [1_000, 3_000, 20_000];
    let runs: Vec<_> =
        cases.iter().flat_map(|(_, design, changed)| rates.map(|rate| (changed.clone(), *design, rate))).collect();
    let outcomes = run(&runs);
    let rows = outcomes.chunks(rates.len()).zip(&cases).map(|(outcomes, (name, ..))| {
        let of = |outcome: &Outcome| {
            let delay = if outcome.keeps_up() {
                format!("p50 {} ms", milliseconds(outcome.p50))
            } else {
                "falls behind".to_owned()
            };
            format!("{}, {:.2} units, {delay}", count(outcome.sustained), outcome.units)
        };
        [vec![(*name).to_owned()], outcomes.iter().map(of).collect()].concat()
    });
    table(["the present form", "offered 1,000", "3,000", "20,000"], rows)
}

/// Dollars for a million changes, and for a month without any.
fn money_table(parameters: &Parameters) -> String {
    const MONTH: f64 = 730.0 * 3_600.0;
    /// A function of 256 MB on arm64 that never ends, for a month.
    const FUNCTION: f64 = 0.25 * 0.000_013_333_4 * MONTH;
    let designs = [PRESENT, TURNS, cursors(4), cursors(16), sequenced(4), sequenced(16)];
    let rates = [100, 1_000, 2_500, 20_000];
    let runs: Vec<_> =
        designs.iter().flat_map(|design| rates.map(|rate| (parameters.clone(), *design, rate))).collect();
    let outcomes = run(&runs);
    let rows = outcomes.chunks(rates.len()).zip(designs).map(|(outcomes, design)| {
        let of = |outcome: &Outcome| match outcome.keeps_up() {
            true => format!("${:.2}", outcome.units * DOLLARS_WRITES + outcome.reads * DOLLARS_READS),
            false => "falls behind".to_owned(),
        };
        let looks = MONTH * SECOND as f64 / parameters.cut as f64;
        let idle = if design.sequenced { looks * design.logs as f64 * DOLLARS_READS / 1e6 + FUNCTION } else { 0.0 };
        let mut row = vec![design.name.to_owned()];
        row.extend(outcomes.iter().map(of));
        row.push(format!("${idle:.0}"));
        row
    });
    table(["a million changes at", "100 a second", "1,000", "2,500", "20,000", "a month without changes"], rows)
}

/// Renders a table in Markdown.
fn table<H: AsRef<str>, C: AsRef<str>>(
    head: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = C>>,
) -> String {
    fn line<C: AsRef<str>>(text: &mut String, cells: impl IntoIterator<Item = C>) {
        for cell in cells {
            let _ = write!(text, "| {} ", cell.as_ref());
        }
        text.push_str("|\n");
    }
    let mut text = String::new();
    line(&mut text, head);
    let columns = text.matches("| ").count();
    line(&mut text, std::iter::repeat_n("---", columns));
    text = text.replace("| --- ", "|---");
    for row in rows {
        line(&mut text, row);
    }
    text
}

/// Renders a number with commas, rounded to three digits where it is no round number.
fn count(number: f64) -> String {
    let mut step = 1.0;
    while number / step >= 1_000.0 && number % 100.0 != 0.0 {
        step *= 10.0;
    }
    thousands(((number / step).round() * step) as u64)
}

fn milliseconds(nanos: Nanos) -> String {
    count(nanos.div_ceil(MS) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_commas_and_three_digits() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(9_837.2), "9,840");
        assert_eq!(count(49_000.0), "49,000");
        assert_eq!(count(1_234_567.0), "1,230,000");
    }

    #[test]
    fn a_table_has_a_line_below_its_head() {
        assert_eq!(table(["a", "b"], [["1", "2"]]), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
