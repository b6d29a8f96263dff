//! `branch`

use http::Method;
use nameservice_api::{BranchDropped, Record, requests::NewBranch};
use serde_json::json;

use super::{
    Session, confirm,
    list::{Pages, follow},
};
use crate::{
    args::{BranchCommand, BranchCreateArgs, BranchDropArgs},
    client::{Request, write},
    failure::Failure,
    output,
};

pub(super) async fn run(session: &Session, command: BranchCommand) -> Result<(), Failure> {
    match command {
        BranchCommand::Create(args) => create(session, args).await,
        BranchCommand::List { name } => list(session, &name).await,
        BranchCommand::Drop(args) => drop_branch(session, args).await,
    }
}

async fn create(session: &Session, args: BranchCreateArgs) -> Result<(), Failure> {
    let BranchCreateArgs { address, from, at, key } = args;
    let body = NewBranch {
        name: address.name().to_owned(),
        branch: address.branch().to_owned(),
        source: from.clone(),
        at: at.map(Into::into),
    };
    let record = session.send::<Record>(write(Method::POST, "branches", &key).body(&body)).await?;
    session.output.answer(&record.json, || {
        format!("created the branch {address} from {from}, head: {}", output::head(record.head.as_ref()))
    })
}

async fn list(session: &Session, name: &str) -> Result<(), Failure> {
    let Pages { items, .. } = follow(session, None, None, || Request::get("branches").rest(name), |_| true).await?;
    session.output.answer(&json!({"branches": items}), || output::records(&items))
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
