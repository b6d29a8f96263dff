//! `create` and `publish`

use http::Method;
use nameservice_model::{Address, ContentId};
use serde_json::{Value, json};

use super::Session;
use crate::{
    args::{CreateArgs, KeyArgs, PublishArgs},
    client::Request,
    failure::Failure,
    output,
    values::{self, RefValue},
};

pub(super) async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let CreateArgs { address, head, t, config, source_type, depends_on, key } = args;
    let config = config.as_deref().map(values::object).transpose()?;
    if let Some(source_type) = source_type {
        let body = json!({
            "source_type": source_type,
            "config": config.unwrap_or_default(),
            "dependencies": texts(&depends_on),
            // Creating is not replacing.
            "expected_v": 0,
        });
        return put_graph_source(session, &address, &key, body).await.map_err(|failure| match failure {
            Failure::Refused(mut problem) if problem.type_uri.ends_with("/conflict") => {
                problem.detail = format!("`{address}` exists; publish replaces its configuration");
                Failure::Refused(problem)
            }
            failure => failure,
        });
    }
    let mut body = json!({"address": address});
    if let Some(head) = head {
        body["head"] = born_head(&head, t).map_err(Failure::Usage)?.to_json();
    }
    if let Some(config) = config {
        body["config"] = config.into();
    }
    let record = session.send(Request::write(Method::POST, "ledgers", &key).body(body)).await?;
    session.output.answer(&record, || format!("created the ledger {address}, head: {}", output::value(&record["head"])))
}

pub(super) async fn publish(session: &Session, args: PublishArgs) -> Result<(), Failure> {
    let PublishArgs { address, source_type, config, depends_on, no_dependencies, expect_v, key } = args;
    let mut body = json!({"source_type": source_type, "config": values::object(&config)?});
    if no_dependencies || !depends_on.is_empty() {
        body["dependencies"] = texts(&depends_on);
    }
    if let Some(v) = expect_v {
        body["expected_v"] = v.into();
    }
    put_graph_source(session, &address, &key, body).await
}

async fn put_graph_source(session: &Session, address: &Address, key: &KeyArgs, body: Value) -> Result<(), Failure> {
    let record = session.send(Request::write(Method::PUT, "graph-sources", key).at(address).body(body)).await?;
    session.output.answer(&record, || {
        let config = output::value(&record["config"]);
        format!("published the graph source {address}, {}, config: {config}", output::text(&record["source_type"]))
    })
}

/// A head from `ID@T`, or from an id and its `t`.
fn born_head(head: &str, t: Option<i64>) -> Result<RefValue, String> {
    match t {
        None => RefValue::parse_born(head).map_err(|error| format!("--head: {error}; or give its t with --t")),
        Some(t) => {
            let id = ContentId::parse(head).map_err(|error| format!("--head: {error}"))?;
            Ok(RefValue::new(id, t))
        }
    }
}

fn texts(addresses: &[Address]) -> Value {
    addresses.iter().map(Address::as_str).collect()
}
