//! Files that Fluree 4.1.6 wrote, compared with what Fluree itself reads from them.

use serde_json::{Value, json};

use super::*;
use crate::names;

fn text(id: Option<&ContentId>) -> Value {
    id.map_or(Value::Null, |id| id.as_str().into())
}

fn as_fluree_shows(record: &Record) -> Value {
    let (name, branch) = (record.address.name(), record.address.branch());
    let index_id = record.index.payload.as_ref().map(|root| &root.id);
    if record.kind == RecordKind::GraphSource {
        let known = [
            ("f:Bm25Index", "Bm25"),
            ("f:HnswIndex", "Vector"),
            ("f:GeoIndex", "Geo"),
            ("f:R2rmlMapping", "R2rml"),
            ("f:IcebergMapping", "Iceberg"),
        ];
        let source_type = record.source_type.as_deref().unwrap();
        let known = known.iter().find(|(stored, _)| *stored == source_type);
        return json!({
            "graph_source_id": record.address, "name": name, "branch": branch,
            "source_type": known.map_or_else(|| json!({"Unknown": source_type}), |(_, shown)| json!(shown)),
            "config": record.config.payload, "dependencies": record.dependencies,
            "index_id": text(index_id), "index_t": record.index.v, "retracted": record.retracted,
        });
    }
    let config = record.config.payload.as_ref();
    let member = |name: &str| config.and_then(|config| config.get(name)).cloned().unwrap_or(Value::Null);
    let head = record.head.as_ref().unwrap();
    let mut shown = json!({
        // Fluree splits the path of a branch with `/` elsewhere; its parts come from inside the file.
        "ledger_id": format!("{name}:{branch}"), "name": name, "branch": branch,
        "commit_head_id": text(head.payload.as_ref()), "commit_t": head.v,
        "index_head_id": text(index_id), "index_t": record.index.v,
        "default_context": member("default_context_id"), "retracted": record.retracted, "config_id": member("config_id"),
    });
    if let Some(source) = &record.source_branch {
        shown["source_branch"] = source.as_str().into();
    }
    if record.branches > 0 {
        shown["branches"] = record.branches.into();
    }
    shown
}

#[tokio::test]
async fn every_record_reads_as_fluree_reads_it() {
    let (files, _directory) = fluree();
    let records = everything(&files).await;
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture().join("as-fluree-reads-them.json")).unwrap()).unwrap();
    let mut wanted: Vec<Value> = Vec::new();
    for mut source in expected["all_graph_source_records"].as_array().unwrap().clone() {
        source["config"] = serde_json::from_str(source["config"].as_str().unwrap()).unwrap();
        wanted.push(source);
    }
    for mut ledger in expected["all_records"].as_array().unwrap().clone() {
        ledger["ledger_id"] =
            json!(format!("{}:{}", ledger["name"].as_str().unwrap(), ledger["branch"].as_str().unwrap()));
        wanted.push(ledger);
    }
    let shown: Vec<Value> = records.iter().map(as_fluree_shows).collect();
    assert_eq!(shown, wanted);
    for (address, status) in expected["status"].as_object().unwrap() {
        // The fixture names this one as Fluree lists it.
        let address = if address == "tenant/a/books/release:v1" { "tenant/a/books:release/v1" } else { address };
        let read = files.status(&at(address)).await.unwrap().unwrap();
        assert_eq!(json!({"v": read.v, "payload": read.payload}), *status, "{address}");
    }
    for (address, config) in expected["config"].as_object().unwrap() {
        let address = if address == "tenant/a/books/release:v1" { "tenant/a/books:release/v1" } else { address };
        let read = files.config(&at(address)).await.unwrap().unwrap();
        let mut payload = json!(read.payload);
        if let Some(id) = payload.as_object_mut().and_then(|payload| payload.remove("default_context_id")) {
            payload["default_context"] = id;
        }
        assert_eq!(json!({"v": read.v, "payload": payload}), *config, "{address}");
    }
    // Each record read alone equals its entry in the list.
    for record in records {
        assert_eq!(files.lookup(&record.address).await.unwrap(), Some(record));
    }
}

