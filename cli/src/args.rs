//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use nameservice::Place;
use nameservice_model::{Address, AddressGlob, ContentId, LeaseName};

pub use crate::commands::SearchArgs;
use crate::{
    base_path::BasePath,
    values::{self, Beginning, RefValue},
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, unexpectedly, or not supported by the backend; doctor: something is wrong
  2  bad usage or bad input
  3  rejected by the current state: conflict, stale, already exists, has dependents, lease held or lost;
     copy, compare, remote: the places do not hold the same
  4  unknown record, source or route
  5  not allowed
  6  the record is retracted
  7  unavailable, or the outcome of a write is unknown
  8  the position is beyond the end of the feed

lease run exits with the code of its command; its own failures are explained on stderr.";

/// Where the heads, indexes, states and configurations of ledgers and graph sources are.
#[derive(Debug, Parser)]
#[command(name = "nameservice", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Which nameservice is meant.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print the service's JSON: answers on stdout, refusals (problem documents) on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// The least severe messages to log, on stderr [default: info for serve, else warn]
    ///
    /// RUST_LOG sets the level of each module, and is used where this option is not given.
    #[arg(long, global = true, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
    /// How to log: a line of text for each message, or a line of JSON
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// Severities of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What failed
    Error,
    /// And what needs attention
    Warn,
    /// And one line a request
    Info,
    /// And why requests were rejected
    Debug,
    /// And the details of every step
    Trace,
}

impl LogLevel {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Formats of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Which nameservice is meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection options")]
pub struct TargetArgs {
    /// The nameservice, by its URL: https://HOST, http://HOST, dynamodb://TABLE, file:///DIR, s3://BUCKET/PREFIX, gs://…,
    /// az://…, embedded:DIR, or (serve) memory:
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["url", "endpoint_url", "aws", "data", "table"])]
    pub at: Option<Place>,
    /// The nameservice that a Fluree server with this connection file (JSON-LD) uses
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["at", "url", "endpoint_url", "aws", "data", "table"])]
    pub fluree_config: Option<PathBuf>,
    /// The service to talk to [env: NAMESERVICE_URL] [default: http://127.0.0.1:8080]
    // Read from the environment by hand, so that a table named on the command line goes before it.
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// The bearer token for the service
    #[arg(long, global = true, value_name = "TOKEN", env = "NAMESERVICE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The table in a DynamoDB at this URL, without a service in between
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// The table in AWS, with the usual credentials and region, without a service in between
    #[arg(long, global = true)]
    pub aws: bool,
    /// The data in this directory of the embedded backend, without a service in between
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The name of the table [default: fluree-nameservice]
    #[arg(long, global = true, value_name = "NAME")]
    pub table: Option<String>,
    /// The directory or bucket that --at or --fluree-config has named.
    #[arg(skip)]
    pub files: Option<Place>,
    /// The AWS region that --at has named.
    #[arg(skip)]
    pub region: Option<String>,
    /// The time limit of one operation that --at has named.
    #[arg(skip)]
    pub timeout: Option<Duration>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service on this machine
    ///
    /// Over the embedded backend in ./.nameservice unless --at, --data, --memory, --endpoint-url or --aws says otherwise.
    Serve(ServeArgs),
    /// Make the table, or check the one that exists
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
    /// Show every record, consistently read
    Snapshot,
    /// Print changes as they come, until Ctrl-C
    ///
    /// A line each: position, time, address, what has changed, how, its watermark, and what is there now. The service may
    /// be restarted meanwhile: nothing is missed, and nothing is printed twice.
    Watch(WatchArgs),
    /// Print the changes that the feed still holds
    Changes(ChangesArgs),
    /// Print the changes of one record that the feed still holds
    History(HistoryArgs),
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
    /// Take, extend and give back leases, and run commands under them
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Apply several pushes and checks, all or none
    Transaction(TransactionArgs),
    /// Soft-delete a record
    Retract(RetractArgs),
    /// Undo a retraction
    Restore(WriteArgs),
    /// Delete a record permanently
    Purge(PurgeArgs),
    /// Put head and index of a ledger where they are wanted, backwards too
    Reset(ResetArgs),
    /// Ask the service whether it can serve
    Health(HealthArgs),
    /// Check a table, a directory, a service, or several of them: report what is wrong and how to fix it
    ///
    /// Reads the whole table that --data, --endpoint-url or --aws names, and asks the service at --url (here both may be
    /// given). Exits with 0 if nothing is left to do, with 1 if something is.
    Doctor(DoctorArgs),
    /// Copy the data of a directory, also while a service uses it
    ///
    /// The copy is consistent and a directory like any other: `nameservice serve --data COPY` serves it.
    Backup {
        /// The new directory
        to: PathBuf,
    },
    /// Copy records from one place to another: what is missing or older there
    ///
    /// Branches come after what they were made from, graph sources after what they depend on. What is newer at the target,
    /// or different at the same watermark, is reported and left. The copy can be stopped and repeated at any point, beside
    /// writers on both sides; at the end both sides are compared. Exits with 0 if the target holds what the source holds,
    /// else with 3.
    Copy(CopyArgs),
    /// Compare the records of two places
    ///
    /// Exits with 0 if both hold the same, else with 3.
    Compare(CompareArgs),
    /// Write all records to a file as JSON Lines, `-` for stdout
    Export(ExportArgs),
    /// Copy the records of such a file, `-` for stdin, to a nameservice
    Import(ImportArgs),
    /// Follow other nameservices by hand, as git does: fetch, pull, push, and where each record stands
    ///
    /// The list is kept in remotes.toml beside the data, with what was fetched in remotes.sqlite.
    #[command(subcommand)]
    Remote(RemoteCommand),
    /// Print the OpenAPI document
    Openapi,
    /// Print the completions of a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it writes records: then data that is missing is created.
    pub fn writes(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Publish(_)
            | Self::Push(_)
            | Self::Transaction(_)
            | Self::Retract(_)
            | Self::Restore(_)
            | Self::Purge(_)
            | Self::Reset(_) => true,
            Self::Status(args) => args.state.is_some(),
            Self::Config(args) => args.config.is_some(),
            Self::Branch(command) => !matches!(command, BranchCommand::List { .. }),
            Self::Lease(command) => !matches!(command, LeaseCommand::Show(_)),
            _ => false,
        }
    }

    /// Whether it runs the service, whose log is wanted.
    pub fn serves(&self) -> bool {
        matches!(self, Self::Serve(_))
    }
}

