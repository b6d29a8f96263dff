//! Queries and mutations.

use super::*;

#[tokio::test]
async fn a_ledger_is_created_pushed_and_read_and_conflicts_are_members_of_unions() {
    let graph = Graph::open();
    let created = graph
        .ask("mutation { createLedger(address: \"mydb\") { __typename ... on Written { record { address } } } }")
        .await;
    assert_eq!(created["createLedger"], json!({ "__typename": "Written", "record": { "address": "mydb:main" } }));
    let again = graph.ask("mutation { createLedger(address: \"mydb\") { __typename } }").await;
    assert_eq!(again["createLedger"]["__typename"], "AlreadyExists");
    let push = |expected: &str, n: i64, t: i64| {
        format!(
            "mutation {{ pushHead(push: {{ address: \"mydb\", {expected} new: {{ id: \"{}\", t: {t} }} }}) {{ __typename \
             ... on HeadPushed {{ status value {{ t }} }} ... on HeadConflict {{ actual {{ id t }} }} \
             ... on HeadStale {{ actual {{ t }} }} ... on UnknownRecord {{ address }} }} }}",
            cid(n)
        )
    };
    let first = graph.ask(&push("expected: { t: 0 },", 1, 1)).await;
    assert_eq!(first["pushHead"], json!({ "__typename": "HeadPushed", "status": "UPDATED", "value": { "t": 1 } }));
    let conflict = graph.ask(&push("expected: { t: 0 },", 2, 2)).await;
    assert_eq!(
        conflict["pushHead"],
        json!({ "__typename": "HeadConflict", "actual": { "id": cid(1).as_str(), "t": 1 } })
    );
    let stale = graph.ask(&push("", 5, 1)).await;
    assert_eq!(stale["pushHead"], json!({ "__typename": "HeadStale", "actual": { "t": 1 } }));
    let replayed = graph.ask(&push("", 1, 1)).await;
    assert_eq!(replayed["pushHead"]["status"], "REPLAYED");
    let none = graph.ask(&push("expected: null,", 9, 9)).await;
    assert_eq!(none["pushHead"]["__typename"], "HeadConflict", "null expects no record");
    let document = "mutation { pushConfig(push: { address: \"mydb\", expected: { v: 0 }, new: { payload: { index_threshold: 3 } } }) \
                    { __typename ... on ConfigPushed { value { v payload } } } }";
    let config = graph.ask(document).await;
    assert_eq!(config["pushConfig"]["value"], json!({ "v": 1, "payload": { "index_threshold": 3 } }));
    let document = "mutation { pushStatus(push: { address: \"nobody\", expected: { v: 1 }, new: { payload: { state: \"x\" } } }) \
                    { __typename } }";
    assert_eq!(graph.ask(document).await["pushStatus"]["__typename"], "UnknownRecord");
    let document = format!(
        "mutation {{ pushIndex(push: {{ address: \"mydb\", new: {{ id: \"{}\", t: 1, graphs: [{{ name: \"g\" }}] }} }}) \
         {{ ... on IndexPushed {{ value {{ t rev graphs {{ name id }} }} }} }} }}",
        index_cid(1)
    );
    let graphs = json!([{ "name": "g", "id": null }]);
    assert_eq!(graph.ask(&document).await["pushIndex"]["value"], json!({ "t": 1, "rev": 0, "graphs": graphs }));
    // It is what the service shows elsewhere.
    let record = graph
        .ask("{ record(address: \"mydb\") { kind retracted head { id t } status { v state payload } config { v } } }")
        .await;
    let expected = json!({
        "kind": "LEDGER", "retracted": false, "head": { "id": cid(1).as_str(), "t": 1 },
        "status": { "v": 1, "state": "ready", "payload": { "state": "ready" } }, "config": { "v": 1 },
    });
    assert_eq!(record["record"], expected);
    let retracted =
        graph.ask("mutation { retract(address: \"mydb\") { ... on Written { changed record { retracted } } } }").await;
    assert_eq!(retracted["retract"], json!({ "changed": true, "record": { "retracted": true } }));
    assert_eq!(graph.ask(&push("", 7, 7)).await["pushHead"]["__typename"], "RetractedRecord");
    assert_eq!(graph.ask("{ record(address: \"nobody\") { address } }").await["record"], json!(null));
    let history = graph.ask("{ record(address: \"mydb\") { history(first: 2) { edges { cursor node { concern change } } pageInfo { hasNextPage } } } }").await;
    let history = &history["record"]["history"];
    assert_eq!(history["edges"][0]["node"], json!({ "concern": "META", "change": "CREATED" }));
    assert_eq!(history["pageInfo"]["hasNextPage"], true);
}

