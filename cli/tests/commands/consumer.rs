//! The consumer of the table's stream.

use std::{collections::BTreeSet, ops::Deref, sync::Arc, time::Duration};

use nameservice_cli::{
    consumer::{self, Pace, Running},
    options::Missing,
    table::Table,
    target::Opened,
};
use nameservice_feed::{Checkpoint, Feed};
use nameservice_model::{
    Address, Call, Change, ChangeFeed as _, ContentId, HeadPush, Limit, NewHead, Publisher as _, RefPublisher as _, Run,
};
use nameservice_store::{RetryPolicy, Store};

use super::{
    ID, LONG, OTHER, endpoint,
    engine::{Engine, timeouts},
    feed::Watch,
    run, start_in_process,
};

/// Near, with enough time to read the stream to its end.
const PACE: Pace = Pace { drain: LONG, ..Pace::NEAR };

/// A table, and the engine that it is in.
struct Made {
    table: Box<Table>,
    _engine: Engine,
}

impl Deref for Made {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

async fn unmade() -> Made {
    let engine = Engine::start();
    let mut table = match Opened::open(endpoint(engine.url()), Missing::Create, None).await.unwrap() {
        Opened::Table(table) => table,
        other => panic!("an endpoint is a table: {other:?}"),
    };
    let policy = RetryPolicy { deadline: LONG, ..RetryPolicy::default() };
    table.store = Store::new(engine.client(), table.store.table()).with_retry_policy(policy);
    table.feed = Feed::new(engine.client(), table.feed.table());
    table.source.tables = engine.client();
    let streams = table.source.streams.config().to_builder().timeout_config(timeouts()).build();
    table.source.streams = aws_sdk_dynamodbstreams::Client::from_conf(streams);
    Made { table, _engine: engine }
}

async fn table() -> Made {
    let made = unmade().await;
    made.ensure().await.unwrap();
    made
}

fn consume(table: &Table) -> Running {
    consumer::start(table.source.clone(), table.store.clone(), table.feed.clone(), PACE)
}

async fn create(table: &Table, name: &str) -> Address {
    let address = Address::parse(name).unwrap();
    drop(table.store.create_ledger(&Call::fresh(), &address, None, None).await.unwrap());
    address
}

async fn push_heads(table: &Table, address: &Address, ts: std::ops::RangeInclusive<i64>) {
    for t in ts {
        let push = HeadPush::monotonic(NewHead::new(ContentId::parse(ID).unwrap(), t).unwrap());
        assert!(table.store.push_head(&Call::fresh(), address, &push).await.unwrap().is_updated());
    }
}

async fn changes(table: &Table) -> Vec<Change> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        match table.feed.changes(after, Limit::new(1000).unwrap()).await.unwrap() {
            Run::Changes(changes) if changes.is_empty() => return all,
            Run::Changes(changes) => {
                after = changes.last().unwrap().position;
                all.extend(changes);
            }
            Run::Gone { oldest } => panic!("what follows {after} is gone; the oldest is {oldest}"),
        }
    }
}

/// Waits until the feed has reached this position.
async fn wait_for(table: &Table, position: u64) {
    let until = tokio::time::Instant::now() + LONG;
    while table.feed.position().await.unwrap() < position {
        assert!(tokio::time::Instant::now() < until, "the feed is at {:?}", table.feed.position().await);
        table.feed.wait(position - 1, Duration::from_millis(200)).await.unwrap();
    }
}

