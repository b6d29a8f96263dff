//! Transactions (contract §3, last row): all or none, what stands in the way of each operation, and that nothing is
//! applied twice or by half.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use futures_util::future::join_all;
use nameservice_tests::{cids::id_of, layout, prelude::*};
use rand::{RngExt, SeedableRng, rngs::StdRng};

fn op(address: &str, action: OperationKind) -> Operation {
    Operation { address: at(address), action }
}

fn push_head(address: &str, push: HeadPush) -> Operation {
    op(address, OperationKind::PushHead(push))
}

fn push_index(address: &str, push: IndexPush) -> Operation {
    op(address, OperationKind::PushIndex(push))
}

fn push_status(address: &str, v: i64, new: Status) -> Operation {
    op(address, OperationKind::PushStatus(cas(Status::stored(v, None), new)))
}

fn push_config(address: &str, expected: Config, new: Config) -> Operation {
    op(address, OperationKind::PushConfig(cas(expected, new)))
}

fn check(address: &str, state: ConcernState) -> Operation {
    op(address, OperationKind::Check(state))
}

fn is_head(value: Head) -> ConcernState {
    ConcernState::Head(value)
}

/// Any operation that there is nothing against, on a record of which nothing else is asked.
fn harmless() -> Operation {
    push_head("free", older(head(50)))
}

fn changed(value: ConcernState) -> OperationOutcome {
    OperationOutcome::Updated { value, replayed: false }
}

fn there(value: ConcernState) -> OperationOutcome {
    OperationOutcome::Conflict { actual: Some(value) }
}

async fn commit(store: &Store, operations: &[Operation]) -> Committed {
    store.commit(&Call::fresh(), &transaction(operations)).await.unwrap()
}

/// All the rows of a table, in order.
async fn everything_in(table: &Table) -> Vec<String> {
    let mut rows: Vec<_> = table.all_rows().await.into_iter().map(|row| Value::Object(row).to_string()).collect();
    rows.sort();
    rows
}

/// Commits these and `harmless`, which must be refused, and leave no trace. Gives the outcomes of these.
#[track_caller]
fn refused(outcome: Committed) -> Vec<OperationOutcome> {
    match outcome {
        Committed::Rejected(outcomes) => outcomes,
        Committed::Committed(outcomes) => panic!("committed: {outcomes:?}"),
    }
}

async fn what_refuses(table: &Table, mut operations: Vec<Operation>) -> Vec<OperationOutcome> {
    operations.push(harmless());
    let before = everything_in(table).await;
    let mut outcomes = refused(commit(&table.store, &operations).await);
    assert_eq!(everything_in(table).await, before, "none is applied");
    assert_eq!(outcomes.pop(), Some(OperationOutcome::Passed), "nothing stood in its way");
    outcomes
}

/// Ledgers `a` and `b` with heads at 1, `free` with none, and a graph source `search`.
async fn records() -> Table {
    let table = Table::fresh().await;
    for (name, t) in [("a", Some(1)), ("b", Some(1)), ("free", None)] {
        let head = t.map(new_head);
        table.store.create_ledger(&Call::fresh(), &at(name), head.as_ref(), None).await.unwrap().applied();
    }
    table.store.publish_graph_source(&Call::fresh(), &bm25("search", json!({ "k": 1 }), &[])).await.unwrap().applied();
    table
}

#[tokio::test]
async fn all_operations_are_applied_together() {
    let table = records().await;
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
    let outcomes = vec![
        changed(is_head(head(2))),
        changed(is_head(head(7))),
        changed(ConcernState::Index(index_at(1, 0))),
        changed(ConcernState::Status(status(2, "syncing"))),
        changed(ConcernState::Config(Config::new(1, json!({ "x": 1 })))),
        changed(ConcernState::Status(status(2, "error"))),
        changed(ConcernState::Index(index_at(3, 0))),
        OperationOutcome::Passed,
        OperationOutcome::Passed,
        OperationOutcome::Passed,
    ];
    let table = table.proxied().await;
    assert_eq!(commit(&table.store, &operations).await, Committed::Committed(outcomes));
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 1, "{requests:#?}");
    assert_eq!(requests[0].body["TransactItems"].as_array().unwrap().len(), 10);
    let a = table.store.lookup(&at("a")).await.unwrap().unwrap();
    assert_eq!((a.head, a.index, a.status), (Some(head(2)), index_at(1, 0), status(2, "syncing")));
    assert_eq!(a.config, Config::new(1, json!({ "x": 1 })));
    assert_eq!(table.store.head(&at("b")).await.unwrap(), Some(head(7)));
    for name in ["a:main", "b:main", "search:main"] {
        layout::assert_ours(table.rows(name).await.values());
    }
}

