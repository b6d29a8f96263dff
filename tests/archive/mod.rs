//! The archive of a feed on DynamoDB, in memory or in the S3 that `NAMESERVICE_TEST_S3` names.

mod functions;

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use nameservice_archive::{Archive, Archiver, LongFeed};
use nameservice_lambda::Bucket;
use nameservice_objects::{
    BucketOptions,
    object_store::{ObjectStore, memory::InMemory},
    s3,
};
use nameservice_signer::Signer;
use nameservice_tests::{
    backends::{BUCKET, BUCKET_ENDPOINT},
    prelude::*,
    pump::pump,
};
use tokio::time::Instant;

fn endpoint() -> Option<String> {
    env::var(BUCKET_ENDPOINT).ok()
}

/// The bucket as a function opens it.
fn of_a_function(endpoint: &str, bucket: &str) -> Bucket {
    let credentials = SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "tests"));
    Bucket::new(bucket, format!("{endpoint}/{bucket}"), Signer::new(credentials, "us-east-1", "s3"))
}

/// The bucket as everything else opens it.
fn of_others(endpoint: &str) -> Arc<dyn ObjectStore> {
    let options = BucketOptions::default()
        .endpoint(Some(endpoint.to_owned()))
        .region(Some("us-east-1".to_owned()))
        .timeout(Duration::from_secs(60));
    s3(BUCKET, &options, 3).unwrap()
}

/// Where the archive of a test is: in memory, or in a folder of the bucket.
struct Place {
    folder: String,
    memory: Arc<dyn ObjectStore>,
}

impl Place {
    fn new() -> Self {
        Self { folder: format!("archives/{}", uuid::Uuid::new_v4()), memory: Arc::new(InMemory::new()) }
    }

    /// The archive as a function opens it.
    fn of_a_function(&self) -> Archive {
        match endpoint() {
            Some(endpoint) => Archive::new(of_a_function(&endpoint, BUCKET), &self.folder, "the archive"),
            None => self.of_others(),
        }
    }

    /// The archive as everything else opens it.
    fn of_others(&self) -> Archive {
        let store = endpoint().map_or_else(|| self.memory.clone(), |endpoint| of_others(&endpoint));
        Archive::new(store, &self.folder, "the archive")
    }
}

async fn heads(table: &Table, from: i64, to: i64) {
    for t in from..=to {
        drop(table.store.push_head(&Call::fresh(), &at("mydb"), &older(new_head(t))).await.unwrap());
    }
    pump(table).await;
}

async fn positions(feed: &dyn ChangeFeed, mut after: u64) -> Vec<u64> {
    let mut positions = Vec::new();
    loop {
        match feed.changes(after, Limit::new(7).unwrap()).await.unwrap() {
            Run::Changes(changes) if changes.is_empty() => return positions,
            Run::Changes(changes) => positions.extend(changes.iter().map(|change| change.position)),
            Run::Gone { oldest } => panic!("after {after} is gone, up to {oldest}"),
        }
        after = positions.last().copied().unwrap();
    }
}

/// Runs one invocation of the function, with enough time left to finish.
async fn invoke(table: &Table, archive: &Archive) -> nameservice_archive::Archived {
    let archiver = Archiver::new(Arc::new(table.feed.clone()), archive.clone());
    feed_archive::archive(&archiver, Instant::now() + Duration::from_secs(600)).await.unwrap()
}

#[tokio::test]
async fn bucket_and_table_hold_the_whole_feed_and_a_lost_epoch_is_a_gap() {
    let (table, archive) = (Table::with_stream().await, Place::new().of_a_function());
    drop(table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap());
    heads(&table, 1, 20).await;
    let first = invoke(&table, &archive).await;
    let end = table.feed.position().await.unwrap();
    assert_eq!((first.position, first.changes, first.lost), (end, end, 0));
    assert_eq!(positions(&archive, 0).await, (1..=end).collect::<Vec<_>>());

    // As if the stream had expired unread: the lost changes get no positions, and later ones begin a new epoch.
    let epoch = table.feed.begin_epoch().await.unwrap();
    heads(&table, 21, 25).await;
    let second = invoke(&table, &archive).await;
    assert_eq!((second.lost, second.changes), (epoch - end - 1, 5));
    let long = LongFeed::new(Arc::new(table.feed.clone()), archive.clone());
    let limit = Limit::new(100).unwrap();
    assert!(matches!(table.feed.changes(0, limit).await.unwrap(), Run::Gone { .. }), "the feed has forgotten");
    let Run::Changes(found) = long.changes(0, limit).await.unwrap() else { panic!("gone") };
    assert_eq!(found.iter().map(|change| change.position).collect::<Vec<_>>(), (1..=end).collect::<Vec<_>>());
    assert_eq!(long.changes(end, limit).await.unwrap(), Run::Gone { oldest: epoch });
    assert_eq!(positions(&long, epoch - 1).await, (epoch..epoch + 5).collect::<Vec<_>>());
    let nothing_new = invoke(&table, &archive).await;
    assert_eq!((nothing_new.objects, nothing_new.position), (0, epoch + 4));
}

#[tokio::test]
async fn bucket_objects_are_each_written_by_one_of_many_archivers() {
    let (table, place) = (Table::with_stream().await, Place::new());
    drop(table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap());
    heads(&table, 1, 40).await;
    // Archivers as functions run them, and as `nameservice archive` does.
    let archivers = (1..=6).map(|n| {
        let archive = if n % 2 == 0 { place.of_a_function() } else { place.of_others() };
        let archiver = Archiver::new(Arc::new(table.feed.clone()), archive).with_max_changes(2 * n);
        tokio::spawn(async move { archiver.catch_up(None).await.unwrap() })
    });
    let (mut written, mut ends) = (0, BTreeSet::new());
    for archiver in archivers.collect::<Vec<_>>() {
        let progress = archiver.await.unwrap();
        written += progress.changes;
        ends.insert(progress.position);
    }
    let end = table.feed.position().await.unwrap();
    assert_eq!(ends, BTreeSet::from([end]), "all come to the end");
    assert!(written <= end, "each change is written once, but where the reply of a write was lost");
    assert_eq!(positions(&place.of_others(), 0).await, (1..=end).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_invocation_without_the_time_for_it_fails_and_the_next_continues() {
    let (table, archive) = (Table::with_stream().await, Place::new().of_a_function());
    heads(&table, 1, 1).await;
    drop(table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap());
    pump(&table).await;
    let archiver = Archiver::new(Arc::new(table.feed.clone()), archive.clone());
    assert!(feed_archive::archive(&archiver, Instant::now()).await.is_err());
    assert_eq!(archive.position().await.unwrap(), 0);
    assert!(invoke(&table, &archive).await.position > 0);
}
