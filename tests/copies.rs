//! Copies to a table whose engine fails meanwhile.

use std::{sync::Arc, time::Duration};

use nameservice::DynamoDb;
use nameservice_embedded::{Embedded, Options};
use nameservice_sync::{BackendSource, CopyOptions, copy};
use nameservice_tests::prelude::*;

use crate::faults::IMPATIENT;

const NAMES: [&str; 3] = ["a", "b", "c"];

async fn source() -> Arc<Embedded> {
    let source = Embedded::memory(Options::default()).unwrap();
    for name in NAMES {
        source.create_ledger(&Call::fresh(), &at(name), Some(&new_head(3)), None).await.unwrap().applied();
    }
    Arc::new(source)
}

async fn assert_copied(source: Arc<Embedded>, table: &Proxied) {
    let target: Arc<dyn Backend> =
        Arc::new(DynamoDb::new(table.store.clone().with_retry_policy(IMPATIENT), table.feed.clone()));
    let report = copy(&BackendSource::new(source), &target, &CopyOptions::default(), &|_| {}).await.unwrap();
    assert!(report.is_complete(), "{report:#?}");
    for name in NAMES {
        assert_eq!(table.direct().head(&at(name)).await.unwrap(), Some(head(3)), "{name}");
    }
}

#[tokio::test]
async fn a_target_that_is_away_for_a_moment_is_waited_for() {
    let (source, table) = (source().await, Proxied::fresh().await);
    table.proxy.on_writes(Fault::answer(400, "ThrottlingException").always());
    let comes_back = async {
        // Longer than one write is retried.
        tokio::time::sleep(IMPATIENT.deadline + Duration::from_millis(200)).await;
        table.proxy.disarm();
    };
    tokio::join!(assert_copied(source, &table), comes_back);
}

#[tokio::test]
async fn what_a_target_has_written_without_an_answer_is_found_there() {
    let (source, table) = (source().await, Proxied::fresh().await);
    table.proxy.on_writes(Fault::cut_reply().always());
    assert_copied(source, &table).await;
}
