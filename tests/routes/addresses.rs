//! What an address may be, wherever one is sent (docs/specification.md, Words).

use super::*;

/// Every route with an address at its end.
const ROUTES: [(Method, &str); 15] = [
    (Method::GET, "/v1/records/"),
    (Method::DELETE, "/v1/records/"),
    (Method::PUT, "/v1/heads/"),
    (Method::PUT, "/v1/indexes/"),
    (Method::PUT, "/v1/statuses/"),
    (Method::PUT, "/v1/configs/"),
    (Method::PUT, "/v1/graph-sources/"),
    (Method::POST, "/v1/retractions/"),
    (Method::POST, "/v1/restorations/"),
    (Method::POST, "/v1/resets/"),
    (Method::PUT, "/v1/protections/"),
    (Method::GET, "/v1/branches/"),
    (Method::DELETE, "/v1/branches/"),
    (Method::GET, "/fluree/storage/ns/"),
    (Method::GET, "/v1/fluree/storage/ns/"),
];

/// Unusual names that an address may have.
const NAMES: [&str; 6] =
    ["tenant/team/db", "with some spaces", "größe", "日本語/データ", "🙂", "we!rd&=+,;$'()*~\"<>[]^`{|}"];

#[tokio::test]
async fn an_unusual_address_goes_through_every_route() {
    let service = Service::start().await;
    for name in NAMES {
        let address = format!("{name}:main");
        let answer = service.post("/v1/ledgers", json!({ "address": name, "head": commit(1) })).await;
        let location = answer.header("location").unwrap().to_owned();
        let created = answer.expect(201);
        assert_eq!((&created["address"], &created["name"]), (&json!(address), &json!(name)));
        assert_eq!(service.get(&location).await.expect(200), created, "{location}");

        let at = escaped(&address);
        let steps = [
            (Method::PUT, "heads", Some(json!({ "new": commit(2) })), 200),
            (Method::PUT, "indexes", Some(json!({ "new": root(1) })), 200),
            (
                Method::PUT,
                "statuses",
                Some(json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } })),
                200,
            ),
            (Method::PUT, "configs", Some(json!({ "expected": { "v": 0 }, "new": { "payload": {} } })), 200),
            (Method::POST, "retractions", None, 200),
            (Method::POST, "restorations", None, 200),
            (Method::PUT, "protections", Some(json!({ "protected": false })), 200),
            (Method::POST, "resets", Some(json!({ "head": commit(1), "index": unborn() })), 200),
        ];
        for (method, route, body, status) in steps {
            service.send(method, &format!("/v1/{route}/{at}"), &[], body).await.expect(status);
        }
        assert_eq!(branch(&service, name, name).await["branch"], json!(name));
        let branches = service.get(&format!("/v1/branches/{}", escaped(name))).await.expect(200);
        assert_eq!(branches["branches"].as_array().unwrap().len(), 2);
        source(&service, &format!("{name}:search"), &[name]).await;
        let rejected = service.delete(&format!("/v1/records/{at}")).await.problem(409, "has-dependents");
        assert_eq!(rejected["dependents"].as_array().unwrap().len(), 2);
        let listed = service.get(&format!("/v1/records?name={}", escaped(name))).await.expect(200);
        assert_eq!(addresses(&listed).len(), 3);
        let fluree = service.get(&format!("/fluree/storage/ns/{at}")).await.expect(200);
        assert_eq!(fluree["ledger_id"], json!(address));
        let commit = json!({ "expected": commit(1), "new": commit(2) });
        service.post(&format!("/fluree/nameservice/refs/{at}/commit"), commit).await.expect(200);
        service.delete(&format!("/v1/records/{}", escaped(&format!("{name}:search")))).await.expect(204);
        service.delete(&format!("/v1/branches/{}", escaped(&format!("{name}:{name}")))).await.expect(200);
        service.delete(&format!("/v1/records/{at}")).await.expect(204);
    }
    assert!(service.table.all_rows().await.is_empty());
}

