//! `status`

use http::Method;
use serde_json::json;

use super::{Session, push};
use crate::{args::StatusArgs, client::Request, failure::Failure, output, values};

pub(super) async fn run(session: &Session, args: StatusArgs) -> Result<(), Failure> {
    let StatusArgs { address, state, meta, expect_v, claim, key } = args;
    let Some(state) = state else {
        let record = session.record(&address, Some("status")).await?;
        return session.output.answer(&record["status"], || output::value(&record["status"]));
    };
    let mut payload = meta.as_deref().map(values::object).transpose()?.unwrap_or_default();
    payload.insert("state".into(), state.into());
    let v = match expect_v {
        Some(v) => json!(v),
        // What somebody else writes between this and the push is not overwritten: the push is refused.
        None => session.record(&address, Some("status")).await?["status"]["v"].clone(),
    };
    let body = push::under(claim, &address, json!({"expected": {"v": v}, "new": {"payload": payload}}))?;
    let answer = session.send(Request::write(Method::PUT, "statuses", &key).at(&address).body(body)).await?;
    push::told(session, &format!("status of {address}"), &answer)
}
