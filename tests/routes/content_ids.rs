//! What a content id may be, wherever one is sent (docs/specification.md, Words), and what else Fluree cannot use (docs/fluree.md).

use http::Method;
use nameservice_http::Auth;
use nameservice_tests::cids::foreign_id;

use super::{
    authorization::{as_, scope, verifying},
    *,
};

#[tokio::test]
async fn what_is_no_content_id_is_rejected_wherever_one_is_sent() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let good = cid(1);
    let upper = good.as_str().to_uppercase();
    let cut = &good.as_str()[..good.as_str().len() - 3];
    let spaced = format!("{good} ");
    let long = format!("{good}{}", "a".repeat(500));
    let bad = [
        "",
        " ",
        "mydb",
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG",
        "zb2rhe5P4gXftAwvA4eXQ5HJwsER2owDyS9sKaQRRVQPn93bA",
        "f01551220",
        "fluree:file://mydb/1.json",
        &upper,
        cut,
        &spaced,
        &long,
    ];
    for bad in bad {
        let value = json!({ "id": bad, "t": 2 });
        let mut graphs = root(2);
        graphs["graphs"] = json!({ "g": value });
        let context = json!({ "default_context_id": bad });
        for (method, path, body, field) in [
            (Method::PUT, "/v1/heads/mydb", json!({ "new": value }), "new.id"),
            (Method::PUT, "/v1/heads/mydb", json!({ "expected": value, "new": commit(3) }), "expected.id"),
            (Method::PUT, "/v1/indexes/mydb", json!({ "new": value }), "new.id"),
            (Method::PUT, "/v1/indexes/mydb", json!({ "expected": value, "new": root(3) }), "expected.id"),
            (Method::PUT, "/v1/indexes/mydb", json!({ "new": graphs }), "new.graphs.g.id"),
            (
                Method::PUT,
                "/v1/configs/mydb",
                json!({ "expected": { "v": 0 }, "new": { "payload": context } }),
                "new.payload.default_context_id",
            ),
            (Method::POST, "/v1/ledgers", json!({ "address": "new", "head": value }), "head.id"),
            (Method::POST, "/v1/ledgers", json!({ "address": "new", "config": context }), "config.default_context_id"),
            (
                Method::POST,
                "/v1/branches",
                json!({ "name": "mydb", "branch": "b", "source": "main", "at": value }),
                "at.id",
            ),
            (Method::POST, "/v1/resets/mydb", json!({ "head": value, "index": root(1) }), "head.id"),
            (Method::POST, "/v1/resets/mydb", json!({ "head": commit(1), "index": value }), "index.id"),
            (
                Method::POST,
                "/fluree/nameservice/refs/mydb/commit",
                json!({ "expected": unborn(), "new": value }),
                "new.id",
            ),
            (
                Method::POST,
                "/fluree/nameservice/refs/mydb/index",
                json!({ "expected": value, "new": root(3) }),
                "expected.id",
            ),
        ] {
            rejects(service.send(method, path, &[], Some(body)).await, "invalid-content-id", field);
        }
    }
    let record = shown(&service, "mydb").await;
    assert_eq!((&record["head"], &record["index"]["t"]), (&unborn(), &json!(0)));
}

/// Every request that stores an id of content: where the id is, and the request with a given id.
fn storing(id: &ContentId, index: &ContentId) -> Vec<(&'static str, Method, &'static str, Value)> {
    let (head, index) = (json!({ "id": id.as_str(), "t": 7 }), json!({ "id": index.as_str(), "t": 7 }));
    let push = |op: &str, new: &Value| json!({ "op": op, "address": "mydb", "new": new });
    let mut graphs = root(7);
    graphs["graphs"] = json!({ "g": index });
    let branch = json!({ "name": "mydb", "branch": "b", "source": "main", "at": head });
    vec![
        ("new.id", Method::PUT, "/v1/heads/mydb", json!({ "new": head })),
        ("new.id", Method::PUT, "/v1/heads/new", json!({ "expected": null, "new": head })),
        ("new.id", Method::PUT, "/v1/indexes/mydb", json!({ "new": index })),
        ("new.id", Method::PUT, "/v1/indexes/new2", json!({ "expected": null, "new": index })),
        ("new.graphs.g.id", Method::PUT, "/v1/indexes/mydb", json!({ "new": graphs })),
        ("head.id", Method::POST, "/v1/ledgers", json!({ "address": "new3", "head": head })),
        ("at.id", Method::POST, "/v1/branches", branch),
        ("head.id", Method::POST, "/v1/resets/mydb", json!({ "head": head, "index": root(1) })),
        ("index.id", Method::POST, "/v1/resets/mydb", json!({ "head": commit(8), "index": index })),
        ("operations[0].new.id", Method::POST, "/v1/transactions", json!({ "operations": [push("push_head", &head)] })),
        (
            "operations[0].new.id",
            Method::POST,
            "/v1/transactions",
            json!({ "operations": [push("push_index", &index)] }),
        ),
        ("new.id", Method::POST, "/fluree/nameservice/refs/mydb/commit", json!({ "expected": commit(1), "new": head })),
        ("new.id", Method::POST, "/fluree/nameservice/refs/mydb/index", json!({ "expected": unborn(), "new": index })),
    ]
}