#[tokio::test]
async fn a_path_may_be_escaped_or_not_and_a_plain_name_means_its_main_branch() {
    let service = Service::start().await;
    for address in ["tenant/mydb", "a+b", "größe"] {
        ledger(&service, address).await;
    }
    for (path, address) in [
        ("tenant/mydb", "tenant/mydb:main"),
        ("tenant/mydb:main", "tenant/mydb:main"),
        ("tenant%2Fmydb%3Amain", "tenant/mydb:main"),
        ("tenant%2fmydb%3amain", "tenant/mydb:main"),
        ("%74enant/mydb", "tenant/mydb:main"),
        ("a+b", "a+b:main"),
        ("a%2Bb", "a+b:main"),
        ("größe", "größe:main"),
        ("gr%C3%B6%C3%9Fe:main", "größe:main"),
    ] {
        let record = service.get(&format!("/v1/records/{path}")).await.expect(200);
        assert_eq!(record["address"], json!(address), "{path}");
    }
    service.get("/v1/records/a%20b").await.problem(404, "unknown-record");
    service.get("/v1/records/gr%C3%B6sse").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn what_is_no_address_is_rejected_in_every_path() {
    let service = Service::start().await;
    let long_branch = format!("mydb:{}", "b".repeat(129));
    let long = "n".repeat(996);
    let bad = [
        "a%25b",
        "a%2525b",
        "a%40b",
        "a%3Fb",
        "a%23b",
        "a%5Cb",
        "a:b:c",
        "a%3Ab%3Ac",
        "a%00b",
        "a%0Ab",
        "a%7Fb",
        "%20",
        "%20:main",
        "a:%20",
        ":main",
        "a:",
        "%3A",
        "/a",
        "a/",
        "a//b",
        "a%2F%2Fb",
        "./a",
        "a/.",
        "a/../b",
        "%2E%2E/b",
        "a:x/..",
        "%FF",
        "a%C3",
        &long_branch,
        &long,
    ];
    for (method, route) in ROUTES {
        for path in bad {
            let answer = service.send(method.clone(), &format!("{route}{path}"), &[], None).await;
            assert_eq!(answer.clone().problem(400, "invalid-address")["field"], "address", "{answer:?}");
        }
    }
    for path in bad {
        let answer = service.post(&format!("/fluree/nameservice/refs/{path}/init"), json!({})).await;
        answer.problem(400, "invalid-address");
    }
    assert!(service.table.proxy.take_requests().is_empty(), "none of them reaches the store");
}

#[tokio::test]
async fn what_is_no_address_is_rejected_in_every_body() {
    let service = Service::start().await;
    let long = "n".repeat(996);
    for bad in [
        "", " ", "a@b", "a%b", "a?b", "a#b", "a\\b", "a:b:c", "a\u{0}b", "a\nb", ":main", "a:", "a//b", "/a", "a/",
        ".", "../a", "a/./b", &long,
    ] {
        rejects(service.post("/v1/ledgers", json!({ "address": bad })).await, "invalid-address", "address");
        let body = json!({ "source_type": "t", "config": {}, "dependencies": [bad] });
        rejects(service.put("/v1/graph-sources/s", body).await, "invalid-address", "dependencies[0]");
        for field in ["name", "branch", "source"] {
            let mut body = json!({ "name": "n", "branch": "b", "source": "main" });
            body[field] = json!(bad);
            rejects(service.post("/v1/branches", body).await, "invalid-address", field);
        }
    }
    assert!(service.table.proxy.take_requests().is_empty(), "none of them reaches the store");
}

#[tokio::test]
async fn the_longest_address_is_taken() {
    let service = Service::start().await;
    for address in
        [format!("mydb:{}", "b".repeat(128)), format!("{}:main", "n".repeat(995)), format!("é{}:main", "n".repeat(993))]
    {
        born(&service, &address, 1).await;
        source(&service, "search", &[&address]).await;
        let rejected = service.delete(&format!("/v1/records/{address}")).await;
        // A path that is not escaped: the service takes UTF-8 as it is.
        assert_eq!(rejected.problem(409, "has-dependents")["dependents"], json!(["search:main"]));
        service.delete("/v1/records/search").await.expect(204);
    }
}
