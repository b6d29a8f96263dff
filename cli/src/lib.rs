//! The `nameservice` command: the whole service on one machine, and an operator's tool for any.
//!
//! As a library it starts the service and the consumer of a stream in process, for tests: [`serve::start`],
//! [`consumer::start`].

pub mod args;
pub mod base_path;
pub mod child;
pub mod client;
pub mod commands;
pub mod consumer;
pub mod failure;
pub mod files;
mod keys;
pub mod output;
pub mod prometheus;
pub mod routes;
pub mod serve;
pub mod target;
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
    output::init_logging(cli.command.serves(), cli.log_level, cli.log_format);
    let json = cli.json;
    match commands::run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&failure, json);
            failure.exit_code()
        }
    }
}
