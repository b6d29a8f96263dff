//! Transactions.

use async_trait::async_trait;
use http::Method;
use nameservice_api::{ProblemKind, transactions};
use nameservice_model::{
    Call, Committed, Error, Operation, OperationOutcome, Result, Transaction, TransactionPublisher,
};

use crate::{
    Client, Request,
    client::Repeated,
    outcomes::{invalid, unknown},
};

#[async_trait]
impl TransactionPublisher for Client {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        const OPERATION: &str = "commit a transaction";
        let body = transactions::Transaction::try_from(transaction)
            .map_err(|error| Error::Store { operation: OPERATION, source: error.into() })?;
        let request = Request::of_call(Method::POST, "transactions", call).body(&body);
        let Repeated { answer, maybe_applied, .. } = self.repeat::<transactions::TransactionAnswer>(&request).await;
        let operations = transaction.operations();
        match answer {
            Ok(answer) => Ok(Committed::Committed(outcomes(OPERATION, answer.results, operations)?)),
            Err(error) if error.problem() == Some(ProblemKind::TransactionRejected) => {
                if maybe_applied {
                    return Err(unknown(OPERATION));
                }
                let results = error.member("results").unwrap_or_default();
                Ok(Committed::Rejected(outcomes(OPERATION, results, operations)?))
            }
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }
}

fn outcomes(
    operation: &'static str,
    results: Vec<transactions::OperationResult>,
    operations: &[Operation],
) -> Result<Vec<OperationOutcome>> {
    if results.len() != operations.len() {
        let source = format!("{} results of {} operations", results.len(), operations.len()).into();
        return Err(Error::Store { operation, source });
    }
    let outcomes = results.into_iter().zip(operations).map(|(result, of)| result.into_outcome(of.action.concern()));
    outcomes.collect::<Result<_, _>>().map_err(invalid(operation))
}
