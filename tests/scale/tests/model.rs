//! The invariants of the model: no change is lost, no limit is exceeded, and it saturates where arithmetic says.

use nameservice_scale::{
    designs::{ALL, Design, EXPECTING, FIRST, ONE_CONSUMER, PRESENT, Sharing, TURNS, cursors, sequenced},
    dynamo::{Bucket, Limit},
    outcome::Outcome,
    parameters::{MS, Nanos, Parameters, SECOND},
    simulation::Simulation,
};

fn run(parameters: &Parameters, design: Design, rate: u64) -> Outcome {
    Simulation::new(parameters, design, rate).run().0
}

/// Asserts a rate to a hundredth.
fn assert_rate(outcome: &Outcome, expected: f64) {
    let sustained = outcome.sustained;
    assert!((sustained / expected - 1.0).abs() < 0.01, "sustained {sustained}, where arithmetic says {expected}");
}

fn shorter() -> Parameters {
    Parameters { duration: 10 * SECOND, ..Parameters::default() }
}

#[test]
fn every_change_is_visible_or_waits_and_positions_are_dense() {
    for design in ALL.into_iter().chain([ONE_CONSUMER, EXPECTING, Design { sharing: Sharing::ReadAgain, ..PRESENT }]) {
        for rate in [100, 2_000, 20_000] {
            let outcome = run(&shorter(), design, rate);
            let name = design.name;
            assert_eq!(outcome.arrived, outcome.visible + outcome.waiting, "{name} at {rate}");
            assert_eq!(outcome.last_position, outcome.visible, "{name} at {rate}");
            assert_eq!(outcome.out_of_order, 0, "{name} at {rate}");
            assert_eq!(outcome.not_isolated, 0, "{name} at {rate}");
            let written = outcome.arrived as f64 / (rate * 10) as f64;
            assert!((written - 1.0).abs() < 0.05, "{name} at {rate}: {written} of what is offered is written");
        }
    }
}

/// Buckets begin empty, so that what was taken never exceeds what has come in; in an interval it is at most what comes in and a
/// full bucket, which is a second's units.
fn assert_within(bucket: &Bucket, rate: u64, name: &str) {
    let mut taken = 0;
    let mut window = std::collections::VecDeque::new();
    let mut in_window = 0;
    for (at, units) in bucket.trace() {
        taken += units;
        assert!(taken * SECOND <= at * rate, "{name}: {taken} units by {at} ns");
        window.push_back((*at, *units));
        in_window += units;
        while let Some((first, units)) = window.front().copied().filter(|(first, _)| first + SECOND <= *at) {
            in_window -= units;
            window.pop_front();
            assert!(first < *at);
        }
        assert!(in_window <= 2 * rate, "{name}: {in_window} units in the second before {at} ns");
    }
    assert_eq!(taken, bucket.taken());
}

#[test]
fn no_limit_is_exceeded_in_any_second() {
    let parameters = Parameters { table_units: 20_000, ..shorter() };
    for design in ALL {
        let (_, table) = Simulation::new(&parameters, design, 20_000).traced().run();
        for log in 0..design.logs {
            assert!(!table.counters[log].trace().is_empty(), "{}", design.name);
            assert_within(&table.counters[log], 1_000, design.name);
            assert_within(&table.logs[log], 1_000, design.name);
            assert_within(&table.turns[log], 1_000, design.name);
        }
        assert_within(&table.table, 20_000, design.name);
    }
}

#[test]
fn one_log_ends_where_the_units_of_its_partition_do() {
    // 10 units for 98 changes.
    let fast = Parameters { transaction: 5 * MS, ..Parameters::default() };
    let outcome = run(&fast, ONE_CONSUMER, 50_000);
    assert_rate(&outcome, 1_000.0 / 10.0 * 98.0);
    assert_eq!(outcome.throttled, Some(Limit::Log));
    // 2 units for each change.
    let former = Design { one_consumer: true, batch: 980, ..FIRST };
    let outcome = run(&fast, former, 50_000);
    assert_rate(&outcome, 1_000.0 / 2.0);
    assert_eq!(outcome.throttled, Some(Limit::Log));
}

#[test]
fn one_log_ends_where_the_time_of_its_transactions_does() {
    for ms in [10, 20] {
        let parameters = Parameters { transaction: ms * MS, ..Parameters::default() };
        let outcome = run(&parameters, ONE_CONSUMER, 50_000);
        // Ten transactions after each look at the shard.
        assert_rate(&outcome, 980.0 / (0.015 + 10.0 * ms as f64 / 1_000.0));
        assert_eq!(outcome.throttled, None);
    }
}

