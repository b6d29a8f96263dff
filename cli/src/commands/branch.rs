//! `branch`

use clap::{Args, Subcommand};
use http::Method;
use nameservice_api::{BranchDropped, Record, requests::NewBranch};
use nameservice_model::Address;
use serde_json::json;

use super::{
    confirm,
    list::{Limit, Pages, follow},
};
use crate::{
    client::{Request, write},
    failure::Failure,
    lists::{self, FormatArgs, RECORDS},
    options::{ForeignArgs, KeyArgs},
    output,
    session::Session,
    values::{self, RefValue},
};

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
        /// The format.
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Delete a branch
    Drop(BranchDropArgs),
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
    pub commit: Option<RefValue>,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `branch drop`
#[derive(Debug, Args)]
pub struct BranchDropArgs {
    /// The branch
    pub address: Address,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

pub(crate) async fn run(session: &Session, command: BranchCommand) -> Result<(), Failure> {
    match command {
        BranchCommand::Create(args) => create(session, args).await,
        BranchCommand::List { name, format } => list(session, &name, format).await,
        BranchCommand::Drop(args) => drop_branch(session, args).await,
    }
}

async fn create(session: &Session, args: BranchCreateArgs) -> Result<(), Failure> {
    let BranchCreateArgs { address, from, commit, foreign, key } = args;
    let body = NewBranch {
        name: address.name().to_owned(),
        branch: address.branch().to_owned(),
        source: from.clone(),
        at: commit.map(Into::into),
    };
    let request = write(Method::POST, "branches", &key).query("allow_foreign", foreign.parameter()).body(&body);
    let record = session.send::<Record>(request).await?;
    session.output.answer(&record.json, || {
        format!("created the branch {address} from {from}, head: {}", output::head(record.head.as_ref()))
    })
}

async fn list(session: &Session, name: &str, format: FormatArgs) -> Result<(), Failure> {
    let format = format.wanted(session.output)?;
    let Pages { items, .. } =
        follow(session, Limit::default(), None, || Request::get("branches").rest(name), |_| true).await?;
    lists::print(format, RECORDS, &items, || json!({"branches": items}), || output::records(&items))
}

async fn drop_branch(session: &Session, args: BranchDropArgs) -> Result<(), Failure> {
    let BranchDropArgs { address, yes, key } = args;
    if !yes {
        let record = session.record(&address, None).await?;
        confirm::ask(&address, &format!("delete the branch {address}, head: {}", output::head(record.head.as_ref())))?;
    }
    let dropped = session.send::<BranchDropped>(write(Method::DELETE, "branches", &key).at(&address)).await?;
    session.output.answer(&dropped.json, || {
        format!("dropped the branch {address}; its source has {} left", dropped.parent_branches)
    })
}