#[tokio::test]
async fn a_repeated_push_of_an_index_counts_from_the_revision_that_it_states_and_guesses_none() {
    let graph = Graph::open();
    let select = "{ ... on IndexPushed { status value { id t rev } } }";
    let push = |name: &str, expected: Value, new: Value| {
        let document = format!("mutation($push: IndexPushInput!) {{ pushIndex(push: $push) {select} }}");
        let push = match expected.is_null() {
            true => json!({ "address": name, "new": new }),
            false => json!({ "address": name, "expected": expected, "new": new }),
        };
        (document, json!({ "push": push }))
    };
    let index = |n: i64, t: i64| json!({ "id": index_cid(n).as_str(), "t": t });
    for (name, rev) in [("stated", Some(1)), ("unstated", None)] {
        graph.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
        let send = async |key: &str, expected: Value, new: Value| {
            let (document, variables) = push(name, expected, new);
            graph.post(&[("idempotency-key", key)], &document, variables).await.1
        };
        send("k1", Value::Null, index(1, 1)).await;
        let second = send("k2", index(1, 1), index(2, 1)).await;
        assert_eq!(second["data"]["pushIndex"]["value"]["rev"], 1, "{second}");
        let mut expected = index(2, 1);
        if let Some(rev) = rev {
            expected["rev"] = json!(rev);
        }
        let written = json!({ "id": index_cid(3).as_str(), "t": 1, "rev": 2 });
        let pushed = send("k3", expected.clone(), index(3, 1)).await;
        assert_eq!(pushed["data"]["pushIndex"], json!({ "status": "UPDATED", "value": written }), "{pushed}");
        send("k4", Value::Null, index(4, 2)).await;
        let repeated = send("k3", expected, index(3, 1)).await;
        match rev {
            Some(_) => {
                let replayed = json!({ "status": "REPLAYED", "value": written });
                assert_eq!(repeated["data"]["pushIndex"], replayed, "{repeated}");
            }
            None => assert_eq!(repeated["errors"][0]["extensions"]["code"], "outcome-unknown", "{repeated}"),
        }
    }
    for (member, rev) in [("new", 0), ("expected", -1)] {
        let (document, mut variables) = push("stated", index(4, 2), index(5, 3));
        variables["push"][member]["rev"] = json!(rev);
        let (_, answer) = graph.post(&[], &document, variables).await;
        let rejected = &answer["errors"][0]["extensions"];
        assert_eq!(rejected["code"], "invalid-body", "{answer}");
        assert_eq!(rejected["field"], format!("{member}.rev"), "{answer}");
    }
}

