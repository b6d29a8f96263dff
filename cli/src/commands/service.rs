//! `init`, `health`, `openapi` and `completions`: about the service rather than its records.

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::Session;
use crate::{
    args::{Cli, HealthArgs, TargetArgs},
    client::Request,
    failure::Failure,
    output::{self, Output},
    routes,
    target::Table,
};

pub(super) async fn init(target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let Some(place) = target.place()? else {
        return Err(Failure::Usage("which table? Give --endpoint-url URL, --aws or --data DIR".into()));
    };
    let table = Table::open(place, target.table.as_deref()).await?;
    let report = table.ensure().await?;
    let answer = json!({"created": report.created, "lacks": report.lacks});
    let words = table.describe();
    // Joins the engine's threads, which must not be done on a thread that serves.
    let _ = tokio::task::spawn_blocking(move || drop(table)).await;
    output.answer(&answer, || {
        let done = if report.created { "made the table" } else { "the table is there" };
        let lacks = report.lacks.iter().map(|lack| format!("\n  it lacks: {lack}")).collect::<String>();
        format!("{done}: {words}{lacks}")
    })
}

pub(super) async fn health(session: &Session, args: &HealthArgs) -> Result<(), Failure> {
    let health = session.send(Request::get("health").query("deep", args.deep.then_some(true))).await?;
    session.output.answer(&health, || output::text(&health["status"]))
}

pub(super) fn openapi() -> Result<(), Failure> {
    let document = serde_json::to_string_pretty(&routes::document());
    output::print(&document.map_err(|error| Failure::BadAnswer(error.into()))?)
}

pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    // Generated into memory: the generator panics where the pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nameservice", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