#[tokio::test]
async fn a_transaction_that_fails_on_its_second_operation_moves_nothing() {
    let table = records().await;
    let outcomes =
        what_refuses(&table, vec![push_head("a", cas(head(1), head(2))), push_head("b", cas(head(4), head(5)))]).await;
    assert_eq!(outcomes, [OperationOutcome::Passed, there(is_head(head(1)))]);
}

#[tokio::test]
async fn every_refusal_is_told_for_its_operation() {
    let table = records().await;
    table.store.create_ledger(&Call::fresh(), &at("gone"), None, None).await.unwrap().applied();
    table.store.retract(&Call::fresh(), &at("gone"), None).await.unwrap().applied();
    table.store.publish_graph_source(&Call::fresh(), &bm25("search2", json!({}), &[])).await.unwrap().applied();
    let lease = claim_of(LeaseName::INDEX, "nobody", 1);
    let operations = vec![
        push_head("a", older(Head::new(1, cid(9)))),
        push_index("a", cas(index_at(3, 0), index(4))),
        push_status("a", 5, status(6, "x")),
        push_config("a", Config::new(1, json!({})), Config::new(2, json!({}))),
        push_head("nowhere", older(head(1))),
        push_status("nobody", 1, status(2, "x")),
        push_head("gone", older(head(1))),
        push_status("gone", 2, status(3, "x")),
        push_head("search", older(head(1))),
        push_config("search", Config::stored(1, None), Config::new(2, json!({}))),
        push_head("b", older(head(2)).under(lease).unwrap()),
        check("b", ConcernState::Index(index_at(1, 0))),
        check("unknown", is_head(Head::unborn())),
        check("search2", is_head(Head::unborn())),
    ];
    let outcomes = what_refuses(&table, operations).await;
    let expected = [
        OperationOutcome::Stale { actual: is_head(head(1)) },
        there(ConcernState::Index(Index::unborn())),
        there(ConcernState::Status(status(1, "ready"))),
        there(ConcernState::Config(Config::unborn())),
        OperationOutcome::Unknown,
        OperationOutcome::Unknown,
        OperationOutcome::Retracted,
        OperationOutcome::Retracted,
        OperationOutcome::WrongKind(RecordKind::GraphSource),
        OperationOutcome::WrongKind(RecordKind::GraphSource),
        OperationOutcome::LeaseLost { lease: None },
        there(ConcernState::Index(Index::unborn())),
        OperationOutcome::Unknown,
        OperationOutcome::WrongKind(RecordKind::GraphSource),
    ];
    assert_eq!(outcomes.len(), expected.len());
    for (i, (outcome, expected)) in outcomes.iter().zip(&expected).enumerate() {
        assert_eq!(outcome, expected, "operation {i}");
    }
}

