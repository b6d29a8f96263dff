//! `retract`, `restore`, `protect`, `unprotect`, `purge` and `reset`

use clap::Args;
use http::Method;
use nameservice_api::{
    Protection, Record,
    requests::{NewProtection, Retraction, Snapshot},
};
use nameservice_model::Address;
use serde_json::Value;

use super::confirm;
use crate::{
    client::write,
    failure::Failure,
    options::{ForeignArgs, KeyArgs, WriteArgs},
    output,
    session::Session,
    values::RefValue,
};

/// `retract`
#[derive(Debug, Args)]
pub struct RetractArgs {
    /// The record
    pub address: Address,
    /// The reason, to be shown in its status
    #[arg(long)]
    pub reason: Option<String>,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `purge`
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// The record
    pub address: Address,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// The key with which it can be repeated.
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
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

pub(crate) async fn retract(session: &Session, args: RetractArgs) -> Result<(), Failure> {
    let RetractArgs { address, reason, key } = args;
    let mut request = write(Method::POST, "retractions", &key).at(&address);
    if reason.is_some() {
        request = request.body(&Retraction { reason });
    }
    let record = session.send::<Record>(request).await?;
    session.output.answer(&record.json, || format!("{address} is retracted; restore undoes it"))
}

pub(crate) async fn restore(session: &Session, args: WriteArgs) -> Result<(), Failure> {
    let WriteArgs { address, key } = args;
    let record = session.send::<Record>(write(Method::POST, "restorations", &key).at(&address)).await?;
    session.output.answer(&record.json, || format!("{address} is live"))
}

pub(crate) async fn protect(session: &Session, args: WriteArgs, protected: bool) -> Result<(), Failure> {
    let WriteArgs { address, key } = args;
    let request = write(Method::PUT, "protections", &key).at(&address).body(&NewProtection { protected });
    let answer = session.send::<Protection>(request).await?;
    session.output.answer(&answer.json, || match answer.protected {
        true => format!("{address} is protected; unprotect undoes it"),
        false => format!("{address} is not protected"),
    })
}

pub(crate) async fn purge(session: &Session, args: PurgeArgs) -> Result<(), Failure> {
    let PurgeArgs { address, yes, key } = args;
    if !yes {
        let record = session.record(&address, None).await?;
        confirm::ask(&address, &format!("delete {address} permanently:\n{}", output::record(&record)))?;
    }
    let answer = session.send::<Value>(write(Method::DELETE, "records", &key).at(&address)).await?;
    if answer.is_null() && session.output.is_json() {
        // The service answers without a body.
        return Ok(());
    }
    session.output.answer(&answer.json, || format!("{address} is gone"))
}

pub(crate) async fn reset(session: &Session, args: ResetArgs) -> Result<(), Failure> {
    let ResetArgs { address, head, index, yes, foreign, key } = args;
    let body = Snapshot { head: head.into(), index: index.into() };
    if !yes {
        let record = session.record(&address, None).await?;
        let what = format!(
            "reset {address}\n  head:  {} -> {}\n  index: {} -> {}",
            output::head(record.head.as_ref()),
            output::reference(&body.head),
            output::index(record.index.as_ref()),
            output::reference(&body.index),
        );
        confirm::ask(&address, &what)?;
    }
    let request =
        write(Method::POST, "resets", &key).at(&address).query("allow_foreign", foreign.parameter()).body(&body);
    let record = session.send::<Record>(request).await?;
    session.output.answer(&record.json, || {
        let (head, index) = (output::head(record.head.as_ref()), output::index(record.index.as_ref()));
        format!("reset {address}, head: {head}, index: {index}")
    })
}