#[tokio::test]
async fn connections_hold_every_record_once_whatever_the_page() {
    let graph = Graph::open();
    for name in ["a", "b", "c", "d", "e"] {
        graph.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
    }
    for field in [
        "records(",
        "search(q: \"main\", ",
        "records(filter: { kind: LEDGER, prefix: \"\" }, ",
        "recordsByKind(kind: LEDGER, ",
    ] {
        for first in [1, 2, 9] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let page = "{ edges { node { address } } pageInfo { hasNextPage endCursor } }";
                let data = graph.ask(&format!("{{ page: {field}first: {first}{after}) {page} }}")).await;
                seen.extend(addresses(&data["page"]).into_iter().map(str::to_owned));
                if data["page"]["pageInfo"]["hasNextPage"] != true {
                    break;
                }
                after = format!(", after: {}", data["page"]["pageInfo"]["endCursor"]);
            }
            assert_eq!(seen, ["a:main", "b:main", "c:main", "d:main", "e:main"], "{field} {first}");
        }
    }
    let data = graph.ask("{ changes(first: 3) { edges { cursor node { position address } } pageInfo { hasNextPage endCursor } } position }").await;
    assert_eq!(data["changes"]["edges"][0]["node"]["position"], 1);
    let end = data["changes"]["pageInfo"]["endCursor"].as_str().unwrap();
    let rest = graph.ask(&format!("{{ changes(first: 200, after: \"{end}\") {{ edges {{ node {{ position }} }} pageInfo {{ hasNextPage }} }} }}")).await;
    assert_eq!(rest["changes"]["edges"][0]["node"]["position"], end.parse::<i64>().unwrap() + 1);
    assert_eq!(rest["changes"]["edges"].as_array().unwrap().last().unwrap()["node"]["position"], data["position"]);
}

#[tokio::test]
async fn the_read_model_lists_by_holder_and_what_is_due() {
    let graph = Graph::open();
    for name in ["a", "b"] {
        let address = at(name);
        let _ = graph.names.create_ledger(&Call::fresh(), &address, Some(&new_head(2)), None).await.unwrap();
    }
    let _ = graph.names.push_index(&Call::fresh(), &at("b"), &older(index(2))).await.unwrap();
    let _ = graph.names.acquire_lease(&Call::fresh(), &at("b"), &index_lock("one", 60)).await.unwrap();
    let list = async |field: &str| {
        let data = graph.ask(&format!("{{ list: {field} {{ edges {{ node {{ address }} }} }} }}")).await;
        addresses(&data["list"]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list("indexDue").await, ["a:main"]);
    assert_eq!(list("recordsByHolder(holder: \"one\")").await, ["b:main"]);
    assert!(list("recordsByHolder(holder: \"one\", prefix: \"a\")").await.is_empty());
    // A list includes what was written before it.
    let _ = graph.names.push_head(&Call::fresh(), &at("b"), &older(new_head(3))).await.unwrap();
    assert_eq!(list("indexDue").await, ["a:main", "b:main"]);
    assert_eq!(list("indexDue(prefix: \"b\")").await, ["b:main"]);
    assert_eq!(list("recordsByState(state: \"indexing\")").await, ["b:main"]);
    assert_eq!(list("recordsByKind(kind: LEDGER)").await, ["a:main", "b:main"]);
    let publish = "mutation { publishGraphSource(address: \"s\", sourceType: \"t\", config: {}) { __typename } }";
    assert_eq!(graph.ask(publish).await["publishGraphSource"]["__typename"], "Written");
    assert_eq!(list("recordsBySourceType(sourceType: \"t\")").await, ["s:main"]);
    assert_eq!(list("recordsByKind(kind: GRAPH_SOURCE)").await, ["s:main"]);
    let _ = graph.names.purge(&Call::fresh(), &at("s")).await.unwrap();
    assert!(list("recordsBySourceType(sourceType: \"t\")").await.is_empty());
    let row = "address kind name branch retracted commitT indexT state statusV configV lease holder indexThreshold isIndexDue";
    let data = graph
        .ask(&format!("{{ indexDue(prefix: \"b\") {{ edges {{ node {{ {row} record {{ head {{ t }} }} }} }} }} }}"))
        .await;
    let expected = json!({
        "address": "b:main", "kind": "LEDGER", "name": "b", "branch": "main", "retracted": false, "commitT": 3, "indexT": 2,
        "state": "indexing", "statusV": 2, "configV": 0, "lease": "index_lock", "holder": "one", "indexThreshold": 1,
        "isIndexDue": true, "record": { "head": { "t": 3 } },
    });
    assert_eq!(data["indexDue"]["edges"], json!([{ "node": expected }]));
}
