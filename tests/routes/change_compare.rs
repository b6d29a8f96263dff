use nameservice_tests::pump::pump;

use super::{
    authorization::{as_, guarded, narrow, scope},
    *,
};

async fn compare(service: &Service, subscriptions: Value) -> Value {
    service.post("/v1/changes/compare", json!({ "subscriptions": subscriptions })).await.expect(200)
}

/// What moved, without the position.
async fn moved(service: &Service, subscriptions: Value) -> Value {
    let compared = compare(service, subscriptions).await;
    assert_eq!(compared["unknown"], json!([]), "{compared:#}");
    compared["changed"].clone()
}

/// What a client that has seen all of a record sends for it.
async fn seen(service: &Service, address: &str) -> Value {
    let record = shown(service, address).await;
    let mut seen = json!({
        "kind": record["kind"], "index_t": record["index"]["t"], "index_id": record["index"]["id"],
        "status_v": record["status"]["v"], "config_v": record["config"]["v"],
    });
    match record["kind"] == "ledger" {
        true => {
            seen["commit_t"] = record["head"]["t"].clone();
            seen["commit_id"] = record["head"]["id"].clone();
        }
        false => seen["source_type"] = record["source_type"].clone(),
    }
    seen
}

#[tokio::test]
async fn only_what_has_moved_is_returned_with_its_value() {
    let service = Service::with_stream().await;
    for name in ["mydb", "books", "still"] {
        born(&service, name, 1).await;
    }
    source(&service, "search", &["mydb"]).await;
    let mut subscriptions = json!({});
    for address in ["mydb:main", "books:main", "still:main", "search:main"] {
        subscriptions[address] = seen(&service, address).await;
    }
    pump(&service.table).await;
    let position = service.get("/v1/changes?limit=1000").await.expect(200)["position"].clone();
    let nothing = json!({ "changed": {}, "unknown": [], "position": position });
    assert_eq!(compare(&service, subscriptions.clone()).await, nothing);

    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    service.put("/v1/indexes/search", json!({ "new": root(1) })).await.expect(200);
    let config = json!({ "expected": { "v": 0 }, "new": { "payload": { "a": 1 } } });
    service.put("/v1/configs/books", config).await.expect(200);
    let status = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "indexing" } } });
    service.put("/v1/statuses/books", status).await.expect(200);
    let compared = compare(&service, subscriptions.clone()).await;
    let changed = json!({
        "books:main": {
            "status": { "v": 2, "payload": { "state": "indexing" } },
            "config": { "v": 1, "payload": { "a": 1 } },
        },
        "mydb:main": { "head": commit(2) },
        "search:main": { "index": shown(&service, "search").await["index"] },
    });
    // The feed does not have yet what the records show: it will, after this position.
    assert_eq!(compared, json!({ "changed": changed, "unknown": [], "position": position }));
    pump(&service.table).await;
    let followed = service.get(&format!("/v1/changes?after={position}")).await.expect(200);
    assert_eq!(followed["changes"].as_array().unwrap().len(), 4);

    for address in ["mydb:main", "books:main", "search:main"] {
        subscriptions[address] = seen(&service, address).await;
    }
    assert_eq!(moved(&service, subscriptions).await, json!({}));
}

