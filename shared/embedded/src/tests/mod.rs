//! Tests of what is particular to this backend. The contract suite tests its behaviour as a nameservice.

mod commands;
mod crashes;
mod doctor;
mod durability;
mod feed;
mod files;
mod outcomes;
mod replicas;
mod retention;
mod search;
mod snapshots;

use std::{path::Path, time::Duration};

use nameservice_model::{Address, Call, ContentId, Head, HeadPush, NewHead, PushOutcome, RefPublisher};

use crate::{Embedded, Options};

fn at(address: &str) -> Address {
    Address::parse(address).unwrap()
}

fn id(n: i64) -> ContentId {
    ContentId::stored(format!("bafy{n}"))
}

fn head(t: i64) -> NewHead {
    NewHead::new(id(t), t).unwrap()
}

fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, Options::default()).unwrap()
}

async fn push(names: &Embedded, address: &str, t: i64) -> nameservice_model::Result<PushOutcome<ContentId>> {
    let push = if t == 1 { HeadPush::create(head(t)) } else { HeadPush::monotonic(head(t)) };
    names.push_head(&Call::fresh(), &at(address), &push).await
}

async fn pushed(names: &Embedded, address: &str, t: i64) {
    let outcome = push(names, address, t).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{outcome:?}");
}

async fn head_of(names: &Embedded, address: &str) -> Option<Head> {
    names.head(&at(address)).await.unwrap()
}

/// The timeout of tests that wait for something that must happen.
const LONG: Duration = Duration::from_secs(60);
