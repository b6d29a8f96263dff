//! `serve --legacy`: the records of older places, taken over when they are first written; and what such places hold.

use std::{collections::BTreeSet, fs, path::Path, thread};

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest, ScalarAttributeType,
        WriteRequest,
    },
};
use serde_json::{Value, json};

use super::{Engine, ID, OTHER, Serving, replica::ask, run, spawn};

pub(super) async fn table(client: &Client, name: &str, key: &str) {
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(
            AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S).build().unwrap(),
        )
        .key_schema(KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build().unwrap())
        .send()
        .await
        .unwrap();
}

fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::String(text) => AttributeValue::S(text.clone()),
        Value::Array(values) => AttributeValue::L(values.iter().map(attribute).collect()),
        Value::Object(members) => {
            AttributeValue::M(members.iter().map(|(name, value)| (name.clone(), attribute(value))).collect())
        }
    }
}

pub(super) async fn put(client: &Client, table: &str, rows: &[Value]) {
    for rows in rows.chunks(25) {
        let writes = rows.iter().map(|row| {
            let item = row.as_object().unwrap().iter().map(|(name, value)| (name.clone(), attribute(value)));
            let put = PutRequest::builder().set_item(Some(item.collect())).build().unwrap();
            WriteRequest::builder().put_request(put).build()
        });
        client.batch_write_item().request_items(table, writes.collect()).send().await.unwrap();
    }
}

/// A row of the first layout. Every fifth is retracted, every third has an address without a content id.
pub(super) fn first_layout(key: &str, n: usize, t: i64) -> Value {
    let commit = match n.is_multiple_of(3) {
        true => format!("fluree:s3://b/commits/{n}.json"),
        false => format!("fluree:s3://b/{ID}.json"),
    };
    json!({
        key: format!("db{n}:main"), "ledger_name": format!("db{n}"), "branch": "main", "commit_address": commit,
        "commit_t": t, "index_address": format!("fluree:ipfs://{ID}"), "index_t": n + 1,
        "status": if n.is_multiple_of(5) { "retracted" } else { "ready" }, "updated_at": 1_705_312_200,
    })
}

/// A single item: ledgers, and virtual graphs that depend on them, many of which come before them in the scan.
pub(super) fn single_item(key: &str, n: usize, t: i64) -> Value {
    if n.is_multiple_of(4) {
        return json!({
            key: format!("vg:search{n}:main"), "v": 2, "type": if n.is_multiple_of(8) { "vg:bm25" } else { "vg:jdbc" },
            "name": format!("search{n}"), "branch": "main", "deps": [format!("db{}:main", n + 1)], "head": null,
            "head_v": 0, "index_v": 2, "index": {"address": format!("s3://b/{ID}"), "sync_t": 4}, "retracted": false,
            "status_v": 6, "status": {"state": "ready", "lag": 1}, "config_v": 3, "config": {"k1": 1.2, "n": n},
        });
    }
    json!({
        key: format!("db{n}:main"), "v": 2, "type": "ledger", "name": format!("db{n}"), "branch": "main", "deps": null,
        "created_at": 1_705_312_200, "retracted": false, "head_v": t, "head": {"address": ID, "t": t},
        "index_v": 9,
        "index": {"default": {"address": ID, "t": n + 1, "rev": 1}, "g": {"address": ID, "t": 1, "rev": 0}, "h": null},
        "status_v": 4,
        "status": {"state": "indexing", "by": "i", "index_lock": {"holder": "h", "acquired_at": 1, "expires_at": 2}},
        "config_v": 7, "config": {"index_threshold": n},
    })
}

