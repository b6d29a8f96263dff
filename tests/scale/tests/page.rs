//! docs/scale.md shows what the program prints, and the program models what is in the code.

use std::fs;

use nameservice_scale::{
    ceilings::{TOPIC_REQUEST, TOPIC_RUN},
    designs::{Design, EXPECTING, FIRST, PRESENT, Sharing, TURNS, cursors, sequenced},
    outcome::Outcome,
    page,
    parameters::{DOLLARS_READS, DOLLARS_WRITES, MS, Parameters},
    report,
};

#[test]
fn the_page_has_the_figures_that_cargo_scale_prints() {
    let found = fs::read_to_string(page::path()).unwrap();
    let current = page::with(&found, &report::blocks(&Parameters::default())).unwrap();
    let changed = found.lines().zip(current.lines()).find(|(found, current)| found != current);
    assert!(found == current, "run `cargo scale --write`; the first difference is {changed:?}");
}

/// The statements of the text beside the tables.
#[test]
fn what_the_text_says_is_simulated() {
    let one =
        |design: Design, rate: u64| -> Outcome { report::run(&[(Parameters::default(), design, rate)]).pop().unwrap() };
    let read_again = Design { sharing: Sharing::ReadAgain, ..PRESENT };
    for (design, keeps_up, falls_behind) in [
        (PRESENT, 4_000, 5_000),
        (EXPECTING, 4_000, 5_000),
        (TURNS, 8_000, 9_000),
        (cursors(4), 20_000, 30_000),
        (sequenced(4), 20_000, 30_000),
    ] {
        assert!(one(design, keeps_up).keeps_up(), "{}", design.name);
        assert!(!one(design, falls_behind).keeps_up(), "{}", design.name);
    }
    assert!(one(cursors(16), 50_000).keeps_up() && one(sequenced(16), 50_000).keeps_up());
    // Why the counter is read first: two transactions are cancelled for five that are applied, instead of six or seven.
    for rate in [100, 500, 1_000] {
        let (present, expecting) = (one(PRESENT, rate), one(EXPECTING, rate));
        assert!((0.38..0.42).contains(&present.cancelled), "{present:?}");
        assert!((2.5..3.2).contains(&present.units), "{present:?}");
        assert!((1.2..1.4).contains(&expecting.cancelled), "{expecting:?}");
        assert!((3.5..4.45).contains(&expecting.units), "{expecting:?}");
        let saved = 1.0 - one(read_again, rate).units / present.units;
        assert!((0.11..0.13).contains(&saved), "{saved}");
    }
    for rate in [2_000, 3_000, 4_000] {
        let units = one(PRESENT, rate).units;
        assert!((3.0..3.8).contains(&units), "{rate}: {units}");
    }
    let (present, again, turns) = (one(PRESENT, 3_000), one(read_again, 3_000), one(TURNS, 3_000));
    assert!((0.9..1.1).contains(&present.cancelled), "{present:?}");
    assert!((2.75..2.85).contains(&again.units) && turns.units < 2.2, "{again:?} {turns:?}");
    let (present, again) = (one(PRESENT, 20_000).sustained, one(read_again, 20_000).sustained);
    assert!((1_500.0..1_600.0).contains(&present), "{present}");
    assert!((1.8..1.95).contains(&(again / present)), "{again} {present}");
    assert!((230.0..270.0).contains(&one(FIRST, 500).sustained));
    // A sequencer: about 40 ms, and a few cents a million.
    let (with, without) = (one(sequenced(4), 1_000), one(cursors(4), 1_000));
    assert!((30 * MS..50 * MS).contains(&(with.p50 - without.p50)), "{with:?} {without:?}");
    let (with, without) = (one(sequenced(16), 20_000), one(cursors(16), 20_000));
    assert!(with.units - without.units < 0.08, "{with:?} {without:?}");
}

#[test]
fn what_is_modelled_is_what_is_in_the_code() {
    let has = |file: &str, text: String| {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let found = fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(found.contains(&text), "{file} has no `{text}`: change the model with it");
    };
    let Parameters { backoff, backoff_cap, window, .. } = Parameters::default();
    let mapping = "infra/modules/nameservice/stream.tf";
    has(mapping, format!("batch_size = {}", PRESENT.batch));
    has(mapping, "parallelization_factor = 1".to_owned());
    assert_eq!(window, 0, "the mapping has no window");
    let append = "shared/feed/src/append.rs";
    has(append, format!("MAX_TRANSACTION: usize = {};", PRESENT.per_transaction));
    assert_eq!(PRESENT.sharing, Sharing::ReadFirst);
    has(append, "if self.is_shared.load(Ordering::Relaxed) { self.read_first().await?; } loop {".to_owned());
    has(append, "self.is_shared.store(counter.n > n, Ordering::Relaxed);".to_owned());
    has(append, "self.is_shared.store(n != last, Ordering::Relaxed);".to_owned());
    let policy = "shared/dynamo/src/sending.rs";
    has(policy, format!("base: Duration::from_millis({})", backoff / MS));
    has(policy, format!("cap: Duration::from_secs({})", backoff_cap / MS / 1_000));
    has("functions/topic_publisher/src/lib.rs", format!("const RUN: Limit = match Limit::new({TOPIC_RUN})"));
    has("functions/topic_publisher/src/topic.rs", format!("const MAX_BATCH: usize = {TOPIC_REQUEST};"));
    has("functions/topic_publisher/src/topic.rs", format!("const AT_ONCE: usize = {};", TOPIC_RUN / TOPIC_REQUEST));
    let prices = format!("${DOLLARS_WRITES} per million write units and ${DOLLARS_READS} per million read units");
    has("infra/README.md", prices);
}
