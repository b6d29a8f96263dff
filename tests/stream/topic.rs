//! The publisher of the topic: it follows the feed from a checkpoint of its own, whatever fails, and the feed waits for nothing of it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use async_trait::async_trait;
use jiff::Timestamp;
use nameservice_feed::Feed;
use nameservice_projector::{
    TableRows,
    records::{RECORDS, RecordRow, table_of},
};
use nameservice_tests::{engine, prelude::*, proxy::Proxy, pump};
use nameservice_views::View;
use stream_consumer::Consumer;
use tokio::{sync::Notify, time::Instant};
use topic_publisher::{Failure, Progress, Published, Topic, TopicPublisher, first_of};

use super::{Subscriber, whole};

/// A ledger with this many changes beside its first three, in the feed.
async fn pushed(table: &Table, heads: i64) {
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    push(table, 2..2 + heads).await;
}

async fn push(table: &Table, heads: std::ops::Range<i64>) {
    for t in heads {
        table.store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    pump::pump(table).await;
}

#[tokio::test]
async fn each_change_is_published_once_in_order_and_the_next_time_only_what_is_new() {
    let table = Table::with_stream().await;
    pushed(&table, 250).await;
    let topic = Subscriber::default();
    let publisher = topic.publisher(&table.feed);
    let done = publisher.catch_up(Some(1), None).await.unwrap();
    assert_eq!(done, Progress { position: 253, published: 253, rejected: 0 });
    assert_eq!(topic.positions(), (1..=253).collect::<Vec<_>>());
    assert_eq!(topic.by_position().into_values().collect::<Vec<_>>(), whole(&table.feed).await);
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 0);
    push(&table, 252..255).await;
    // Another instance of the function.
    assert_eq!(topic.publisher(&table.feed).catch_up(Some(254), None).await.unwrap().published, 3);
    assert_eq!(topic.positions(), (1..=256).collect::<Vec<_>>());
}

/// A deployment that is upgraded has a feed already, whose changes the release before has published.
#[tokio::test]
async fn without_a_checkpoint_it_begins_with_the_transaction_of_its_event() {
    let table = Table::with_stream().await;
    pushed(&table, 1).await;
    push(&table, 3..6).await;
    let topic = Subscriber::default();
    // The event names the last position of a transaction: of the one with the positions 5 to 7.
    let event = json!({ "Records": [
        { "dynamodb": { "Keys": { "id": { "S": "feed#0" }, "position": { "S": format!("{:020}", 7) } } } },
        { "dynamodb": { "Keys": { "id": { "S": "feed#0" }, "position": { "S": format!("{:020}", 9) } } } },
    ] });
    assert_eq!(first_of(&event), Some(7));
    topic.publisher(&table.feed).catch_up(first_of(&event), None).await.unwrap();
    assert_eq!(topic.positions(), [5, 6, 7]);
    // A schedule has no records: what begins with it would pass over what the next event has.
    let table = Table::with_stream().await;
    pushed(&table, 1).await;
    let other = Subscriber::default();
    assert_eq!(first_of(&json!({})), None);
    other.publisher(&table.feed).catch_up(None, None).await.unwrap();
    assert_eq!(other.positions(), [0u64; 0]);
    other.publisher(&table.feed).catch_up(Some(1), None).await.unwrap();
    assert_eq!(other.positions(), [1, 2, 3, 4]);
}