/// `serve`
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("issuers").args(["issuer", "any_issuer"]).requires("jwks"),
    group = ArgGroup::new("audiences").args(["audience", "any_audience"]).requires("jwks"),
)]
pub struct ServeArgs {
    /// Where to listen: ADDRESS:PORT, localhost:PORT, or a port of this machine alone
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_parser = values::listen)]
    pub listen: SocketAddr,
    /// Keep everything in memory, and lose it at the end
    #[arg(long)]
    pub memory: bool,
    /// Be a replica of the service at this URL: answer reads from memory, and forward writes to it. --token is for reading
    /// it; what is kept on disk is in --data DIR
    #[arg(long, value_name = "URL", conflicts_with_all = ["consumer", "no_consumer"])]
    pub upstream: Option<String>,
    /// Require bearer tokens signed by a key in this JWKS file or URL
    ///
    /// A file is read again when it changes, a URL every five minutes; both are read on SIGHUP and when a token names an
    /// unknown key.
    #[arg(long, value_name = "FILE|URL", requires_all = ["issuers", "audiences"])]
    pub jwks: Option<String>,
    /// Required `iss` claim
    #[arg(long, value_name = "ISSUER")]
    pub issuer: Option<String>,
    /// Accept tokens of any issuer
    #[arg(long)]
    pub any_issuer: bool,
    /// Required `aud` claim
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// Accept tokens for any audience
    #[arg(long)]
    pub any_audience: bool,
    /// Let web pages of this origin use the service, `*` for all; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,
    /// Require this bearer token, which may do everything: for development
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_DEV_TOKEN", hide_env_values = true, conflicts_with_all = ["jwks", "insecure"])]
    pub dev_token: Option<String>,
    /// Let everybody do everything, from other machines too
    #[arg(long, conflicts_with = "jwks")]
    pub insecure: bool,
    /// Serve below this path, such as /nameservice, behind a proxy that keeps it
    #[arg(long, value_name = "PATH")]
    pub base_path: Option<BasePath>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics; without it, a service on loopback has them at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::listen)]
    pub metrics: Option<SocketAddr>,
    /// With files or a bucket: keep the change feed in this directory [default: .nameservice-feed]
    #[arg(long, value_name = "DIR")]
    pub feed_data: Option<PathBuf>,
    /// With --aws: run the feed consumer in this process (normally the stream_consumer function does this)
    #[arg(long)]
    pub consumer: bool,
    /// Run without the stream consumer
    #[arg(long, conflicts_with = "consumer")]
    pub no_consumer: bool,
    /// How long changes can be read: 7d, 36h, 90m, or a number of hours
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = values::retention)]
    pub feed_retention: Duration,
}

