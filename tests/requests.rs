//! How many requests each operation sends (docs/specification.md, Operations), and that the rows that they leave have the layout
//! (docs/specification.md, Table).

use nameservice_http::Auth;
use nameservice_tests::{layout, prelude::*, proxy::Request, pump::pump};

/// Makes a call. Returns its result, and the requests that it sends.
async fn sent<T>(table: &Proxied, call: impl Future<Output = Result<T>>) -> (T, Vec<Request>) {
    table.proxy.take_requests();
    let outcome = call.await.unwrap();
    (outcome, table.proxy.take_requests())
}

fn operations(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.operation.as_str()).collect()
}

#[track_caller]
fn assert_one(requests: &[Request], operation: &str) {
    assert_eq!(operations(requests), [operation], "{requests:#?}");
}

/// One consistent read.
#[track_caller]
fn assert_one_read(requests: &[Request]) {
    assert_eq!(requests.len(), 1, "{requests:#?}");
    assert!(["Query", "GetItem"].contains(&requests[0].operation.as_str()), "{requests:#?}");
    assert_eq!(requests[0].body["ConsistentRead"], json!(true));
}

/// A read, then one transaction.
#[track_caller]
fn assert_read_then_transaction(requests: &[Request]) {
    assert_eq!(operations(requests), ["Query", "TransactWriteItems"], "{requests:#?}");
    assert_eq!(requests[0].body["ConsistentRead"], json!(true));
}

async fn ledger(table: &Proxied, name: &str, t: i64) -> Address {
    let address = at(name);
    let outcome = table.direct().create_ledger(&Call::fresh(), &address, Some(&new_head(t)), None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

async fn source(table: &Proxied, name: &str, dependencies: &[&str]) -> Address {
    let address = at(name);
    let publication = bm25(&address, json!({}), dependencies);
    table.direct().publish_graph_source(&Call::fresh(), &publication).await.unwrap().applied();
    address
}

#[tokio::test]
async fn every_read_is_one_request_found_or_not() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb", 1).await;
    source(&table, "search", &["mydb"]).await;
    let store = &table.store;
    for name in ["mydb", "search", "nobody"] {
        let address = at(name);
        assert_one_read(&sent(&table, store.lookup(&address)).await.1);
        assert_one_read(&sent(&table, store.graph_source(&address)).await.1);
        assert_one_read(&sent(&table, store.head(&address)).await.1);
        assert_one_read(&sent(&table, store.index(&address)).await.1);
        assert_one_read(&sent(&table, store.status(&address)).await.1);
        assert_one_read(&sent(&table, store.config(&address)).await.1);
    }
    assert_one_read(&sent(&table, store.ping()).await.1);
}

#[tokio::test]
async fn a_head_push_is_one_request_whatever_comes_of_it() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 5).await;
    let call = Call::fresh();
    let push = async |call: &Call, push| sent(&table, table.store.push_head(call, &db, &push)).await;
    for (call, pushed, outcome) in [
        (Call::fresh(), older(head(6)), updated(head(6))),
        (call.clone(), cas(head(6), head(7)), updated(head(7))),
        (call, cas(head(6), head(7)), replayed(head(7))),
        (Call::fresh(), older(head(7)), replayed(head(7))),
        (Call::fresh(), cas(head(1), head(7)), replayed(head(7))),
        (Call::fresh(), older(head(4)), stale(head(7))),
        (Call::fresh(), cas(head(6), head(8)), conflict(head(7))),
        (Call::fresh(), cas(Head::unborn(), head(8)), conflict(head(7))),
        (Call::fresh(), cas(head(7), head(6)), conflict(head(7))),
    ] {
        let (answer, requests) = push(&call, pushed.clone()).await;
        assert_eq!(answer, outcome, "{pushed:?}");
        assert_one(&requests, "UpdateItem");
        assert_eq!(requests[0].body["ReturnValuesOnConditionCheckFailure"], json!("ALL_OLD"));
    }
    table.direct().retract(&Call::fresh(), &db, None).await.unwrap().applied();
    for pushed in [older(head(9)), cas(head(7), head(9))] {
        let (answer, requests) = push(&Call::fresh(), pushed).await;
        assert_eq!(answer, PushOutcome::Retracted);
        assert_one(&requests, "UpdateItem");
    }
}