#[test]
fn a_consumer_ends_where_its_shard_does() {
    let one = Parameters { shards: 1, shard_changes: 100_000, ..Parameters::default() };
    // 15 ms, and a transaction of 10 ms.
    assert_rate(&run(&one, PRESENT, 5_000), 98.0 / 0.025);
}

#[test]
fn one_record_ends_where_the_partition_of_its_history_does() {
    let hot = Parameters { records: 1, ..Parameters::default() };
    let outcome = run(&hot, ONE_CONSUMER, 5_000);
    assert_rate(&outcome, 500.0);
    assert_eq!(outcome.throttled, Some(Limit::Record));
    assert_eq!(outcome.out_of_order, 0);
}

#[test]
fn many_logs_end_where_the_table_does() {
    let parameters = Parameters { table_units: 40_000, ..Parameters::default() };
    let outcome = run(&parameters, cursors(16), 50_000);
    assert_eq!(outcome.throttled, Some(Limit::Table));
    let units = outcome.sustained * outcome.units;
    assert!((36_000.0..=40_800.0).contains(&units), "{units} units a second");
}

#[test]
fn below_its_ceiling_every_design_keeps_up() {
    for design in ALL {
        let outcome = run(&Parameters::default(), design, 100);
        assert!(outcome.keeps_up(), "{}: {outcome:?}", design.name);
        // Through the stream, to a consumer, and a transaction.
        let least = 50 * MS + 15 * MS + 8 * MS;
        assert!(outcome.p50 >= least && outcome.p50 <= outcome.p99, "{}: {outcome:?}", design.name);
    }
}

#[test]
fn turns_end_the_cancelled_transactions_of_competing_consumers() {
    let parameters = Parameters::default();
    assert!(run(&parameters, EXPECTING, 1_000).cancelled > 1.0);
    for rate in [1_000, 20_000] {
        assert_eq!(run(&parameters, TURNS, rate).cancelled, 0.0);
    }
}

#[test]
fn consumers_of_several_shards_read_the_counter_before_a_transaction_and_one_alone_does_not() {
    let a_transaction = |outcome: &Outcome| outcome.reads * outcome.batch;
    let parameters = Parameters::default();
    for rate in [100, 500, 1_000] {
        let (present, expecting) = (run(&parameters, PRESENT, rate), run(&parameters, EXPECTING, rate));
        assert!((0.98..=1.01).contains(&a_transaction(&present)), "{present:?}");
        assert!(present.cancelled < expecting.cancelled / 3.0, "{present:?} {expecting:?}");
        assert_eq!(expecting.reads, 0.0);
    }
    let alone = run(&Parameters { shards: 1, ..parameters }, PRESENT, 500);
    assert_eq!((alone.cancelled, alone.reads), (0.0, 0.0));
}

#[test]
fn a_sequencer_adds_its_cuts_to_delays_and_little_to_units() {
    let (with, without) = (run(&shorter(), sequenced(4), 5_000), run(&shorter(), cursors(4), 5_000));
    assert!(with.p50 > without.p50, "{with:?} {without:?}");
    // 20 cuts a second at most, of 12 units, and 4 reads.
    assert!(with.units - without.units < 20.0 * 12.0 / 5_000.0 + 0.05, "{with:?} {without:?}");
    assert!(with.reads > 0.0 && with.reads <= 20.0 * 4.0 / 5_000.0 * 1.05, "{with:?}");
}

#[test]
fn a_batching_window_makes_larger_transactions_and_longer_delays() {
    let window = Parameters { window: SECOND, ..shorter() };
    let (with, without) = (run(&window, PRESENT, 100), run(&shorter(), PRESENT, 100));
    assert!(with.batch > 2.0 * without.batch, "{with:?} {without:?}");
    assert!(with.p50 > without.p50 + SECOND / 4, "{with:?} {without:?}");
    assert!(with.units < without.units, "{with:?} {without:?}");
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_does_not() {
    let parameters = shorter();
    let other = Parameters { seed: 2, ..shorter() };
    for design in [PRESENT, sequenced(16)] {
        assert_eq!(run(&parameters, design, 2_000), run(&parameters, design, 2_000));
        assert_ne!(run(&parameters, design, 2_000), run(&other, design, 2_000));
    }
}

#[test]
fn a_burst_carries_more_than_the_ceiling_only_after_idle_time() {
    let taken = |burst: u64, idle: Nanos| {
        let mut bucket = Bucket::new(1_000, burst);
        (0..10 * 1_000).filter(|ms| bucket.take(idle + ms * MS, 2)).count() * 2
    };
    assert_eq!(taken(0, SECOND), 10_998); // a second's units, and those of 10 s
    assert_eq!(taken(300, 300 * SECOND), 20_000); // all that is asked for
    assert_eq!(taken(300, 0), 9_998);
}
