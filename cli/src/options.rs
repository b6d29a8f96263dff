//! Arguments that several commands share.

use std::{path::PathBuf, str::FromStr};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use nameservice::Place;
use nameservice_model::{Address, ChangedPart, ConcernKind, RecordKind, UnknownName};

/// What to do if the data to be opened is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Create it.
    Create,
    /// Fail, and create nothing.
    Reject,
}

/// Severities of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures
    Error,
    /// Also what needs attention
    Warn,
    /// Also one line per request
    Info,
    /// Also why requests were rejected
    Debug,
    /// Also the details of every step
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

/// The nameservice to use.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection options")]
pub struct TargetArgs {
    /// The nameservice, by its URL: https://HOST, http://HOST, unix:PATH, dynamodb://TABLE, file:///DIR, s3://BUCKET/PREFIX,
    /// gs://…, az://…, embedded:DIR, or (serve) memory:
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["url", "endpoint_url", "aws", "data", "table"])]
    pub at: Option<Place>,
    /// The nameservice that a Fluree server with this connection file (JSON-LD) uses
    #[cfg(feature = "files")]
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["at", "url", "endpoint_url", "aws", "data", "table"])]
    pub fluree_config: Option<PathBuf>,
    /// The service to talk to, http://…, https://… or unix:PATH [env: NAMESERVICE_URL] [default: http://127.0.0.1:8080]
    // Read from the environment by hand, so that a table on the command line takes precedence.
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// The bearer token for the service
    #[arg(long, global = true, value_name = "TOKEN", env = "NAMESERVICE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Authenticate at services over https by this certificate, in PEM, with the intermediate ones and, unless --client-key is given,
    /// its private key
    #[arg(long, global = true, value_name = "FILE", env = "NAMESERVICE_CLIENT_CERT", hide_env_values = true)]
    pub client_cert: Option<String>,
    /// The private key of --client-cert, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "NAMESERVICE_CLIENT_KEY", hide_env_values = true)]
    pub client_key: Option<String>,
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
    /// The archive of changes that the feed no longer holds, as the command names it.
    #[arg(skip)]
    pub archive: ArchiveArgs,
}

/// The archive of changes that the feed no longer holds.
#[derive(Clone, Debug, Default, Args)]
pub struct ArchiveArgs {
    /// Read changes that the feed no longer holds from this archive: file:///DIR, s3://BUCKET/PREFIX, gs://…, az://…
    #[cfg(feature = "archive")]
    #[arg(long, value_name = "URL")]
    pub archive: Option<Place>,
}

/// A command about one record.
#[derive(Debug, Args)]
pub struct AddressArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
}

/// A write.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// Identifies this write: if it is repeated with the same key, it is not applied twice
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// A write that stores ids of content, or creates a ledger.
#[derive(Clone, Debug, Default, Args)]
pub struct ForeignArgs {
    /// In a place that is shared with Fluree, also store ids that Fluree's engine cannot read, and create ledgers that it would not
    /// create
    #[arg(long)]
    pub allow_foreign: bool,
}

impl ForeignArgs {
    /// Returns the query parameter; `None` if it is left out.
    pub(crate) fn parameter(&self) -> Option<bool> {
        self.allow_foreign.then_some(true)
    }
}

/// A write to one record without further arguments.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The record
    pub address: Address,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// Parses the kind of a record.
pub(crate) fn record_kind() -> impl TypedValueParser<Value = RecordKind> {
    PossibleValuesParser::new([
        PossibleValue::new("ledger").help("Ledgers").alias("ledgers"),
        PossibleValue::new("graph-source").help("Graph sources").aliases(["graph_source", "graph-sources"]),
    ])
    // Only the names above get here.
    .map(|name| match name.as_str() {
        "ledger" | "ledgers" => RecordKind::Ledger,
        _ => RecordKind::GraphSource,
    })
}

/// Parses one of these parts of a record.
fn part_of<P: FromStr<Err = UnknownName> + Clone + Send + Sync + 'static>(
    parts: impl IntoIterator<Item = ChangedPart>,
) -> impl TypedValueParser<Value = P> {
    let value = |part: ChangedPart| {
        PossibleValue::new(part.as_str()).help(match part {
            ChangedPart::Meta => "Its existence, whether it is retracted, what it depends on",
            ChangedPart::Concern(ConcernKind::Head) => "Where its latest commit is",
            ChangedPart::Concern(ConcernKind::Index) => "Where its latest index is",
            ChangedPart::Concern(ConcernKind::Status) => "Its state",
            ChangedPart::Concern(ConcernKind::Config) => "Its configuration",
        })
    };
    PossibleValuesParser::new(parts.into_iter().map(value)).try_map(|name| name.parse())
}

/// Parses the name of a part of a record that changes.
pub(crate) fn changed_part() -> impl TypedValueParser<Value = ChangedPart> {
    part_of(ChangedPart::ALL)
}

/// Parses the name of a concern.
pub(crate) fn concern() -> impl TypedValueParser<Value = ConcernKind> {
    part_of(ConcernKind::ALL.map(ChangedPart::Concern))
}
