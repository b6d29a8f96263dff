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
    ledger(&from, "hidden", 1).await;
    set_config(&from, "hidden", json!({"password": "[redacted]"})).await;
    cycle(&from, &["c", "d", "e"]).await;
    // All records, those of a prefix with what they need, and a dump, in which records wait for later ones.
    let all = BackendSource::new(Arc::new(from.clone()));
    let directory = tempfile::tempdir().unwrap();
    let place = DumpPlace::File(directory.path().join("dump"));
    export(&all, &place, &|_| {}).await.unwrap();
    let sources: [(Box<dyn nameservice_sync::Source>, u64); 3] = [
        (Box::new(all.clone()), 11),
        // `search` needs `deep`, which needs `zoo:a`, a branch of a branch of `zoo`.
        (Box::new(all.with_prefix(Some("search".into()))), 5),
        (Box::new(DumpSource::open(place, None).await.unwrap()), 11),
    ];
    for (source, count) in sources {
        let to = memory();
        let dry = copy(&*source, &backend(&to), &CopyOptions::default().dry_run(true), &|_| {}).await.unwrap();
        assert_eq!(to.position().await.unwrap(), 0);
        let wet = copy(&*source, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
        assert_eq!((dry.copied.count, addresses(&dry.copied)), (count, addresses(&wet.copied)));
        assert_eq!((&dry.rejected, dry.is_complete()), (&wet.rejected, wet.is_complete()));
    }
    let _ = copied(&from, &to).await;
    push_head(&from, "unborn", 1, 0).await;
    let dry = copied_with(&from, &to, &CopyOptions::default().dry_run(true)).await;
    assert_eq!((addresses(&dry.copied), dry.already_there), (vec!["unborn:main"], 10));
}

/// Copied are the records of which something was written, already there those that were the same, whatever else is reported.
#[tokio::test]
async fn records_that_are_copied_in_part_or_without_the_prefix_are_counted_as_such() {
    let (from, to) = (memory(), memory());
    for name in ["part", "same", "same2"] {
        ledger(&from, name, 3).await;
    }
    assert_eq!(copied(&from, &to).await.copied.count, 3);
    push_head(&from, "part", 4, 0).await;
    set_config(&to, "part", json!({"mine": true})).await;
    let report = copied(&from, &to).await;
    assert_eq!((addresses(&report.copied), report.already_there), (vec!["part:main"], 2));
    assert_eq!(addresses(&report.newer_there), ["part:main"]);
    // A record that the target rejects after it took a part of it: the head is written, the retraction is not.
    push_head(&from, "same", 5, 0).await;
    retract(&from, "same").await;
    assert_eq!(to.protect(&Call::fresh(), &at("same"), true).await.unwrap(), Protection::Set);
    let report = copied(&from, &to).await;
    assert_eq!((addresses(&report.copied), report.already_there), (vec!["same:main"], 1), "{report:#?}");
    assert_eq!((addresses(&report.rejected), report.diverged.count), (vec!["same:main"], 0), "{report:#?}");
    assert_eq!(found(&to, "same").await.head.unwrap().v, 5);
    // Branches of a prefix, and the ledger that they need.
    branch_of(&from, "same2:x", "same2").await;
    branch_of(&from, "same2:y", "same2").await;
    let (to, options) = (memory(), CopyOptions::default());
    let source = BackendSource::new(Arc::new(from.clone())).with_prefix(Some("same2:x".into()));
    let report = copy(&source, &backend(&to), &options, &|_| {}).await.unwrap();
    assert_eq!((addresses(&report.copied), report.already_there), (vec!["same2:main", "same2:x"], 0));
    let source = source.with_prefix(Some("same2:".into()));
    let report = copy(&source, &backend(&to), &options, &|_| {}).await.unwrap();
    assert_eq!((addresses(&report.copied), report.already_there), (vec!["same2:y"], 2));
}

