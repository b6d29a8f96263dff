use super::*;

const INDEXES: &str = "/v1/indexes/mydb";

/// The n-th index root as the service returns it.
fn stored(n: i64, rev: i64) -> Value {
    json!({ "id": index_cid(n).as_str(), "t": n, "rev": rev })
}

/// Another index root at the same t.
fn again(n: i64, t: i64) -> Value {
    json!({ "id": index_cid(n).as_str(), "t": t })
}

#[tokio::test]
async fn an_index_goes_forward_without_an_expectation_and_is_stale_otherwise() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let pushed = service.put(INDEXES, json!({ "new": root(5) })).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": stored(5, 0) }));
    for older in [root(4), again(9, 5)] {
        let pushed = service.put(INDEXES, json!({ "new": older })).await.expect(200);
        assert_eq!(pushed, json!({ "status": "stale", "value": stored(5, 0) }));
    }
    let pushed = service.put(INDEXES, json!({ "new": root(5) })).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": stored(5, 0), "replayed": true }));
}

#[tokio::test]
async fn indexing_the_same_t_again_counts_revisions_until_the_index_advances() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let push =
        async |expected: Value, new: Value| service.put(INDEXES, json!({ "expected": expected, "new": new })).await;
    assert_eq!(push(unborn(), root(1)).await.expect(200)["value"], stored(1, 0));
    let pushed = push(root(1), again(7, 1)).await.expect(200);
    assert_eq!(pushed["value"], json!({ "id": index_cid(7).as_str(), "t": 1, "rev": 1 }));
    let rejected = push(root(1), root(2)).await.problem(409, "conflict");
    assert_eq!(rejected["actual"], json!({ "id": index_cid(7).as_str(), "t": 1, "rev": 1 }));
    // A returned value can be sent back as it is.
    let pushed = push(rejected["actual"].clone(), root(2)).await.expect(200);
    assert_eq!(pushed["value"], stored(2, 0));
    push(root(2), root(1)).await.problem(409, "conflict");
    let pushed = service.put(INDEXES, json!({ "new": again(8, 2), "allow_equal": true })).await.expect(200);
    assert_eq!(pushed["value"], json!({ "id": index_cid(8).as_str(), "t": 2, "rev": 1 }));
    let pushed = service.put(INDEXES, json!({ "new": root(1), "allow_equal": true })).await.expect(200);
    assert_eq!(pushed["status"], "stale");
}

#[tokio::test]
async fn a_repeated_push_that_others_have_replaced_counts_from_the_revision_that_it_states_and_guesses_none() {
    let service = Service::start().await;
    for (name, rev) in [("stated", Some(1)), ("unstated", None)] {
        ledger(&service, name).await;
        let path = format!("/v1/indexes/{name}");
        service.put(&path, json!({ "new": root(1) })).await.expect(200);
        service.put(&path, json!({ "new": again(7, 1), "allow_equal": true })).await.expect(200);
        let mut expected = again(7, 1);
        if let Some(rev) = rev {
            expected["rev"] = json!(rev);
        }
        let push = json!({ "expected": expected, "new": again(8, 1) });
        let send = async || service.send(Method::PUT, &path, &[("idempotency-key", "key-1")], Some(push.clone())).await;
        let written = json!({ "id": index_cid(8).as_str(), "t": 1, "rev": 2 });
        for _ in 0..2 {
            assert_eq!(send().await.expect(200)["value"], written, "{name}: it is still stored");
        }
        service.put(&path, json!({ "new": root(2) })).await.expect(200);
        let repeated = send().await;
        match rev {
            Some(_) => {
                let written = json!({ "status": "updated", "value": written, "replayed": true });
                assert_eq!(repeated.expect(200), written);
            }
            None => drop(repeated.problem(503, "outcome-unknown")),
        }
        assert_eq!(shown(&service, name).await["index"], stored(2, 0), "{name}");
    }
}

#[tokio::test]
async fn named_graphs_keep_their_own_index() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let with = |n: i64, graphs: Value| {
        let mut new = root(n);
        new["graphs"] = graphs;
        json!({ "new": new })
    };
    let pushed = service.put(INDEXES, with(1, json!({ "urn:g": root(1), "urn:none": null }))).await.expect(200);
    assert_eq!(pushed["value"]["graphs"], json!({ "urn:g": stored(1, 0), "urn:none": null }));
    let pushed = service.put(INDEXES, with(2, json!({ "urn:h": root(2) }))).await.expect(200);
    let graphs = json!({ "urn:g": stored(1, 0), "urn:h": stored(2, 0), "urn:none": null });
    assert_eq!(pushed["value"]["graphs"], graphs);
    assert_eq!(shown(&service, "mydb").await["index"], pushed["value"]);
}

#[tokio::test]
async fn a_graph_source_has_an_index_and_an_unknown_record_none() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    let pushed = service.put("/v1/indexes/search", json!({ "expected": unborn(), "new": root(1) })).await.expect(200);
    assert_eq!(pushed["value"], stored(1, 0));
    let rejected = service.put("/v1/indexes/search", json!({ "expected": null, "new": root(2) })).await;
    assert_eq!(rejected.problem(409, "conflict")["actual"], stored(1, 0));
    service.put(INDEXES, json!({ "new": root(1) })).await.problem(404, "unknown-record");
    let pushed = service.put(INDEXES, json!({ "expected": null, "new": root(1) })).await.expect(200);
    assert_eq!(pushed["value"], stored(1, 0));
    assert_eq!(shown(&service, "mydb").await["kind"], "ledger");
    retract(&service, "mydb").await;
    service.put(INDEXES, json!({ "new": root(2) })).await.problem(410, "retracted");
}

#[tokio::test]
async fn an_index_that_cannot_be_names_its_field() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let graphs = |graphs: Value| json!({ "new": { "id": index_cid(1).as_str(), "t": 1, "graphs": graphs } });
    let many: serde_json::Map<_, _> = (0..101).map(|i| (format!("urn:{i}"), Value::Null)).collect();
    let long = "g".repeat(256);
    for (body, field) in [
        (json!({ "new": { "id": null, "t": 0 } }), "new.id"),
        (json!({ "new": again(1, 0) }), "new.t"),
        (json!({ "new": stored(1, 0) }), "new.rev"),
        (json!({ "new": root(1), "expected": null, "allow_equal": true }), "allow_equal"),
        (json!({ "new": root(1), "expected": unborn(), "allow_equal": true }), "allow_equal"),
        (json!({ "new": root(1), "allow_equal": "yes" }), "allow_equal"),
        (json!({ "new": root(2), "expected": { "id": null, "t": 1 } }), "expected.t"),
        (json!({ "new": root(2), "expected": { "id": index_cid(1).as_str(), "t": 1, "rev": -1 } }), "expected.rev"),
        (
            json!({ "new": root(2), "expected": { "id": index_cid(1).as_str(), "t": 1, "rev": 1_i64 << 53 } }),
            "expected.rev",
        ),
        (graphs(json!([])), "new.graphs"),
        (graphs(json!({ " ": null })), "new.graphs"),
        (graphs(json!({ &long: null })), "new.graphs"),
        (graphs(many.into()), "new.graphs"),
        (graphs(json!({ "g": { "id": index_cid(1).as_str(), "t": 0 } })), "new.graphs.g.t"),
        (graphs(json!({ "g": { "t": 1 } })), "new.graphs.g.id"),
    ] {
        rejects(service.put(INDEXES, body).await, "invalid-body", field);
    }
    assert_eq!(shown(&service, "mydb").await["index"]["t"], json!(0));
}