#[tokio::test]
async fn an_index_push_is_one_request_whatever_comes_of_it() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 9).await;
    let push = async |push| sent(&table, table.store.push_index(&Call::fresh(), &db, &push)).await;
    let again = index_of(100, 2);
    let again_at = |rev| Index::new(2, IndexRoot { id: index_cid(100), rev, graphs: Default::default() });
    let allowing_equal = |new| IndexPush::overwrite(new);
    for (pushed, outcome) in [
        (older(index(1)), updated(index_at(1, 0))),
        (cas(index_at(1, 0), index(2)), updated(index_at(2, 0))),
        (cas(index_at(2, 0), again.clone()), updated(again_at(1))),
        (older(again), replayed(again_at(1))),
        (older(index(2)), stale(again_at(1))),
        (allowing_equal(index(1)), stale(again_at(1))),
        (cas(index_at(2, 0), index(3)), conflict(again_at(1))),
        (cas(again_at(1), index(1)), conflict(again_at(1))),
        (allowing_equal(index(4)), updated(index_at(4, 0))),
    ] {
        let (answer, requests) = push(pushed.clone()).await;
        assert_eq!(answer, outcome, "{pushed:?}");
        assert_one(&requests, "UpdateItem");
    }
    let (answer, requests) = push(allowing_equal(index_of(101, 4))).await;
    assert!(matches!(answer, PushOutcome::Updated { replayed: false, .. }));
    assert!(requests.len() <= 2, "{requests:#?}");
    let mut named = index(5);
    named = named.with_graph("g", Some(graph(5, 5, None))).unwrap();
    assert_one(&push(older(named)).await.1, "UpdateItem");
    let mut named = index(6);
    named = named.with_graph("g", Some(graph(6, 6, None))).unwrap();
    assert_one(&push(older(named)).await.1, "UpdateItem");
    table.direct().retract(&Call::fresh(), &db, None).await.unwrap().applied();
    let (answer, requests) = push(older(index(9))).await;
    assert_eq!(answer, PushOutcome::Retracted);
    assert_one(&requests, "UpdateItem");
}

#[tokio::test]
async fn a_status_or_config_push_is_one_request_whatever_comes_of_it() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 9).await;
    let push = async |push| sent(&table, table.store.push_status(&Call::fresh(), &db, &push)).await;
    let syncing = status_with(2, "syncing", json!({ "n": 1 }));
    for (pushed, outcome) in [
        (cas(status(1, "ready"), syncing.clone()), updated(syncing.clone())),
        (cas(status(1, "ready"), status(3, "x")), conflict(syncing.clone())),
        (cas(status(2, "syncing"), status(2, "x")), conflict(syncing.clone())),
    ] {
        let (answer, requests) = push(pushed).await;
        assert_eq!(answer, outcome);
        assert_one(&requests, "UpdateItem");
    }
    let push_config = async |push| sent(&table, table.store.push_config(&Call::fresh(), &db, &push)).await;
    let one = Config::new(1, json!({ "a": 1, "default_context_id": cid(1).as_str() }));
    for (pushed, outcome) in [
        (cas(Config::unborn(), one.clone()), updated(one.clone())),
        (cas(Config::unborn(), Config::new(2, json!({}))), conflict(one.clone())),
        (cas(Config::new(1, json!({ "a": 2 })), Config::new(2, json!({}))), conflict(one.clone())),
    ] {
        let (answer, requests) = push_config(pushed).await;
        assert_eq!(answer, outcome);
        assert_one(&requests, "UpdateItem");
    }
    let search = source(&table, "search", &[]).await;
    let pushed = cas(Config::stored(1, None), one);
    let (answer, requests) = sent(&table, table.store.push_config(&Call::fresh(), &search, &pushed)).await;
    assert_eq!(answer, PushOutcome::WrongKind(RecordKind::GraphSource));
    assert_one(&requests, "UpdateItem");
    table.direct().retract(&Call::fresh(), &db, None).await.unwrap().applied();
    assert_one(&push(cas(status(3, "retracted"), status(4, "x"))).await.1, "UpdateItem");
    assert_one(&push_config(cas(Config::stored(1, None), Config::new(2, json!({})))).await.1, "UpdateItem");
}

