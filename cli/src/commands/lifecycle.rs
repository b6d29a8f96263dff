//! `retract`, `restore`, `purge` and `reset`

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use http::Method;
use nameservice_model::Address;
use serde_json::json;

use super::Session;
use crate::{
    args::{PurgeArgs, ResetArgs, RetractArgs, WriteArgs},
    client::Request,
    failure::Failure,
    output,
};

pub(super) async fn retract(session: &Session, args: RetractArgs) -> Result<(), Failure> {
    let RetractArgs { address, reason, key } = args;
    let mut request = Request::write(Method::POST, "retractions", &key).at(&address);
    if let Some(reason) = reason {
        request = request.body(json!({"reason": reason}));
    }
    let record = session.send(request).await?;
    session.output.answer(&record, || format!("{address} is retracted; restore undoes it"))
}

pub(super) async fn restore(session: &Session, args: WriteArgs) -> Result<(), Failure> {
    let WriteArgs { address, key } = args;
    let record = session.send(Request::write(Method::POST, "restorations", &key).at(&address)).await?;
    session.output.answer(&record, || format!("{address} is live"))
}

pub(super) async fn purge(session: &Session, args: PurgeArgs) -> Result<(), Failure> {
    let PurgeArgs { address, yes, key } = args;
    if !yes {
        confirm(&address)?;
    }
    let answer = session.send(Request::write(Method::DELETE, "records", &key).at(&address)).await?;
    if answer.is_null() && session.output.is_json() {
        // The service answers without a body.
        return Ok(());
    }
    session.output.answer(&answer, || format!("{address} is gone"))
}

pub(super) async fn reset(session: &Session, args: ResetArgs) -> Result<(), Failure> {
    let ResetArgs { address, head, index, key } = args;
    let body = json!({"head": head.to_json(), "index": index.to_json()});
    let answer = session.send(Request::write(Method::POST, "resets", &key).at(&address).body(body)).await?;
    session.output.answer(&answer, || {
        let (head, index) = (output::value(&answer["head"]), output::value(&answer["index"]));
        format!("reset {address}, head: {head}, index: {index}")
    })
}

/// Asks, where there is somebody to ask.
fn confirm(address: &Address) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(format!("{address} would be gone for good: confirm with --yes")));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "{address} will be gone for good. Type its address to go on: ");
    asked.and_then(|()| stderr.flush()).map_err(Failure::Output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::Output)?;
    match Address::parse(answer.trim()) {
        Ok(confirmed) if confirmed == *address => Ok(()),
        _ => Err(Failure::Usage("nothing was purged".into())),
    }
}
