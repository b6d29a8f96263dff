use super::*;

async fn get_if_changed(service: &Service, path: &str, tags: &str) -> Answer {
    service.send(Method::GET, path, &[("if-none-match", tags)], None).await
}

#[tokio::test]
async fn a_graph_source_is_shown_with_its_type_and_dependencies_and_no_head() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    source(&service, "search", &["mydb"]).await;
    let expected = json!({
        "address": "search:main", "kind": "graph_source", "name": "search", "branch": "main", "retracted": false,
        "branches": 0, "dependents": 0, "source_type": "f:Bm25Index", "dependencies": ["mydb:main"],
        "index": { "id": null, "t": 0, "rev": 0 },
        "status": { "v": 1, "payload": { "state": "ready" } },
        "config": { "v": 1, "payload": { "k1": 1.2 } },
    });
    assert_eq!(timeless(shown(&service, "search").await), expected);
    assert_eq!(shown(&service, "mydb").await["dependents"], json!(1));
}

#[tokio::test]
async fn only_the_concerns_asked_for_are_shown() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for (asked, shown) in [
        ("head", &["head"] as &[_]),
        ("config,index", &["config", "index"]),
        ("head%2Cstatus", &["head", "status"]),
        ("head,head", &["head"]),
        ("head,index,status,config", &["config", "head", "index", "status"]),
    ] {
        let record = service.get(&format!("/v1/records/mydb?concerns={asked}")).await.expect(200);
        let mut concerns = members(&record);
        concerns.retain(|name| ["head", "index", "status", "config"].contains(name));
        assert_eq!(concerns, shown, "{asked}");
        assert_eq!(record["address"], "mydb:main");
    }
    for (query, field) in
        [("concerns=heads", "concerns"), ("concerns=", "concerns"), ("concern=head", "concern"), ("a=1", "a")]
    {
        rejects(service.get(&format!("/v1/records/mydb?{query}")).await, "invalid-parameter", field);
    }
}

#[tokio::test]
async fn an_unknown_record_is_not_found_and_never_mistaken_for_an_unborn_or_retracted_one() {
    let service = Service::start().await;
    service.get("/v1/records/mydb").await.problem(404, "unknown-record");
    ledger(&service, "mydb").await;
    service.get("/v1/records/mydb:dev").await.problem(404, "unknown-record");
    assert_eq!(shown(&service, "mydb").await["head"], unborn());
    retract(&service, "mydb").await;
    assert_eq!(shown(&service, "mydb").await["retracted"], json!(true));
}

#[tokio::test]
async fn the_tag_names_the_representation_and_changes_with_it() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let path = "/v1/records/mydb";
    let tag_of = async |path: &str| service.get(path).await.header("etag").unwrap().to_owned();
    let tag = tag_of(path).await;
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2, "{tag}");
    assert_eq!(tag, tag_of(path).await);
    assert_ne!(tag, tag_of("/v1/records/mydb?concerns=config").await, "another representation");
    for tags in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let answer = get_if_changed(&service, path, &tags).await;
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.expect(304), Value::Null, "{tags}");
    }
    get_if_changed(&service, path, "\"x\"").await.expect(200);
    get_if_changed(&service, "/v1/records/nobody", "*").await.problem(404, "unknown-record");

    let config = tag_of("/v1/records/mydb?concerns=config").await;
    service.put("/v1/heads/mydb", json!({ "new": commit(1) })).await.expect(200);
    let answer = get_if_changed(&service, path, &tag).await;
    assert_ne!(answer.header("etag"), Some(tag.as_str()));
    answer.expect(200);
    // `updated_at` is part of every representation of the record.
    get_if_changed(&service, "/v1/records/mydb?concerns=config", &config).await.expect(200);
}

#[tokio::test]
async fn a_head_request_answers_without_a_body() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let answer = service.send(Method::HEAD, "/v1/records/mydb", &[], None).await;
    assert_eq!(answer.header("etag"), service.get("/v1/records/mydb").await.header("etag"));
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(answer.expect(200), Value::Null);
    let answer = service.send(Method::HEAD, "/v1/records/nobody", &[], None).await;
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(answer.expect(404), Value::Null);
}
