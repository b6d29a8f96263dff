use nameservice_tests::prelude::*;

use super::{retracted, source, unborn};

/// All pages of a list in order; panics over an endless one.
async fn walk(store: &Store, query: ListQuery) -> Vec<Listed> {
    let mut query = query;
    let mut all = Vec::new();
    for _ in 0..200 {
        let page = store.list(&query, &anything).await.unwrap();
        assert!(page.items.len() <= query.limit);
        all.extend(page.items);
        query.cursor = match page.cursor {
            Some(cursor) => Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return all,
        };
    }
    panic!("the list has no end")
}

fn addresses(listed: &[Listed]) -> Vec<String> {
    let addresses = listed.iter().map(|entry| match entry {
        Listed::Summary(summary) => summary.address.to_string(),
        Listed::Full(record) => record.address.to_string(),
    });
    addresses.collect()
}

async fn listed(store: &Store, query: ListQuery) -> Vec<String> {
    addresses(&walk(store, query).await)
}

/// Four ledgers of two names, three graph sources of two types; one of each kind is retracted.
async fn populate(table: &Table) {
    let store = &table.store;
    for name in ["a:dev", "a:main", "b:dev", "b:main"] {
        unborn(store, name).await;
    }
    for name in ["s1", "s2"] {
        source(store, name, &["a:main"]).await;
    }
    let vector = GraphSourcePublication { source_type: "f:HnswIndex".into(), ..bm25(json!({}), &[]) };
    store.publish_graph_source(&Call::fresh(), &at("v1"), &vector).await.unwrap();
    retracted(store, &at("b:dev")).await;
    retracted(store, &at("s2")).await;
    let pushed = cas(Status { v: 1, payload: None }, status(2, "error"));
    store.push_status(&Call::fresh(), &at("a:dev"), &pushed).await.unwrap();
    store.push_status(&Call::fresh(), &at("v1"), &pushed).await.unwrap();
}

async fn assert_filters(store: &Store) {
    let all = ["s1:main", "s2:main", "v1:main", "a:dev", "a:main", "b:dev", "b:main"];
    assert_eq!(listed(store, everything()).await, all);
    let kind = |kind| ListQuery { kind: Some(kind), ..everything() };
    assert_eq!(listed(store, kind(RecordKind::Ledger)).await, &all[3..]);
    assert_eq!(listed(store, kind(RecordKind::GraphSource)).await, &all[..3]);
    let name = ListQuery { name: Some("b".into()), ..everything() };
    assert_eq!(listed(store, name.clone()).await, ["b:dev", "b:main"]);
    assert_eq!(listed(store, ListQuery { retracted: Some(false), ..name }).await, ["b:main"]);
    let source_type = ListQuery { source_type: Some("f:Bm25Index".into()), ..everything() };
    assert_eq!(listed(store, source_type.clone()).await, ["s1:main", "s2:main"]);
    assert_eq!(listed(store, ListQuery { retracted: Some(true), ..source_type.clone() }).await, ["s2:main"]);
    assert!(listed(store, ListQuery { kind: Some(RecordKind::Ledger), ..source_type }).await.is_empty());
    // The index by state runs through both kinds at once: the order is not that of the other lists.
    let state = |state: &str| ListQuery { state: Some(state.into()), ..everything() };
    let sorted = async |query| {
        let mut addresses = listed(store, query).await;
        addresses.sort();
        addresses
    };
    assert_eq!(sorted(state("error")).await, ["a:dev", "v1:main"]);
    assert_eq!(sorted(state("retracted")).await, ["b:dev", "s2:main"]);
    assert!(listed(store, state("nonsense")).await.is_empty());
    let ledgers_in_error = ListQuery { kind: Some(RecordKind::Ledger), ..state("error") };
    assert_eq!(listed(store, ledgers_in_error).await, ["a:dev"]);
    let retracted = |retracted| ListQuery { retracted: Some(retracted), ..everything() };
    assert_eq!(listed(store, retracted(true)).await, ["s2:main", "b:dev"]);
    assert_eq!(listed(store, retracted(false)).await, ["s1:main", "v1:main", "a:dev", "a:main", "b:main"]);
}

