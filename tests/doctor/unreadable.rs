//! Items that cannot be read.

use super::*;

#[tokio::test]
async fn what_cannot_be_read_is_reported_and_left_to_people() {
    let table = Table::fresh().await;
    for name in ["type", "noid", "named", "kind"] {
        ledger(&table, name).await;
    }
    table.set("type:main", "head", "commit_t", rows::s("seven")).await;
    table.set("type:main", "config", "config_meta", rows::s("password=secret")).await;
    table.set("type:main", "meta", "branches", rows::s("one")).await;
    table.set("noid:main", "index", "index_t", rows::n(4)).await;
    table.set("named:main", "meta", "name", rows::s("else")).await;
    table.set("kind:main", "meta", "kind", rows::s("lodger")).await;
    table.put(&rows::graph_source("json:main", "f:Bm25Index", "{secret", &[])).await;
    table.put(&rows::graph_source("array:main", "f:Bm25Index", "[1]", &[])).await;
    table.put(&rows::ledger("my@db:main").rows()).await;
    table.put(&rows::ledger("contexts:main").context(id_of("a").as_str(), 1).rows()).await;
    table.set("contexts:main", "config", "default_context_id", rows::s(id_of("b").as_str())).await;
    table.put(&[rows::row("noid:main", "backref#x:main", [("dependent", rows::s("y:main"))])]).await;
    table.set("noid:main", "meta", "dependents", rows::n(1)).await;
    let all = [
        "array:main config-not-json",
        "contexts:main contexts-differ",
        "json:main config-not-json",
        "kind:main kind-unknown",
        "my@db:main address-unusable",
        "named:main name-disagrees",
        "noid:main backref-malformed",
        "noid:main id-missing",
        "type:main attribute-malformed",
    ];
    left_alone(&table, &all).await;
    let findings = examine(&table.store, false).await;
    let reported = format!("{findings:?}");
    assert!(
        reported.contains("head.commit_t") && reported.contains("seven") && reported.contains("meta.branches"),
        "{reported}"
    );
    assert!(reported.contains("config.config_meta"), "{reported}");
    assert!(!reported.contains("secret"), "configurations are not repeated: {reported}");
    let notes = findings.iter().filter(|finding| finding.severity == Severity::Note);
    let notes: Vec<_> = notes.inspect(|note| assert!(!note.is_open())).map(|note| note.code).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[tokio::test]
async fn ids_that_are_no_content_ids_are_named() {
    let table = Table::fresh().await;
    for name in ["commit", "index", "context", "good"] {
        ledger(&table, name).await;
    }
    table.set("commit:main", "head", "commit_id", rows::s("fluree:file://commit/1.json")).await;
    table.set("index:main", "index", "index_id", rows::s("")).await;
    table.set("index:main", "index", "index_t", rows::n(1)).await;
    table.put(&rows::ledger("context:main").context("fluree:ctx", 1).rows()).await;
    table.put(&rows::ledger("good:main").commit(cid(7), 7).index(index_cid(5), 5).rows()).await;
    left_alone(&table, &["commit:main id-unreadable", "context:main id-unreadable", "index:main id-unreadable"]).await;
    let reported = format!("{:?}", examine(&table.store, false).await);
    for named in ["head.commit_id is \\\"fluree:file", "index.index_id is", "config.default_context_address is"] {
        assert!(reported.contains(named), "{named} in {reported}");
    }
}

#[tokio::test]
async fn what_flurees_engine_cannot_read_is_found_on_its_ledgers() {
    use nameservice_tests::cids::foreign_id;
    let table = Table::fresh().await;
    // An index beside a commit of Fluree's; a head above a commit log; one that Fluree can read; one that it never wrote.
    for (name, id, index) in [
        ("index", cid(1), foreign_id("i")),
        ("logged", foreign_id("h"), foreign_id("i")),
        ("sound", cid(1), index_cid(1)),
        ("ours", foreign_id("h"), foreign_id("i")),
    ] {
        table.put(&rows::ledger(&format!("{name}:main")).commit(id, 1).index(index, 1).rows()).await;
    }
    table.put(&[rows::commit_log("logged:main", &foreign_id("h"), 1)]).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    table.set("search:main", "index", "index_id", rows::s(foreign_id("s").as_str())).await;
    table.set("search:main", "index", "index_t", rows::n(1)).await;
    left_alone(&table, &["index:main id-foreign", "logged:main id-foreign"]).await;
}

#[tokio::test]
async fn dependencies_that_cannot_be_read_are_no_reason_to_uncount() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    table.set("search:main", "meta", "dependencies", rows::s("mydb:main")).await;
    left_alone(&table, &["search:main attribute-malformed"]).await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_is_removed_unless_it_changes() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.set(DB, "status", "lease", rows::s("mine")).await;
    let direct = table.direct().clone();
    let acquire = move || {
        let direct = direct.clone();
        async move {
            let request = index_lock("one", 300);
            let leased = direct.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
            assert!(matches!(leased, Leased::Held(_)), "{leased:?}");
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(acquire));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert!(record(&table, &db).await.status.payload.unwrap().meta.contains_key("index_lock"));
    table.set(DB, "status", "lease", json!({ "M": { "holder": rows::s("x") } })).await;
    mended(&table, &["mydb:main lease-malformed"]).await;
    assert!(table.row(DB, "status").await.unwrap().get("lease").is_none());
}
