//! What kind of record a change is about: from the batch, by one read, or from what the feed has recorded before.

use nameservice_tests::{prelude::*, pump};
use stream_consumer::{Consumer, Delivery};

use super::whole;

async fn consume(table: &Table, batch: &[Delivery]) {
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    assert_eq!(consumer.consume(batch).await.failed, None);
}

fn ledger() -> Identity {
    Identity { kind: RecordKind::Ledger, source_type: None }
}

fn source(source_type: &str) -> Identity {
    Identity { kind: RecordKind::GraphSource, source_type: Some(source_type.to_owned()) }
}

async fn publish(store: &Store, address: &str) {
    let published = store.publish_graph_source(&Call::fresh(), &bm25(address, json!({}), &[])).await.unwrap();
    assert!(!matches!(published, Published::Conflict { .. }), "{published:?}");
}

async fn create(store: &Store, address: &str) {
    store.create_ledger(&Call::fresh(), &at(address), Some(&new_head(1)), None).await.unwrap().applied();
}

async fn purge(store: &Store, address: &str) {
    assert_eq!(store.purge(&Call::fresh(), &at(address)).await.unwrap(), Purged::Purged);
}

#[tokio::test]
async fn a_record_that_became_another_is_reported_as_what_it_was_however_the_stream_is_cut() {
    let table = Table::with_stream().await;
    create(&table.store, "x:main").await;
    table.store.push_index(&Call::fresh(), &at("x:main"), &older(index(1))).await.unwrap().applied();
    purge(&table.store, "x:main").await;
    publish(&table.store, "x:main").await;
    table.store.push_index(&Call::fresh(), &at("x:main"), &older(index(1))).await.unwrap().applied();
    purge(&table.store, "x:main").await;
    create(&table.store, "x:main").await;
    let deliveries = pump::deliveries(&table).await;
    for size in 1..=deliveries.len() {
        let feed = nameservice_feed::Feed::new(table.client.clone(), format!("{}-{size}", table.name));
        feed.ensure_table().await.unwrap();
        let consumer = Consumer::new(table.store.clone(), feed.clone());
        for batch in deliveries.chunks(size) {
            assert_eq!(consumer.consume(batch).await.failed, None);
        }
        let changes = whole(&feed).await;
        // Four parts are born and purged, twice, and three are born again.
        let lives = [vec![ledger(); 8], vec![source("f:Bm25Index"); 8], vec![ledger(); 3]].concat();
        let shown: Vec<_> = changes.iter().map(|change| change.identity.clone()).collect();
        assert_eq!(shown, lives, "batches of {size}: {changes:#?}");
    }
}

#[tokio::test]
async fn a_record_that_was_purged_meanwhile_is_reported_as_what_it_was() {
    let table = Table::with_stream().await;
    publish(&table.store, "s:main").await;
    let created = pump::deliveries(&table).await;
    table.store.push_index(&Call::fresh(), &at("s:main"), &older(index(1))).await.unwrap().applied();
    let pushed = pump::deliveries(&table).await.split_off(created.len());
    purge(&table.store, "s:main").await;
    consume(&table, &created).await;
    consume(&table, &pushed).await;
    consume(&table, &pump::deliveries(&table).await).await;
    let changes = whole(&table.feed).await;
    assert_eq!(changes.len(), 3 + 1 + 4);
    assert!(changes.iter().all(|change| change.identity == source("f:Bm25Index")), "{changes:#?}");
}

#[tokio::test]
async fn a_redelivery_reports_the_same_kind_although_the_record_has_become_another() {
    let table = Table::with_stream().await;
    create(&table.store, "x:main").await;
    let created = pump::deliveries(&table).await;
    table.store.push_index(&Call::fresh(), &at("x:main"), &older(index(1))).await.unwrap().applied();
    let pushed = pump::deliveries(&table).await.split_off(created.len());
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    consumer.consume(&created).await;
    consumer.consume(&pushed).await;
    purge(&table.store, "x:main").await;
    publish(&table.store, "x:main").await;
    consumer.consume(&pump::deliveries(&table).await).await;
    let before = whole(&table.feed).await;
    consumer.consume(&pushed).await;
    let changes = whole(&table.feed).await;
    assert_eq!(changes, before);
    let index = changes.iter().find(|change| change.watermark == 1 && change.part.as_str() == "index").unwrap();
    assert_eq!(index.identity, ledger());
}

#[tokio::test]
async fn items_without_a_record_are_left_out_and_nothing_waits_for_them() {
    let table = Table::with_stream().await;
    let orphans = rows::orphans("o:main", cid(1), 1).into_iter().filter(|row| row["sk"] != rows::s("head"));
    table.put(&orphans.collect::<Vec<_>>()).await;
    table.put(&[rows::ghost_meta("g:main")]).await;
    create(&table.store, "a:main").await;
    consume(&table, &pump::deliveries(&table).await).await;
    let changes = whole(&table.feed).await;
    assert_eq!(changes.len(), 3);
    assert!(changes.iter().all(|change| change.address == at("a:main")), "{changes:#?}");
}

#[tokio::test]
async fn name_branch_and_type_are_filled_in() {
    let table = Table::with_stream().await;
    publish(&table.store, "search/en:v2").await;
    consume(&table, &pump::deliveries(&table).await).await;
    for change in whole(&table.feed).await {
        assert_eq!((change.address.name(), change.address.branch()), ("search/en", "v2"));
        assert_eq!(change.identity, source("f:Bm25Index"));
    }
}