/// Which token goes with which of two places.
#[derive(Debug, Default, Args)]
pub struct TokenArgs {
    /// The bearer token for the first place, where it is a service [default: --token]
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_FROM_TOKEN", hide_env_values = true)]
    pub from_token: Option<String>,
    /// The bearer token for the second place, where it is a service [default: --token]
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_TO_TOKEN", hide_env_values = true)]
    pub to_token: Option<String>,
}

/// What of a copy is taken.
#[derive(Debug, Default, Args)]
pub struct TakeArgs {
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Write nothing, and print what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// Of these records, also take what is newer at the target or differs (repeatable; may hold * and ?)
    #[arg(long, value_name = "ADDRESS")]
    pub force: Vec<AddressGlob>,
    /// Set heads and indexes back where the source was set back from the very value that the target has. Nobody else must
    /// write the same records at the target meanwhile
    #[arg(long)]
    pub resets: bool,
}

/// `copy`
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The place to read from: https://HOST, dynamodb://TABLE, embedded:DIR, dump:FILE, or dump:- for stdin
    pub from: Place,
    /// The place to write to, in the same form
    pub to: Place,
    /// What is taken.
    #[command(flatten)]
    pub take: TakeArgs,
    /// Go on with the changes of the source, until Ctrl-C
    #[arg(long, conflicts_with = "dry_run")]
    pub follow: bool,
    /// Whose token.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// `compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// One place: https://HOST, dynamodb://TABLE, embedded:DIR, dump:FILE
    pub from: Place,
    /// The other
    pub to: Place,
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Whose token.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// `export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file, replaced when everything is written; - for stdout
    pub file: PathBuf,
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
}

/// `remote`
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Add a remote
    Add {
        /// Its name, such as origin
        name: String,
        /// Where it is: https://HOST, dynamodb://TABLE, embedded:DIR
        // Named apart from the option --url, which every command has.
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
    /// Remember what a remote has, and change nothing
    Fetch {
        /// Its name
        name: String,
    },
    /// Fetch, and move local records to what the remote has, where they were not changed here
    ///
    /// Records that were changed on both sides are reported with both values, and nothing of them is written: then the
    /// command exits with 3.
    Pull(RemoteMoveArgs),
    /// Move the remote's records to the local ones, on the condition that it still has what was fetched
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
    /// Where both sides have changed, take the higher watermark for the newer value
    #[arg(long)]
    pub by_watermark: bool,
    /// With pull: set heads and indexes back where the remote was set back. Nobody else must write them here meanwhile
    #[arg(long)]
    pub resets: bool,
}

/// `import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file; - for stdin
    pub file: PathBuf,
    /// What is taken.
    #[command(flatten)]
    pub take: TakeArgs,
}

/// A command about one record.
#[derive(Debug, Args)]
pub struct AddressArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
}

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// Only once its head (or its index, with --concern index) has this t
    #[arg(long, value_name = "T", conflicts_with = "min_v")]
    pub min_t: Option<i64>,
    /// Only once its status or its configuration, as --concern says, has this version
    #[arg(long, value_name = "N", requires = "concern")]
    pub min_v: Option<i64>,
    /// What --min-t or --min-v is about
    #[arg(long, value_enum)]
    pub concern: Option<ConcernArg>,
    /// Only once the service has come to this position of the change feed
    #[arg(long, value_name = "POSITION")]
    pub min_position: Option<u64>,
    /// How long to wait for that: 10, 10s; at most 20 seconds
    #[arg(long, value_name = "DURATION", value_parser = values::wait)]
    pub wait: Option<u64>,
}

