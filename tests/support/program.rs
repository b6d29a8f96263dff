//! The `nameservice` command once more, if the tests that kill it can find it.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    nameservice_cli::program().await
}
