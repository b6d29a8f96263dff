use nameservice_tests::prelude::*;

use super::{born, found, retracted, source, unborn};

async fn push(store: &Store, db: &Address, push: Push<IndexRoot, IndexUpdate>) -> PushOutcome<IndexRoot> {
    store.push_index(&Call::fresh(), db, &push).await.unwrap()
}

/// Another index root at `t`.
fn reindex(t: i64, n: i64) -> IndexUpdate {
    IndexUpdate { id: index_cid(1_000 + n), ..index(t) }
}

fn reindexed(t: i64, n: i64, rev: i64) -> Index {
    Index::new(t, IndexRoot { id: index_cid(1_000 + n), rev, graphs: Default::default() })
}

fn allowing_equal(new: IndexUpdate) -> Push<IndexRoot, IndexUpdate> {
    Push { allow_equal: true, ..older(new) }
}

#[tokio::test]
async fn a_newer_index_is_updated_and_starts_at_rev_0() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, older(index(1))).await, updated(index_at(1, 0)));
    assert_eq!(push(&table.store, &db, cas(index_at(1, 0), index(4))).await, updated(index_at(4, 0)));
    assert_eq!(table.store.index(&db).await.unwrap(), Some(index_at(4, 0)));
    assert_eq!(found(&table.store, &db).await.index, index_at(4, 0));
}

#[tokio::test]
async fn the_unborn_index_can_be_expected() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, cas(index_at(1, 0), index(2))).await, conflict(Index::unborn()));
    assert_eq!(push(&table.store, &db, cas(Index::unborn(), index(1))).await, updated(index_at(1, 0)));
}

#[tokio::test]
async fn an_older_index_and_another_one_at_the_same_t_are_stale() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    for new in [index(4), reindex(5, 1)] {
        assert_eq!(push(&table.store, &db, older(new)).await, stale(index_at(5, 0)));
    }
}

#[tokio::test]
async fn an_index_that_is_in_place_is_replayed() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    for pushed in [older(index(5)), allowing_equal(index(5)), cas(index_at(3, 0), index(5))] {
        assert_eq!(push(&table.store, &db, pushed).await, replayed(index_at(5, 0)));
    }
}

#[tokio::test]
async fn another_index_than_expected_is_a_conflict_that_shows_it() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    for expected in [index_at(4, 0), reindexed(5, 1, 0), Index::unborn()] {
        assert_eq!(push(&table.store, &db, cas(expected, index(6))).await, conflict(index_at(5, 0)));
    }
    assert_eq!(push(&table.store, &db, cas(index_at(5, 0), index(4))).await, conflict(index_at(5, 0)), "backwards");
}

#[tokio::test]
async fn the_expected_index_can_be_replaced_at_the_same_t_and_rev_counts_it() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    assert_eq!(push(&table.store, &db, cas(index_at(5, 0), reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(&table.store, &db, cas(reindexed(5, 1, 1), reindex(5, 2))).await, updated(reindexed(5, 2, 2)));
    assert_eq!(table.store.index(&db).await.unwrap(), Some(reindexed(5, 2, 2)));
    assert_eq!(push(&table.store, &db, older(index(6))).await, updated(index_at(6, 0)), "an advance resets it");
    assert_eq!(table.store.index(&db).await.unwrap(), Some(index_at(6, 0)));
}

#[tokio::test]
async fn equal_t_is_overwritten_where_that_is_allowed() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    assert_eq!(push(&table.store, &db, allowing_equal(reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(&table.store, &db, allowing_equal(reindex(5, 2))).await, updated(reindexed(5, 2, 2)));
    assert_eq!(push(&table.store, &db, allowing_equal(index(4))).await, stale(reindexed(5, 2, 2)));
    assert_eq!(push(&table.store, &db, allowing_equal(index(7))).await, updated(index_at(7, 0)));
    assert_eq!(table.store.index(&db).await.unwrap(), Some(index_at(7, 0)));
}

#[tokio::test]
async fn a_rev_that_fluree_left_behind_does_not_count() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, older(index(5))).await;
    push(&table.store, &db, allowing_equal(reindex(5, 1))).await;
    assert!(Fluree::on(&table).reindex("mydb:main", &index_cid(1_002), 5).await);
    assert_eq!(table.store.index(&db).await.unwrap(), Some(reindexed(5, 2, 0)));
    assert_eq!(push(&table.store, &db, cas(reindexed(5, 2, 0), reindex(5, 3))).await, updated(reindexed(5, 3, 1)));
    assert!(Fluree::on(&table).publish_index("mydb:main", &index_cid(8), 8).await);
    assert_eq!(table.store.index(&db).await.unwrap(), Some(index_at(8, 0)));
}

