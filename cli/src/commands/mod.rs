//! The commands, one file for each noun.

#[cfg(feature = "archive")]
pub(crate) mod archive;
#[cfg(feature = "dynamodb")]
pub(crate) mod aws;
pub(crate) mod branch;
pub(crate) mod config;
pub(crate) mod confirm;
pub(crate) mod conflict;
#[cfg(feature = "migration")]
pub(crate) mod copy;
pub(crate) mod create;
#[cfg(feature = "dynamodb")]
pub(crate) mod deadletters;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod push;
#[cfg(feature = "remotes")]
pub(crate) mod remote;
pub(crate) mod search;
#[cfg(feature = "opensearch")]
pub(crate) mod search_index;
pub(crate) mod service;
pub(crate) mod show;
pub(crate) mod status;
#[cfg(feature = "serve")]
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod transaction;
pub(crate) mod watch;

#[cfg(feature = "archive")]
pub use archive::ArchiveCommandArgs;
#[cfg(feature = "dynamodb")]
pub use aws::AwsCommand;
pub use branch::{BranchCommand, BranchCreateArgs, BranchDropArgs};
pub use config::ConfigArgs;
#[cfg(feature = "migration")]
pub use copy::{CompareArgs, CopyArgs, ExportArgs, ImportArgs, TakeArgs, TokenArgs};
pub use create::{CreateArgs, PublishArgs};
#[cfg(feature = "dynamodb")]
pub use deadletters::{DeadLettersCommand, DropArgs, QueueArgs, ReplayArgs};
pub use diff::DiffArgs;
pub use doctor::DoctorArgs;
pub use generate::GenerateCommand;
pub use lease::{
    ClaimArgs, HolderArgs, LeaseAcquireArgs, LeaseCommand, LeaseRefreshArgs, LeaseReleaseArgs, LeaseRunArgs, TermArgs,
};
pub use leases::LeaseListArgs;
pub use lifecycle::{PurgeArgs, ResetArgs, RetractArgs};
pub use list::{ListArgs, SortArg};
pub use login::LoginArgs;
pub use push::{ExpectArgs, PushCommand, PushHeadArgs, PushIndexArgs};
#[cfg(feature = "remotes")]
pub use remote::{RemoteCommand, RemoteMoveArgs};
pub use search::SearchArgs;
#[cfg(feature = "opensearch")]
pub use search_index::{SearchIndexArgs, SearchIndexCommand};
pub use service::{HealthArgs, RestoreBackupArgs};
pub use show::ShowArgs;
pub use status::StatusArgs;
#[cfg(feature = "serve")]
pub use token::{TokenCommand, TokenKeysArgs, TokenMintArgs, TokenScope};
pub use top::TopArgs;
pub use transaction::{Operation, TransactionArgs};
pub use watch::{ChangesArgs, FilterArgs, HistoryArgs, WatchArgs};

/// A number of things, in words.
#[cfg(any(feature = "archive", feature = "migration"))]
fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
