//! Copies between two backends: what is taken, what is left, and what holds whenever they are interrupted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod support;

use std::sync::Arc;

use nameservice_embedded::{Embedded, Options};
use nameservice_model::*;
use nameservice_sync::{BackendSource, CopyOptions, DumpPlace, DumpSource, Report, compare, copy, export};
use serde_json::json;
use support::*;

async fn copied(from: &Embedded, to: &Embedded) -> Report {
    copied_with(from, to, &CopyOptions::default()).await
}

async fn copied_with(from: &Embedded, to: &Embedded, options: &CopyOptions) -> Report {
    copy(&BackendSource::new(Arc::new(from.clone())), &backend(to), options, &|_| {}).await.unwrap()
}

async fn same(from: &Embedded, to: &Embedded) -> bool {
    let source = BackendSource::new(Arc::new(from.clone()));
    compare(&source, &backend(to), None, true).await.unwrap().is_same()
}

fn addresses(records: &nameservice_sync::report::Records) -> Vec<&str> {
    let mut addresses: Vec<_> = records.records.iter().map(|entry| entry.address.as_str()).collect();
    addresses.sort_unstable();
    addresses
}

/// Creates records of every kind, in every state. In the order of a snapshot, what they need comes after them.
async fn everything(names: &Embedded) {
    ledger(names, "zoo", 7).await;
    for (branch, source) in [("zoo:dev", "zoo:main"), ("zoo:a", "zoo:dev"), ("zoo:gone", "zoo:main")] {
        branch_of(names, branch, source).await;
    }
    push_head(names, "zoo:dev", 12, 3).await;
    push_index(names, "zoo", 5).await;
    graphs(names, "zoo", 6).await;
    set_config(names, "zoo", json!({"index_threshold": 5, "float": 0.1})).await;
    set_config(names, "zoo", json!({"index_threshold": 6, "float": 1e-7})).await;
    set_status(names, "zoo:dev", "error", json!({"error": "disk full"})).await;
    ledger(names, "unborn", 0).await;
    let missing = graph_source(names, "search", &["zoo", "deep"], json!({"k1": 1.2})).await;
    assert_eq!(missing, Err(Published::MissingDependencies(vec![at("deep")])));
    graph_source(names, "deep", &["zoo:a"], json!({})).await.unwrap();
    graph_source(names, "search", &["zoo", "deep"], json!({"k1": 1.2})).await.unwrap();
    graph_source(names, "search", &["deep"], json!({"k1": 1.3})).await.unwrap();
    push_index(names, "search", 4).await;
    retract(names, "zoo:gone").await;
    ledger(names, "back", 2).await;
    retract(names, "back").await;
    let _ = names.restore(&Call::fresh(), &at("back")).await.unwrap();
    lease(names, "zoo").await;
}

#[tokio::test]
async fn a_copy_holds_everything_and_needs_no_second_one() {
    let (from, to) = (memory(), memory());
    everything(&from).await;
    let report = copied(&from, &to).await;
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!((report.copied.count, report.already_there), (8, 0));
    assert!(same(&from, &to).await && same(&to, &from).await);
    for name in ["zoo", "zoo:dev", "zoo:gone", "search", "back"] {
        let (source, target) = (found(&from, name).await, found(&to, name).await);
        assert_eq!((source.head, source.config, source.retracted), (target.head, target.config, target.retracted));
        assert_eq!((source.branches, source.dependents), (target.branches, target.dependents), "{name}");
        assert_eq!(source.status.v, target.status.v, "{name}");
    }
    assert_eq!(found(&to, "search").await.config.v, 2);
    // A lease stays where its holder is.
    assert_eq!(found(&to, "zoo").await.status.payload.unwrap(), StatusPayload::state("indexing"));
    let position = to.position().await.unwrap();
    let report = copied(&from, &to).await;
    assert_eq!((report.copied.count, report.already_there), (0, 8));
    assert_eq!(to.position().await.unwrap(), position, "a second copy writes nothing");
}

