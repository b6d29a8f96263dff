//! The `nameservice` command.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    nameservice_cli::program().await
}
