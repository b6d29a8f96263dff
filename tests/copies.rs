//! Copies to a table whose engine fails meanwhile.

use std::{sync::Arc, time::Duration};

use nameservice::DynamoDb;
use nameservice_client::Client;
use nameservice_embedded::{Embedded, Options};
use nameservice_http::App;
use nameservice_sync::{
    BackendSource, CopyOptions, Report, copy,
    remotes::{self, MoveOptions, Tracking},
    report::Records,
};
use nameservice_tests::{in_process::InProcess, prelude::*};

use crate::{
    faults::IMPATIENT,
    routes::authorization::{narrow, scope, verifying},
};

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

/// Neither takes a condition on the wire.
#[tokio::test]
async fn a_push_to_a_remote_retracts_and_restores_nothing_whose_status_was_written_since_it_was_compared() {
    for is_retracted in [false, true] {
        let (local, table, a) = (source().await, Proxied::fresh().await, at("a"));
        assert_copied(local.clone(), &table).await;
        let store = table.direct().clone();
        if is_retracted {
            store.retract(&Call::fresh(), &a, None).await.unwrap().applied();
            local.retract(&Call::fresh(), &a, None).await.unwrap().applied();
        }
        let directory = tempfile::tempdir().unwrap();
        let tracking = Tracking::of(directory.path()).unwrap();
        let remote: Arc<dyn Backend> = Arc::new(DynamoDb::new(table.store.clone(), table.feed.clone()));
        remotes::fetch(&remote, None, &tracking, "origin", &|_| {}).await.unwrap();
        let local: Arc<dyn Backend> = local;
        let options = MoveOptions::default();
        let push = async || remotes::push(&local, &remote, None, &tracking, "origin", &options, &|_| {}).await.unwrap();
        assert!(push().await.is_settled(), "equal on both sides");
        match is_retracted {
            true => local.restore(&Call::fresh(), &a).await.unwrap().applied(),
            false => local.retract(&Call::fresh(), &a, None).await.unwrap().applied(),
        }
        // Before the first look at the record.
        let hooked = store.clone();
        table.proxy.on(
            "Query",
            Fault::none().before(move || {
                let (store, a) = (hooked.clone(), at("a"));
                async move {
                    if is_retracted {
                        store.restore(&Call::fresh(), &a).await.unwrap().applied();
                    }
                    let current = store.status(&a).await.unwrap().unwrap();
                    let push = cas(Status::stored(current.v, None), status(current.v + 1, "indexing"));
                    store.push_status(&Call::fresh(), &a, &push).await.unwrap().applied();
                    if is_retracted {
                        store.retract(&Call::fresh(), &a, Some("again")).await.unwrap().applied();
                    }
                }
            }),
        );
        let pushed = push().await;
        assert!(table.proxy.is_spent());
        let found = store.lookup(&a).await.unwrap().unwrap();
        assert_eq!(found.retracted, is_retracted, "what was not seen stays: {found:?}, {pushed:?}");
    }
}

/// A service that requires tokens, and its URL.
async fn guarded() -> (InProcess, String) {
    let service = InProcess::with(|backend| App::new(backend.clone(), backend, verifying()));
    let url = service.serve().await;
    (service, url)
}

fn reasons(records: &Records) -> Vec<(&str, &str)> {
    let entries = records.records.iter();
    let mut found: Vec<_> =
        entries.map(|entry| (entry.address.as_str(), entry.reason.as_deref().unwrap_or_default())).collect();
    found.sort_unstable();
    found
}

/// What a token may not see or write is reported once, with the reason: that it is behind would say to copy it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_says_of_each_record_why_a_token_did_not_suffice() {
    let (from, from_url) = guarded().await;
    for name in ["plain", "protected", "secret"] {
        let _ = from.backend.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap();
    }
    assert_eq!(from.backend.protect(&Call::fresh(), &at("protected"), true).await.unwrap(), Protection::Set);
    let config = NewConfig::new(json!({ "password": "p" }).as_object().unwrap().clone()).unwrap();
    let push = ConfigPush::cas(Config::stored(0, None), config);
    assert!(from.backend.push_config(&Call::fresh(), &at("secret"), &push).await.unwrap().is_updated());
    let copied = async |from_token: String, to: &str, to_token: String, is_dry: bool| -> Report {
        let of = |url: &str, token: String| -> Arc<dyn Backend> {
            Arc::new(Client::builder(url).token(token).build().unwrap())
        };
        let source = BackendSource::new(of(&from_url, from_token));
        let options = CopyOptions::default().dry_run(is_dry);
        let report = copy(&source, &of(to, to_token), &options, &|_| {}).await.unwrap();
        assert!(report.behind.is_empty(), "none would be copied another time: {report:#?}");
        report
    };
    let (admin, writer, reader) = (scope("nameservice:admin"), scope("nameservice:write"), scope("nameservice:read"));
    let (to, to_url) = guarded().await;
    // Nothing can be written.
    let report = copied(admin.clone(), &to_url, reader.clone(), false).await;
    let rejected = reasons(&report.rejected);
    assert_eq!(
        rejected.iter().map(|(address, _)| *address).collect::<Vec<_>>(),
        ["plain:main", "protected:main", "secret:main"]
    );
    assert!(rejected.iter().all(|(_, reason)| reason.contains("scope")), "{rejected:?}");
    assert_eq!((report.copied.count, report.already_there, report.is_complete()), (0, 0, false));
    assert_eq!(to.backend.position().await.unwrap(), 0);
    // Not all addresses are covered.
    let report = copied(admin.clone(), &to_url, narrow("nameservice:admin", json!(["plain"])), false).await;
    assert_eq!((report.copied.count, reasons(&report.rejected).len()), (1, 2));
    // The secret cannot be read, and the protection cannot be written: a dry run knows of the first.
    for is_dry in [true, false] {
        let report = copied(reader.clone(), &to_url, writer.clone(), is_dry).await;
        let rejected = reasons(&report.rejected);
        let secret = rejected.iter().find(|(address, _)| *address == "secret:main").unwrap();
        assert!(secret.1.contains("without its secrets"), "{rejected:?}");
        assert_eq!((reasons(&report.copied), report.already_there), (vec![("protected:main", "")], 1), "{report:#?}");
        if !is_dry {
            assert!(rejected[0].0 == "protected:main" && rejected[0].1.contains("protection"), "{rejected:?}");
        }
        assert_eq!((rejected.len(), report.is_complete()), (if is_dry { 1 } else { 2 }, false));
    }
    assert!(!to.backend.lookup(&at("protected")).await.unwrap().unwrap().protected);
    assert_eq!(to.backend.lookup(&at("secret")).await.unwrap(), None);
    // With the tokens that it takes.
    let report = copied(writer, &to_url, admin.clone(), false).await;
    assert!(report.is_complete() && report.copied.count == 2, "{report:#?}");
    // A record that is there: everything but the config is copied, which is not known.
    let push = HeadPush::monotonic(new_head(2));
    assert!(from.backend.push_head(&Call::fresh(), &at("secret"), &push).await.unwrap().is_updated());
    let report = copied(reader, &to_url, admin, false).await;
    assert_eq!((reasons(&report.copied), report.already_there), (vec![("secret:main", "")], 2));
    let unknown = reasons(&report.unknown);
    assert!(matches!(unknown[..], [("secret:main", reason)] if reason.contains("token")), "{unknown:?}");
    assert_eq!(to.backend.head(&at("secret")).await.unwrap(), Some(head(2)));
}
