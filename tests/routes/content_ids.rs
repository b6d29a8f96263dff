//! What a content id may be, wherever one is sent (docs/specification.md, Words).

use super::*;

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
