//! The `nameservice` command: the whole service on one machine, and an operator's tool for any.
//!
//! As a library it starts the service and the consumer of a stream in process, for tests: [`serve::start`],
//! [`consumer::start`].

pub mod args;
pub mod child;
pub mod client;
pub mod commands;
pub mod consumer;
pub mod failure;
pub mod output;
pub mod routes;
pub mod serve;
pub mod target;
pub mod values;

use std::process::ExitCode;

use clap::Parser as _;

/// The whole program, from its command line to its exit code.
pub async fn program() -> ExitCode {
    let cli = args::Cli::parse();
    output::init_logging(cli.command.serves());
    let json = cli.json;
    match commands::run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&failure, json);
            failure.exit_code()
        }
    }
}