#[tokio::test]
async fn an_unknown_record_is_unknown_and_stays_so() {
    let table = Table::fresh().await;
    for pushed in [older(index(1)), allowing_equal(index(1)), cas(Index::unborn(), index(1))] {
        assert_eq!(push(&table.store, &at("mydb"), pushed).await, PushOutcome::Unknown);
    }
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_retracted_record_takes_no_index() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    retracted(&table.store, &db).await;
    for pushed in [older(index(1)), allowing_equal(index(1)), cas(Index::unborn(), index(1))] {
        assert_eq!(push(&table.store, &db, pushed).await, PushOutcome::Retracted);
    }
    assert_eq!(table.store.index(&db).await.unwrap(), Some(Index::unborn()));
}

#[tokio::test]
async fn a_graph_source_has_an_index_of_the_same_rules() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    assert_eq!(push(&table.store, &search, older(index(5))).await, updated(index_at(5, 0)));
    assert_eq!(push(&table.store, &search, allowing_equal(reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(&table.store, &search, older(index(4))).await, stale(reindexed(5, 1, 1)));
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

fn with_graph(mut update: IndexUpdate, name: &str, graph: Option<(i64, i64, Option<i64>)>) -> IndexUpdate {
    let graph = graph.map(|(n, t, rev)| GraphPush { id: index_cid(n), t, rev });
    update.graphs.insert(name.into(), graph);
    update
}

fn graph(n: i64, t: i64, rev: i64) -> Option<GraphIndex> {
    Some(GraphIndex { id: index_cid(n), t, rev })
}

async fn graphs(store: &Store, db: &Address) -> Vec<(String, Option<GraphIndex>)> {
    let index = store.index(db).await.unwrap().unwrap();
    index.payload.map_or_else(Vec::new, |root| root.graphs.into_iter().collect())
}

#[tokio::test]
async fn named_graphs_keep_their_own_index() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 9).await;
    let (one, two) = ("http://example.org/g#1", "g.2");
    push(&table.store, &db, older(with_graph(index(1), one, Some((11, 1, None))))).await;
    push(&table.store, &db, older(with_graph(index(2), two, Some((22, 2, None))))).await;
    push(&table.store, &db, older(index(3))).await;
    let kept = vec![(two.to_owned(), graph(22, 2, 0)), (one.to_owned(), graph(11, 1, 0))];
    assert_eq!(graphs(&table.store, &db).await, kept);
    let PushOutcome::Updated { value, .. } =
        push(&table.store, &db, older(with_graph(index(4), one, Some((12, 4, None))))).await
    else {
        panic!("not updated")
    };
    assert_eq!(Some(value), table.store.index(&db).await.unwrap(), "the answer shows what is stored");
    assert_eq!(
        graphs(&table.store, &db).await,
        vec![(two.to_owned(), graph(22, 2, 0)), (one.to_owned(), graph(12, 4, 0))]
    );
}

#[tokio::test]
async fn a_named_graph_counts_its_own_revisions() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 9).await;
    for (update, rev) in [
        (with_graph(index(1), "g", Some((1, 1, None))), 0),
        (with_graph(index(2), "g", Some((2, 1, None))), 1),
        (with_graph(index(3), "g", Some((3, 1, None))), 2),
        (with_graph(index(4), "g", Some((4, 2, None))), 0),
        (with_graph(index(5), "g", Some((5, 2, Some(7)))), 7),
        (with_graph(index(6), "g", Some((6, 2, None))), 8),
    ] {
        let outcome = push(&table.store, &db, older(update.clone())).await;
        assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{outcome:?}");
        let (_, stored) = graphs(&table.store, &db).await.remove(0);
        assert_eq!(stored.unwrap().rev, rev, "{update:?}");
    }
}

#[tokio::test]
async fn a_named_graph_never_goes_backwards() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 9).await;
    push(&table.store, &db, older(with_graph(index(5), "g", Some((1, 5, None))))).await;
    let before = table.store.index(&db).await.unwrap().unwrap();
    let outcome = push(&table.store, &db, older(with_graph(index(6), "g", Some((2, 4, None))))).await;
    assert_eq!(outcome, stale(before.clone()));
    let outcome = push(&table.store, &db, cas(before.clone(), with_graph(index(6), "g", Some((2, 4, None))))).await;
    assert_eq!(outcome, conflict(before.clone()));
    assert_eq!(table.store.index(&db).await.unwrap(), Some(before));
}

#[tokio::test]
async fn a_named_graph_can_exist_without_an_index() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 9).await;
    push(&table.store, &db, older(with_graph(index(1), "g", None))).await;
    assert_eq!(graphs(&table.store, &db).await, vec![("g".to_owned(), None)]);
    assert_eq!(table.row("mydb:main", "index").await.unwrap()["graphs"], json!({ "M": { "g": { "NULL": true } } }));
    push(&table.store, &db, older(with_graph(index(2), "g", Some((1, 2, None))))).await;
    assert_eq!(graphs(&table.store, &db).await, vec![("g".to_owned(), graph(1, 2, 0))]);
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
