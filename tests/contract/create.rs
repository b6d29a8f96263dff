use nameservice_tests::{layout, prelude::*};

use super::found;

#[tokio::test]
async fn a_new_ledger_is_live_unborn_and_ready() {
    let table = Table::fresh().await;
    let db = at("tenant/a/mydb:feature/x");
    let Created::Created(record) = table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap() else {
        panic!("not created")
    };
    assert_eq!(*record, found(&table.store, &db).await);
    assert_eq!((record.kind, record.retracted, record.branches, record.dependents), (RecordKind::Ledger, false, 0, 0));
    assert_eq!(record.address, db);
    assert_eq!(record.head, Some(Head::unborn()));
    assert_eq!(record.index, Index::unborn());
    assert_eq!(record.status, status(1, "ready"));
    assert_eq!(record.config, Config::unborn());
    assert!(record.created_at.is_some());
    assert_eq!((record.source_branch, record.source_type, record.dependencies), (None, None, vec![]));

    let rows = table.rows(db.as_str()).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["config", "head", "index", "meta", "status"]);
    layout::assert_ours(rows.values());
    assert_eq!(rows["meta"]["name"], rows::s("tenant/a/mydb"));
    assert_eq!(rows["meta"]["branch"], rows::s("feature/x"));
}

#[tokio::test]
async fn a_head_and_a_config_can_be_given_along() {
    let table = Table::fresh().await;
    let db = at("mydb");
    let config = json!({ "default_context_id": cid(9).as_str(), "theme": { "dark": true } });
    let outcome = table.store.create_ledger(&Call::fresh(), &db, Some(&head(7)), Some(&config)).await.unwrap();
    let Created::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(head(7)));
    assert_eq!(record.config, Config::new(1, config));
    assert_eq!(*record, found(&table.store, &db).await);

    let rows = table.rows("mydb:main").await;
    layout::assert_ours(rows.values());
    assert_eq!(rows["config"]["default_context_address"], rows::s(cid(9).as_str()));
    assert_eq!(rows["config"]["default_context_id"], rows::s(cid(9).as_str()));
    assert_eq!(rows["config"]["config_meta"], json!({ "M": { "theme": { "M": { "dark": { "BOOL": true } } } } }));
}

#[tokio::test]
async fn creating_twice_answers_already_exists_and_changes_nothing() {
    let table = Table::fresh().await;
    let db = at("mydb");
    table.store.create_ledger(&Call::fresh(), &db, Some(&head(3)), None).await.unwrap();
    let before = table.rows("mydb:main").await;
    let again = table.store.create_ledger(&Call::fresh(), &db, Some(&head(1)), None).await.unwrap();
    assert_eq!(again, Created::AlreadyExists);
    assert_eq!(table.rows("mydb:main").await, before);
}

#[tokio::test]
async fn a_call_that_arrives_twice_creates_once_and_answers_created_twice() {
    let table = Table::fresh().await;
    let (db, call) = (at("mydb"), Call::fresh());
    let one = table.store.create_ledger(&call, &db, Some(&head(3)), None).await.unwrap();
    let two = table.store.create_ledger(&call, &db, Some(&head(3)), None).await.unwrap();
    assert!(matches!(one, Created::Created(_)));
    assert!(matches!(two, Created::Created(_)), "{two:?}");
}

#[tokio::test]
async fn a_retracted_ledger_still_exists() {
    let table = Table::fresh().await;
    let db = super::unborn(&table.store, "mydb").await;
    super::retracted(&table.store, &db).await;
    let outcome = table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    assert_eq!(outcome, Created::AlreadyExists);
}

#[tokio::test]
async fn a_graph_source_of_the_same_address_already_exists() {
    let table = Table::fresh().await;
    let address = super::source(&table.store, "search", &[]).await;
    let outcome = table.store.create_ledger(&Call::fresh(), &address, None, None).await.unwrap();
    assert_eq!(outcome, Created::AlreadyExists);
}

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

#[tokio::test]
async fn unknown_records_are_none_everywhere() {
    let table = Table::fresh().await;
    let (store, nobody) = (&table.store, at("nobody"));
    assert_eq!(store.lookup(&nobody).await.unwrap(), None);
    assert_eq!(store.graph_source(&nobody).await.unwrap(), None);
    assert_eq!(store.head(&nobody).await.unwrap(), None);
    assert_eq!(store.index(&nobody).await.unwrap(), None);
    assert_eq!(store.status(&nobody).await.unwrap(), None);
    assert_eq!(store.config(&nobody).await.unwrap(), None);
    assert_eq!(store.dependents(&nobody).await.unwrap(), []);
}
