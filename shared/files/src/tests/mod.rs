mod attributes;
mod buckets;
mod commit_log;
mod compares;
mod directories;
mod doctor;
mod feed;
mod fluree;
mod former;
mod names;
mod numbers;
#[cfg(unix)]
mod outages;
mod processes;
mod races;

use std::{path::PathBuf, sync::Arc, time::Duration};

use nameservice_model::*;
use object_store::{ObjectStore, memory::InMemory};
use tempfile::TempDir;

use crate::{Bucket, Files, Options};

const IDS: [&str; 3] = [
    "bagaybqabciqgzqtsjbrqbffrm4ty533it7ddqf64mij4qin6czev43pzhuhgqky",
    "bagaybqabciqezo6yzjjblogrmgxmdanhjnuu6trewaa5lmeb3qadb3lzpkexhya",
    "bagaybqabciqf5gs54sszu7b4touiiydaxj32wqbogceglcvhaxq2mttzn5wnlty",
];

const ROOTS: [&str; 3] = [
    "baghybqabciqphzejdjfwlxltxmclquh6o62cyiqgzkdrax4bzm5r6sgd6fcajmy",
    "baghybqabciqke6yyx5ipouqci64p6nfx3vmub43z2mvqdygyiiypv45g2cecqyi",
    "baghybqabciqb6oubqmqgduhiskwh5zqy3y6j74jyd5rtsvyzfbdwsgzv4auaqdq",
];

fn at(text: &str) -> Address {
    Address::stored(if text.contains(':') { text.to_owned() } else { format!("{text}:main") })
}

fn id(n: usize) -> ContentId {
    ContentId::parse(IDS[n]).unwrap()
}

fn root(n: usize) -> ContentId {
    ContentId::parse(ROOTS[n]).unwrap()
}

fn head(n: usize, t: i64) -> NewHead {
    NewHead::new(id(n), t).unwrap()
}

fn index(n: usize, t: i64) -> NewIndex {
    NewIndex::new(root(n), t).unwrap()
}

/// The deadline for what must happen, and the timeout of operations that must succeed.
const LONG: Duration = Duration::from_secs(120);

fn options() -> Options {
    Options::default().with_interval(Duration::from_secs(3_600)).with_timeout(LONG)
}

fn directory() -> (Files, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (Files::directory(directory.path(), false, options()).unwrap(), directory)
}

fn bucket(store: Arc<dyn ObjectStore>) -> Files {
    Files::bucket(Bucket::over(store, "some/prefix/"), options())
}

/// A directory and a bucket.
fn both() -> (Vec<Files>, TempDir) {
    let (files, directory) = directory();
    (vec![files, bucket(Arc::new(InMemory::new()))], directory)
}

async fn born(files: &Files, address: &str, t: i64) -> Address {
    let address = at(address);
    let created = files.create_ledger(&Call::fresh(), &address, Some(&head(0, t)), None).await.unwrap();
    assert!(matches!(created, Created::Created(_)), "{created:?}");
    address
}

async fn push(files: &Files, address: &Address, n: usize, t: i64) -> PushOutcome<ContentId> {
    files.push_head(&Call::fresh(), address, &HeadPush::monotonic(head(n, t))).await.unwrap()
}

async fn everything(files: &Files) -> Vec<Record> {
    files.snapshot(Limit::MAX, None, &|_| true).await.unwrap().items
}

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fluree")
}

/// A copy of what Fluree has written.
fn fluree() -> (Files, TempDir) {
    let copy = tempfile::tempdir().unwrap();
    copy_tree(&fixture().join("ns@v2"), &copy.path().join("ns@v2"));
    (Files::directory(copy.path(), false, options()).unwrap(), copy)
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