/// A write.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// Names this write: repeated with the same key, it is not applied twice
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// A write to one record that has nothing to add.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The record
    pub address: Address,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The new record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// The head that the ledger has already (with --t, or as ID@T)
    #[arg(long, value_name = "ID", conflicts_with = "source_type")]
    pub head: Option<String>,
    /// The t of the head
    #[arg(long, value_name = "T", requires = "head")]
    pub t: Option<i64>,
    /// Its configuration: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub config: Option<String>,
    /// Create a graph source of this type, such as f:Bm25Index
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// A record that the graph source depends on (repeatable)
    #[arg(long, value_name = "ADDRESS", requires = "source_type")]
    pub depends_on: Vec<Address>,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `publish`
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The graph source, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// Its type, such as f:Bm25Index
    #[arg(long, value_name = "TYPE")]
    pub source_type: String,
    /// Its configuration: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub config: String,
    /// A record that it depends on (repeatable); left out, those of an existing graph source stay
    #[arg(long, value_name = "ADDRESS")]
    pub depends_on: Vec<Address>,
    /// It depends on nothing any more
    #[arg(long, conflicts_with = "depends_on")]
    pub no_dependencies: bool,
    /// The expected version of the configuration; 0 for none
    #[arg(long, value_name = "N")]
    pub expect_v: Option<i64>,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// The kinds of records.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KindArg {
    /// Ledgers
    #[value(alias = "ledgers")]
    Ledger,
    /// Graph sources
    #[value(alias = "graph_source", alias = "graph-sources")]
    GraphSource,
}

/// The orders of a list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SortArg {
    /// By address
    Address,
    /// The last written first
    Updated,
    /// By state
    State,
}

/// `list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only records whose addresses match. They may contain * and ?: NAME:* is all branches of a name
    #[arg(value_name = "ADDRESS")]
    pub patterns: Vec<String>,
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Sort them; without it, they come in the order of the index
    #[arg(long, value_enum)]
    pub sort: Option<SortArg>,
    /// Print how many there are
    #[arg(long, conflicts_with_all = ["limit", "sort", "cursor"])]
    pub count: bool,
    /// Only this kind
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Only the branches of this name
    #[arg(long, value_parser = values::name)]
    pub name: Option<String>,
    /// Only graph sources of this type
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// Only records in this state
    #[arg(long)]
    pub state: Option<String>,
    /// Only retracted (or, with =false, only live) records
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub retracted: Option<bool>,
    /// Whole records: state, head and index too
    #[arg(long)]
    pub full: bool,
    /// How many at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    pub limit: Option<u64>,
    /// All of them (the default)
    #[arg(long)]
    pub all: bool,
    /// Continue where an earlier list (--json, --limit) ended
    #[arg(long)]
    pub cursor: Option<String>,
}

/// What a push expects to find.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("expectation").multiple(false))]
pub struct ExpectArgs {
    /// The expected value
    #[arg(long, value_name = "ID@T", group = "expectation", value_parser = RefValue::parse)]
    pub expect: Option<RefValue>,
    /// Expect no record: the push creates a ledger
    #[arg(long, group = "expectation")]
    pub expect_none: bool,
    /// Expect the record without data
    #[arg(long, group = "expectation")]
    pub expect_unborn: bool,
}

/// The parts of a record that change.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ConcernArg {
    /// Its existence, whether it is retracted, what it depends on
    Meta,
    /// Where its latest commit is
    Head,
    /// Where its latest index is
    Index,
    /// Its state
    Status,
    /// Its configuration
    Config,
}

/// Which changes are wanted.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only changes of these records. They may hold * and ?: NAME:* is all branches of a name [default: all records]
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Only changes of this kind of record
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Only changes of this part of a record (repeatable)
    #[arg(long, value_enum)]
    pub concern: Vec<ConcernArg>,
}

/// `watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Which changes.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Where to begin: at a position, at the `start` of what the feed still holds, or with what changes from `now` on
    #[arg(long, value_name = "POSITION|start|now", default_value = "now", value_parser = Beginning::parse)]
    pub from: Beginning,
}

/// `changes`
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Which changes.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only what follows this position [default: all that the feed still holds]
    #[arg(long, value_name = "POSITION")]
    pub after: Option<u64>,
}

/// `history`
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// Only changes of this part of the record
    #[arg(long, value_enum)]
    pub concern: Option<ConcernArg>,
    /// Only changes after this position
    #[arg(long, value_name = "POSITION")]
    pub after: Option<u64>,
    /// How many at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Print the oldest change first; by default, the newest is
    #[arg(long)]
    pub oldest_first: bool,
}

/// `push`
#[derive(Debug, Subcommand)]
pub enum PushCommand {
    /// Move the head of a ledger to a commit
    Head(PushHeadArgs),
    /// Move the index of a record to an index root
    Index(PushIndexArgs),
}