#[tokio::test]
async fn what_is_newer_or_differs_at_the_target_is_left_and_reported() {
    let (from, to) = (memory(), memory());
    for name in ["newer", "differs", "both", "older"] {
        ledger(&from, name, 3).await;
    }
    assert!(copied(&from, &to).await.is_complete());
    push_head(&to, "newer", 9, 1).await;
    ledger(&from, "apart", 3).await;
    ledger_at(&to, "apart", 3, 5).await;
    push_head(&from, "both", 4, 0).await;
    set_config(&to, "both", json!({"mine": true})).await;
    push_head(&from, "older", 4, 0).await;
    let before = found(&to, "newer").await;
    let report = copied(&from, &to).await;
    assert_eq!(addresses(&report.newer_there), ["both:main", "newer:main"]);
    assert_eq!(addresses(&report.diverged), ["apart:main"]);
    assert_eq!(addresses(&report.copied), ["both:main", "older:main"]);
    assert_eq!(found(&to, "newer").await, before);
    let both = found(&to, "both").await;
    assert_eq!((both.head.unwrap().v, both.config.payload), (4, Some(json!({"mine": true}))));
    assert_eq!(found(&to, "apart").await.head.unwrap(), Head::new(3, id(5)));
}

#[tokio::test]
async fn force_takes_what_it_names_and_nothing_else() {
    let (from, to) = (memory(), memory());
    for name in ["a", "b"] {
        ledger(&from, name, 3).await;
        ledger_at(&to, name, 5, 7).await;
        set_status(&to, name, "error", json!({})).await;
        set_config(&to, name, json!({"theirs": 1})).await;
        set_config(&from, name, json!({"ours": 1})).await;
        push_index(&to, name, 5).await;
    }
    let options = CopyOptions::default().force(vec![AddressGlob::parse("a:*").unwrap()]);
    let report = copied_with(&from, &to, &options).await;
    assert_eq!(addresses(&report.copied), ["a:main"]);
    let (a, b) = (found(&to, "a").await, found(&to, "b").await);
    assert_eq!((a.head, a.index), (Some(Head::new(3, id(0))), Index::unborn()));
    assert_eq!((a.config.payload, a.status.payload.unwrap().state), (Some(json!({"ours": 1})), "ready".into()));
    assert_eq!((b.head.unwrap().v, b.config.payload), (5, Some(json!({"theirs": 1}))));
    assert_eq!(b.status.payload.unwrap().state, "error");
}

#[tokio::test]
async fn a_dry_run_says_what_a_run_would_do() {
    let (from, to) = (memory(), memory());
    everything(&from).await;
    let dry = copied_with(&from, &to, &CopyOptions::default().dry_run(true)).await;
    assert_eq!(to.position().await.unwrap(), 0);
    let wet = copied(&from, &to).await;
    assert_eq!(addresses(&dry.copied), addresses(&wet.copied));
}

/// A value that the source has replaced is behind, even if its watermark is as high or higher.
#[tokio::test]
async fn a_reset_or_another_index_of_the_same_t_is_followed_where_the_history_shows_it() {
    let (from, to) = (memory(), memory());
    ledger(&from, "mydb", 9).await;
    push_index(&from, "mydb", 9).await;
    ledger(&from, "again", 4).await;
    push_index(&from, "again", 4).await;
    assert!(copied(&from, &to).await.is_complete());
    let back = ResetTo::new(Some(NewHead::new(id(0), 2).unwrap()), None).unwrap();
    let _ = from.reset_head(&Call::fresh(), &at("mydb"), &back).await.unwrap();
    let other = IndexPush::overwrite(NewIndex::new(id(8), 4).unwrap());
    assert!(from.push_index(&Call::fresh(), &at("again"), &other).await.unwrap().is_updated());
    let report = copied(&from, &to).await;
    assert_eq!((addresses(&report.newer_there), addresses(&report.copied)), (vec!["mydb:main"], vec!["again:main"]));
    let resets = CopyOptions::default().resets(true);
    let report = copied_with(&from, &to, &resets).await;
    assert!(report.is_complete(), "{report:#?}");
    let mydb = found(&to, "mydb").await;
    assert_eq!((mydb.head.unwrap().v, mydb.index), (2, Index::unborn()));
    assert_eq!(found(&to, "again").await.index.payload.unwrap().id, id(8));
    // A value that the source never had is not an earlier value of it.
    push_head(&to, "mydb", 30, 2).await;
    assert_eq!(addresses(&copied_with(&from, &to, &resets).await.newer_there), ["mydb:main"]);
}

