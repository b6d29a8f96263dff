//! `remote`: other nameservices to fetch from, pull from and push to.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use nameservice::Place;
use nameservice_model::ShownUrl;
use nameservice_sync::{
    remotes::{self, MoveOptions, Moved, Remote, Remotes, Tracking},
    report::Records,
};
use serde_json::json;

use super::{copy::list_words, counted};
use crate::{
    connected::Connected,
    failure::Failure,
    options::{Missing, TargetArgs},
    output::Output,
    progress::{Bar, Unit},
    target::DEFAULT_DATA,
};

/// `remote`
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Add a remote
    Add {
        /// Its name, such as origin
        name: String,
        /// Where it is: https://HOST, dynamodb://TABLE, embedded:DIR
        // Not named `url`, which is an option of every command.
        #[arg(value_name = "URL")]
        place: Place,
        /// Only records whose addresses begin with this
        #[arg(long)]
        prefix: Option<String>,
        /// The environment variable that holds the bearer token for it; tokens are not stored
        #[arg(long, value_name = "VARIABLE")]
        token_env: Option<String>,
    },
    /// List the remotes
    List,
    /// Remove a remote, and what is known of its records
    Remove {
        /// Its name
        name: String,
    },
    /// Record what a remote has, and change nothing
    Fetch {
        /// Its name
        name: String,
    },
    /// Fetch, and update local records that were not changed here to what the remote has
    ///
    /// Records that were changed on both sides are reported with both values, and are not written: the command then exits
    /// with 3.
    Pull(RemoteMoveArgs),
    /// Update the remote's records to the local ones, provided that it still has what was fetched
    Push(RemoteMoveArgs),
    /// Show which records are behind, ahead or diverged, as of the last fetch
    Status {
        /// Its name
        name: String,
    },
}

/// `remote pull` and `remote push`
#[derive(Debug, Args)]
pub struct RemoteMoveArgs {
    /// The name of the remote
    pub name: String,
    /// Write nothing, and print what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// If both sides have changed, treat the value with the higher watermark as the newer one
    #[arg(long)]
    pub by_watermark: bool,
    /// With pull: reset heads and indexes if the remote was reset. No other client may write them here meanwhile
    #[arg(long)]
    pub resets: bool,
}

