//! Fetch, pull, push and status between two backends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod support;

use std::sync::Arc;

use nameservice_embedded::Embedded;
use nameservice_model::*;
use nameservice_sync::{
    remotes::{self, Fetched, MoveOptions, Moved, Tracking},
    report::Records,
};
use serde_json::json;
use support::*;
use tempfile::TempDir;

/// Two nameservices, and what the first knows about the second.
struct Pair {
    local: Embedded,
    remote: Embedded,
    tracking: Tracking,
    _directory: TempDir,
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tracking = Tracking::of(directory.path()).unwrap();
        Self { local: memory(), remote: memory(), tracking, _directory: directory }
    }

    async fn fetch(&self) -> Fetched {
        remotes::fetch(&backend(&self.remote), None, &self.tracking, "origin", &|_| {}).await.unwrap()
    }

    async fn pull(&self) -> Moved {
        self.pull_with(&MoveOptions::default()).await
    }

    async fn pull_with(&self, options: &MoveOptions) -> Moved {
        let (local, remote) = (backend(&self.local), backend(&self.remote));
        remotes::pull(&local, Some(&remote), None, &self.tracking, "origin", options, &|_| {}).await.unwrap()
    }

    async fn push(&self) -> Moved {
        let (local, remote) = (backend(&self.local), backend(&self.remote));
        let options = MoveOptions::default();
        remotes::push(&local, &remote, None, &self.tracking, "origin", &options, &|_| {}).await.unwrap()
    }

    async fn status(&self) -> Moved {
        let (local, remote) = (backend(&self.local), backend(&self.remote));
        remotes::status(&local, Some(&remote), None, &self.tracking, "origin", &|_| {}).await.unwrap()
    }
}

fn addresses(records: &Records) -> Vec<&str> {
    let mut addresses: Vec<_> = records.records.iter().map(|entry| entry.address.as_str()).collect();
    addresses.sort_unstable();
    addresses
}

/// Creates records of both kinds at the remote, and pulls them.
async fn pulled() -> Pair {
    let pair = Pair::new();
    ledger(&pair.remote, "zoo", 3).await;
    branch_of(&pair.remote, "zoo:a", "zoo").await;
    set_config(&pair.remote, "zoo", json!({"a": 1})).await;
    set_status(&pair.remote, "zoo", "syncing", json!({"by": "r"})).await;
    graph_source(&pair.remote, "search", &["zoo"], json!({"k": 1})).await.unwrap();
    ledger(&pair.remote, "old", 1).await;
    retract(&pair.remote, "old").await;
    let fetched = pair.fetch().await;
    assert_eq!((fetched.records, fetched.changed, fetched.gone), (4, 4, 0));
    let moved = pair.pull().await;
    assert_eq!(addresses(&moved.moved), ["old:main", "search:main", "zoo:a", "zoo:main"], "{moved:#?}");
    assert!(moved.is_settled());
    pair
}

#[tokio::test]
async fn what_is_pulled_is_up_to_date_and_what_changes_is_ahead_or_behind() {
    let pair = pulled().await;
    assert_eq!(pair.status().await.up_to_date, 4);
    assert_eq!(pair.pull().await.up_to_date, 4);
    assert!(found(&pair.local, "old").await.retracted);
    push_head(&pair.local, "zoo:a", 9, 1).await;
    set_status(&pair.local, "search", "error", json!({})).await;
    ledger(&pair.local, "mine", 2).await;
    branch_of(&pair.local, "mine:a", "mine").await;
    push_head(&pair.remote, "zoo", 8, 1).await;
    ledger(&pair.remote, "theirs", 2).await;
    assert_eq!(pair.fetch().await.changed, 2);
    let status = pair.status().await;
    assert_eq!(addresses(&status.ahead), ["mine:a", "mine:main", "search:main", "zoo:a"]);
    assert_eq!(addresses(&status.behind), ["theirs:main", "zoo:main"]);
    let moved = pair.push().await;
    assert_eq!(addresses(&moved.moved), ["mine:a", "mine:main", "search:main", "zoo:a"], "{moved:#?}");
    assert_eq!(found(&pair.remote, "zoo:a").await.head.unwrap().v, 9);
    assert_eq!(found(&pair.remote, "search").await.status.payload.unwrap().state, "error");
    let moved = pair.pull().await;
    assert_eq!(addresses(&moved.moved), ["theirs:main", "zoo:main"], "{moved:#?}");
    assert_eq!(pair.fetch().await.gone, 0);
    assert_eq!(pair.status().await.up_to_date, 7);
}