#[tokio::test]
async fn records_that_cannot_be_there_are_reported_with_the_reason() {
    let (from, to) = (memory(), memory());
    ledger(&from, "a", 1).await;
    branch_of(&from, "a:dev", "a").await;
    graph_source(&from, "kind", &[], json!({})).await.unwrap();
    ledger(&to, "kind", 1).await;
    ledger(&to, "a", 1).await;
    retract(&to, "a").await;
    let report = copied(&from, &to).await;
    assert_eq!(addresses(&report.diverged), ["kind:main"]);
    assert_eq!(addresses(&report.rejected), ["a:dev"]);
    assert!(report.rejected.records[0].reason.as_ref().unwrap().contains("a:main"), "{report:#?}");
}

/// Restoring and retracting increment the status: a copy restores only if it can end at the source's own value.
#[tokio::test]
async fn what_is_retracted_at_the_target_is_restored_where_the_source_is_far_enough_ahead() {
    enum Source {
        Live,
        Restored,
        Retracted,
    }
    use Source::{Live, Restored, Retracted};
    for (source, pushes, ends_the_same) in [
        (Live, 0, false),
        (Live, 1, false),
        (Live, 2, false),
        (Live, 3, true),
        (Restored, 0, true),
        (Retracted, 0, false),
        (Retracted, 1, false),
        (Retracted, 2, true),
        (Retracted, 3, true),
    ] {
        let (from, to) = (memory(), memory());
        ledger(&from, "a", 1).await;
        copied(&from, &to).await;
        retract(&to, "a").await;
        push_head(&from, "a", 2, 1).await;
        for n in 0..pushes {
            set_status(&from, "a", "syncing", json!({ "n": n })).await;
        }
        let retracted = async || drop(from.retract(&Call::fresh(), &at("a"), Some("for good")).await.unwrap());
        match source {
            Live => {}
            Restored => {
                retracted().await;
                drop(from.restore(&Call::fresh(), &at("a")).await.unwrap());
            }
            Retracted => retracted().await,
        }
        let before = found(&to, "a").await;
        let report = copied(&from, &to).await;
        assert_eq!(report.is_complete(), ends_the_same, "{pushes}: {report:#?}");
        assert_eq!(same(&from, &to).await, ends_the_same, "{pushes}: {report:#?}");
        if !ends_the_same {
            assert_eq!(found(&to, "a").await, before, "{pushes}: {report:#?}");
            assert_eq!(addresses(&report.rejected), ["a:main"], "{pushes}: {report:#?}");
        }
    }
}

#[tokio::test]
async fn a_config_without_its_secrets_is_not_copied() {
    let (from, to) = (memory(), memory());
    ledger(&from, "shown", 1).await;
    set_config(&from, "shown", json!({"password": "[redacted]"})).await;
    let report = copied(&from, &to).await;
    assert_eq!(addresses(&report.rejected), ["shown:main"]);
    assert!(to.lookup(&at("shown")).await.unwrap().is_none());
}

