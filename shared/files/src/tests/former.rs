//! Files of earlier versions, and files that cannot be read.

use std::fs;

use serde_json::json;

use super::*;

fn put(directory: &TempDir, key: &str, text: &str) {
    let path = directory.path().join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The variants that exist in old directories.
fn variants() -> (Files, TempDir) {
    let (files, directory) = directory();
    let id = IDS[0];
    put(
        &directory,
        "ns@v2/spec/main.json",
        &format!(
            r#"{{"@context": {{"f": "https://ns.flur.ee/db#"}}, "@id": "spec:main", "@type": ["f:Database", "f:LedgerSource"],
            "f:ledger": {{"@id": "spec"}}, "f:branch": "main", "f:ledgerCommit": {{"@id": "{id}"}}, "f:t": 42,
            "f:ledgerIndex": {{"@id": "{id}", "f:t": 41}}, "f:status": "ready"}}"#
        ),
    );
    put(
        &directory,
        "ns@v2/spec/main.index.json",
        &format!(r#"{{"@context": {{"f": "https://ns.flur.ee/db#"}}, "f:ledgerIndex": {{"@id": "{id}", "f:t": 42}}}}"#),
    );
    put(
        &directory,
        "ns@v2/three/main.json",
        &format!(
            r#"{{"@context": {{"f": "https://ns.flur.ee/ledger#"}}, "@id": "three:main", "@type": ["f:Database", "f:PhysicalDatabase"],
            "f:ledger": {{"@id": "three"}}, "f:branch": "main", "f:commit": {{"@id": "fluree:file://three/main/commit/{id}.json"}},
            "f:t": 7, "f:index": {{"@id": "fluree:file://three/main/index/abc.json", "f:t": 6}}, "f:status": "ready"}}"#
        ),
    );
    put(
        &directory,
        "ns@v2/graph/main.json",
        r#"{"@context": {"f": "https://ns.flur.ee/ledger#"}, "@id": "graph:main", "@type": ["f:VirtualGraphDatabase", "fidx:BM25"],
            "f:name": "graph", "f:branch": "main", "fidx:config": {"@value": "{\"k1\":1}"}, "fidx:dependencies": ["three:main"],
            "f:status": "ready"}"#,
    );
    // The least that Fluree 4.1.6 accepts; a null id, and one that is none.
    put(
        &directory,
        "ns@v2/least/main.json",
        r#"{"@context": "x", "@id": "least:main", "@type": ["f:LedgerSource"], "f:ledger": {"@id": "least"}, "f:branch": "main",
            "f:commitCid": null, "f:t": 3, "f:configCid": "not-a-cid", "f:status": "ready", "f:unknown": 1}"#,
    );
    put(
        &directory,
        "ns@v2/point/main.json",
        r#"{"@context": {}, "@id": "point:main", "@type": ["f:LedgerSource"], "f:ledger": {"@id": "point"}, "f:branch": "main",
            "f:t": 0, "f:status": "ready", "f:branchPoint": {"f:source": "trunk", "f:t": 5}}"#,
    );
    put(
        &directory,
        "ns@v2/iri/main.json",
        r#"{"@context": {}, "@id": "iri:main", "@type": ["https://ns.flur.ee/db#IndexSource", "https://ns.flur.ee/db#HnswIndex"],
            "f:name": "iri", "f:branch": "main", "f:graphSourceConfig": {"@value": "{}"}, "f:graphSourceDependencies": [],
            "f:status": "ready"}"#,
    );
    (files, directory)
}

