use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::extract::FromRef as _;
use jiff::Timestamp;
use nameservice_feed::Entry;
use nameservice_http::hub::Hub;
use nameservice_store::Difference;
use nameservice_tests::{LONG, pump::pump};
use tokio::time::timeout;

use super::{
    authorization::{get_as, guarded, narrow, scope},
    *,
};

/// Lists changes, once the stream has been consumed.
async fn list(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/changes?{query}")).await.expect(200)
}

/// All of the feed, in pages of the default size.
async fn all(service: &Service, query: &str) -> Vec<Value> {
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = list(service, &format!("{query}&after={after}")).await;
        seen.extend(page["changes"].as_array().unwrap().iter().cloned());
        match page["position"].as_u64().unwrap() {
            position if position == after => return seen,
            position => after = position,
        }
    }
}

/// `address concern change watermark` of each.
fn reported(changes: &[Value]) -> Vec<String> {
    let text = |change: &Value, name: &str| change[name].as_str().unwrap().to_owned();
    changes
        .iter()
        .map(|change| {
            let [address, concern, how] = ["address", "concern", "change"].map(|name| text(change, name));
            format!("{address} {concern} {how} {}", change["watermark"])
        })
        .collect()
}

/// Two ledgers, a branch, a graph source, pushes of each concern, all of it in the feed.
async fn furnished() -> Service {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    branch(&service, "mydb", "dev").await;
    ledger(&service, "books").await;
    source(&service, "search", &["mydb"]).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(2) })).await.expect(200);
    service.put("/v1/heads/mydb:dev", json!({ "new": commit(3) })).await.expect(200);
    service.put("/v1/indexes/search", json!({ "new": root(2) })).await.expect(200);
    pump(&service.table).await;
    service
}

/// Changes of heads, one a ledger, as a consumer would append them.
fn entries(from: u64, count: u64, payload: &Value) -> Vec<Entry> {
    (from..from + count)
        .map(|n| Entry {
            event_id: format!("event-{n}"),
            sequence_number: n.to_string(),
            difference: Difference {
                address: at(&format!("db{n}")),
                part: ChangedPart::Concern(ConcernKind::Status),
                kind: ChangeKind::Updated,
                watermark: 2,
                previous: Some(1),
                payload: ChangePayload::Value(payload.clone()),
                occurred_at: Timestamp::UNIX_EPOCH,
            },
            identity: Identity { kind: RecordKind::Ledger, source_type: None },
        })
        .collect()
}

async fn append(service: &Service, entries: &[Entry]) {
    let table: &Table = &service.table;
    let appended = table.feed.append(entries).await;
    assert!(appended.error.is_none(), "{appended:?}");
}