#[tokio::test]
async fn lists_are_filtered_by_kind_name_type_state_and_retraction() {
    let table = Table::fresh().await;
    populate(&table).await;
    assert_filters(&table.store).await;
}

#[tokio::test]
async fn a_table_that_fluree_made_lists_the_same() {
    let table = Table::made_by_fluree().await;
    populate(&table).await;
    assert_filters(&table.store).await;
}

#[tokio::test]
async fn pages_of_every_size_hold_every_record_once() {
    for table in [Table::fresh().await, Table::made_by_fluree().await] {
        populate(&table).await;
        for full in [false, true] {
            for limit in 1..=8 {
                let filters = [
                    everything(),
                    ListQuery { retracted: Some(false), ..everything() },
                    ListQuery { state: Some("ready".into()), ..everything() },
                    ListQuery { source_type: Some("f:Bm25Index".into()), ..everything() },
                    ListQuery { name: Some("a".into()), ..everything() },
                ];
                for filter in filters {
                    let whole = listed(&table.store, filter.clone()).await;
                    let query = ListQuery { full, limit, ..filter };
                    assert_eq!(listed(&table.store, query.clone()).await, whole, "{query:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn summaries_show_what_the_indexes_carry() {
    let table = Table::fresh().await;
    populate(&table).await;
    let entries = walk(&table.store, everything()).await;
    let record = table.store.lookup(&at("s2")).await.unwrap().unwrap();
    assert_eq!(entries[1], Listed::Summary(Summary::from(&record)));
    let record = table.store.lookup(&at("b:main")).await.unwrap().unwrap();
    assert_eq!(entries[6], Listed::Summary(Summary::from(&record)));
}

#[tokio::test]
async fn full_entries_are_whole_records() {
    let table = Table::fresh().await;
    populate(&table).await;
    for entry in walk(&table.store, ListQuery { full: true, ..everything() }).await {
        let Listed::Full(record) = entry else { panic!("{entry:?}") };
        assert_eq!(table.store.lookup(&record.address).await.unwrap(), Some(*record));
    }
}

#[tokio::test]
async fn only_what_the_caller_may_see_is_listed_and_named_by_cursors() {
    let table = Table::fresh().await;
    populate(&table).await;
    let visible = |address: &Address| address.name() != "a";
    let mut query = ListQuery { kind: Some(RecordKind::Ledger), limit: 1, ..everything() };
    let mut seen = Vec::new();
    loop {
        let page = table.store.list(&query, &visible).await.unwrap();
        seen.extend(addresses(&page.items));
        let Some(cursor) = page.cursor else { break };
        assert!(!cursor.after().starts_with("a:"), "{cursor:?}");
        query.cursor = Some(cursor);
    }
    assert_eq!(seen, ["b:dev", "b:main"]);
}

#[tokio::test]
async fn names_outside_the_grammar_and_ghosts_are_invisible_in_lists() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("my@db:main").rows()).await;
    table.put(&rows::ledger("a%2Fb:main").rows()).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::orphans("orphan:main", cid(1), 1)).await;
    unborn(&table.store, "mydb").await;
    for full in [false, true] {
        let visible = Address::is_well_formed;
        let page = table.store.list(&ListQuery { full, ..everything() }, &visible).await.unwrap();
        assert_eq!(addresses(&page.items), ["mydb:main"]);
        assert_eq!(page.cursor, None);
    }
}

#[tokio::test]
async fn the_branches_of_a_name_are_not_those_of_longer_names() {
    let table = Table::fresh().await;
    for name in ["my", "my/db", "mydb", "my:dev", "m"] {
        unborn(&table.store, name).await;
    }
    let query = ListQuery { name: Some("my".into()), ..everything() };
    assert_eq!(listed(&table.store, query).await, ["my:dev", "my:main"]);
}
