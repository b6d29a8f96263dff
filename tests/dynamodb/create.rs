use futures_util::{FutureExt, future::BoxFuture};
use nameservice_store::Store;
use nameservice_tests::{layout, prelude::*};

use crate::contract::{born, found};

#[tokio::test]
async fn ghosts_and_orphans_do_not_stand_in_the_way() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    table.put(&rows::orphans("mydb:main", cid(40), 40)).await;
    let db = at("mydb");
    assert_eq!(table.store.lookup(&db).await.unwrap(), None);
    let outcome = table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    let Created::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(Head::unborn()));
    assert!(!record.retracted, "the ghost was retracted, the new ledger is not");
    assert_eq!(*record, found(&table.store, &db).await);
    layout::assert_ours(table.rows("mydb:main").await.values());
}

const DB: &str = "mydb:main";

/// Rows that Fluree's commit log has kept of an earlier life of `mydb`.
fn earlier(ts: impl IntoIterator<Item = i64>) -> Vec<rows::Row> {
    ts.into_iter().map(|t| rows::commit_log(DB, &cid(1000 + t), t)).collect()
}

async fn logged(table: &Table) -> usize {
    table.rows(DB).await.keys().filter(|sk| sk.starts_with("commit#")).count()
}

/// A way to create `mydb`, and whether it did.
type Creation = (&'static str, fn(Store) -> BoxFuture<'static, bool>);

const CREATIONS: [Creation; 4] = [
    ("create a ledger", |store| {
        async move {
            let created = store.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await;
            matches!(created, Ok(Created::Created(_)))
        }
        .boxed()
    }),
    ("push a first head", |store| {
        async move { store.push_head(&Call::fresh(), &at(DB), &first(head(1))).await.ok() == Some(updated(head(1))) }
            .boxed()
    }),
    ("push a first index", |store| {
        async move {
            let pushed = store.push_index(&Call::fresh(), &at(DB), &IndexPush::create(index(1))).await;
            pushed.ok() == Some(updated(index_at(1, 0)))
        }
        .boxed()
    }),
    ("create a branch", |store| {
        async move {
            let created = store.create_branch(&Call::fresh(), &at(DB), &at("mydb:source"), None).await;
            matches!(created, Ok(BranchCreated::Created(_)))
        }
        .boxed()
    }),
];

/// A table with a ledger to branch from.
async fn with_source() -> Proxied {
    let table = Proxied::fresh().await;
    born(table.direct(), "mydb:source", 1).await;
    table.proxy.take_operations();
    table
}

#[tokio::test]
async fn a_creation_over_an_earlier_life_leaves_no_row_of_flurees_commit_log() {
    for (name, create) in CREATIONS {
        let reads = if name == "create a branch" { vec!["Query"] } else { vec![] };
        for (leftovers, swept) in [
            (earlier(1..=40), vec!["Query", "BatchWriteItem", "BatchWriteItem"]),
            // The first rows have expired: the items of the earlier life show that there may be more.
            ([earlier(7..=9), rows::orphans(DB, cid(9), 9)].concat(), vec!["Query", "BatchWriteItem"]),
            (rows::orphans(DB, cid(9), 9), vec!["Query"]),
        ] {
            let table = with_source().await;
            table.put(&leftovers).await;
            assert!(create(table.store.clone()).await, "{name}");
            let transaction = vec!["TransactWriteItems"];
            assert_eq!(
                table.proxy.take_operations(),
                [reads.clone(), transaction.clone(), swept, transaction].concat(),
                "{name}"
            );
            assert_eq!(logged(&table).await, 0, "{name}");
            assert!(!found(table.direct(), &at(DB)).await.retracted);
            layout::assert_ours(table.rows(DB).await.values());
        }
        let table = with_source().await;
        assert!(create(table.store.clone()).await);
        let nothing = [reads, vec!["TransactWriteItems"]].concat();
        assert_eq!(table.proxy.take_operations(), nothing, "{name}: over nothing it costs nothing");
    }
}

#[tokio::test]
async fn a_creation_that_cannot_sweep_an_earlier_log_creates_nothing() {
    for (name, create) in CREATIONS {
        let table = with_source().await;
        table.put(&earlier(1..=2)).await;
        table.proxy.on("BatchWriteItem", Fault::answer(400, "AccessDeniedException").always());
        assert!(!create(table.store.clone()).await, "{name}");
        assert_eq!(table.store.lookup(&at(DB)).await.unwrap(), None, "{name}");
        assert_eq!(logged(&table).await, 2);
    }
}

#[tokio::test]
async fn a_row_that_fluree_logs_while_a_creation_sweeps_is_swept_too() {
    let table = with_source().await;
    table.put(&earlier(1..=2)).await;
    let (client, name) = (table.client.clone(), table.name.clone());
    let late = move || {
        let (client, name) = (client.clone(), name.clone());
        async move {
            let row = rows::to_item(&earlier([1])[0]);
            client.put_item().table_name(name).set_item(Some(row)).send().await.unwrap();
        }
    };
    // The first transaction is rejected; before the second, a late row arrives.
    table.proxy.on("TransactWriteItems", Fault::none().skipping(1).before(late));
    let created = table.store.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap();
    assert!(matches!(created, Created::Created(_)), "{created:?}");
    assert!(table.proxy.is_spent());
    assert_eq!(logged(&table).await, 0);
}

#[tokio::test]
async fn creating_what_exists_leaves_its_log_alone() {
    let table = with_source().await;
    assert!(born(table.direct(), DB, 2).await == at(DB));
    table.put(&earlier(1..=2)).await;
    for (name, create) in CREATIONS {
        table.proxy.take_operations();
        assert!(!create(table.store.clone()).await, "{name}");
        let sent = table.proxy.take_operations();
        assert_eq!(sent.last().map(String::as_str), Some("TransactWriteItems"), "{name}: {sent:?}");
        assert!(!sent.contains(&"BatchWriteItem".to_owned()), "{name}");
    }
    assert_eq!(logged(&table).await, 2);
}

#[tokio::test]
async fn a_graph_source_over_an_earlier_life_leaves_no_commit_log_either() {
    let table = with_source().await;
    table.put(&[earlier(1..=2), rows::orphans(DB, cid(9), 9)].concat()).await;
    table.put(&rows::meta_only("db:main")).await;
    let published = table.store.publish_graph_source(&Call::fresh(), &bm25(DB, json!({}), &["db"])).await.unwrap();
    assert!(matches!(published, Published::Created(_)), "{published:?}");
    let sent = table.proxy.take_operations();
    assert_eq!(sent, ["TransactWriteItems", "Query", "BatchWriteItem", "TransactWriteItems"]);
    assert_eq!(logged(&table).await, 0);
}
