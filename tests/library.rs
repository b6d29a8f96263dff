//! `nameservice`: the library as its users call it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    middleware::{self, Next},
};
use futures_util::{StreamExt, TryStreamExt, poll};
use http::{Response, StatusCode, header};
use nameservice::{Error, Nameservice, Options, Place, Rejection, connect_with, replica};
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

/// The reason of a write that was rejected.
fn rejection<T: std::fmt::Debug>(written: Result<T, Error>) -> Rejection {
    match written.unwrap_err() {
        Error::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn writes_return_what_they_have_written_or_why_they_were_rejected() {
    for ns in everywhere().await {
        let mydb = ns.create_ledger("mydb").head(cid(1), 1).await.unwrap();
        assert_eq!((mydb.t(), mydb.state()), (1, Some("ready")));
        assert_eq!(rejection(ns.create_ledger("mydb").await), Rejection::AlreadyExists);
        assert_eq!(ns.create_ledger("mydb").or_existing().await.unwrap(), mydb);

        let search = ns.publish_graph_source("search", "f:Bm25Index", Object::new()).depends_on([at("mydb")]).await;
        assert_eq!(search.unwrap().dependencies, ["mydb:main"]);
        let kind = RecordKind::GraphSource;
        let source_type = Some("f:Bm25Index".to_owned());
        let existing = ns.create_ledger("search").or_existing().await;
        assert_eq!(rejection(existing), Rejection::WrongKind { kind, source_type });
        let missing = ns.publish_graph_source("other", "f:Bm25Index", Object::new()).depends_on([at("gone")]).await;
        assert_eq!(rejection(missing), Rejection::MissingDependencies(vec![at("gone")]));
        assert_eq!(ns.dependents(&mydb).await.unwrap(), [at("search")]);
        ns.purge("search").await.unwrap();

        let dev = ns.create_branch("mydb:dev", &mydb).at(cid(1), 1).await.unwrap();
        assert_eq!((dev.t(), dev.source_branch.as_deref()), (1, Some("main")));
        assert_eq!(rejection(ns.create_branch("mydb:dev", &mydb).await), Rejection::AlreadyExists);
        assert_eq!(rejection(ns.create_branch("x:dev", "x").await), Rejection::UnknownSource);
        assert_eq!(rejection(ns.retract(&mydb).await), Rejection::HasDependents);
        assert_eq!(ns.drop_branch(&dev).await.unwrap(), 0);
        assert_eq!(rejection(ns.drop_branch(&mydb).await), Rejection::NotABranch);

        ns.protect(&mydb, true).await.unwrap();
        assert_eq!(rejection(ns.purge(&mydb).await), Rejection::Protected);
        ns.protect(&mydb, false).await.unwrap();

        assert!(matches!(ns.reset(&mydb).await, Err(Error::Value(error)) if error.path == "head"));
        let (reset, index) = ns.reset(&mydb).head(cid(5), 5).index(index_cid(4), 4).await.unwrap();
        assert_eq!((reset.t(), reset.commit()), (5, Some(&cid(5))));
        assert_eq!((index.t(), index.root()), (4, Some(&index_cid(4))));
        let (reset, index) = ns.reset(&mydb).unborn().await.unwrap();
        assert_eq!((reset.t(), reset.commit(), index.t(), index.root()), (0, None, 0, None));

        let retracted = ns.retract(&mydb).reason("moved").await.unwrap();
        assert_eq!((retracted.retracted, retracted.status.get("reason")), (true, Some(&json!("moved"))));
        assert_eq!(rejection(ns.create_ledger("mydb").or_existing().await), Rejection::Retracted);
        assert!(!ns.restore(&mydb).await.unwrap().retracted);
        let call = Call::fresh();
        for _ in 0..2 {
            // Repeated with the same call, it is answered as the first time.
            ns.purge(&mydb).call(call.clone()).await.unwrap();
        }
        assert_eq!(rejection(ns.purge(&mydb).await), Rejection::Unknown);
        assert_eq!(ns.lookup(&mydb).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_rejection_carries_what_is_stored_and_says_it() {
    for ns in everywhere().await {
        let mydb = ns.create_ledger("mydb").head(cid(7), 7).await.unwrap();
        let stored = || Box::new(ConcernState::Head(head(7)));
        let pushed = ns.head(&mydb).unwrap().push(cid(8), 8).expect_unborn().await.unwrap().updated();
        let conflict = rejection(pushed.map_err(Error::from));
        assert_eq!(conflict, Rejection::Conflict { actual: Some(stored()) });
        assert_eq!(conflict.to_string(), "the expected value does not match: the head is at 7");
        let pushed = ns.head(&mydb).unwrap().push(cid(3), 3).await.unwrap().updated();
        assert_eq!(rejection(pushed.map_err(Error::from)), Rejection::Stale { actual: stored() });
        assert_eq!(ns.head(&mydb).unwrap().push(cid(8), 8).await.unwrap().updated(), Ok(head(8)));

        let lease = |holder: &str| ns.lease(&mydb, LeaseName::INDEX, holder).unwrap().acquire();
        let held = lease("one").await.unwrap();
        let Rejection::LeaseHeld { lease: stored } = rejection(lease("two").await) else { panic!("not held") };
        assert_eq!((stored.holder.as_str(), &*stored), ("one", held.lease()));
        let claim = held.claim();
        let _ = held.release().await.unwrap();
        let pushed = ns.head(&mydb).unwrap().push(cid(9), 9).under(claim).await.unwrap().updated();
        assert_eq!(rejection(pushed.map_err(Error::from)), Rejection::LeaseLost { lease: None });

        let publish = || ns.publish_graph_source("search", "f:X", object(json!({"a": 1})));
        publish().await.unwrap();
        let Rejection::Conflict { actual: Some(actual) } = rejection(publish().expect_v(0).await) else {
            panic!("written")
        };
        assert!(matches!(&*actual, ConcernState::Config(config) if config.get("a") == Some(&json!(1))), "{actual:?}");

        let operations = [
            ns.head(&mydb).unwrap().push(cid(9), 9).expect(head(8)).into_operation().unwrap(),
            ns.status("search")
                .unwrap()
                .set("error", Object::new())
                .expect(Status::stored(9, None))
                .into_operation()
                .unwrap(),
        ];
        let rejected = rejection(ns.commit(operations).await);
        let reason =
            "operations of the transaction were rejected: 2 (the expected value does not match: the status is at 1)";
        assert_eq!(rejected.to_string(), reason);
        assert_eq!(ns.head(&mydb).unwrap().get().await.unwrap(), Some(head(8)), "none was applied");
        let status = ns.status("search").unwrap();
        assert!(matches!(status.set("error", Object::new()).into_push(), Err(Error::Value(_))), "it expects nothing");
        assert_eq!(status.set("error", Object::new()).v(7).await.unwrap().updated().unwrap().v, 7);
        let config = ns.config(&mydb).unwrap().set(object(json!({"a": 2}))).await.unwrap().updated().unwrap();
        assert_eq!((config.v, config.get("a")), (1, Some(&json!(2))));
    }
}

#[tokio::test]
async fn lists_and_snapshots_are_streams_that_are_read_page_by_page() {
    for ns in everywhere().await {
        let names = ["tenant/a", "tenant/b", "tenant/c", "tenant/d", "tenant/e"];
        for name in ["other", "tenant"].into_iter().chain(names) {
            ns.create_ledger(name).await.unwrap();
        }
        let expected = names.map(|name| format!("{name}:main"));
        let list = || ns.list("tenant/*").page_size(Limit::new(2).unwrap());
        let addresses =
            |listed: &[Listed]| listed.iter().map(|listed| listed.address().to_string()).collect::<Vec<_>>();
        assert_eq!(addresses(&list().await.unwrap()), expected);
        let pages = list().pages().all().await.unwrap();
        assert!(pages.iter().all(|page| page.items.len() <= 2) && pages.len() >= 3, "{pages:?}");
        assert_eq!(pages.iter().flat_map(|page| addresses(&page.items)).collect::<Vec<_>>(), expected);
        let mut first = list().pages();
        let cursor = first.try_next().await.unwrap().unwrap().cursor.unwrap();
        assert_eq!(addresses(&list().after(cursor).await.unwrap()), expected[2..]);
        let some: Vec<_> = list().full().stream().take(3).try_collect().await.unwrap();
        assert!(some.iter().all(|listed| matches!(listed, Listed::Full(_))));
        assert!(list().kind(RecordKind::GraphSource).await.unwrap().is_empty());
        let mut none = ns.list("").stream();
        assert!(matches!(none.next().await, Some(Err(Error::Glob(_)))));
        assert!(none.next().await.is_none());

        let mut snapshot = ns.snapshot().address("tenant/?").address("tenant/?:*").page_size(Limit::ONE).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = snapshot.try_next().await.unwrap() {
            found.push(record.address.to_string());
        }
        found.sort();
        assert_eq!(found, expected);
        for name in ["other", "tenant/a"] {
            ns.head(name).unwrap().push(cid(1), 1).await.unwrap().updated().unwrap();
        }
        let mut changes = snapshot.changes().part(ConcernKind::Head).follow();
        assert_eq!(changes.position(), Some(snapshot.position()));
        assert_eq!(address(changes.try_next().await.unwrap().unwrap()), "tenant/a:main");
        let history = ns.history("tenant/a").part(ConcernKind::Head).newest_first().await.unwrap();
        assert_eq!(history.changes.iter().map(|change| change.watermark).collect::<Vec<_>>(), [1]);
        let both = ns.lookup_all(["other", "gone", "tenant/a"]).await.unwrap();
        assert_eq!(both.iter().map(Record::t).collect::<Vec<_>>(), [1, 1]);
    }
}

#[tokio::test]
async fn the_token_of_the_options_is_sent_with_every_request_of_a_client_and_of_a_replica() {
    let service = InProcess::new();
    let url = service
        .serve_through(|router| {
            router.layer(middleware::from_fn(|request: Request, next: Next| async move {
                match request.headers().get(header::AUTHORIZATION).is_some_and(|token| token == "Bearer secret") {
                    true => next.run(request).await,
                    false => Response::builder().status(StatusCode::UNAUTHORIZED).body(Body::empty()).unwrap(),
                }
            }))
        })
        .await;
    let place: Place = url.parse().unwrap();
    let options = || Options::default().token("secret");
    connect_with(&place, options()).await.unwrap().create_ledger("mydb").head(cid(1), 1).await.unwrap();
    assert!(connect_with(&place, Options::default()).await.unwrap().lookup("mydb").await.is_err());
    let replica = replica(&url).options(options()).start().await.unwrap();
    replica.ready().await;
    assert_eq!(replica.names().lookup("mydb").await.unwrap().unwrap().t(), 1);
}

#[tokio::test]
async fn without_a_deadline_a_request_is_sent_once() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let url = InProcess::new()
        .serve_through(|router| {
            router.layer(middleware::from_fn(move |_: Request, _: Next| {
                counted.fetch_add(1, SeqCst);
                async { Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(Body::empty()).unwrap() }
            }))
        })
        .await;
    let ns = connect_with(&url.parse().unwrap(), Options::default().deadline(Duration::ZERO)).await.unwrap();
    assert!(ns.lookup("mydb").await.is_err());
    assert_eq!(requests.load(SeqCst), 1);
}
