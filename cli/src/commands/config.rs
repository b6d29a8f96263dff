//! `config`

use http::Method;
use serde_json::{Value, json};

use super::{Session, push};
use crate::{args::ConfigArgs, client::Request, failure::Failure, output, values};

pub(super) async fn run(session: &Session, args: ConfigArgs) -> Result<(), Failure> {
    let ConfigArgs { address, config, expect_v, claim, key } = args;
    let Some(config) = config else {
        let record = session.record(&address, Some("config")).await?;
        return session.output.answer(&record["config"], || pretty(&record["config"]));
    };
    let config = values::object(&config)?;
    // It tells which kind of record it is, each having its own way to be configured, and what is in place.
    let record = session.record(&address, Some("config")).await?;
    let v = expect_v.map_or_else(|| record["config"]["v"].clone(), |v| json!(v));
    if record["kind"] == "graph_source" {
        if claim.claim(&address)?.is_some() {
            let reason = format!("{address} is a graph source: its configuration cannot be pushed under a lease");
            return Err(Failure::Usage(reason));
        }
        // The type never changes, and dependencies that are not named stay.
        let body = json!({"source_type": record["source_type"], "config": config, "expected_v": v});
        let record = session.send(Request::write(Method::PUT, "graph-sources", &key).at(&address).body(body)).await?;
        return session.output.answer(&record, || format!("config of {address}: {}", output::value(&record["config"])));
    }
    let body = push::under(claim, &address, json!({"expected": {"v": v}, "new": {"payload": config}}))?;
    let answer = session.send(Request::write(Method::PUT, "configs", &key).at(&address).body(body)).await?;
    push::told(session, &format!("config of {address}"), &answer)
}

/// A configuration on lines of its own, so that it can be read and piped on.
fn pretty(config: &Value) -> String {
    match &config["payload"] {
        Value::Null => output::value(config),
        payload => format!("{payload:#}"),
    }
}