#[tokio::test]
async fn a_push_without_an_item_costs_one_read_and_for_an_old_row_one_transaction() {
    let table = Proxied::fresh().await;
    let (answer, requests) = sent(&table, table.store.push_head(&Call::fresh(), &at("nobody"), &older(head(1)))).await;
    assert_eq!(answer, PushOutcome::Unknown);
    assert_eq!(operations(&requests), ["UpdateItem", "Query"]);
    table.put(&rows::meta_only("old:main")).await;
    let (answer, requests) = sent(&table, table.store.push_head(&Call::fresh(), &at("old"), &older(head(1)))).await;
    assert_eq!(answer, updated(head(1)));
    assert_eq!(operations(&requests), ["UpdateItem", "Query", "TransactWriteItems"]);
}

#[tokio::test]
async fn a_creation_is_one_transaction_whatever_comes_of_it() {
    let table = Proxied::fresh().await;
    let store = &table.store;
    for name in ["mydb", "mydb"] {
        let (_, requests) =
            sent(&table, store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None)).await;
        assert_one(&requests, "TransactWriteItems");
        let actions = requests[0].body["TransactItems"].as_array().unwrap();
        assert_eq!(actions.len(), 7);
        for action in &actions[..5] {
            assert_eq!(action["Put"]["ReturnValuesOnConditionCheckFailure"], json!("ALL_OLD"), "{action}");
        }
        // The address does not remember the call.
        assert_eq!(actions[5]["ConditionCheck"]["Key"]["sk"]["S"], json!("a-calls"));
        // Fluree's commit log has no row of an earlier life there.
        assert_eq!(actions[6]["ConditionCheck"]["Key"]["sk"]["S"], json!(format!("commit#{:020}", 1)));
        assert!(requests[0].body["ClientRequestToken"].is_string());
    }
    for (name, outcome) in [("other", updated(head(2))), ("mydb", conflict(head(1)))] {
        let (answer, requests) = sent(&table, store.push_head(&Call::fresh(), &at(name), &first(head(2)))).await;
        assert_eq!(answer, outcome);
        assert_one(&requests, "TransactWriteItems");
    }
    let publish = async |name: &str, dependencies: &[&str]| {
        let publication = bm25(name, json!({}), dependencies);
        sent(&table, store.publish_graph_source(&Call::fresh(), &publication)).await
    };
    let (answer, requests) = publish("search", &["mydb"]).await;
    assert!(matches!(answer, Published::Created(_)), "{answer:?}");
    assert_one(&requests, "TransactWriteItems");
    let (answer, requests) = publish("search2", &["mydb", "nobody"]).await;
    assert_eq!(answer, Published::MissingDependencies(vec![at("nobody")]));
    assert_one(&requests, "TransactWriteItems");
    let (answer, requests) = publish("mydb", &[]).await;
    assert!(matches!(answer, Published::WrongKind { .. }), "{answer:?}");
    assert_one(&requests, "TransactWriteItems");
    let (answer, requests) = publish("search", &[]).await;
    assert!(matches!(answer, Published::Updated(_)), "{answer:?}");
    assert_eq!(requests.len(), 2, "{:?}", operations(&requests));
    assert_eq!(requests[1].operation, "TransactWriteItems");
}

#[tokio::test]
async fn what_reads_first_is_one_read_and_one_transaction() {
    let table = Proxied::fresh().await;
    let (store, db) = (&table.store, ledger(&table, "mydb", 1).await);
    let branch = at("mydb:dev");
    assert_read_then_transaction(&sent(&table, store.create_branch(&Call::fresh(), &branch, &db, None)).await.1);
    assert_read_then_transaction(&sent(&table, store.retract(&Call::fresh(), &branch, Some("why"))).await.1);
    assert_read_then_transaction(&sent(&table, store.restore(&Call::fresh(), &branch)).await.1);
    source(&table, "search", &["mydb:dev"]).await;
    let (answer, requests) = sent(&table, store.retract(&Call::fresh(), &branch, None)).await;
    assert_eq!(answer, Retracted::HasDependents);
    assert!(requests.len() <= 2, "{requests:#?}");
    for (name, expected) in [("search", Purged::Purged), ("mydb:dev", Purged::Purged), ("mydb", Purged::Purged)] {
        let (answer, requests) = sent(&table, store.purge(&Call::fresh(), &at(name))).await;
        assert_eq!(answer, expected, "{name}");
        let operations = operations(&requests);
        assert_eq!(operations[..2], ["Query", "TransactWriteItems"], "{operations:?}");
        // The commit log may have grown meanwhile, so it may be queried once more afterwards.
        assert!(operations.len() == 2 || operations[2..] == ["Query"], "{operations:?}");
    }
}

