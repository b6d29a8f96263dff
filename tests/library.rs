//! `nameservice`: the library as its users call it.

use futures_util::{StreamExt, TryStreamExt, poll};
use nameservice::{ChangeEvent, Error, Nameservice};
use nameservice_tests::{in_process::InProcess, prelude::*};

/// The library over the embedded backend, and over a service.
async fn everywhere() -> [Nameservice; 2] {
    let service = InProcess::new();
    let url = service.serve().await;
    [nameservice::connect("memory:").await.unwrap(), nameservice::connect(&url).await.unwrap()]
}

fn address(event: ChangeEvent) -> String {
    match event {
        ChangeEvent::Change(change) => change.address.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_follows_is_a_stream_that_can_be_cancelled_and_whose_position_passes_other_changes() {
    for ns in everywhere().await {
        ns.create_ledger("mydb").await.unwrap();
        let first = ns.feed().position().await.unwrap();
        ns.create_ledger("other").await.unwrap();
        let end = ns.feed().position().await.unwrap();
        assert!(0 < first && first < end);
        let follow = |pattern: &str| ns.changes().after(0).address(pattern).follow();
        let mut all: Vec<String> = follow("*").take(end as usize).map_ok(address).try_collect().await.unwrap();
        all.dedup();
        assert_eq!(all, ["mydb:main", "other:main"]);
        let mut changes = follow("mydb:*");
        assert_eq!(changes.position(), Some(0));
        for _ in 0..first {
            assert_eq!(address(changes.try_next().await.unwrap().unwrap()), "mydb:main");
        }
        while changes.position() != Some(end) {
            // Each wait is cancelled after one poll.
            assert!(poll!(Box::pin(changes.next())).is_pending());
            tokio::task::yield_now().await;
        }
        ns.create_ledger("mydb:dev").await.unwrap();
        assert_eq!(address(changes.next().await.unwrap().unwrap()), "mydb:dev");
        assert_eq!(changes.position(), Some(end + 1));
    }
}

#[tokio::test]
async fn a_pattern_that_is_none_is_one_error_and_the_end_of_the_stream() {
    for ns in everywhere().await {
        let mut changes = ns.changes().address("").follow();
        let error = changes.next().await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Glob(_)), "{error}");
        assert!(changes.next().await.is_none());
        assert!(changes.try_next().await.unwrap().is_none());
    }
}
