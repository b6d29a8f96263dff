//! The `nameservice` command: the whole service on one machine, and an operator's tool for any.
//!
//! As a library it starts the service and the consumer of a stream in process, for tests: [`serve::start`],
//! [`consumer::start`].

mod archives;
pub mod args;
pub mod base_path;
pub mod child;
pub mod client;
pub mod commands;
mod connections;
pub mod consumer;
mod dispatch;
pub mod failure;
pub mod files;
mod keys;
pub mod lists;
mod older;
pub mod options;
pub mod output;
pub mod palette;
mod progress;
pub mod prometheus;
pub mod routes;
pub mod serve;
mod session;
pub mod target;
pub mod traces;
pub mod upstream;
pub mod values;

use std::process::ExitCode;

use clap::Parser as _;

/// The whole program, from its command line to its exit code.
pub async fn program() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            output::note(&output::usage(&error.render().to_string()));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let json = cli.json;
    let traces = match cli.command.otlp().map(traces::Traces::to).transpose() {
        Ok(traces) => traces,
        Err(failure) => {
            output::report(&failure, json);
            return failure.exit_code();
        }
    };
    output::init_logging(cli.command.serves(), cli.log_level, cli.log_format, traces.as_ref());
    let done = dispatch::run(cli).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&failure, json);
            failure.exit_code()
        }
    }
}
