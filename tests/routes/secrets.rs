//! Secrets in a config: callers that may write the record see them; callers that may only read it see them in no answer.

use super::{
    authorization::{as_, guarded, token},
    *,
};

/// A secret, put in every place where a config can hide one.
const CANARY: &str = "canary-5f0c2d";

fn config() -> Value {
    json!({
        "connection_string": format!("postgres://{CANARY}"),
        "url": format!("postgres://user:{CANARY}@db/x"),
        "nested": { "list": [{ "apiKey": CANARY }], "credentials": { "user": CANARY, "type": "basic" } },
        "default_context": format!("https://u:{CANARY}@example.org/"),
        "shown": "plain",
    })
}

/// The GET routes of the document, each with what it needs to answer with records.
fn reads() -> Vec<String> {
    let document = json!(nameservice_cli::routes::document());
    let paths = document["paths"].as_object().unwrap().iter().filter(|(_, item)| item.get("get").is_some());
    let mut all = Vec::new();
    for (path, _) in paths {
        // Streams do not end; tests/routes/fluree_events.rs and change_stream.rs show that they are redacted.
        if path.ends_with("/events") {
            continue;
        }
        for address in ["mydb", "search"] {
            all.push(
                path.replace("{address}", address).replace("docs/{file}", "docs/docs.js").replace("{file}", "app.js"),
            );
        }
    }
    all.extend(["/v1/records?view=full", "/v1/records?view=full&source_type=f:Bm25Index"].map(String::from));
    all.extend(["/v1/changes?after=0&limit=1000", "/v1/history/search?concern=config"].map(String::from));
    all.extend(["/v1/records/mydb?concerns=config", "/v1/fluree/nameservice/snapshot"].map(String::from));
    all.sort();
    all.dedup();
    all
}

#[tokio::test]
async fn a_reader_finds_no_secret_in_any_answer_and_a_writer_finds_it_where_it_is() {
    let service = guarded().await;
    let admin = token(json!({ "scope": "nameservice:admin" }));
    let ledger = json!({ "address": "mydb", "config": config() });
    as_(&service, &admin, Method::POST, "/v1/ledgers", Some(ledger)).await.expect(201);
    let source = json!({ "source_type": "f:Bm25Index", "config": config() });
    as_(&service, &admin, Method::PUT, "/v1/graph-sources/search", Some(source)).await.expect(201);

    let reader = token(json!({ "scope": "nameservice:read" }));
    // The right to write elsewhere grants nothing here.
    let elsewhere = token(json!({ "scope": "nameservice:read", "fluree.storage.ledgers": ["other"] }));
    let compared = json!({ "subscriptions": { "mydb": {}, "search": {} } });
    let check =
        |address: &str| json!({ "op": "check", "address": address, "concern": "config", "expected": { "v": 9 } });
    let checked = json!({ "operations": [check("mydb"), check("search")] });
    for caller in [&reader, &elsewhere] {
        let mut answers = Vec::new();
        for path in reads() {
            answers.push((path.clone(), as_(&service, caller, Method::GET, &path, None).await));
        }
        let compare = as_(&service, caller, Method::POST, "/v1/changes/compare", Some(compared.clone())).await;
        answers.push(("compare".to_owned(), compare));
        let commit = as_(&service, caller, Method::POST, "/v1/transactions", Some(checked.clone())).await;
        answers.push(("transaction".to_owned(), commit));
        let mut shown = 0;
        for (path, answer) in answers {
            let text = answer.body.to_string();
            assert!(!text.contains(CANARY), "{path}: {text}");
            shown += usize::from(text.contains("[redacted]"));
        }
        // Of those that show a config at all: records, lists, snapshots, changes, histories, compare.
        assert!(shown >= 10, "{shown}");
    }
    let commit = as_(&service, &elsewhere, Method::POST, "/v1/transactions", Some(checked.clone())).await;
    let results = commit.problem(409, "transaction-refused")["results"].clone();
    assert!(results[0]["actual"]["payload"]["shown"] == "plain", "{results}");

    // Nor can it be guessed: a check of the payload needs what seeing it needs.
    for payload in [config(), json!({ "guess": 1 })] {
        let guess = json!({ "op": "check", "address": "mydb", "concern": "config", "expected": { "v": 1, "payload": payload } });
        let guess = json!({ "operations": [guess] });
        let answer = as_(&service, &elsewhere, Method::POST, "/v1/transactions", Some(guess)).await;
        answer.problem(403, "insufficient-scope");
    }

    let writer = token(json!({ "scope": "nameservice:write", "nameservice:addresses": ["mydb:*", "search:*"] }));
    for (method, path, body) in [
        (Method::GET, "/v1/records/mydb", None),
        (Method::GET, "/v1/records/search", None),
        (Method::GET, "/v1/records?view=full", None),
        (Method::GET, "/v1/branches/mydb", None),
        (Method::GET, "/v1/snapshot", None),
        (Method::GET, "/fluree/nameservice/snapshot", None),
        (Method::POST, "/v1/changes/compare", Some(compared)),
        (Method::POST, "/v1/transactions", Some(checked)),
    ] {
        let answer = as_(&service, &writer, method, path, body).await;
        assert!(answer.body.to_string().contains(CANARY), "{path}: {answer:#?}");
    }
    // Changes are redacted for everybody: they are stored without secrets.
    let changes = as_(&service, &writer, Method::GET, "/v1/changes?after=0", None).await.expect(200);
    assert!(!changes.to_string().contains(CANARY), "{changes}");
}

#[tokio::test]
async fn a_redacted_record_has_a_tag_of_its_own() {
    let service = guarded().await;
    let admin = token(json!({ "scope": "nameservice:admin" }));
    let ledger = json!({ "address": "mydb", "config": config() });
    as_(&service, &admin, Method::POST, "/v1/ledgers", Some(ledger)).await.expect(201);
    let tag = |answer: &Answer| answer.header("etag").map(str::to_owned);
    let whole = as_(&service, &admin, Method::GET, "/v1/records/mydb", None).await;
    let redacted =
        as_(&service, &token(json!({ "scope": "nameservice:read" })), Method::GET, "/v1/records/mydb", None).await;
    assert!(tag(&whole).is_some() && tag(&whole) != tag(&redacted));
    assert_eq!(redacted.expect(200)["config"]["payload"]["url"], "postgres://user:[redacted]@db/x");
}