#[tokio::test]
async fn a_push_never_overwrites_what_it_has_not_seen() {
    let pair = pulled().await;
    push_head(&pair.local, "zoo", 5, 1).await;
    set_config(&pair.local, "zoo:a", json!({"mine": 1})).await;
    graph_source(&pair.local, "search", &["zoo"], json!({"k": 2})).await.unwrap();
    // Each of these is newer, older or equal in watermark: none may be lost.
    push_head(&pair.remote, "zoo", 4, 2).await;
    set_config(&pair.remote, "zoo:a", json!({"theirs": 1})).await;
    graph_source(&pair.remote, "search", &["zoo"], json!({"k": 3})).await.unwrap();
    let before =
        (found(&pair.remote, "zoo").await, found(&pair.remote, "zoo:a").await, found(&pair.remote, "search").await);
    let moved = pair.push().await;
    assert_eq!(addresses(&moved.overtaken), ["search:main", "zoo:a", "zoo:main"], "{moved:#?}");
    assert!(moved.moved.is_empty());
    let after =
        (found(&pair.remote, "zoo").await, found(&pair.remote, "zoo:a").await, found(&pair.remote, "search").await);
    assert_eq!(before, after);
    // Once it has seen them they have diverged, which is left to a person.
    pair.fetch().await;
    let moved = pair.push().await;
    assert_eq!(addresses(&moved.diverged), ["search:main", "zoo:a", "zoo:main"], "{moved:#?}");
    assert!(moved.moved.is_empty());
    let moved = pair.pull_with(&MoveOptions::default().by_watermark(true)).await;
    assert_eq!(addresses(&moved.ahead), ["zoo:main"]);
    assert_eq!(addresses(&moved.diverged), ["search:main", "zoo:a"]);
}

