use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, found, retracted, source, unborn};

async fn push(ns: &Fixture, db: &Address, push: IndexPush) -> PushOutcome<IndexRoot> {
    ns.push_index(&Call::fresh(), db, &push).await.unwrap()
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

#[every_backend]
async fn a_newer_index_is_updated_and_starts_at_rev_0(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(push(ns, &db, older(index(1))).await, updated(index_at(1, 0)));
    assert_eq!(push(ns, &db, cas(index_at(1, 0), index(4))).await, updated(index_at(4, 0)));
    assert_eq!(ns.index(&db).await.unwrap(), Some(index_at(4, 0)));
    assert_eq!(found(ns, &db).await.index, index_at(4, 0));
}

#[every_backend]
async fn the_unborn_index_can_be_expected(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(push(ns, &db, cas(index_at(1, 0), index(2))).await, conflict(Index::unborn()));
    assert_eq!(push(ns, &db, cas(Index::unborn(), index(1))).await, updated(index_at(1, 0)));
}

#[every_backend]
async fn an_older_index_and_another_one_at_the_same_t_are_stale(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    for new in [index(4), reindex(5, 1)] {
        assert_eq!(push(ns, &db, older(new)).await, stale(index_at(5, 0)));
    }
}

#[every_backend]
async fn an_index_that_is_current_is_replayed(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    for pushed in [older(index(5)), allowing_equal(index(5)), cas(index_at(3, 0), index(5))] {
        assert_eq!(push(ns, &db, pushed).await, replayed(index_at(5, 0)));
    }
}

#[every_backend]
async fn another_index_than_expected_is_a_conflict_that_shows_it(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    for expected in [index_at(4, 0), reindexed(5, 1, 0), Index::unborn()] {
        assert_eq!(push(ns, &db, cas(expected, index(6))).await, conflict(index_at(5, 0)));
    }
    assert_eq!(push(ns, &db, cas(index_at(5, 0), index(4))).await, conflict(index_at(5, 0)), "backwards");
}

#[every_backend]
async fn the_expected_index_can_be_replaced_at_the_same_t_and_rev_counts_it(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    assert_eq!(push(ns, &db, cas(index_at(5, 0), reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(ns, &db, cas(reindexed(5, 1, 1), reindex(5, 2))).await, updated(reindexed(5, 2, 2)));
    assert_eq!(ns.index(&db).await.unwrap(), Some(reindexed(5, 2, 2)));
    assert_eq!(push(ns, &db, older(index(6))).await, updated(index_at(6, 0)), "an advance resets it");
    assert_eq!(ns.index(&db).await.unwrap(), Some(index_at(6, 0)));
}

#[every_backend]
async fn an_advance_of_the_same_root_starts_at_rev_0(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    push(ns, &db, cas(index_at(5, 0), reindex(5, 1))).await.applied();
    assert_eq!(push(ns, &db, cas(reindexed(5, 1, 1), reindex(6, 1))).await, updated(reindexed(6, 1, 0)));
    assert_eq!(ns.index(&db).await.unwrap(), Some(reindexed(6, 1, 0)));
    push(ns, &db, cas(reindexed(6, 1, 0), reindex(6, 2))).await.applied();
    assert_eq!(push(ns, &db, older(reindex(7, 2))).await, updated(reindexed(7, 2, 0)));
}

#[every_backend]
async fn expecting_no_record_creates_the_ledger_with_its_index(ns: &Fixture) {
    let db = at("mydb");
    assert_eq!(push(ns, &db, IndexPush::create(index(3))).await, updated(index_at(3, 0)));
    assert_eq!(found(ns, &db).await.index, index_at(3, 0));
    assert_eq!(push(ns, &db, IndexPush::create(index(3))).await, replayed(index_at(3, 0)), "it has this very index");
    for other in [index(4), index_of(3, 4), reindex(3, 1)] {
        assert_eq!(push(ns, &db, IndexPush::create(other)).await, conflict(index_at(3, 0)));
    }
    assert_eq!(ns.index(&db).await.unwrap(), Some(index_at(3, 0)));
}

#[every_backend]
async fn equal_t_is_overwritten_where_that_is_allowed(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, older(index(5))).await.applied();
    assert_eq!(push(ns, &db, allowing_equal(reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(ns, &db, allowing_equal(reindex(5, 2))).await, updated(reindexed(5, 2, 2)));
    assert_eq!(push(ns, &db, allowing_equal(index(4))).await, stale(reindexed(5, 2, 2)));
    assert_eq!(push(ns, &db, allowing_equal(index(7))).await, updated(index_at(7, 0)));
    assert_eq!(ns.index(&db).await.unwrap(), Some(index_at(7, 0)));
}

#[every_backend]
async fn an_unknown_record_is_unknown_and_stays_so(ns: &Fixture) {
    for pushed in [older(index(1)), allowing_equal(index(1)), cas(Index::unborn(), index(1))] {
        assert_eq!(push(ns, &at("mydb"), pushed).await, PushOutcome::Unknown);
    }
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
}

#[every_backend]
async fn a_retracted_record_takes_no_index(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    for pushed in [older(index(1)), allowing_equal(index(1)), cas(Index::unborn(), index(1))] {
        assert_eq!(push(ns, &db, pushed).await, PushOutcome::Retracted);
    }
    assert_eq!(ns.index(&db).await.unwrap(), Some(Index::unborn()));
}

#[every_backend]
async fn a_graph_source_has_an_index_of_the_same_rules(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    assert_eq!(push(ns, &search, older(index(5))).await, updated(index_at(5, 0)));
    assert_eq!(push(ns, &search, allowing_equal(reindex(5, 1))).await, updated(reindexed(5, 1, 1)));
    assert_eq!(push(ns, &search, older(index(4))).await, stale(reindexed(5, 1, 1)));
}

fn with_graph(update: NewIndex, name: &str, at: Option<(i64, i64, Option<i64>)>) -> NewIndex {
    update.with_graph(name, at.map(|(n, t, rev)| nameservice_tests::words::graph(n, t, rev))).unwrap()
}

fn graph_of(n: i64, t: i64) -> NewGraphIndex {
    NewGraphIndex::new(index_cid(n), t).unwrap()
}

fn graph(n: i64, t: i64, rev: i64) -> Option<GraphIndex> {
    Some(GraphIndex { id: index_cid(n), t, rev })
}

async fn graphs(ns: &Fixture, db: &Address) -> Vec<(String, Option<GraphIndex>)> {
    let index = ns.index(db).await.unwrap().unwrap();
    index.payload.map_or_else(Vec::new, |root| root.graphs.into_iter().collect())
}

#[every_backend(NamedGraphs)]
async fn named_graphs_keep_their_own_index(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    let (one, two) = ("http://example.org/g#1", "g.2");
    push(ns, &db, older(with_graph(index(1), one, Some((11, 1, None))))).await.applied();
    push(ns, &db, older(with_graph(index(2), two, Some((22, 2, None))))).await.applied();
    push(ns, &db, older(index(3))).await.applied();
    let kept = vec![(two.to_owned(), graph(22, 2, 0)), (one.to_owned(), graph(11, 1, 0))];
    assert_eq!(graphs(ns, &db).await, kept);
    let PushOutcome::Updated { value, .. } = push(ns, &db, older(with_graph(index(4), one, Some((12, 4, None))))).await
    else {
        panic!("not updated")
    };
    assert_eq!(Some(value), ns.index(&db).await.unwrap(), "the answer shows what is stored");
    assert_eq!(graphs(ns, &db).await, vec![(two.to_owned(), graph(22, 2, 0)), (one.to_owned(), graph(12, 4, 0))]);
}

#[every_backend(NamedGraphs)]
async fn a_named_graph_counts_its_own_revisions(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    for (update, rev) in [
        (with_graph(index(1), "g", Some((1, 1, None))), 0),
        (with_graph(index(2), "g", Some((2, 1, None))), 1),
        (with_graph(index(3), "g", Some((3, 1, None))), 2),
        (with_graph(index(4), "g", Some((4, 2, None))), 0),
        (with_graph(index(5), "g", Some((5, 2, Some(7)))), 7),
        (with_graph(index(6), "g", Some((6, 2, None))), 8),
        (with_graph(index(7), "g", Some((6, 2, None))), 8),
        (with_graph(index(8), "g", Some((6, 3, None))), 0),
    ] {
        let outcome = push(ns, &db, older(update.clone())).await;
        assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{outcome:?}");
        let (_, stored) = graphs(ns, &db).await.remove(0);
        assert_eq!(stored.unwrap().rev, rev, "{update:?}");
    }
}

#[every_backend(NamedGraphs)]
async fn a_named_graph_never_goes_backwards(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    push(ns, &db, older(with_graph(index(5), "g", Some((1, 5, None))))).await.applied();
    let before = ns.index(&db).await.unwrap().unwrap();
    let outcome = push(ns, &db, older(with_graph(index(6), "g", Some((2, 4, None))))).await;
    assert_eq!(outcome, stale(before.clone()));
    let outcome = push(ns, &db, cas(before.clone(), with_graph(index(6), "g", Some((2, 4, None))))).await;
    assert_eq!(outcome, conflict(before.clone()));
    assert_eq!(ns.index(&db).await.unwrap(), Some(before));
}

#[every_backend(NamedGraphs)]
async fn a_named_graph_can_exist_without_an_index(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    push(ns, &db, older(with_graph(index(1), "g", None))).await.applied();
    assert_eq!(graphs(ns, &db).await, vec![("g".to_owned(), None)]);
    push(ns, &db, older(with_graph(index(2), "g", Some((1, 2, None))))).await.applied();
    assert_eq!(graphs(ns, &db).await, vec![("g".to_owned(), graph(1, 2, 0))]);
}

#[every_backend(NamedGraphs)]
async fn the_named_graphs_of_the_expected_index_are_written_where_they_are_news_and_replayed_where_not(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    push(ns, &db, older(with_graph(index(1), "g", Some((1, 1, None))))).await.applied();
    let with = |graphs: &[(&str, Option<NewGraphIndex>)]| {
        let graphs = graphs.iter().map(|(name, graph)| ((*name).to_owned(), graph.clone()));
        index(1).with_graphs(graphs).unwrap()
    };
    let replayed = async |expected: &Index, new: NewIndex| {
        let PushOutcome::Updated { value, replayed } = push(ns, &db, cas(expected.clone(), new)).await else {
            panic!("not updated")
        };
        assert_eq!(ns.index(&db).await.unwrap(), Some(value));
        replayed
    };
    // First the expected value leaves out the stored named graphs, then it has all of them.
    for names_them in [false, true] {
        let reset = with(&[("g", Some(graph_of(1, 1)))]);
        let name = if names_them { "k" } else { "h" };
        let there = async || match names_them {
            true => ns.index(&db).await.unwrap().unwrap(),
            false => index_at(1, 0),
        };
        assert!(replayed(&there().await, reset).await, "the same again");
        assert!(!replayed(&there().await, with(&[(name, None)])).await, "one that was absent");
        assert!(replayed(&there().await, with(&[(name, None)])).await, "one without an index again");
        assert!(replayed(&there().await, with(&[(name, None), ("g", Some(graph_of(1, 1)))])).await, "both again");
        assert!(!replayed(&there().await, with(&[(name, Some(graph_of(2, 1)))])).await, "its first index");
        assert!(!replayed(&there().await, with(&[(name, Some(graph_of(3, 1)))])).await, "another at the same t");
        assert!(!replayed(&there().await, with(&[(name, Some(graph_of(3, 2)))])).await, "the same at another t");
        assert!(!replayed(&there().await, with(&[(name, None)])).await, "no index any more");
    }
    let stored = graphs(ns, &db).await;
    assert_eq!(stored, [("g".to_owned(), graph(1, 1, 0)), ("h".to_owned(), None), ("k".to_owned(), None)]);
}

#[every_backend]
async fn an_index_push_that_arrives_again_after_others_wrote_is_updated_and_applies_once(ns: &Fixture) {
    for (name, pushed) in [("older", older(index(2))), ("expecting", cas(index_at(1, 0), index(2)))] {
        let db = unborn(ns, name).await;
        push(ns, &db, older(index(1))).await.applied();
        let call = Call::fresh();
        assert_eq!(ns.push_index(&call, &db, &pushed).await.unwrap(), updated(index_at(2, 0)));
        for t in 3..=5 {
            assert_eq!(push(ns, &db, older(index(t))).await, updated(index_at(t, 0)));
        }
        let again = ns.push_index(&call, &db, &pushed).await.unwrap();
        assert_eq!(again, replayed(index_at(2, 0)), "the value that was written");
        assert_eq!(ns.index(&db).await.unwrap(), Some(index_at(5, 0)));
    }
}
