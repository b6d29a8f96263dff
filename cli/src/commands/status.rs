//! `status`

use clap::Args;
use http::Method;
use nameservice_api::{
    Status,
    requests::{ExpectedStatus, NewStatus, StatusPush},
};
use nameservice_model::{Address, ConcernKind};

use super::{conflict::Expectation, lease::ClaimArgs, push};
use crate::{
    client::write,
    failure::Failure,
    options::KeyArgs,
    output,
    session::{Session, incomplete},
    values,
};

/// `status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The record
    pub address: Address,
    /// The new state, such as ready, indexing or error; if left out, the status is shown
    pub state: Option<String>,
    /// More members of the status: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "state")]
    pub meta: Option<String>,
    /// The expected version [default: the stored one]
    #[arg(long, value_name = "N", requires = "state")]
    pub expect_v: Option<i64>,
    /// The lease that it is made under.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

pub(crate) async fn run(session: &Session, args: StatusArgs) -> Result<(), Failure> {
    let StatusArgs { address, state, meta, expect_v, claim, key } = args;
    let Some(state) = state else {
        let record = session.record(&address, Some(ConcernKind::Status)).await?;
        return session.output.answer(&record.json["status"], || output::status(record.status.as_ref()));
    };
    let mut payload = meta.as_deref().map(values::object).transpose()?.unwrap_or_default();
    payload.insert("state".into(), state.into());
    let v = match expect_v {
        Some(v) => v,
        // If another writes between this read and the push, the push is rejected and overwrites nothing.
        None => {
            let record = session.record(&address, Some(ConcernKind::Status)).await?;
            record.status.as_ref().ok_or_else(|| incomplete("status"))?.v
        }
    };
    let push = StatusPush {
        expected: Some(Some(ExpectedStatus { v, payload: None })),
        new: NewStatus { v: None, payload },
        lease: claim.claim(&address)?,
    };
    let answer = session.send(write(Method::PUT, "statuses", &key).at(&address).body(&push)).await;
    let answer = answer.map_err(|failure| Expectation::Version(v).explain(failure, None))?;
    push::report(session, &format!("status of {address}"), &answer, |value: &Status| output::status(Some(value)))
}
