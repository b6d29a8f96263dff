//! What the store promises, whatever engine it stands on. One file a noun, one test an outcome.

mod branch;
mod config;
mod create;
mod fluree_rows;
mod graph_source;
mod head;
mod index;
mod lists;
mod purge;
mod reset;
mod retract;
mod snapshot;
mod status;
mod table;

use nameservice_tests::prelude::*;

/// A ledger with a head at `t`.
async fn born(store: &Store, address: &str, t: i64) -> Address {
    let address = at(address);
    let outcome = store.create_ledger(&Call::fresh(), &address, Some(&head(t)), None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

/// A ledger without anything.
async fn unborn(store: &Store, address: &str) -> Address {
    let address = at(address);
    let outcome = store.create_ledger(&Call::fresh(), &address, None, None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

/// A graph source that depends on these.
async fn source(store: &Store, address: &str, dependencies: &[&str]) -> Address {
    let address = at(address);
    let publication = bm25(json!({ "k1": 1.2 }), dependencies);
    let outcome = store.publish_graph_source(&Call::fresh(), &address, &publication).await.unwrap();
    assert!(matches!(outcome, Published::Created(_)), "{outcome:?}");
    address
}

/// A branch of a born ledger.
async fn branch(store: &Store, address: &str, from: &Address) -> Address {
    let address = at(address);
    let outcome = store.create_branch(&Call::fresh(), &address, from, None).await.unwrap();
    assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    address
}

async fn retracted(store: &Store, address: &Address) {
    let outcome = store.retract(&Call::fresh(), address, None).await.unwrap();
    assert!(matches!(outcome, Retracted::Retracted(_)), "{outcome:?}");
}

async fn found(store: &Store, address: &Address) -> Record {
    store.lookup(address).await.unwrap().expect("a record")
}
