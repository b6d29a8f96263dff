//! Records that are purged and created again, as something else, between the read and the write of an operation: what was
//! read is in the condition, so nothing of the former record is applied to the later one.

use nameservice_tests::{layout, prelude::*};

use super::writes::Write;
use crate::contract::{born, branch, found, source, unborn};

/// What is at the address afterwards.
#[derive(Clone, Copy, Debug)]
enum Later {
    Ledger,
    BranchOfAnother,
    GraphSource,
    Nothing,
}

const LATER: [Later; 4] = [Later::Ledger, Later::BranchOfAnother, Later::GraphSource, Later::Nothing];

/// Purges whatever is there, and creates another record.
async fn replace(store: &Store, address: &Address, later: Later) {
    let call = Call::fresh;
    store.protect(&call(), address, false).await.ok();
    store.purge(&call(), address).await.unwrap().applied();
    match later {
        Later::Ledger => store.create_ledger(&call(), address, None, None).await.unwrap().applied(),
        Later::BranchOfAnother => {
            let other = address.with_branch("other").unwrap();
            store.create_branch(&call(), address, &other, None).await.unwrap().applied();
        }
        Later::GraphSource => {
            let publication = bm25(address, json!({ "n": 9 }), &["target2"]);
            store.publish_graph_source(&call(), &publication).await.unwrap().applied();
        }
        Later::Nothing => {}
    }
}

