//! Items without a record, which other programs or interrupted work have left: no write takes them for a record.

use nameservice_tests::prelude::*;

use crate::contract::born;

fn claim() -> LeaseClaim {
    claim_of(LeaseName::INDEX, "me", 1)
}

/// Every push to an address, plain, under a lease, and as a transaction; every operation on its lease.
async fn every_push(store: &Store, address: &Address) -> Vec<(&'static str, String)> {
    let call = Call::fresh;
    let mut answers = Vec::new();
    let status_push = || cas(status(1, "ready"), status(2, "x"));
    let config_push = || cas(Config::unborn(), new_config(json!({ "a": 1 })));
    macro_rules! answer {
        ($name:literal, $call:expr) => {
            answers.push(($name, format!("{:?}", $call.await)));
        };
    }
    answer!("head", store.push_head(&call(), address, &older(head(9))));
    answer!("head, expected", store.push_head(&call(), address, &cas(head(3), head(9))));
    answer!("head, stale", store.push_head(&call(), address, &older(head(1))));
    answer!("head, current", store.push_head(&call(), address, &older(head(3))));
    answer!("index", store.push_index(&call(), address, &older(index(9))));
    let graphs = (0..20).map(|n| (format!("g{n}"), Some(graph(n, 2, None))));
    answer!("index, graphs", store.push_index(&call(), address, &older(index(9).with_graphs(graphs).unwrap())));
    answer!("status", store.push_status(&call(), address, &status_push()));
    answer!("config", store.push_config(&call(), address, &config_push()));
    answer!("head, leased", store.push_head(&call(), address, &older(head(9)).under(claim()).unwrap()));
    answer!("index, leased", store.push_index(&call(), address, &older(index(9)).under(claim()).unwrap()));
    answer!("acquire", store.acquire_lease(&call(), address, &index_lock("me", 60)));
    answer!("refresh", store.refresh_lease(&call(), address, &index_lock("me", 60), 1));
    answer!("release", store.release_lease(&call(), address, &claim()));
    for (name, action) in [
        ("transaction, head", OperationKind::from(older(head(9)))),
        ("transaction, index", older(index(9)).into()),
        ("transaction, status", status_push().into()),
        ("transaction, config", config_push().into()),
        ("transaction, check", ConcernState::Head(head(3)).into()),
        ("transaction, check of an unborn one", ConcernState::Config(Config::unborn()).into()),
    ] {
        let committed = store.commit(&call(), &transaction(&[Operation::new(address.clone(), action)])).await.unwrap();
        let Committed::Rejected(outcomes) = &committed else { panic!("{name}: {committed:?}") };
        answers.push((name, format!("Ok({:?})", outcomes[0])));
    }
    answers
}

#[tokio::test]
async fn items_without_a_record_take_no_push() {
    let orphans = rows::orphans("mydb:main", cid(3), 3);
    for left in
        orphans.iter().map(|row| vec![row.clone()]).chain([orphans.clone(), vec![rows::ghost_meta("mydb:main")]])
    {
        let table = Table::fresh().await;
        table.put(&left).await;
        let before = table.all_rows().await;
        for (push, answer) in every_push(&table.store, &at("mydb")).await {
            assert_eq!(answer, "Ok(Unknown)", "{push}, onto {left:?}");
        }
        assert_eq!(table.all_rows().await, before);
    }
}

#[tokio::test]
async fn a_head_that_was_left_is_not_that_of_a_later_graph_source() {
    for ours in [false, true] {
        let table = Table::fresh().await;
        if ours {
            born(&table.store, "search", 3).await;
            for sk in ["meta", "index", "status", "config"] {
                table.delete("search:main", sk).await;
            }
        } else {
            table.put(&rows::orphans("search:main", cid(3), 3)).await;
        }
        let publication = bm25("search", json!({}), &[]);
        table.store.publish_graph_source(&Call::fresh(), &publication).await.unwrap().applied();
        assert!(table.row("search:main", "head").await.is_none());
        let outcome = table.store.push_head(&Call::fresh(), &at("search"), &older(head(9))).await.unwrap();
        assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    }
}

#[tokio::test]
async fn a_row_that_fluree_wrote_is_written_once_by_a_transaction_and_then_by_one_request() {
    let table = Proxied::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(1), 1).rows()).await;
    let db = at("mydb");
    table.proxy.take_operations();
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &cas(head(1), head(2))).await.unwrap(), updated(head(2)));
    assert_eq!(table.proxy.take_operations(), ["UpdateItem", "Query", "TransactWriteItems"]);
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(3))).await.unwrap(), updated(head(3)));
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    let operations = [
        Operation::new(db.clone(), older(head(4))),
        Operation::new(db.clone(), older(index(4))),
        Operation::new(db.clone(), ConcernState::Config(Config::unborn())),
    ];
    table.store.commit(&Call::fresh(), &transaction(&operations)).await.unwrap().applied();
    let record = table.store.lookup(&db).await.unwrap().unwrap();
    assert_eq!((record.head, record.index), (Some(head(4)), index_at(4, 0)));
}

/// A lease is a proof of the record too: a transaction of forty-eight operations under one has two actions for each.
#[tokio::test]
async fn the_most_operations_fit_one_transaction_under_leases_and_onto_missing_rows() {
    let table = Proxied::fresh().await;
    let (mut operations, call) = (Vec::new(), Call::fresh);
    for n in 0..48 {
        let address = at(&format!("db{n}"));
        table.put(&rows::meta_only(address.as_str())).await;
        let push = older(index(2));
        let push = match n % 2 {
            0 => {
                table.store.acquire_lease(&call(), &address, &index_lock("me", 60)).await.unwrap().applied();
                push.under(claim()).unwrap()
            }
            _ => push,
        };
        operations.push(Operation::new(address, push));
    }
    table.proxy.take_requests();
    table.store.commit(&call(), &transaction(&operations)).await.unwrap().applied();
    for request in table.proxy.take_requests().iter().filter(|request| request.operation == "TransactWriteItems") {
        assert!(request.body["TransactItems"].as_array().unwrap().len() <= 96);
    }
}

#[tokio::test]
async fn a_ghost_head_of_a_graph_source_takes_no_push_under_a_lease() {
    let table = Table::fresh().await;
    let store = &table.store;
    store.publish_graph_source(&Call::fresh(), &bm25("search", json!({}), &[])).await.unwrap().applied();
    let ghost = rows::orphans("search:main", cid(3), 3).into_iter().filter(|row| row["sk"] == rows::s("head"));
    table.put(&ghost.collect::<Vec<_>>()).await;
    let search = at("search");
    let Leased::Held(_) = store.acquire_lease(&Call::fresh(), &search, &index_lock("me", 60)).await.unwrap() else {
        panic!("no lease")
    };
    let before = table.row("search:main", "head").await;
    let push = older(head(9)).under(claim()).unwrap();
    let outcome = store.push_head(&Call::fresh(), &search, &push).await.unwrap();
    assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    assert_eq!(table.row("search:main", "head").await, before);
}
