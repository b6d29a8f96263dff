//! Bugs that the histories found: one test each.

use nameservice_tests::prelude::*;

fn root_at(n: i64, t: i64) -> NewIndex {
    index_of(n, t)
}

/// A push whose reply is lost, and which others have replaced before it is sent again.
async fn lost_and_replaced(table: &Proxied, db: &Address) {
    let (store, db) = (table.direct().clone(), db.clone());
    table.proxy.on(
        "UpdateItem",
        Fault::cut_reply().after(move || {
            let (store, db) = (store.clone(), db.clone());
            async move { drop(store.push_index(&Call::fresh(), &db, &older(root_at(9, 9))).await.unwrap()) }
        }),
    );
}

async fn indexed(table: &Proxied) -> Address {
    let db = at("mydb");
    table.direct().create_ledger(&Call::fresh(), &db, Some(&new_head(9)), None).await.unwrap().applied();
    table.direct().push_index(&Call::fresh(), &db, &older(root_at(1, 2))).await.unwrap().applied();
    db
}

fn overwritten(n: i64) -> PushOutcome<IndexRoot> {
    updated(Index::new(2, IndexRoot { id: index_cid(n), rev: 1, graphs: Default::default() }))
}

#[tokio::test]
async fn an_index_overwrite_that_was_lost_and_replaced_reports_its_own_revision() {
    let table = Proxied::fresh().await;
    let db = indexed(&table).await;
    lost_and_replaced(&table, &db).await;
    let there = Index::new(2, IndexRoot { id: index_cid(1), rev: 0, graphs: Default::default() });
    let outcome = table.store.push_index(&Call::fresh(), &db, &cas(there, root_at(5, 2))).await.unwrap();
    assert_eq!(outcome, overwritten(5));
}

#[tokio::test]
async fn an_overwrite_of_any_index_that_was_lost_and_replaced_reports_its_own_revision() {
    let table = Proxied::fresh().await;
    let db = indexed(&table).await;
    // The first request only advances, and its condition fails; the second overwrites.
    let push = IndexPush::overwrite(root_at(5, 2));
    table.proxy.on("UpdateItem", Fault::none());
    lost_and_replaced(&table, &db).await;
    let call = Call::fresh();
    assert_eq!(table.store.push_index(&call, &db, &push).await.unwrap(), overwritten(5));
    // Once the whole call is repeated, the value that it counted from is unknown.
    let again = table.store.push_index(&call, &db, &push).await;
    assert!(matches!(again, Err(Error::OutcomeUnknown { .. })), "{again:?}");
}
