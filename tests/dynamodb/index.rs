use nameservice_tests::prelude::*;

use crate::contract::unborn;

async fn push(store: &dyn Records, db: &Address, push: IndexPush) -> PushOutcome<IndexRoot> {
    store.push_index(&Call::fresh(), db, &push).await.unwrap()
}

/// Another index root at `t`.
fn reindex(t: i64, n: i64) -> NewIndex {
    index_of(1_000 + n, t)
}

fn reindexed(t: i64, n: i64, rev: i64) -> Index {
    Index::new(t, IndexRoot { id: index_cid(1_000 + n), rev, graphs: Default::default() })
}

fn allowing_equal(new: NewIndex) -> IndexPush {
    IndexPush::overwrite(new)
}

#[tokio::test]
async fn a_rev_that_fluree_left_behind_does_not_count() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await.applied();
    push(&table.store, &db, allowing_equal(reindex(5, 1))).await.applied();
    assert!(Fluree::on(&table).reindex("mydb:main", &index_cid(1_002), 5).await);
    assert_eq!(table.store.index(&db).await.unwrap(), Some(reindexed(5, 2, 0)));
    assert_eq!(push(&table.store, &db, cas(reindexed(5, 2, 0), reindex(5, 3))).await, updated(reindexed(5, 3, 1)));
    assert!(Fluree::on(&table).publish_index("mydb:main", &index_cid(8), 8).await);
    assert_eq!(table.store.index(&db).await.unwrap(), Some(index_at(8, 0)));
}

#[tokio::test]
async fn a_missing_index_item_is_unborn_and_is_made_by_the_first_push() {
    let table = Table::fresh().await;
    for name in ["a", "b", "c"] {
        table.put(&rows::meta_only(&format!("{name}:main"))).await;
    }
    assert_eq!(table.store.index(&at("a")).await.unwrap(), Some(Index::unborn()));
    assert_eq!(push(&table.store, &at("a"), cas(Index::unborn(), index(1))).await, updated(index_at(1, 0)));
    assert_eq!(push(&table.store, &at("b"), older(index(1))).await, updated(index_at(1, 0)));
    assert_eq!(push(&table.store, &at("c"), allowing_equal(index(1))).await, updated(index_at(1, 0)));
    assert_eq!(table.store.index(&at("c")).await.unwrap(), Some(index_at(1, 0)));
}

fn with_graph(update: NewIndex, name: &str, at: Option<(i64, i64, Option<i64>)>) -> NewIndex {
    update.with_graph(name, at.map(|(n, t, rev)| nameservice_tests::words::graph(n, t, rev))).unwrap()
}

fn graph(n: i64, t: i64, rev: i64) -> Option<GraphIndex> {
    Some(GraphIndex { id: index_cid(n), t, rev })
}

async fn graphs(store: &dyn Records, db: &Address) -> Vec<(String, Option<GraphIndex>)> {
    let index = store.index(db).await.unwrap().unwrap();
    index.payload.map_or_else(Vec::new, |root| root.graphs.into_iter().collect())
}

#[tokio::test]
async fn named_graphs_survive_fluree_and_land_on_its_rows() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").index(index_cid(1), 1).rows()).await;
    let db = at("mydb");
    let outcome = push(&table.store, &db, cas(index_at(1, 0), with_graph(index(2), "g", Some((7, 2, None))))).await;
    assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{outcome:?}");
    assert!(Fluree::on(&table).publish_index("mydb:main", &index_cid(3), 3).await);
    assert_eq!(graphs(&table.store, &db).await, vec![("g".to_owned(), graph(7, 2, 0))]);
}
