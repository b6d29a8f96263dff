//! The commands, a file a noun.

mod branch;
mod config;
mod confirm;
mod conflict;
mod copy;
mod create;
mod diff;
mod doctor;
mod lease;
mod leases;
mod lifecycle;
mod list;
mod push;
mod remote;
mod search;
mod service;
mod show;
mod status;
mod top;
mod transaction;
mod watch;

use std::ops::Deref;

use nameservice_api::Record;
use nameservice_model::{Address, ConcernKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    args::{Cli, Command, TargetArgs},
    client::{Client, Request},
    failure::Failure,
    output::Output,
    serve,
    target::Missing,
};

pub use branch::{BranchCommand, BranchCreateArgs, BranchDropArgs};
pub use config::ConfigArgs;
pub use copy::{CompareArgs, CopyArgs, ExportArgs, ImportArgs, TakeArgs, TokenArgs};
pub use create::{CreateArgs, PublishArgs};
pub use diff::DiffArgs;
pub use doctor::DoctorArgs;
pub use lease::{
    ClaimArgs, HolderArgs, LeaseAcquireArgs, LeaseCommand, LeaseRefreshArgs, LeaseReleaseArgs, LeaseRunArgs, TermArgs,
};
pub use leases::LeasesArgs;
pub use lifecycle::{PurgeArgs, ResetArgs, RetractArgs};
pub use list::{ListArgs, SortArg};
pub use push::{ExpectArgs, PushCommand, PushHeadArgs, PushIndexArgs};
pub use remote::{RemoteCommand, RemoteMoveArgs};
pub use search::SearchArgs;
pub use service::HealthArgs;
pub use show::ShowArgs;
pub use status::StatusArgs;
pub use top::TopArgs;
pub use transaction::{Operation, TransactionArgs};
pub use watch::{ChangesArgs, FilterArgs, HistoryArgs, WatchArgs};

/// What a command works with.
struct Session {
    client: Client,
    output: Output,
}

impl Session {
    async fn start(target: &TargetArgs, missing: Missing, json: bool) -> Result<Self, Failure> {
        Ok(Self { client: target.client(missing).await?, output: Output::new(json) })
    }

    /// Sends a request and reads its answer, which stays as the service wrote it for those who print it.
    async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<Answer<T>, Failure> {
        let json: Value = self.client.send(&request).await?;
        let value = T::deserialize(&json).map_err(|error| Failure::BadAnswer(error.into()))?;
        Ok(Answer { json, value })
    }

    /// The record as it is, or as much of it as these concerns.
    async fn record(&self, address: &Address, concern: Option<ConcernKind>) -> Result<Answer<Record>, Failure> {
        self.send(Request::get("records").at(address).query("concerns", concern)).await
    }
}

/// An answer: its JSON as it came, and what it means.
struct Answer<T> {
    json: Value,
    value: T,
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The error of an answer that lacks a part which it always has.
fn incomplete(part: &'static str) -> Failure {
    Failure::BadAnswer(format!("it has no `{part}`").into())
}

/// Does what the command line says.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { mut command, mut target, json, .. } = cli;
    if let Command::Serve(args) = &mut command
        && target.at == Some(nameservice::Place::Memory)
    {
        target.at = None;
        args.memory = true;
    }
    let command = match command {
        Command::Copy(args) => return copy::copy(args, &target, Output::new(json)).await,
        Command::Compare(args) => return copy::compare(args, &target, Output::new(json)).await,
        Command::Export(args) => return copy::export(args, &target, Output::new(json)).await,
        Command::Remote(command) => return remote::run(command, &target, Output::new(json)).await,
        Command::Import(args) => return copy::import(args, &target, Output::new(json)).await,
        command => command,
    };
    let target = target.resolved()?;
    let command = match command {
        Command::Serve(args) => return serve::run(args, target).await,
        Command::Init => return service::init(&target, Output::new(json)).await,
        Command::Doctor(args) => return doctor::run(&target, &args, Output::new(json)).await,
        Command::Backup { to } => return service::backup(&target, &to, Output::new(json)).await,
        Command::Openapi => return service::openapi(),
        Command::GraphqlSchema => return service::graphql_schema(),
        Command::Completions { shell } => return service::completions(shell),
        Command::Man { out } => return service::man(out.as_deref()),
        Command::Watch(_) if target.data.is_some() => {
            return Err(Failure::Usage(
                "watch follows a running service: start `nameservice serve` on that directory, and name it with --url. \
                 Nothing changes in a directory while this command has it to itself"
                    .into(),
            ));
        }
        command => command,
    };
    let missing = if command.writes() { Missing::Create } else { Missing::Reject };
    let session = Session::start(&target, missing, json).await?;
    let done = operate(&session, command).await;
    // Closing the embedded backend waits for its writer, which must not be done on a thread that serves.
    let _ = tokio::task::spawn_blocking(move || drop(session)).await;
    done
}

async fn operate(session: &Session, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::create(session, args).await,
        Command::Publish(args) => create::publish(session, args).await,
        Command::Show(args) => show::run(session, args).await,
        Command::List(args) => list::list(session, args).await,
        Command::Search(args) => search::search(session, args).await,
        Command::Snapshot(format) => list::snapshot(session, format).await,
        Command::Watch(args) => watch::watch(session, args).await,
        Command::Changes(args) => watch::changes(session, args).await,
        Command::History(args) => watch::history(session, args).await,
        Command::Push(command) => push::run(session, command).await,
        Command::Status(args) => status::run(session, args).await,
        Command::Config(args) => config::run(session, args).await,
        Command::Branch(command) => branch::run(session, command).await,
        Command::Lease(command) => lease::run(session, command).await,
        Command::Leases(args) => leases::run(session, args).await,
        Command::Top(args) => top::run(session, args).await,
        Command::Diff(args) => diff::run(session, args).await,
        Command::Transaction(args) => transaction::run(session, args).await,
        Command::Retract(args) => lifecycle::retract(session, args).await,
        Command::Restore(args) => lifecycle::restore(session, args).await,
        Command::Protect(args) => lifecycle::protect(session, args, true).await,
        Command::Unprotect(args) => lifecycle::protect(session, args, false).await,
        Command::Purge(args) => lifecycle::purge(session, args).await,
        Command::Reset(args) => lifecycle::reset(session, args).await,
        Command::Health(args) => service::health(session, &args).await,
        // Handled before a session begins.
        Command::Serve(_)
        | Command::Copy(_)
        | Command::Compare(_)
        | Command::Export(_)
        | Command::Import(_)
        | Command::Remote(_)
        | Command::Init
        | Command::Backup { .. }
        | Command::Doctor(_)
        | Command::Openapi
        | Command::GraphqlSchema
        | Command::Completions { .. }
        | Command::Man { .. } => Ok(()),
    }
}