/// A file of Fluree 3. Every eighth is a virtual graph, every third ledger has a commit without a content id.
pub(super) fn former(_: &str, n: usize, t: i64) -> Value {
    let context = json!({"f": "https://ns.flur.ee/ledger#"});
    if n.is_multiple_of(8) {
        return json!({
            "@context": context, "@id": format!("graph{n}:main"), "@type": ["f:VirtualGraphDatabase", "fidx:BM25"],
            "f:name": format!("graph{n}"), "f:branch": "main", "fidx:config": {"@value": "{\"k1\":1}"},
            "fidx:dependencies": [format!("db{}:main", n + 1)], "f:status": "ready",
        });
    }
    let commit = if n.is_multiple_of(3) { format!("{n}") } else { ID.to_owned() };
    json!({
        "@context": context, "@id": format!("db{n}:main"), "@type": ["f:Database", "f:PhysicalDatabase"],
        "f:ledger": {"@id": format!("db{n}")}, "f:branch": "main",
        "f:commit": {"@id": format!("fluree:file://db{n}/main/commit/{commit}.json")}, "f:t": t,
        "f:index": {"@id": format!("fluree:file://db{n}/main/index/{ID}.json"), "f:t": n + 1}, "f:status": "ready",
    })
}

/// A file in the specification's spelling. Every third has a commit without a content id.
pub(super) fn specification(_: &str, n: usize, t: i64) -> Value {
    let commit = if n.is_multiple_of(3) { format!("fluree:s3://b/{n}.json") } else { ID.to_owned() };
    json!({
        "@context": {"f": "https://ns.flur.ee/db#"}, "@id": format!("db{n}:main"), "@type": ["f:Database", "f:LedgerSource"],
        "f:ledger": {"@id": format!("db{n}")}, "f:branch": "main", "f:ledgerCommit": {"@id": commit}, "f:t": t,
        "f:ledgerIndex": {"@id": ID, "f:t": n + 1}, "f:status": "ready",
    })
}

fn serve(engine: &Engine, legacy: &str) -> Serving {
    spawn(&["--listen", "127.0.0.1:0", "--endpoint-url", engine.url(), "--legacy", legacy])
}

fn record(service: &Serving, address: &str) -> Value {
    let (status, _, record) = ask(&service.url, "GET", &format!("/v1/records/{address}"), "");
    assert_eq!(status, 200, "{address}: {record}");
    record
}

fn listed(service: &Serving, query: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, _, page) = ask(&service.url, "GET", &format!("/v1/{query}{cursor}"), "");
        assert_eq!(status, 200, "{page}");
        found.extend(
            page["records"].as_array().unwrap().iter().map(|record| record["address"].as_str().unwrap().to_owned()),
        );
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

fn doctor(engine: &Engine, legacy: &str) -> (i32, BTreeSet<String>) {
    let (code, stdout, stderr) = run(&["--json", "--endpoint-url", engine.url()], &format!("doctor --legacy {legacy}"));
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    let codes =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap().to_owned());
    (code, codes.filter(|code| code.starts_with("legacy-")).collect())
}

/// Moves the head of a record by one from what the service shows; returns the `t` if that was written.
fn advance(service: &Serving, address: &str) -> Option<i64> {
    let shown = record(service, address);
    let t = shown["head"]["t"].as_i64()?;
    let expected = json!({"id": shown["head"]["id"], "t": t});
    let body = json!({"expected": expected, "new": {"id": OTHER, "t": t + 1}}).to_string();
    let (status, _, answer) = ask(&service.url, "PUT", &format!("/v1/heads/{address}"), &body);
    assert!(matches!(status, 200 | 409 | 410), "{answer}");
    (status == 200 && answer["replayed"] != true).then_some(t + 1)
}

