use std::time::Duration;

use nameservice_tests::pump::pump;

use super::{
    authorization::{as_, get_as, guarded, narrow, scope},
    *,
};

async fn history(service: &Service, path: &str) -> Value {
    service.get(&format!("/v1/history/{path}")).await.expect(200)
}

/// `concern change watermark` of each.
fn summary(page: &Value) -> Vec<String> {
    let text = |change: &Value, name: &str| change[name].as_str().unwrap().to_owned();
    let changes = page["changes"].as_array().unwrap().iter();
    changes.map(|c| format!("{} {} {}", text(c, "concern"), text(c, "change"), c["watermark"])).collect()
}

#[tokio::test]
async fn the_changes_of_one_record_come_oldest_first() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    born(&service, "books", 1).await;
    for t in 2..=4 {
        service.put("/v1/heads/mydb", json!({ "new": commit(t) })).await.expect(200);
        service.put("/v1/heads/books", json!({ "new": commit(t) })).await.expect(200);
        service.put("/v1/indexes/mydb", json!({ "new": root(t) })).await.expect(200);
    }
    pump(&service.table).await;
    let whole = history(&service, "mydb").await;
    assert_eq!(members(&whole), ["changes"], "no position at the end");
    let feed = service.get("/v1/changes?address=mydb&limit=1000").await.expect(200);
    assert_eq!(whole["changes"], feed["changes"]);
    assert_eq!(history(&service, &escaped("mydb:main")).await, whole);

    let heads = history(&service, "mydb:main?concern=head").await;
    assert_eq!(summary(&heads), ["head created 1", "head updated 2", "head updated 3", "head updated 4"]);
    let second = &heads["changes"][1];
    let after = history(&service, &format!("mydb?concern=head&after={}", second["position"])).await;
    assert_eq!(summary(&after), ["head updated 3", "head updated 4"]);

    for (query, expected) in [("", &whole), ("concern=head&", &heads), ("concern=index&", &json!(null))] {
        for limit in [1, 2, 3, 50] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            for _ in 0..30 {
                let page = history(&service, &format!("mydb?{query}limit={limit}{after}")).await;
                let changes = page["changes"].as_array().unwrap();
                assert!(changes.len() <= limit);
                seen.extend(changes.iter().cloned());
                let Some(position) = page["position"].as_u64() else { break };
                assert_eq!(changes.last().map(|last| &last["position"]), Some(&json!(position)));
                after = format!("&after={position}");
            }
            match expected.is_null() {
                true => assert_eq!(summary(&json!({ "changes": seen }))[..2], ["index created 2", "index updated 3"]),
                false => assert_eq!(json!(seen), expected["changes"], "{query}{limit}"),
            }
        }
    }
}

#[tokio::test]
async fn the_newest_change_comes_first_where_that_is_asked_for() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    for t in 2..=4 {
        service.put("/v1/heads/mydb", json!({ "new": commit(t) })).await.expect(200);
    }
    pump(&service.table).await;
    let mut whole = history(&service, "mydb").await["changes"].as_array().unwrap().clone();
    whole.reverse();
    for limit in [1, 2, 50] {
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let page = history(&service, &format!("mydb?order=newest&limit={limit}{before}")).await;
            seen.extend(page["changes"].as_array().unwrap().iter().cloned());
            let Some(position) = page["position"].as_u64() else { break };
            before = format!("&before={position}");
        }
        assert_eq!(seen, whole, "in pages of {limit}");
    }
    let heads = history(&service, "mydb?concern=head&order=newest&limit=2").await;
    assert_eq!(summary(&heads), ["head updated 4", "head updated 3"]);
    service.get("/v1/history/mydb?order=sideways").await.problem(400, "invalid-parameter");
}

#[tokio::test]
async fn a_purged_record_keeps_its_history_and_an_unknown_one_has_none() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    // The stream has not been consumed yet: there is no history, but there is the record.
    assert_eq!(history(&service, "mydb").await, json!({ "changes": [] }));
    service.delete("/v1/records/mydb").await.expect(204);
    service.get("/v1/history/mydb").await.problem(404, "unknown-record");
    pump(&service.table).await;
    let whole = history(&service, "mydb").await;
    assert!(summary(&whole).contains(&"meta purged 0".to_owned()), "{whole:#}");
    assert!(summary(&whole).contains(&"head created 1".to_owned()), "{whole:#}");
    // The record is known by its history even where the part that is asked for is empty.
    let last = whole["changes"].as_array().unwrap().last().unwrap()["position"].clone();
    assert_eq!(history(&service, &format!("mydb?after={last}")).await, json!({ "changes": [] }));
    assert_eq!(history(&service, &format!("mydb?after={}", u64::MAX)).await, json!({ "changes": [] }));
    service.get("/v1/history/nobody").await.problem(404, "unknown-record");
    service.get("/v1/history/mydb:dev?concern=head").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn what_has_expired_is_not_reported() {
    let service = Service::with_stream().await;
    ledger(&service, "mydb").await;
    let expiring = service.table.feed.clone().with_retention(Duration::ZERO);
    nameservice_tests::pump::pump_into(&service.table, &expiring).await;
    assert_eq!(history(&service, "mydb").await, json!({ "changes": [] }));
    service.put("/v1/heads/mydb", json!({ "new": commit(1) })).await.expect(200);
    pump(&service.table).await;
    assert_eq!(summary(&history(&service, "mydb").await), ["head created 1"]);
}

#[tokio::test]
async fn the_history_of_a_record_that_a_caller_may_not_see_is_that_of_an_unknown_one() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    for name in ["hidden", "mine"] {
        as_(&service, &admin, Method::POST, "/v1/ledgers", Some(json!({ "address": name }))).await.expect(201);
    }
    pump(&service.table).await;
    let caller = narrow("nameservice:read", json!(["mine"]));
    let hidden = get_as(&service, &caller, "/v1/history/hidden").await.problem(404, "unknown-record");
    let unknown = get_as(&service, &caller, "/v1/history/nobody").await.problem(404, "unknown-record");
    assert_eq!(hidden.to_string().replace("hidden", "nobody"), unknown.to_string());
    let seen = get_as(&service, &caller, "/v1/history/mine").await.expect(200);
    assert!(!seen["changes"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = Service::start().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("after=-1", "after"),
        ("concern=commit", "concern"),
        ("concern=head&concern=index", "concern"),
        ("wait=1", "wait"),
    ] {
        rejects(service.get(&format!("/v1/history/mydb?{query}")).await, "invalid-parameter", field);
    }
    service.get("/v1/history/a:b:c").await.problem(400, "invalid-address");
}
