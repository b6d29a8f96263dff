//! Tables of the older layouts, copied to today's form.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest, ScalarAttributeType,
        WriteRequest,
    },
};
use nameservice_store::endpoint_client;
use serde_json::{Value, json};

use super::{Engine, ID, program, run};

async fn table(client: &Client, name: &str, key: &str) {
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

async fn put(client: &Client, table: &str, rows: &[Value]) {
    for rows in rows.chunks(25) {
        let writes = rows.iter().map(|row| {
            let item = row.as_object().unwrap().iter().map(|(name, value)| (name.clone(), attribute(value)));
            let put = PutRequest::builder().set_item(Some(item.collect())).build().unwrap();
            WriteRequest::builder().put_request(put).build()
        });
        client.batch_write_item().request_items(table, writes.collect()).send().await.unwrap();
    }
}

/// Makes a row of a table with this key.
type Row = fn(&str, usize) -> Value;

/// A row of the first layout. Every fifth is retracted, every third has an address without a content id.
fn first_layout(key: &str, n: usize) -> Value {
    let commit = if n.is_multiple_of(3) {
        format!("fluree:s3://b/commits/{n}.json")
    } else {
        format!("fluree:s3://b/{ID}.json")
    };
    json!({
        key: format!("db{n}:main"), "ledger_name": format!("db{n}"), "branch": "main", "commit_address": commit,
        "commit_t": n + 1, "index_address": format!("fluree:ipfs://{ID}"), "index_t": n + 1,
        "status": if n.is_multiple_of(5) { "retracted" } else { "ready" }, "updated_at": 1_705_312_200,
    })
}

/// A single item: ledgers, and virtual graphs that depend on them and come before them in the scan as often as not.
fn single_item(key: &str, n: usize) -> Value {
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
        "created_at": 1_705_312_200, "retracted": false, "head_v": n, "head": {"address": ID, "t": n},
        "index_v": 9, "index": {"default": {"address": ID, "t": n, "rev": 1}, "g": {"address": ID, "t": 1, "rev": 0}, "h": null},
        "status_v": 4, "status": {"state": "indexing", "by": "i", "index_lock": {"holder": "h", "acquired_at": 1, "expires_at": 2}},
        "config_v": 7, "config": {"index_threshold": n},
    })
}

#[test]
fn tables_of_every_older_shape_are_copied_and_the_rest_is_reported() {
    const ROWS: usize = 400;
    let engine = Engine::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = endpoint_client(engine.url());
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    let parent = tempfile::tempdir().unwrap();
    let layouts: [(&str, Row); 2] = [("v1", first_layout), ("item", single_item)];
    for (layout, row) in layouts {
        for key in ["ledger_alias", "pk"] {
            let name = format!("{layout}-{key}");
            let mut rows: Vec<Value> = (0..ROWS).map(|n| row(key, n)).collect();
            rows.push(json!({key: "bad:name:main", "status": "ready"}));
            runtime.block_on(async {
                table(&client, &name, key).await;
                put(&client, &name, &rows).await;
            });
            let from = format!("{layout}:{name}?endpoint={endpoint}");
            let data = parent.path().join(&name);
            let to = format!("embedded:{}", data.display());
            // It is cut off, and repeated.
            let mut cut = program().args(["copy", &from, &to]).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(150));
            cut.kill().unwrap();
            cut.wait().unwrap();
            let (code, stdout, stderr) = run(&["--json"], &format!("copy {from} {to}"));
            let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
            assert_eq!(code, 3, "one row has no address: {report:#}");
            assert_eq!(report["unreadable"]["records"][0]["address"], "bad:name:main");
            let done = report["copied"]["count"].as_u64().unwrap() + report["already_there"].as_u64().unwrap();
            assert_eq!(done, ROWS as u64, "{name}: {report:#}");
            let kept = if layout == "v1" { ROWS.div_ceil(3) as u64 } else { 0 };
            assert_eq!(report["kept_addresses"]["count"].as_u64().unwrap_or(0), kept, "{name}");
            assert_eq!(run(&["--json"], &format!("copy {from} {to}")).1.matches("\"already_there\": 400").count(), 1);
            let show = |address: &str| -> Value {
                serde_json::from_str(&run(&["--json", "--data", data.to_str().unwrap()], &format!("show {address}")).1)
                    .unwrap()
            };
            if layout == "v1" {
                let record = show("db5");
                assert_eq!((&record["retracted"], &record["head"]["t"]), (&json!(true), &json!(6)));
                let record = show("db6");
                assert_eq!((&record["head"]["id"], &record["index"]["t"]), (&json!(null), &json!(7)));
                let kept = &record["config"]["payload"]["legacy_address"]["head"];
                assert_eq!(kept, &json!({"address": "fluree:s3://b/commits/6.json", "t": 7}));
            } else {
                let record = show("search8");
                assert_eq!((&record["source_type"], &record["config"]["v"]), (&json!("f:Bm25Index"), &json!(3)));
                assert_eq!((&record["dependencies"], &record["status"]["v"]), (&json!(["db9:main"]), &json!(6)));
                let record = show("db9");
                assert_eq!(
                    (&record["index"]["graphs"]["g"]["t"], &record["index"]["graphs"]["h"]),
                    (&json!(1), &json!(null))
                );
                assert_eq!(record["status"]["payload"], json!({"state": "indexing", "by": "i"}));
            }
        }
    }
    // Today's layout is no older one.
    assert_eq!(run(&["--endpoint-url", engine.url()], "init").0, 0);
    let (code, _, stderr) =
        run(&[], &format!("copy v1:fluree-nameservice?endpoint={endpoint} embedded:{}/x", parent.path().display()));
    assert!(code == 2 && stderr.contains("today's layout"), "{code} {stderr}");
}