#[test]
fn two_services_show_an_older_table_and_take_each_record_over_once() {
    const ROWS: usize = 40;
    let engine = Engine::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = engine.client();
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    runtime.block_on(async {
        table(&client, "old-names", "pk").await;
        let mut rows: Vec<Value> = (0..ROWS).map(|n| single_item("pk", n, n as i64 + 1)).collect();
        rows.extend((ROWS..2 * ROWS).map(|n| first_layout("pk", n, n as i64 + 1)));
        put(&client, "old-names", &rows).await;
    });
    let legacy = format!("item:old-names?endpoint={endpoint}");
    let services = [serve(&engine, &legacy), serve(&engine, &legacy)];
    assert_eq!(doctor(&engine, &legacy), (1, BTreeSet::from(["legacy-left".into(), "legacy-addresses".into()])));

    // Everything is shown, and nothing is written by that.
    let mut all: Vec<String> = (0..2 * ROWS)
        .map(|n| if n < ROWS && n.is_multiple_of(4) { format!("search{n}:main") } else { format!("db{n}:main") })
        .collect();
    all.sort();
    for query in ["records?limit=7", "records?limit=100&view=full", "snapshot?limit=9"] {
        let mut shown = listed(&services[0], query);
        shown.sort();
        assert_eq!(shown, all, "{query}");
    }
    assert_eq!(listed(&services[1], "records?kind=graph_source&limit=3").len(), ROWS / 4);
    assert_eq!(listed(&services[1], "records?state=indexing&limit=4").len(), ROWS * 3 / 4);
    let before: Vec<Value> = all.iter().map(|address| record(&services[1], address)).collect();
    assert_eq!(run(&["--endpoint-url", engine.url()], "list").1.trim(), "no records");

    // Both are written at the same time: of two that move one head, one wins.
    let ledgers: Vec<&String> = all.iter().filter(|address| address.starts_with("db")).collect();
    let won: Vec<Vec<(String, i64)>> = thread::scope(|scope| {
        let writers = services.iter().map(|service| {
            let ledgers = &ledgers;
            scope.spawn(move || {
                ledgers
                    .iter()
                    .filter_map(|address| Some(((*address).clone(), advance(service, address)?)))
                    .collect::<Vec<_>>()
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let steps: Vec<&(String, i64)> = won.iter().flatten().collect();
    assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len(), "two winners");
    for (address, before) in all.iter().zip(&before) {
        let now = record(&services[0], address);
        let moved = steps.iter().filter(|(of, _)| of == address).map(|(_, t)| *t).max();
        if let Some(t) = moved {
            assert_eq!(now["head"], json!({"id": OTHER, "t": t}), "{address}");
        } else {
            assert_eq!(now["head"], before["head"], "{address}");
        }
        for concern in ["kind", "retracted", "source_type", "dependencies"] {
            assert_eq!(now[concern], before[concern], "{address} {concern}");
        }
        assert_eq!(now["index"]["t"], before["index"]["t"], "{address}");
        assert_eq!(now["index"]["graphs"], before["index"]["graphs"], "{address}");
        assert_eq!(now["status"]["payload"]["state"], before["status"]["payload"]["state"], "{address}");
        let config = |record: &Value| record["config"]["payload"].as_object().cloned().unwrap_or_default();
        assert_eq!(config(&now), config(before), "{address}");
    }
    // Their old writer has not stopped, which only the doctor notices.
    runtime.block_on(put(&client, "old-names", &[single_item("pk", 1, 900)]));
    assert_eq!(record(&services[0], "db1")["head"], record(&services[1], "db1")["head"]);
    assert_ne!(record(&services[0], "db1")["head"]["t"], 900);
    let (_, codes) = doctor(&engine, &legacy);
    assert!(codes.contains("legacy-newer") && !codes.contains("legacy-pending"), "{codes:?}");
    // A record that would reappear is not deleted.
    let (status, _, problem) = ask(&services[0].url, "DELETE", "/v1/records/db1", "");
    assert_eq!((status, &problem["capability"]), (501, &json!("former_formats")), "{problem}");
    // Those that are never written are copied in the end.
    let to = format!("dynamodb://fluree-nameservice?endpoint={endpoint}");
    let (code, stdout, stderr) = run(&["--json"], &format!("copy {legacy} {to}"));
    assert!(matches!(code, 0 | 3), "{stdout}{stderr}");
    let (_, codes) = doctor(&engine, &legacy);
    assert!(!codes.contains("legacy-left"), "{codes:?}");
    let mut shown = listed(&services[1], "records?limit=100");
    shown.sort();
    assert_eq!(shown, all);
}

#[test]
fn a_service_that_is_killed_while_it_takes_records_over_leaves_none_in_part() {
    const ROWS: usize = 60;
    let engine = Engine::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = engine.client();
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    runtime.block_on(async {
        table(&client, "old-names", "ledger_alias").await;
        let rows: Vec<Value> = (0..ROWS).map(|n| single_item("ledger_alias", n, n as i64 + 1)).collect();
        put(&client, "old-names", &rows).await;
    });
    let legacy = format!("item:old-names?endpoint={endpoint}");
    let ledgers: Vec<String> = (0..ROWS).filter(|n| n % 4 != 0).map(|n| format!("db{n}:main")).collect();
    for round in 1..=4_u64 {
        let mut service = serve(&engine, &legacy);
        let url = service.url.clone();
        thread::scope(|scope| {
            for writer in 0..3 {
                let (ledgers, url) = (&ledgers, url.as_str());
                scope.spawn(move || {
                    for address in ledgers.iter().skip(writer * 15) {
                        let body = json!({"new": {"id": OTHER, "t": 1000 + writer}}).to_string();
                        // The service is killed during the request.
                        if std::panic::catch_unwind(|| ask(url, "PUT", &format!("/v1/heads/{address}"), &body)).is_err()
                        {
                            return;
                        }
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(40 * round));
            service.kill();
        });
    }
    let service = serve(&engine, &legacy);
    for n in (0..ROWS).filter(|n| n % 4 != 0) {
        let shown = record(&service, &format!("db{n}"));
        assert_eq!(shown["index"]["t"], json!(n + 1), "{shown:#}");
        assert_eq!(shown["status"]["payload"], json!({"state": "indexing", "by": "i"}), "{shown:#}");
        assert_eq!(shown["config"]["payload"], json!({"index_threshold": n}), "{shown:#}");
        assert!(advance(&service, &format!("db{n}")).is_some());
        let taken = record(&service, &format!("db{n}"));
        // The number of reindexes is counted by each place itself.
        assert_eq!(
            (&taken["index"]["t"], &taken["index"]["graphs"]),
            (&shown["index"]["t"], &shown["index"]["graphs"])
        );
        assert_eq!(taken["status"], shown["status"]);
    }
    let (_, codes) = doctor(&engine, &legacy);
    assert!(!codes.contains("legacy-pending"), "{codes:?}");
}

#[test]
fn virtual_graphs_in_todays_table_are_copied_as_graph_sources() {
    let (engine, parent) = (Engine::start(), tempfile::tempdir().unwrap());
    assert_eq!(run(&["--endpoint-url", engine.url()], "init").0, 0);
    assert_eq!(run(&["--endpoint-url", engine.url()], "create mydb").0, 0);
    let item = |sk: &str, more: Value| {
        let mut item = json!({"pk": "vg:search:main", "sk": sk, "schema": 2, "updated_at_ms": 1_705_312_200_000_i64});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let rows = [
        item(
            "meta",
            json!({"kind": "graph_source", "name": "search", "branch": "main", "retracted": false, "source_type": "vg:bm25",
                   "dependencies": ["mydb:main"]}),
        ),
        item("index", json!({"index_id": ID, "index_t": 4})),
        item("status", json!({"status": "ready", "status_v": 3, "status_meta": {}})),
        item("config", json!({"config_json": "{\"k1\":1.2}", "config_v": 2})),
    ];
    let client = engine.client();
    tokio::runtime::Runtime::new().unwrap().block_on(put(&client, "fluree-nameservice", &rows));
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    let from = format!("dynamodb://fluree-nameservice?endpoint={endpoint}");
    let to = parent.path().join("copy");
    let (code, stdout, stderr) = run(&[], &format!("copy {from} embedded:{}", to.display()));
    assert!(code == 0 && stdout.contains("2 copied"), "{code} {stdout}{stderr}");
    let shown = run(&["--json", "--data", to.to_str().unwrap()], "show search").1;
    let record: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&record["source_type"], &record["index"]["t"]), (&json!("f:Bm25Index"), &json!(4)));
    assert_eq!((&record["dependencies"], &record["config"]["v"]), (&json!(["mydb:main"]), &json!(2)));
    let (code, stdout, _) = run(&[], &format!("compare {from} embedded:{}", to.display()));
    assert_eq!((code, stdout.trim()), (0, "2 the same"));
}

#[test]
fn a_directory_of_an_earlier_format_is_taken_over_file_by_file() {
    let parent = tempfile::tempdir().unwrap();
    let write = |n: usize| {
        let folder = parent.path().join(format!("old/ns@v2/db{n}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("main.json"), specification("", n, n as i64 + 1).to_string()).unwrap();
    };
    (0..6).for_each(write);
    let (data, legacy) = (parent.path().join("data"), format!("file://{}", parent.path().join("old").display()));
    let service = spawn(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap(), "--legacy", &legacy]);
    assert_eq!(record(&service, "db4")["head"], json!({"id": ID, "t": 5}));
    assert_eq!(record(&service, "db3")["config"]["payload"]["legacy_address"]["head"]["t"], 4);
    let old = |n: usize| fs::read(parent.path().join(format!("old/ns@v2/db{n}/main.json"))).unwrap();
    let before = old(4);
    assert_eq!(advance(&service, "db4"), Some(6));
    assert_eq!(advance(&service, "db3"), Some(1));
    assert_eq!(old(4), before, "the older place is never written");
    assert_eq!(record(&service, "db4")["index"], json!({"id": ID, "t": 5, "rev": 0}));
    // Later writes to the older place are shown, too.
    write(7);
    assert_eq!(record(&service, "db7")["head"]["t"], 8);
    let (code, stdout, _) = run(&["--data", data.to_str().unwrap()], &format!("doctor --legacy {legacy}"));
    assert!(code == 1 && stdout.contains("5 records of"), "{stdout}");
}

#[test]
fn an_older_place_that_cannot_be_used_is_named() {
    let engine = Engine::start();
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    assert_eq!(run(&["--endpoint-url", engine.url()], "init").0, 0);
    let gone = Path::new("/nowhere/at/all");
    for (line, code, words) in [
        (format!("serve --memory --legacy item:fluree-nameservice?endpoint={endpoint}"), 2, "today's layout"),
        (format!("serve --memory --legacy file://{}", gone.display()), 7, "/nowhere/at/all"),
        ("serve --memory --legacy dump:x".into(), 2, "--legacy names"),
        ("serve --memory --legacy v1:old-names --upstream http://x".into(), 2, "--upstream"),
        ("doctor --legacy v1:old-names --url http://127.0.0.1:1".into(), 2, "--legacy goes with"),
    ] {
        let (found, stdout, stderr) =
            run(&[], &format!("{line}{}", if line.starts_with("serve") { " --listen 127.0.0.1:0" } else { "" }));
        assert!(found == code && stderr.contains(words), "{line}: {found} {stdout}{stderr}");
    }
    assert!(!gone.exists());
}

/// Rows whose keys have no branch are one record under one name everywhere.
#[test]
fn a_row_without_a_branch_has_one_name_everywhere() {
    let engine = Engine::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = engine.client();
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    runtime.block_on(async {
        table(&client, "old-names", "ledger_alias").await;
        let row = |key: &str| json!({"ledger_alias": key, "commit_address": ID, "commit_t": 7, "status": "ready"});
        let mut named = row("an-alias");
        named["ledger_name"] = json!("named");
        named["branch"] = json!("dev");
        put(&client, "old-names", &[row("plain"), row("tenant/plain"), named]).await;
    });
    let service = serve(&engine, &format!("v1:old-names?endpoint={endpoint}"));
    let all = ["named:dev", "plain:main", "tenant/plain:main"];
    for query in ["records?limit=10", "records?limit=10&view=full", "snapshot?limit=10"] {
        let mut shown = listed(&service, query);
        shown.sort();
        assert_eq!(shown, all, "{query}");
    }
    for address in ["plain", "plain:main", "tenant/plain", "named:dev"] {
        assert_eq!(record(&service, address)["head"]["t"], 7, "{address}");
    }
    for address in all {
        assert_eq!(advance(&service, address), Some(8), "{address}");
        assert_eq!(record(&service, address)["head"]["t"], 8, "{address}");
    }
    let mut shown = listed(&service, "records?limit=10");
    shown.sort();
    assert_eq!(shown, all);
}