/// More records than a list has entries: a copy that was overtaken counts them all.
#[tokio::test]
async fn lists_count_what_they_do_not_name() {
    let (from, to) = (memory(), memory());
    for n in 0..1_005 {
        ledger(&from, &format!("db{n}"), 1).await;
    }
    assert_eq!(copied(&from, &to).await.copied.count, 1_005);
    // Records that appear after the last page was copied, and before both sides are compared.
    struct Late(BackendSource, Embedded, std::sync::atomic::AtomicUsize);
    #[async_trait::async_trait]
    impl nameservice_sync::Source for Late {
        async fn read(&self) -> nameservice_sync::Result<Box<dyn nameservice_sync::Reading + '_>> {
            if self.2.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                for n in 0..1_005 {
                    ledger(&self.1, &format!("late{n}"), 1).await;
                }
            }
            self.0.read().await
        }

        async fn lookup_all(&self, addresses: &[Address]) -> nameservice_sync::Result<Option<Vec<Record>>> {
            self.0.lookup_all(addresses).await
        }

        fn finds(&self) -> bool {
            true
        }

        fn can_be_read_again(&self) -> bool {
            true
        }
    }
    let source = Late(BackendSource::new(Arc::new(from.clone())), from.clone(), Default::default());
    let report = copy(&source, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
    assert_eq!((report.behind.count, report.behind.records.len()), (1_005, 1_000));
    assert_eq!((report.copied.count, report.already_there), (0, 1_005));
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
    assert!(report.rejected.records[0].reason.as_ref().unwrap().contains("token"), "{report:#?}");
    assert!(to.lookup(&at("shown")).await.unwrap().is_none());
    // Each record is reported once, with its reason; nothing is left of a branch that cannot be copied whole.
    let of_config = json!({"password": "[redacted]"});
    branch_of(&from, "shown:dev", "shown").await;
    ledger(&from, "plain", 1).await;
    branch_of(&from, "plain:dev", "plain").await;
    set_config(&from, "plain:dev", of_config.clone()).await;
    graph_source(&from, "g", &[], of_config).await.unwrap();
    let report = copied(&from, &to).await;
    assert_eq!(addresses(&report.rejected), ["g:main", "plain:dev", "shown:dev", "shown:main"]);
    assert!(report.rejected.records.iter().all(|entry| entry.reason.is_some()), "{report:#?}");
    assert!(report.behind.is_empty() && report.unknown.is_empty(), "{report:#?}");
    assert_eq!(addresses(&report.copied), ["plain:main"]);
    assert!(to.lookup(&at("plain:dev")).await.unwrap().is_none());
    // A part that is not known is not forced either: the rest of the record is.
    ledger_at(&to, "shown", 9, 1).await;
    let forced = CopyOptions::default().force(vec![AddressGlob::parse("shown").unwrap()]);
    let report = copied_with(&from, &to, &forced).await;
    assert_eq!(found(&to, "shown").await.head.unwrap().v, 1);
    assert_eq!(addresses(&report.unknown), ["shown:main"], "{report:#?}");
}