#[tokio::test]
async fn a_concern_is_compared_where_its_watermark_or_its_id_is_known() {
    let service = Service::start().await;
    born(&service, "mydb", 5).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(3) })).await.expect(200);
    let record = shown(&service, "mydb").await;
    let [head, index, status, config] = ["head", "index", "status", "config"].map(|name| record[name].clone());
    let (first, last) = (cid(1).as_str().to_owned(), cid(5).as_str().to_owned());
    for (known, changed) in [
        (json!({}), json!({ "head": head, "index": index, "status": status, "config": config })),
        (json!({ "kind": "ledger" }), json!({ "head": head, "index": index, "status": status, "config": config })),
        (json!({ "commit_t": 5 }), json!(null)),
        (json!({ "commit_t": 4 }), json!({ "head": head })),
        (json!({ "commit_t": 6 }), json!({ "head": head })),
        (json!({ "commit_id": last }), json!(null)),
        (json!({ "commit_id": first }), json!({ "head": head })),
        (json!({ "commit_id": null }), json!({ "head": head })),
        (json!({ "commit_t": 5, "commit_id": last }), json!(null)),
        (json!({ "commit_t": 5, "commit_id": first }), json!({ "head": head })),
        (json!({ "commit_t": 4, "commit_id": last }), json!({ "head": head })),
        (json!({ "index_t": 3, "index_id": index_cid(3).as_str() }), json!(null)),
        (json!({ "index_t": 3, "index_id": index_cid(4).as_str() }), json!({ "index": index })),
        (json!({ "index_t": 2, "commit_t": 5 }), json!({ "index": index })),
        (json!({ "status_v": 1, "config_v": 0 }), json!(null)),
        (json!({ "status_v": 0, "config_v": 1 }), json!({ "status": status, "config": config })),
        (json!({ "commit_t": u64::MAX }), json!({ "head": head })),
    ] {
        let expected = match changed.is_null() {
            true => json!({}),
            false => json!({ "mydb:main": changed }),
        };
        assert_eq!(moved(&service, json!({ "mydb": known })).await, expected, "{known}");
    }
    // `null` is an id too, if nothing is born.
    ledger(&service, "unborn").await;
    let nothing = json!({ "commit_t": 0, "commit_id": null, "index_t": 0, "index_id": null });
    assert_eq!(moved(&service, json!({ "unborn": nothing })).await, json!({}));
    let wrong = json!({ "commit_id": first });
    assert_eq!(moved(&service, json!({ "unborn": wrong })).await, json!({ "unborn:main": { "head": unborn() } }));
}

#[tokio::test]
async fn what_has_gone_back_and_what_was_indexed_again_has_moved() {
    let service = Service::start().await;
    born(&service, "mydb", 5).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(5) })).await.expect(200);
    let known = seen(&service, "mydb").await;
    let again = json!({ "expected": root(5), "new": { "id": index_cid(50).as_str(), "t": 5 } });
    service.put("/v1/indexes/mydb", again).await.expect(200);
    let changed = moved(&service, json!({ "mydb:main": known })).await;
    assert_eq!(members(&changed["mydb:main"]), ["index"]);
    assert_eq!(changed["mydb:main"]["index"]["rev"], 1);
    let watermarks = json!({ "commit_t": 5, "index_t": 5 });
    assert_eq!(moved(&service, json!({ "mydb": watermarks })).await, json!({}), "only its id differs");

    let to = json!({ "head": commit(2), "index": unborn() });
    service.post("/v1/resets/mydb", to).await.expect(200);
    let changed = moved(&service, json!({ "mydb": watermarks })).await;
    assert_eq!(changed["mydb:main"]["head"], commit(2));
    assert_eq!(changed["mydb:main"]["index"]["t"], 0);
}

#[tokio::test]
async fn records_of_another_kind_or_type_are_as_unknown_as_those_that_are_not_there() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    source(&service, "search", &[]).await;
    for (address, known) in [
        ("nobody:main", json!({})),
        ("mydb:dev", json!({ "commit_t": 1 })),
        ("mydb:main", json!({ "kind": "graph_source" })),
        ("mydb:main", json!({ "source_type": "f:Bm25Index" })),
        ("search:main", json!({ "kind": "ledger" })),
        ("search:main", json!({ "commit_t": 0 })),
        ("search:main", json!({ "commit_id": null })),
        ("search:main", json!({ "source_type": "f:HnswIndex" })),
        ("search:main", json!({ "kind": "graph_source", "source_type": "f:Bm25" })),
    ] {
        let compared = compare(&service, json!({ address: known })).await;
        assert_eq!(compared, json!({ "changed": {}, "unknown": [address], "position": 0 }), "{known}");
    }
    let fitting = json!({ "search": { "source_type": "f:Bm25Index" }, "mydb": { "kind": "ledger" } });
    assert_eq!(members(&moved(&service, fitting).await), ["mydb:main", "search:main"]);
}

#[tokio::test]
async fn retracted_records_are_named_whoever_retracted_them() {
    let service = Service::start().await;
    for name in ["ours", "theirs", "live"] {
        born(&service, name, 1).await;
    }
    let subscriptions = json!({
        "ours": seen(&service, "ours").await, "theirs": seen(&service, "theirs").await,
        "live": seen(&service, "live").await, "nobody": {},
    });
    retract(&service, "ours").await;
    // A Fluree server marks meta only: no watermark changes.
    service.table.set("theirs:main", "meta", "retracted", rows::truth(true)).await;
    let compared = compare(&service, subscriptions).await;
    assert_eq!(compared["retracted"], json!(["ours:main", "theirs:main"]));
    assert_eq!(compared["unknown"], json!(["nobody:main"]));
    assert_eq!(members(&compared["changed"]), ["ours:main"], "{compared:#}");
    assert_eq!(compared["changed"]["ours:main"]["status"]["payload"]["state"], "retracted");
}

