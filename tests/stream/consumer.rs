//! What a batch says in the feed: payloads, times, and the events under `events/`.

use std::{fs, path::PathBuf};

use nameservice_tests::{mapping::event_record, prelude::*, pump, rows};
use stream_consumer::Consumer;

use super::{of, raw, reported, whole};

async fn consumed(table: &Table) -> Vec<Change> {
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    let records: Vec<Value> = pump::deliveries(table).await.iter().map(event_record).collect();
    let answer = consumer.handle(raw(&json!({ "Records": records }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    whole(&table.feed).await
}

#[tokio::test]
async fn a_life_is_reported_from_creation_to_purge() {
    let table = Table::with_stream().await;
    let (store, address) = (&table.store, at("a:main"));
    store.create_ledger(&Call::fresh(), &address, None, None).await.unwrap().applied();
    store.push_head(&Call::fresh(), &address, &older(head(3))).await.unwrap().applied();
    store.push_index(&Call::fresh(), &address, &older(index(2))).await.unwrap().applied();
    store
        .push_status(&Call::fresh(), &address, &cas(status(1, "ready"), status(2, "indexing")))
        .await
        .unwrap()
        .applied();
    let to = to_head(1);
    store.reset_head(&Call::fresh(), &address, &to).await.unwrap().applied();
    store.retract(&Call::fresh(), &address, Some("over")).await.unwrap().applied();
    store.restore(&Call::fresh(), &address).await.unwrap().applied();
    store.purge(&Call::fresh(), &address).await.unwrap().applied();
    let changes = consumed(&table).await;
    let mut reported = of(&changes, "a:main");
    // The items of one transaction come in any order.
    for range in [0..2, 5..7, 7..12, 12..17, 17..20] {
        reported[range].sort();
    }
    assert_eq!(
        reported,
        [
            ("meta", "created", 0),
            ("status", "created", 1),
            ("head", "created", 3),
            ("index", "created", 2),
            ("status", "updated", 2),
            ("head", "reset", 1),
            ("index", "reset", 0),
            ("config", "retracted", 0),
            ("head", "retracted", 1),
            ("index", "retracted", 0),
            ("meta", "retracted", 0),
            ("status", "retracted", 3),
            ("config", "restored", 0),
            ("head", "restored", 1),
            ("index", "restored", 0),
            ("meta", "restored", 0),
            ("status", "restored", 4),
            ("head", "purged", 0),
            ("meta", "purged", 0),
            ("status", "purged", 0),
        ]
    );
    let pushed = &changes[2];
    assert_eq!(pushed.payload, ChangePayload::Value(json!({ "id": cid(3).as_str(), "t": 3 })));
    assert_eq!(pushed.previous, Some(0));
    let now = jiff::Timestamp::now();
    for change in &changes {
        // DynamoDB Local gives the minute in which a row was deleted, and a machine may be slow.
        assert!(now.duration_since(change.occurred_at).as_secs().abs() < 600, "{change:?}");
        assert!(now.duration_since(change.recorded_at).as_secs().abs() < 600, "{change:?}");
    }
}

#[tokio::test]
async fn secrets_never_reach_the_feed_and_large_payloads_are_left_out() {
    let table = Table::with_stream().await;
    let config = json!({
        "password": "hunter2", "nested": [{ "apiKey": "hunter2" }], "url": "postgres://u:hunter2@db/x", "size": 3
    });
    table.store.publish_graph_source(&Call::fresh(), &bm25("s:main", config, &[])).await.unwrap().applied();
    let large = json!({ "text": "x".repeat(17 * 1024), "token": "hunter2" });
    table.store.publish_graph_source(&Call::fresh(), &bm25("large:main", large, &[])).await.unwrap().applied();
    let status_now = status_with(2, "ready", json!({ "credentials": { "user": "hunter2" } }));
    table
        .store
        .push_status(&Call::fresh(), &at("s:main"), &cas(status(1, "ready"), status_now))
        .await
        .unwrap()
        .applied();
    let changes = consumed(&table).await;
    let payload = |address: &str, part: &str| {
        let last = changes.iter().rfind(|c| c.address.as_str() == address && c.part.as_str() == part);
        last.unwrap().payload.clone()
    };
    let hidden = "[redacted]";
    let shown = json!({
        "password": hidden, "nested": [{ "apiKey": hidden }], "url": format!("postgres://u:{hidden}@db/x"), "size": 3
    });
    assert_eq!(payload("s:main", "config"), ChangePayload::Value(shown));
    assert_eq!(payload("large:main", "config"), ChangePayload::Omitted);
    let raw = table.client.scan().table_name(table.feed.table()).send().await.unwrap();
    assert!(!format!("{raw:?}").contains("hunter2"), "no row of the feed's table holds a secret");
    for change in &changes {
        let event = topic_publisher::cloud_event("/nameservice/t", change).unwrap();
        assert!(!serde_json::to_string(&event).unwrap().contains("hunter2"));
    }
}

#[tokio::test]
async fn a_time_that_cannot_be_read_is_the_streams() {
    let table = Table::with_stream().await;
    table.put(&rows::ledger("a:main").commit(cid(1), 1).rows()).await;
    for (t, ms) in [(2, i64::MIN), (3, -1), (4, i64::MAX), (5, 253_402_207_200_000)] {
        let mut row = rows::row("a:main", "head", [("commit_id", rows::s(cid(t).as_str())), ("commit_t", rows::n(t))]);
        row.insert("updated_at_ms".into(), rows::n(ms));
        table.put(&[row]).await;
    }
    let changes = consumed(&table).await;
    assert_eq!(changes.len(), 3 + 4);
    for change in changes {
        let event = topic_publisher::cloud_event("/nameservice/t", &change);
        assert!(event.is_ok(), "{change:?}: {event:?}");
        assert!(change.occurred_at > jiff::Timestamp::UNIX_EPOCH);
    }
}

#[tokio::test]
async fn a_retraction_is_reported_for_concerns_that_had_no_item_and_a_restoration_ends_it() {
    let table = Table::with_stream().await;
    let written = rows::ledger("a:main").commit(cid(2), 2).rows();
    let (first, missing): (Vec<Row>, Vec<Row>) =
        written.into_iter().partition(|row| ["meta", "head"].contains(&row["sk"]["S"].as_str().unwrap()));
    assert!(!missing.is_empty());
    table.put(&first).await;
    table.store.retract(&Call::fresh(), &at("a:main"), None).await.unwrap().applied();
    table.store.restore(&Call::fresh(), &at("a:main")).await.unwrap().applied();
    // Another program writes a record that is retracted from the start.
    let mut retracted = first.into_iter().find(|row| row["sk"]["S"] == "meta").unwrap();
    retracted.insert("pk".into(), json!({ "S": "b:main" }));
    retracted.insert("name".into(), json!({ "S": "b" }));
    retracted.insert("retracted".into(), json!({ "BOOL": true }));
    table.put(&[retracted]).await;
    let changes = consumed(&table).await;
    let mut reported = of(&changes, "a:main");
    for range in [0..2, 2..7, 7..12] {
        reported[range].sort();
    }
    assert_eq!(
        reported,
        [
            ("head", "created", 2),
            ("meta", "created", 0),
            ("config", "retracted", 0),
            ("head", "retracted", 2),
            ("index", "retracted", 0),
            ("meta", "retracted", 0),
            ("status", "retracted", 2),
            ("config", "restored", 0),
            ("head", "restored", 2),
            ("index", "restored", 0),
            ("meta", "restored", 0),
            ("status", "restored", 3),
        ]
    );
    assert_eq!(of(&changes, "b:main"), [("meta", "created", 0)]);
}

/// Address, part, kind and watermark.
type Reported = (&'static str, &'static str, &'static str, i64);

/// The events under `events/stream_consumer`, each with what it says and how many letters it makes.
#[tokio::test]
async fn the_events_that_are_kept_for_people_say_what_their_names_say() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events/stream_consumer");
    let expected: [(&str, &[Reported], usize); 8] = [
        (
            "created",
            &[
                ("mydb:main", "head", "created", 1),
                ("mydb:main", "meta", "created", 0),
                ("mydb:main", "status", "created", 1),
            ],
            0,
        ),
        ("pushed", &[("mydb:main", "head", "updated", 2), ("mydb:main", "index", "created", 2)], 0),
        ("fluree_commit", &[("mydb:main", "head", "updated", 3)], 0),
        (
            "graph_source_created",
            &[
                ("search:main", "config", "created", 1),
                ("search:main", "meta", "created", 0),
                ("search:main", "status", "created", 1),
            ],
            0,
        ),
        (
            "retracted",
            &[
                ("mydb:main", "head", "retracted", 3),
                ("mydb:main", "meta", "retracted", 0),
                ("mydb:main", "status", "retracted", 2),
            ],
            0,
        ),
        (
            "purged",
            &[
                ("mydb:main", "head", "purged", 0),
                ("mydb:main", "meta", "purged", 0),
                ("mydb:main", "status", "purged", 0),
            ],
            0,
        ),
        ("no_change", &[], 0),
        (
            "poison",
            &[
                ("mydb:main", "head", "reset", 0),
                ("mydb:main", "head", "updated", 5),
                ("mydb:main", "status", "updated", 2),
            ],
            2,
        ),
    ];
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let mut listed = expected.map(|(name, ..)| name);
    listed.sort();
    assert_eq!(names, listed);
    for (name, wanted, letters) in expected {
        let table = Table::with_stream().await;
        table.put(&rows::ledger("mydb:main").rows()).await;
        let event: Value = serde_json::from_slice(&fs::read(folder.join(format!("{name}.json"))).unwrap()).unwrap();
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        let answer = consumer.handle(raw(&event)).await;
        assert!(answer.batch_item_failures.is_empty(), "{name}: {answer:?}");
        let mut found: Vec<_> = whole(&table.feed).await.iter().map(reported).collect();
        found.sort();
        let wanted: Vec<_> = wanted.iter().map(|(a, part, kind, v)| ((*a).to_owned(), *part, *kind, *v)).collect();
        assert_eq!(found, wanted, "{name}");
        assert_eq!(table.feed.dead_letters().await.unwrap().len(), letters, "{name}");
    }
}