/// `push head`
#[derive(Debug, Args)]
pub struct PushHeadArgs {
    /// The ledger
    pub address: Address,
    /// The commit
    #[arg(value_parser = ContentId::parse)]
    pub id: ContentId,
    /// Its t
    pub t: i64,
    /// The value that must be stored now.
    #[command(flatten)]
    pub expect: ExpectArgs,
    /// Under which lease.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `push index`
#[derive(Debug, Args)]
pub struct PushIndexArgs {
    /// The record
    pub address: Address,
    /// The index root
    #[arg(value_parser = ContentId::parse)]
    pub id: ContentId,
    /// The t that it covers
    pub t: i64,
    /// The indexes of named graphs, {"graph": {"id": …, "t": …}, …}: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub graphs: Option<String>,
    /// Replace an index at the same t too
    #[arg(long, conflicts_with = "expectation")]
    pub allow_equal: bool,
    /// The value that must be stored now.
    #[command(flatten)]
    pub expect: ExpectArgs,
    /// Under which lease.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The record
    pub address: Address,
    /// The new state, such as ready, indexing or error; left out, the status is shown
    pub state: Option<String>,
    /// More members of the status: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "state")]
    pub meta: Option<String>,
    /// The expected version [default: the stored one]
    #[arg(long, value_name = "N", requires = "state")]
    pub expect_v: Option<i64>,
    /// Under which lease.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The record
    pub address: Address,
    /// The new configuration: a JSON object, @FILE, or - for stdin; left out, the configuration is shown
    pub config: Option<String>,
    /// The expected version, 0 for none [default: the stored one]
    #[arg(long, value_name = "N", requires = "config")]
    pub expect_v: Option<i64>,
    /// Under which lease.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// The lease that a push is made under: it is refused once another has taken the lease over.
///
/// Within `lease run`, pushes to its record are made under its lease by default.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Under a lease [default: that of `lease run`, on its record]")]
pub struct ClaimArgs {
    /// Only while this lease is held
    #[arg(long, value_name = "NAME", value_parser = values::lease_name, requires_all = ["lease_holder", "lease_token"])]
    pub lease_name: Option<LeaseName>,
    /// By this holder
    #[arg(long, value_name = "HOLDER", requires_all = ["lease_name", "lease_token"])]
    pub lease_holder: Option<String>,
    /// With this token
    #[arg(long, value_name = "N", requires_all = ["lease_name", "lease_holder"])]
    pub lease_token: Option<i64>,
}

/// `lease`
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Take a lease that is free, expired, or held under the same holder name already
    Acquire(LeaseAcquireArgs),
    /// Extend a lease
    Refresh(LeaseRefreshArgs),
    /// Give a lease back
    Release(LeaseReleaseArgs),
    /// Show who holds a lease of a record
    Show(AddressArgs),
    /// Run a command under a lease
    ///
    /// Takes the lease, refreshes it while the command runs, and gives it back. The command finds
    /// NAMESERVICE_ADDRESS, NAMESERVICE_LEASE_NAME, NAMESERVICE_LEASE_HOLDER and NAMESERVICE_LEASE_TOKEN in its
    /// environment, from which push, status and config take the lease that they claim. It runs in a process group of
    /// its own, gets the signals that this process gets, and is stopped once the lease is lost or has run out: by
    /// SIGTERM, and 5 seconds later by SIGKILL.
    ///
    /// Exits with the command's code, 128 and more where a signal has ended it; with 3 if another holder has the lease
    /// or it was lost.
    Run(LeaseRunArgs),
}

/// Which lease is meant, and who means it.
#[derive(Debug, Args)]
pub struct HolderArgs {
    /// The name of the lease: index_lock, reindex_lock, maintenance_lock, migration_lock, or one of your own (a-z, 0-9, _)
    #[arg(long, value_parser = values::lease_name)]
    pub name: LeaseName,
    /// The name of the holder. A holder of the same name takes the lease over: give each process its own
    #[arg(long)]
    pub holder: String,
}

/// What is asked of a lease.
#[derive(Debug, Args)]
pub struct TermArgs {
    /// How long it lasts without a refresh: 5m, 90s, or a number of seconds
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::ttl)]
    pub ttl: u32,
    /// The t that it is wanted for
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(i64).range(0..))]
    pub target_t: Option<i64>,
}

