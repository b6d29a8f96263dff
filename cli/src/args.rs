//! The command line: the commands. The arguments of each are beside it, in `commands`; those of several, in `options`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[cfg(feature = "archive")]
use crate::commands::ArchiveCommandArgs;
#[cfg(feature = "dynamodb")]
use crate::commands::AwsCommand;
#[cfg(feature = "remotes")]
use crate::commands::RemoteCommand;
#[cfg(feature = "opensearch")]
use crate::commands::SearchIndexCommand;
#[cfg(feature = "migration")]
use crate::commands::{CompareArgs, CopyArgs, ExportArgs, ImportArgs};
#[cfg(feature = "serve")]
use crate::{commands::TokenCommand, serve::ServeArgs};
use crate::{
    commands::{
        BranchCommand, ChangesArgs, ConfigArgs, CreateArgs, DiffArgs, DoctorArgs, GenerateCommand, HealthArgs,
        HistoryArgs, LeaseCommand, ListArgs, LoginArgs, PublishArgs, PurgeArgs, PushCommand, ResetArgs,
        RestoreBackupArgs, RetractArgs, SearchArgs, ShowArgs, StatusArgs, TopArgs, TransactionArgs, WatchArgs,
    },
    exit,
    lists::FormatArgs,
    options::{LogFormat, LogLevel, TargetArgs, WriteArgs},
};

/// Tracks the heads, indexes, states and configurations of ledgers and graph sources.
#[derive(Debug, Parser)]
#[command(name = "nameservice", version, after_help = exit::help(), propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The nameservice to use.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print the service's JSON: answers on stdout, rejections (problem documents) on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// The lowest severity to log, on stderr [default: info for serve, else warn]
    ///
    /// RUST_LOG sets the level of each module, and is used if this option is not given.
    #[arg(long, global = true, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
    /// How to log: a line of text for each message, or a line of JSON
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service on this machine
    ///
    /// Over the embedded backend in ./.nameservice unless --at, --data, --memory, --endpoint-url or --aws says otherwise.
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Create the table, or check the one that exists
    Init,
    /// Create a ledger, or (with --source-type) a graph source
    Create(CreateArgs),
    /// Create a graph source, or replace its configuration and dependencies
    Publish(PublishArgs),
    /// Show a record
    Show(ShowArgs),
    /// List records
    List(ListArgs),
    /// Search records by words: the best hits first
    Search(SearchArgs),
    /// Show every record, read consistently
    Snapshot(FormatArgs),
    /// Print changes as they are made, until Ctrl-C
    ///
    /// One line per change: position, time, address, what changed and how, the watermark, and the new value. The service may
    /// be restarted meanwhile: nothing is missed, and nothing is printed twice.
    Watch(WatchArgs),
    /// Print the changes that the feed still holds, and those of an archive
    Changes(ChangesArgs),
    /// Print the changes of one record that the feed still holds, and those of an archive
    History(HistoryArgs),
    /// Show how a record changed between two positions of the feed
    ///
    /// Uses the changes that the feed still holds. `history` shows the positions of a record.
    Diff(DiffArgs),
    /// Move a head or an index
    #[command(subcommand)]
    Push(PushCommand),
    /// Show the status of a record, or change it
    Status(StatusArgs),
    /// Show the configuration of a record, or replace it
    Config(ConfigArgs),
    /// Create, list and drop branches
    #[command(subcommand)]
    Branch(BranchCommand),
    /// Acquire, refresh, release and list leases, and run commands under them
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Show records, leases, indexes that are behind, and rates of changes, on a screen that follows the feed
    ///
    /// Without a terminal, or with --once, prints them once.
    Top(TopArgs),
    /// Apply several pushes and checks, all or none
    Transaction(TransactionArgs),
    /// Soft-delete a record
    Retract(RetractArgs),
    /// Undo a retraction
    Restore(WriteArgs),
    /// Protect a record: it cannot be retracted, purged or reset until it is unprotected
    Protect(WriteArgs),
    /// Remove the protection of a record
    Unprotect(WriteArgs),
    /// Delete a record permanently
    Purge(PurgeArgs),
    /// Set the head and index of a ledger to given values, also backwards
    Reset(ResetArgs),
    /// Check whether the service is ready
    Health(HealthArgs),
    /// Check a table, a directory, a service, or several of them: report what is wrong and how to fix it
    ///
    /// Reads the whole table that --data, --endpoint-url or --aws names, and asks the service at --url (here both may be
    /// given). Exits with 0 if there is nothing left to fix, otherwise with 1.
    Doctor(DoctorArgs),
    /// Copy the data of a directory, even while a service uses it
    ///
    /// The copy is consistent, was checked as by `nameservice doctor`, and is a directory like any other: `nameservice serve --data
    /// COPY` serves it. Data that is damaged is not copied.
    Backup {
        /// The new directory
        to: PathBuf,
    },
    /// Make a backup the data of a directory that no process uses
    ///
    /// The backup is checked first. Data that is there is moved aside, and is not deleted. If it has what the backup does not, the
    /// command reports the positions and times of both, and requires --accept-loss. Without --data, the directory is .nameservice.
    RestoreBackup(RestoreBackupArgs),
    /// Copy records from one place to another: those that are missing or older there
    ///
    /// Branches are copied after their sources, graph sources after what they depend on. Values that are newer at the target,
    /// or different at the same watermark, are reported and left unchanged. The copy can be stopped and repeated at any point,
    /// while others write to both sides; at the end both sides are compared. Exits with 0 if the target holds what the source
    /// holds, otherwise with 3.
    #[cfg(feature = "migration")]
    Copy(CopyArgs),
    /// Compare the records of two places
    ///
    /// Exits with 0 if both hold the same, otherwise with 3.
    #[cfg(feature = "migration")]
    Compare(CompareArgs),
    /// Write all records to a file as JSON Lines, `-` for stdout
    #[cfg(feature = "migration")]
    Export(ExportArgs),
    /// Copy the records of an exported file, `-` for stdin, to a nameservice
    #[cfg(feature = "migration")]
    Import(ImportArgs),
    /// Work with other nameservices as with git remotes: fetch, pull, push, and show the status of each record
    ///
    /// The list is kept in remotes.toml beside the data, and what was fetched in remotes.sqlite.
    #[command(subcommand)]
    #[cfg(feature = "remotes")]
    Remote(RemoteCommand),
    /// Write the change feed to a directory or a bucket, where its changes are kept permanently
    ///
    /// Writes objects of JSON Lines, each with the changes that follow the previous object, without gaps or duplicates: even if
    /// it is interrupted or repeated, or several archivers run at the same time. `changes`, `history`, `watch` and `serve` read
    /// them with --archive.
    #[cfg(feature = "archive")]
    Archive(ArchiveCommandArgs),
    /// Work with the search index and the dead letters of a deployment on AWS
    #[command(subcommand)]
    #[cfg(feature = "dynamodb")]
    Aws(AwsCommand),
    /// Create keys, and mint tokens that they have signed: without an identity provider
    #[command(subcommand)]
    #[cfg(feature = "serve")]
    Token(TokenCommand),
    /// Get a token from an OpenID provider, by a code that is confirmed in a browser
    ///
    /// Prints the token: `export NAMESERVICE_TOKEN=$(nameservice login --issuer https://id.example.com --client-id nameservice-cli)`
    Login(LoginArgs),
    /// Print what is made from the program itself: OpenAPI, the GraphQL schema, completions, manual pages
    #[command(subcommand)]
    Generate(GenerateCommand),
}