/// Writers on both sides, and copies that are interrupted: a newer value is never lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_value_wins_under_writers_on_both_sides_and_kills() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let (from, to) = (memory(), memory());
    for name in NAMES {
        ledger(&from, name, 1).await;
    }
    assert!(copied(&from, &to).await.is_complete());
    let writer = |names: Embedded, offset: usize| async move {
        for t in 2..120_i64 {
            for (i, name) in NAMES.iter().enumerate() {
                if (t as usize + i + offset).is_multiple_of(3) {
                    let new = NewHead::new(id(offset), t * 2 + offset as i64).unwrap();
                    let _ = names.push_head(&Call::fresh(), &at(name), &HeadPush::monotonic(new)).await.unwrap();
                }
            }
            tokio::task::yield_now().await;
        }
    };
    let (left, right) = (tokio::spawn(writer(from.clone(), 0)), tokio::spawn(writer(to.clone(), 1)));
    for round in 0..40_u64 {
        let (from, to) = (from.clone(), to.clone());
        let copying = tokio::spawn(async move { copied(&from, &to).await });
        tokio::time::sleep(std::time::Duration::from_micros(50 * round)).await;
        copying.abort();
        let _ = copying.await;
    }
    left.await.unwrap();
    right.await.unwrap();
    copied(&from, &to).await;
    // The feed of the target shows every value that was ever there: watermarks only grew.
    let Run::Changes(changes) = to.changes(0, Limit::MAX).await.unwrap() else { panic!() };
    let mut seen = std::collections::HashMap::new();
    for change in changes.iter().filter(|change| change.part == ChangedPart::Concern(ConcernKind::Head)) {
        let before = seen.insert(change.address.clone(), change.watermark).unwrap_or(0);
        assert!(change.watermark > before, "{change:?}");
    }
    for name in NAMES {
        let (source, target) = (found(&from, name).await.head.unwrap().v, found(&to, name).await.head.unwrap().v);
        assert!(target >= source, "{name}");
    }
}

/// A copy that is interrupted after any number of writes is finished by the next.
#[tokio::test]
async fn a_copy_that_is_cut_off_anywhere_is_finished_by_the_next() {
    let from = memory();
    everything(&from).await;
    let whole = memory();
    copied(&from, &whole).await;
    let writes = whole.position().await.unwrap();
    for cut in 0..writes {
        let to = memory();
        let mut copying = Box::pin(copied(&from, &to));
        while to.position().await.unwrap() < cut {
            tokio::select! {
                biased;
                _ = &mut copying => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(copying);
        let report = copied(&from, &to).await;
        assert!(report.is_complete() && same(&from, &to).await, "{cut}: {report:#?}");
    }
}

#[tokio::test]
async fn a_dump_brings_everything_back_in_one_pass() {
    let directory = tempfile::tempdir().unwrap();
    let place = DumpPlace::File(directory.path().join("all.jsonl"));
    let (from, to) = (memory(), memory());
    everything(&from).await;
    let source = BackendSource::new(Arc::new(from.clone()));
    let exported = export(&source, &place, &|_| {}).await.unwrap();
    assert_eq!((exported.records, exported.position), (8, Some(from.position().await.unwrap())));
    let dump = DumpSource::open(place.clone(), None).await.unwrap();
    let report = copy(&dump, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
    assert!(report.is_complete() && report.copied.count == 8, "{report:#?}");
    assert!(same(&from, &to).await);
    let comparison = compare(&dump, &backend(&to), None, true).await.unwrap();
    assert!(comparison.is_same(), "{comparison:#?}");
    ledger(&to, "more", 1).await;
    let comparison = compare(&dump, &backend(&to), None, true).await.unwrap();
    assert_eq!(addresses(&comparison.only_there), ["more:main"]);
    // Part of it.
    let part = memory();
    let dump = DumpSource::open(place, Some("zoo:".into())).await.unwrap();
    let report = copy(&dump, &backend(&part), &CopyOptions::default(), &|_| {}).await.unwrap();
    assert_eq!(report.copied.count, 4, "{report:#?}");
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["all.jsonl"], "nothing is left beside it");
}

#[tokio::test]
async fn a_dump_that_was_cut_off_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.jsonl");
    let from = memory();
    everything(&from).await;
    let source = BackendSource::new(Arc::new(from.clone()));
    export(&source, &DumpPlace::File(path.clone()), &|_| {}).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for cut in [0, 1, text.len() / 2, text.len() - 2] {
        std::fs::write(&path, &text[..cut]).unwrap();
        assert!(DumpSource::open(DumpPlace::File(path.clone()), None).await.is_err(), "{cut}");
    }
    std::fs::write(&path, text.replace("disk full", "disk fine")).unwrap();
    let error = DumpSource::open(DumpPlace::File(path), None).await.unwrap_err();
    assert!(error.to_string().contains("edited"), "{error}");
}

#[tokio::test]
async fn a_mirror_goes_on_with_the_changes() {
    let from = memory();
    let to = Embedded::memory(Options::default()).unwrap();
    ledger(&from, "mydb", 1).await;
    let (source, target) = (BackendSource::new(Arc::new(from.clone())), backend(&to));
    let (mut seen, writer) = (0, from.clone());
    let (options, wanted) = (CopyOptions::default(), Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX)));
    let stop = wanted.clone();
    let writing = tokio::spawn(async move {
        push_head(&writer, "mydb", 5, 1).await;
        branch_of(&writer, "mydb:dev", "mydb").await;
        retract(&writer, "mydb:dev").await;
        ledger(&writer, "gone", 1).await;
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        let _ = writer.purge(&Call::fresh(), &at("gone")).await.unwrap();
        wanted.store(writer.position().await.unwrap(), std::sync::atomic::Ordering::SeqCst);
        ledger(&writer, "last", 1).await;
    });
    let mut purged = Vec::new();
    nameservice_sync::mirror(&source, &target, &options, None, &|_| {}, |mirrored| {
        assert!(mirrored.position > seen || seen == 0);
        seen = mirrored.position;
        purged.extend(mirrored.purged);
        seen <= stop.load(std::sync::atomic::Ordering::SeqCst)
    })
    .await
    .unwrap();
    writing.await.unwrap();
    assert_eq!(found(&to, "mydb").await.head.unwrap().v, 5);
    assert!(found(&to, "mydb:dev").await.retracted);
    assert!(purged.len() <= 1);
}