#[tokio::test]
async fn checks_hold_for_what_is_there_and_for_nothing_else() {
    let table = records().await;
    let store = &table.store;
    let syncing = status_with(2, "syncing", json!({ "n": 1.5, "list": [1, null] }));
    let config = Config::new(1, json!({ "default_context_id": cid(3).as_str(), "x": { "y": [] } }));
    let mut update = index(4);
    update = update.with_graph("g", Some(graph(8, 2, Some(3)))).unwrap();
    update = update.with_graph("none", None).unwrap();
    let set_up = [
        push_status("a", 1, syncing.clone()),
        push_config("a", Config::unborn(), config.clone()),
        push_index("a", older(update)),
    ];
    assert!(matches!(commit(store, &set_up).await, Committed::Committed(_)));
    let stored = store.index(&at("a")).await.unwrap().unwrap();
    let root = |graphs: &[(&str, Option<GraphIndex>)]| {
        let graphs = graphs.iter().map(|(name, graph)| ((*name).to_owned(), graph.clone())).collect();
        ConcernState::Index(Index::new(4, IndexRoot { id: index_cid(4), rev: 0, graphs }))
    };
    let graph = |rev| Some(GraphIndex { id: index_cid(8), t: 2, rev });
    for holds in [
        check("a", is_head(head(1))),
        check("a", ConcernState::Index(stored.clone())),
        check("a", root(&[])),
        check("a", root(&[("g", graph(3))])),
        check("a", root(&[("none", None), ("another", None)])),
        check("a", ConcernState::Status(syncing.clone())),
        check("a", ConcernState::Status(status(2, "syncing"))),
        check("a", ConcernState::Status(Status::stored(2, None))),
        check("a", ConcernState::Config(config.clone())),
        check("a", ConcernState::Config(Config::stored(1, None))),
        check("b", ConcernState::Status(status(1, "ready"))),
        check("b", ConcernState::Index(Index::unborn())),
        check("search", ConcernState::Config(Config::new(1, json!({ "k": 1 })))),
        check("search", ConcernState::Index(Index::unborn())),
    ] {
        let outcome = commit(store, std::slice::from_ref(&holds)).await;
        assert_eq!(outcome, Committed::Committed(vec![OperationOutcome::Passed]), "{holds:?}");
    }
    for fails in [
        check("a", is_head(head(2))),
        check("a", is_head(Head::new(1, cid(2)))),
        check("a", is_head(Head::unborn())),
        check("a", ConcernState::Index(Index::unborn())),
        check("a", ConcernState::Index(index_at(3, 0))),
        check("a", root(&[("g", graph(2))])),
        check("a", root(&[("g", None)])),
        check("a", ConcernState::Status(status(2, "ready"))),
        check("a", ConcernState::Status(Status::stored(1, None))),
        check("a", ConcernState::Status(status_with(2, "syncing", json!({ "n": 1.5 })))),
        check("a", ConcernState::Config(Config::new(1, json!({ "x": { "y": [] } })))),
        check("a", ConcernState::Config(Config::unborn())),
        check("search", ConcernState::Config(Config::new(1, json!({ "k": 2 })))),
    ] {
        let outcomes = what_refuses(&table, vec![fails.clone()]).await;
        assert!(matches!(&outcomes[..], [OperationOutcome::Conflict { actual: Some(_) }]), "{fails:?} {outcomes:?}");
    }
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
    let table = records().await;
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
    let refused =
        what_refuses(&table, vec![push_head("older", cas(head(1), head(3))), push_status("older", 2, status(3, "x"))])
            .await;
    assert_eq!(refused, [there(is_head(Head::unborn())), there(ConcernState::Status(status(1, "ready")))]);
    Fluree::on(&table).retract("older:main").await;
    let refused = what_refuses(&table, vec![push_head("older", older(head(3)))]).await;
    assert_eq!(refused, [OperationOutcome::Retracted]);
}

#[tokio::test]
async fn what_is_in_place_counts_as_done() {
    let table = records().await;
    let before = table.row("a:main", "head").await;
    let operations = [push_head("a", cas(head(0), head(1))), push_head("b", cas(head(1), head(2)))];
    let in_place = OperationOutcome::Updated { value: is_head(head(1)), replayed: true };
    let outcome = commit(&table.store, &operations).await;
    assert_eq!(outcome, Committed::Committed(vec![in_place.clone(), changed(is_head(head(2)))]));
    assert_eq!(table.row("a:main", "head").await, before, "it is not written again");
    let stale = what_refuses(&table, vec![operations[0].clone(), push_head("b", older(Head::new(2, cid(9))))]).await;
    assert_eq!(stale, [OperationOutcome::Passed, OperationOutcome::Stale { actual: is_head(head(2)) }]);
    // An index with more named graphs than one expression holds is compared whole.
    let wide = index(1).with_graphs((0..60).map(|n| (format!("g{n}"), Some(graph(n, 1, None))))).unwrap();
    assert!(matches!(commit(&table.store, &[push_index("a", older(wide))]).await, Committed::Committed(_)));
    let outcome = commit(&table.store, &[push_index("a", older(index(1))), push_head("b", older(head(3)))]).await;
    let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(&outcomes[0], OperationOutcome::Updated { replayed: true, .. }), "{outcomes:?}");
}

