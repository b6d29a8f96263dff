//! Transactions: all or nothing, what rejects each operation, and that nothing is applied twice or in part.

mod repeated;
mod transfers;

use nameservice_tests::prelude::*;

use super::{Fixture, every_backend};

pub(crate) fn op(address: &str, action: OperationKind) -> Operation {
    Operation { address: at(address), action }
}

pub(crate) fn push_head(address: &str, push: HeadPush) -> Operation {
    op(address, OperationKind::PushHead(push))
}

pub(crate) fn push_index(address: &str, push: IndexPush) -> Operation {
    op(address, OperationKind::PushIndex(push))
}

pub(crate) fn push_status(address: &str, v: i64, new: Status) -> Operation {
    op(address, OperationKind::PushStatus(cas(Status::stored(v, None), new)))
}

pub(crate) fn push_config(address: &str, expected: Config, new: Config) -> Operation {
    op(address, OperationKind::PushConfig(cas(expected, new)))
}

pub(crate) fn check(address: &str, state: ConcernState) -> Operation {
    op(address, OperationKind::Check(state))
}

pub(crate) fn is_head(value: Head) -> ConcernState {
    ConcernState::Head(value)
}

/// An operation that nothing rejects, on a record that no other operation touches.
pub(crate) fn harmless() -> Operation {
    push_head("free", older(head(50)))
}

pub(crate) fn changed(value: ConcernState) -> OperationOutcome {
    OperationOutcome::Updated { value, replayed: false }
}

pub(crate) fn there(value: ConcernState) -> OperationOutcome {
    OperationOutcome::Conflict { actual: Some(value) }
}

pub(crate) async fn commit(ns: &impl AsRecords, operations: &[Operation]) -> Committed {
    ns.records().commit(&Call::fresh(), &transaction(operations)).await.unwrap()
}

/// Every record, whole.
async fn everything_in(ns: &Fixture) -> Vec<Record> {
    let page = ns.snapshot(at_most(1_000), None, &anything).await.unwrap();
    assert_eq!(page.cursor, None);
    page.items
}

/// The outcomes of a transaction, which must be rejected.
#[track_caller]
pub(crate) fn rejected(outcome: Committed) -> Vec<OperationOutcome> {
    match outcome {
        Committed::Rejected(outcomes) => outcomes,
        Committed::Committed(outcomes) => panic!("committed: {outcomes:?}"),
    }
}

/// Commits these operations and `harmless`, which must be rejected and leave no trace. Returns the outcomes of these.
async fn what_rejects(ns: &Fixture, mut operations: Vec<Operation>) -> Vec<OperationOutcome> {
    operations.push(harmless());
    let before = everything_in(ns).await;
    let mut outcomes = rejected(commit(ns, &operations).await);
    assert_eq!(everything_in(ns).await, before, "none is applied");
    assert_eq!(outcomes.pop(), Some(OperationOutcome::Passed), "nothing rejects it");
    outcomes
}

/// Ledgers `a` and `b` with heads at 1, `free` with none, and a graph source `search`.
pub(crate) async fn records(ns: &impl AsRecords) {
    let ns = ns.records();
    for (name, t) in [("a", Some(1)), ("b", Some(1)), ("free", None)] {
        let head = t.map(new_head);
        ns.create_ledger(&Call::fresh(), &at(name), head.as_ref(), None).await.unwrap().applied();
    }
    ns.publish_graph_source(&Call::fresh(), &bm25("search", json!({ "k": 1 }), &[])).await.unwrap().applied();
}

#[every_backend(Transactions)]
async fn all_operations_are_applied_together(ns: &Fixture) {
    records(ns).await;
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
    assert_eq!(commit(ns, &operations).await, Committed::Committed(outcomes));
    let a = ns.lookup(&at("a")).await.unwrap().unwrap();
    assert_eq!((a.head, a.index, a.status), (Some(head(2)), index_at(1, 0), status(2, "syncing")));
    assert_eq!(a.config, Config::new(1, json!({ "x": 1 })));
    assert_eq!(ns.head(&at("b")).await.unwrap(), Some(head(7)));
}

#[every_backend(Transactions)]
async fn a_transaction_that_fails_on_its_second_operation_moves_nothing(ns: &Fixture) {
    records(ns).await;
    let outcomes =
        what_rejects(ns, vec![push_head("a", cas(head(1), head(2))), push_head("b", cas(head(4), head(5)))]).await;
    assert_eq!(outcomes, [OperationOutcome::Passed, there(is_head(head(1)))]);
}

