//! docs/scale.md shows what the program prints.

use std::fs;

use nameservice_scale::{
    designs::{Design, FIRST, PRESENT, Sharing, TURNS, cursors, sequenced},
    outcome::Outcome,
    page,
    parameters::{MS, Parameters},
    report,
};

#[test]
fn the_page_has_the_figures_that_cargo_scale_prints() {
    let found = fs::read_to_string(page::path()).unwrap();
    let current = page::with(&found, &report::blocks(&Parameters::default())).unwrap();
    let changed = found.lines().zip(current.lines()).find(|(found, current)| found != current);
    assert!(found == current, "run `cargo scale --write`; the first difference is {changed:?}");
}

/// What the text says beside the tables.
#[test]
fn what_the_text_says_is_simulated() {
    let one =
        |design: Design, rate: u64| -> Outcome { report::run(&[(Parameters::default(), design, rate)]).pop().unwrap() };
    for (design, keeps_up, falls_behind) in
        [(PRESENT, 3_000, 4_000), (TURNS, 7_000, 8_000), (cursors(4), 20_000, 30_000), (sequenced(4), 20_000, 30_000)]
    {
        assert!(one(design, keeps_up).keeps_up(), "{}", design.name);
        assert!(!one(design, falls_behind).keeps_up(), "{}", design.name);
    }
    assert!(one(cursors(16), 50_000).keeps_up() && one(sequenced(16), 50_000).keeps_up());
    // Competing consumers: a transaction is cancelled for each that is applied, at a third and more of the cost.
    for rate in [100, 500, 1_000] {
        let (present, read_first) = (one(PRESENT, rate), one(Design { sharing: Sharing::ReadFirst, ..PRESENT }, rate));
        assert!((1.0..1.5).contains(&present.cancelled), "{present:?}");
        assert!((3.5..4.45).contains(&present.units), "{present:?}");
        assert!(read_first.units < present.units * 0.7, "{read_first:?} {present:?}");
    }
    assert!((1_400.0..1_550.0).contains(&one(PRESENT, 20_000).sustained));
    assert!((230.0..270.0).contains(&one(FIRST, 500).sustained));
    // A sequencer: about 40 ms, and a few cents a million.
    let (with, without) = (one(sequenced(4), 1_000), one(cursors(4), 1_000));
    assert!((30 * MS..50 * MS).contains(&(with.p50 - without.p50)), "{with:?} {without:?}");
    let (with, without) = (one(sequenced(16), 20_000), one(cursors(16), 20_000));
    assert!(with.units - without.units < 0.08, "{with:?} {without:?}");
}
