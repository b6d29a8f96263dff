use std::{collections::BTreeMap, time::Duration};

use nameservice_tests::pump::{pump, pump_into};

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
async fn a_prefix_selects_the_records_whose_addresses_begin_with_it_on_every_page() {
    let service = Service::start().await;
    for name in ["tenant/a", "tenant/b", "tenant", "other"] {
        ledger(&service, name).await;
    }
    source(&service, "tenant/search", &[]).await;
    for limit in [1, 2, 10] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        for _ in 0..10 {
            let page = service.get(&format!("/v1/snapshot?prefix=tenant/&limit={limit}{cursor}")).await.expect(200);
            seen.extend(addresses(&page).into_iter().map(str::to_owned));
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        seen.sort_unstable();
        assert_eq!(seen, ["tenant/a:main", "tenant/b:main", "tenant/search:main"], "{limit}");
    }
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = Service::start().await;
    for (query, field) in [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("view=full", "view")] {
        rejects(service.get(&format!("/v1/snapshot?{query}")).await, "invalid-parameter", field);
    }
}

/// What a client keeps: the watermarks that it knows of each address.
#[derive(Default)]
struct Reader {
    known: BTreeMap<(String, String), i64>,
}

impl Reader {
    /// Starts over from a snapshot, page by page. `between` runs between every two pages.
    async fn begin(service: &Service, mut between: impl AsyncFnMut()) -> (Self, u64) {
        let (mut reader, mut cursor) = (Self::default(), String::new());
        loop {
            let page = service.get(&format!("/v1/snapshot?limit=1{cursor}")).await.expect(200);
            for record in page["records"].as_array().unwrap() {
                reader.takes_record(record);
            }
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (reader, page["position"].as_u64().unwrap()),
            }
            between().await;
        }
    }

    fn takes_record(&mut self, record: &Value) {
        let address = record["address"].as_str().unwrap();
        for (concern, watermark) in [("head", "t"), ("index", "t"), ("status", "v"), ("config", "v")] {
            if let Some(watermark) = record[concern][watermark].as_i64() {
                self.known.insert((address.to_owned(), concern.to_owned()), watermark);
            }
        }
    }

    /// Follows the feed to its end.
    async fn follow(&mut self, service: &Service, mut position: u64) {
        loop {
            let page = service.get(&format!("/v1/changes?limit=3&after={position}")).await.expect(200);
            for change in page["changes"].as_array().unwrap() {
                let text = |name: &str| change[name].as_str().unwrap().to_owned();
                if text("concern") == "meta" {
                    continue;
                }
                let of = (text("address"), text("concern"));
                match change["change"] == "purged" {
                    true => self.known.remove(&of),
                    false => self.known.insert(of, change["watermark"].as_i64().unwrap()),
                };
            }
            match page["position"].as_u64().unwrap() {
                same if same == position => return,
                moved => position = moved,
            }
        }
    }
}

#[tokio::test]
async fn a_reader_that_came_too_late_begins_again_and_misses_nothing() {
    let service = Service::with_stream().await;
    for name in ["a", "b", "c", "d", "gone"] {
        born(&service, name, 1).await;
    }
    // All of this expires before the reader comes.
    let expiring = service.table.feed.clone().with_retention(Duration::ZERO);
    pump_into(&service.table, &expiring).await;
    let gone = service.get("/v1/changes?after=0").await.problem(410, "expired");
    let oldest = gone["oldest"].as_u64().unwrap();

    // While it reads the snapshot, everything moves, before and behind the page that it is at.
    let mut t = 1;
    let (mut reader, position) = Reader::begin(&service, async || {
        t += 1;
        for name in ["a", "b", "c", "d"] {
            service.put(&format!("/v1/heads/{name}"), json!({ "new": commit(t) })).await.expect(200);
        }
        match t {
            2 => drop(ledger(&service, "new").await),
            3 => drop(service.put("/v1/indexes/b", json!({ "new": root(2) })).await.expect(200)),
            4 => drop(service.delete("/v1/records/gone").await.expect(204)),
            _ => {}
        }
        pump(&service.table).await;
    })
    .await;
    assert!(t > 4, "{t}");
    assert_eq!(position + 1, oldest, "the feed begins where the snapshot does");
    reader.follow(&service, position).await;

    let mut now = Reader::default();
    for record in service.get("/v1/snapshot").await.expect(200)["records"].as_array().unwrap() {
        now.takes_record(record);
    }
    assert_eq!(now.known[&("a:main".to_owned(), "head".to_owned())], t);
    // Unborn concerns have no change: a creation is reported with what it sets.
    let born = |known: BTreeMap<_, i64>| known.into_iter().filter(|(_, watermark)| *watermark > 0).collect::<Vec<_>>();
    assert_eq!(born(reader.known), born(now.known));
}

/// Fluree creates this table and not the feed's: its records can be read all the same.
#[tokio::test]
async fn without_a_feed_the_position_is_where_one_will_begin() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    service.table.client.delete_table().table_name(service.table.feed.table()).send().await.unwrap();
    let page = service.get("/v1/snapshot").await.expect(200);
    assert_eq!((page["position"].as_u64(), addresses(&page)), (Some(0), vec!["mydb:main"]));
}
