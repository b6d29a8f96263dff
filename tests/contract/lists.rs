use nameservice_tests::prelude::*;

use super::{Fixture, every_backend, retracted, source, unborn};

/// All pages of a list in order; panics if it does not end.
async fn walk(ns: &impl AsRecords, query: ListQuery) -> Vec<Listed> {
    let ns = ns.records();
    let mut query = query;
    let mut all = Vec::new();
    for _ in 0..200 {
        let page = ns.list(&query, &anything).await.unwrap();
        assert!(page.items.len() <= query.limit.get());
        all.extend(page.items);
        query.cursor = match page.cursor {
            Some(cursor) => Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return all,
        };
    }
    panic!("the list has no end")
}

pub(crate) fn addresses(listed: &[Listed]) -> Vec<String> {
    let addresses = listed.iter().map(|entry| match entry {
        Listed::Summary(summary) => summary.address.to_string(),
        Listed::Full(record) => record.address.to_string(),
    });
    addresses.collect()
}

async fn listed(ns: &impl AsRecords, query: ListQuery) -> Vec<String> {
    addresses(&walk(ns, query).await)
}

/// Four ledgers of two names, three graph sources of two types; one of each kind is retracted.
pub(crate) async fn populate(ns: &impl AsRecords) {
    for name in ["a:dev", "a:main", "b:dev", "b:main"] {
        unborn(ns, name).await;
    }
    for name in ["s1", "s2"] {
        source(ns, name, &["a:main"]).await;
    }
    let vector = graph_source("v1", "f:HnswIndex", json!({}), &[]);
    ns.records().publish_graph_source(&Call::fresh(), &vector).await.unwrap().applied();
    retracted(ns, &at("b:dev")).await;
    retracted(ns, &at("s2")).await;
    let pushed = cas(Status::stored(1, None), status(2, "error"));
    ns.records().push_status(&Call::fresh(), &at("a:dev"), &pushed).await.unwrap().applied();
    ns.records().push_status(&Call::fresh(), &at("v1"), &pushed).await.unwrap().applied();
}

pub(crate) async fn assert_filters(ns: &impl AsRecords) {
    let all = ["s1:main", "s2:main", "v1:main", "a:dev", "a:main", "b:dev", "b:main"];
    assert_eq!(listed(ns, everything()).await, all);
    let kind = |kind| ListQuery { kind: Some(kind), ..everything() };
    assert_eq!(listed(ns, kind(RecordKind::Ledger)).await, &all[3..]);
    assert_eq!(listed(ns, kind(RecordKind::GraphSource)).await, &all[..3]);
    let name = ListQuery { name: Some("b".into()), ..everything() };
    assert_eq!(listed(ns, name.clone()).await, ["b:dev", "b:main"]);
    assert_eq!(listed(ns, ListQuery { retracted: Some(false), ..name }).await, ["b:main"]);
    let prefix = |prefix: &str| ListQuery { prefix: Some(prefix.into()), ..everything() };
    assert_eq!(listed(ns, prefix("s")).await, ["s1:main", "s2:main"]);
    assert_eq!(listed(ns, prefix("b:")).await, ["b:dev", "b:main"]);
    assert_eq!(listed(ns, prefix("b:main")).await, ["b:main"]);
    assert!(listed(ns, prefix("b:main2")).await.is_empty());
    assert_eq!(listed(ns, ListQuery { retracted: Some(false), ..prefix("s") }).await, ["s1:main"]);
    assert_eq!(listed(ns, ListQuery { source_type: Some("f:Bm25Index".into()), ..prefix("s2") }).await, ["s2:main"]);
    assert_eq!(listed(ns, ListQuery { state: Some("error".into()), ..prefix("v") }).await, ["v1:main"]);
    let of_a = |prefix: &str| ListQuery { name: Some("a".into()), prefix: Some(prefix.into()), ..everything() };
    for (prefix, found) in
        [("", &["a:dev", "a:main"] as &[&str]), ("a", &["a:dev", "a:main"]), ("a:d", &["a:dev"]), ("b", &[])]
    {
        assert_eq!(listed(ns, of_a(prefix)).await, found, "{prefix}");
    }
    let source_type = ListQuery { source_type: Some("f:Bm25Index".into()), ..everything() };
    assert_eq!(listed(ns, source_type.clone()).await, ["s1:main", "s2:main"]);
    assert_eq!(listed(ns, ListQuery { retracted: Some(true), ..source_type.clone() }).await, ["s2:main"]);
    assert!(listed(ns, ListQuery { kind: Some(RecordKind::Ledger), ..source_type }).await.is_empty());
    // The index by state covers both kinds, so its order is not that of the other lists.
    let state = |state: &str| ListQuery { state: Some(state.into()), ..everything() };
    let sorted = async |query| {
        let mut addresses = listed(ns, query).await;
        addresses.sort();
        addresses
    };
    assert_eq!(sorted(state("error")).await, ["a:dev", "v1:main"]);
    assert_eq!(sorted(state("retracted")).await, ["b:dev", "s2:main"]);
    assert!(listed(ns, state("nonsense")).await.is_empty());
    let ledgers_in_error = ListQuery { kind: Some(RecordKind::Ledger), ..state("error") };
    assert_eq!(listed(ns, ledgers_in_error).await, ["a:dev"]);
    let retracted = |retracted| ListQuery { retracted: Some(retracted), ..everything() };
    assert_eq!(listed(ns, retracted(true)).await, ["s2:main", "b:dev"]);
    assert_eq!(listed(ns, retracted(false)).await, ["s1:main", "v1:main", "a:dev", "a:main", "b:main"]);
}

