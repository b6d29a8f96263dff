//! Documents that ask for more than an answer may cost.

use super::*;

/// What GraphiQL sends to show the schema.
const INTROSPECTION: &str = "
    query IntrospectionQuery {
      __schema {
        queryType { name } mutationType { name } subscriptionType { name }
        types { ...FullType }
        directives { name description locations args(includeDeprecated: true) { ...InputValue } }
      }
    }
    fragment FullType on __Type {
      kind name description
      fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue } type { ...TypeRef }
        isDeprecated deprecationReason }
      inputFields(includeDeprecated: true) { ...InputValue }
      interfaces { ...TypeRef }
      enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason }
      possibleTypes { ...TypeRef }
    }
    fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
    fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
      ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } } }";

/// The first error of a document that must be rejected as a whole.
async fn rejected(graph: &Graph, document: &str) -> String {
    let (status, answer) = graph.post(&[], document, json!({})).await;
    assert!(status == 200 && answer["data"].is_null(), "{status} {answer:#}");
    answer["errors"][0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn documents_that_are_too_deep_or_ask_for_too_much_are_rejected() {
    let graph = Graph::open();
    let wide = |first: usize| {
        format!(
            "{{ records(first: {first}) {{ edges {{ node {{ history(first: 200) {{ edges {{ node {{ address }} }} }} }} }} }} }}"
        )
    };
    graph.ask(&wide(2)).await;
    let schema = graph.ask(INTROSPECTION).await;
    assert!(schema["__schema"]["types"].as_array().unwrap().len() > 20);
    let many = |count: usize, field: &str| (0..count).map(|n| format!("a{n}: {field} ")).collect::<String>();
    let nested = |count: usize| format!("{}x{}", "ofType { ".repeat(count), " }".repeat(count));
    let bomb = |levels: usize, width: usize| {
        let spreads = |n: usize| format!("...F{} ", n + 1).repeat(width);
        let fragments = (0..levels).map(|n| format!("fragment F{n} on Query {{ {} }} ", spreads(n)));
        format!("{{ ...F0 }} {} fragment F{levels} on Query {{ position }}", fragments.collect::<String>())
    };
    for (document, reason) in [
        (wide(200), "complex"),
        (format!("{{ {} }}", many(30, "search(q: \"x\", first: 1) { pageInfo { hasNextPage } }")), "complex"),
        (format!("{{ {} }}", many(2_100, "position")), "2000 fields"),
        (format!("{{ {} }}", many(5, "__schema { types { name } }")), "2000 fields"),
        (format!("{{ __schema {{ types {{ {} }} }} }}", nested(20)), "deep"),
        (format!("{{ __schema {{ types {{ {} }} }} }}", nested(20_000)), "brackets"),
        (format!("{{ records(filter: {}) {{ pageInfo {{ hasNextPage }} }} }}", "[".repeat(200_000)), "brackets"),
        (format!("query($a: {}Int{}) {{ position }}", "[".repeat(50_000), "]".repeat(50_000)), "brackets"),
        // 20 to the power of 30 fields.
        (bomb(30, 20), "2000 fields"),
        (bomb(5_000, 1), "deep"),
        ("{ ...F } fragment F on Query { ...F ...F ...F }".to_owned(), "contains itself"),
        (format!("{{ position {} }}", "@skip(if: false)".repeat(5_000)), "directives"),
        ("subscription { changes { position } }".to_owned(), "not supported on this transport"),
        (format!("{{ {} }}", many(12_000, "nothing")), "2000 fields"),
        ("{".to_owned(), "expected"),
        (String::new(), "expected"),
    ] {
        let found = rejected(&graph, &document).await;
        assert!(found.contains(reason), "{found}: {}", document.chars().take(200).collect::<String>());
    }
}

#[tokio::test]
async fn bodies_that_are_no_single_document_are_problems() {
    let graph = Graph::open();
    let one = json!({ "query": "{ position }" });
    let deep = format!("{{\"query\": \"{{ position }}\", \"variables\": {}1{}}}", "[".repeat(9_000), "]".repeat(9_000));
    for (content_type, body, status, problem) in [
        ("application/json", json!([one, one]).to_string(), 400, "invalid-body"),
        ("application/json", json!({ "query": 1 }).to_string(), 400, "invalid-body"),
        ("application/json", deep, 400, "invalid-body"),
        ("application/json", " ".repeat(300 * 1024), 413, "payload-too-large"),
        // A page of another origin can send these without a CORS preflight.
        ("text/plain", one.to_string(), 415, "unsupported-media-type"),
        ("application/x-www-form-urlencoded", "query={position}".to_owned(), 415, "unsupported-media-type"),
    ] {
        let shown: String = body.chars().take(80).collect();
        let request = Request::post("/graphql").header(header::CONTENT_TYPE, content_type);
        let (found, _, answer) = graph.send(request.body(Body::from(body)).unwrap()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let is_named = answer["type"].as_str().is_some_and(|name| name.ends_with(problem));
        assert!(found == status && is_named, "{found} {answer}: {shown}");
    }
}

#[tokio::test]
async fn an_answer_is_no_larger_than_a_page() {
    let graph = Graph::open();
    let text = "x".repeat(100 * 1024);
    for n in 0..60 {
        let config = new_config(json!({ "text": text }));
        let _ = graph.names.create_ledger(&Call::fresh(), &at(&format!("l{n:02}")), None, Some(&config)).await.unwrap();
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = "{ edges { node { address config { payload } } } pageInfo { hasNextPage endCursor } }";
        let data = graph.ask(&format!("{{ page: records(first: 200{after}) {page} }}")).await;
        assert!(data.to_string().len() < 5 * 1024 * 1024);
        seen.extend(addresses(&data["page"]).into_iter().map(str::to_owned));
        pages += 1;
        if data["page"]["pageInfo"]["hasNextPage"] != true {
            break;
        }
        after = format!(", after: {}", data["page"]["pageInfo"]["endCursor"]);
    }
    let all: Vec<_> = (0..60).map(|n| format!("l{n:02}:main")).collect();
    assert_eq!((pages, seen), (2, all));
    // Several lists share what one answer may hold.
    let list = "records(first: 40) { edges { node { config { payload } } } }";
    let error = graph.rejected(&format!("{{ a: {list} b: {list} c: {list} }}")).await;
    assert_eq!(error["extensions"]["code"], "payload-too-large");
}
