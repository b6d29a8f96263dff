//! Records for the tests.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test file uses some of it")]

use std::sync::Arc;

use nameservice_embedded::{Embedded, Options};
use nameservice_model::*;
use serde_json::Value;

const IDS: [&str; 2] = [
    "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
    "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
];

/// Returns a content id for a number.
pub(crate) fn id(n: usize) -> ContentId {
    match n {
        0 | 1 => ContentId::parse(IDS[n]).unwrap(),
        // Any id is the hash of something; these differ in their last letters before the final one.
        n => {
            let letters = b"abcdefghijklmnopqrstuvwxyz";
            let mut text = IDS[0].as_bytes().to_vec();
            let place = text.len() - 4;
            text[place] = letters[n % 26];
            text[place - 1] = letters[(n / 26) % 26];
            ContentId::parse(std::str::from_utf8(&text).unwrap()).unwrap()
        }
    }
}

pub(crate) fn at(text: &str) -> Address {
    Address::parse(text).unwrap()
}

pub(crate) fn memory() -> Embedded {
    Embedded::memory(Options::default()).unwrap()
}

pub(crate) fn backend(names: &Embedded) -> Arc<dyn Backend> {
    Arc::new(names.clone())
}

pub(crate) async fn found(names: &Embedded, name: &str) -> Record {
    names.lookup(&at(name)).await.unwrap().unwrap()
}

/// Creates a ledger at this `t`, unborn at 0.
pub(crate) async fn ledger(names: &Embedded, name: &str, t: i64) {
    ledger_at(names, name, t, 0).await;
}

pub(crate) async fn ledger_at(names: &Embedded, name: &str, t: i64, n: usize) {
    let head = (t > 0).then(|| NewHead::new(id(n), t).unwrap());
    let created = names.create_ledger(&Call::fresh(), &at(name), head.as_ref(), None).await.unwrap();
    assert!(matches!(created, Created::Created(_)));
}

pub(crate) async fn branch_of(names: &Embedded, branch: &str, source: &str) {
    let created = names.create_branch(&Call::fresh(), &at(branch), &at(source), None).await.unwrap();
    assert!(matches!(created, BranchCreated::Created(_)), "{created:?}");
}

pub(crate) async fn push_head(names: &Embedded, name: &str, t: i64, n: usize) {
    let push = HeadPush::monotonic(NewHead::new(id(n), t).unwrap());
    assert!(names.push_head(&Call::fresh(), &at(name), &push).await.unwrap().is_updated());
}

pub(crate) async fn push_index(names: &Embedded, name: &str, t: i64) {
    let push = IndexPush::monotonic(NewIndex::new(id(1), t).unwrap());
    assert!(names.push_index(&Call::fresh(), &at(name), &push).await.unwrap().is_updated());
}

/// Pushes an index with named graphs.
pub(crate) async fn graphs(names: &Embedded, name: &str, t: i64) {
    let graph = NewGraphIndex::new(id(3), t).unwrap().with_rev(2).unwrap();
    let new = NewIndex::new(id(4), t).unwrap().with_graph("g", Some(graph)).unwrap().with_graph("h", None).unwrap();
    assert!(names.push_index(&Call::fresh(), &at(name), &IndexPush::monotonic(new)).await.unwrap().is_updated());
}

pub(crate) async fn set_status(names: &Embedded, name: &str, state: &str, meta: Value) {
    let current = names.status(&at(name)).await.unwrap().unwrap();
    let payload = StatusPayload { state: state.into(), meta: meta.as_object().unwrap().clone() };
    let push = StatusPush::cas(Status::stored(current.v, None), NewStatus::new(payload).unwrap());
    assert!(names.push_status(&Call::fresh(), &at(name), &push).await.unwrap().is_updated());
}

pub(crate) async fn set_config(names: &Embedded, name: &str, config: Value) {
    let current = names.config(&at(name)).await.unwrap().unwrap();
    let new = NewConfig::new(config.as_object().unwrap().clone()).unwrap();
    let push = ConfigPush::cas(Config::stored(current.v, None), new);
    assert!(names.push_config(&Call::fresh(), &at(name), &push).await.unwrap().is_updated());
}

/// Publishes a graph source.
pub(crate) async fn graph_source(
    names: &Embedded,
    name: &str,
    dependencies: &[&str],
    config: Value,
) -> Result<Record, Published> {
    let publication = GraphSourcePublication::new(at(name), "f:Bm25Index", config.as_object().unwrap().clone())
        .unwrap()
        .with_dependencies(dependencies.iter().map(|name| at(name)).collect())
        .unwrap();
    match names.publish_graph_source(&Call::fresh(), &publication).await.unwrap() {
        Published::Created(record) | Published::Updated(record) => Ok(*record),
        other => Err(other),
    }
}

pub(crate) async fn retract(names: &Embedded, name: &str) {
    let retracted = names.retract(&Call::fresh(), &at(name), Some("old")).await.unwrap();
    assert!(matches!(retracted, Retracted::Retracted(_)), "{retracted:?}");
}

pub(crate) async fn lease(names: &Embedded, name: &str) {
    let request = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
    let leased = names.acquire_lease(&Call::fresh(), &at(name), &request).await.unwrap();
    assert!(matches!(leased, Leased::Held(_)), "{leased:?}");
}
