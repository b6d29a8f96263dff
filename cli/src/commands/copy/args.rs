//! The arguments of `copy`, `compare`, `export` and `import`.

use std::path::PathBuf;

use clap::Args;
use nameservice::Place;
use nameservice_model::AddressGlob;

/// `copy`
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The place to read from: https://HOST, dynamodb://TABLE, embedded:DIR, dump:FILE, or dump:- for stdin
    pub from: Place,
    /// The place to write to, in the same form
    pub to: Place,
    /// What to copy.
    #[command(flatten)]
    pub take: TakeArgs,
    /// Continue with the changes of the source, until Ctrl-C
    #[arg(long, conflicts_with = "dry_run")]
    pub follow: bool,
    /// The tokens of the two places.
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
    /// The tokens of the two places.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// `export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file, replaced once everything is written; - for stdout
    pub file: PathBuf,
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
}

/// `import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file; - for stdin
    pub file: PathBuf,
    /// What to copy.
    #[command(flatten)]
    pub take: TakeArgs,
}

/// What to copy.
#[derive(Debug, Default, Args)]
pub struct TakeArgs {
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Write nothing, and print what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// For these records, also overwrite values that are newer or different at the target (repeatable; may contain * and ?)
    #[arg(long, value_name = "ADDRESS")]
    pub force: Vec<AddressGlob>,
    /// Reset heads and indexes if the source was reset from exactly the value that the target has. Nobody else may write
    /// the same records at the target meanwhile
    #[arg(long)]
    pub resets: bool,
    /// Also write ids that Fluree's engine cannot read, and names under which it would create no ledger, to a place that is shared
    /// with Fluree
    #[arg(long)]
    pub allow_foreign: bool,
}

/// The tokens for two places.
#[derive(Debug, Default, Args)]
pub struct TokenArgs {
    /// The bearer token for the first place, if it is a service [default: --token]
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_FROM_TOKEN", hide_env_values = true)]
    pub from_token: Option<String>,
    /// The bearer token for the second place, if it is a service [default: --token]
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_TO_TOKEN", hide_env_values = true)]
    pub to_token: Option<String>,
}
