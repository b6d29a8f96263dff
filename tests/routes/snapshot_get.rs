use super::*;

#[tokio::test]
async fn a_snapshot_holds_every_record_whole_and_a_position() {
    let service = Service::start().await;
    let empty = service.get("/v1/snapshot").await.expect(200);
    assert_eq!(members(&empty), ["position", "records"]);
    assert_eq!(empty["records"], json!([]));
    assert!(empty["position"].is_u64());
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    source(&service, "search", &["mydb"]).await;
    retract(&service, "mydb:dev").await;
    let page = service.get("/v1/snapshot").await.expect(200);
    let mut found = addresses(&page);
    found.sort_unstable();
    assert_eq!(found, ["mydb:dev", "mydb:main", "search:main"]);
    for record in page["records"].as_array().unwrap() {
        assert_eq!(record, &shown(&service, record["address"].as_str().unwrap()).await);
    }
}

#[tokio::test]
async fn its_pages_hold_every_record_once_and_share_one_position() {
    let service = Service::start().await;
    let names = ["a", "b", "c/d", "e e", "é"];
    for name in names {
        ledger(&service, name).await;
    }
    source(&service, "search", &[]).await;
    for limit in [1, 2, 4, 6] {
        let (mut seen, mut positions, mut cursor) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..10 {
            let page = service.get(&format!("/v1/snapshot?limit={limit}{cursor}")).await.expect(200);
            assert!(addresses(&page).len() <= limit);
            seen.extend(addresses(&page).into_iter().map(str::to_owned));
            positions.push(page["position"].clone());
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        seen.sort_unstable();
        assert_eq!(seen, ["a:main", "b:main", "c/d:main", "e e:main", "search:main", "é:main"], "{limit}");
        positions.dedup();
        assert_eq!(positions.len(), 1, "{limit}");
    }
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = Service::start().await;
    for (query, field) in [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("view=full", "view")] {
        refuses(service.get(&format!("/v1/snapshot?{query}")).await, "invalid-parameter", field);
    }
}