#[tokio::test]
async fn named_graphs_move_with_their_index_and_keep_their_own_watermarks() {
    let table = records().await;
    let update = |t: i64, graphs: &[(&str, i64, i64)]| {
        let graph = |(name, n, t): &(&str, i64, i64)| ((*name).to_owned(), Some(graph(*n, *t, None)));
        index(t).with_graphs(graphs.iter().map(graph)).unwrap()
    };
    for (t, graphs) in [(1, vec![("g", 10, 1), ("h", 20, 1)]), (2, vec![("g", 11, 1)]), (3, vec![("h", 21, 3)])] {
        let operations = [push_index("a", older(update(t, &graphs))), push_head("b", older(head(10 + t)))];
        let outcome = commit(&table.store, &operations).await;
        let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
        let stored = table.store.index(&at("a")).await.unwrap().unwrap();
        assert_eq!(outcomes[0], changed(ConcernState::Index(stored)), "what is answered is what is stored");
    }
    let stored = table.store.index(&at("a")).await.unwrap().unwrap().payload.unwrap().graphs;
    let graph = |name: &str| stored[name].clone().unwrap();
    assert_eq!((graph("g").t, graph("g").rev, graph("h").t, graph("h").rev), (1, 1, 3, 0));
    let back = what_refuses(&table, vec![push_index("a", older(update(4, &[("h", 22, 2)])))]).await;
    assert!(matches!(&back[..], [OperationOutcome::Stale { .. }]), "{back:?}");
    let again = IndexPush::overwrite(index_of(77, 3));
    let outcome = commit(&table.store, &[push_index("a", again)]).await;
    let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
    let OperationOutcome::Updated { value: ConcernState::Index(value), .. } = &outcomes[0] else { panic!() };
    assert_eq!(value.payload.as_ref().unwrap().rev, 1);
    assert_eq!(table.store.index(&at("a")).await.unwrap().as_ref(), Some(value));
}

// ---- leases ----

async fn hold(table: &Table, address: &str) -> LeaseClaim {
    let request = index_lock("one", 60);
    let outcome = table.store.acquire_lease(&Call::fresh(), &at(address), &request).await.unwrap();
    let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
    claim_of(LeaseName::INDEX, "one", held.token)
}

#[tokio::test]
async fn a_lease_and_a_status_push_of_one_record_are_one_action() {
    let table = records().await;
    let mine = hold(&table, "a").await;
    let table = table.proxied().await;
    let fenced = |lease: &LeaseClaim, t: i64, v: i64| {
        let status_push = cas(Status::stored(v, None), status(v + 1, "indexing"));
        [
            push_head("a", older(head(t)).under(lease.clone()).unwrap()),
            push_index("a", older(index(t)).under(lease.clone()).unwrap()),
            op("a", OperationKind::PushStatus(status_push.under(lease.clone()).unwrap())),
        ]
    };
    let outcome = commit(&table.store, &fenced(&mine, 2, 2)).await;
    assert!(matches!(outcome, Committed::Committed(_)), "{outcome:?}");
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body["TransactItems"].as_array().unwrap().len(), 3, "head, index, and status with lease");
    let status_row = table.row("a:main", "status").await.unwrap();
    assert_eq!((&status_row["lease_token"], &status_row["status_v"]), (&rows::n(1), &rows::n(3)));
    assert!(status_row.contains_key("lease"));
    // One status refuses for its own reason: the others hold their lease.
    let outcomes = refused(commit(&table.store, &fenced(&mine, 3, 9)).await);
    assert!(
        matches!(
            &outcomes[..],
            [OperationOutcome::Passed, OperationOutcome::Passed, OperationOutcome::Conflict { actual: Some(_) }]
        ),
        "{outcomes:?}"
    );
    let outcomes = refused(commit(&table.store, &fenced(&claim_of(mine.name.clone(), &mine.holder, 7), 3, 3)).await);
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, OperationOutcome::LeaseLost { lease: Some(_) })),
        "{outcomes:?}"
    );
    // A status push that claims nothing, beside one that does.
    let beside = [push_head("a", older(head(3)).under(mine.clone()).unwrap()), push_status("a", 8, status(9, "x"))];
    let outcomes = refused(commit(&table.store, &beside).await);
    assert!(
        matches!(&outcomes[..], [OperationOutcome::Passed, OperationOutcome::Conflict { actual: Some(_) }]),
        "{outcomes:?}"
    );
    assert_eq!(table.store.head(&at("a")).await.unwrap(), Some(head(2)));
    table.store.retract(&Call::fresh(), &at("a"), None).await.unwrap().applied();
    let outcomes = refused(commit(&table.store, &fenced(&mine, 3, 4)).await);
    assert_eq!(outcomes, vec![OperationOutcome::Retracted; 3]);
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
        let table = records().await.proxied().await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        table.proxy.on("TransactWriteItems", fault);
        let mut graphs = index(1);
        graphs = graphs.with_graph("g", Some(graph(5, 1, None))).unwrap();
        let operations = [
            push_head("a", cas(head(1), head(2))),
            push_status("b", 1, status(2, "x")),
            push_index("b", older(graphs)),
            check("b", is_head(head(1))),
        ];
        let outcome = commit(&table.store, &operations).await;
        let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
        assert!(table.proxy.is_spent());
        assert_eq!(outcomes[0], changed(is_head(head(2))));
        assert_eq!(outcomes[1], changed(ConcernState::Status(status(2, "x"))));
        let stored = table.store.index(&at("b")).await.unwrap().unwrap();
        assert_eq!(stored.payload.as_ref().unwrap().graphs["g"].as_ref().unwrap().rev, 0, "counted once");
        assert_eq!((&outcomes[2], &outcomes[3]), (&changed(ConcernState::Index(stored)), &OperationOutcome::Passed));
    }
}

