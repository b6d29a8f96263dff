//! `init`, `backup`, `restore-backup` and `health`: about the service rather than its records.

use std::path::{Path, PathBuf};

use clap::Args;
use nameservice::Place;
use nameservice_embedded::{OpenError, Options, Restored};
use serde::Deserialize;
use serde_json::json;

use crate::{
    client::Request,
    failure::Failure,
    options::{Missing, TargetArgs},
    output::{self, Output},
    progress::{Bar, Unit},
    session::Session,
    target::{DEFAULT_DATA, Local, Opened},
};

/// `health`
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Also ask the store
    #[arg(long)]
    pub deep: bool,
}

/// `restore-backup`
#[derive(Debug, Args)]
pub struct RestoreBackupArgs {
    /// The backup: a directory that `backup` or `serve --backup-to` has made
    pub backup: PathBuf,
    /// Replace data that has what the backup does not
    #[arg(long)]
    pub accept_loss: bool,
}

#[derive(Deserialize)]
struct Health {
    status: String,
}

pub(crate) async fn init(target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let Some(place) = target.place()? else {
        target.reject_service(
            "init creates a table or a directory: name it with --endpoint-url URL, --aws or --data DIR",
        )?;
        return Err(Failure::Usage("which table? Give --endpoint-url URL, --aws or --data DIR".into()));
    };
    if let Place::Embedded(directory) = &place {
        return init_directory(directory.clone(), output).await;
    }
    match Opened::open(place, Missing::Create, None).await? {
        #[cfg(feature = "dynamodb")]
        Opened::Table(table) => {
            let report = table.ensure().await?;
            let answer = json!({"created": report.created, "lacks": report.lacks});
            output.answer(&answer, || {
                let done = if report.created { "created the table" } else { "the table exists" };
                let lacks = report.lacks.iter().map(|lack| format!("\n  it lacks: {lack}")).collect::<String>();
                format!("{done}: {}{lacks}", table.describe())
            })
        }
        // A directory is created by opening it; a bucket is never created, since it costs money.
        #[cfg(feature = "files")]
        Opened::Files(stored) => output.answer(&json!({"created": false, "lacks": []}), || stored.describe()),
        Opened::Embedded(_) => Ok(()),
    }
}

async fn init_directory(directory: PathBuf, output: Output) -> Result<(), Failure> {
    let existing = Local::open(directory.clone(), Missing::Reject, Options::default()).await;
    let created = match existing {
        Ok(existing) => {
            drop_off_the_runtime(existing).await;
            false
        }
        Err(Failure::Open(OpenError::Missing { .. })) => {
            drop_off_the_runtime(Local::open(directory.clone(), Missing::Create, Options::default()).await?).await;
            true
        }
        Err(failure) => return Err(failure),
    };
    let answer = json!({"created": created, "lacks": []});
    output.answer(&answer, || match created {
        true => format!("created the data in {}", directory.display()),
        false => format!("there is data in {}", directory.display()),
    })
}

pub(crate) async fn backup(target: &TargetArgs, to: &Path, output: Output) -> Result<(), Failure> {
    let directory =
        directory_of(target, "backup copies a directory: name it with --data; DynamoDB backs its tables up")?;
    let bar = Bar::begin(output, Unit::Bytes, format!("copying {}", directory.display()));
    let position = nameservice_embedded::backup_observed(&directory, to, &|progress| bar.show(progress)).await?;
    drop(bar);
    output.answer(&json!({"directory": to, "position": position}), || {
        format!("copied {} to {} as it was at position {position}", directory.display(), to.display())
    })
}

pub(crate) async fn restore_backup(
    target: &TargetArgs,
    RestoreBackupArgs { backup, accept_loss }: &RestoreBackupArgs,
    output: Output,
) -> Result<(), Failure> {
    let directory = directory_of(target, "restore-backup replaces the data of a directory: name it with --data")?;
    let bar = Bar::begin(output, Unit::Bytes, format!("copying {}", backup.display()));
    let observe = |progress| bar.show(progress);
    let restored = nameservice_embedded::restore_backup(backup, &directory, *accept_loss, &observe).await?;
    drop(bar);
    let Restored { position, lost, replaced, .. } = restored;
    let answer = json!({"directory": directory, "position": position, "lost": lost, "replaced": replaced});
    output.answer(&answer, || {
        let lost = lost.map(|lost| format!("\nlost: {lost}")).unwrap_or_default();
        let replaced = replaced.map(|replaced| format!("\nthe replaced data is in {}", replaced.display()));
        let replaced = replaced.unwrap_or_default();
        format!("{} has the data of {} at position {position}{lost}{replaced}", directory.display(), backup.display())
    })
}

/// Returns the directory that is named, or the default one.
fn directory_of(target: &TargetArgs, usage: &str) -> Result<PathBuf, Failure> {
    match target.place()? {
        None => {
            // A service that is named must not be taken for the data that happens to be here.
            target.reject_service(usage)?;
            Ok(PathBuf::from(DEFAULT_DATA))
        }
        Some(Place::Embedded(directory)) => Ok(directory),
        Some(_) => Err(Failure::Usage(usage.into())),
    }
}

/// Closing the embedded backend waits for its writer.
async fn drop_off_the_runtime(local: Local) {
    let _ = tokio::task::spawn_blocking(move || drop(local)).await;
}

pub(crate) async fn health(session: &Session, args: &HealthArgs) -> Result<(), Failure> {
    let health = session.send::<Health>(Request::get("health").query("deep", args.deep.then_some(true))).await?;
    session.output.answer(&health.json, || output::clean(&health.status))
}
