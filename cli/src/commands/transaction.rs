//! `transaction`

use http::Method;
use serde_json::Value;

use super::Session;
use crate::{args::TransactionArgs, client::Request, failure::Failure, output, values};

pub(super) async fn run(session: &Session, args: TransactionArgs) -> Result<(), Failure> {
    let TransactionArgs { file, key } = args;
    let transaction: Value = values::object_in(&file)?.into();
    let operations = transaction["operations"].as_array().cloned().unwrap_or_default();
    let table = |results: &Value| output::results(&operations, results.as_array().map_or(&[], Vec::as_slice));
    match session.send(Request::write(Method::POST, "transactions", &key).body(transaction)).await {
        Ok(answer) => session.output.answer(&answer, || table(&answer["results"])),
        Err(failure) => {
            let results = failure.problem().and_then(|problem| problem.members.get("results"));
            if let Some(results) = results.filter(|_| !session.output.is_json()) {
                output::print(&table(results))?;
            }
            Err(failure)
        }
    }
}
