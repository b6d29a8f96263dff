//! Compares searches with a look at every record.

use nameservice_model::{Hit, Limit, NameService, Record, SearchQuery, SearchWords, fold, searched_config};

use super::{at, commands::Commands, open, pushed};
use crate::state::State;

fn query(words: &str) -> SearchQuery {
    SearchQuery::new(SearchWords::parse(words).unwrap())
}

/// Returns the hits of a search in pages of a given size, looking through one chunk at a time.
fn hits(state: &State, query: &SearchQuery, limit: usize) -> Vec<Hit> {
    let mut query = SearchQuery { limit: Limit::new(limit).unwrap(), ..query.clone() };
    let mut all = Vec::new();
    loop {
        let mut lookup = state.search(&query, &|_| true);
        while !lookup.advance(1) {}
        let page = lookup.into_page();
        all.extend(page.items);
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return all,
        }
    }
}

/// Returns the addresses of the records with all words, by a look at each.
fn expected(records: &[Record], words: &SearchWords) -> Vec<String> {
    let has = |record: &Record, word: &String| {
        let config = record.config.payload.as_ref().map(searched_config).unwrap_or_default();
        let state = record.status.payload.as_ref().map_or("ready", |status| status.state.as_str());
        let source_type = record.source_type.as_deref().unwrap_or_default();
        let fields = [fold(record.address.as_str()), fold(source_type), fold(state), config];
        fields.iter().any(|field| field.contains(word.as_str()))
    };
    let found = records.iter().filter(|record| words.words().iter().all(|word| has(record, word)));
    let mut found: Vec<_> = found.map(|record| record.address.to_string()).collect();
    found.sort();
    found
}

const WORDS: [&str; 16] = [
    "a",
    "main",
    ":",
    "b/c",
    "s",
    "ready",
    "retracted",
    "indexing",
    "main a",
    "1.5",
    "f:",
    "two t",
    "exp ready",
    "n",
    "dev 1",
    "nowhere",
];

fn assert_searches(state: &State, context: &str) {
    let records: Vec<Record> = state.records().map(|record| record.to_model()).collect();
    for words in WORDS {
        let query = query(words);
        let whole = hits(state, &query, 1_000);
        let mut found: Vec<_> = whole.iter().map(|hit| hit.address.to_string()).collect();
        found.sort();
        assert_eq!(found, expected(&records, &query.words), "{context}: {words}");
        let order = |hit: &Hit| (hit.rank, hit.kind, hit.address.to_string());
        let in_order = |pair: &[Hit]| {
            let (one, other) = (order(&pair[0]), order(&pair[1]));
            // Graph sources come before ledgers.
            (one.0, std::cmp::Reverse(one.1), &one.2) < (other.0, std::cmp::Reverse(other.1), &other.2)
        };
        assert!(whole.windows(2).all(in_order), "{context}: {words}: {whole:?}");
        for limit in [1, 2, 3] {
            assert_eq!(hits(state, &query, limit), whole, "{context}: {words}, pages of {limit}");
        }
    }
}

#[test]
fn a_search_finds_what_a_look_at_every_record_finds() {
    for seed in 0..10 {
        let (mut commands, mut state) = (Commands::new(seed), State::new());
        for n in 0..600 {
            let (command, now) = commands.next();
            let _ = state.apply(&command, now);
            if n % 50 == 0 {
                assert_searches(&state, &format!("seed {seed}, command {n}"));
            }
        }
        let records: Vec<Record> = state.records().map(|record| record.to_model()).collect();
        assert_searches(&State::of_records(&records, state.position()), &format!("seed {seed}, adopted"));
    }
}

/// Uses enough records to fill several chunks, and removes them until chunks are dropped.
#[tokio::test]
async fn many_records_are_found_wherever_they_are() {
    use nameservice_model::{AdminPublisher, Call, Purged};
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    for n in 0..1_500 {
        // Neither in order nor in the opposite order.
        pushed(&names, &format!("tenant-{}/db{}", n % 7, (n * 619) % 1_500), 1).await;
    }
    let all = hits(names.view().state(), &query("tenant"), 100);
    assert_eq!(all.len(), 1_500);
    assert!(names.view().state().orders_follow());
    drop(names);
    // Rebuilt at start-up.
    let names = open(directory.path());
    assert_eq!(hits(names.view().state(), &query("tenant"), 1_000), all);
    for n in 0..1_500 {
        let page = names.search(&query(&format!("db{n}:")), &|_| true).await.unwrap();
        assert!(page.items.iter().any(|hit| hit.address.as_str().ends_with(&format!("/db{n}:main"))), "{n}");
    }
    for hit in all.iter().filter(|hit| !hit.address.as_str().starts_with("tenant-3")) {
        assert_eq!(names.purge(&Call::fresh(), &hit.address).await.unwrap(), Purged::Purged);
    }
    let left = hits(names.view().state(), &query("tenant"), 1_000);
    assert!(!left.is_empty() && left.iter().all(|hit| hit.address.as_str().starts_with("tenant-3")));
    assert!(names.view().state().orders_follow());
    assert!(names.search(&query(at("tenant-1/db1").as_str()), &|_| true).await.unwrap().items.is_empty());
}