pub(crate) async fn run(command: RemoteCommand, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let local = target.place_or_service()?;
    // Beside the data; for a service or a table, in the default data directory.
    let directory = match &local {
        Place::Embedded(directory) => directory.clone(),
        _ => PathBuf::from(DEFAULT_DATA),
    };
    let mut list = Remotes::of(&directory)?;
    match command {
        RemoteCommand::Add { name, place, prefix, token_env } => {
            if matches!(place, Place::Dump(_) | Place::Legacy { .. } | Place::Memory) {
                return Err(Failure::Usage(
                    "a remote is a nameservice that stays: a service, a table or a directory".into(),
                ));
            }
            list.add(&name, Remote { url: place.to_string(), prefix, token_env })?;
            output.answer(&json!({"added": name}), || format!("added {name}: {}", ShownUrl(&place.to_string())))
        }
        RemoteCommand::Remove { name } => {
            let removed = list.remove(&name)?;
            Tracking::of(&directory)?.forget(&name)?;
            output.answer(&json!({"removed": name}), || format!("removed {name}: {}", ShownUrl(&removed.url)))
        }
        RemoteCommand::List => {
            let mut all = list.all().clone();
            all.values_mut().for_each(|remote| remote.url = ShownUrl(&remote.url).to_string());
            output.answer(&json!({"remotes": all}), || match all.is_empty() {
                true => "no remotes".to_owned(),
                false => all.iter().map(|(name, remote)| format!("{name}  {}\n", remote.url)).collect(),
            })
        }
        RemoteCommand::Fetch { name } => {
            let remote = list.get(&name)?;
            let opened = open(remote, target).await?;
            let tracking = Tracking::of(&directory)?;
            let bar = Bar::begin(output, Unit::Records, format!("fetching {name}"));
            let observe = |progress| bar.show(progress);
            let fetched = remotes::fetch(opened.backend(), remote.prefix.as_deref(), &tracking, &name, &observe).await;
            drop(bar);
            opened.close().await;
            let fetched = fetched?;
            output.answer(&json!(fetched), || {
                let mut words = format!(
                    "{}, {} changed, {} gone",
                    counted(fetched.records, "record"),
                    fetched.changed,
                    fetched.gone
                );
                words.push_str(&list_words("could not be read", &fetched.unreadable));
                words
            })
        }
        RemoteCommand::Status { name } => {
            let remote = list.get(&name)?;
            let here = Connected::open(&local, Missing::Reject, target.credentials()?).await?;
            let opened = open(remote, target).await?;
            let tracking = Tracking::of(&directory)?;
            let prefix = remote.prefix.as_deref();
            let bar = Bar::begin(output, Unit::Records, format!("comparing with {name}"));
            let (local, remote, observe) = (here.backend(), Some(opened.backend()), |progress| bar.show(progress));
            let status = remotes::status(local, remote, prefix, &tracking, &name, &observe).await;
            drop(bar);
            here.close().await;
            opened.close().await;
            let status = status?;
            output.answer(&json!(status), || words("", &status))
        }
        RemoteCommand::Pull(args) => {
            let name = args.name.clone();
            let remote = list.get(&name)?;
            let here = Connected::open(&local, Missing::Create, target.credentials()?).await?;
            let opened = open(remote, target).await?;
            let tracking = Tracking::of(&directory)?;
            let prefix = remote.prefix.as_deref();
            // As in git, a pull fetches first.
            let fetching = Bar::begin(output, Unit::Records, format!("fetching {name}"));
            let fetched =
                remotes::fetch(opened.backend(), prefix, &tracking, &name, &|progress| fetching.show(progress)).await;
            drop(fetching);
            let moved = match fetched {
                Ok(_) => {
                    let bar = Bar::begin(output, Unit::Records, format!("pulling from {name}"));
                    let (local, remote, options) = (here.backend(), Some(opened.backend()), options(&args));
                    let observe = |progress| bar.show(progress);
                    remotes::pull(local, remote, prefix, &tracking, &name, &options, &observe).await
                }
                Err(error) => Err(error),
            };
            here.close().await;
            opened.close().await;
            finished("pulled", &moved?, output)
        }
        RemoteCommand::Push(args) => {
            let remote = list.get(&args.name)?;
            let here = Connected::open(&local, Missing::Reject, target.credentials()?).await?;
            let opened = open(remote, target).await?;
            let tracking = Tracking::of(&directory)?;
            let (prefix, options) = (remote.prefix.as_deref(), options(&args));
            let bar = Bar::begin(output, Unit::Records, format!("pushing to {}", args.name));
            let (local, remote, observe) = (here.backend(), opened.backend(), |progress| bar.show(progress));
            let moved = remotes::push(local, remote, prefix, &tracking, &args.name, &options, &observe).await;
            drop(bar);
            here.close().await;
            opened.close().await;
            finished("pushed", &moved?, output)
        }
    }
}

fn options(args: &RemoteMoveArgs) -> MoveOptions {
    MoveOptions::default().dry_run(args.dry_run).by_watermark(args.by_watermark).resets(args.resets)
}

async fn open(remote: &Remote, target: &TargetArgs) -> Result<Connected, Failure> {
    let place: Place =
        remote.url.parse().map_err(|error: nameservice::InvalidPlace| Failure::Usage(error.to_string()))?;
    let token = match &remote.token_env {
        None => None,
        Some(variable) => Some(std::env::var(variable).map_err(|_| {
            Failure::Usage(format!(
                "the token for {} is expected in the environment variable {variable}",
                ShownUrl(&remote.url)
            ))
        })?),
    };
    Connected::open(&place, Missing::Reject, target.credentials()?.with_token(token)).await
}

fn finished(verb: &str, moved: &Moved, output: Output) -> Result<(), Failure> {
    output.answer(&json!(moved), || words(verb, moved))?;
    match moved.is_settled() {
        true => Ok(()),
        false => Err(Failure::Differs("some records need a decision".into())),
    }
}

/// What to do about records that both sides have changed.
const DIVERGED: &str = "diverged, and were left as they are. Decide for each: `reset` one side to the other's values and repeat this, \
                        or repeat it with --by-watermark, by which the higher watermark wins";

fn words(verb: &str, moved: &Moved) -> String {
    let mut words = format!("{} up to date", moved.up_to_date);
    let verb = if moved.dry_run { format!("would be {verb}") } else { verb.to_owned() };
    let lists: [(&str, &Records); 8] = [
        (&verb, &moved.moved),
        ("behind the remote", &moved.behind),
        ("ahead of the remote", &moved.ahead),
        (DIVERGED, &moved.diverged),
        ("not comparable without their secrets, their configs left", &moved.unknown),
        ("changed on the other side meanwhile: fetch again", &moved.overtaken),
        ("purged on one side, left on the other", &moved.purged),
        ("rejected", &moved.rejected),
    ];
    for (outcome, records) in lists {
        words.push_str(&list_words(outcome, records));
    }
    words
}
