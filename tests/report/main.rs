//! `cargo contract`: runs the contract suite and prints which of its tests ran on which backend, one line a file.
#![allow(clippy::expect_used, reason = "a report that cannot be made has failed")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    process::{Command, ExitCode},
};

use nameservice_tests::backends::REPORT;

#[derive(Default)]
struct Cell {
    ran: usize,
    skipped: usize,
    lacks: BTreeSet<String>,
}

impl Cell {
    fn text(&self) -> String {
        match (self.ran, self.skipped) {
            (0, 0) => "–".to_owned(),
            (ran, 0) => ran.to_string(),
            (ran, skipped) => {
                let lacks: Vec<&str> = self.lacks.iter().map(String::as_str).collect();
                format!("{ran}, {skipped} skipped ({})", lacks.join(", "))
            }
        }
    }
}

fn main() -> ExitCode {
    let report = env::temp_dir().join(format!("nameservice-contract-{}", std::process::id()));
    let status = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", "nameservice-tests", "--test", "suite", "--", "contract::"])
        .env(REPORT, &report)
        .status()
        .expect("cargo runs");
    let lines = fs::read_to_string(&report).unwrap_or_default();
    drop(fs::remove_file(&report));

    let mut places: Vec<&str> = Vec::new();
    let mut table: BTreeMap<&str, BTreeMap<&str, Cell>> = BTreeMap::new();
    for line in lines.lines() {
        let mut columns = line.split('\t');
        let (Some(test), Some(place), Some(outcome)) = (columns.next(), columns.next(), columns.next()) else {
            continue;
        };
        // suite::contract::head::a_newer_head_is_updated
        let file =
            test.split("contract::").nth(1).and_then(|rest| rest.rsplit_once("::")).map_or(test, |(file, _)| file);
        if !places.contains(&place) {
            places.push(place);
        }
        let cell = table.entry(file).or_default().entry(place).or_default();
        match outcome.strip_prefix("lacks ") {
            Some(capability) => {
                cell.skipped += 1;
                cell.lacks.insert(capability.to_owned());
            }
            None => cell.ran += 1,
        }
    }

    places.sort_unstable();
    println!("| contract | {} |", places.join(" | "));
    println!("|---{}|", "|---".repeat(places.len()));
    for (file, cells) in &table {
        let cells: Vec<String> =
            places.iter().map(|place| cells.get(place).map_or_else(|| "–".to_owned(), Cell::text)).collect();
        println!("| {file} | {} |", cells.join(" | "));
    }
    let total = |place: &&str| {
        let ran: usize = table.values().filter_map(|cells| cells.get(place)).map(|cell| cell.ran).sum();
        ran.to_string()
    };
    println!("| all | {} |", places.iter().map(total).collect::<Vec<_>>().join(" | "));
    if status.success() && !table.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