#[tokio::test]
async fn a_pull_never_loses_a_local_write() {
    let pair = pulled().await;
    push_head(&pair.local, "zoo", 7, 1).await;
    set_config(&pair.local, "zoo:a", json!({"mine": 1})).await;
    push_head(&pair.remote, "zoo", 9, 2).await;
    set_config(&pair.remote, "zoo:a", json!({"theirs": 1})).await;
    push_head(&pair.remote, "zoo:a", 5, 2).await;
    pair.fetch().await;
    let (zoo, a) = (found(&pair.local, "zoo").await, found(&pair.local, "zoo:a").await);
    let moved = pair.pull().await;
    assert_eq!(addresses(&moved.diverged), ["zoo:a", "zoo:main"], "{moved:#?}");
    assert_eq!((found(&pair.local, "zoo").await, found(&pair.local, "zoo:a").await), (zoo, a), "nothing was written");
    let entry = &moved.diverged.records.iter().find(|entry| entry.address == "zoo:main").unwrap();
    assert_eq!(
        (entry.differences[0].source["t"].as_i64(), entry.differences[0].target["t"].as_i64()),
        (Some(9), Some(7))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_beside_local_writers_loses_none_of_their_writes() {
    let pair = Arc::new(pulled().await);
    let writer = pair.clone();
    let writing = tokio::spawn(async move {
        let mut written = Vec::new();
        for t in 10..200 {
            let current = writer.local.head(&at("zoo")).await.unwrap().unwrap();
            let push = HeadPush::cas(current.clone(), NewHead::new(id(1), current.v.max(t) + 1).unwrap());
            if let PushOutcome::Updated { value, .. } =
                writer.local.push_head(&Call::fresh(), &at("zoo"), &push).await.unwrap()
            {
                written.push(value.v);
            }
            tokio::task::yield_now().await;
        }
        written
    });
    for t in 0..40 {
        push_head(&pair.remote, "zoo", 1_000 + t, 2).await;
        pair.fetch().await;
        pair.pull().await;
    }
    let written = writing.await.unwrap();
    let Run::Changes(changes) = pair.local.changes(0, Limit::MAX).await.unwrap() else { panic!() };
    // A pull replaces the base value alone: never a value that the writer has written.
    let heads: Vec<_> = changes
        .iter()
        .filter(|change| change.address == at("zoo") && change.part == ChangedPart::Concern(ConcernKind::Head))
        .collect();
    for change in
        heads.iter().filter(|change| change.watermark >= 1_000 && written.binary_search(&change.watermark).is_err())
    {
        assert!(change.previous.is_none_or(|previous| written.binary_search(&previous).is_err()), "{change:?}");
    }
}

#[tokio::test]
async fn a_value_in_the_remotes_history_is_a_fast_forward() {
    let pair = pulled().await;
    // The same push arrives on both sides, and the remote moves on: nothing local is lost.
    push_head(&pair.local, "zoo", 6, 1).await;
    push_head(&pair.remote, "zoo", 6, 1).await;
    push_head(&pair.remote, "zoo", 7, 2).await;
    pair.fetch().await;
    let moved = pair.pull().await;
    assert_eq!(addresses(&moved.moved), ["zoo:main"], "{moved:#?}");
    assert_eq!(found(&pair.local, "zoo").await.head.unwrap().v, 7);
}

#[tokio::test]
async fn a_reset_is_pulled_on_purpose_and_never_pushed() {
    let pair = pulled().await;
    let back = |t| ResetTo::new(Some(NewHead::new(id(0), t).unwrap()), None).unwrap();
    let _ = pair.remote.reset_head(&Call::fresh(), &at("zoo"), &back(2)).await.unwrap();
    let _ = pair.local.reset_head(&Call::fresh(), &at("zoo:a"), &back(1)).await.unwrap();
    pair.fetch().await;
    assert_eq!(addresses(&pair.pull().await.rejected), ["zoo:main"]);
    assert_eq!(addresses(&pair.push().await.rejected), ["zoo:a"]);
    assert_eq!(found(&pair.remote, "zoo:a").await.head.unwrap().v, 3);
    let moved = pair.pull_with(&MoveOptions::default().resets(true)).await;
    assert_eq!(addresses(&moved.moved), ["zoo:main"]);
    assert_eq!(found(&pair.local, "zoo").await.head.unwrap().v, 2);
}

#[tokio::test]
async fn what_was_purged_on_one_side_is_reported_and_left_on_the_other() {
    let pair = pulled().await;
    let _ = pair.remote.purge(&Call::fresh(), &at("search")).await.unwrap();
    let _ = pair.local.purge(&Call::fresh(), &at("zoo:a")).await.unwrap();
    assert_eq!(pair.fetch().await.gone, 1);
    for moved in [pair.pull().await, pair.push().await] {
        assert_eq!(addresses(&moved.purged), ["search:main", "zoo:a"], "{moved:#?}");
        assert!(moved.moved.is_empty());
    }
    assert!(pair.local.lookup(&at("search")).await.unwrap().is_some());
    assert!(pair.remote.lookup(&at("zoo:a")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_remote_that_was_forgotten_is_tracked_again() {
    let pair = pulled().await;
    let tracked = pair.tracking.get("origin", &at("zoo")).unwrap();
    assert!(tracked.theirs.is_some() && tracked.base == tracked.theirs);
    assert_eq!(pair.tracking.position("origin").unwrap(), Some(pair.remote.position().await.unwrap()));
    pair.tracking.forget("origin").unwrap();
    assert_eq!(pair.tracking.position("origin").unwrap(), None);
    // The tracking was forgotten, but nothing is lost: both sides are still the same.
    pair.fetch().await;
    assert_eq!(pair.pull().await.up_to_date, 4);
}

/// Secrets that the feed or the service hides are neither equal to others nor part of anybody's history.
#[tokio::test]
async fn a_local_secret_that_the_remote_never_had_is_never_overwritten() {
    let theirs = |n: u8| json!({"url": "db", "password": format!("theirs-{n}")});
    let mine = json!({"url": "db", "password": "mine"});
    let pair = Pair::new();
    for (names, configs) in [(&pair.remote, vec![theirs(1), theirs(2)]), (&pair.local, vec![mine.clone()])] {
        ledger(names, "a", 1).await;
        graph_source(names, "g", &[], configs[0].clone()).await.unwrap();
        for config in &configs {
            set_config(names, "a", config.clone()).await;
        }
        for config in &configs[1..] {
            graph_source(names, "g", &[], config.clone()).await.unwrap();
        }
        // A status may hold secrets, too: the feed hides them.
        set_status(names, "a", "ready", json!({"token": configs[0]["password"]})).await;
    }
    set_status(&pair.remote, "a", "ready", json!({"token": "theirs-2"})).await;
    let before = [found(&pair.local, "a").await, found(&pair.local, "g").await];
    pair.fetch().await;
    for moved in [pair.pull().await, pair.push().await] {
        assert_eq!(addresses(&moved.diverged), ["a:main", "g:main"], "{moved:#?}");
        assert!(!moved.is_settled());
    }
    assert_eq!([found(&pair.local, "a").await, found(&pair.local, "g").await], before);
    assert_eq!(found(&pair.remote, "a").await.config.payload, Some(theirs(2)));
}

/// A remote, or a local service, whose configs are shown without their secrets.
#[tokio::test]
async fn configs_without_their_secrets_are_unknown_and_the_rest_still_moves() {
    let hidden = json!({"password": "[redacted]"});
    for (here, there) in [
        (json!({"password": "mine"}), hidden.clone()),
        (hidden.clone(), json!({"password": "x"})),
        (hidden.clone(), hidden),
    ] {
        let pair = Pair::new();
        ledger(&pair.remote, "a", 1).await;
        pair.fetch().await;
        pair.pull().await;
        set_config(&pair.local, "a", here.clone()).await;
        set_config(&pair.remote, "a", there.clone()).await;
        push_head(&pair.remote, "a", 2, 1).await;
        pair.fetch().await;
        for options in [MoveOptions::default(), MoveOptions::default().by_watermark(true)] {
            let moved = pair.pull_with(&options).await;
            assert_eq!(addresses(&moved.unknown), ["a:main"], "{moved:#?}");
            assert!(moved.unknown.records[0].reason.as_ref().unwrap().contains("token"), "{moved:#?}");
            assert!(!moved.is_settled() && moved.up_to_date == 0);
        }
        assert_eq!(addresses(&pair.push().await.unknown), ["a:main"]);
        assert_eq!(addresses(&pair.status().await.unknown), ["a:main"]);
        let (local, remote) = (found(&pair.local, "a").await, found(&pair.remote, "a").await);
        assert_eq!((local.config.payload, remote.config.payload), (Some(here), Some(there)));
        assert_eq!(local.head.unwrap().v, 2);
    }
}
