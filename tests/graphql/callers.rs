//! What callers see and may write.

use super::*;
use crate::routes::authorization::{narrow, scope, verifying};

/// A secret, put in every place where a config can hide one.
const CANARY: &str = "canary-77aa31";

#[tokio::test]
async fn callers_see_and_write_what_their_tokens_cover() {
    let graph = Graph::with(verifying(), Writes::Here);
    let admin = graph.of(&scope("nameservice:admin"));
    for name in ["tenant/a/x", "tenant/b/x"] {
        let document = format!(
            "mutation {{ createLedger(address: \"{name}\", config: {{ password: \"p\", n: 1 }}) {{ __typename }} }}"
        );
        assert_eq!(admin.ask(&document).await["createLedger"]["__typename"], "Written");
    }
    let reader = graph.of(&narrow("nameservice:read", json!(["tenant/a/*"])));
    let writer = graph.of(&narrow("nameservice:write", json!(["tenant/a/*"])));
    for field in ["records", "search(q: \"tenant\")", "recordsByKind(kind: LEDGER)"] {
        let data = reader
            .ask(&format!("{{ list: {field} {{ edges {{ node {{ address }} }} pageInfo {{ hasNextPage }} }} }}"))
            .await;
        assert_eq!(addresses(&data["list"]), ["tenant/a/x:main"], "{field}");
    }
    let data = reader.ask("{ changes { edges { node { address } } } }").await;
    assert!(addresses(&data["changes"]).iter().all(|address| *address == "tenant/a/x:main"));
    assert_eq!(reader.ask("{ record(address: \"tenant/b/x\") { address } }").await["record"], json!(null));
    let config = "{ record(address: \"tenant/a/x\") { config { payload } } }";
    assert_eq!(reader.ask(config).await["record"]["config"]["payload"], json!({ "password": "[redacted]", "n": 1 }));
    assert_eq!(writer.ask(config).await["record"]["config"]["payload"], json!({ "password": "p", "n": 1 }));
    let push = |name: &str| {
        format!(
            "mutation {{ pushHead(push: {{ address: \"{name}\", new: {{ id: \"{}\", t: 1 }} }}) {{ __typename }} }}",
            cid(1)
        )
    };
    assert_eq!(reader.rejected(&push("tenant/a/x")).await["extensions"]["code"], "insufficient-scope");
    assert_eq!(writer.rejected(&push("tenant/b/x")).await["extensions"]["code"], "address-not-covered");
    assert_eq!(writer.ask(&push("tenant/a/x")).await["pushHead"]["__typename"], "HeadPushed");
    // A dependency that the caller may not see counts as missing.
    let document = "mutation { publishGraphSource(address: \"tenant/a/s\", sourceType: \"t\", config: {}, \
                    dependencies: [\"tenant/a/x\", \"tenant/b/x\"]) { ... on MissingDependencies { missing } } }";
    assert_eq!(writer.ask(document).await["publishGraphSource"]["missing"], json!(["tenant/b/x:main"]));
    let (status, answer) = graph.post(&[], "{ position }", json!({})).await;
    assert!(status == 401 && answer["type"].as_str().unwrap().ends_with("/unauthorized"), "{answer}");
}

#[tokio::test]
async fn an_idempotency_key_names_one_write() {
    let graph = Graph::open();
    graph.ask("mutation { createLedger(address: \"a\") { __typename } }").await;
    let push = |n: i64| {
        format!(
            "pushHead(push: {{ address: \"a\", new: {{ id: \"{}\", t: {n} }} }}) {{ __typename ... on HeadPushed {{ status }} }}",
            cid(n)
        )
    };
    let key = [("idempotency-key", "k1")];
    let document = format!("mutation {{ {} }}", push(1));
    for status in ["UPDATED", "REPLAYED"] {
        let (_, answer) = graph.post(&key, &document, json!({})).await;
        assert_eq!(answer["data"]["pushHead"]["status"], status, "{answer}");
    }
    let (_, answer) = graph.post(&key, &format!("mutation {{ {} }}", push(2)), json!({})).await;
    assert_eq!(answer["errors"][0]["extensions"]["code"], "idempotency-key-reused", "{answer}");
    let two = format!("mutation {{ one: {} two: {} }}", push(3), push(4));
    let (_, answer) = graph.post(&[("idempotency-key", "k2")], &two, json!({})).await;
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains("names one write"), "{answer}");
    let data = graph.ask(&format!("mutation {{ one: {} two: {} }}", push(5), push(6))).await;
    assert_eq!((&data["one"]["status"], &data["two"]["status"]), (&json!("UPDATED"), &json!("UPDATED")));
}