/// `lease acquire`
#[derive(Debug, Args)]
pub struct LeaseAcquireArgs {
    /// The record
    pub address: Address,
    /// Which lease.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// For how long.
    #[command(flatten)]
    pub term: TermArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease refresh`
#[derive(Debug, Args)]
pub struct LeaseRefreshArgs {
    /// The record
    pub address: Address,
    /// Which lease.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The token that it was taken with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub lease_token: i64,
    /// For how long.
    #[command(flatten)]
    pub term: TermArgs,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease release`
#[derive(Debug, Args)]
pub struct LeaseReleaseArgs {
    /// The record
    pub address: Address,
    /// Which lease.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The token that it was taken with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub lease_token: i64,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease run`
#[derive(Debug, Args)]
pub struct LeaseRunArgs {
    /// Which lease.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// For how long.
    #[command(flatten)]
    pub term: TermArgs,
    /// Wait until the lease is free
    #[arg(long)]
    pub wait: bool,
    /// If the command fails, set this state before the lease is released
    #[arg(long, value_name = "STATE")]
    pub on_failure: Option<String>,
    /// The record
    pub address: Address,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `transaction`
#[derive(Debug, Args)]
pub struct TransactionArgs {
    /// A file that holds {"operations": […]} as JSON, or - for stdin
    pub file: String,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `branch`
#[derive(Debug, Subcommand)]
pub enum BranchCommand {
    /// Create a branch at the head of another
    Create(BranchCreateArgs),
    /// List the branches of a name
    List {
        /// The name, without a branch
        #[arg(value_parser = values::name)]
        name: String,
    },
    /// Delete a branch
    Drop(BranchDropArgs),
}

/// `branch drop`
#[derive(Debug, Args)]
pub struct BranchDropArgs {
    /// The branch
    pub address: Address,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `branch create`
#[derive(Debug, Args)]
pub struct BranchCreateArgs {
    /// The new branch, NAME:BRANCH
    #[arg(value_parser = values::branch_address)]
    pub address: Address,
    /// The branch to start from
    #[arg(long, value_name = "BRANCH", default_value = "main")]
    pub from: String,
    /// The commit to start from [default: the head of the source]
    #[arg(long, value_name = "ID@T", value_parser = RefValue::parse_born)]
    pub at: Option<RefValue>,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `retract`
#[derive(Debug, Args)]
pub struct RetractArgs {
    /// The record
    pub address: Address,
    /// Why, for those who look at its status
    #[arg(long)]
    pub reason: Option<String>,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `purge`
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// The record
    pub address: Address,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `reset`
#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The ledger
    pub address: Address,
    /// The head: ID@T, or `unborn`
    #[arg(long, value_name = "ID@T", value_parser = RefValue::parse)]
    pub head: RefValue,
    /// The index: ID@T, or `unborn`
    #[arg(long, value_name = "ID@T", value_parser = RefValue::parse)]
    pub index: RefValue,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// How to repeat it.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `health`
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Ask the store too
    #[arg(long)]
    pub deep: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fix what can be fixed safely, under live traffic
    #[arg(long)]
    pub fix: bool,
    /// The queue of stream records that could not be read
    #[arg(long, value_name = "URL")]
    pub dead_letter_queue: Option<String>,
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

    #[test]
    fn where_to_go_may_stand_before_and_after_the_command() {
        for line in ["--url http://a show mydb", "show mydb --url http://a", "show --url http://a mydb"] {
            assert_eq!(parse(line).unwrap().target.url.as_deref(), Some("http://a"), "{line}");
        }
    }

    #[test]
    fn every_form_of_a_push_is_read() {
        for expectation in ["", &format!("--expect {ID}@1"), "--expect unborn", "--expect-none", "--expect-unborn"] {
            parse(&format!("push head mydb {ID} 2 {expectation}")).unwrap();
            parse(&format!("push index mydb {ID} 2 {expectation}")).unwrap();
        }
        parse(&format!("push index mydb {ID} 2 --allow-equal")).unwrap();
    }

    #[test]
    fn contradictions_and_bad_words_are_refused_before_anything_is_sent() {
        for (line, kind) in [
            (format!("push head mydb {ID} 2 --expect-none --expect-unborn"), ErrorKind::ArgumentConflict),
            (format!("push index mydb {ID} 2 --expect-none --allow-equal"), ErrorKind::ArgumentConflict),
            (format!("create mydb --head {ID} --source-type f:Bm25Index"), ErrorKind::ArgumentConflict),
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
            ("watch --from yesterday".into(), ErrorKind::ValueValidation),
            ("watch --concern heads".into(), ErrorKind::InvalidValue),
        ] {
            let error = parse(&line).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), kind, "{line}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