#[every_backend(Transactions)]
async fn every_rejection_names_its_operation(ns: &Fixture) {
    records(ns).await;
    ns.publish_graph_source(&Call::fresh(), &bm25("search2", json!({}), &[])).await.unwrap().applied();
    ns.create_ledger(&Call::fresh(), &at("gone"), None, None).await.unwrap().applied();
    ns.retract(&Call::fresh(), &at("gone"), None).await.unwrap().applied();
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
    let outcomes = what_rejects(ns, operations).await;
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

#[every_backend(Transactions)]
async fn checks_hold_for_what_is_there_and_for_nothing_else(ns: &Fixture) {
    records(ns).await;
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
    assert!(matches!(commit(ns, &set_up).await, Committed::Committed(_)));
    let stored = ns.index(&at("a")).await.unwrap().unwrap();
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
        let outcome = commit(ns, std::slice::from_ref(&holds)).await;
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
        let outcomes = what_rejects(ns, vec![fails.clone()]).await;
        assert!(matches!(&outcomes[..], [OperationOutcome::Conflict { actual: Some(_) }]), "{fails:?} {outcomes:?}");
    }
}

#[every_backend(Transactions)]
async fn what_is_current_counts_as_done(ns: &Fixture) {
    records(ns).await;
    let operations = [push_head("a", cas(Head::unborn(), head(1))), push_head("b", cas(head(1), head(2)))];
    let current = OperationOutcome::Updated { value: is_head(head(1)), replayed: true };
    let outcome = commit(ns, &operations).await;
    assert_eq!(outcome, Committed::Committed(vec![current.clone(), changed(is_head(head(2)))]));
    let stale = what_rejects(ns, vec![operations[0].clone(), push_head("b", older(Head::new(2, cid(9))))]).await;
    assert_eq!(stale, [OperationOutcome::Passed, OperationOutcome::Stale { actual: is_head(head(2)) }]);
    // An index with more named graphs than one expression holds is compared whole.
    let wide = index(1).with_graphs((0..60).map(|n| (format!("g{n}"), Some(graph(n, 1, None))))).unwrap();
    assert!(matches!(commit(ns, &[push_index("a", older(wide))]).await, Committed::Committed(_)));
    let outcome = commit(ns, &[push_index("a", older(index(1))), push_head("b", older(head(3)))]).await;
    let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(&outcomes[0], OperationOutcome::Updated { replayed: true, .. }), "{outcomes:?}");
}

#[every_backend(Transactions)]
async fn named_graphs_move_with_their_index_and_keep_their_own_watermarks(ns: &Fixture) {
    records(ns).await;
    let update = |t: i64, graphs: &[(&str, i64, i64)]| {
        let graph = |(name, n, t): &(&str, i64, i64)| ((*name).to_owned(), Some(graph(*n, *t, None)));
        index(t).with_graphs(graphs.iter().map(graph)).unwrap()
    };
    for (t, graphs) in [(1, vec![("g", 10, 1), ("h", 20, 1)]), (2, vec![("g", 11, 1)]), (3, vec![("h", 21, 3)])] {
        let operations = [push_index("a", older(update(t, &graphs))), push_head("b", older(head(10 + t)))];
        let outcome = commit(ns, &operations).await;
        let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
        let stored = ns.index(&at("a")).await.unwrap().unwrap();
        assert_eq!(outcomes[0], changed(ConcernState::Index(stored)), "what is answered is what is stored");
    }
    let stored = ns.index(&at("a")).await.unwrap().unwrap().payload.unwrap().graphs;
    let graph = |name: &str| stored[name].clone().unwrap();
    assert_eq!((graph("g").t, graph("g").rev, graph("h").t, graph("h").rev), (1, 1, 3, 0));
    let back = what_rejects(ns, vec![push_index("a", older(update(4, &[("h", 22, 2)])))]).await;
    assert!(matches!(&back[..], [OperationOutcome::Stale { .. }]), "{back:?}");
    let again = IndexPush::overwrite(index_of(77, 3));
    let outcome = commit(ns, &[push_index("a", again)]).await;
    let Committed::Committed(outcomes) = outcome else { panic!("{outcome:?}") };
    let OperationOutcome::Updated { value: ConcernState::Index(value), .. } = &outcomes[0] else { panic!() };
    assert_eq!(value.payload.as_ref().unwrap().rev, 1);
    assert_eq!(ns.index(&at("a")).await.unwrap().as_ref(), Some(value));
}

// ---- leases ----

pub(crate) async fn hold(ns: &impl AsRecords, address: &str) -> LeaseClaim {
    let request = index_lock("one", 60);
    let outcome = ns.records().acquire_lease(&Call::fresh(), &at(address), &request).await.unwrap();
    let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
    claim_of(LeaseName::INDEX, "one", held.token)
}

