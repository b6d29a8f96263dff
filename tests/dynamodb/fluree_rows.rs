//! Rows as a Fluree server leaves them, read.

use nameservice_tests::prelude::*;

use crate::contract::found;

#[tokio::test]
async fn a_ledger_that_fluree_made_is_read_whole() {
    let table = Table::fresh().await;
    let rows = rows::ledger("tenant/mydb:main").commit(cid(7), 7).index(index_cid(5), 5).context("fluree:ctx", 3);
    table.put(&rows.branches(2).rows()).await;
    table.put(&[rows::commit_log("tenant/mydb:main", &cid(7), 7)]).await;
    let record = found(&table.store, &at("tenant/mydb")).await;
    assert_eq!((record.kind, record.retracted, record.branches), (RecordKind::Ledger, false, 2));
    assert_eq!((record.head, record.index), (Some(head(7)), index_at(5, 0)));
    assert_eq!(record.config, Config::new(3, json!({ "default_context_id": "fluree:ctx" })));
    assert_eq!(record.status, status(1, "ready"));
    assert_eq!((record.created_at, record.dependents), (None, 0));
    assert_eq!(record.updated_at.as_millisecond(), rows::WRITTEN_AT_MS);
}

#[tokio::test]
async fn nulls_read_as_absent() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").nulls().rows()).await;
    let record = found(&table.store, &at("mydb")).await;
    assert_eq!((record.head, record.index, record.config), (Some(Head::unborn()), Index::unborn(), Config::unborn()));
}

#[tokio::test]
async fn what_is_left_of_a_ledger_is_a_ledger_while_its_meta_is_there() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let record = found(&table.store, &at("mydb")).await;
    assert_eq!((record.head, record.index, record.config), (Some(Head::unborn()), Index::unborn(), Config::unborn()));
    assert_eq!(record.status, status(1, "ready"));
}

#[tokio::test]
async fn a_meta_with_nothing_but_its_kind_is_a_record() {
    let table = Table::fresh().await;
    let mut meta = rows::bare("mydb:main", "meta");
    meta.insert("kind".into(), rows::s("ledger"));
    table.put(&[meta]).await;
    let record = found(&table.store, &at("mydb")).await;
    assert_eq!((record.address, record.retracted, record.branches), (at("mydb"), false, 0));
    assert_eq!(record.updated_at.as_millisecond(), 0);
    assert_eq!(table.store.push_head(&Call::fresh(), &at("mydb"), &older(head(1))).await.unwrap(), updated(head(1)));
}

#[tokio::test]
async fn bare_concern_items_are_unborn() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    for sk in ["head", "index", "status", "config"] {
        table.put(&[rows::bare("mydb:main", sk)]).await;
    }
    let (store, db) = (&table.store, at("mydb"));
    let record = found(store, &db).await;
    assert_eq!((record.head, record.index, record.config), (Some(Head::unborn()), Index::unborn(), Config::unborn()));
    assert_eq!(record.status, status(1, "ready"));
    assert_eq!(store.push_head(&Call::fresh(), &db, &older(head(1))).await.unwrap(), updated(head(1)));
    let pushed = cas(Index::unborn(), index(1));
    assert_eq!(store.push_index(&Call::fresh(), &db, &pushed).await.unwrap(), updated(index_at(1, 0)));
    let pushed = cas(status(1, "ready"), status(2, "x"));
    assert_eq!(store.push_status(&Call::fresh(), &db, &pushed).await.unwrap(), updated(status(2, "x")));
    let new = Config::new(1, json!({ "a": 1 }));
    let pushed = cas(Config::unborn(), new.clone());
    assert_eq!(store.push_config(&Call::fresh(), &db, &pushed).await.unwrap(), updated(new));
}

#[tokio::test]
async fn ghosts_and_orphans_are_no_records() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::orphans("orphan:main", cid(3), 3)).await;
    for name in ["ghost", "orphan"] {
        assert_eq!(table.store.lookup(&at(name)).await.unwrap(), None, "{name}");
    }
    let page = table.store.list(&everything(), &anything).await.unwrap();
    assert_eq!(page.items, []);
    let page = table.store.snapshot(at_most(100), None, &anything).await.unwrap();
    assert_eq!(page.items, []);
}

#[tokio::test]
async fn names_that_only_fluree_allows_are_readable_through_the_library() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("my@db#1:main").commit(cid(2), 2).rows()).await;
    let address = Address::stored("my@db#1:main");
    assert_eq!(found(&table.store, &address).await.head, Some(head(2)));
}

#[tokio::test]
async fn what_we_write_is_what_fluree_expects_to_find() {
    let table = Table::fresh().await;
    let (store, fluree, db) = (&table.store, Fluree::on(&table), at("mydb"));
    store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    assert!(fluree.commit("mydb:main", &cid(1), 1).await);
    assert!(fluree.publish_index("mydb:main", &index_cid(1), 1).await);
    assert!(fluree.push_status("mydb:main", (1, "ready"), (2, "indexing")).await);
    assert!(fluree.push_config("mydb:main", 0, "fluree:ctx", 1).await);
    let record = found(store, &db).await;
    assert_eq!((record.head, record.index), (Some(head(1)), index_at(1, 0)));
    assert_eq!((record.status, record.config.v), (status(2, "indexing"), 1));
}