#[tokio::test]
async fn a_replica_reads_and_says_where_to_write() {
    let graph = Graph::with(Auth::Open, Writes::At("http://upstream.example".to_owned()));
    assert_eq!(graph.ask("{ position }").await["position"], 0);
    let error = graph.rejected("mutation { createLedger(address: \"a\") { __typename } }").await;
    assert!(error["message"].as_str().unwrap().contains("http://upstream.example/graphql"), "{error}");
    assert!(graph.names.view().is_empty());
}

#[tokio::test]
async fn a_reader_finds_no_secret_in_any_answer_and_a_writer_finds_it_where_it_is() {
    let graph = Graph::with(verifying(), Writes::Here);
    let admin = graph.of(&scope("nameservice:admin"));
    let config = format!(
        "{{ password: \"{CANARY}\", url: \"pg://u:{CANARY}@db/x\", nested: {{ list: [{{ apiKey: \"{CANARY}\" }}] }}, plain: 1 }}"
    );
    for document in [
        format!("mutation {{ createLedger(address: \"mydb\", config: {config}) {{ __typename }} }}"),
        format!(
            "mutation {{ publishGraphSource(address: \"search\", sourceType: \"t\", config: {config}) {{ __typename }} }}"
        ),
    ] {
        assert!(admin.ask(&document).await.to_string().contains("Written"), "{document}");
    }
    let _ = graph.names.acquire_lease(&Call::fresh(), &at("mydb"), &index_lock("one", 60)).await.unwrap();
    let node = "address config { payload } status { payload }";
    let changes = "edges { node { payload } }";
    let reads = [
        format!("{{ record(address: \"mydb\") {{ {node} history {{ {changes} }} }} }}"),
        format!("{{ records {{ edges {{ cursor node {{ {node} history {{ {changes} }} }} }} }} }}"),
        format!("{{ recordsByHolder(holder: \"one\") {{ edges {{ cursor node {{ record {{ {node} }} }} }} }} }}"),
        format!("{{ search(q: \"main\") {{ edges {{ cursor node {{ record {{ {node} }} }} }} }} }}"),
        format!("{{ search(q: \"mydb\") {{ edges {{ cursor node {{ matched record {{ {node} }} }} }} }} }}"),
        format!("{{ changes {{ {changes} }} }}"),
    ];
    let reader = graph.of(&scope("nameservice:read"));
    // The scope to write elsewhere grants nothing here.
    let elsewhere = graph.of(&narrow("nameservice:write", json!(["other:*"])));
    let mut redacted = 0;
    for document in &reads {
        let answer = reader.ask(document).await.to_string();
        assert!(!answer.contains(CANARY), "{document}: {answer}");
        redacted += usize::from(answer.contains("[redacted]"));
        let answer = elsewhere.post(&[], document, json!({})).await.1.to_string();
        assert!(!answer.contains(CANARY) && !answer.contains("mydb"), "{document}: {answer}");
    }
    assert!(redacted >= 5, "{redacted}");
    // A search does not find what it may not show.
    let search = format!("{{ search(q: \"{CANARY}\") {{ edges {{ node {{ address }} }} }} }}");
    assert!(addresses(&admin.ask(&search).await["search"]).is_empty());
    // Nor does a rejection show it.
    let push = format!(
        "mutation {{ pushConfig(push: {{ address: \"mydb\", expected: {{ v: 9 }}, new: {{ payload: {config} }} }}) \
         {{ ... on ConfigConflict {{ actual {{ payload }} }} }} }}"
    );
    let answer = reader.rejected(&push).await.to_string();
    assert!(answer.contains("insufficient-scope") && !answer.contains(CANARY), "{answer}");
    let writer = graph.of(&narrow("nameservice:write", json!(["mydb:*", "search:*"])));
    assert!(writer.ask(&push).await.to_string().contains(CANARY));
    for document in &reads[..4] {
        assert!(writer.ask(document).await.to_string().contains(CANARY), "{document}");
    }
    // Changes are redacted for everybody: they are stored without secrets.
    assert!(!writer.ask(&reads[5]).await.to_string().contains(CANARY));
}
