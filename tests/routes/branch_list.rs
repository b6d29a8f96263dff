use super::*;

fn names(page: &Value) -> Vec<&str> {
    page["branches"].as_array().unwrap().iter().map(|record| record["branch"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_branches_of_a_name_are_listed_whole_and_none_of_another() {
    let service = Service::start().await;
    for name in ["mydb", "mydb2", "my", "mydb/x"] {
        born(&service, name, 1).await;
        branch(&service, name, "dev").await;
    }
    let page = service.get("/v1/branches/mydb").await.expect(200);
    assert_eq!(members(&page), ["branches"]);
    assert_eq!(names(&page), ["dev", "main"]);
    assert_eq!(page["branches"][0], shown(&service, "mydb:dev").await);
    assert_eq!(names(&service.get("/v1/branches/mydb/x").await.expect(200)), ["dev", "main"]);
    assert_eq!(names(&service.get("/v1/branches/mydb%2Fx").await.expect(200)), ["dev", "main"]);
}

#[tokio::test]
async fn the_list_continues_after_the_page() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for name in ["a", "b", "z"] {
        branch(&service, "mydb", name).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/branches/mydb?limit=2".to_owned());
    loop {
        let page = service.get(&path).await.expect(200);
        assert!(names(&page).len() <= 2);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["cursor"].as_str() else { break };
        path = format!("/v1/branches/mydb?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["a", "b", "main", "z"]);
}

#[tokio::test]
async fn a_name_without_ledgers_is_unknown_and_an_address_is_no_name() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    for name in ["nobody", "search"] {
        service.get(&format!("/v1/branches/{name}")).await.problem(404, "unknown-record");
    }
    rejects(service.get("/v1/branches/mydb:main").await, "invalid-address", "address");
    for (query, kind, field) in [
        ("limit=0", "invalid-parameter", "limit"),
        ("limit=1001", "invalid-parameter", "limit"),
        ("limit=-1", "invalid-parameter", "limit"),
        ("cursor=x", "invalid-cursor", "cursor"),
        ("kind=ledger", "invalid-parameter", "kind"),
    ] {
        rejects(service.get(&format!("/v1/branches/mydb?{query}")).await, kind, field);
    }
}