#[tokio::test]
async fn a_thousand_ledgers_are_listed_whole_in_at_most_sixty_requests() {
    let table = Proxied::fresh().await;
    let ledgers = (0..1_000).flat_map(|n| rows::ledger(&format!("db{n:04}:main")).commit(cid(n), n).rows());
    table.put_many(&ledgers.collect::<Vec<_>>()).await;
    let mut query = ListQuery { full: true, ..everything() };
    let mut found = Vec::new();
    loop {
        let page = table.store.list(&query, &anything).await.unwrap();
        found.extend(page.items);
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    let requests = table.proxy.take_requests();
    // One page of the index per kind, and fifty batches of a hundred keys.
    assert_eq!(requests.len(), 52);
    assert_eq!(found.len(), 1_000);
    for (n, listed) in found.into_iter().enumerate() {
        let Listed::Full(record) = listed else { panic!("{listed:?}") };
        assert_eq!(record.address.as_str(), format!("db{n:04}:main"));
    }
    let summaries = table.store.list(&everything(), &anything).await.unwrap();
    assert_eq!(summaries.items.len(), 1_000);
    let requests = table.proxy.take_requests();
    assert!(requests.len() <= 3, "summaries need nothing but the index: {:?}", operations(&requests));
}

/// Makes one request of a client. Returns the answer, and the requests that the service sends.
async fn asked(service: &Service, path: &str, body: Option<Value>) -> (Value, Vec<Request>) {
    service.table.proxy.take_requests();
    let answer = match body {
        Some(body) => service.post(path, body).await,
        None => service.get(path).await,
    };
    (answer.body, service.table.proxy.take_requests())
}

#[tokio::test]
async fn what_has_changed_is_two_requests_and_that_nothing_has_is_one() {
    let table = Table::with_stream().await;
    for (name, t) in [("mydb", 1), ("books", 2)] {
        table.store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(t)), None).await.unwrap().applied();
    }
    pump(&table).await;
    let service = Service::over(table, Auth::Open).await;
    for query in ["", "limit=1", "address=mydb&concern=head"] {
        let (page, requests) = asked(&service, &format!("/v1/changes?{query}"), None).await;
        assert!(!page["changes"].as_array().unwrap().is_empty(), "{query}: {page}");
        assert_eq!(operations(&requests), ["GetItem", "Query"], "{query}");
        assert!(requests.iter().all(|request| request.body["ConsistentRead"] == json!(true)), "{requests:#?}");
    }
    let end = service.get("/v1/changes").await.expect(200)["position"].clone();
    for query in ["", "&address=mydb&limit=7"] {
        let (page, requests) = asked(&service, &format!("/v1/changes?after={end}{query}"), None).await;
        assert_eq!(page["changes"], json!([]));
        assert_one(&requests, "GetItem");
    }
    let (page, requests) = asked(&service, "/v1/changes?address=nobody", None).await;
    assert_eq!(page, json!({ "changes": [], "position": end }));
    assert_eq!(operations(&requests), ["GetItem", "Query", "GetItem"], "that nothing follows is looked at too");

    let (page, requests) = asked(&service, "/v1/history/mydb", None).await;
    assert!(!page["changes"].as_array().unwrap().is_empty(), "{page}");
    assert_one(&requests, "Query");
    let (_, requests) = asked(&service, "/v1/history/nobody", None).await;
    assert_eq!(operations(&requests), ["Query"; 3], "no history, no record, no history under another filter");
}

#[tokio::test]
async fn a_hundred_ledgers_are_compared_in_six_requests() {
    let table = Table::fresh().await;
    let ledgers = (0..101).flat_map(|n| rows::ledger(&format!("db{n:03}:main")).commit(cid(n), n).rows());
    table.put_many(&ledgers.collect::<Vec<_>>()).await;
    let service = Service::over(table, Auth::Open).await;
    let known = |count: i64, behind: i64| {
        let all = (0..count).map(|n| (format!("db{n:03}"), json!({ "commit_t": n - n.min(behind) })));
        json!({ "subscriptions": all.collect::<Object>() })
    };
    for (count, behind, reads, moved) in [(100, 0, 5, 0), (100, 1, 5, 99), (101, 1, 6, 100), (1, 0, 1, 0), (0, 0, 0, 0)]
    {
        let (compared, requests) = asked(&service, "/v1/changes/compare", Some(known(count, behind))).await;
        assert_eq!(compared["changed"].as_object().unwrap().len(), moved, "{count}");
        // The position is read before the records.
        let expected: Vec<_> = std::iter::once("GetItem").chain(std::iter::repeat_n("BatchGetItem", reads)).collect();
        assert_eq!(operations(&requests), expected, "{count}");
        for request in &requests[1..] {
            let asked = &request.body["RequestItems"][&service.table.name];
            assert_eq!(asked["ConsistentRead"], json!(true));
            assert!(asked["Keys"].as_array().unwrap().len() <= 100);
        }
    }
}

