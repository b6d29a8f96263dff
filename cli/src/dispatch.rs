//! Dispatches commands to their implementations.

use clap::CommandFactory as _;
use nameservice::Place;

#[cfg(feature = "archive")]
use crate::commands::archive;
#[cfg(feature = "migration")]
use crate::commands::copy;
#[cfg(feature = "remotes")]
use crate::commands::remote;
#[cfg(feature = "opensearch")]
use crate::commands::search_index;
#[cfg(feature = "dynamodb")]
use crate::commands::{AwsCommand, deadletters};
use crate::{
    args::{Cli, Command},
    commands::{
        LeaseCommand, branch, config, create, diff, doctor, generate, lease, lifecycle, list, login, push, search,
        service, show, status, top, transaction, watch,
    },
    failure::Failure,
    options::{ArchiveArgs, Missing},
    output::Output,
    session::Session,
};
#[cfg(feature = "serve")]
use crate::{commands::token, serve};

/// Runs the command of the command line.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    #[cfg_attr(not(feature = "serve"), expect(unused_mut))]
    let Cli { mut command, mut target, json, .. } = cli;
    if let (Some(option), Some(instead)) = (target.option(), command.own_places()) {
        return Err(Failure::Usage(format!("{option} does not apply: {instead}")));
    }
    #[cfg(feature = "serve")]
    if let Command::Serve(args) = &mut command
        && target.at == Some(Place::Memory)
    {
        target.at = None;
        args.memory = true;
    }
    let target = target.resolved()?;
    let command = match command {
        #[cfg(feature = "migration")]
        Command::Copy(args) => return copy::copy(args, &target, Output::new(json)).await,
        #[cfg(feature = "migration")]
        Command::Compare(args) => return copy::compare(args, &target, Output::new(json)).await,
        #[cfg(feature = "migration")]
        Command::Export(args) => return copy::export(args, &target, Output::new(json)).await,
        #[cfg(feature = "remotes")]
        Command::Remote(command) => return remote::run(command, &target, Output::new(json)).await,
        #[cfg(feature = "opensearch")]
        Command::Aws(AwsCommand::SearchIndex(command)) => {
            return search_index::run(command, &target, Output::new(json)).await;
        }
        #[cfg(feature = "dynamodb")]
        Command::Aws(AwsCommand::DeadLetters(command)) => return deadletters::run(command, Output::new(json)).await,
        #[cfg(feature = "archive")]
        Command::Archive(args) => return archive::run(args, &target, Output::new(json)).await,
        #[cfg(feature = "migration")]
        Command::Import(args) => return copy::import(args, &target, Output::new(json)).await,
        command => command,
    };
    match &target.at {
        Some(place @ Place::Memory) => return Err(Failure::Usage(format!("`{place}` is for serve alone"))),
        Some(place @ (Place::Legacy { .. } | Place::Dump(_))) => {
            return Err(Failure::Usage(format!("`{place}` is for copy, compare, export and import")));
        }
        _ => {}
    }
    let mut target = target;
    target.archive = match &command {
        Command::Changes(args) => args.archive.clone(),
        Command::History(args) => args.archive.clone(),
        Command::Watch(args) => args.archive.clone(),
        _ => ArchiveArgs::default(),
    };
    let command = match command {
        #[cfg(feature = "serve")]
        Command::Serve(args) => return serve::run(*args, target).await,
        Command::Init => return service::init(&target, Output::new(json)).await,
        Command::Doctor(args) => return doctor::run(&target, &args, Output::new(json)).await,
        Command::Backup { to } => return service::backup(&target, &to, Output::new(json)).await,
        Command::RestoreBackup(args) => return service::restore_backup(&target, &args, Output::new(json)).await,
        #[cfg(feature = "serve")]
        Command::Token(command) => return token::run(command, Output::new(json)),
        Command::Login(args) => return login::run(args, Output::new(json)).await,
        Command::Generate(command) => return generate::run(command, Cli::command()),
        Command::Watch(_) if matches!(target.place()?, Some(Place::Embedded(_))) => {
            return Err(Failure::Usage(
                "watch follows a running service: start `nameservice serve` on that directory, and name it with --url. \
                 Nothing changes in a directory while this command has it to itself"
                    .into(),
            ));
        }
        command => command,
    };
    let missing = if command.writes() { Missing::Create } else { Missing::Reject };
    let session = Session::start(&target, missing, json).await;
    // Whatever it fails at, its codes are not those that its command may have.
    let is_lease_run = matches!(command, Command::Lease(LeaseCommand::Run(_)));
    let session = session.map_err(|failure| if is_lease_run { failure.of_lease_run() } else { failure })?;
    let done = operate(&session, command).await;
    // Closing the embedded backend waits for its writer, so it must not run on an async worker thread.
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
        // The others are handled before a session begins.
        _ => Ok(()),
    }
}