/// A target that takes nothing ends the copy early, with the reason.
#[tokio::test]
async fn a_target_that_rejects_every_write_ends_the_copy_with_its_reason() {
    let (from, to) = (memory(), Embedded::memory_replica(Options::default()).unwrap());
    for n in 0..100 {
        ledger(&from, &format!("db{n}"), 1).await;
    }
    let source = BackendSource::new(Arc::new(from));
    let failed = copy(&source, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap_err();
    let nameservice_sync::SyncError::Rejected { count, reason } = failed else { panic!("{failed:?}") };
    assert!(count < 100 && reason.contains("replica"), "{count}: {reason}");
    assert!(to.view().is_empty());
}

/// A copy of a configuration that keeps addresses of an earlier layout follows them, even though its watermark does not
/// change.
#[tokio::test]
async fn addresses_of_an_earlier_layout_are_followed_by_what_they_are_of() {
    let (from, to) = (memory(), memory());
    ledger(&from, "mydb", 0).await;
    let kept = |t: i64| json!({"legacy_address": {"head": {"address": format!("fluree:s3://b/{t}.json"), "t": t}}});
    set_config(&from, "mydb", kept(3)).await;
    assert!(copied(&from, &to).await.is_complete());
    // The source has the target's watermark, as in tables without watermarks.
    let again = memory();
    ledger(&again, "mydb", 0).await;
    set_config(&again, "mydb", kept(5)).await;
    let report = copied(&again, &to).await;
    assert!(report.is_complete() && report.copied.count == 1, "{report:#?}");
    assert_eq!(found(&to, "mydb").await.config.payload, Some(kept(5)));
    assert_eq!(addresses(&copied(&from, &to).await.newer_there), ["mydb:main"]);
    // A config that differs in other members too is not replaced.
    let mut other = kept(9);
    other["mine"] = json!(true);
    let third = memory();
    ledger(&third, "mydb", 0).await;
    set_config(&third, "mydb", other).await;
    assert_eq!(addresses(&copied(&third, &to).await.newer_there), ["mydb:main"]);
}
