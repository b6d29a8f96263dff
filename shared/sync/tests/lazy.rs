//! Records of an older place, taken over when they are first written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod support;

use std::{collections::BTreeMap, sync::Arc};

use nameservice_embedded::Embedded;
use nameservice_model::*;
use nameservice_sync::{
    BackendSource, CopyOptions, LazyBackend, copy,
    lazy::{Left, PENDING, left},
};
use serde_json::json;
use support::*;

/// Returns a service over `names`, which others may use too.
fn service(older: &Embedded, names: &Embedded) -> LazyBackend {
    let source = BackendSource::new(Arc::new(older.clone())).without_feed();
    LazyBackend::new(backend(names), Arc::new(names.clone()), Arc::new(source), "item:old".into())
}

async fn left_of(older: &Embedded, names: &Embedded) -> Left {
    left(&BackendSource::new(Arc::new(older.clone())), &backend(names)).await.unwrap()
}

/// An older place with records of both kinds, and a new one with a record of its own.
async fn places() -> (Embedded, Embedded) {
    let (older, names) = (memory(), memory());
    ledger(&older, "zoo", 7).await;
    branch_of(&older, "zoo:dev", "zoo").await;
    push_head(&older, "zoo:dev", 12, 3).await;
    push_index(&older, "zoo", 5).await;
    graphs(&older, "zoo", 6).await;
    for n in 0..3 {
        set_config(&older, "zoo", json!({"index_threshold": n})).await;
    }
    set_status(&older, "zoo", "error", json!({"error": "disk full"})).await;
    ledger(&older, "plain", 2).await;
    push_index(&older, "plain", 2).await;
    ledger(&older, "unborn", 0).await;
    graph_source(&older, "deep", &["zoo:dev"], json!({})).await.unwrap();
    graph_source(&older, "search", &["zoo", "deep"], json!({"k1": 1.2})).await.unwrap();
    push_index(&older, "search", 4).await;
    ledger(&older, "gone", 3).await;
    push_index(&older, "gone", 3).await;
    retract(&older, "gone").await;
    ledger(&names, "own", 1).await;
    ledger(&names, "zoologist", 1).await;
    (older, names)
}

const ALL: [&str; 9] = [
    "deep:main",
    "search:main",
    "gone:main",
    "own:main",
    "plain:main",
    "unborn:main",
    "zoo:dev",
    "zoo:main",
    "zoologist:main",
];
const OLDER: [&str; 7] = ["deep", "gone", "plain", "search", "unborn", "zoo", "zoo:dev"];

/// Returns the content of a record that does not depend on the place that keeps it.
fn content(record: &Record) -> serde_json::Value {
    let config = record.config.payload.clone().filter(|config| *config != json!({}));
    json!({
        "address": record.address.as_str(), "retracted": record.retracted, "source_branch": record.source_branch,
        "source_type": record.source_type, "dependencies": record.dependencies,
        "head": record.head.as_ref().map(|head| (head.v, head.payload.as_ref().map(ContentId::as_str).map(str::to_owned))),
        "index": record.index.v, "index_id": record.index.payload.as_ref().map(|root| root.id.as_str().to_owned()),
        "graphs": record.index.payload.as_ref().map_or(0, |root| root.graphs.len()),
        "state": record.status.payload.as_ref().map(|status| status.state.clone()), "config": config,
    })
}

async fn pages(lazy: &LazyBackend, query: &ListQuery, limit: usize) -> Vec<String> {
    let mut query = ListQuery { limit: Limit::new(limit).unwrap(), ..query.clone() };
    let mut found = Vec::new();
    loop {
        let page = lazy.list(&query, &|_| true).await.unwrap();
        assert!(page.items.len() <= limit);
        found.extend(page.items.iter().map(|item| match item {
            Listed::Summary(summary) => summary.address.to_string(),
            Listed::Full(record) => record.address.to_string(),
        }));
        match page.cursor {
            Some(cursor) => query.cursor = Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return found,
        }
    }
}