/// Configs that one side shows without their secrets are neither the same nor older: everything else is copied.
#[tokio::test]
async fn what_is_shown_without_its_secrets_never_counts_as_the_same() {
    let (hidden, secret) = (json!({"password": "[redacted]"}), json!({"password": "x"}));
    let sides = [(&hidden, &secret), (&secret, &hidden), (&hidden, &hidden)];
    for (is_dump, (here, there)) in [false, true].into_iter().flat_map(|is_dump| sides.map(|side| (is_dump, side))) {
        let (from, to) = (memory(), memory());
        for (names, config) in [(&from, here), (&to, there)] {
            ledger(names, "a", 1).await;
            set_config(names, "a", config.clone()).await;
            graph_source(names, "g", &[], config.clone()).await.unwrap();
        }
        set_config(&from, "a", here.clone()).await;
        push_head(&from, "a", 2, 1).await;
        let directory = tempfile::tempdir().unwrap();
        let backend_source = BackendSource::new(Arc::new(from.clone()));
        let place = DumpPlace::File(directory.path().join("d"));
        export(&backend_source, &place, &|_| {}).await.unwrap();
        let source: Box<dyn nameservice_sync::Source> = match is_dump {
            true => Box::new(DumpSource::open(place, None).await.unwrap()),
            false => Box::new(backend_source),
        };
        let target = backend(&to);
        let compared = compare(&*source, &target, None, true).await.unwrap();
        assert_eq!((addresses(&compared.unknown), compared.is_same()), (vec!["a:main", "g:main"], false));
        let report = copy(&*source, &target, &CopyOptions::default(), &|_| {}).await.unwrap();
        assert_eq!(addresses(&report.unknown), ["a:main", "g:main"], "{report:#?}");
        assert_eq!(addresses(&report.copied), ["a:main"]);
        assert!(report.unknown.records[0].reason.as_ref().unwrap().contains("token"), "{report:#?}");
        let a = found(&to, "a").await;
        assert_eq!((a.head.unwrap().v, a.config.payload.as_ref()), (2, Some(there)));
    }
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

/// Interrupts copies after each number of writes, of these: the next one finishes.
async fn is_finished_wherever_it_is_cut(from: &Embedded, writes: u64) {
    for cut in 0..writes {
        let to = memory();
        let mut copying = Box::pin(copied(from, &to));
        while to.position().await.unwrap() < cut {
            tokio::select! {
                biased;
                _ = &mut copying => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(copying);
        let report = copied(from, &to).await;
        assert!(report.is_complete() && same(from, &to).await, "{cut}: {report:#?}");
    }
}

#[tokio::test]
async fn a_copy_that_is_cut_off_anywhere_is_finished_by_the_next() {
    let (from, whole) = (memory(), memory());
    everything(&from).await;
    copied(&from, &whole).await;
    is_finished_wherever_it_is_cut(&from, whole.position().await.unwrap()).await;
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
async fn a_mirror_continues_with_the_changes() {
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

/// Counts the requests of a copy: lookups of records at the source and the target, and writes.
struct Counted {
    inner: BackendSource,
    lookups: std::sync::atomic::AtomicUsize,
}

impl Counted {
    fn new(from: &Embedded) -> Self {
        Self { inner: BackendSource::new(Arc::new(from.clone())), lookups: Default::default() }
    }

    fn lookups(&self) -> usize {
        self.lookups.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[async_trait::async_trait]
impl nameservice_sync::Source for Counted {
    async fn read(&self) -> nameservice_sync::Result<Box<dyn nameservice_sync::Reading + '_>> {
        self.inner.read().await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> nameservice_sync::Result<Option<Vec<Record>>> {
        self.lookups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.inner.lookup_all(addresses).await
    }

    fn finds(&self) -> bool {
        true
    }

    fn can_be_read_again(&self) -> bool {
        true
    }
}

/// Makes a cycle: each depends on the next.
async fn cycle(names: &Embedded, of: &[&str]) {
    for name in of {
        graph_source(names, name, &[], json!({})).await.unwrap();
    }
    for (i, name) in of.iter().enumerate().skip(1) {
        graph_source(names, name, &[of[i - 1]], json!({})).await.unwrap();
    }
    graph_source(names, of[0], &[of[of.len() - 1]], json!({"last": true})).await.unwrap();
}

#[tokio::test]
async fn cycles_of_dependencies_are_copied_and_end_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    for prefix in [None, Some("a")] {
        let from = memory();
        ledger(&from, "z", 1).await;
        cycle(&from, &["a", "b"]).await;
        cycle(&from, &["c", "d", "e"]).await;
        // A cycle beneath a cycle, and records beneath both.
        graph_source(&from, "a", &["b", "c", "z"], json!({"k": 1})).await.unwrap();
        graph_source(&from, "above", &["a"], json!({})).await.unwrap();
        push_index(&from, "b", 3).await;
        let (to, counted) = (memory(), Counted::new(&from));
        if let Some(prefix) = prefix {
            let source = BackendSource::new(Arc::new(from.clone())).with_prefix(Some(prefix.into()));
            let report = copy(&source, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
            assert!(report.is_complete(), "{report:#?}");
        } else {
            let report = copy(&counted, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
            assert!(report.is_complete() && report.copied.count == 7, "{report:#?}");
            assert_eq!((report.already_there, counted.lookups()), (0, 0), "all are on one page");
        }
        assert!(same(&from, &to).await && same(&to, &from).await);
        for name in ["a", "b", "c", "d", "e", "above"] {
            let (source, target) = (found(&from, name).await, found(&to, name).await);
            assert_eq!((source.config, source.dependencies), (target.config, target.dependencies), "{name}");
            assert_eq!((source.dependents, source.status.v), (target.dependents, target.status.v), "{name}");
        }
        let position = to.position().await.unwrap();
        assert_eq!(copied(&from, &to).await.copied.count, 0);
        assert_eq!(to.position().await.unwrap(), position, "a second copy writes nothing");
        let place = DumpPlace::File(directory.path().join("cycles"));
        export(&counted, &place, &|_| {}).await.unwrap();
        let (dump, to) = (DumpSource::open(place, None).await.unwrap(), memory());
        let report = copy(&dump, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
        assert!(report.is_complete() && same(&from, &to).await, "{report:#?}");
        is_finished_wherever_it_is_cut(&from, to.position().await.unwrap()).await;
    }
}

/// The first record needs a chain that no page brings, and the last of the chain may be one that the target rejects.
#[tokio::test]
async fn chains_of_dependencies_of_any_length_take_a_request_for_each_link() {
    const LINKS: usize = 200;
    for is_rejected in [false, true] {
        let from = memory();
        let config = if is_rejected { json!({"password": "[redacted]"}) } else { json!({}) };
        graph_source(&from, "chain000", &[], config).await.unwrap();
        for n in 1..LINKS {
            graph_source(&from, &format!("chain{n:03}"), &[&format!("chain{:03}", n - 1)], json!({})).await.unwrap();
        }
        let last = format!("chain{:03}", LINKS - 1);
        graph_source(&from, "top", &[&last, "chain100"], json!({})).await.unwrap();
        let (to, counted) = (memory(), Counted::new(&from));
        let source = Counted { inner: counted.inner.clone().with_prefix(Some("top".into())), ..Counted::new(&from) };
        let report = copy(&source, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
        assert!(source.lookups() <= LINKS, "{}", source.lookups());
        assert_eq!(report.is_complete(), !is_rejected, "{:?}", report.rejected);
        let report = copied(&from, &to).await;
        let there = if is_rejected { 0 } else { LINKS as u64 + 1 };
        assert_eq!((report.copied.count, report.already_there), (0, there));
        assert_eq!(report.rejected.count, LINKS as u64 + 1 - there);
        assert_eq!(to.position().await.unwrap() == 0, is_rejected);
        // From a dump, which cannot be searched.
        let directory = tempfile::tempdir().unwrap();
        let place = DumpPlace::File(directory.path().join("chain"));
        export(&source, &place, &|_| {}).await.unwrap();
        let (dump, to) = (DumpSource::open(place, None).await.unwrap(), memory());
        let report = copy(&dump, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap();
        assert_eq!(report.copied.count, there, "{:?}", report.rejected);
    }
}

/// Each record is counted once, whatever needs it, and however often it is written.
#[tokio::test]
async fn a_record_that_others_need_is_counted_once() {
    let (from, to) = (memory(), memory());
    // More than a page of graph sources, which come before what they depend on.
    for n in 0..520 {
        ledger(&from, &format!("db{n:03}"), 1).await;
        graph_source(&from, &format!("g{n:03}"), &[&format!("db{n:03}")], json!({})).await.unwrap();
    }
    let report = copied(&from, &to).await;
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!((report.copied.count, report.already_there), (1_040, 0));
}

/// Records that the target rejects do not end a copy whose other records are there.
#[tokio::test]
async fn a_repeated_copy_with_many_rejections_ends_as_the_first() {
    // The rejected ones come before the others, or after them.
    for rejected in ["a", "z"] {
        let (from, to) = (memory(), memory());
        for n in 0..40 {
            ledger(&from, &format!("m{n}"), 1).await;
        }
        assert!(copied(&from, &to).await.is_complete());
        for n in 0..40 {
            graph_source(&from, &format!("{rejected}{n}"), &[], json!({"password": "[redacted]"})).await.unwrap();
        }
        for _ in 0..2 {
            let report = copied(&from, &to).await;
            assert_eq!((report.rejected.count, report.already_there, report.copied.count), (40, 40, 0));
        }
    }
}

/// A protected record is protected at the target, too; a mark that only the target has is left.
#[tokio::test]
async fn protection_is_copied_and_compared() {
    let protect = async |names: &Embedded, name: &str, protected| {
        let set = names.protect(&Call::fresh(), &at(name), protected).await.unwrap();
        assert_eq!(set, Protection::Set);
    };
    let (from, to) = (memory(), memory());
    for name in ["new", "old", "retracted", "reset"] {
        ledger(&from, name, 3).await;
    }
    assert!(copied(&from, &to).await.is_complete());
    let _ = to.purge(&Call::fresh(), &at("new")).await.unwrap();
    protect(&from, "new", true).await;
    protect(&from, "old", true).await;
    retract(&from, "retracted").await;
    protect(&from, "retracted", true).await;
    let back = ResetTo::new(Some(NewHead::new(id(0), 2).unwrap()), None).unwrap();
    let _ = from.reset_head(&Call::fresh(), &at("reset"), &back).await.unwrap();
    protect(&from, "reset", true).await;
    assert!(!same(&from, &to).await);
    let directory = tempfile::tempdir().unwrap();
    let place = DumpPlace::File(directory.path().join("dump"));
    export(&BackendSource::new(Arc::new(from.clone())), &place, &|_| {}).await.unwrap();
    let imported = memory();
    let dump = DumpSource::open(place, None).await.unwrap();
    assert!(copy(&dump, &backend(&imported), &CopyOptions::default(), &|_| {}).await.unwrap().is_complete());
    let report = copied_with(&from, &to, &CopyOptions::default().resets(true)).await;
    assert!(report.is_complete(), "{report:#?}");
    for to in [&to, &imported] {
        assert!(same(&from, to).await && same(to, &from).await);
        for name in ["new", "old", "retracted", "reset"] {
            assert!(found(to, name).await.protected, "{name}");
        }
    }
    protect(&from, "old", false).await;
    let report = copied(&from, &to).await;
    assert_eq!((addresses(&report.diverged), report.copied.count), (vec!["old:main"], 0));
    assert!(found(&to, "old").await.protected);
    let forced = copied_with(&from, &to, &CopyOptions::default().force(vec![AddressGlob::parse("old").unwrap()])).await;
    assert!(forced.is_complete() && !found(&to, "old").await.protected, "{forced:#?}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_is_readable_by_its_owner_and_replaces_plain_files_alone() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let from = memory();
    everything(&from).await;
    let source = BackendSource::new(Arc::new(from.clone()));
    let export_to = async |path: std::path::PathBuf| export(&source, &DumpPlace::File(path), &|_| {}).await.unwrap();
    std::fs::write(path("plain"), "old").unwrap();
    std::os::unix::fs::symlink(path("target"), path("dangling")).unwrap();
    std::os::unix::fs::symlink(path("null"), path("loose")).unwrap();
    std::os::unix::fs::symlink("/dev/null", path("null")).unwrap();
    for name in ["plain", "new", "dangling", "null", "loose"] {
        assert_eq!(export_to(path(name)).await.records, 8, "{name}");
    }
    for name in ["plain", "new", "target"] {
        assert_eq!(std::fs::symlink_metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        DumpSource::open(DumpPlace::File(path(name)), None).await.unwrap();
    }
    for name in ["dangling", "null", "loose"] {
        assert!(std::fs::symlink_metadata(path(name)).unwrap().is_symlink(), "{name}");
    }
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    // A pipe: written through, and read once.
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let pipe = path("pipe");
    let to = memory();
    let reading = tokio::spawn({
        let to = to.clone();
        async move {
            let dump = DumpSource::open(DumpPlace::File(pipe), None).await.unwrap();
            copy(&dump, &backend(&to), &CopyOptions::default(), &|_| {}).await.unwrap()
        }
    });
    let writing = tokio::task::spawn_blocking({
        let (pipe, from) = (path("pipe"), from.clone());
        move || {
            let source = BackendSource::new(Arc::new(from));
            tokio::runtime::Handle::current()
                .block_on(export(&source, &DumpPlace::File(pipe), &|_| {}))
                .map(|exported| exported.records)
        }
    });
    assert_eq!(writing.await.unwrap().unwrap(), 8);
    assert_eq!(reading.await.unwrap().copied.count, 8);
    assert!(std::fs::symlink_metadata(path("pipe")).unwrap().file_type().is_fifo());
    assert!(same(&from, &to).await);
}

/// What interrupted exports left behind is removed by the next one, and what other exports are writing is not.
#[cfg(unix)]
#[tokio::test]
async fn interrupted_exports_leave_nothing_for_long_and_no_dump() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("all.jsonl");
    let from = memory();
    everything(&from).await;
    let source = BackendSource::new(Arc::new(from.clone()));
    let place = DumpPlace::File(path.clone());
    let names = || {
        let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    // As of a program that was killed, of this version and of an earlier one; and files that only look alike.
    let left = ["all.jsonl.export-aB3x9Z.partial", "all.jsonl.4711.partial"];
    let others = ["all.jsonl.backup.partial", "all.jsonl.export-.partial", "other.jsonl.4711.partial"];
    for name in left.iter().chain(&others) {
        std::fs::write(directory.path().join(name), "{\"nameservice_dump\":1}\n").unwrap();
    }
    let half = DumpSource::open(DumpPlace::File(directory.path().join(left[0])), None).await;
    assert!(half.unwrap_err().to_string().contains("cut off"));
    // Two exports at the same time, one of which is given up: neither disturbs the other.
    let stopped = Stopped { inner: source.clone(), begun: tokio::sync::Notify::new() };
    let mut first = Box::pin(export(&stopped, &place, &|_| {}));
    tokio::select! {
        biased;
        _ = &mut first => panic!("it has ended"),
        () = stopped.begun.notified() => {}
    }
    let written = |names: &[String]| names.iter().filter(|name| name.contains(".export-")).count();
    assert_eq!(written(&names()), 2, "the file of the first, and one that only looks alike: {:?}", names());
    export(&source, &place, &|_| {}).await.unwrap();
    assert_eq!(written(&names()), 2, "{:?}", names());
    drop(first);
    let mut expected = others.map(str::to_owned).to_vec();
    expected.push("all.jsonl".into());
    expected.sort_unstable();
    assert_eq!(names(), expected);
    DumpSource::open(place, None).await.unwrap();
}

/// A source that is never read to its end.
struct Stopped {
    inner: BackendSource,
    begun: tokio::sync::Notify,
}

#[async_trait::async_trait]
impl nameservice_sync::Source for Stopped {
    async fn read(&self) -> nameservice_sync::Result<Box<dyn nameservice_sync::Reading + '_>> {
        self.begun.notify_one();
        std::future::pending().await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> nameservice_sync::Result<Option<Vec<Record>>> {
        self.inner.lookup_all(addresses).await
    }

    fn finds(&self) -> bool {
        true
    }

    fn can_be_read_again(&self) -> bool {
        true
    }
}

/// Dumps that are concatenated are rejected before anything of them is used.
#[tokio::test]
async fn what_follows_the_end_of_a_dump_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("all.jsonl");
    let from = memory();
    ledger(&from, "a", 1).await;
    export(&BackendSource::new(Arc::new(from)), &DumpPlace::File(path.clone()), &|_| {}).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for more in [text.as_str(), "{}\n", "\n{}\n", "x"] {
        std::fs::write(&path, format!("{text}{more}")).unwrap();
        let error = DumpSource::open(DumpPlace::File(path.clone()), None).await.unwrap_err();
        assert!(error.to_string().contains("one at a time"), "{error}");
    }
}

/// Configs without their secrets are written, and reported.
#[tokio::test]
async fn an_export_reports_what_it_sees_without_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let from = memory();
    ledger(&from, "a", 1).await;
    ledger(&from, "b", 1).await;
    set_config(&from, "b", json!({"password": "[redacted]"})).await;
    let place = DumpPlace::File(directory.path().join("dump"));
    let exported = export(&BackendSource::new(Arc::new(from)), &place, &|_| {}).await.unwrap();
    assert_eq!((exported.records, addresses(&exported.redacted)), (2, vec!["b:main"]));
}