#[tokio::test]
async fn beside_fluree_ids_that_its_engine_cannot_read_are_rejected_wherever_one_is_stored() {
    let service = Service::beside_fluree(Auth::Open).await;
    born(&service, "mydb", 1).await;
    let before = service.table.all_rows().await;
    // A raw block, and each of Fluree's two kinds in place of the other.
    for (id, index) in [(foreign_id("a"), foreign_id("a")), (index_cid(7), cid(7))] {
        for (field, method, path, body) in storing(&id, &index) {
            let problem = service.send(method, path, &[], Some(body)).await.problem(422, "not-fluree");
            assert_eq!(problem["field"], json!(field), "{path}");
            let is_index = field.contains("graphs") || field.starts_with("index") || path.contains("index");
            let is_index = is_index || problem["expected"] == "index-root";
            let (shown, expected) = if is_index { (&index, "index-root") } else { (&id, "commit") };
            assert_eq!((&problem["id"], &problem["expected"]), (&json!(shown.as_str()), &json!(expected)), "{path}");
            assert!(problem["detail"].as_str().unwrap().contains("allow_foreign"), "{problem}");
        }
    }
    assert_eq!(service.table.all_rows().await, before, "nothing was written");
    // What Fluree can read is written as ever, and takes one request.
    service.table.proxy.take_requests();
    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    service.put("/v1/indexes/mydb", json!({ "new": root(2) })).await.expect(200);
    assert_eq!(service.table.proxy.take_requests().len(), 2);
    // The indexes of graph sources are of many formats.
    source(&service, "search", &["mydb"]).await;
    let index = json!({ "new": { "id": foreign_id("snapshot").as_str(), "t": 1 } });
    service.put("/v1/indexes/search", index).await.expect(200);
    // Elsewhere, any content id is as good as another.
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    let pushed = json!({ "new": { "id": foreign_id("a").as_str(), "t": 2 } });
    service.put("/v1/heads/mydb", pushed).await.expect(200);
}

#[tokio::test]
async fn an_administrator_may_store_what_fluree_cannot_read() {
    let service = Service::beside_fluree(verifying()).await;
    let (writer, admin) = (scope("nameservice:write"), scope("nameservice:admin"));
    let created = json!({ "address": "mydb", "head": commit(1) });
    as_(&service, &writer, Method::POST, "/v1/ledgers", Some(created)).await.expect(201);
    for (_, method, path, body) in storing(&foreign_id("a"), &foreign_id("b")) {
        if path.starts_with("/fluree") {
            continue;
        }
        let path = format!("{path}?allow_foreign=true");
        let rejected = as_(&service, &writer, method.clone(), &path, Some(body.clone())).await;
        assert_eq!(rejected.problem(403, "insufficient-scope")["scope"], json!("nameservice:admin"), "{path}");
        let status = as_(&service, &admin, method.clone(), &path, Some(body.clone())).await.status.as_u16();
        assert!(matches!(status, 200 | 201), "{method} {path} {body}: {status}");
        // A reset back, so that the next one advances.
        let to = json!({ "head": commit(1), "index": root(1) });
        as_(&service, &admin, Method::POST, "/v1/resets/mydb", Some(to)).await.expect(200);
    }
    for value in ["", "yes", "1"] {
        let path = format!("/v1/heads/mydb?allow_foreign={value}");
        let answer = as_(&service, &admin, Method::PUT, &path, Some(json!({ "new": commit(2) }))).await;
        rejects(answer, "invalid-parameter", "allow_foreign");
    }
}

#[tokio::test]
async fn beside_fluree_a_ledger_that_it_would_not_create_is_created_for_administrators_alone() {
    let service = Service::beside_fluree(verifying()).await;
    let (writer, admin) = (scope("nameservice:write"), scope("nameservice:admin"));
    let created = json!({ "address": "mydb", "head": commit(1) });
    as_(&service, &writer, Method::POST, "/v1/ledgers", Some(created)).await.expect(201);
    for (field, method, path, body) in [
        ("address", Method::POST, "/v1/ledgers", json!({ "address": "a/commit" })),
        ("address", Method::PUT, "/v1/heads/graph-sources", json!({ "expected": null, "new": commit(1) })),
        ("branch", Method::POST, "/v1/branches", json!({ "name": "mydb", "branch": "txn", "source": "main" })),
    ] {
        let rejected = as_(&service, &writer, method.clone(), path, Some(body.clone())).await;
        let problem = rejected.problem(422, "not-fluree");
        assert_eq!(problem["field"], json!(field), "{path}");
        assert!(problem["detail"].as_str().unwrap().contains("allow_foreign"), "{problem}");
        let path = format!("{path}?allow_foreign=true");
        let rejected = as_(&service, &writer, method.clone(), &path, Some(body.clone())).await;
        assert_eq!(rejected.problem(403, "insufficient-scope")["scope"], json!("nameservice:admin"), "{path}");
        let status = as_(&service, &admin, method, &path, Some(body)).await.status.as_u16();
        assert!(matches!(status, 200 | 201), "{path}: {status}");
    }
    // Elsewhere, a name is as good as another.
    let service = Service::start().await;
    ledger(&service, "a/commit").await;
}