/// Returns the watermarks of the heads in the feed, and checks that its positions have no gap.
fn heads(changes: &[Change]) -> Vec<i64> {
    let positions: Vec<_> = changes.iter().map(|change| change.position).collect();
    assert_eq!(positions, (1..=changes.len() as u64).collect::<Vec<_>>());
    changes.iter().filter(|change| change.part.as_str() == "head").map(|change| change.watermark).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_has_read_what_was_written_and_the_next_one_continues_there() {
    let table = table().await;
    let mydb = create(&table, "mydb").await;
    let running = consume(&table);
    push_heads(&table, &mydb, 1..=20).await;
    running.stop().await;
    let first = changes(&table).await;
    assert_eq!(heads(&first), (1..=20).collect::<Vec<_>>());
    let checkpoints = table.feed.checkpoints().await.unwrap();
    assert!(matches!(&*checkpoints, [Checkpoint { passed: Some(_), finished: false, .. }]), "{checkpoints:?}");
    push_heads(&table, &mydb, 21..=25).await;
    consume(&table).stop().await;
    assert_eq!(heads(&changes(&table).await), (1..=25).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nudge_spares_the_wait_for_the_clock() {
    let table = table().await;
    let slow = Pace { poll: Duration::from_secs(3600), max_idle: Duration::from_secs(3600), ..PACE };
    let running = consumer::start(table.source.clone(), table.store.clone(), table.feed.clone(), slow);
    let nudge = running.nudge();
    let mydb = create(&table, "mydb").await;
    nudge.give();
    wait_for(&table, 2).await;
    push_heads(&table, &mydb, 1..=1).await;
    nudge.give();
    wait_for(&table, 3).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consumers_of_one_table_do_what_one_does() {
    let table = table().await;
    let running = [consume(&table), consume(&table)];
    let mydb = create(&table, "mydb").await;
    push_heads(&table, &mydb, 1..=100).await;
    for running in running {
        running.stop().await;
    }
    assert_eq!(heads(&changes(&table).await), (1..=100).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_cannot_be_appended_yet_is_appended_later() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().unwrap())).finish();
    // The consumer runs on this thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let table = unmade().await;
    table.store.ensure_table().await.unwrap();
    let mydb = create(&table, "mydb").await;
    // There is no feed yet.
    let running = consume(&table);
    push_heads(&table, &mydb, 1..=3).await;
    let until = tokio::time::Instant::now() + LONG;
    while !std::fs::read_to_string(&log).unwrap().contains("the change feed has stopped") {
        assert!(tokio::time::Instant::now() < until, "the consumer misses no feed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    table.feed.ensure_table().await.unwrap();
    wait_for(&table, 5).await;
    assert_eq!(heads(&changes(&table).await), [1, 2, 3]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_lost_records_begins_an_epoch_once() {
    let table = table().await;
    let mydb = create(&table, "mydb").await;
    consume(&table).stop().await;
    assert_eq!(table.feed.position().await.unwrap(), 2);
    let mut lost = table.feed.checkpoints().await.unwrap().remove(0);
    lost.shard = "shardId-of-yesterday".into();
    table.feed.set_checkpoint(&lost).await.unwrap();
    push_heads(&table, &mydb, 1..=2).await;
    consume(&table).stop().await;
    let oldest = match table.feed.changes(2, Limit::new(10).unwrap()).await.unwrap() {
        Run::Gone { oldest } => oldest,
        run @ Run::Changes(_) => panic!("{run:?}"),
    };
    let Run::Changes(after) = table.feed.changes(oldest - 1, Limit::new(10).unwrap()).await.unwrap() else {
        panic!("{oldest} is gone")
    };
    assert_eq!(after.iter().map(|change| change.watermark).collect::<Vec<_>>(), [1, 2]);
    // No consumer is left.
    push_heads(&table, &mydb, 3..=3).await;
    consume(&table).stop().await;
    let Run::Changes(after) = table.feed.changes(oldest - 1, Limit::new(10).unwrap()).await.unwrap() else {
        panic!("another epoch")
    };
    assert_eq!(after.len(), 3);
}

/// If a table is created again under its name, the feed begins an epoch, so that readers learn that it is another table.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_made_again_begins_an_epoch() {
    let table = table().await;
    let mydb = create(&table, "mydb").await;
    push_heads(&table, &mydb, 1..=3).await;
    consume(&table).stop().await;
    table.source.tables.delete_table().table_name(&table.source.table).send().await.unwrap();
    table.store.ensure_table().await.unwrap();
    create(&table, "other").await;
    consume(&table).stop().await;
    let Run::Gone { oldest } = table.feed.changes(5, Limit::new(10).unwrap()).await.unwrap() else {
        panic!("the feed continues")
    };
    let Run::Changes(after) = table.feed.changes(oldest - 1, Limit::new(10).unwrap()).await.unwrap() else {
        panic!("{oldest} is gone")
    };
    let reported: BTreeSet<_> = after.iter().map(|change| change.address.as_str()).collect();
    assert_eq!((after.len(), reported), (2, BTreeSet::from(["other:main"])));
}

#[tokio::test]
async fn a_missing_stream_is_named_by_a_process_that_leaves_it_to_another_consumer() {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    };
    let table = unmade().await;
    let named = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let text = |name| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let create = table.source.tables.create_table().table_name(table.store.table());
    let create = create.billing_mode(BillingMode::PayPerRequest);
    let create = create.key_schema(named("pk", KeyType::Hash)).key_schema(named("sk", KeyType::Range));
    let create = create.attribute_definitions(text("pk")).attribute_definitions(text("sk"));
    let off = StreamSpecification::builder().stream_enabled(false).build().unwrap();
    create.stream_specification(off).send().await.unwrap();
    assert!(consumer::name_missing_stream(&table.source, &table.feed).await);
    let outage = table.feed.outage().unwrap();
    assert!(outage.contains("has no stream") && outage.contains("update-table"), "{outage}");

    let complete = self::table().await;
    complete.feed.set_outage(Some("an earlier reason".into()));
    assert!(!consumer::name_missing_stream(&complete.source, &complete.feed).await);
    assert_eq!(complete.feed.outage(), None);
}

/// Newer changes may expire before older ones: if the retention was lowered, for example.
#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_feed_is_passed_by_watch_and_named_by_archive() {
    use aws_sdk_dynamodb::types::AttributeValue;
    let table = table().await;
    let mydb = create(&table, "mydb").await;
    // A segment for each push: positions 1 and 2, 3, 4, 5 and 6.
    consume(&table).stop().await;
    for t in 1..=3 {
        push_heads(&table, &mydb, t..=t).await;
        consume(&table).stop().await;
    }
    let last = HeadPush::monotonic(NewHead::new(ContentId::parse(OTHER).unwrap(), 4).unwrap());
    assert!(table.store.push_head(&Call::fresh(), &mydb, &last).await.unwrap().is_updated());
    consume(&table).stop().await;
    assert_eq!(table.feed.position().await.unwrap(), 6);
    for lost in [4, 5] {
        let update = table.source.tables.update_item().table_name(table.feed.table());
        let update = update.key("id", AttributeValue::S(nameservice_feed::FEED_ID.into()));
        let update = update.key("position", AttributeValue::S(format!("{lost:020}")));
        let update = update.update_expression("SET #ttl = :past").expression_attribute_names("#ttl", "ttl");
        update.expression_attribute_values(":past", AttributeValue::N("1000".into())).send().await.unwrap();
    }
    let engine = table._engine.url().to_owned();
    let service = start_in_process(endpoint(&engine), super::Auth::Open).await;
    let url = service.url();
    let looked = tokio::task::spawn_blocking(move || {
        let watch = Watch::start(&url, "--after start");
        let lines = watch.until(OTHER);
        let positions: Vec<_> = lines.iter().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
        assert_eq!(positions, ["1", "2", "3", "6"], "each once: {lines:?}");
        // A reader that asks for a lost position learns where to continue; one after it reads on.
        let (code, _, stderr) = run(&["--url", &url], "changes --after 3");
        assert!(code != 0 && stderr.contains('6'), "{code} {stderr}");
        assert_eq!(run(&["--url", &url], "changes --after 5").0, 0);
        let directory = tempfile::tempdir().unwrap();
        let archive = format!("archive file://{}", directory.path().display());
        let target = ["--url", url.as_str()];
        let (code, stdout, stderr) = run(&target, &archive);
        assert_eq!(code, 1, "{stdout} {stderr}");
        assert!(stderr.contains("lost positions 4 to 5") && stdout.contains("ends at position 6"), "{stdout} {stderr}");
        let (code, stdout, stderr) = run(&target, &archive);
        assert_eq!(code, 0, "the gap is recorded: {stderr}");
        assert!(stdout.contains("0 changes archived") && !stdout.contains("everything"), "{stdout}");
    });
    looked.await.unwrap();
    service.stop().await;
}