#[every_backend]
async fn lists_are_filtered_by_kind_name_type_state_and_retraction(ns: &Fixture) {
    populate(ns).await;
    assert_filters(ns).await;
}

#[every_backend]
async fn pages_of_every_size_hold_every_record_once(ns: &Fixture) {
    populate(ns).await;
    assert_pages(ns).await;
}

pub(crate) async fn assert_pages(ns: &impl AsRecords) {
    for full in [false, true] {
        for limit in 1..=8 {
            let filters = [
                everything(),
                ListQuery { retracted: Some(false), ..everything() },
                ListQuery { state: Some("ready".into()), ..everything() },
                ListQuery { source_type: Some("f:Bm25Index".into()), ..everything() },
                ListQuery { name: Some("a".into()), ..everything() },
                ListQuery { prefix: Some("s".into()), ..everything() },
            ];
            for filter in filters {
                let whole = listed(ns, filter.clone()).await;
                let query = ListQuery { full, limit: at_most(limit), ..filter };
                assert_eq!(listed(ns, query.clone()).await, whole, "{query:?}");
            }
        }
    }
}

#[every_backend]
async fn summaries_are_those_of_the_records(ns: &Fixture) {
    populate(ns).await;
    let entries = walk(ns, everything()).await;
    let record = ns.lookup(&at("s2")).await.unwrap().unwrap();
    assert_eq!(entries[1], Listed::Summary(Summary::from(&record)));
    let record = ns.lookup(&at("b:main")).await.unwrap().unwrap();
    assert_eq!(entries[6], Listed::Summary(Summary::from(&record)));
}

#[every_backend]
async fn full_entries_are_whole_records(ns: &Fixture) {
    populate(ns).await;
    for entry in walk(ns, ListQuery { full: true, ..everything() }).await {
        let Listed::Full(record) = entry else { panic!("{entry:?}") };
        assert_eq!(ns.lookup(&record.address).await.unwrap(), Some(*record));
    }
}

#[every_backend]
async fn records_are_looked_up_together_in_the_order_of_the_addresses(ns: &Fixture) {
    populate(ns).await;
    // More than one DynamoDB request can read.
    let many: Vec<Address> = (10..40).map(|n| at(&format!("n{n}"))).collect();
    for address in &many {
        unborn(ns, address.as_str()).await;
    }
    let some = ["s2", "none", "b:main", "a:dev"].map(at);
    let wanted: Vec<Address> = many.iter().rev().cloned().chain(some).collect();
    let records = ns.lookup_all(&wanted).await.unwrap();
    let addresses: Vec<&Address> = records.iter().map(|record| &record.address).collect();
    let there: Vec<&Address> = wanted.iter().filter(|address| address.name() != "none").collect();
    assert_eq!(addresses, there);
    for record in records {
        assert_eq!(ns.lookup(&record.address).await.unwrap(), Some(record));
    }
    assert_eq!(ns.lookup_all(&[]).await.unwrap(), []);
}

#[every_backend]
async fn only_what_the_caller_may_see_is_listed_and_named_by_cursors(ns: &Fixture) {
    populate(ns).await;
    let visible = |address: &Address| address.name() != "a";
    let mut query = ListQuery { kind: Some(RecordKind::Ledger), limit: at_most(1), ..everything() };
    let mut seen = Vec::new();
    loop {
        let page = ns.list(&query, &visible).await.unwrap();
        seen.extend(addresses(&page.items));
        let Some(cursor) = page.cursor else { break };
        assert!(!cursor.after().starts_with("a:"), "{cursor:?}");
        query.cursor = Some(cursor);
    }
    assert_eq!(seen, ["b:dev", "b:main"]);
}

#[every_backend]
async fn the_branches_of_a_name_are_not_those_of_longer_names(ns: &Fixture) {
    for name in ["my", "my/db", "mydb", "my:dev", "m"] {
        unborn(ns, name).await;
    }
    let query = ListQuery { name: Some("my".into()), ..everything() };
    assert_eq!(listed(ns, query).await, ["my:dev", "my:main"]);
}