#[tokio::test]
async fn earlier_formats_are_read_and_never_rewritten() {
    let (files, directory) = variants();
    let read = |name: &'static str| {
        let files = files.clone();
        async move { files.lookup(&at(name)).await.unwrap().unwrap() }
    };
    let spec = read("spec").await;
    assert_eq!(spec.head, Some(Head::new(42, id(0))));
    assert_eq!((spec.index.v, spec.index.payload.map(|root| root.id)), (42, Some(id(0))));
    let three = read("three").await;
    // An id is taken from an address that ends in one, and never invented.
    assert_eq!((three.head, three.index), (Some(Head::new(7, id(0))), Index::stored(6, None)));
    // The address itself is kept in the member that every layout without ids uses.
    let kept = json!({"legacy_address": {"index": {"address": "fluree:file://three/main/index/abc.json", "t": 6}}});
    assert_eq!(three.config, Config::new(1, kept));
    let graph = read("graph").await;
    assert_eq!(
        (graph.source_type.as_deref(), graph.dependencies.as_slice()),
        (Some("f:Bm25Index"), &["three:main".to_owned()][..])
    );
    for name in ["spec", "three"] {
        let before = fs::read(directory.path().join(format!("ns@v2/{name}/main.json"))).unwrap();
        let pushed = files.push_head(&Call::fresh(), &at(name), &HeadPush::monotonic(head(1, 50))).await;
        assert!(matches!(pushed, Err(Error::Unsupported { capability: Capability::FormerFormats, .. })), "{pushed:?}");
        assert_eq!(fs::read(directory.path().join(format!("ns@v2/{name}/main.json"))).unwrap(), before);
    }
}

#[tokio::test]
async fn what_may_be_missing_is_as_fluree_takes_it() {
    let (files, _directory) = variants();
    let least = files.lookup(&at("least")).await.unwrap().unwrap();
    assert_eq!((least.head, least.index.clone()), (Some(Head::stored(3, None)), Index::unborn()));
    assert_eq!((least.status.v, least.config), (1, Config::unborn()));
    assert_eq!((least.created_at, least.source_branch), (None, None));
    let point = files.lookup(&at("point")).await.unwrap().unwrap();
    assert_eq!(point.source_branch.as_deref(), Some("trunk"));
    assert_eq!(files.lookup(&at("iri")).await.unwrap().unwrap().source_type.as_deref(), Some("f:HnswIndex"));
    // The context stays, whatever it is; the unknown member is dropped, as Fluree drops it.
    assert!(push(&files, &at("least"), 0, 4).await.is_updated());
    let again = files.push_head(&Call::fresh(), &at("least"), &HeadPush::monotonic(head(0, 4))).await.unwrap();
    assert!(matches!(again, PushOutcome::Updated { replayed: true, .. }));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_hides_no_others() {
    let (files, directory) = variants();
    let all = everything(&files).await.len();
    for (name, text) in [
        ("cut/main.json", r#"{"@context": {}, "@id": "cut"#),
        ("text/main.json", "\"text\""),
        (
            "number/main.json",
            r#"{"@context": {}, "@id": "number:main", "@type": ["f:LedgerSource"], "f:ledger": {"@id": "number"},
            "f:branch": "main", "f:t": "seven", "f:status": "ready"}"#,
        ),
        ("empty/main.json", ""),
        ("top.json", "{}"),
        (
            "moved/main.json",
            r#"{"@context": {}, "@id": "least:main", "@type": ["f:LedgerSource"], "f:ledger": {"@id": "least"},
            "f:branch": "main", "f:t": 3, "f:status": "ready"}"#,
        ),
    ] {
        put(&directory, &format!("ns@v2/{name}"), text);
    }
    fs::write(directory.path().join("ns@v2/bytes.json"), [0xff, 0xfe]).unwrap();
    assert_eq!(everything(&files).await.len(), all);
    let listed = files.list(&ListQuery::default(), &|_| true).await.unwrap();
    assert_eq!(listed.items.len(), all);
    // A lookup by name is an error that names the file, or finds no record.
    let error = files.lookup(&at("number")).await.unwrap_err();
    assert!(chain(&error).contains("number/main.json"), "{}", chain(&error));
    assert_eq!(files.lookup(&at("moved")).await.unwrap(), None);
    assert_eq!(files.lookup(&at("empty")).await.unwrap(), None);
    // An empty file counts as absent, also for a creation.
    born(&files, "empty", 1).await;
    // The file of another record is not overwritten.
    let taken = files.create_ledger(&Call::fresh(), &at("moved"), None, None).await;
    assert!(matches!(taken, Err(Error::Unsupported { capability: Capability::AnyAddress, .. })), "{taken:?}");
}
