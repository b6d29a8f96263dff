use nameservice_tests::prelude::*;

use super::{Fixture, born, branch, every_backend, retracted, source, unborn};

fn query(words: &str) -> SearchQuery {
    SearchQuery::new(SearchWords::parse(words).unwrap())
}

/// The addresses of all hits, read in pages of this size.
async fn hits_in_pages(ns: &impl AsRecords, query: &SearchQuery, limit: usize) -> Vec<Hit> {
    let mut query = SearchQuery { limit: at_most(limit), ..query.clone() };
    let mut all = Vec::new();
    for _ in 0..100 {
        let page = ns.records().search(&query, &anything).await.unwrap();
        assert!(page.items.len() <= limit);
        all.extend(page.items);
        query.cursor = match page.cursor {
            Some(cursor) => Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return all,
        };
    }
    panic!("the search has no end")
}

async fn found(ns: &impl AsRecords, query: &SearchQuery) -> Vec<String> {
    hits_in_pages(ns, query, 100).await.into_iter().map(|hit| hit.address.to_string()).collect()
}

async fn populate(ns: &impl AsRecords) {
    let books = born(ns, "library/Books", 1).await;
    branch(ns, "library/Books:dev", &books).await;
    unborn(ns, "books").await;
    unborn(ns, "library/old-books").await;
    unborn(ns, "library/ebooks").await;
    source(ns, "search/Books-Text", &["library/Books"]).await;
    let gone = unborn(ns, "library/gone").await;
    retracted(ns, &gone).await;
}

#[every_backend(Search)]
async fn the_best_hits_come_first(ns: &Fixture) {
    populate(ns).await;
    let expected = [
        ("books:main", 0),
        ("library/Books:dev", 1),
        ("library/Books:main", 1),
        ("search/Books-Text:main", 2),
        ("library/old-books:main", 3),
        ("library/ebooks:main", 4),
    ];
    for words in ["books", "BOOKS", " bOOKs "] {
        let hits = hits_in_pages(ns, &query(words), 100).await;
        let hits: Vec<_> = hits.iter().map(|hit| (hit.address.as_str(), hit.rank)).collect();
        assert_eq!(hits, expected, "{words}");
    }
}

#[every_backend(Search)]
async fn every_word_is_in_each_hit_and_the_hit_says_where(ns: &Fixture) {
    populate(ns).await;
    let matched = async |words: &str| {
        let hits = hits_in_pages(ns, &query(words), 100).await;
        hits.into_iter().map(|hit| (hit.address.to_string(), hit.matched)).collect::<Vec<_>>()
    };
    use SearchField::{Address, Config, SourceType, State};
    assert_eq!(matched("books dev").await, [("library/Books:dev".to_owned(), vec![Address])]);
    assert_eq!(matched("rary/b dev").await, [("library/Books:dev".to_owned(), vec![Address])]);
    assert_eq!(matched("text bm25").await, [("search/Books-Text:main".to_owned(), vec![Address, SourceType])]);
    assert_eq!(matched("gone retracted").await, [("library/gone:main".to_owned(), vec![Address, State])]);
    assert_eq!(matched("text 1.2 ready").await, [("search/Books-Text:main".to_owned(), vec![Address, State, Config])]);
    assert!(matched("books nowhere").await.is_empty());
    assert!(matched("k1").await.is_empty(), "a name of a member is no value");
    // The end of one field and the beginning of the next do not form a word.
    assert!(matched("mainready").await.is_empty());
}

#[every_backend(Search)]
async fn filters_narrow_a_search(ns: &Fixture) {
    populate(ns).await;
    let lib = query("lib");
    let state = |state: &str| SearchQuery { state: Some(state.to_owned()), ..lib.clone() };
    assert_eq!(found(ns, &state("retracted")).await, ["library/gone:main"]);
    assert_eq!(found(ns, &state("Retracted")).await, [""; 0], "a filter is exact");
    assert_eq!(found(ns, &state("ready")).await.len(), 4);
    let kind = |kind| SearchQuery { kind: Some(kind), ..query("books") };
    assert_eq!(found(ns, &kind(RecordKind::GraphSource)).await, ["search/Books-Text:main"]);
    assert_eq!(found(ns, &kind(RecordKind::Ledger)).await.len(), 5);
    let of_type = |name: &str| SearchQuery { source_type: Some(name.to_owned()), ..query("books") };
    assert_eq!(found(ns, &of_type("f:Bm25Index")).await, ["search/Books-Text:main"]);
    assert!(found(ns, &of_type("f:Bm25")).await.is_empty());
}

#[every_backend(Search)]
async fn pages_of_every_size_hold_every_hit_once(ns: &Fixture) {
    populate(ns).await;
    for words in ["books", "b", "main", "books lib", "library/ main"] {
        let whole = hits_in_pages(ns, &query(words), 100).await;
        assert!(!whole.is_empty());
        for limit in 1..=7 {
            assert_eq!(hits_in_pages(ns, &query(words), limit).await, whole, "{words} {limit}");
        }
    }
}

#[every_backend(Search)]
async fn what_the_caller_may_not_see_is_neither_found_nor_named(ns: &Fixture) {
    populate(ns).await;
    let visible = |address: &Address| address.name() != "library/Books" && address.name() != "books";
    let (mut seen, mut query) = (Vec::new(), SearchQuery { limit: at_most(1), ..query("books") });
    loop {
        let page = ns.search(&query, &visible).await.unwrap();
        seen.extend(page.items.into_iter().map(|hit| hit.address.to_string()));
        let Some(cursor) = page.cursor else { break };
        assert_eq!(Some(cursor.after()), seen.last().map(String::as_str));
        query.cursor = Some(cursor);
    }
    assert_eq!(seen, ["search/Books-Text:main", "library/old-books:main", "library/ebooks:main"]);
}

#[every_backend(Search)]
async fn a_search_follows_every_write(ns: &Fixture) {
    let db = unborn(ns, "db").await;
    for (v, value) in [(0, "Alpha"), (1, "Beta")] {
        let push =
            cas(Config::stored(v, (v > 0).then(|| json!({ "name": "Alpha" }))), new_config(json!({ "name": value })));
        assert!(ns.push_config(&Call::fresh(), &db, &push).await.unwrap().is_updated());
        assert_eq!(found(ns, &query(value)).await, ["db:main"]);
    }
    assert!(found(ns, &query("alpha")).await.is_empty());
    let push = cas(
        status(1, "ready"),
        NewStatus::new(StatusPayload { state: "Syncing".into(), meta: Object::new() }).unwrap(),
    );
    assert!(ns.push_status(&Call::fresh(), &db, &push).await.unwrap().is_updated());
    assert_eq!(found(ns, &query("syncing")).await, ["db:main"]);
    assert!(found(ns, &query("ready")).await.is_empty());
    source(ns, "s", &[]).await;
    assert_eq!(found(ns, &query("bm25")).await, ["s:main"]);
    for address in [&db, &at("s")] {
        assert_eq!(ns.purge(&Call::fresh(), address).await.unwrap(), Purged::Purged);
    }
    assert!(found(ns, &query("main")).await.is_empty());
}

#[every_backend]
async fn a_backend_without_a_search_says_so(ns: &Fixture) {
    let has = ns.capabilities().await.unwrap().search;
    match ns.search(&query("books"), &anything).await {
        Ok(page) => assert!(has && page.items.is_empty()),
        Err(Error::Unsupported { capability, .. }) => assert!(!has && capability == Capability::Search),
        Err(other) => panic!("{other}"),
    }
}