#[tokio::test]
async fn changes_follow_a_position_in_the_order_of_commits_each_once() {
    let service = Service::with_stream().await;
    let empty = service.get("/v1/changes").await;
    assert_eq!(empty.header("cache-control"), Some("no-store"));
    assert_eq!(empty.expect(200), json!({ "changes": [], "position": 0 }));
    born(&service, "mydb", 1).await;
    pump(&service.table).await;
    let created = list(&service, "after=0").await;
    let before = created["position"].as_u64().unwrap();
    assert!(
        reported(created["changes"].as_array().unwrap()).contains(&"mydb:main head created 1".to_owned()),
        "{created:#}"
    );
    assert!(
        reported(created["changes"].as_array().unwrap()).contains(&"mydb:main meta created 0".to_owned()),
        "{created:#}"
    );

    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    service.put("/v1/indexes/mydb", json!({ "new": root(2) })).await.expect(200);
    service.put("/v1/heads/mydb", json!({ "new": commit(3) })).await.expect(200);
    retract(&service, "mydb").await;
    // What was delivered before is delivered again, and is not reported again.
    pump(&service.table).await;
    pump(&service.table).await;
    let page = list(&service, &format!("after={before}")).await;
    let changes = page["changes"].as_array().unwrap();
    let positions: Vec<_> = changes.iter().map(|change| change["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (before + 1..=page["position"].as_u64().unwrap()).collect::<Vec<_>>());
    let reported = reported(changes);
    assert_eq!(reported[..3], ["mydb:main head updated 2", "mydb:main index created 2", "mydb:main head updated 3"]);
    assert!(reported[3..].contains(&"mydb:main meta retracted 0".to_owned()), "{reported:?}");

    let mut change = changes[0].clone();
    for time in ["occurred_at", "recorded_at"] {
        let time: Timestamp = change.as_object_mut().unwrap().remove(time).unwrap().as_str().unwrap().parse().unwrap();
        assert!((Timestamp::now().as_second() - time.as_second()).abs() < 3_600, "{time}");
    }
    let expected = json!({
        "position": before + 1, "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main",
        "concern": "head", "change": "updated", "watermark": 2, "previous": 1, "payload": commit(2),
    });
    assert_eq!(change, expected);
    let end = page["position"].clone();
    assert_eq!(list(&service, &format!("after={end}")).await, json!({ "changes": [], "position": end }));
}

#[tokio::test]
async fn pages_of_any_limit_hold_every_change_once() {
    let service = furnished().await;
    let whole = all(&service, "").await;
    assert!(whole.len() > 10, "{whole:?}");
    for (i, change) in whole.iter().enumerate() {
        assert_eq!(change["position"], i + 1);
    }
    for query in ["limit=1", "limit=2", "limit=7", "limit=1000"] {
        assert_eq!(all(&service, query).await, whole, "{query}");
    }
    let first = list(&service, "limit=3").await;
    assert_eq!(first, json!({ "changes": whole[..3], "position": 3 }), "an unfiltered page ends at its last change");
}

#[tokio::test]
async fn filters_leave_changes_out_and_the_position_still_moves_to_the_end() {
    let service = furnished().await;
    let whole = all(&service, "").await;
    let of =
        |wanted: &dyn Fn(&Value) -> bool| whole.iter().filter(|change| wanted(change)).cloned().collect::<Vec<_>>();
    let is = |name: &'static str, value: &'static str| move |change: &Value| change[name] == value;
    let cases: Vec<(&str, Vec<Value>)> = vec![
        ("address=mydb", of(&is("address", "mydb:main"))),
        ("address=mydb:main", of(&is("address", "mydb:main"))),
        ("address=mydb%3A*", of(&is("name", "mydb"))),
        ("address=*:dev&address=books", of(&|c| c["address"] == "mydb:dev" || c["address"] == "books:main")),
        ("address=*", whole.clone()),
        ("address=nobody", Vec::new()),
        ("kind=graph_source", of(&is("kind", "graph_source"))),
        ("kind=ledger", of(&is("kind", "ledger"))),
        ("source_type=f:Bm25Index", of(&is("source_type", "f:Bm25Index"))),
        ("source_type=f:HnswIndex", Vec::new()),
        ("prefix=my", of(&is("name", "mydb"))),
        ("prefix=mydb:d", of(&is("address", "mydb:dev"))),
        ("prefix=mydb&address=*:dev", of(&is("address", "mydb:dev"))),
        ("prefix=books&address=mydb", Vec::new()),
        ("concern=index", of(&is("concern", "index"))),
        ("concern=head,index", of(&|c| c["concern"] == "head" || c["concern"] == "index")),
        ("concern=head&concern=index", of(&|c| c["concern"] == "head" || c["concern"] == "index")),
        ("concern=index&kind=ledger&address=mydb:*", of(&|c| c["concern"] == "index" && c["name"] == "mydb")),
        ("concern=head&kind=graph_source", Vec::new()),
    ];
    for (query, expected) in cases {
        assert!(expected.len() < whole.len() || query == "address=*", "{query}");
        for limit in ["", "&limit=1", "&limit=2"] {
            assert_eq!(all(&service, &format!("{query}{limit}")).await, expected, "{query}{limit}");
        }
        let (mut position, end) = (0, whole.len() as u64);
        while position < end {
            let page = list(&service, &format!("{query}&after={position}")).await;
            assert!(page["position"].as_u64().unwrap() > position, "{query}: {page}");
            position = page["position"].as_u64().unwrap();
        }
        assert_eq!(position, end, "{query}");
    }
    let heads = all(&service, "concern=head").await;
    assert!(reported(&heads).contains(&"mydb:dev head updated 3".to_owned()), "{heads:?}");
}

#[tokio::test]
async fn one_request_looks_through_a_bounded_part_of_the_feed() {
    let service = Service::start().await;
    append(&service, &entries(1, 4_100, &json!({}))).await;
    let looked_for = "address=db4100&limit=1";
    service.table.proxy.take_requests();
    let page = list(&service, looked_for).await;
    assert_eq!(page["changes"], json!([]));
    let position = page["position"].as_u64().unwrap();
    assert_eq!(position, 4_001, "one, as long as all might be wanted, then four times a thousand");
    let requests = service.table.proxy.take_requests();
    assert_eq!(requests.len(), 10, "{requests:#?}");
    let page = list(&service, &format!("{looked_for}&after={position}&wait=20")).await;
    assert_eq!(page["changes"][0]["address"], "db4100:main");
    assert_eq!(page["position"], 4_100);
}

#[tokio::test]
async fn large_changes_come_in_answers_of_bounded_size_and_none_is_missed() {
    let service = Service::start().await;
    let payload = json!({ "state": "x".repeat(15_000) });
    append(&service, &entries(1, 340, &payload)).await;
    let (mut seen, mut after) = (0, 0);
    for _ in 0..20 {
        let answer = service.get(&format!("/v1/changes?limit=1000&after={after}")).await;
        let bytes: usize = answer.header("content-length").unwrap().parse().unwrap();
        assert!(bytes <= 4 * 1024 * 1024, "{bytes}");
        let page = answer.expect(200);
        for change in page["changes"].as_array().unwrap() {
            seen += 1;
            assert_eq!(change["position"], seen);
            assert_eq!(change["payload"], payload);
        }
        assert_eq!(page["position"], seen);
        after = seen;
    }
    assert_eq!(seen, 340);
}

/// Writes, and returns what a poll of twenty seconds is answered with, which is early: before one of fifteen for something else is over
/// that begins after the last write. `None`: the machine stalled until the poll was over.
async fn early(
    service: &Service,
    poll: impl Future<Output = Value>,
    writing: impl Future<Output = ()>,
) -> Option<Value> {
    let begun = Instant::now();
    let late = async {
        writing.await;
        list(service, "address=nobody&wait=15").await
    };
    let page = tokio::select! {
        biased;
        page = poll => page,
        nothing = late => panic!("it waits for the end of its time: {nothing}"),
    };
    if page["changes"] == json!([]) {
        assert!(begun.elapsed() >= Duration::from_secs(20), "it has ended before its time, with nothing: {page}");
        return None;
    }
    Some(page)
}

#[tokio::test]
async fn a_long_poll_is_answered_when_something_wanted_follows_and_not_before() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    let (begun, mut t) = (Instant::now(), 1);
    while begun.elapsed() < LONG {
        t += 1;
        pump(&service.table).await;
        let position = list(&service, "").await["position"].clone();
        let wanted = format!("after={position}&wait=20&concern=head&address=mydb");
        let writing = async {
            // An unwanted change moves the feed and ends no wait but that of another poll.
            ledger(&service, &format!("books{t}")).await;
            pump(&service.table).await;
            assert_ne!(list(&service, &format!("after={position}&wait=20")).await["changes"], json!([]));
            service.put("/v1/heads/mydb", json!({ "new": commit(t) })).await.expect(200);
            pump(&service.table).await;
        };
        if let Some(page) = early(&service, list(&service, &wanted), writing).await {
            assert_eq!(reported(page["changes"].as_array().unwrap()), [format!("mydb:main head updated {t}")]);
            assert_eq!(page["position"], page["changes"][0]["position"]);
            return;
        }
    }
    panic!("{t} polls were over before they were answered");
}

#[tokio::test]
async fn a_long_poll_without_anything_wanted_ends_with_the_position_that_it_has_seen() {
    let service = Service::with_stream().await;
    ledger(&service, "mydb").await;
    pump(&service.table).await;
    let end = list(&service, "").await["position"].clone();
    for query in ["address=nobody&wait=1".to_owned(), format!("after={end}&wait=1")] {
        let begun = Instant::now();
        assert_eq!(list(&service, &query).await, json!({ "changes": [], "position": end }), "{query}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{query}");
    }
    // What follows already is returned immediately.
    assert!(early(&service, list(&service, "wait=20"), async {}).await.is_some());
}

#[tokio::test]
async fn a_position_that_the_feed_has_not_given_or_no_longer_holds_is_gone() {
    let service = Service::start().await;
    for after in ["1", "99", &u64::MAX.to_string()] {
        let ahead = service.get(&format!("/v1/changes?after={after}&wait=20")).await.problem(410, "position-ahead");
        assert_eq!(ahead["position"], 0, "{after}");
    }
    let expiring = service.table.feed.clone().with_retention(Duration::ZERO);
    assert!(expiring.append(&entries(1, 60, &json!({}))).await.error.is_none());
    append(&service, &entries(61, 3, &json!({}))).await;
    for query in ["after=0", "after=1", "after=48", "after=59&wait=20", "after=7&address=nobody"] {
        let gone = service.get(&format!("/v1/changes?{query}")).await.problem(410, "expired");
        assert_eq!(gone["oldest"], 61, "{query}");
        assert!(gone["detail"].as_str().unwrap().contains("/v1/snapshot"), "{gone}");
    }
    let page = list(&service, "after=60").await;
    assert_eq!((page["changes"].as_array().unwrap().len(), &page["position"]), (3, &json!(63)));
    service.table.feed.begin_epoch().await.unwrap();
    service.get("/v1/changes?after=60").await.problem(410, "expired");
}

#[tokio::test]
async fn what_a_caller_may_not_see_is_left_out_and_passed_over() {
    let service = guarded().await;
    let admin = scope("nameservice:admin");
    for (i, name) in ["hidden", "mine", "tenant/x", "tenant/x:hidden", "zz"].into_iter().enumerate() {
        let id = Identity { kind: RecordKind::Ledger, source_type: None };
        let mut entry = entries(i as u64, 1, &json!({})).remove(0);
        entry.difference.address = at(name);
        append(&service, &[Entry { identity: id, ..entry }]).await;
    }
    let caller = narrow("nameservice:read", json!(["mine", "tenant/*:main"]));
    for query in ["", "address=*&", "kind=ledger&"] {
        let page = get_as(&service, &caller, &format!("/v1/changes?{query}after=0")).await.expect(200);
        let seen: Vec<_> = page["changes"].as_array().unwrap().iter().map(|change| &change["address"]).collect();
        assert_eq!(seen, ["mine:main", "tenant/x:main"], "{query}");
    }
    let hidden = get_as(&service, &caller, "/v1/changes?address=hidden").await.expect(200);
    assert_eq!(hidden, json!({ "changes": [], "position": 5 }));
    let everything = get_as(&service, &admin, "/v1/changes").await.expect(200);
    assert_eq!(everything["changes"].as_array().unwrap().len(), 5);
    get_as(&service, &scope("openid"), "/v1/changes").await.problem(403, "insufficient-scope");
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = Service::start().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("wait=21", "wait"),
        ("wait=-1", "wait"),
        ("wait=1.5", "wait"),
        ("after=-1", "after"),
        ("after=x", "after"),
        ("after=18446744073709551616", "after"),
        ("after=1&after=2", "after"),
        ("kind=graph-source", "kind"),
        ("concern=commit", "concern"),
        ("concern=head,commit", "concern"),
        ("address=a*:b:c", "address"),
        ("address=a@*", "address"),
        ("address=a:b:c", "address"),
        ("address=mydb&address=", "address"),
        ("addresses=mydb", "addresses"),
        ("prefix=", "prefix"),
        ("source_type=a&source_type=b", "source_type"),
    ] {
        rejects(service.get(&format!("/v1/changes?{query}")).await, "invalid-parameter", field);
    }
    assert!(service.table.proxy.take_requests().is_empty(), "nothing of it reaches the store");
}

#[tokio::test]
async fn a_long_poll_ends_with_what_there_is_when_the_service_stops() {
    let table = Table::fresh().await;
    let listener = nameservice_cli::serve::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let auth = nameservice_http::Auth::Open;
    let app = nameservice_http::App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), auth);
    let hub = Hub::from_ref(&app);
    let service = nameservice_cli::serve::start(listener, app, None).unwrap();
    let client = nameservice_tests::service::client();
    #[expect(clippy::async_yields_async, reason = "the poll is answered when the service stops")]
    let waits = async {
        loop {
            let request = Request::builder().uri(format!("{}/v1/changes?wait=20", service.url()));
            let asked = tokio::spawn(client.request(request.body(Full::<Bytes>::default()).unwrap()));
            while hub.subscribers() == 0 && !asked.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !asked.is_finished() {
                break asked;
            }
            // A busy machine may have found it only once its time was over: then it asks again.
            asked.await.unwrap().unwrap();
        }
    };
    let asked = timeout(LONG, waits).await.expect("the poll waits for a change");
    service.stop().await;
    let answer = asked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({ "changes": [], "position": 0 }));
}