#[every_backend(Transactions)]
async fn a_lease_holds_for_every_push_of_its_record(ns: &Fixture) {
    records(ns).await;
    let mine = hold(ns, "a").await;
    let fenced = |lease: &LeaseClaim, t: i64, v: i64| {
        let status_push = cas(Status::stored(v, None), status(v + 1, "indexing"));
        [
            push_head("a", older(head(t)).under(lease.clone()).unwrap()),
            push_index("a", older(index(t)).under(lease.clone()).unwrap()),
            op("a", OperationKind::PushStatus(status_push.under(lease.clone()).unwrap())),
        ]
    };
    let outcome = commit(ns, &fenced(&mine, 2, 2)).await;
    assert!(matches!(outcome, Committed::Committed(_)), "{outcome:?}");
    let current = ns.status(&at("a")).await.unwrap().unwrap();
    assert_eq!((current.v, &current.payload.unwrap().meta["index_lock"]["holder"]), (3, &json!("one")));
    // The status is rejected for its own reason; the other pushes still hold the lease.
    let outcomes = rejected(commit(ns, &fenced(&mine, 3, 9)).await);
    assert!(
        matches!(
            &outcomes[..],
            [OperationOutcome::Passed, OperationOutcome::Passed, OperationOutcome::Conflict { actual: Some(_) }]
        ),
        "{outcomes:?}"
    );
    let outcomes = rejected(commit(ns, &fenced(&claim_of(mine.name.clone(), &mine.holder, 7), 3, 3)).await);
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, OperationOutcome::LeaseLost { lease: Some(_) })),
        "{outcomes:?}"
    );
    // A status push that claims nothing, beside one that does.
    let beside = [push_head("a", older(head(3)).under(mine.clone()).unwrap()), push_status("a", 8, status(9, "x"))];
    let outcomes = rejected(commit(ns, &beside).await);
    assert!(
        matches!(&outcomes[..], [OperationOutcome::Passed, OperationOutcome::Conflict { actual: Some(_) }]),
        "{outcomes:?}"
    );
    // A check of the status that holds, beside a claim that does not: both are about one item.
    ns.push_status(&Call::fresh(), &at("a"), &cas(Status::stored(3, None), status_with(4, "busy", json!({ "n": 1 }))))
        .await
        .unwrap()
        .applied();
    for (holds, meta) in [(true, json!({ "n": 1 })), (true, json!({})), (false, json!({ "n": 2 }))] {
        let overtaken = push_head("a", older(head(3)).under(claim_of(mine.name.clone(), &mine.holder, 7)).unwrap());
        let beside = [overtaken, check("a", ConcernState::Status(status_with(4, "busy", meta)))];
        let outcomes = rejected(commit(ns, &beside).await);
        assert!(matches!(&outcomes[0], OperationOutcome::LeaseLost { lease: Some(_) }), "{outcomes:?}");
        assert_eq!(outcomes[1] == OperationOutcome::Passed, holds, "{outcomes:?}");
    }
    assert_eq!(ns.head(&at("a")).await.unwrap(), Some(head(2)));
    ns.retract(&Call::fresh(), &at("a"), None).await.unwrap().applied();
    let outcomes = rejected(commit(ns, &fenced(&mine, 3, 5)).await);
    assert_eq!(outcomes, vec![OperationOutcome::Retracted; 3]);
}

#[every_backend(Transactions)]
async fn a_call_that_arrives_twice_is_committed_once_and_answers_what_it_wrote(ns: &Fixture) {
    records(ns).await;
    // A lease in the status is not part of what the call writes.
    hold(ns, "b").await;
    let call = Call::fresh();
    let operations = transaction(&[push_head("a", cas(head(1), head(2))), push_status("b", 2, status(3, "x"))]);
    let Committed::Committed(first) = ns.commit(&call, &operations).await.unwrap() else { panic!("not committed") };
    assert_eq!(first, [changed(is_head(head(2))), changed(ConcernState::Status(status(3, "x")))]);
    // One of the two values moves on; the call is still recognised.
    for t in [3, 4] {
        ns.push_head(&Call::fresh(), &at("a"), &older(head(t))).await.unwrap().applied();
    }
    let Committed::Committed(again) = ns.commit(&call, &operations).await.unwrap() else { panic!("not committed") };
    let values = |outcomes: &[OperationOutcome]| -> Vec<ConcernState> {
        outcomes
            .iter()
            .map(|outcome| match outcome {
                OperationOutcome::Updated { value, .. } => value.clone(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(values(&again), values(&first));
    assert_eq!(ns.head(&at("a")).await.unwrap(), Some(head(4)));
    let of_b = ns.status(&at("b")).await.unwrap().unwrap();
    assert_eq!((of_b.v, &of_b.payload.unwrap().meta["index_lock"]["holder"]), (3, &json!("one")));
}