/// The stream keeps its records for a day: the first event that succeeds may name a later transaction than the first of all.
#[tokio::test]
async fn a_topic_that_is_away_from_the_start_gets_everything_since_the_first_event() {
    let table = Table::with_stream().await;
    pushed(&table, 1).await;
    push(&table, 3..6).await;
    let topic = Subscriber::default();
    topic.set(|topic| topic.away = true);
    topic.publisher(&table.feed).catch_up(Some(4), None).await.unwrap_err();
    topic.set(|topic| topic.away = false);
    topic.publisher(&table.feed).catch_up(Some(7), None).await.unwrap();
    assert_eq!(topic.positions(), (1..=7).collect::<Vec<_>>());
    // A schedule continues, too.
    push(&table, 6..8).await;
    topic.publisher(&table.feed).catch_up(None, None).await.unwrap();
    assert_eq!(topic.positions(), (1..=9).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_event_that_is_kept_for_people_names_a_segment() {
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events/topic_publisher/appended.json");
    let event: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(first_of(&event), Some(21));
    let keys = &event["Records"][0]["dynamodb"]["Keys"];
    assert_eq!(keys["id"]["S"], nameservice_feed::FEED_ID, "the filter of the mapping names this partition");
}

#[tokio::test]
async fn a_topic_that_was_away_gets_everything_afterwards() {
    let table = Table::with_stream().await;
    pushed(&table, 1).await;
    let topic = Subscriber::default();
    let publisher = topic.publisher(&table.feed);
    topic.set(|topic| topic.away = true);
    for t in 3..13 {
        let failure = publisher.catch_up(Some(1), None).await.unwrap_err();
        assert!(matches!(failure, Failure::NotPublished { position: 1, .. }), "{failure:?}");
        push(&table, t..t + 1).await;
    }
    topic.set(|topic| topic.away = false);
    publisher.catch_up(Some(1), None).await.unwrap();
    assert_eq!(topic.positions(), (1..=14).collect::<Vec<_>>());
}

static MINUTE: AtomicI64 = AtomicI64::new(0);

fn clock() -> Timestamp {
    Timestamp::from_second(2_000_000_000 + 60 * MINUTE.load(Ordering::Relaxed)).unwrap()
}

#[tokio::test]
async fn while_a_topic_is_away_for_an_hour_feed_waiting_readers_and_read_models_go_on_and_it_gets_everything_afterwards()
 {
    let table = Table::with_stream().await;
    let feed = table.feed.clone().with_clock(clock);
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    let rows = View::new(table.client.clone(), table_of(&table.name), &RECORDS);
    rows.ensure_table().await.unwrap();
    let projector = view_projector::projector(table.store.clone(), feed.clone(), rows.clone());
    let read_model: TableRows<RecordRow> = TableRows::new(rows);
    let (consumer, topic) = (Consumer::new(table.store.clone(), feed.clone()), Subscriber::default());
    topic.set(|topic| topic.away = true);
    let mut seen = 0;
    for minute in 0..60 {
        MINUTE.store(minute, Ordering::Relaxed);
        let before = feed.position().await.unwrap();
        let (waiting, after) = (feed.clone(), before);
        let reader = tokio::spawn(async move { waiting.wait(after, LONG).await });
        for t in [2, 3, 4] {
            let head = head(3 * minute + t);
            table.store.push_head(&Call::fresh(), &at("a:main"), &older(head)).await.unwrap().applied();
        }
        let deliveries = pump::deliveries(&table).await;
        assert_eq!(consumer.consume(&deliveries[seen..]).await.failed, None);
        seen = deliveries.len();
        reader.await.unwrap().unwrap();
        let end = feed.position().await.unwrap();
        assert_eq!(end, if minute == 0 { 6 } else { before + 3 });
        projector.catch_up(None).await.unwrap();
        let row = read_model.get(&at("a:main")).await.unwrap().unwrap();
        assert_eq!(row.commit_t, 3 * minute + 4);
        let failure = topic.publisher(&feed).catch_up(Some(1), None).await.unwrap_err();
        assert!(matches!(failure, Failure::NotPublished { position: 1, .. }), "{failure:?}");
    }
    topic.set(|topic| topic.away = false);
    topic.publisher(&feed).catch_up(Some(1), None).await.unwrap();
    let changes = whole(&feed).await;
    assert_eq!(topic.positions(), (1..=183).collect::<Vec<_>>());
    assert_eq!(topic.by_position().into_values().collect::<Vec<_>>(), changes);
    assert_eq!(changes[182].recorded_at.duration_since(changes[0].recorded_at).as_secs(), 59 * 60);
}

#[tokio::test]
async fn what_is_rejected_permanently_is_a_dead_letter_and_the_rest_follows() {
    let table = Table::with_stream().await;
    pushed(&table, 20).await;
    let topic = Subscriber::default();
    topic.set(|topic| topic.rejected = [1, 7, 8, 23].into());
    topic.set(|topic| topic.no_letters = true);
    let publisher = topic.publisher(&table.feed);
    // It would be lost if its dead letter were.
    let failure = publisher.catch_up(Some(1), None).await.unwrap_err();
    assert!(matches!(failure, Failure::NoDeadLetter { position: 1, .. }), "{failure:?}");
    topic.set(|topic| topic.no_letters = false);
    let done = publisher.catch_up(Some(1), None).await.unwrap();
    assert_eq!((done.position, done.rejected), (23, 4));
    let letters: Vec<u64> = topic.letters().into_keys().collect();
    assert_eq!(letters, [1, 7, 8, 23]);
    let published: Vec<u64> = topic.by_position().into_keys().collect();
    assert_eq!(published, (1..=23).filter(|position| !letters.contains(position)).collect::<Vec<_>>());
    assert_eq!(whole(&table.feed).await.len(), 23, "the feed has all of them");
}

const OPERATIONS: [&str; 3] = ["GetItem", "Query", "PutItem"];

#[tokio::test]
async fn a_publisher_killed_at_any_request_publishes_everything_in_order_at_least_once() {
    let table = Table::with_stream().await;
    pushed(&table, 130).await;
    for done_first in [false, true] {
        for k in 0.. {
            let proxy = Proxy::start(&table.endpoint).await;
            let topic = Subscriber::default();
            table.feed.reset_reached("topic", 0).await.unwrap();
            let killed = Arc::new(Notify::new());
            let (kill, never) = (killed.clone(), Arc::new(Notify::new()));
            let hook = move || {
                let (kill, never) = (kill.clone(), never.clone());
                async move {
                    kill.notify_one();
                    never.notified().await;
                }
            };
            let fault = if done_first { Fault::none().after(hook) } else { Fault::none().before(hook) };
            proxy.on_each(&OPERATIONS, fault.skipping(k));
            let publisher = topic.publisher(&Feed::new(engine::client(proxy.url()), table.feed.table()));
            let died = tokio::select! {
                done = publisher.catch_up(Some(1), None) => { done.unwrap(); false }
                () = killed.notified() => true,
            };
            proxy.disarm();
            topic.publisher(&table.feed).catch_up(Some(1), None).await.unwrap();
            let positions = topic.positions();
            let mut firsts: Vec<u64> = Vec::new();
            for position in &positions {
                if !firsts.contains(position) {
                    firsts.push(*position);
                }
            }
            assert_eq!(firsts, (1..=133).collect::<Vec<_>>(), "{k}");
            assert!(positions.len() <= 133 + 100, "what is published again is at most one run: {k}");
            if !died {
                assert!(k >= 7, "133 changes take more than {k} requests");
                break;
            }
        }
    }
}

#[tokio::test]
async fn changes_that_have_left_the_feed_are_a_dead_letter_and_the_rest_follows() {
    let table = Table::with_stream().await;
    pushed(&table, 4).await;
    let topic = Subscriber::default();
    topic.publisher(&table.feed).catch_up(Some(1), None).await.unwrap();
    push(&table, 6..9).await;
    let epoch = table.feed.begin_epoch().await.unwrap();
    push(&table, 9..10).await;
    let publisher = topic.publisher(&table.feed);
    topic.set(|topic| topic.no_letters = true);
    let failure = publisher.catch_up(Some(1), None).await.unwrap_err();
    assert!(matches!(failure, Failure::NoDeadLetter { position: 8, .. }), "{failure:?}");
    topic.set(|topic| topic.no_letters = false);
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 1);
    assert_eq!(topic.positions(), (1..=7).chain([epoch]).collect::<Vec<_>>());
    assert_eq!(topic.letters(), [(8, format!("continues at {epoch}"))].into());
    // A feed that was lost begins again, and so does the publisher.
    table.feed.reset_reached("topic", 10_000).await.unwrap();
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 1);
    assert_eq!(topic.letters().len(), 2);
}

