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

/// `import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file; - for stdin
    pub file: PathBuf,
    /// What is taken.
    #[command(flatten)]
    pub take: TakeArgs,
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