#[tokio::test]
async fn a_transaction_that_is_busy_is_tried_again_and_never_refused_for_it() {
    let table = records().await.proxied().await;
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

// ---- many at once ----

/// An account is a ledger; its balance is told by the id of its head. No two writers write the same id: a head that is
/// in place already would count as done.
#[derive(Default)]
struct Bank {
    balances: Mutex<HashMap<String, i64>>,
}

impl Bank {
    fn balance(&self, t: i64, amount: i64) -> Head {
        let mut balances = self.balances.lock().unwrap();
        let id = id_of(&format!("balance {}", balances.len()));
        balances.insert(id.as_str().to_owned(), amount);
        Head::new(t, id)
    }

    fn amount(&self, head: &Head) -> i64 {
        self.balances.lock().unwrap()[head.payload.as_ref().unwrap().as_str()]
    }
}

async fn transfers(accounts: usize, clients: u64, each: usize) {
    const START: i64 = 100;
    let (table, bank) = (Arc::new(Table::without_stream().await), Arc::new(Bank::default()));
    let name = |account: usize| format!("account{account}");
    for account in 0..accounts {
        let first = bank.balance(1, START);
        table
            .store
            .create_ledger(&Call::fresh(), &at(&name(account)), Some(&first.try_into().unwrap()), None)
            .await
            .unwrap()
            .applied();
    }
    let moved = join_all((0..clients).map(|client| {
        let (table, bank) = (table.clone(), bank.clone());
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(client);
            let (mut committed, mut refused) = (0, 0);
            while committed < each {
                // Every other client goes the other way round.
                let from = dice.random_range(0..accounts);
                let to = if client % 2 == 0 { (from + 1) % accounts } else { (from + accounts - 1) % accounts };
                let mut heads = Vec::new();
                for account in 0..accounts {
                    heads.push(table.store.head(&at(&name(account))).await.unwrap().unwrap());
                }
                let sum = dice.random_range(1..10).min(bank.amount(&heads[from]));
                let step = |account: usize, by: i64| {
                    let seen = heads[account].clone();
                    let new = bank.balance(seen.v + 1, bank.amount(&seen) + by);
                    push_head(&name(account), cas(seen, new))
                };
                let mut operations = vec![step(from, -sum), step(to, sum)];
                // And it depends on the others, if there are any.
                let others = (0..accounts).filter(|account| ![from, to].contains(account));
                operations.extend(others.map(|other| check(&name(other), is_head(heads[other].clone()))));
                match commit(&table.store, &operations).await {
                    Committed::Committed(outcomes) => {
                        assert!(outcomes.iter().all(|outcome| !outcome.rejects()), "{outcomes:?}");
                        committed += 1;
                    }
                    Committed::Rejected(outcomes) => {
                        assert!(
                            outcomes.iter().all(|outcome| {
                                matches!(outcome, OperationOutcome::Passed | OperationOutcome::Conflict { .. })
                            }),
                            "{outcomes:?}"
                        );
                        assert!(outcomes.iter().any(OperationOutcome::rejects));
                        refused += 1;
                    }
                }
            }
            (committed, refused)
        })
    }))
    .await;
    let (committed, refused) = moved.into_iter().map(Result::unwrap).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let (mut total, mut steps) = (0, 0);
    for account in 0..accounts {
        let head = table.store.head(&at(&name(account))).await.unwrap().unwrap();
        total += bank.amount(&head);
        steps += head.v - 1;
    }
    println!("{committed} transfers over {accounts} accounts, {refused} refused on the way");
    assert_eq!(total, START * accounts as i64, "nothing is lost, and nothing made");
    assert_eq!(steps, 2 * committed as i64, "each transfer moved both of its heads, once");
    assert!(refused > 0, "nobody met anybody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_transfers_between_two_ledgers_lose_nothing() {
    transfers(2, 6, 15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_around_three_ledgers_lose_nothing() {
    transfers(3, 6, 15).await;
}
