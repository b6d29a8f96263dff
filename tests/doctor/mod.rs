//! What the doctor finds, what it mends, and that it does so beside live traffic.

mod branches;
mod commits;
mod faults;
mod healthy;
mod lag;
mod leftovers;
mod references;
mod retractions;
mod traffic;
mod unreadable;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use nameservice_feed::Lag;
use nameservice_store::doctor::{CODES, Finding, Fix, Severity, Written};
use nameservice_tests::{
    cids::id_of,
    layout::{self, assert_references},
    prelude::*,
    pump::pump,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::contract::races::anything_at_all;

const DB: &str = "mydb:main";

async fn examine(store: &Store, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    store.examine(fix, &mut |finding| findings.push(finding)).await.unwrap();
    for finding in &findings {
        assert!(CODES.iter().any(|(code, _)| *code == finding.code), "{finding:?} is of no documented code");
    }
    findings
}

/// The findings in order of address and code: `mydb:main marks-missing`.
async fn found(table: &Table) -> Vec<String> {
    let findings = examine(&table.store, false).await;
    let lines: BTreeSet<String> = findings
        .into_iter()
        .map(|finding| format!("{} {}", finding.address.unwrap_or_default(), finding.code))
        .collect();
    lines.into_iter().collect()
}

/// Asserts these findings and no others, and that a fix leaves none.
async fn mended(table: &Table, expected: &[&str]) {
    let before = table.all_rows().await.len();
    assert_eq!(found(table).await, expected);
    assert_eq!(table.all_rows().await.len(), before, "looking changes nothing");
    for finding in examine(&table.store, true).await {
        assert_eq!(finding.fix, Fix::Done, "{finding:?}");
    }
    assert_eq!(found(table).await, [] as [&str; 0]);
}

/// Asserts these findings and no others, which are the operator's to mend: a fix changes nothing.
async fn left_alone(table: &Table, expected: &[&str]) {
    assert_eq!(found(table).await, expected);
    let rows = table.all_rows().await;
    for finding in examine(&table.store, true).await {
        assert_eq!(finding.fix, Fix::ByHand, "{finding:?}");
    }
    assert_eq!(table.all_rows().await, rows);
}

async fn ledger(table: &Table, address: &str) -> Address {
    let address = at(address);
    let created = table.store.create_ledger(&Call::fresh(), &address, Some(&new_head(1)), None).await.unwrap();
    assert!(matches!(created, Created::Created(_)), "{created:?}");
    address
}

async fn source(table: &Table, address: &str, dependencies: &[&str]) -> Address {
    let address = at(address);
    let publication = bm25(&address, json!({}), dependencies);
    table.store.publish_graph_source(&Call::fresh(), &publication).await.unwrap().applied();
    address
}

async fn branch(table: &Table, address: &str, from: &Address) -> Address {
    let address = at(address);
    let outcome = table.store.create_branch(&Call::fresh(), &address, from, None).await.unwrap();
    assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    address
}

async fn retract(table: &Table, address: &Address) -> Retracted {
    table.store.retract(&Call::fresh(), address, None).await.unwrap()
}

async fn record(table: &Table, address: &Address) -> Record {
    table.store.lookup(address).await.unwrap().expect("a record")
}