impl Command {
    /// Whether the command writes records, so that missing data is created.
    pub fn writes(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Publish(_)
            | Self::Push(_)
            | Self::Transaction(_)
            | Self::Retract(_)
            | Self::Restore(_)
            | Self::Protect(_)
            | Self::Unprotect(_)
            | Self::Purge(_)
            | Self::Reset(_) => true,
            Self::Status(args) => args.state.is_some(),
            Self::Config(args) => args.config.is_some(),
            Self::Branch(command) => !matches!(command, BranchCommand::List { .. }),
            Self::Lease(command) => !matches!(command, LeaseCommand::Show(_) | LeaseCommand::List(_)),
            _ => false,
        }
    }

    /// Returns what names the places of a command that the connection options do not name.
    pub fn own_places(&self) -> Option<&'static str> {
        const NONE: &str = "this command uses no nameservice";
        match self {
            #[cfg(feature = "migration")]
            Self::Copy(_) | Self::Compare(_) => Some("FROM and TO name the places of this command"),
            #[cfg(feature = "opensearch")]
            Self::Aws(AwsCommand::SearchIndex(SearchIndexCommand::Init(_))) => {
                Some("OPENSEARCH names the place of this command")
            }
            #[cfg(feature = "dynamodb")]
            Self::Aws(AwsCommand::DeadLetters(_)) => Some("QUEUE names the place of this command"),
            #[cfg(feature = "dynamodb")]
            Self::Doctor(DoctorArgs { aws_deployment: Some(_), .. }) => Some("--aws-deployment names what is tested"),
            #[cfg(feature = "serve")]
            Self::Token(_) => Some(NONE),
            Self::Login(_) | Self::Generate(_) => Some(NONE),
            _ => None,
        }
    }

    /// The collector that the command sends traces to.
    #[cfg(feature = "traces")]
    pub fn otlp(&self) -> Option<&str> {
        match self {
            Self::Serve(args) => args.otlp.as_deref(),
            _ => None,
        }
    }

    /// Whether the command runs the service, which logs more by default.
    pub fn serves(&self) -> bool {
        #[cfg(feature = "serve")]
        return matches!(self, Self::Serve(_));
        #[cfg(not(feature = "serve"))]
        false
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("nameservice").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Calls `seen` with the words of each command and the command, which has no global arguments of others.
    fn each_command(command: &clap::Command, words: &str, seen: &mut dyn FnMut(&str, &clap::Command)) {
        for inner in command.get_subcommands() {
            let words = format!("{words} {}", inner.get_name());
            seen(words.trim(), inner);
            each_command(inner, &words, seen);
        }
    }

    #[test]
    fn no_argument_of_a_command_has_the_id_of_one_that_all_have() {
        // clap would take the value of the one for that of the other, or panic if their types differ.
        let root = Cli::command();
        let global: Vec<_> =
            root.get_arguments().filter(|argument| argument.is_global_set()).map(clap::Arg::get_id).collect();
        assert!(global.len() >= 10, "{global:?}");
        let mut commands = 0;
        each_command(&root, "", &mut |words, command| {
            commands += 1;
            for argument in command.get_arguments() {
                assert!(!global.contains(&argument.get_id()), "{words}: {}", argument.get_id());
            }
        });
        assert!(commands >= 40, "{commands}");
    }

    #[test]
    fn where_to_go_may_stand_before_and_after_the_command() {
        for line in ["--url http://a show mydb", "show mydb --url http://a", "show --url http://a mydb"] {
            assert_eq!(parse(line).unwrap().target.url.as_deref(), Some("http://a"), "{line}");
        }
    }

    #[test]
    fn every_form_of_a_push_is_read() {
        let value = format!("--expect {ID}@1");
        for expectation in ["--monotonic", &value, "--expect unborn", "--expect-none", "--expect-unborn"] {
            parse(&format!("push head mydb {ID} 2 {expectation}")).unwrap();
            parse(&format!("push index mydb {ID} 2 {expectation}")).unwrap();
        }
        parse(&format!("push index mydb {ID} 2 --allow-equal")).unwrap();
        parse(&format!("push index mydb {ID} 2 --expect {ID}@1 --expect-rev 3")).unwrap();
    }

    #[test]
    fn a_push_that_does_not_say_what_it_may_replace_is_rejected_and_names_both_ways() {
        let lease = "--lease-name index_lock --lease-holder one --lease-token 1";
        for concern in ["head", "index"] {
            for options in ["", lease] {
                let error = parse(&format!("push {concern} mydb {ID} 2 {options}")).map(|_| ()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument, "{concern} {options}");
                assert_eq!(error.exit_code(), 2, "{concern} {options}");
                let message = error.to_string();
                assert!(message.contains("--expect <ID@T>") && message.contains("--monotonic"), "{message}");
            }
        }
    }

    #[test]
    fn a_restore_accepts_a_loss_only_if_that_is_said() {
        for (line, accepted) in [("", false), (" --accept-loss", true)] {
            let command = parse(&format!("restore-backup saved --data data{line}")).unwrap().command;
            assert!(matches!(command, Command::RestoreBackup(args) if args.accept_loss == accepted), "{line}");
        }
    }

    #[test]
    fn contradictions_and_bad_words_are_rejected_before_anything_is_sent() {
        for (line, kind) in [
            (format!("push head mydb {ID} 2 --expect-none --expect-unborn"), ErrorKind::ArgumentConflict),
            (format!("push head mydb {ID} 2 --monotonic --expect {ID}@1"), ErrorKind::ArgumentConflict),
            (format!("push index mydb {ID} 2 --expect-none --allow-equal"), ErrorKind::ArgumentConflict),
            (format!("push index mydb {ID} 2 --monotonic --allow-equal"), ErrorKind::ArgumentConflict),
            (format!("push index mydb {ID} 2 --monotonic --expect-rev 3"), ErrorKind::ArgumentConflict),
            (format!("create mydb --head {ID} --source-type f:Bm25Index"), ErrorKind::ArgumentConflict),
            (format!("push index mydb {ID} 2 --expect-rev 3"), ErrorKind::MissingRequiredArgument),
            ("create mydb --depends-on a".into(), ErrorKind::MissingRequiredArgument),
            ("create mydb --t 1".into(), ErrorKind::MissingRequiredArgument),
            ("status mydb --meta {}".into(), ErrorKind::MissingRequiredArgument),
            ("push head mydb not-a-cid 2".into(), ErrorKind::ValueValidation),
            (format!("push head mydb {ID} two"), ErrorKind::ValueValidation),
            ("show a%2Fb".into(), ErrorKind::ValueValidation),
            ("list --limit 0".into(), ErrorKind::ValueValidation),
            ("serve --issuer x".into(), ErrorKind::MissingRequiredArgument),
            ("serve --jwks keys.json".into(), ErrorKind::MissingRequiredArgument),
            ("serve --jwks keys.json --issuer x".into(), ErrorKind::MissingRequiredArgument),
            ("serve --jwks keys.json --any-issuer".into(), ErrorKind::MissingRequiredArgument),
            ("serve --jwks keys.json --any-issuer --issuer x --any-audience".into(), ErrorKind::ArgumentConflict),
            ("serve --consumer --no-consumer".into(), ErrorKind::ArgumentConflict),
            ("serve --feed-retention 1month".into(), ErrorKind::ValueValidation),
            ("watch --after yesterday".into(), ErrorKind::ValueValidation),
            ("watch --concern heads".into(), ErrorKind::InvalidValue),
        ] {
            let error = parse(&line).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), kind, "{line}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
