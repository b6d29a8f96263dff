//! What every backend promises. One file per noun, one test per outcome; each test runs on every backend, and its name
//! ends with the backend's.

mod branch;
mod config;
mod create;
mod feed;
mod graph_source;
mod head;
mod index;
mod keys;
mod leases;
pub(crate) mod lists;
mod protection;
mod purge;
pub(crate) mod races;
mod reset;
mod retract;
mod search;
pub(crate) mod snapshot;
mod status;
pub(crate) mod transactions;

use nameservice_tests::prelude::*;
pub(crate) use nameservice_tests::{
    backends::{Fixture, run},
    every_backend,
};

/// The list of backends: one test for each.
macro_rules! on_every_backend {
    ($test:ident [$($capability:ident),*]) => {
        mod $test {
            crate::contract::on_every_backend! {
                $test [$($capability),*]
                dynamodb: DynamoDb,
                embedded: Embedded,
                memory: Memory,
                client: Client,
                replica: Replica,
                legacy: Legacy,
                directory: Directory,
                bucket: Bucket,
            }
        }
    };
    ($test:ident $needs:tt $($name:ident: $place:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            crate::contract::run_on!($place, $test, $needs).await;
        }
    )*};
}
pub(crate) use on_every_backend;

macro_rules! run_on {
    ($place:ident, $test:ident, [$($capability:ident),*]) => {{
        use nameservice_model::Capability;
        use nameservice_tests::backends::Place;
        let needs: &[Capability] = &[$(Capability::$capability),*];
        crate::contract::run(Place::$place, module_path!(), needs, super::$test)
    }};
}
pub(crate) use run_on;

/// A ledger with a head at `t`.
pub(crate) async fn born(ns: &impl AsRecords, address: &str, t: i64) -> Address {
    let ns = ns.records();
    let address = at(address);
    let outcome = ns.create_ledger(&Call::fresh(), &address, Some(&new_head(t)), None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

/// A ledger without a head.
pub(crate) async fn unborn(ns: &impl AsRecords, address: &str) -> Address {
    let ns = ns.records();
    let address = at(address);
    let outcome = ns.create_ledger(&Call::fresh(), &address, None, None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

/// A graph source that depends on these.
pub(crate) async fn source(ns: &impl AsRecords, address: &str, dependencies: &[&str]) -> Address {
    let ns = ns.records();
    let address = at(address);
    let publication = bm25(&address, json!({ "k1": 1.2 }), dependencies);
    let outcome = ns.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
    assert!(matches!(outcome, Published::Created(_)), "{outcome:?}");
    address
}

/// A branch of a born ledger.
pub(crate) async fn branch(ns: &impl AsRecords, address: &str, from: &Address) -> Address {
    let ns = ns.records();
    let address = at(address);
    let outcome = ns.create_branch(&Call::fresh(), &address, from, None).await.unwrap();
    assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    address
}

/// Retracts a record.
pub(crate) async fn retracted(ns: &impl AsRecords, address: &Address) {
    let ns = ns.records();
    let outcome = ns.retract(&Call::fresh(), address, None).await.unwrap();
    assert!(matches!(outcome, Retracted::Retracted(_)), "{outcome:?}");
}

/// The record, which must exist.
pub(crate) async fn found(ns: &impl AsRecords, address: &Address) -> Record {
    let ns = ns.records();
    ns.lookup(address).await.unwrap().expect("a record")
}
