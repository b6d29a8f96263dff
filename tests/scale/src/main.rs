//! Prints what the change feed on DynamoDB can carry, computed and simulated: the figures of docs/scale.md.
//!
//! ```text
//! cargo scale                                         # every figure of the page
//! cargo scale --write                                 # into the page; --check compares
//! cargo scale --design present --rate 3000            # one run
//! cargo scale --design sequencer --logs 8 --rate 30000 --transaction-ms 20
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a report")]

use std::{fs, process::ExitCode};

use clap::{Parser, ValueEnum};
use nameservice_scale::{
    designs::{Design, EXPECTING, FIRST, ONE_CONSUMER, PRESENT, Sharing, TURNS, cursors, sequenced},
    page,
    parameters::{MS, Parameters, SECOND},
    report,
};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// The first form of the feed
    First,
    /// The feed as it is
    Present,
    /// The same, whose consumers never read the counter first
    Expecting,
    /// The same, whose consumers read it again after a conflict
    ReadAgain,
    /// The same, with turns
    Turns,
    /// The same, with one consumer of all shards
    OneConsumer,
    /// Several logs, and cursors of as many positions
    Cursors,
    /// Several logs, and a sequencer that gives one position
    Sequencer,
}

/// Prints what the change feed on DynamoDB can carry, computed and simulated.
#[derive(Debug, Parser)]
struct Arguments {
    /// Writes the figures into docs/scale.md
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Fails if docs/scale.md has other figures
    #[arg(long)]
    check: bool,
    /// Simulates this design alone
    #[arg(long, value_enum, conflicts_with_all = ["write", "check"])]
    design: Option<Form>,
    /// Changes a second that are written
    #[arg(long, default_value_t = 1_000, requires = "design", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Logs of cursors and sequencer
    #[arg(long, default_value_t = 4, requires = "design", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=48))]
    logs: usize,
    /// How long a transaction takes
    #[arg(long, default_value_t = 10, requires = "design", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    transaction_ms: u64,
    /// The part of its write units that a cancelled transaction consumes
    #[arg(long, default_value_t = 50, requires = "design", value_parser = clap::value_parser!(u64).range(0..=100))]
    cancelled_percent: u64,
    /// How long the mapping gathers records for a batch
    #[arg(long, default_value_t = 0, requires = "design", value_parser = clap::value_parser!(u64).range(0..=300))]
    window_seconds: u64,
    /// Seconds of unused units that a partition may use later
    #[arg(long, default_value_t = 0, requires = "design", value_parser = clap::value_parser!(u64).range(0..=300))]
    burst_seconds: u64,
    /// Records that are written, all alike
    #[arg(long, default_value_t = 16_384, requires = "design", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    records: u32,
    /// Simulated time; the second half is measured
    #[arg(long, default_value_t = 30, requires = "design", value_parser = clap::value_parser!(u64).range(2..=3_600))]
    seconds: u64,
    /// What is drawn
    #[arg(long, default_value_t = 1, requires = "design")]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.design {
        Some(form) => one(form, &arguments),
        None => figures(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn figures(arguments: &Arguments) -> Result<(), String> {
    let blocks = report::blocks(&Parameters::default());
    if !arguments.write && !arguments.check {
        for (name, content) in blocks {
            println!("{name}\n\n{content}");
        }
        return Ok(());
    }
    let path = page::path();
    let found = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let current = page::with(&found, &blocks)?;
    if found == current {
        return Ok(());
    }
    match arguments.write {
        true => fs::write(&path, current).map_err(|error| format!("{}: {error}", path.display())),
        false => {
            Err("the figures in docs/scale.md differ from those that `cargo scale` prints: run `cargo scale --write`"
                .to_owned())
        }
    }
}

fn one(form: Form, arguments: &Arguments) -> Result<(), String> {
    let design: Design = match form {
        Form::First => FIRST,
        Form::Present => PRESENT,
        Form::Expecting => EXPECTING,
        Form::ReadAgain => Design { sharing: Sharing::ReadAgain, ..PRESENT },
        Form::Turns => TURNS,
        Form::OneConsumer => ONE_CONSUMER,
        Form::Cursors => cursors(arguments.logs),
        Form::Sequencer => sequenced(arguments.logs),
    };
    let parameters = Parameters {
        transaction: arguments.transaction_ms * MS,
        rejection: arguments.transaction_ms * MS / 2,
        cancelled_percent: arguments.cancelled_percent,
        window: arguments.window_seconds * SECOND,
        burst_seconds: arguments.burst_seconds,
        records: arguments.records,
        duration: arguments.seconds * SECOND,
        seed: arguments.seed,
        ..Parameters::default()
    };
    for outcome in report::run(&[(parameters, design, arguments.rate)]) {
        for (name, value) in report::RUN.iter().zip(report::run_row(&outcome)) {
            println!("{name:<28} {value:>12}");
        }
    }
    Ok(())
}