/// A topic during whose first request another invocation publishes everything.
struct Overtaken {
    other: TopicPublisher,
    subscriber: Subscriber,
    is_first: AtomicBool,
}

#[async_trait]
impl Topic for Overtaken {
    async fn publish(&self, changes: &[Change], until: Option<Instant>) -> Published {
        if self.is_first.swap(false, Ordering::Relaxed) {
            self.other.catch_up(Some(1), None).await.unwrap();
        }
        self.subscriber.publish(changes, until).await
    }
}

#[tokio::test]
async fn what_another_invocation_has_published_meanwhile_is_not_published_again() {
    let table = Table::with_stream().await;
    pushed(&table, 250).await;
    let subscriber = Subscriber::default();
    let other = subscriber.publisher(&table.feed);
    let overtaken = Overtaken { other, subscriber: subscriber.clone(), is_first: true.into() };
    let publisher = TopicPublisher::new(table.feed.clone(), Arc::new(overtaken), Arc::new(subscriber.clone()));
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 100);
    assert_eq!(subscriber.positions().len(), 253 + 100, "one run was under way");
}

/// A topic that answers after the deadline.
struct Late(Subscriber);

#[async_trait]
impl Topic for Late {
    async fn publish(&self, changes: &[Change], until: Option<Instant>) -> Published {
        tokio::time::pause();
        tokio::time::advance(2 * LONG).await;
        tokio::time::resume();
        self.0.publish(changes, until).await
    }
}

