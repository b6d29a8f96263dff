//! The functions that read the feed, with the archive behind it.

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt as _;
use nameservice_archive::Objects;
use nameservice_http::{App, Auth};
use tower::ServiceExt as _;

use super::*;

/// Deletes all rows of the feed up to a position, as DynamoDB does with expired ones.
async fn expire(table: &Table, up_to: u64) {
    let items = table.client.scan().table_name(table.feed.table()).into_paginator().items().send();
    for item in items.collect::<Result<Vec<_>, _>>().await.unwrap() {
        // A guard holds its position in an attribute; a segment has the position of its last change in its key.
        let position = match item.get("at") {
            Some(at) => at.as_n().unwrap().parse(),
            None => item["position"].as_s().unwrap().parse::<u64>(),
        };
        if position.is_ok_and(|position| position <= up_to) {
            let delete = table.client.delete_item().table_name(table.feed.table());
            let key = [("id", &item["id"]), ("position", &item["position"])];
            let key = key.map(|(name, value)| (name.to_owned(), value.clone()));
            delete.set_key(Some(key.into())).send().await.unwrap();
        }
    }
}

/// A freshly started function: its handler over the table and, if given, the archive, of which it has read nothing yet.
fn function(route: nameservice_http::Route, table: &Table, archive: Option<Archive>) -> Router {
    let feed: Arc<dyn ChangeFeed> = Arc::new(table.feed.clone());
    let feed = match archive {
        Some(archive) => Arc::new(LongFeed::new(feed, archive)),
        None => feed,
    };
    nameservice_http::service(Router::from(route), App::new(Arc::new(table.store.clone()), feed, Auth::Open))
}

async fn get(function: &Router, path: &str) -> (u16, Value) {
    let answer = function.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn members(page: &Value, name: &str) -> Vec<u64> {
    page["changes"].as_array().unwrap().iter().map(|change| change[name].as_u64().unwrap()).collect()
}

/// Reads a history page by page.
async fn history(function: &Router, order: &str) -> Vec<u64> {
    let (mut found, mut from) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/history/mydb?concern=head&limit=7&order={order}{from}");
        let (status, page) = get(function, &path).await;
        assert_eq!(status, 200, "{page}");
        found.extend(members(&page, "watermark"));
        let Some(position) = page["position"].as_u64() else { return found };
        from = format!("&{}={position}", if order == "newest" { "before" } else { "after" });
    }
}

#[tokio::test]
async fn bucket_and_feed_answer_as_one_where_the_feed_has_expired() {
    let (table, place) = (Table::with_stream().await, Place::new());
    drop(table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap());
    heads(&table, 1, 20).await;
    let archived = invoke(&table, &place.of_a_function()).await.position;
    heads(&table, 21, 30).await;
    expire(&table, archived).await;
    let end = table.feed.position().await.unwrap();
    assert!(archived < end);

    let old = function(change_list::route(), &table, None);
    let (status, problem) = get(&old, "/v1/changes").await;
    assert_eq!((status, problem["oldest"].as_u64()), (410, Some(archived + 1)), "{problem}");
    let list = function(change_list::route(), &table, Some(place.of_a_function()));
    let mut read = Vec::new();
    while read.last() != Some(&end) {
        let after = read.last().copied().unwrap_or(0);
        let (status, page) = get(&list, &format!("/v1/changes?after={after}&limit=9")).await;
        assert_eq!(status, 200, "{page}");
        read.extend(members(&page, "position"));
    }
    assert_eq!(read, (1..=end).collect::<Vec<_>>());

    let without = function(history_list::route(), &table, None);
    assert_eq!(history(&without, "oldest").await, (21..=30).collect::<Vec<_>>(), "the feed has forgotten");
    let with = function(history_list::route(), &table, Some(place.of_a_function()));
    let mut heads: Vec<u64> = (1..=30).collect();
    assert_eq!(history(&with, "oldest").await, heads);
    heads.reverse();
    assert_eq!(history(&with, "newest").await, heads);

    let stream = function(change_stream::route(), &table, Some(place.of_a_function()));
    let request = Request::get("/v1/events?after=0&concern=head").body(Body::empty()).unwrap();
    let mut body = stream.oneshot(request).await.unwrap().into_body();
    let (mut text, wanted) = (String::new(), format!("\nid: {end}\n"));
    while !text.contains(&wanted) {
        text.push_str(std::str::from_utf8(&body.frame().await.unwrap().unwrap().into_data().unwrap()).unwrap());
    }
    assert_eq!(text.matches("event: change\n").count(), 30, "{text}");
}

