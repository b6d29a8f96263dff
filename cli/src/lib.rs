//! The `nameservice` command: the whole service on one machine, and an operator's tool for any.
//!
//! As a library it starts the service and the consumer of a stream in process, for tests: [`serve::start`],
//! [`consumer::start`].

#[cfg(feature = "archive")]
mod archives;
#[cfg(not(feature = "archive"))]
#[path = "absent/archives.rs"]
mod archives;
pub mod args;
#[cfg(feature = "serve")]
mod backups;
#[cfg(feature = "serve")]
pub mod base_path;
pub mod child;
pub mod client;
pub mod commands;
#[cfg(any(feature = "archive", feature = "migration", feature = "opensearch"))]
mod connected;
#[cfg(feature = "serve")]
pub mod connections;
#[cfg(feature = "dynamodb")]
pub mod consumer;
#[cfg(all(feature = "serve", not(feature = "dynamodb")))]
#[path = "absent/consumer.rs"]
mod consumer;
mod dispatch;
pub mod exit;
pub mod failure;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "serve")]
mod health;
#[cfg(feature = "serve")]
mod keys;
pub mod lists;
#[cfg(feature = "serve")]
mod nudge;
#[cfg(feature = "migration")]
mod older;
pub mod options;
pub mod output;
pub mod palette;
mod progress;
#[cfg(feature = "serve")]
pub mod prometheus;
pub mod routes;
#[cfg(feature = "serve")]
mod scrubs;
#[cfg(feature = "serve")]
pub mod serve;
mod session;
#[cfg(feature = "migration")]
mod shown_source;
#[cfg(feature = "serve")]
mod supervisor;
#[cfg(feature = "dynamodb")]
pub mod table;
pub mod target;
#[cfg(feature = "traces")]
pub mod traces;
#[cfg(not(feature = "traces"))]
#[path = "absent/traces.rs"]
pub mod traces;
#[cfg(feature = "replica")]
pub mod upstream;
#[cfg(all(feature = "serve", not(feature = "replica")))]
#[path = "absent/upstream.rs"]
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
            return ExitCode::from(exit::Exit::Usage.code());
        }
        Err(error) => error.exit(),
    };
    let json = cli.json;
    #[cfg(not(feature = "traces"))]
    let traces: Option<traces::Traces> = None;
    #[cfg(feature = "traces")]
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