#[tokio::test]
async fn a_snapshot_reads_the_position_of_the_feed_once() {
    let table = Table::fresh().await;
    for name in ["a", "b", "c"] {
        table.store.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap().applied();
    }
    let service = Service::over(table, Auth::Open).await;
    let (page, requests) = asked(&service, "/v1/snapshot?limit=2", None).await;
    assert_eq!(operations(&requests), ["GetItem", "Scan"]);
    let rest = format!("/v1/snapshot?cursor={}", page["cursor"].as_str().unwrap());
    let (page, requests) = asked(&service, &rest, None).await;
    assert_eq!(page["records"].as_array().unwrap().len(), 1);
    assert_one(&requests, "Scan");
}

#[tokio::test]
async fn every_write_leaves_rows_of_the_layout() {
    let table = Table::fresh().await;
    let (store, db, dev, search) = (&table.store, at("mydb"), at("mydb:dev"), at("search"));
    let check = async |what: &str| {
        for pk in ["mydb:main", "mydb:dev", "search:main"] {
            let rows = table.rows(pk).await;
            println!("after {what}: {pk}");
            layout::assert_ours(rows.values());
        }
    };
    store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    check("creation").await;
    store.push_head(&Call::fresh(), &db, &older(head(1))).await.unwrap().applied();
    store.push_head(&Call::fresh(), &db, &cas(head(1), head(2))).await.unwrap().applied();
    check("head").await;
    store.create_branch(&Call::fresh(), &dev, &db, None).await.unwrap().applied();
    check("branch").await;
    store.publish_graph_source(&Call::fresh(), &bm25(&search, json!({}), &["mydb"])).await.unwrap().applied();
    check("graph source").await;
    store
        .publish_graph_source(&Call::fresh(), &bm25(&search, json!({ "a": 1 }), &["mydb:dev"]))
        .await
        .unwrap()
        .applied();
    check("republication").await;
    for address in [&db, &dev, &search] {
        let mut named = index(1);
        named = named.with_graph("g", Some(graph(5, 1, None))).unwrap();
        store.push_index(&Call::fresh(), address, &older(named)).await.unwrap().applied();
        let again = IndexPush::overwrite(index_of(9, 1));
        store.push_index(&Call::fresh(), address, &again).await.unwrap().applied();
        check("index").await;
        let new = status_with(2, "syncing", json!({ "a": null }));
        store.push_status(&Call::fresh(), address, &cas(status(1, "ready"), new)).await.unwrap().applied();
        let new = status(3, "ready");
        store.push_status(&Call::fresh(), address, &cas(Status::stored(2, None), new)).await.unwrap().applied();
        check("status").await;
    }
    let one = Config::new(1, json!({ "default_context_id": cid(1).as_str(), "a": {} }));
    store.push_config(&Call::fresh(), &db, &cas(Config::unborn(), one)).await.unwrap().applied();
    check("config").await;
    let two = Config::new(2, json!({}));
    store.push_config(&Call::fresh(), &db, &cas(Config::stored(1, None), two)).await.unwrap().applied();
    check("empty config").await;
    store.retract(&Call::fresh(), &search, Some("why")).await.unwrap().applied();
    check("retraction").await;
    store.restore(&Call::fresh(), &search).await.unwrap().applied();
    check("restoration").await;
    for protected in [true, false] {
        assert_eq!(store.protect(&Call::fresh(), &db, protected).await.unwrap(), Protection::Set);
        check("protection").await;
    }
    let to = ResetTo::new(None, None).unwrap();
    store.reset_head(&Call::fresh(), &dev, &to).await.unwrap().applied();
    check("reset").await;
    store.purge(&Call::fresh(), &search).await.unwrap().applied();
    check("purge of a graph source").await;
    store.drop_branch(&Call::fresh(), &dev).await.unwrap().applied();
    check("purge of a branch").await;
}