/// Panics unless a retraction shows in all of a record's items or in none, and no item is left that its kind has not.
fn assert_whole(rows: &[Row]) {
    layout::assert_table(rows);
    layout::assert_references(rows);
    for meta in rows.iter().filter(|row| row.contains_key("kind")) {
        let marked = |row: &Row| row.get("retracted") == Some(&rows::truth(true));
        let own: Vec<_> = rows.iter().filter(|row| row["pk"] == meta["pk"] && !row.contains_key("dependent")).collect();
        assert!(own.iter().all(|row| marked(row) == marked(meta)), "{own:#?}");
        let has_head = own.iter().any(|row| row["sk"] == rows::s("head"));
        assert_eq!(has_head, meta["kind"] == rows::s("ledger"), "{own:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_record_that_was_read_is_applied_to_one_that_was_created_since() {
    for operation in [
        Write::CreateBranch,
        Write::PushManyGraphs,
        Write::Republish,
        Write::Retract,
        Write::Restore,
        Write::Purge,
        Write::Drop,
        Write::Reset,
    ] {
        for later in LATER {
            let table = Proxied::fresh().await;
            let store = table.direct();
            operation.prepare(&table, "mydb").await;
            for pk in ["mydb:main", "mydb:dev"] {
                for t in 1..=3 {
                    table.delete(pk, &format!("commit#{t:020}")).await;
                }
            }
            unborn(store, "target2").await;
            born(store, "mydb:other", 1).await;
            // Of a branch, its source is replaced, too, if it can be.
            let replaced = match operation {
                Write::CreateBranch => at("mydb"),
                operation => operation.address("mydb"),
            };
            let hook = {
                let (store, address) = (store.clone(), replaced);
                move || {
                    let (store, address) = (store.clone(), address.clone());
                    async move { replace(&store, &address, later).await }
                }
            };
            match operation {
                // The rejection of the creation is what it reads.
                Write::Republish => table.proxy.on("TransactWriteItems", Fault::none().after(hook)),
                _ => table.proxy.on_each(&["Query", "GetItem"], Fault::none().after(hook)),
            }
            let answer = operation.make(&table.store, &Call::fresh(), "mydb").await;
            println!("{operation:?}, {later:?}: {answer:?}");
            assert!(table.proxy.is_spent(), "{operation:?}");
            let error = answer.as_ref().err();
            assert!(
                error.is_none_or(|error| matches!(error, Error::Unavailable { .. })),
                "{operation:?}, {later:?}: {answer:?}"
            );
            assert_whole(&table.all_rows().await);
        }
    }
}

#[tokio::test]
async fn a_branch_that_was_made_again_from_another_source_is_uncounted_there() {
    let table = Proxied::fresh().await;
    let store = table.direct();
    let (one, two) = (born(store, "mydb", 1).await, born(store, "mydb:two", 1).await);
    let dev = branch(store, "mydb:dev", &one).await;
    let (hooked, address, other) = (store.clone(), dev.clone(), two.clone());
    table.proxy.on(
        "Query",
        Fault::none().after(move || {
            let (store, dev, two) = (hooked.clone(), address.clone(), other.clone());
            async move {
                store.purge(&Call::fresh(), &dev).await.unwrap().applied();
                branch(&store, "mydb:dev", &two).await;
            }
        }),
    );
    assert_eq!(table.store.purge(&Call::fresh(), &dev).await.unwrap(), Purged::Purged);
    assert_eq!([found(store, &one).await.branches, found(store, &two).await.branches], [0, 0]);
}

#[tokio::test]
async fn a_branch_begins_at_no_head_that_its_source_was_reset_from_meanwhile() {
    for (later, begins) in [(None, 1), (Some(2), 2), (Some(3), 3), (Some(5), 5)] {
        let table = Proxied::fresh().await;
        let store = table.direct();
        let source = born(store, "mydb", 3).await;
        let (hooked, address) = (store.clone(), source.clone());
        let of = |t: i64| NewHead::new(ContentId::stored(format!("{}-other", cid(t).as_str())), t).unwrap();
        table.proxy.on(
            "Query",
            Fault::none().after(move || {
                let (store, source) = (hooked.clone(), address.clone());
                async move {
                    assert!(matches!(
                        store.reset_head(&Call::fresh(), &source, &to_head(1)).await,
                        Ok(Reset::Reset { .. })
                    ));
                    for t in 2..=later.unwrap_or(1) {
                        store.push_head(&Call::fresh(), &source, &older(of(t))).await.unwrap().applied();
                    }
                }
            }),
        );
        let created = table.store.create_branch(&Call::fresh(), &at("mydb:dev"), &source, None).await.unwrap();
        let BranchCreated::Created(record) = created else { panic!("{created:?}") };
        assert_eq!(record.head, found(store, &source).await.head, "reset to 1, then pushed up to {later:?}");
        assert_eq!(record.head.map(|head| head.v), Some(begins));
    }
    // A push is no reset: nothing is planned again.
    let table = Proxied::fresh().await;
    let (store, source) = (table.direct(), born(table.direct(), "mydb", 3).await);
    let (hooked, address) = (store.clone(), source.clone());
    table.proxy.on(
        "Query",
        Fault::none().after(move || {
            let (store, source) = (hooked.clone(), address.clone());
            async move { store.push_head(&Call::fresh(), &source, &older(head(4))).await.unwrap().applied() }
        }),
    );
    let created = table.store.create_branch(&Call::fresh(), &at("mydb:dev"), &source, None).await.unwrap();
    assert!(matches!(&created, BranchCreated::Created(record) if record.head == Some(head(3))), "{created:?}");
    assert_eq!(table.proxy.count("TransactWriteItems"), 1);
}

#[tokio::test]
async fn a_purge_of_what_was_left_without_a_record_is_remembered_like_any() {
    for left in [rows::orphans("mydb:main", cid(3), 3), vec![rows::commit_log("mydb:main", &cid(3), 3)]] {
        let table = Table::fresh().await;
        table.put(&left).await;
        let call = Call::fresh();
        for _ in 0..2 {
            assert_eq!(table.store.purge(&call, &at("mydb")).await.unwrap(), Purged::Purged);
        }
        assert_eq!(table.store.purge(&Call::fresh(), &at("mydb")).await.unwrap(), Purged::Unknown);
        let db = born(&table.store, "mydb", 1).await;
        let before = table.all_rows().await;
        assert_eq!(table.store.purge(&call, &db).await.unwrap(), Purged::Purged);
        assert_eq!(table.all_rows().await, before, "what was created since stays");
    }
}

#[tokio::test]
async fn a_publication_whose_graph_source_is_purged_meanwhile_creates_it() {
    for expected in [None, Some(0)] {
        let table = Proxied::fresh().await;
        let (store, search) = (table.direct(), source(table.direct(), "search", &[]).await);
        let (hooked, address) = (store.clone(), search.clone());
        // The rejection of the creation is what it reads.
        table.proxy.on(
            "TransactWriteItems",
            Fault::none().after(move || {
                let (store, search) = (hooked.clone(), address.clone());
                async move { store.purge(&Call::fresh(), &search).await.unwrap().applied() }
            }),
        );
        let publication = bm25(&search, json!({ "n": 2 }), &[]);
        let publication = match expected {
            Some(v) => publication.expecting(v).unwrap(),
            None => publication,
        };
        let published = table.store.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
        match expected {
            None => assert!(matches!(published, Published::Created(_)), "{published:?}"),
            // It was there when it was asked.
            Some(_) => assert!(matches!(published, Published::Conflict { .. }), "{published:?}"),
        }
    }
}

#[tokio::test]
async fn a_dependency_of_a_later_graph_source_is_uncounted_with_it() {
    let table = Proxied::fresh().await;
    let store = table.direct();
    for target in ["one", "two"] {
        unborn(store, target).await;
    }
    let search = source(store, "search", &["one"]).await;
    let (hooked, address) = (store.clone(), search.clone());
    table.proxy.on(
        "Query",
        Fault::none().after(move || {
            let (store, search) = (hooked.clone(), address.clone());
            async move {
                store.purge(&Call::fresh(), &search).await.unwrap().applied();
                source(&store, "search", &["two"]).await;
            }
        }),
    );
    assert_eq!(table.store.purge(&Call::fresh(), &search).await.unwrap(), Purged::Purged);
    for target in ["one", "two"] {
        assert_eq!(found(store, &at(target)).await.dependents, 0, "{target}");
    }
}

#[tokio::test]
async fn a_reset_that_is_rejected_deletes_nothing_of_flurees_commit_log() {
    let table = Proxied::fresh().await;
    let (store, db) = (table.direct(), born(table.direct(), "mydb", 3).await);
    source(store, "search", &[]).await;
    let log = |pk: &str| (1..=3).map(|t| rows::commit_log(pk, &cid(t), t)).collect::<Vec<_>>();
    table.put(&log("mydb:main")).await;
    table.put(&log("search:main")).await;
    store.retract(&Call::fresh(), &db, None).await.unwrap().applied();
    let before = table.all_rows().await.len();
    assert_eq!(table.store.reset_head(&Call::fresh(), &db, &to_head(1)).await.unwrap(), Reset::Retracted);
    let outcome = table.store.reset_head(&Call::fresh(), &at("search"), &to_head(1)).await.unwrap();
    assert_eq!(outcome, Reset::WrongKind(RecordKind::GraphSource));
    let call = Call::fresh();
    store.restore(&call, &db).await.unwrap().applied();
    store.push_index(&call, &db, &older(index(1))).await.unwrap().applied();
    let reused = Call::with_id(RequestId::stored(format!("{}{:016x}", call.request_id.prefix(), 1)));
    let outcome = table.store.reset_head(&reused, &db, &to_head(1)).await;
    assert!(matches!(outcome, Err(Error::IdempotencyKeyReused { .. })), "{outcome:?}");
    assert_eq!(table.all_rows().await.len(), before);
}

/// The publications of a graph source, in order: the first creates it, the others replace its config.
fn publications() -> [GraphSourcePublication; 3] {
    let publication = |n: i64| bm25("search", json!({ "n": n }), &["target"]);
    [publication(1), publication(2).expecting(1).unwrap(), publication(3)]
}

#[tokio::test]
async fn a_publication_that_arrives_late_after_its_record_was_purged_does_nothing() {
    for later in [Later::Nothing, Later::Ledger, Later::GraphSource] {
        let table = Proxied::fresh().await;
        let store = table.direct();
        for target in ["target", "target2"] {
            unborn(store, target).await;
        }
        let calls = [Call::fresh(), Call::fresh(), Call::fresh()];
        for (call, publication) in calls.iter().zip(publications()) {
            store.publish_graph_source(call, &publication).await.unwrap().applied();
        }
        replace(store, &at("search"), later).await;
        let before = table.all_rows().await;
        for (call, publication) in calls.iter().zip(publications()) {
            let answer = table.store.publish_graph_source(call, &publication).await.unwrap();
            let Published::Created(record) = &answer else { panic!("{later:?}: {answer:?}") };
            assert_eq!(record.config.payload, Some(Value::Object(publication.config().clone())));
            assert_eq!(table.all_rows().await, before, "{later:?}");
        }
        // Other publications are not affected, and take as many requests as ever.
        let other = bm25("search", json!({ "n": 4 }), &[]).expecting(1).unwrap();
        table.proxy.take_operations();
        let answer = table.store.publish_graph_source(&Call::fresh(), &other).await.unwrap();
        let operations = table.proxy.take_operations();
        match later {
            Later::GraphSource => {
                assert!(matches!(answer, Published::Updated(_)), "{answer:?}");
                assert_eq!(operations, ["Query", "TransactWriteItems"]);
            }
            Later::Nothing => assert_eq!(answer, Published::Conflict { actual: None }),
            _ => assert!(matches!(answer, Published::WrongKind { kind: RecordKind::Ledger, .. }), "{answer:?}"),
        }
    }
}

/// Its repetition is faster, and the record is purged before the first attempt writes.
#[tokio::test]
async fn a_publication_that_is_overtaken_by_its_repetition_and_a_purge_is_not_applied_to_what_was_created_since() {
    for later in [Later::Nothing, Later::Ledger, Later::GraphSource] {
        for publication in publications() {
            let table = Proxied::fresh().await;
            let store = table.direct();
            for target in ["target", "target2"] {
                unborn(store, target).await;
            }
            source(store, "search", &[]).await;
            let call = Call::fresh();
            let hook = {
                let (store, call, publication) = (store.clone(), call.clone(), publication.clone());
                move || {
                    let (store, call, publication) = (store.clone(), call.clone(), publication.clone());
                    async move {
                        store.publish_graph_source(&call, &publication).await.unwrap().applied();
                        replace(&store, &at("search"), later).await;
                    }
                }
            };
            match publication.expected_v() {
                Some(_) => table.proxy.on("Query", Fault::none().after(hook)),
                None => table.proxy.on("TransactWriteItems", Fault::none().after(hook)),
            }
            let answer = table.store.publish_graph_source(&call, &publication).await.unwrap();
            assert!(matches!(answer, Published::Created(_)), "{later:?}: {answer:?}");
            assert!(table.proxy.is_spent());
            match store.lookup(&at("search")).await.unwrap() {
                None => assert!(matches!(later, Later::Nothing)),
                Some(record) if record.kind == RecordKind::GraphSource => {
                    assert_eq!(record.config, Config::new(1, json!({ "n": 9 })));
                }
                Some(record) => assert!(matches!(later, Later::Ledger), "{record:?}"),
            }
            layout::assert_references(&table.all_rows().await);
        }
    }
}