#[tokio::test]
async fn dead_letters_end_at_the_deadline() {
    let table = Table::with_stream().await;
    pushed(&table, 20).await;
    let topic = Subscriber::default();
    topic.set(|topic| topic.rejected = (1..=23).collect());
    let publisher = TopicPublisher::new(table.feed.clone(), Arc::new(Late(topic.clone())), Arc::new(topic.clone()));
    let failure = publisher.catch_up(Some(1), Some(Instant::now() + LONG)).await.unwrap_err();
    assert!(matches!(failure, Failure::More { position: 0 }), "{failure:?}");
    assert!(topic.letters().is_empty());
}

#[tokio::test]
async fn what_does_not_fit_an_invocation_is_left_to_the_next() {
    let table = Table::with_stream().await;
    pushed(&table, 1).await;
    let topic = Subscriber::default();
    let over = Some(Instant::now());
    let failure = topic.publisher(&table.feed).catch_up(Some(1), over).await.unwrap_err();
    assert!(matches!(failure, Failure::More { position: 0 }), "{failure:?}");
    topic.publisher(&table.feed).catch_up(Some(1), None).await.unwrap();
    assert_eq!(topic.positions(), [1, 2, 3, 4]);
}

/// Requests of an invocation: the checkpoint, the end of the feed and its changes, and the checkpoint again.
#[tokio::test]
async fn an_invocation_takes_four_requests() {
    let table = Table::with_stream().await;
    pushed(&table, 45).await;
    table.feed.reset_reached("topic", 0).await.unwrap();
    let proxy = Proxy::start(&table.endpoint).await;
    let topic = Subscriber::default();
    let publisher = topic.publisher(&Feed::new(engine::client(proxy.url()), table.feed.table()));
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 48);
    assert_eq!(proxy.take_operations(), ["GetItem", "GetItem", "Query", "PutItem"]);
    // One whose changes another has published.
    assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published, 0);
    assert_eq!(proxy.take_operations(), ["GetItem", "GetItem"]);
}
