//! `transaction`

use clap::Args;
use http::Method;
use nameservice_api::transactions::{OperationResult, TransactionAnswer};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::write,
    failure::Failure,
    options::{ForeignArgs, KeyArgs},
    output,
    session::Session,
    values,
};

/// `transaction`
#[derive(Debug, Args)]
pub struct TransactionArgs {
    /// A file that holds {"operations": […]} as JSON, or - for stdin
    pub file: String,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// The members of an operation that a table of results shows.
#[derive(Deserialize)]
pub struct Operation {
    /// `push_head`, …
    pub op: String,
    /// The record.
    pub address: String,
    /// The concern of a check.
    pub concern: Option<String>,
}

pub(crate) async fn run(session: &Session, args: TransactionArgs) -> Result<(), Failure> {
    let TransactionArgs { file, foreign, key } = args;
    let transaction: Value = values::object_in(&file)?.into();
    // The service rejects what cannot be read here, and names the field.
    let operations: Vec<_> = transaction["operations"].as_array().into_iter().flatten().collect();
    let operations: Vec<_> = operations.into_iter().map(|operation| Operation::deserialize(operation).ok()).collect();
    let table = |results: &[OperationResult]| output::results(&operations, results);
    let request =
        write(Method::POST, "transactions", &key).query("allow_foreign", foreign.parameter()).body(&transaction);
    match session.send::<TransactionAnswer>(request).await {
        Ok(answer) => session.output.answer(&answer.json, || table(&answer.results)),
        Err(failure) => {
            let results = failure.problem().and_then(|problem| problem.members.get("results"));
            let results = results.and_then(|results| Vec::<OperationResult>::deserialize(results).ok());
            if let Some(results) = results.filter(|_| !session.output.is_json()) {
                output::print(&table(&results))?;
            }
            Err(failure)
        }
    }
}