/// The JSON of a file, with its members in their order, and our term of the context taken out.
fn members(directory: &TempDir, key: &str) -> (Vec<String>, Value) {
    let text = std::fs::read_to_string(directory.path().join(key)).unwrap();
    let order = text
        .lines()
        .filter(|line| line.starts_with("  \""))
        .map(|line| line.trim_start_matches("  \"").split('"').next().unwrap_or_default().to_owned());
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["@context"].as_object_mut().unwrap().remove("nameservice").expect("our term");
    assert_eq!(json["@context"], json!({"f": "https://ns.flur.ee/db#"}));
    assert!(!text.ends_with('\n'));
    (order.collect(), json)
}

#[tokio::test]
async fn a_rewrite_changes_what_was_pushed_and_nothing_else() {
    let (files, directory) = fluree();
    let before: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path().join("ns@v2/mydb/main.json")).unwrap()).unwrap();
    assert!(push(&files, &at("mydb"), 0, 9).await.is_updated());
    let (order, after) = members(&directory, "ns@v2/mydb/main.json");
    let mut wanted = before.clone();
    (wanted["f:t"], wanted["f:commitCid"]) = (json!(9), json!(IDS[0]));
    assert_eq!(after, wanted);
    let expected = [
        "@context",
        "@id",
        "@type",
        "f:ledger",
        "f:branch",
        "f:commitCid",
        "f:t",
        "f:status",
        "f:defaultContextCid",
        "f:statusV",
        "f:statusMeta",
        "f:configV",
        "f:configMeta",
        "f:branches",
    ];
    assert_eq!(order, expected);
    // A branch keeps its source; a new index goes to its own file.
    assert!(push(&files, &at("mydb:dev"), 0, 9).await.is_updated());
    let (_, dev) = members(&directory, "ns@v2/mydb/dev.json");
    assert_eq!(
        (&dev["f:sourceBranch"], &dev["f:branchPoint"]),
        (&json!("main"), &json!({"f:source": "main", "f:t": 0}))
    );
    let pushed = files.push_index(&Call::fresh(), &at("search"), &IndexPush::monotonic(index(1, 3))).await.unwrap();
    assert!(pushed.is_updated());
    let (order, search) = members(&directory, "ns@v2/search/main.index.json");
    assert_eq!(order, ["@context", "@id", "f:graphSourceIndex", "f:graphSourceIndexT"]);
    assert_eq!(
        search,
        json!({
            "@context": {"f": "https://ns.flur.ee/db#"}, "@id": "search:main", "f:graphSourceIndexT": 3,
            // Fluree over a bucket requires the type.
            "f:graphSourceIndex": {"@type": "f:ContentId", "f:graphSourceIndexCid": ROOTS[1]},
        })
    );
}

#[tokio::test]
async fn new_records_are_written_as_fluree_writes_them() {
    let (files, directory) = directory();
    let _ = files.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap();
    let (order, json) = members(&directory, "ns@v2/mydb/main.json");
    let expected = ["@context", "@id", "@type", "f:ledger", "f:branch", "f:t", "f:status", "f:statusV", "f:configV"];
    assert_eq!(order, expected);
    let written: Value =
        serde_json::from_str(include_str!("../../../../tests/fixtures/fluree/ns@v2/unborn/main.json")).unwrap();
    let mut named = written;
    (named["@id"], named["f:ledger"]["@id"]) = (json!("mydb:main"), json!("mydb"));
    assert_eq!(json, named);
    let lake = GraphSourcePublication::new(at("lake"), "f:IcebergMapping", Object::new()).unwrap();
    let lake = lake.with_dependencies(vec![at("mydb")]).unwrap();
    let published = files.publish_graph_source(&Call::fresh(), &lake).await.unwrap();
    assert!(matches!(published, Published::Created(_)), "{published:?}");
    let (order, json) = members(&directory, "ns@v2/lake/main.json");
    let written: Value =
        serde_json::from_str(include_str!("../../../../tests/fixtures/fluree/ns@v2/lake/main.json")).unwrap();
    assert_eq!(json, written);
    assert_eq!(order.last().map(String::as_str), Some("f:status"));
}

