//! `nameservice::replica`: a replica in the process of its readers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{Router, extract::Request, middleware};
use nameservice::{ChangeEvent, Replica, ReplicaState, replica};
use nameservice_client::Client;
use nameservice_embedded::{Embedded, Options};
use nameservice_tests::{in_process::InProcess, link::Link, prelude::*, pump::pump, service::Service};

/// The deadline for what happens without a request.
const DEADLINE: Duration = nameservice_tests::LONG;

async fn push(service: &InProcess, address: &str, t: i64) {
    let push = HeadPush::monotonic(new_head(t));
    assert!(service.backend.push_head(&Call::fresh(), &at(address), &push).await.unwrap().is_updated());
}

async fn created(service: &InProcess, address: &str) {
    let created = service.backend.create_ledger(&Call::fresh(), &at(address), Some(&new_head(1)), None).await.unwrap();
    assert!(matches!(created, Created::Created(_)));
}

async fn caught_up(replica: &Replica, service: &InProcess) {
    let position = service.backend.position().await.unwrap();
    assert!(replica.reached(position, DEADLINE).await, "the replica does not reach {position}");
}

/// How often each route was called.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn around(&self, router: Router) -> Router {
        let counts = self.0.clone();
        router.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
            let path = request.uri().path().to_owned();
            *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(path).or_default() += 1;
            next.run(request)
        }))
    }

    fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_server_reads_from_its_own_memory_and_receives_each_change() {
    let (service, counts) = (InProcess::new(), Counts::default());
    created(&service, "mydb").await;
    let url = service.serve_through(|router| counts.around(router)).await;
    let replica = replica(&url).start().await.unwrap();
    replica.ready().await;
    // Its stream is open once a change has come over it.
    push(&service, "mydb", 2).await;
    caught_up(&replica, &service).await;
    counts.take();
    let head = replica.names().head("mydb").unwrap();
    for _ in 0..1_000 {
        assert_eq!(head.get().await.unwrap().unwrap().v, 2);
    }
    assert_eq!(counts.take(), BTreeMap::new(), "reads are no requests");
    let mut changes = replica.names().changes().after(replica.position()).address("mydb:*").follow();
    for t in 3..50 {
        push(&service, "mydb", t).await;
        let ChangeEvent::Change(change) = changes.next().await.unwrap().unwrap() else { panic!("gone") };
        assert_eq!((change.watermark, change.position), (t, service.backend.position().await.unwrap()));
        assert_eq!(head.get().await.unwrap().unwrap().v, t, "a change is shown once it can be read");
    }
    assert_eq!(counts.take(), BTreeMap::new(), "changes come over the stream that is open");
    // Writes go to the service, and can be read here immediately.
    for t in 50..60 {
        let pushed = head.push(cid(t), t).expect(head.get().await.unwrap().unwrap()).await.unwrap();
        assert!(pushed.is_updated());
        assert_eq!(head.get().await.unwrap().unwrap().v, t);
        assert_eq!(service.backend.head(&at("mydb")).await.unwrap().unwrap().v, t);
    }
    assert_eq!(replica.state(), ReplicaState::Following);
    assert!(replica.age().unwrap() < DEADLINE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_a_directory_begins_there_while_the_service_is_away() {
    let service = InProcess::new();
    created(&service, "mydb").await;
    let mut link = Link::to(&service.serve().await).await;
    let directory = tempfile::tempdir().unwrap();
    let start = || replica(link.url()).directory(directory.path()).start();
    let first = start().await.unwrap();
    first.ready().await;
    caught_up(&first, &service).await;
    let position = first.position();
    tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
    let url = link.url().to_owned();
    link.cut();
    // The writer of the previous replica may still be closing its log.
    let begun = tokio::time::Instant::now();
    let again = loop {
        match replica(&url).directory(directory.path()).deadline(Duration::ZERO).start().await {
            Ok(again) => break again,
            Err(error) => assert!(begun.elapsed() < DEADLINE, "{error}"),
        }
        tokio::task::yield_now().await;
    };
    again.ready().await;
    assert_eq!((again.position(), again.age()), (position, None));
    assert_eq!(again.names().head("mydb").unwrap().get().await.unwrap().unwrap().v, 1);
    assert!(matches!(again.state(), ReplicaState::Detached(_)));
    let written = again.names().head("mydb").unwrap().push(cid(2), 2).await;
    assert!(written.is_err(), "{written:?}");
    push(&service, "mydb", 3).await;
    link.mend();
    caught_up(&again, &service).await;
    assert_eq!(again.names().head("mydb").unwrap().get().await.unwrap().unwrap().v, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_position_has_expired_reads_a_snapshot_and_continues() {
    let ahead = Arc::new(Mutex::new(Duration::ZERO));
    let hour = Duration::from_secs(3_600);
    let backend = Embedded::memory(Options::default().with_retention(hour)).unwrap();
    let clock = ahead.clone();
    let backend = backend.with_clock(move || SystemTime::now() + *clock.lock().unwrap());
    let (service, counts) = (InProcess::over(backend), Counts::default());
    created(&service, "mydb").await;
    created(&service, "gone").await;
    let mut link = Link::to(&service.serve_through(|router| counts.around(router)).await).await;
    let replica = replica(link.url()).start().await.unwrap();
    replica.ready().await;
    caught_up(&replica, &service).await;
    assert_eq!(counts.take().get("/v1/snapshot"), Some(&1));
    let mut changes = replica.names().changes().after(replica.position()).follow();
    link.cut();
    push(&service, "mydb", 7).await;
    assert_eq!(service.backend.purge(&Call::fresh(), &at("gone")).await.unwrap(), Purged::Purged);
    *ahead.lock().unwrap() = 2 * hour;
    push(&service, "mydb", 8).await;
    link.mend();
    caught_up(&replica, &service).await;
    assert_eq!(replica.names().head("mydb").unwrap().get().await.unwrap().unwrap().v, 8);
    assert_eq!(replica.names().lookup("gone").await.unwrap(), None, "what was purged meanwhile is gone");
    let asked = counts.take();
    assert_eq!(asked.get("/v1/snapshot"), Some(&1), "{asked:?}");
    // Its own readers receive `Gone`: they have missed something.
    assert!(matches!(changes.next().await.unwrap().unwrap(), ChangeEvent::Gone { .. }));
    push(&service, "mydb", 9).await;
    caught_up(&replica, &service).await;
    assert_eq!(counts.take().get("/v1/snapshot"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_passes_a_gap_in_its_upstreams_feed_with_one_snapshot() {
    let (service, counts) = (InProcess::new(), Counts::default());
    created(&service, "mydb").await;
    let replica = replica(&service.serve_through(|router| counts.around(router)).await).start().await.unwrap();
    replica.ready().await;
    push(&service, "mydb", 2).await;
    caught_up(&replica, &service).await;
    counts.take();
    // No client can name the record of these changes.
    let unusable = Address::stored("my@db:main");
    service.backend.create_ledger(&Call::fresh(), &unusable, None, None).await.unwrap().applied();
    service.backend.purge(&Call::fresh(), &unusable).await.unwrap().applied();
    push(&service, "mydb", 3).await;
    caught_up(&replica, &service).await;
    assert_eq!(replica.names().head("mydb").unwrap().get().await.unwrap().unwrap().v, 3);
    push(&service, "mydb", 4).await;
    caught_up(&replica, &service).await;
    assert_eq!(counts.take().get("/v1/snapshot"), Some(&1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_comes_with_a_position_ahead_of_the_replica_waits_for_it() {
    let service = InProcess::new();
    created(&service, "mydb").await;
    let client = Client::new(&service.serve().await).unwrap();
    let replica = nameservice_sync::Replica::in_memory(client, Options::default()).unwrap();
    replica.ready().await;
    for t in 2..100 {
        push(&service, "mydb", t).await;
        let position = service.backend.position().await.unwrap();
        let changes = replica.changes(position, Limit::MAX).await.unwrap();
        assert_eq!(changes, Run::Changes(Vec::new()), "t {t}");
    }
    // The upstream has not reached it either: it is of another feed.
    let position = service.backend.position().await.unwrap();
    let changes = replica.changes(position + 1, Limit::MAX).await.unwrap();
    assert!(matches!(changes, Run::Gone { .. }), "{changes:?}");
}

/// Rows of Fluree's: under a name that no route takes, and those that belong to no record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_no_record_shows_at_no_replica_and_stops_none() {
    let service = Service::with_stream().await;
    let table = &service.table;
    table.store.create_ledger(&Call::fresh(), &at("mydb"), Some(&new_head(1)), None).await.unwrap().applied();
    pump(table).await;
    let replica =
        nameservice_sync::Replica::in_memory(Client::new(service.url()).unwrap(), Options::default()).unwrap();
    replica.ready().await;
    table.put(&rows::ledger("my@db:main").commit(cid(1), 1).rows()).await;
    table.put(&rows::orphans("orphan:main", cid(3), 3)).await;
    table.store.push_head(&Call::fresh(), &at("mydb"), &older(head(2))).await.unwrap().applied();
    pump(table).await;
    let position = table.feed.position().await.unwrap();
    assert_eq!(position, 5, "a ledger of three parts, the head that was left, and the push");
    assert!(replica.reached(position, DEADLINE).await, "the replica has stopped: {:?}", replica.state());
    let known =
        |address: &str| replica.names().view().record(&at(address)).map(|record| record.head.map(|head| head.v));
    assert_eq!((known("mydb"), known("orphan")), (Some(Some(2)), None));
    assert_eq!(replica.names().view().len(), 1);
}

/// Consumes the stream, with records that cannot be read.
async fn consume_all(table: &nameservice_tests::table::Table) {
    let consumer = stream_consumer::Consumer::new(table.store.clone(), table.feed.clone());
    for batch in nameservice_tests::pump::deliveries(table).await.chunks(100) {
        assert_eq!(consumer.consume(batch).await.failed, None);
    }
}

/// Another program writes values of a wrong type. Changes without a payload are read again, and what is not known is not shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_what_cannot_be_read_stops_no_replica_and_shows_what_reads_of_the_upstream_show() {
    let service = Service::with_stream().await;
    let table = &service.table;
    let (store, name) = (&table.store, at("mydb"));
    store.create_ledger(&Call::fresh(), &name, Some(&new_head(1)), None).await.unwrap().applied();
    store.push_index(&Call::fresh(), &name, &older(index(1))).await.unwrap().applied();
    consume_all(table).await;
    let replica =
        nameservice_sync::Replica::in_memory(Client::new(service.url()).unwrap(), Options::default()).unwrap();
    replica.ready().await;
    let shown = async || {
        consume_all(table).await;
        let position = table.feed.position().await.unwrap();
        assert!(replica.reached(position, DEADLINE).await, "the replica has stopped: {:?}", replica.state());
        let record = replica.names().view().record(&name).unwrap();
        (position, record)
    };
    let mut before = shown().await.0;
    let mut moved = |now: u64| assert!(std::mem::replace(&mut before, now) < now, "the feed shows that it has changed");

    // The index has the same `t` as the head that cannot be read: it is no head.
    table.set("mydb:main", "index", "index_t", rows::n(0)).await;
    table.set("mydb:main", "head", "commit_t", rows::s("two")).await;
    let (position, record) = shown().await;
    moved(position);
    let upstream = store.lookup(&name).await.unwrap().unwrap();
    assert_eq!((&record.head, &record.index), (&upstream.head, &upstream.index));
    assert_eq!(record.head.unwrap().payload.unwrap(), cid(1));

    store.push_head(&Call::fresh(), &name, &older(head(3))).await.unwrap().applied();
    table.set("mydb:main", "head", "commit_id", rows::n(5)).await;
    let (position, record) = shown().await;
    moved(position);
    assert_eq!(record.head.unwrap(), head(3), "the last one that is known");

    let _ = store.protect(&Call::fresh(), &name, true).await.unwrap();
    table.set("mydb:main", "meta", "protected", rows::s("yes")).await;
    let (position, record) = shown().await;
    moved(position);
    let upstream = store.lookup(&name).await.unwrap().unwrap();
    assert_eq!((record.head.unwrap(), record.retracted), (head(3), false));
    assert_eq!((record.protected, upstream.protected), (false, false), "read of the record");

    store.push_head(&Call::fresh(), &name, &older(head(4))).await.unwrap().applied();
    let (position, record) = shown().await;
    moved(position);
    let upstream = store.lookup(&name).await.unwrap().unwrap();
    assert_eq!((record.head, record.index, record.status), (upstream.head, upstream.index, upstream.status));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_replicas_cost_the_upstream_ten_event_streams() {
    const REPLICAS: u64 = 10;
    let (service, counts) = (InProcess::new(), Counts::default());
    for n in 0..20 {
        created(&service, &format!("db{n}")).await;
    }
    let url = service.serve_through(|router| counts.around(router)).await;
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        let replica = replica(&url).start().await.unwrap();
        replica.ready().await;
        replicas.push(replica);
    }
    // Each replica has many readers, which cost the upstream nothing.
    let mut readers = Vec::new();
    let last = 100;
    for replica in &replicas {
        caught_up(replica, &service).await;
        for _ in 0..20 {
            let mut changes = replica.names().changes().after(0).address("db0:*").follow();
            readers.push(tokio::spawn(async move {
                loop {
                    if let ChangeEvent::Change(change) = changes.next().await.unwrap().unwrap()
                        && change.watermark == last
                    {
                        return;
                    }
                }
            }));
        }
    }
    for t in 2..=last {
        push(&service, "db0", t).await;
    }
    for replica in &replicas {
        caught_up(replica, &service).await;
    }
    for reader in readers {
        tokio::time::timeout(DEADLINE, reader).await.unwrap().unwrap();
    }
    let asked = counts.take();
    assert_eq!(asked["/v1/events"], REPLICAS, "{asked:?}");
    assert_eq!(asked["/v1/snapshot"], REPLICAS, "{asked:?}");
    // The position is asked for before a snapshot and before the stream.
    assert!(asked["/v1/changes/compare"] <= 2 * REPLICAS, "{asked:?}");
    assert_eq!(asked.len(), 3, "{asked:?}");
}
