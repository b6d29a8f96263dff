//! docs/scale.md shows what the program prints.

use std::fs;

use nameservice_scale::{page, parameters::Parameters, report};

#[test]
fn the_page_has_the_figures_that_cargo_scale_prints() {
    let found = fs::read_to_string(page::path()).unwrap();
    let current = page::with(&found, &report::blocks(&Parameters::default())).unwrap();
    let changed = found.lines().zip(current.lines()).find(|(found, current)| found != current);
    assert!(found == current, "run `cargo scale --write`; the first difference is {changed:?}");
}