async fn snapshot(lazy: &LazyBackend, limit: usize) -> Vec<Record> {
    let (mut cursor, mut found) = (None, Vec::new());
    loop {
        let page = lazy.snapshot(Limit::new(limit).unwrap(), cursor.as_ref(), &|_| true).await.unwrap();
        found.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

#[tokio::test]
async fn records_of_both_places_are_looked_up_together() {
    let (older, names) = places().await;
    let service = service(&older, &names);
    let wanted: Vec<Address> = ALL.iter().rev().chain(&["none"]).map(|address| at(address)).collect();
    let together = service.lookup_all(&wanted).await.unwrap();
    let addresses: Vec<&Address> = together.iter().map(|record| &record.address).collect();
    assert_eq!(addresses, wanted[..ALL.len()].iter().collect::<Vec<_>>());
    for record in together {
        assert_eq!(service.lookup(&record.address).await.unwrap().as_ref(), Some(&record));
        let is_source = record.kind == RecordKind::GraphSource;
        assert_eq!(service.graph_source(&record.address).await.unwrap(), Some(record).filter(|_| is_source));
    }
    assert_eq!(names.lookup_all(&wanted).await.unwrap().len(), 2, "a read takes nothing over");
}

#[tokio::test]
async fn reads_lists_and_snapshots_show_both_places_and_write_nothing() {
    let (older, names) = places().await;
    let lazy = service(&older, &names);
    let before = names.position().await.unwrap();
    for name in OLDER {
        let (shown, there) = (lazy.lookup(&at(name)).await.unwrap().unwrap(), found(&older, name).await);
        assert_eq!(shown, there);
        assert_eq!(lazy.head(&at(name)).await.unwrap(), there.head);
        assert_eq!(lazy.index(&at(name)).await.unwrap(), Some(there.index));
        assert_eq!(lazy.status(&at(name)).await.unwrap(), Some(there.status));
        assert_eq!(lazy.config(&at(name)).await.unwrap(), Some(there.config));
    }
    assert_eq!(lazy.lookup(&at("nobody")).await.unwrap(), None);
    let addresses: Vec<Address> = ["own", "nobody", "zoo", "plain"].map(at).to_vec();
    let all = lazy.lookup_all(&addresses).await.unwrap();
    assert_eq!(
        all.iter().map(|record| record.address.as_str()).collect::<Vec<_>>(),
        ["own:main", "zoo:main", "plain:main"]
    );
    assert_eq!(lazy.dependents(&at("zoo")).await.unwrap(), [at("search"), at("zoo:dev")]);
    for limit in [1, 2, 3, 4, 8, 9, 100] {
        assert_eq!(pages(&lazy, &ListQuery::default(), limit).await, ALL, "{limit}");
        for full in [false, true] {
            let named = ListQuery { name: Some("zoo".into()), full, ..ListQuery::default() };
            assert_eq!(pages(&lazy, &named, limit).await, ["zoo:dev", "zoo:main"], "{limit}");
            let prefix = ListQuery { prefix: Some("zoo".into()), full, ..ListQuery::default() };
            assert_eq!(pages(&lazy, &prefix, limit).await, ["zoo:dev", "zoo:main", "zoologist:main"], "{limit}");
        }
        let state = |state: &str| ListQuery { state: Some(state.into()), ..ListQuery::default() };
        assert_eq!(pages(&lazy, &state("error"), limit).await, ["zoo:main"]);
        assert_eq!(pages(&lazy, &state("ready"), limit).await.len(), 7);
        let retracted = ListQuery { retracted: Some(true), ..ListQuery::default() };
        assert_eq!(pages(&lazy, &retracted, limit).await, ["gone:main"]);
        let kind = ListQuery { kind: Some(RecordKind::GraphSource), ..ListQuery::default() };
        assert_eq!(pages(&lazy, &kind, limit).await, ["deep:main", "search:main"]);
        let mut shown: Vec<String> =
            snapshot(&lazy, limit).await.iter().map(|record| record.address.to_string()).collect();
        shown.sort();
        let mut all = ALL.map(str::to_owned).to_vec();
        all.sort();
        assert_eq!(shown, all, "each is in one page, {limit}");
    }
    assert_eq!(names.position().await.unwrap(), before);
    assert_eq!((left_of(&older, &names).await.missing.count, left_of(&older, &names).await.records), (7, 7));
}

#[tokio::test]
async fn the_first_write_of_a_record_takes_all_of_it_over_with_what_it_needs() {
    let (older, names) = places().await;
    let lazy = service(&older, &names);
    let current = lazy.status(&at("search")).await.unwrap().unwrap();
    let new = NewStatus::new(StatusPayload::state("syncing")).unwrap();
    let pushed = lazy.push_status(&Call::fresh(), &at("search"), &StatusPush::cas(current, new)).await.unwrap();
    assert!(pushed.is_updated());
    // Its dependencies, what they depend on, and what those were branched from.
    for name in ["deep", "zoo", "zoo:dev"] {
        let (here, there) = (found(&names, name).await, found(&older, name).await);
        assert_eq!(content(&here), content(&there), "{name}");
        assert_eq!((here.status.v, here.branches, here.dependents), (there.status.v, there.branches, there.dependents));
    }
    assert_eq!(found(&names, "search").await.index.v, 4);
    assert_eq!(left_of(&older, &names).await.missing.count, 3);
    for n in 0..3 {
        let record = lazy.lookup(&at("zoo")).await.unwrap().unwrap();
        let push =
            ConfigPush::cas(record.config, NewConfig::new(json!({"n": n}).as_object().unwrap().clone()).unwrap());
        assert!(lazy.push_config(&Call::fresh(), &at("zoo"), &push).await.unwrap().is_updated());
    }
    // What exists cannot be created, at either place.
    for name in ["plain", "zoo", "gone"] {
        let created = lazy.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap();
        assert_eq!(created, Created::AlreadyExists, "{name}");
    }
    // A push that creates meets the record of the older place.
    let push = HeadPush::create(NewHead::new(id(1), 1).unwrap());
    let PushOutcome::Conflict { actual } = lazy.push_head(&Call::fresh(), &at("plain"), &push).await.unwrap() else {
        panic!("created twice")
    };
    assert_eq!(actual.unwrap().v, 2);
}

#[tokio::test]
async fn a_record_that_was_taken_over_is_not_taken_again() {
    let (older, names) = places().await;
    let lazy = service(&older, &names);
    let push = HeadPush::monotonic(NewHead::new(id(9), 8).unwrap());
    assert!(lazy.push_head(&Call::fresh(), &at("zoo"), &push).await.unwrap().is_updated());
    // Its old writer has not stopped.
    push_head(&older, "zoo", 50, 2).await;
    push_index(&older, "zoo", 40).await;
    for (t, lazy) in [(8, lazy), (9, service(&older, &names))] {
        let record = lazy.lookup(&at("zoo")).await.unwrap().unwrap();
        assert_eq!((record.head.unwrap().v, record.index.v), (t, 6));
        let push = HeadPush::monotonic(NewHead::new(id(9), t + 1).unwrap());
        let _ = lazy.push_head(&Call::fresh(), &at("zoo"), &push).await.unwrap();
        assert_eq!(found(&names, "zoo").await.index.v, 6);
        // Deleted, it would reappear.
        for name in ["plain", "zoo"] {
            let purged = lazy.purge(&Call::fresh(), &at(name)).await;
            assert!(
                matches!(purged, Err(Error::Unsupported { capability: Capability::FormerFormats, .. })),
                "{purged:?}"
            );
        }
    }
    let left = left_of(&older, &names).await;
    assert_eq!((left.newer_there.count, left.newer_there.records[0].address.as_str()), (1, "zoo:main"));
    // Once the older place no longer has it, a purge is final.
    let lazy = service(&older, &names);
    for name in ["search", "deep"] {
        let _ = older.purge(&Call::fresh(), &at(name)).await.unwrap();
    }
    let _ = older.purge(&Call::fresh(), &at("plain")).await.unwrap();
    assert_eq!(lazy.purge(&Call::fresh(), &at("plain")).await.unwrap(), Purged::Unknown);
    assert_eq!(lazy.purge(&Call::fresh(), &at("own")).await.unwrap(), Purged::Purged);
}

#[tokio::test]
async fn what_refers_to_a_record_at_the_older_place_keeps_it() {
    let (older, names) = places().await;
    let lazy = service(&older, &names);
    assert_eq!(lazy.retract(&Call::fresh(), &at("deep"), None).await.unwrap(), Retracted::HasDependents);
    assert_eq!(lazy.retract(&Call::fresh(), &at("zoo"), None).await.unwrap(), Retracted::HasDependents);
    assert!(matches!(lazy.retract(&Call::fresh(), &at("search"), None).await.unwrap(), Retracted::Retracted(_)));
    let publication = GraphSourcePublication::new(at("more"), "f:Bm25Index", Object::new()).unwrap();
    let publication = publication.with_dependencies(vec![at("plain")]).unwrap();
    assert!(matches!(lazy.publish_graph_source(&Call::fresh(), &publication).await.unwrap(), Published::Created(_)));
    assert_eq!(content(&found(&names, "plain").await), content(&found(&older, "plain").await));
}

#[tokio::test]
async fn a_retracted_record_is_restored_with_everything_it_had() {
    let (older, names) = places().await;
    let lazy = service(&older, &names);
    let push = HeadPush::monotonic(NewHead::new(id(9), 8).unwrap());
    assert_eq!(lazy.push_head(&Call::fresh(), &at("gone"), &push).await.unwrap(), PushOutcome::Retracted);
    for lazy in [lazy.clone(), service(&older, &names)] {
        let shown = lazy.lookup(&at("gone")).await.unwrap().unwrap();
        assert_eq!(content(&shown), content(&found(&older, "gone").await));
    }
    assert!(matches!(lazy.restore(&Call::fresh(), &at("gone")).await.unwrap(), Restored::Restored(_)));
    let record = found(&names, "gone").await;
    assert_eq!((record.retracted, record.head.unwrap().v, record.index.v), (false, 3, 3));
    assert!(record.config.payload.is_none_or(|config| config.get(PENDING).is_none()));
    assert!(lazy.push_head(&Call::fresh(), &at("gone"), &push).await.unwrap().is_updated());
}

/// A service that takes over a record may be killed at any point: an incomplete record is never shown, and the next
/// service finishes it.
#[tokio::test]
async fn a_takeover_that_is_cut_off_anywhere_is_finished_by_the_next() {
    let (older, whole) = places().await;
    let touch = |lazy: LazyBackend, name: &'static str| async move {
        let request = LeaseRequest::new(LeaseName::INDEX, "i").unwrap();
        drop(lazy.acquire_lease(&Call::fresh(), &at(name), &request).await.unwrap());
    };
    for name in ["search", "zoo:dev", "plain", "gone"] {
        let before = whole.position().await.unwrap();
        touch(service(&older, &whole), name).await;
        let writes = whole.position().await.unwrap() - before;
        for cut in 0..=writes {
            let names = memory();
            let mut taking = Box::pin(touch(service(&older, &names), name));
            while names.position().await.unwrap() < cut {
                tokio::select! {
                    biased;
                    () = &mut taking => break,
                    () = tokio::task::yield_now() => {}
                }
            }
            drop(taking);
            let lazy = service(&older, &names);
            let is_leased =
                |record: &Record| record.status.payload.as_ref().is_some_and(|s| s.meta.contains_key("index_lock"));
            for older_name in OLDER {
                let (shown, there) =
                    (lazy.lookup(&at(older_name)).await.unwrap().unwrap(), found(&older, older_name).await);
                if !is_leased(&shown) {
                    assert_eq!(content(&shown), content(&there), "{name} cut at {cut}");
                }
            }
            assert_eq!(pages(&lazy, &ListQuery { full: true, ..ListQuery::default() }, 3).await.len(), OLDER.len());
            touch(service(&older, &names), name).await;
            // A copy also finishes what a service left incomplete.
            let source = BackendSource::new(Arc::new(older.clone()));
            copy(&source, &backend(&names), &CopyOptions::default(), &|_| {}).await.unwrap();
            let left = left_of(&older, &names).await;
            assert_eq!(
                (left.missing.count, left.pending.count, left.newer_there.count),
                (0, 0, 0),
                "{name} cut at {cut}: {left:#?}"
            );
            for older_name in OLDER {
                let record = found(&names, older_name).await;
                let is_marked = record.config.payload.as_ref().is_some_and(|config| config.get(PENDING).is_some());
                assert!(!is_marked || record.retracted, "{older_name}: {record:?}");
                assert_eq!(record.index.v, found(&older, older_name).await.index.v, "{name} cut at {cut}");
            }
        }
    }
}

/// Services that take over the same records at the same time, killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_at_the_same_time_take_each_record_over_once() {
    for round in 0..20_u64 {
        let (older, names) = places().await;
        let writers = (0..4_u64).map(|n| {
            let lazy = service(&older, &names);
            tokio::spawn(async move {
                for step in 0..OLDER.len() {
                    let name = at(OLDER[(step + n as usize) % OLDER.len()]);
                    let Some(record) = lazy.lookup(&name).await.unwrap() else { continue };
                    let Some(head) = record.head else { continue };
                    let push = HeadPush::cas(head.clone(), NewHead::new(id(n as usize), head.v + 1).unwrap());
                    let _ = lazy.push_head(&Call::fresh(), &name, &push).await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        tokio::time::sleep(std::time::Duration::from_micros(40 * round)).await;
        writers[0].abort();
        for writer in writers {
            let ended = writer.await;
            assert!(ended.as_ref().is_ok_and(|()| true) || ended.is_err_and(|error| error.is_cancelled()));
        }
        let lazy = service(&older, &names);
        for name in OLDER {
            let request = LeaseRequest::new(LeaseName::INDEX, "i").unwrap();
            let _ = lazy.acquire_lease(&Call::fresh(), &at(name), &request).await.unwrap();
        }
        let Run::Changes(changes) = names.changes(0, Limit::MAX).await.unwrap() else { panic!() };
        let mut created = BTreeMap::new();
        let mut heads: BTreeMap<Address, i64> = BTreeMap::new();
        for change in &changes {
            match change.part {
                ChangedPart::Meta if change.kind == ChangeKind::Created => {
                    *created.entry(change.address.clone()).or_insert(0) += 1
                }
                // A retraction marks the head where it is.
                ChangedPart::Concern(ConcernKind::Head) if change.kind != ChangeKind::Retracted => {
                    let before = heads.insert(change.address.clone(), change.watermark).unwrap_or(-1);
                    assert!(change.watermark > before, "{change:?}");
                }
                _ => {}
            }
        }
        assert!(created.len() == ALL.len() && created.values().all(|times| *times == 1), "{created:?}");
        let left = left_of(&older, &names).await;
        assert_eq!((left.missing.count, left.pending.count), (0, 0), "{left:#?}");
        for name in OLDER {
            let (here, there) = (found(&names, name).await, found(&older, name).await);
            assert_eq!((here.index.v, here.dependencies), (there.index.v, there.dependencies), "{name}");
        }
    }
}
