//! `create` and `publish`

use clap::Args;
use http::Method;
use nameservice_api::{
    ProblemKind, Record,
    requests::{GraphSource, NewLedger},
};
use nameservice_model::{Address, ContentId};

use crate::{
    client::write,
    failure::Failure,
    options::{ForeignArgs, KeyArgs},
    output,
    session::Session,
    values::{self, RefValue},
};

/// `create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The new record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// The initial head, if the ledger already has commits (with --t, or as ID@T)
    #[arg(long, value_name = "ID", conflicts_with = "source_type")]
    pub head: Option<String>,
    /// The t of the head
    #[arg(long, value_name = "T", requires = "head")]
    pub t: Option<i64>,
    /// Its configuration: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub config: Option<String>,
    /// Create a graph source of this type, such as f:Bm25Index
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// A record that the graph source depends on (repeatable)
    #[arg(long, value_name = "ADDRESS", requires = "source_type")]
    pub depends_on: Vec<Address>,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `publish`
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The graph source, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// Its type, such as f:Bm25Index
    #[arg(long, value_name = "TYPE")]
    pub source_type: String,
    /// Its configuration: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub config: String,
    /// A record that it depends on (repeatable); by default, an existing graph source keeps its own
    #[arg(long, value_name = "ADDRESS")]
    pub depends_on: Vec<Address>,
    /// Remove all dependencies
    #[arg(long, conflicts_with = "depends_on")]
    pub no_dependencies: bool,
    /// The expected version of the configuration; 0 for none
    #[arg(long, value_name = "N")]
    pub expect_v: Option<i64>,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

pub(crate) async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let CreateArgs { address, head, t, config, source_type, depends_on, foreign, key } = args;
    let config = config.as_deref().map(values::object).transpose()?;
    if let Some(source_type) = source_type {
        let body = GraphSource {
            source_type,
            config: config.unwrap_or_default(),
            dependencies: Some(texts(&depends_on)),
            // `create` must not replace an existing graph source.
            expected_v: Some(0),
            v: None,
        };
        return put_graph_source(session, &address, &key, &body).await.map_err(|failure| match failure {
            Failure::Rejected(mut problem) if problem.kind() == Some(ProblemKind::Conflict) => {
                problem.detail = format!("`{address}` exists; publish replaces its configuration");
                Failure::Rejected(problem)
            }
            failure => failure,
        });
    }
    let head = head.map(|head| born_head(&head, t).map_err(Failure::Usage)).transpose()?;
    let body = NewLedger { head: head.map(Into::into), config, ..NewLedger::at(address.to_string()) };
    let request = write(Method::POST, "ledgers", &key).query("allow_foreign", foreign.parameter()).body(&body);
    let record = session.send::<Record>(request).await?;
    session
        .output
        .answer(&record.json, || format!("created the ledger {address}, head: {}", output::head(record.head.as_ref())))
}

pub(crate) async fn publish(session: &Session, args: PublishArgs) -> Result<(), Failure> {
    let PublishArgs { address, source_type, config, depends_on, no_dependencies, expect_v, key } = args;
    let body = GraphSource {
        source_type,
        config: values::object(&config)?,
        dependencies: (no_dependencies || !depends_on.is_empty()).then(|| texts(&depends_on)),
        expected_v: expect_v,
        v: None,
    };
    put_graph_source(session, &address, &key, &body).await
}

async fn put_graph_source(
    session: &Session,
    address: &Address,
    key: &KeyArgs,
    body: &GraphSource,
) -> Result<(), Failure> {
    let record = session.send::<Record>(write(Method::PUT, "graph-sources", key).at(address).body(body)).await?;
    session.output.answer(&record.json, || {
        let source_type = record.source_type.as_deref().unwrap_or("-");
        let config = output::config(record.config.as_ref());
        format!("published the graph source {address}, {}, config: {config}", output::clean(source_type))
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

fn texts(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}
