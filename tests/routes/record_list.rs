use super::*;

async fn list(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/records?{query}")).await.expect(200)
}

/// Two names, a branch, two types of graph sources, one retracted record, one that is being indexed.
async fn furnished() -> Service {
    let service = Service::start().await;
    for name in ["books", "films", "gone"] {
        born(&service, name, 1).await;
    }
    branch(&service, "books", "dev").await;
    source(&service, "search", &["books"]).await;
    let vectors = json!({ "source_type": "f:HnswIndex", "config": {} });
    service.put("/v1/graph-sources/vectors", vectors).await.expect(201);
    retract(&service, "gone").await;
    let indexing = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "indexing" } } });
    service.put("/v1/statuses/films", indexing).await.expect(200);
    service
}

#[tokio::test]
async fn summaries_show_what_the_index_has_and_full_views_are_whole_records() {
    let service = furnished().await;
    let page = list(&service, "name=books").await;
    assert_eq!(members(&page), ["records"], "no cursor on the last page");
    let summary = json!({
        "address": "books:dev", "kind": "ledger", "name": "books", "branch": "dev", "retracted": false,
    });
    assert_eq!(page["records"][0], summary);
    let page = list(&service, "source_type=f:Bm25Index&view=summary").await;
    let summary = json!({
        "address": "search:main", "kind": "graph_source", "name": "search", "branch": "main", "retracted": false,
        "source_type": "f:Bm25Index", "dependencies": ["books:main"],
    });
    assert_eq!(page["records"], json!([summary]));
    let page = list(&service, "view=full").await;
    for record in page["records"].as_array().unwrap() {
        assert_eq!(record, &shown(&service, record["address"].as_str().unwrap()).await);
    }
    assert_eq!(page["records"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn filters_narrow_the_list_alone_and_together() {
    let service = furnished().await;
    for (query, expected) in [
        ("", &["books:dev", "books:main", "films:main", "gone:main", "search:main", "vectors:main"] as &[_]),
        ("kind=ledger", &["books:dev", "books:main", "films:main", "gone:main"]),
        ("kind=graph_source", &["search:main", "vectors:main"]),
        ("name=books", &["books:dev", "books:main"]),
        ("name=nobody", &[]),
        ("prefix=b", &["books:dev", "books:main"]),
        ("prefix=books:m", &["books:main"]),
        ("prefix=%C3%A9", &[]),
        ("prefix=s&kind=ledger", &[]),
        ("prefix=books:&name=films", &[]),
        ("source_type=f%3AHnswIndex", &["vectors:main"]),
        ("source_type=f:Nothing", &[]),
        ("state=indexing", &["films:main"]),
        ("state=retracted", &["gone:main"]),
        ("retracted=true", &["gone:main"]),
        ("kind=ledger&retracted=false", &["books:dev", "books:main", "films:main"]),
        ("kind=graph_source&name=books", &[]),
        ("kind=ledger&source_type=f:Bm25Index", &[]),
        ("state=ready&kind=ledger&name=books", &["books:dev", "books:main"]),
    ] {
        for view in ["summary", "full"] {
            let page = list(&service, &format!("{query}&view={view}")).await;
            let mut found = addresses(&page);
            found.sort_unstable();
            assert_eq!(found, expected, "{query} {view}");
        }
    }
}

#[tokio::test]
async fn pages_of_any_limit_hold_every_record_once() {
    let service = furnished().await;
    for filter in ["", "kind=ledger&", "state=ready&view=full&", "retracted=false&", "prefix=books&"] {
        let whole = list(&service, filter).await;
        for limit in [1, 2, 5] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            for _ in 0..10 {
                let page = list(&service, &format!("{filter}limit={limit}{cursor}")).await;
                assert!(addresses(&page).len() <= limit);
                seen.extend(addresses(&page).into_iter().map(str::to_owned));
                let Some(next) = page["cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(seen, addresses(&whole), "{filter} {limit}");
        }
    }
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = Service::start().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("cursor=", "cursor"),
        ("limit=99999999999999999999", "limit"),
        ("limit=1&limit=2", "limit"),
        ("kind=graph-source", "kind"),
        ("view=whole", "view"),
        ("retracted=1", "retracted"),
        ("order=name", "order"),
        ("prefix=", "prefix"),
        (&*format!("prefix={}", "a".repeat(1001)), "prefix"),
    ] {
        rejects(service.get(&format!("/v1/records?{query}")).await, "invalid-parameter", field);
    }
    for cursor in ["x", "%20", "e30", "bnVsbA", "eyJrIjoibGVkZ2VyIiwiYSI6IiJ9", "eyJrIjoieCIsImEiOiJhIn0"] {
        for path in ["/v1/records", "/v1/snapshot"] {
            rejects(service.get(&format!("{path}?cursor={cursor}")).await, "invalid-cursor", "cursor");
        }
    }
    assert_eq!(list(&service, "limit=1000").await, json!({ "records": [] }));
}

#[tokio::test]
async fn whole_records_stay_under_four_mebibytes_a_page() {
    let service = large(40).await;
    for path in ["/v1/records?view=full&limit=1000", "/v1/snapshot?limit=1000"] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let answer = service.get(&format!("{path}{cursor}")).await;
            let bytes: usize = answer.header("content-length").unwrap().parse().unwrap();
            assert!(bytes <= 4 * 1024 * 1024, "{path}: {bytes}");
            let page = answer.expect(200);
            seen.extend(addresses(&page).into_iter().map(str::to_owned));
            let Some(next) = page["cursor"].as_str() else { break };
            assert!(bytes > 3 * 1024 * 1024, "{path}: {bytes}");
            cursor = format!("&cursor={next}");
        }
        assert!(!cursor.is_empty(), "{path}: it does not fit one page");
        seen.sort_unstable();
        assert_eq!(seen, (0..40).map(|i| format!("db{i:03}:main")).collect::<Vec<_>>(), "{path}");
    }
}
