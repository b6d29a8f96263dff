//! `cargo chaos`: runs the test in `mod.rs` for hours, and prints its figures.
#![allow(clippy::expect_used, reason = "a run that cannot be started has failed")]

use std::process::{Command, ExitCode};

use clap::Parser;

/// Runs everything under random faults, and judges it
#[derive(Debug, Parser)]
struct Arguments {
    /// For how many hours
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Draws operations and faults; random unless given
    #[arg(long)]
    seed: Option<u64>,
    /// Only this round
    #[arg(long)]
    round: Option<u64>,
    /// How long a round lasts
    #[arg(long, value_name = "SECONDS")]
    round_seconds: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { hours, seed, round, round_seconds } = Arguments::parse();
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--quiet", "--package", "nameservice-tests", "--test", "suite", "--"]);
    test.args(["chaos::", "--ignored", "--nocapture"]);
    test.env("NAMESERVICE_CHAOS_SECONDS", format!("{:.0}", (hours * 3_600.0).max(1.0)));
    let variables = [
        ("NAMESERVICE_TEST_SEED", seed),
        ("NAMESERVICE_CHAOS_ROUND", round),
        ("NAMESERVICE_CHAOS_ROUND_SECONDS", round_seconds),
    ];
    for (name, value) in variables {
        match value {
            Some(value) => test.env(name, value.to_string()),
            None => test.env_remove(name),
        };
    }
    let status = test.status().expect("cargo runs");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