#[tokio::test]
async fn what_a_caller_may_not_see_is_unknown() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    for name in ["hidden", "mine"] {
        as_(&service, &admin, Method::POST, "/v1/ledgers", Some(json!({ "address": name }))).await.expect(201);
    }
    let document = json!({ "subscriptions": { "hidden": {}, "mine": {}, "nobody": {} } });
    let ask =
        async |token: &str| as_(&service, token, Method::POST, "/v1/changes/compare", Some(document.clone())).await;
    let caller = narrow("nameservice:read", json!(["mine:*"]));
    let compared = ask(&caller).await.expect(200);
    assert_eq!(compared["unknown"], json!(["hidden:main", "nobody:main"]));
    assert_eq!(members(&compared["changed"]), ["mine:main"]);
    assert_eq!(ask(&admin).await.expect(200)["unknown"], json!(["nobody:main"]));
    ask(&scope("openid")).await.problem(403, "insufficient-scope");
}

#[tokio::test]
async fn a_document_that_cannot_be_is_rejected_and_its_field_named() {
    let service = Service::start().await;
    let ask = async |subscriptions: Value| {
        service.post("/v1/changes/compare", json!({ "subscriptions": subscriptions })).await
    };
    for (subscriptions, field) in [
        (json!([]), "subscriptions"),
        (json!({ "mydb": [] }), "subscriptions.mydb"),
        (json!({ "mydb": null }), "subscriptions.mydb"),
        (json!({ "mydb": { "commit": 1 } }), "subscriptions.mydb.commit"),
        (json!({ "mydb": { "commit_t": "1" } }), "subscriptions.mydb.commit_t"),
        (json!({ "mydb": { "commit_t": -1 } }), "subscriptions.mydb.commit_t"),
        (json!({ "mydb": { "index_id": 1 } }), "subscriptions.mydb.index_id"),
        (json!({ "mydb": { "kind": "graph" } }), "subscriptions.mydb.kind"),
        (json!({ "mydb": { "kind": "graph_source", "commit_t": 1 } }), "subscriptions.mydb.commit_t"),
        (json!({ "mydb": { "source_type": "t", "commit_id": null } }), "subscriptions.mydb.source_type"),
        (json!({ "mydb": { "kind": "ledger", "source_type": "t" } }), "subscriptions.mydb.source_type"),
        (json!({ "mydb": {}, "mydb:main": {} }), "subscriptions.mydb:main"),
    ] {
        rejects(ask(subscriptions).await, "invalid-body", field);
    }
    rejects(ask(json!({ "a:b:c": {} })).await, "invalid-address", "subscriptions.a:b:c");
    let many = |count: usize| (0..count).map(|n| (format!("db{n}"), json!({}))).collect::<serde_json::Map<_, _>>();
    rejects(ask(json!(many(1001))).await, "invalid-body", "subscriptions");
    assert!(service.table.proxy.take_requests().is_empty(), "nothing of it reaches the store");
    let most = ask(json!(many(1000))).await.expect(200);
    assert_eq!(most["unknown"].as_array().unwrap().len(), 1000);
    assert_eq!(ask(json!({})).await.expect(200), json!({ "changed": {}, "unknown": [], "position": 0 }));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_rejected_as_a_whole() {
    let service = large(40).await;
    service.table.feed.ensure_table().await.unwrap();
    let known = |count: usize| {
        let all = (0..count).map(|n| (format!("db{n:03}"), json!({})));
        json!({ "subscriptions": all.collect::<serde_json::Map<_, _>>() })
    };
    let rejected = service.post("/v1/changes/compare", known(40)).await.problem(413, "payload-too-large");
    assert!(rejected["detail"].as_str().unwrap().contains("fewer"), "{rejected}");
    let answer = service.post("/v1/changes/compare", known(20)).await;
    let bytes: usize = answer.header("content-length").unwrap().parse().unwrap();
    assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
    assert_eq!(answer.expect(200)["changed"].as_object().unwrap().len(), 20);
}
