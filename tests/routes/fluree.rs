use super::*;

/// Where the wire is served.
const PREFIXES: [&str; 2] = ["/fluree", "/v1/fluree"];

/// The very bytes of an answer.
async fn bytes(service: &Service, method: &Method, path: &str, body: Option<Value>) -> (u16, String) {
    use http_body_util::BodyExt as _;
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(method).uri(format!("{}{path}", service.url()));
    let request = request.header("content-type", "application/json");
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let response = client.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json", "{path}");
    let status = response.status().as_u16();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn a_ledger_is_answered_byte_for_byte_whoever_wrote_it() {
    let service = Service::start().await;
    let context = cid(8);
    let rows = rows::ledger("tenant/db:main")
        .commit(cid(2), 2)
        .index(index_cid(1), 1)
        .context(context.as_str(), 1)
        .branches(3)
        .rows();
    service.table.put(&rows).await;
    ledger(&service, "mydb").await;
    born(&service, "books", 1).await;
    branch(&service, "books", "dev").await;
    let tenant = format!(
        r#"{{"ledger_id":"tenant/db:main","name":"tenant/db","branch":"main","commit_head_id":"{}","commit_t":2,"index_head_id":"{}","index_t":1,"default_context":"{context}","retracted":false,"config_id":null,"branches":3}}"#,
        cid(2),
        index_cid(1)
    );
    let mydb = r#"{"ledger_id":"mydb:main","name":"mydb","branch":"main","commit_head_id":null,"commit_t":0,"index_head_id":null,"index_t":0,"default_context":null,"retracted":false,"config_id":null}"#;
    let dev = format!(
        r#"{{"ledger_id":"books:dev","name":"books","branch":"dev","commit_head_id":"{}","commit_t":1,"index_head_id":null,"index_t":0,"default_context":null,"retracted":false,"config_id":null,"source_branch":"main"}}"#,
        cid(1)
    );
    for prefix in PREFIXES {
        for (ids, record) in [
            (["tenant/db:main", "tenant%2Fdb:main", "tenant%2Fdb%3Amain", "tenant/db"], tenant.as_str()),
            (["mydb:main", "mydb%3Amain", "mydb", "mydb%3amain"], mydb),
            (["books:dev", "books%3Adev", "%62ooks:dev", "books%3adev"], dev.as_str()),
        ] {
            for id in ids {
                let path = format!("{prefix}/storage/ns/{id}");
                assert_eq!(bytes(&service, &Method::GET, &path, None).await, (200, record.to_owned()));
            }
        }
        for id in ["nobody:main", "nobody%3Amain", "mydb:dev"] {
            service.get(&format!("{prefix}/storage/ns/{id}")).await.problem(404, "unknown-record");
        }
    }
    retract(&service, "mydb").await;
    let record = service.get("/fluree/storage/ns/mydb:main").await.expect(200);
    assert_eq!(record["retracted"], json!(true));
}

#[tokio::test]
async fn a_graph_source_is_answered_byte_for_byte_with_its_type_as_an_enum() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    for (stored, reported) in [
        ("f:Bm25Index", json!("Bm25")),
        ("f:HnswIndex", json!("Vector")),
        ("f:GeoIndex", json!("Geo")),
        ("f:R2rmlMapping", json!("R2rml")),
        ("f:IcebergMapping", json!("Iceberg")),
        ("my:Own", json!({ "Unknown": "my:Own" })),
    ] {
        let body = json!({ "source_type": stored, "config": { "k1": 1.2 }, "dependencies": ["mydb"] });
        service.put("/v1/graph-sources/search", body).await.expect(201);
        service.put("/v1/indexes/search", json!({ "new": root(4) })).await.expect(200);
        let expected = format!(
            r#"{{"graph_source_id":"search:main","name":"search","branch":"main","source_type":{reported},"config":"{{\"k1\":1.2}}","dependencies":["mydb:main"],"index_id":"{}","index_t":4,"retracted":false}}"#,
            index_cid(4)
        );
        for prefix in PREFIXES {
            let (status, text) = bytes(&service, &Method::GET, &format!("{prefix}/nameservice/snapshot"), None).await;
            assert_eq!(status, 200);
            assert!(text.ends_with(&format!(r#""graph_sources":[{expected}]}}"#)), "{text}");
            // Fluree's own server shows ledgers alone under this path.
            service.get(&format!("{prefix}/storage/ns/search%3Amain")).await.problem(404, "unknown-record");
        }
        service.delete("/v1/records/search").await.expect(204);
    }
}

#[tokio::test]
async fn refs_are_compared_and_set_byte_for_byte() {
    let (one, two) = (cid(1), cid(2));
    for prefix in PREFIXES {
        for id in ["mydb:main", "mydb%3Amain", "tenant/db:main", "tenant%2Fdb:main", "größe%3Amain"] {
            let service = Service::start().await;
            let post = async |operation: &str, body: Value| {
                let path = format!("{prefix}/nameservice/refs/{id}/{operation}");
                bytes(&service, &Method::POST, &path, Some(body)).await
            };
            assert_eq!(post("init", json!({})).await, (200, r#"{"created":true}"#.into()), "{id}");
            assert_eq!(post("init", json!({})).await, (200, r#"{"created":false}"#.into()));
            for operation in ["commit", "index"] {
                let (one, two) = if operation == "commit" { (&one, &two) } else { (&index_cid(1), &index_cid(2)) };
                let value = |id: &ContentId, t: i64| json!({ "id": id.as_str(), "t": t });
                let reported = |id: &ContentId, t: i64| format!(r#"{{"id":"{id}","t":{t}}}"#);
                let updated = |id, t| (200, format!(r#"{{"status":"updated","ref":{}}}"#, reported(id, t)));
                let conflict = |actual: &str| (409, format!(r#"{{"status":"conflict","actual":{actual}}}"#));
                let first = json!({ "expected": unborn(), "new": value(one, 1) });
                let exists = json!({ "expected": null, "new": value(two, 2) });
                let next = json!({ "expected": value(one, 1), "new": value(two, 2) });
                let wrong = json!({ "expected": value(two, 1), "new": value(two, 5) });
                let back = json!({ "expected": value(two, 2), "new": value(one, 1) });
                assert_eq!(post(operation, wrong.clone()).await, conflict(r#"{"id":null,"t":0}"#));
                assert_eq!(post(operation, first.clone()).await, updated(one, 1));
                assert_eq!(post(operation, exists).await, conflict(&reported(one, 1)));
                assert_eq!(post(operation, next).await, updated(two, 2));
                assert_eq!(post(operation, wrong).await, conflict(&reported(two, 2)));
                assert_eq!(post(operation, back).await, conflict(&reported(two, 2)));
            }
        }
    }
}

#[tokio::test]
async fn expecting_null_creates_the_ledger_and_an_unknown_one_is_a_conflict_with_nothing() {
    let service = Service::start().await;
    for prefix in PREFIXES {
        for (operation, new) in [("commit", commit(1)), ("index", root(1))] {
            let address = format!("{}-{operation}:main", prefix.replace('/', ""));
            let path = format!("{prefix}/nameservice/refs/{address}/{operation}");
            let nothing = service.post(&path, json!({ "expected": unborn(), "new": new })).await.expect(409);
            assert_eq!(nothing, json!({ "status": "conflict", "actual": null }));
            let body = json!({ "expected": null, "new": new, "later": "members are passed over" });
            let created = service.post(&path, body).await.expect(200);
            assert_eq!(created, json!({ "status": "updated", "ref": new }));
            assert_eq!(shown(&service, &address).await["kind"], "ledger");
        }
    }
}

#[tokio::test]
async fn what_is_no_ref_is_rejected() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let refs = "/fluree/nameservice/refs";
    for path in ["mydb", "mydb/", "mydb/head", "mydb/commit/", "commit"] {
        service.post(&format!("{refs}/{path}"), json!({})).await.problem(404, "not-found");
    }
    for (body, field) in [
        (json!({ "expected": unborn() }), "new"),
        (json!({ "expected": unborn(), "new": unborn() }), "new.id"),
        (json!({ "expected": unborn(), "new": { "id": cid(1).as_str(), "t": 0 } }), "new.t"),
        (json!({ "expected": { "id": null, "t": 3 }, "new": commit(4) }), "expected.t"),
        (json!({ "expected": unborn(), "new": { "id": cid(1).as_str(), "t": "1" } }), "new.t"),
    ] {
        rejects(service.post(&format!("{refs}/mydb/commit"), body).await, "invalid-body", field);
    }
    let commit_path = format!("{refs}/mydb/commit");
    raw(&service, &Method::POST, &commit_path, &[], b"{}").await.problem(415, "unsupported-media-type");
    // `init` takes no body.
    let created = raw(&service, &Method::POST, &format!("{refs}/other/init"), &[], b"").await.expect(200);
    assert_eq!(created, json!({ "created": true }));
}

#[tokio::test]
async fn a_retracted_record_is_a_conflict_with_what_is_stored() {
    let service = Service::start().await;
    born(&service, "mydb", 3).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(2) })).await.expect(200);
    ledger(&service, "unborn").await;
    for name in ["mydb", "unborn"] {
        retract(&service, name).await;
    }
    for prefix in PREFIXES {
        let post = async |path: &str, body: Value| {
            bytes(&service, &Method::POST, &format!("{prefix}/nameservice/refs/{path}"), Some(body)).await
        };
        let conflict = |actual: Value| (409, json!({ "status": "conflict", "actual": actual }));
        for (path, body, actual) in [
            ("mydb:main/commit", json!({ "expected": commit(3), "new": commit(4) }), commit(3)),
            ("mydb:main/commit", json!({ "expected": null, "new": commit(4) }), commit(3)),
            ("mydb:main/index", json!({ "expected": root(2), "new": root(3) }), root(2)),
            ("mydb:main/init", json!({}), commit(3)),
            ("unborn:main/commit", json!({ "expected": unborn(), "new": commit(1) }), unborn()),
            ("unborn:main/init", json!({}), unborn()),
        ] {
            let (status, text) = post(path, body).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, answer), conflict(actual), "{path}");
        }
    }
    // On the service's own routes it is 410, as before.
    service.put("/v1/heads/mydb", json!({ "new": commit(4) })).await.problem(410, "retracted");
}

#[tokio::test]
async fn one_odd_row_hides_no_other_and_reads_as_fluree_reads_it() {
    let service = Service::start().await;
    born(&service, "good", 1).await;
    let table = &service.table;
    for name in ["commit", "index", "context", "count"] {
        let rows = rows::ledger(&format!("{name}:main")).commit(cid(2), 2).index(index_cid(1), 1);
        table.put(&rows.context(cid(8).as_str(), 1).branches(1).rows()).await;
    }
    table.set("commit:main", "head", "commit_id", rows::s("fluree:file://commit/2.json")).await;
    table.set("index:main", "index", "index_id", rows::s("latest")).await;
    table.put(&rows::ledger("context:main").commit(cid(2), 2).context("fluree:ctx", 1).rows()).await;
    table.set("count:main", "meta", "branches", rows::n(-1)).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    table.set("search:main", "index", "index_id", rows::s("latest")).await;
    table.set("search:main", "index", "index_t", rows::n(4)).await;

    let snapshot = service.get("/fluree/nameservice/snapshot").await.expect(200);
    let ledgers = snapshot["ledgers"].as_array().unwrap();
    assert_eq!(ledgers.len(), 5);
    for ledger in ledgers {
        let id = ledger["ledger_id"].as_str().unwrap();
        assert_eq!(*ledger, service.get(&format!("/fluree/storage/ns/{id}")).await.expect(200));
        // What Fluree's readers accept: null, or a content id; a count of 32 bits without a sign, or none.
        for member in ["commit_head_id", "index_head_id", "default_context", "config_id"] {
            let is_readable = ledger[member].as_str().is_none_or(|id| ContentId::parse(id).is_ok());
            assert!(is_readable, "{member} of {ledger}");
        }
        assert!(ledger.get("branches").is_none_or(|count| count.as_u64().is_some()), "{ledger}");
    }
    let of = |name: &str| ledgers.iter().find(|ledger| ledger["name"] == name).unwrap();
    assert_eq!((&of("commit")["commit_head_id"], &of("commit")["commit_t"]), (&Value::Null, &json!(2)));
    assert_eq!(of("commit")["index_head_id"], json!(index_cid(1).as_str()));
    assert_eq!(
        (&of("index")["index_head_id"], &of("index")["commit_head_id"]),
        (&Value::Null, &json!(cid(2).as_str()))
    );
    assert_eq!(of("context")["default_context"], Value::Null);
    assert_eq!(of("count").get("branches"), None);
    let source = &snapshot["graph_sources"][0];
    assert_eq!((&source["index_id"], &source["index_t"]), (&Value::Null, &json!(4)));
    // Conflicts show the same.
    let push = json!({ "expected": unborn(), "new": commit(9) });
    let conflict = service.post("/fluree/nameservice/refs/commit:main/commit", push).await.expect(409);
    assert_eq!(conflict["actual"], json!({ "id": null, "t": 2 }));
}

#[tokio::test]
async fn the_snapshot_holds_ledgers_and_graph_sources_apart() {
    let service = Service::start().await;
    for prefix in PREFIXES {
        let (status, text) = bytes(&service, &Method::GET, &format!("{prefix}/nameservice/snapshot"), None).await;
        assert_eq!((status, text.as_str()), (200, r#"{"ledgers":[],"graph_sources":[]}"#));
    }
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    source(&service, "search", &["mydb"]).await;
    retract(&service, "search").await;
    for prefix in PREFIXES {
        let snapshot = service.get(&format!("{prefix}/nameservice/snapshot")).await.expect(200);
        let mut reported = Vec::new();
        for (list, id) in [("ledgers", "ledger_id"), ("graph_sources", "graph_source_id")] {
            for record in snapshot[list].as_array().unwrap() {
                let path = format!("{prefix}/storage/ns/{}", record[id].as_str().unwrap());
                if list == "ledgers" {
                    assert_eq!(record, &service.get(&path).await.expect(200));
                }
                reported.push((list, record[id].as_str().unwrap().to_owned()));
            }
        }
        reported.sort();
        let expected = [("graph_sources", "search:main"), ("ledgers", "mydb:dev"), ("ledgers", "mydb:main")];
        assert_eq!(reported, expected.map(|(list, id)| (list, id.to_owned())));
    }
}

#[tokio::test]
async fn a_snapshot_of_any_size_is_streamed_and_one_that_cannot_be_names_the_one_in_pages() {
    let fill = async |service: &Service| {
        let config = json!({ "text": "x".repeat(250 * 1024) });
        for i in 0..17 {
            let body = json!({ "source_type": "t", "config": config });
            service.put(&format!("/v1/graph-sources/s{i}"), body).await.expect(201);
        }
    };
    let service = Service::start().await;
    fill(&service).await;
    let snapshot = service.get("/fluree/nameservice/snapshot").await.expect(200);
    let sources = snapshot["graph_sources"].as_array().unwrap();
    assert_eq!(sources.len(), 17);
    assert!(sources.iter().all(|source| source["config"].as_str().unwrap().len() > 250 * 1024));
    let rooms = nameservice_cli::routes::router().layer(axum::Extension(nameservice_http::WholeAnswers));
    let service = Service::of(rooms, Table::fresh().await, nameservice_http::Auth::Open).await;
    fill(&service).await;
    let rejected = service.get("/fluree/nameservice/snapshot").await.problem(413, "payload-too-large");
    assert!(rejected["detail"].as_str().unwrap().contains("/v1/snapshot"), "{rejected}");
}
