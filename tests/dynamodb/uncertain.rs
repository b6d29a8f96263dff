//! Whatever DynamoDB answers after an attempt of unknown outcome, or after a write that it has applied: the answer to the
//! caller is never that nothing was written (docs/specification.md, Answers).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use nameservice_store::RetryPolicy;
use nameservice_tests::{engine, prelude::*};

use super::writes::Write;

/// What DynamoDB can answer to a request, besides a rejected condition.
const ERRORS: [(u16, &str); 23] = [
    (400, "AccessDeniedException"),
    (400, "ExpiredTokenException"),
    (400, "IdempotentParameterMismatchException"),
    (400, "IncompleteSignatureException"),
    (400, "InvalidSignatureException"),
    (400, "ItemCollectionSizeLimitExceededException"),
    (400, "KMSAccessDeniedException"),
    (400, "LimitExceededException"),
    (400, "MissingAuthenticationTokenException"),
    (400, "ProvisionedThroughputExceededException"),
    (400, "ReplicatedWriteConflictException"),
    (400, "RequestLimitExceeded"),
    (400, "ResourceNotFoundException"),
    (400, "SerializationException"),
    (400, "ThrottlingException"),
    (400, "TransactionConflictException"),
    (400, "TransactionInProgressException"),
    (400, "UnrecognizedClientException"),
    (400, "ValidationException"),
    (400, "SomethingNewException"),
    (413, "RequestEntityTooLarge"),
    (500, "InternalServerError"),
    (503, "ServiceUnavailable"),
];

/// Those after which a request is repeated.
const BUSY: [&str; 8] = [
    "InternalServerError",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
];

const ANYTHING: [&str; 8] =
    ["GetItem", "Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"];

/// Gives up after milliseconds.
const fn within(milliseconds: u64) -> RetryPolicy {
    RetryPolicy {
        deadline: Duration::from_millis(milliseconds),
        base: Duration::from_millis(1),
        cap: Duration::from_millis(2),
    }
}

fn errors() -> Vec<(&'static str, Fault)> {
    let mut errors: Vec<_> = ERRORS.iter().map(|(status, code)| (*code, Fault::answer(*status, code))).collect();
    errors.push(("a transaction that can never be applied", Fault::cancelled(&["None", "ValidationError", "None"])));
    errors
}

/// Prepares an operation, lets this happen to the request by which it writes, and answers everything after it with this
/// error. Returns the answer; `None` if the operation did not come as far as writing.
async fn write_then(
    (operation, name): (Write, &str),
    table: &Proxied,
    policy: RetryPolicy,
    (write, error): (Fault, Fault),
) -> Option<Result<(bool, String)>> {
    operation.prepare(table, name).await;
    let written = Arc::new(AtomicBool::new(false));
    let (remote, seen) = (table.proxy.remote(), written.clone());
    let arm = move || {
        let (proxy, error) = (remote.clone(), error.clone());
        seen.store(true, SeqCst);
        async move { proxy.on_each(&ANYTHING, error.always()) }
    };
    let write = write.skipping(operation.rejected_first()).after(arm);
    table.proxy.on_each(&["UpdateItem", "TransactWriteItems"], write);
    let store = table.store.clone().with_retry_policy(policy);
    let answer = operation.make(&store, &Call::fresh(), name).await;
    table.proxy.disarm();
    written.load(SeqCst).then_some(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_follows_a_lost_reply_the_outcome_is_unknown_or_that_of_the_write() {
    let table = Proxied::fresh().await;
    for (n, (code, error)) in errors().into_iter().enumerate() {
        for operation in Write::ALL.into_iter().filter(|operation| operation.rejected_first() == 0) {
            // What is repeated until the deadline has a short one, and a longer one if it passed before the write.
            let deadlines: &[u64] = if BUSY.contains(&code) { &[12, 120, 1_200, 12_000] } else { &[120_000] };
            let mut answer = None;
            for (m, deadline) in deadlines.iter().enumerate() {
                let name = format!("{operation:?}-{n}-{m}").to_lowercase();
                let faults = (Fault::cut_reply(), error.clone());
                answer = write_then((operation, &name), &table, within(*deadline), faults).await;
                if answer.is_some() {
                    break;
                }
            }
            match answer {
                Some(Err(Error::OutcomeUnknown { .. }) | Ok((true, _))) => {}
                other => panic!("{operation:?} and then {code}: {other:?}"),
            }
        }
    }
}

/// Also where the first request is rejected, and another one writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_a_write_does_not_depend_on_what_fails_after_it() {
    let table = Proxied::fresh().await;
    let expired = || Fault::answer(400, "ExpiredTokenException");
    for operation in Write::ALL {
        let name = format!("{operation:?}").to_lowercase();
        let faults = (Fault::none(), expired());
        let answer = write_then((operation, &name), &table, engine::RETRIES, faults).await;
        assert!(matches!(answer, Some(Ok((true, _)))), "{operation:?}: {answer:?}");
        if operation.rejected_first() > 0 {
            let (name, faults) = (format!("{name}-lost"), (Fault::cut_reply(), expired()));
            let answer = write_then((operation, &name), &table, engine::RETRIES, faults).await;
            assert!(matches!(answer, Some(Err(Error::OutcomeUnknown { .. }))), "{operation:?}: {answer:?}");
        }
    }
    for operation in [Write::Purge, Write::Drop, Write::Reset] {
        let name = format!("{operation:?}-busy").to_lowercase();
        let faults = (Fault::none(), Fault::answer(400, "ThrottlingException"));
        let answer = write_then((operation, &name), &table, within(300), faults).await;
        assert!(matches!(answer, None | Some(Ok((true, _)))), "{operation:?}: {answer:?}");
    }
}

/// A push that is planned again and again, before an engine that is slow and busy.
#[tokio::test]
async fn a_call_has_one_deadline_whatever_it_repeats() {
    let table = Proxied::fresh().await;
    let db = at("mydb");
    table.direct().create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    let store = table.store.clone().with_retry_policy(within(300));
    // Each answer is late, and shows another index than the last: the push is planned again from each.
    let (direct, address) = (table.direct().clone(), db.clone());
    let counter = Arc::new(AtomicI64::new(0));
    let slow = Fault::none().always().before(move || {
        let (store, db, n) = (direct.clone(), address.clone(), counter.fetch_add(1, SeqCst));
        async move {
            store.push_index(&Call::fresh(), &db, &IndexPush::overwrite(index_of(100 + n, 5))).await.unwrap().applied();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    table.proxy.on("UpdateItem", slow);
    let error = store.push_index(&Call::fresh(), &db, &IndexPush::overwrite(index_of(50, 5))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(table.proxy.count("UpdateItem") < 8, "it gives up by time, not by the number of plans");
}

/// The reads of a purge that is planned again are a part of it.
#[tokio::test]
async fn a_read_that_fails_after_a_lost_reply_leaves_the_outcome_unknown() {
    let table = Proxied::fresh().await;
    table.proxy.forget_tokens();
    let db = at("mydb");
    table.direct().create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    table.proxy.on("TransactWriteItems", Fault::cut_reply());
    table.proxy.on("Query", Fault::answer(400, "ExpiredTokenException").skipping(1).always());
    let outcome = table.store.retract(&Call::fresh(), &db, None).await;
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
}
