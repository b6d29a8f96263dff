//! The `nameservice` command.

use std::process::ExitCode;

use clap::Parser;
use nameservice_cli::{args::Cli, commands, output};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
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
