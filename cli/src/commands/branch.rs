//! `branch`

use http::Method;
use serde_json::json;

use super::{
    Session,
    list::{Pages, follow},
};
use crate::{
    args::{BranchCommand, BranchCreateArgs, WriteArgs},
    client::Request,
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
    let mut body = json!({"name": address.name(), "branch": address.branch(), "source": from});
    if let Some(at) = at {
        body["at"] = at.to_json();
    }
    let record = session.send(Request::write(Method::POST, "branches", &key).body(body)).await?;
    session.output.answer(&record, || {
        format!("created the branch {address} from {from}, head: {}", output::value(&record["head"]))
    })
}

async fn list(session: &Session, name: &str) -> Result<(), Failure> {
    let Pages { items, .. } = follow(session, "branches", None, None, || Request::get("branches").rest(name)).await?;
    session.output.answer(&json!({"branches": items}), || output::records(&items))
}

async fn drop_branch(session: &Session, args: WriteArgs) -> Result<(), Failure> {
    let WriteArgs { address, key } = args;
    let answer = session.send(Request::write(Method::DELETE, "branches", &key).at(&address)).await?;
    session.output.answer(&answer, || {
        format!("dropped the branch {address}; its source has {} left", output::text(&answer["parent_branches"]))
    })
}
