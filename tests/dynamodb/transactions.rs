//! Transactions over rows that others left, what they cost, and replies that are lost.

use std::collections::BTreeMap;

use nameservice_tests::prelude::*;

use crate::contract::transactions::*;

/// All the rows of a table, in order.
async fn everything_in(table: &Table) -> Vec<String> {
    let mut rows: Vec<_> = table.all_rows().await.into_iter().map(|row| Value::Object(row).to_string()).collect();
    rows.sort();
    rows
}

async fn what_rejects(table: &Table, mut operations: Vec<Operation>) -> Vec<OperationOutcome> {
    operations.push(harmless());
    let before = everything_in(table).await;
    let mut outcomes = rejected(commit(&table.store, &operations).await);
    assert_eq!(everything_in(table).await, before, "none is applied");
    assert_eq!(outcomes.pop(), Some(OperationOutcome::Passed));
    outcomes
}

async fn ready() -> Table {
    let table = Table::fresh().await;
    records(&table.store).await;
    table
}

#[tokio::test]
async fn checks_understand_rows_that_others_left() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("bare:main")).await;
    table.put(&rows::ledger("nulls:main").commit(cid(1), 1).nulls().rows()).await;
    table.put(&rows::ledger("fluree:main").index(index_cid(2), 2).context("fluree:ctx", 3).rows()).await;
    table.put(&rows::meta_only("gone:main")).await;
    Fluree::on(&table).retract("gone:main").await;
    let some = IndexRoot { id: index_cid(2), rev: 0, graphs: BTreeMap::from([("g".to_owned(), None)]) };
    let operations = [
        check("bare", is_head(Head::unborn())),
        check("bare", ConcernState::Status(status(1, "ready"))),
        check("bare", ConcernState::Config(Config::unborn())),
        check("nulls", is_head(head(1))),
        check("nulls", ConcernState::Status(status(1, "ready"))),
        check("nulls", ConcernState::Index(Index::unborn())),
        check("fluree", ConcernState::Index(Index::new(2, some))),
        check("fluree", ConcernState::Config(Config::new(3, json!({ "default_context_id": "fluree:ctx" })))),
        check("gone", is_head(Head::unborn())),
    ];
    for operation in &operations {
        let outcome = commit(&table.store, std::slice::from_ref(operation)).await;
        assert_eq!(outcome, Committed::Committed(vec![OperationOutcome::Passed]), "{operation:?}");
    }
    let together = Committed::Committed(vec![OperationOutcome::Passed; operations.len()]);
    assert_eq!(commit(&table.store, &operations).await, together);
    assert_eq!(table.rows("bare:main").await.len(), 1, "a check writes nothing");
}

#[tokio::test]
async fn old_rows_get_the_items_that_they_lack() {
    let table = ready().await;
    table.put(&rows::meta_only("old:main")).await;
    let operations = [
        push_head("old", cas(Head::unborn(), head(3))),
        push_index("old", older(index(2))),
        push_status("old", 1, status(2, "syncing")),
        push_config("old", Config::unborn(), Config::new(1, json!({ "x": 1 }))),
        push_head("a", older(head(2))),
    ];
    let outcome = commit(&table.store, &operations).await;
    let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
    assert_eq!(outcomes[0], changed(is_head(head(3))));
    assert_eq!(outcomes[1], changed(ConcernState::Index(index_at(2, 0))));
    let old = table.store.lookup(&at("old")).await.unwrap().unwrap();
    assert_eq!((old.head, old.status.v, old.config.v, old.index), (Some(head(3)), 2, 1, index_at(2, 0)));
    table.put(&rows::meta_only("older:main")).await;
    let rejected =
        what_rejects(&table, vec![push_head("older", cas(head(1), head(3))), push_status("older", 2, status(3, "x"))])
            .await;
    assert_eq!(rejected, [there(is_head(Head::unborn())), there(ConcernState::Status(status(1, "ready")))]);
    Fluree::on(&table).retract("older:main").await;
    let rejected = what_rejects(&table, vec![push_head("older", older(head(3)))]).await;
    assert_eq!(rejected, [OperationOutcome::Retracted]);
}

// ---- repetition ----

#[tokio::test]
async fn a_transaction_whose_reply_is_lost_is_committed_once() {
    for (forgetful, fault) in [
        (false, Fault::cut_reply()),
        (true, Fault::cut_reply()),
        (true, Fault::done_but_answer(500, "InternalServerError")),
        (false, Fault::cut_reply().times(3)),
    ] {
        let table = ready().await.proxied().await;
        hold(&table.store, "b").await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        // A first, rejected attempt shows that the head of `b` is already current.
        table.proxy.on("TransactWriteItems", Fault::none());
        table.proxy.on("TransactWriteItems", fault);
        let mut graphs = index(1);
        graphs = graphs.with_graph("g", Some(graph(5, 1, None))).unwrap();
        let operations = [
            push_head("a", cas(head(1), head(2))),
            push_status("b", 2, status(3, "x")),
            push_index("b", older(graphs)),
            push_head("b", cas(Head::unborn(), head(1))),
            check("free", is_head(Head::unborn())),
        ];
        let outcome = commit(&table.store, &operations).await;
        let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
        assert!(table.proxy.is_spent());
        assert_eq!(outcomes[0], changed(is_head(head(2))));
        assert_eq!(
            outcomes[1],
            changed(ConcernState::Status(status(3, "x"))),
            "as without a lost reply: without the lease"
        );
        let stored = table.store.index(&at("b")).await.unwrap().unwrap();
        assert_eq!(stored.payload.as_ref().unwrap().graphs["g"].as_ref().unwrap().rev, 0, "counted once");
        let current = OperationOutcome::Updated { value: is_head(head(1)), replayed: true };
        assert_eq!(outcomes[2..], [changed(ConcernState::Index(stored)), current, OperationOutcome::Passed]);
    }
}

