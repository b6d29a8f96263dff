//! `config`

use clap::Args;
use http::Method;
use nameservice_api::{
    Config, Kind, Record,
    requests::{ConfigPush, ExpectedConfig, GraphSource, NewConfig},
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

/// `config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The record
    pub address: Address,
    /// The new configuration: a JSON object, @FILE, or - for stdin; if left out, the configuration is shown
    pub config: Option<String>,
    /// The expected version, 0 for none [default: the stored one]
    #[arg(long, value_name = "N", requires = "config")]
    pub expect_v: Option<i64>,
    /// The lease that it is made under.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

pub(crate) async fn run(session: &Session, args: ConfigArgs) -> Result<(), Failure> {
    let ConfigArgs { address, config, expect_v, claim, key } = args;
    let Some(config) = config else {
        let record = session.record(&address, Some(ConcernKind::Config)).await?;
        return session.output.answer(&record.json["config"], || pretty(record.config.as_ref()));
    };
    let payload = values::object(&config)?;
    // The record shows the current version and the kind, which determines how it is configured.
    let record = session.record(&address, Some(ConcernKind::Config)).await?;
    let v = match expect_v {
        Some(v) => v,
        None => record.config.as_ref().ok_or_else(|| incomplete("config"))?.v,
    };
    if record.kind == Kind::GraphSource {
        if claim.claim(&address)?.is_some() {
            let reason = format!("{address} is a graph source: its configuration cannot be pushed under a lease");
            return Err(Failure::Usage(reason));
        }
        // The type never changes, and dependencies that are left out stay.
        let source_type = record.source_type.clone().ok_or_else(|| incomplete("source_type"))?;
        let body = GraphSource { source_type, config: payload, dependencies: None, expected_v: Some(v), v: None };
        let request = write(Method::PUT, "graph-sources", &key).at(&address).body(&body);
        let record = session.send::<Record>(request).await;
        let record = record.map_err(|failure| Expectation::Version(v).explain(failure, None))?;
        return session
            .output
            .answer(&record.json, || format!("config of {address}: {}", output::config(record.config.as_ref())));
    }
    let push = ConfigPush {
        expected: Some(Some(ExpectedConfig { v, payload: None })),
        new: NewConfig { v: None, payload },
        lease: claim.claim(&address)?,
    };
    let answer = session.send(write(Method::PUT, "configs", &key).at(&address).body(&push)).await;
    let answer = answer.map_err(|failure| Expectation::Version(v).explain(failure, None))?;
    push::report(session, &format!("config of {address}"), &answer, |value: &Config| output::config(Some(value)))
}

/// A configuration in several lines, so that it can be read and piped.
fn pretty(config: Option<&Config>) -> String {
    match config.and_then(|config| config.payload.as_ref()) {
        None => output::config(config),
        Some(payload) => format!("{payload:#}"),
    }
}