/// Releases differ in what they can read, and a row may be lost.
#[tokio::test]
async fn an_archive_goes_on_behind_a_payload_that_it_or_the_feed_has_not() {
    for lost_before in [true, false] {
        let (table, place) = (Table::with_stream().await, Place::new());
        drop(table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap());
        let push = cas(status(1, "ready"), status_with(2, "busy", json!({ "text": "x".repeat(2_000) })));
        table.store.push_status(&Call::fresh(), &at("mydb"), &push).await.unwrap().applied();
        pump(&table).await;
        let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap().items.unwrap();
        let large = rows.into_iter().find(|row| row["id"].as_s().unwrap().starts_with("payload#")).unwrap();
        let key = ["id", "position"].map(|name| (name.to_owned(), large[name].clone()));
        let lose = table.client.delete_item().table_name(table.feed.table()).set_key(Some(key.into()));
        if lost_before {
            lose.clone().send().await.unwrap();
        }
        let archived = invoke(&table, &place.of_a_function()).await.position;
        match lost_before {
            true => {
                drop(table.client.put_item().table_name(table.feed.table()).set_item(Some(large)).send().await.unwrap())
            }
            false => drop(lose.send().await.unwrap()),
        }
        heads(&table, 1, 3).await;
        assert_eq!(invoke(&table, &place.of_a_function()).await.position, archived + 3);
    }
}

/// The S3 client of functions against the `object_store` of everything else, in the same bucket.
#[tokio::test]
async fn bucket_of_a_function_is_the_bucket_of_others() {
    let Some(endpoint) = endpoint() else { return };
    let (ours, theirs) = (of_a_function(&endpoint, BUCKET), of_others(&endpoint));
    let folder = format!("archives/{}/a b+c&d=é%41", uuid::Uuid::new_v4());
    let key = |n: usize| format!("{folder}/{n:04}.jsonl");
    // More than one page of a list.
    let keys: Vec<String> = (0..1_003).map(key).collect();
    for (n, key) in keys.iter().enumerate() {
        let writer: &dyn Objects = if n % 100 == 0 { &ours } else { &theirs };
        assert!(writer.create(key, format!("{n}\n").into_bytes()).await.unwrap(), "{key}");
    }
    for (one, other) in [(&ours as &dyn Objects, &theirs as &dyn Objects), (&theirs, &ours)] {
        let mut listed = one.list(&folder, None).await.unwrap();
        listed.sort();
        assert_eq!(listed, keys);
        let mut listed = one.list(&folder, Some(&keys[1_001])).await.unwrap();
        listed.sort();
        assert_eq!(listed, keys[1_002..]);
        for n in [0, 1, 1_002] {
            assert_eq!(one.get(&keys[n]).await.unwrap(), Some(format!("{n}\n").into_bytes()));
            assert!(!one.create(&keys[n], b"other".to_vec()).await.unwrap(), "it is there");
            assert_eq!(other.get(&keys[n]).await.unwrap(), Some(format!("{n}\n").into_bytes()), "it is unchanged");
        }
        assert_eq!(one.get(&key(2_000)).await.unwrap(), None);
    }
    let missing = of_a_function(&endpoint, "no-such-bucket");
    for error in [
        missing.list(&folder, None).await.unwrap_err(),
        missing.get(&keys[0]).await.unwrap_err(),
        missing.create(&keys[0], Vec::new()).await.unwrap_err(),
    ] {
        let text = chain(&error);
        assert!(text.contains("s3://no-such-bucket") && text.contains("404 NoSuchBucket"), "{text}");
    }
}
