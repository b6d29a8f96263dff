//! `archive`: the change feed, in a directory or a bucket.

use std::time::Duration;

use clap::Args;
use nameservice::Place;
use nameservice_archive::{Archived, Archiver};
use nameservice_model::chain;
use serde_json::json;

use super::counted;
use crate::{
    archives::open_archive,
    connected::Connected,
    failure::Failure,
    options::{Missing, TargetArgs},
    output::{self, Output},
    progress::{Bar, Unit},
    values,
};

/// `archive`
#[derive(Debug, Args)]
pub struct ArchiveCommandArgs {
    /// The archive: file:///DIR, s3://BUCKET/PREFIX, gs://…, az://…
    #[arg(value_name = "TO")]
    pub to: Place,
    /// Follow the feed, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// With --follow: how long changes are collected for one object: 10m, 1h, or a number of hours
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = values::retention, requires = "follow")]
    pub every: Duration,
    /// The maximum number of changes in one object
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_changes: u32,
}

pub(crate) async fn run(args: ArchiveCommandArgs, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let archive = open_archive(&args.to, Missing::Create).await?;
    let from = Connected::open(&target.place_or_service()?, Missing::Reject, target.credentials()?).await?;
    let max_changes = usize::try_from(args.max_changes).unwrap_or(usize::MAX);
    let archiver = Archiver::new(from.backend().clone(), archive).with_max_changes(max_changes);
    let done = archived(&archiver, &args, output).await;
    drop(archiver);
    from.close().await;
    done
}

async fn archived(archiver: &Archiver, args: &ArchiveCommandArgs, output: Output) -> Result<(), Failure> {
    let before = caught_up(archiver, output).await?;
    print(before, &args.to, output)?;
    if !args.follow {
        return whole(before);
    }
    // A gap is recorded, and what follows it is still archived.
    if let Err(gap) = whole(before) {
        output::note(&chain(&gap));
    }
    tokio::select! {
        never = archiver.run(args.every) => match never {},
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Watch)?,
    }
    // Writes what was collected so far.
    let after = caught_up(archiver, output).await?;
    print(after, &args.to, output)?;
    whole(before).and(whole(after))
}

/// Fails if changes were lost before they were archived.
fn whole(archived: Archived) -> Result<(), Failure> {
    Ok(archived.without_gap().map(drop).map_err(nameservice::Error::from)?)
}

async fn caught_up(archiver: &Archiver, output: Output) -> Result<Archived, Failure> {
    let bar = Bar::begin(output, Unit::Changes, "archiving");
    let archived = archiver.catch_up_observed(None, &|progress| bar.show(progress)).await;
    Ok(archived.map_err(nameservice::Error::from)?)
}

fn print(archived: Archived, to: &Place, output: Output) -> Result<(), Failure> {
    let Archived { position, changes, objects, lost, gap, .. } = archived;
    if output.is_json() {
        let mut document = json!({"position": position, "changes": changes, "objects": objects, "lost": lost});
        if let Some((first, last)) = gap {
            document["gap"] = json!({"first": first, "last": last});
        }
        return output::print(&document.to_string());
    }
    if lost > 0 && gap.is_none() {
        output::note(&format!("the archive begins after {}, which had expired", counted(lost, "position")));
    }
    let (changes, objects) = (counted(changes, "change"), counted(objects, "object"));
    output::print(&format!("{changes} archived in {objects}; {to} ends at position {position}"))
}