#[tokio::test]
async fn a_note_survives_where_fluree_keeps_the_context() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    let lease = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
    let Leased::Held(held) = files.acquire_lease(&Call::fresh(), &db, &lease).await.unwrap() else { panic!() };
    let call = Call::fresh();
    let desired = HeadPush::monotonic(head(1, 2));
    assert!(files.push_head(&call, &db, &desired).await.unwrap().is_updated());
    // Rewrites the file as Fluree pushes a head: it keeps the members it knows, in its own order.
    let path = directory.path().join(names::main_key(&db));
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    (json["f:t"], json["f:commitCid"]) = (json!(3), json!(IDS[2]));
    std::fs::write(&path, serde_json::to_string_pretty(&json).unwrap()).unwrap();
    // The first call is repeated, and recognised.
    let again = files.push_head(&call, &db, &desired).await.unwrap();
    assert!(matches!(again, PushOutcome::Updated { replayed: true, .. }), "{again:?}");
    let record = files.lookup(&db).await.unwrap().unwrap();
    assert_eq!((record.head.unwrap().v, record.created_at.is_some()), (3, true));
    assert!(record.status.payload.unwrap().meta.contains_key("index_lock"));
    let push = HeadPush::monotonic(head(0, 4)).under(lease.claim(held.token)).unwrap();
    assert!(files.push_head(&Call::fresh(), &db, &push).await.unwrap().is_updated());
    assert_eq!(files.release_lease(&Call::fresh(), &db, &lease.claim(held.token)).await.unwrap(), Released::Released);
    let Leased::Held(next) = files.acquire_lease(&Call::fresh(), &db, &lease).await.unwrap() else { panic!() };
    assert_eq!(next.token, held.token + 1);
}

#[tokio::test]
async fn the_lease_of_another_program_is_shown_and_respected_until_it_expires() {
    let (files, _directory) = fluree();
    let db = at("mydb");
    let request = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
    let before = files.clone().with_clock(|| std::time::UNIX_EPOCH + Duration::from_secs(1_705_316_099));
    let Leased::Busy(lease) = before.acquire_lease(&Call::fresh(), &db, &request).await.unwrap() else { panic!() };
    assert_eq!((lease.holder.as_str(), lease.expires_at), ("x", 1_705_316_100));
    // A status push leaves it where it is.
    let status = files.status(&db).await.unwrap().unwrap();
    let new = NewStatus::new(StatusPayload::state("syncing")).unwrap();
    let pushed = files.push_status(&Call::fresh(), &db, &StatusPush::cas(status, new)).await.unwrap();
    assert!(pushed.is_updated(), "{pushed:?}");
    let shown = files.status(&db).await.unwrap().unwrap().payload.unwrap();
    assert_eq!((shown.state.as_str(), &shown.meta["index_lock"]["holder"]), ("syncing", &json!("x")));
    let after = files.with_clock(|| std::time::UNIX_EPOCH + Duration::from_secs(1_705_316_100));
    let leased = after.acquire_lease(&Call::fresh(), &db, &request).await.unwrap();
    assert!(matches!(leased, Leased::Held(_)), "{leased:?}");
    let shown = after.status(&db).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(shown.meta["index_lock"]["holder"], "i1");
}

#[tokio::test]
async fn a_reset_goes_back_in_both_files() {
    let (files, _directory) = fluree();
    let db = at("reset");
    // Fluree's own reset leaves the index file, which then wins.
    assert_eq!(files.index(&db).await.unwrap().unwrap().v, 4);
    let to = ResetTo::new(Some(head(0, 2)), Some(index(1, 1))).unwrap();
    assert!(matches!(files.reset_head(&Call::fresh(), &db, &to).await.unwrap(), Reset::Reset { .. }));
    let record = files.lookup(&db).await.unwrap().unwrap();
    assert_eq!((record.head.unwrap().v, record.index.v), (2, 1));
    assert_eq!(record.index.payload.unwrap().id, root(1));
    let unborn = ResetTo::new(None, None).unwrap();
    assert!(matches!(files.reset_head(&Call::fresh(), &db, &unborn).await.unwrap(), Reset::Reset { .. }));
    assert_eq!(files.index(&db).await.unwrap(), Some(Index::unborn()));
}