#[tokio::test]
async fn what_a_rejection_has_shown_must_still_be_so_when_the_transaction_is_committed() {
    for checks in [false, true] {
        let table = ready().await;
        table.put(&rows::ledger("fluree:main").index(index_cid(2), 2).rows()).await;
        let table = table.proxied().await;
        // The first attempt is rejected although nothing stands against it: only the rejection shows that the head of `a` is already the
        // one that is pushed, and that a row without named graphs matches a named graph without an index.
        let graphs = BTreeMap::from([("g".to_owned(), None)]);
        let first = match checks {
            true => check("fluree", ConcernState::Index(Index::new(2, IndexRoot { id: index_cid(2), rev: 0, graphs }))),
            false => push_head("a", cas(Head::unborn(), head(1))),
        };
        let direct = table.direct().clone();
        let moves = move || {
            let direct = direct.clone();
            async move {
                direct.push_head(&Call::fresh(), &at("a"), &older(head(2))).await.unwrap().applied();
                direct.push_index(&Call::fresh(), &at("fluree"), &older(index(3))).await.unwrap().applied();
            }
        };
        table.proxy.on("TransactWriteItems", Fault::none());
        table.proxy.on("TransactWriteItems", Fault::none().before(moves));
        let outcomes = rejected(commit(&table.store, &[first, push_head("b", cas(head(1), head(2)))]).await);
        let actual = if checks { ConcernState::Index(index_at(3, 0)) } else { is_head(head(2)) };
        assert_eq!(outcomes, [there(actual), OperationOutcome::Passed]);
        assert!(table.proxy.is_spent());
        assert_eq!(table.store.head(&at("b")).await.unwrap(), Some(head(1)));
    }
}

#[tokio::test]
async fn a_transaction_that_is_busy_is_tried_again_and_never_rejected_for_it() {
    let table = ready().await.proxied().await;
    for fault in [
        Fault::cancelled(&["TransactionConflict", "None"]),
        Fault::cancelled(&["None", "ThrottlingError"]),
        Fault::cancelled(&["ConditionalCheckFailed", "TransactionConflict"]),
        Fault::answer(400, "TransactionInProgressException"),
        Fault::answer(400, "ThrottlingException"),
    ] {
        let t = table.store.head(&at("a")).await.unwrap().unwrap().v;
        table.proxy.on("TransactWriteItems", fault.times(2));
        let operations = [push_head("a", cas(head(t), head(t + 1))), push_head("b", older(head(t + 1)))];
        let outcome = commit(&table.store, &operations).await;
        assert!(matches!(outcome, Committed::Committed(_)), "{outcome:?}");
    }
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn ten_operations_are_ten_actions_of_one_request() {
    let table = ready().await.proxied().await;
    let operations = [
        push_head("a", cas(head(1), head(2))),
        push_head("b", older(head(7))),
        push_index("a", older(index(1))),
        push_status("a", 1, status(2, "syncing")),
        push_config("a", Config::unborn(), Config::new(1, json!({ "x": 1 }))),
        push_status("search", 1, status(2, "error")),
        push_index("search", older(index(3))),
        check("b", ConcernState::Config(Config::unborn())),
        check("free", is_head(Head::unborn())),
        check("search", ConcernState::Config(Config::stored(1, None))),
    ];
    commit(&table.store, &operations).await.applied();
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 1, "{requests:#?}");
    assert_eq!(requests[0].body["TransactItems"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_lease_and_a_status_push_of_one_record_are_one_action() {
    let table = ready().await;
    let mine = hold(&table.store, "a").await;
    let table = table.proxied().await;
    let operations = [
        push_head("a", older(head(2)).under(mine.clone()).unwrap()),
        push_index("a", older(index(2)).under(mine.clone()).unwrap()),
        op("a", OperationKind::PushStatus(cas(Status::stored(2, None), status(3, "indexing")).under(mine).unwrap())),
    ];
    commit(&table.store, &operations).await.applied();
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body["TransactItems"].as_array().unwrap().len(), 3, "head, index, and status with lease");
    let status_row = table.row("a:main", "status").await.unwrap();
    assert_eq!((&status_row["lease_token"], &status_row["status_v"]), (&rows::n(1), &rows::n(3)));
    assert!(status_row.contains_key("lease"));
}

#[tokio::test]
async fn a_head_that_is_current_is_not_written_again() {
    let table = ready().await;
    let before = table.row("a:main", "head").await;
    commit(&table.store, &[push_head("a", cas(Head::unborn(), head(1))), push_head("b", older(head(2)))])
        .await
        .applied();
    assert_eq!(table.row("a:main", "head").await, before);
}
