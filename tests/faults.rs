//! Outcomes when requests and replies are lost (docs/specification.md, Answers): `updated` was written by this call, `conflict`
//! and `stale` certainly were not, and nothing is applied twice.

use std::time::Duration;

use nameservice_store::{RetryPolicy, endpoint_client};
use nameservice_tests::{engine, prelude::*};
use tokio::time::timeout;

/// The retry policy of stores whose failures a test expects.
pub(crate) const IMPATIENT: RetryPolicy = RetryPolicy {
    deadline: Duration::from_millis(250),
    base: Duration::from_millis(5),
    cap: Duration::from_millis(20),
};

/// What DynamoDB answers when it is busy. Never an outcome.
const BUSY: [&str; 5] = [
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "TransactionConflictException",
    "TransactionInProgressException",
];

async fn ledger(table: &Proxied, name: &str, t: i64) -> Address {
    let address = at(name);
    let outcome = table.direct().create_ledger(&Call::fresh(), &address, Some(&new_head(t)), None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    address
}

async fn source(table: &Proxied, name: &str, dependencies: &[&str]) -> Address {
    let publication = bm25(name, json!({ "n": 1 }), dependencies);
    let outcome = table.direct().publish_graph_source(&Call::fresh(), &publication).await.unwrap();
    assert!(matches!(outcome, Published::Created(_)), "{outcome:?}");
    at(name)
}

async fn found(table: &Proxied, address: &Address) -> Record {
    table.direct().lookup(address).await.unwrap().expect("a record")
}

fn status_at(v: i64) -> Status {
    Status::stored(v, None)
}

/// A fault, and whether the engine has forgotten the transaction by the time it is repeated.
type Loss = fn() -> (Fault, bool);

/// The ways in which a write can be applied and its answer be lost. With the last, the engine has also forgotten the
/// transaction by the time it is repeated.
const LOSSES: [(&str, Loss); 3] = [
    ("the reply is cut", || (Fault::cut_reply(), false)),
    ("the reply is a 500", || (Fault::done_but_answer(500, "InternalServerError"), false)),
    ("the reply is cut and the transaction forgotten", || (Fault::cut_reply(), true)),
];

/// Runs a scenario once for each way to lose the reply of the one write that it makes after `lose`.
macro_rules! each_loss {
    (|$table:ident, $lose:ident| $scenario:block) => {
        for (name, loss) in LOSSES {
            println!("{name}");
            let $table = Proxied::fresh().await;
            let $lose = || {
                let (fault, forgetful) = loss();
                if forgetful {
                    $table.proxy.forget_tokens();
                }
                $table.proxy.on_writes(fault);
            };
            $scenario
            assert!($table.proxy.is_spent(), "the fault did not happen");
        }
    };
}

#[tokio::test]
async fn a_creation_whose_reply_is_lost_is_created() {
    each_loss!(|table, lose| {
        let db = at("mydb");
        lose();
        let outcome = table.store.create_ledger(&Call::fresh(), &db, Some(&new_head(3)), None).await.unwrap();
        let Created::Created(record) = outcome else { panic!("{outcome:?}") };
        assert_eq!((record.head, record.status), (Some(head(3)), status(1, "ready")));
        assert_eq!(found(&table, &db).await.head, Some(head(3)));
    });
}

#[tokio::test]
async fn a_head_push_whose_reply_is_lost_is_updated() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 1).await;
        lose();
        assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap(), updated(head(2)));
        lose();
        let pushed = cas(head(2), head(3));
        assert_eq!(table.store.push_head(&Call::fresh(), &db, &pushed).await.unwrap(), updated(head(3)));
        assert_eq!(found(&table, &db).await.head, Some(head(3)));
    });
}

#[tokio::test]
async fn a_head_push_that_creates_and_whose_reply_is_lost_is_updated() {
    each_loss!(|table, lose| {
        lose();
        let outcome = table.store.push_head(&Call::fresh(), &at("mydb"), &first(head(3))).await.unwrap();
        assert_eq!(outcome, updated(head(3)));
        assert_eq!(found(&table, &at("mydb")).await.head, Some(head(3)));
    });
}

#[tokio::test]
async fn a_head_push_onto_an_old_row_whose_reply_is_lost_is_updated() {
    for forgetful in [false, true] {
        let table = Proxied::fresh().await;
        table.put(&rows::meta_only("old:main")).await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        table.proxy.on("TransactWriteItems", Fault::cut_reply());
        let outcome = table.store.push_head(&Call::fresh(), &at("old"), &older(head(3))).await.unwrap();
        assert_eq!(outcome, updated(head(3)));
        assert!(table.proxy.is_spent());
        assert_eq!(found(&table, &at("old")).await.head, Some(head(3)));
    }
}

#[tokio::test]
async fn an_index_push_whose_reply_is_lost_is_updated_and_counted_once() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 9).await;
        lose();
        let outcome = table.store.push_index(&Call::fresh(), &db, &older(index(2))).await.unwrap();
        assert_eq!(outcome, updated(index_at(2, 0)));
        lose();
        let again = index_of(100, 2);
        let there = Index::new(2, IndexRoot { id: index_cid(100), rev: 1, graphs: Default::default() });
        let outcome = table.store.push_index(&Call::fresh(), &db, &cas(index_at(2, 0), again)).await.unwrap();
        assert_eq!(outcome, updated(there.clone()));
        assert_eq!(found(&table, &db).await.index, there);
        lose();
        let again = IndexPush::overwrite(index_of(101, 2));
        let there = Index::new(2, IndexRoot { id: index_cid(101), rev: 2, graphs: Default::default() });
        // The condition of the first request, which advances, fails; the second overwrites.
        table.store.push_index(&Call::fresh(), &db, &again).await.unwrap().applied();
        assert_eq!(found(&table, &db).await.index, there);
    });
}

#[tokio::test]
async fn a_named_graphs_revision_is_counted_once_when_the_reply_is_lost() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 9).await;
        let named = |t: i64, n: i64| {
            let mut update = index(t);
            update = update.with_graph("g", Some(graph(n, 1, None))).unwrap();
            older(update)
        };
        table.direct().push_index(&Call::fresh(), &db, &named(1, 50)).await.unwrap().applied();
        lose();
        let outcome = table.store.push_index(&Call::fresh(), &db, &named(2, 51)).await.unwrap();
        assert!(matches!(outcome, PushOutcome::Updated { .. }), "{outcome:?}");
        let graphs = found(&table, &db).await.index.payload.unwrap().graphs;
        assert_eq!(graphs["g"], Some(GraphIndex { id: index_cid(51), t: 1, rev: 1 }));
    });
}

#[tokio::test]
async fn a_status_push_whose_reply_is_lost_is_updated() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 1).await;
        lose();
        let new = status_with(2, "syncing", json!({ "a": 1 }));
        let outcome =
            table.store.push_status(&Call::fresh(), &db, &cas(status(1, "ready"), new.clone())).await.unwrap();
        assert_eq!(outcome, updated(new.clone()));
        assert_eq!(found(&table, &db).await.status, new);
    });
}

#[tokio::test]
async fn a_config_push_whose_reply_is_lost_is_updated() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 1).await;
        lose();
        let new = Config::new(1, json!({ "a": 1 }));
        let outcome = table.store.push_config(&Call::fresh(), &db, &cas(Config::unborn(), new.clone())).await.unwrap();
        assert_eq!(outcome, updated(new.clone()));
        assert_eq!(found(&table, &db).await.config, new);
    });
}

#[tokio::test]
async fn a_publication_whose_reply_is_lost_is_published_and_counted_once() {
    each_loss!(|table, lose| {
        let (db, search) = (ledger(&table, "mydb", 1).await, at("search"));
        lose();
        let one = bm25(&search, json!({ "n": 1 }), &["mydb"]);
        let outcome = table.store.publish_graph_source(&Call::fresh(), &one).await.unwrap();
        assert!(matches!(&outcome, Published::Created(record) if record.config.v == 1), "{outcome:?}");
        assert_eq!(found(&table, &db).await.dependents, 1);
        let two = bm25(&search, json!({ "n": 2 }), &[]).expecting(1).unwrap();
        lose();
        let outcome = table.store.publish_graph_source(&Call::fresh(), &two).await.unwrap();
        assert!(matches!(&outcome, Published::Updated(record) if record.config.v == 2), "{outcome:?}");
        assert_eq!(found(&table, &search).await.config, Config::new(2, json!({ "n": 2 })));
        assert_eq!(found(&table, &db).await.dependents, 0);
    });
}

#[tokio::test]
async fn a_republication_whose_second_reply_is_lost_is_published_once() {
    for forgetful in [false, true] {
        let table = Proxied::fresh().await;
        let (db, search) = (ledger(&table, "mydb", 1).await, source(&table, "search", &[]).await);
        if forgetful {
            table.proxy.forget_tokens();
        }
        // The first transaction, which creates, is rejected; the second replaces.
        table.proxy.on("TransactWriteItems", Fault::cut_reply().skipping(1));
        let two = bm25(&search, json!({ "n": 2 }), &["mydb"]);
        let outcome = table.store.publish_graph_source(&Call::fresh(), &two).await.unwrap();
        assert!(matches!(&outcome, Published::Updated(record) if record.config.v == 2), "{outcome:?}");
        assert!(table.proxy.is_spent());
        assert_eq!(found(&table, &search).await.config.v, 2);
        assert_eq!(found(&table, &db).await.dependents, 1);
    }
}

#[tokio::test]
async fn a_branch_whose_reply_is_lost_is_created_and_counted_once() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 3).await;
        lose();
        let outcome = table.store.create_branch(&Call::fresh(), &at("mydb:dev"), &db, None).await.unwrap();
        let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.head, Some(head(3)));
        assert_eq!(found(&table, &db).await.branches, 1);
    });
}

#[tokio::test]
async fn a_retraction_and_a_restoration_whose_replies_are_lost_are_done_once() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 3).await;
        lose();
        let outcome = table.store.retract(&Call::fresh(), &db, Some("why")).await.unwrap();
        assert!(matches!(outcome, Retracted::Retracted(_)), "{outcome:?}");
        assert_eq!(found(&table, &db).await.status.v, 2);
        lose();
        let outcome = table.store.restore(&Call::fresh(), &db).await.unwrap();
        assert!(matches!(outcome, Restored::Restored(_)), "{outcome:?}");
        assert_eq!(found(&table, &db).await.status, status(3, "ready"));
    });
}

#[tokio::test]
async fn a_purge_whose_reply_is_lost_is_purged_and_uncounted_once() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 3).await;
        source(&table, "one", &["mydb"]).await;
        source(&table, "two", &["mydb"]).await;
        lose();
        assert_eq!(table.store.purge(&Call::fresh(), &at("one")).await.unwrap(), Purged::Purged);
        assert_eq!(found(&table, &db).await.dependents, 1);
        assert!(table.rows("one:main").await.is_empty());
    });
}

#[tokio::test]
async fn a_drop_whose_reply_is_lost_is_dropped_and_uncounted_once() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 3).await;
        for name in ["mydb:a", "mydb:b"] {
            table.direct().create_branch(&Call::fresh(), &at(name), &db, None).await.unwrap().applied();
        }
        lose();
        let outcome = table.store.drop_branch(&Call::fresh(), &at("mydb:a")).await.unwrap();
        assert_eq!(outcome, Dropped::Dropped { parent_branches: 1 });
        assert_eq!(found(&table, &db).await.branches, 1);
    });
}

#[tokio::test]
async fn a_reset_whose_reply_is_lost_is_reset() {
    each_loss!(|table, lose| {
        let db = ledger(&table, "mydb", 3).await;
        lose();
        let to = to_head(1);
        let outcome = table.store.reset_head(&Call::fresh(), &db, &to).await.unwrap();
        assert_eq!(outcome, Reset::Reset { head: head(1), index: Index::unborn() });
        assert_eq!(found(&table, &db).await.head, Some(head(1)));
    });
}

/// Other writers push heads `from..=to` between the loss and the repetition.
fn then_heads(fault: Fault, table: &Proxied, db: &Address, from: i64, to: i64) -> Fault {
    let (store, db) = (table.direct().clone(), db.clone());
    fault.after(move || {
        let (store, db) = (store.clone(), db.clone());
        async move {
            for t in from..=to {
                let outcome = store.push_head(&Call::fresh(), &db, &older(head(t))).await.unwrap();
                assert_eq!(outcome, updated(head(t)));
            }
        }
    })
}

#[tokio::test]
async fn a_lost_reply_is_reported_while_no_more_than_three_others_have_written() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 1).await;
    table.proxy.on("UpdateItem", then_heads(Fault::cut_reply(), &table, &db, 3, 5));
    let outcome = table.store.push_head(&Call::fresh(), &db, &cas(head(1), head(2))).await.unwrap();
    assert_eq!(outcome, updated(head(2)));
    assert_eq!(found(&table, &db).await.head, Some(head(5)));
}

#[tokio::test]
async fn a_lost_reply_that_more_others_have_written_over_is_unknown_never_a_conflict() {
    for pushed in [cas(head(1), head(2)), older(head(2))] {
        let table = Proxied::fresh().await;
        let db = ledger(&table, "mydb", 1).await;
        table.proxy.on("UpdateItem", then_heads(Fault::cut_reply(), &table, &db, 3, 6));
        let error = table.store.push_head(&Call::fresh(), &db, &pushed).await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
        assert_eq!(found(&table, &db).await.head, Some(head(6)));
    }
}

#[tokio::test]
async fn a_lost_request_that_others_have_overtaken_is_unknown_never_a_conflict() {
    for pushed in [cas(head(1), head(2)), older(head(2))] {
        let table = Proxied::fresh().await;
        let db = ledger(&table, "mydb", 1).await;
        table.proxy.on("UpdateItem", then_heads(Fault::cut_request(), &table, &db, 3, 3));
        let error = table.store.push_head(&Call::fresh(), &db, &pushed).await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    }
}

/// A lost reply, and a write by Fluree before the push is sent again.
fn then_fluree<R>(table: &Proxied, write: fn(Fluree<'static>) -> R) -> Fault
where
    R: Future<Output = bool> + Send + 'static,
{
    // Fluree borrows the table's client and name; a test's are few.
    let client: &'static _ = Box::leak(Box::new(table.client.clone()));
    let name: &'static str = Box::leak(table.name.clone().into_boxed_str());
    Fault::cut_reply().after(move || async move { assert!(write(Fluree::with(client, name)).await, "Fluree writes") })
}

/// Fluree replaces values but leaves the ids of our calls in the item, so the returned item shows the call beside a value that
/// is not the call's.
#[tokio::test]
async fn a_lost_reply_is_answered_with_its_own_value_though_fluree_has_written_since() {
    const DB: &str = "mydb:main";
    for pushed in [cas(head(1), head(2)), older(head(2))] {
        let table = Proxied::fresh().await;
        let db = ledger(&table, "mydb", 1).await;
        table.proxy.on("UpdateItem", then_fluree(&table, |fluree| async move { fluree.commit(DB, &cid(3), 3).await }));
        assert_eq!(table.store.push_head(&Call::fresh(), &db, &pushed).await.unwrap(), updated(head(2)));
        assert!(table.proxy.is_spent());
        assert_eq!(found(&table, &db).await.head, Some(head(3)), "Fluree's head stays");
    }

    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 1).await;
    let next = |fluree: Fluree<'static>| async move { fluree.publish_index(DB, &index_cid(9), 9).await };
    table.proxy.on("UpdateItem", then_fluree(&table, next));
    let outcome = table.store.push_index(&Call::fresh(), &db, &older(index(1))).await.unwrap();
    assert_eq!(outcome, updated(index_at(1, 0)));
    assert_eq!(found(&table, &db).await.index, index_at(9, 0));
    // Also under an expectation, and at an equal t, if the revision is counted.
    let again = |fluree: Fluree<'static>| async move { fluree.reindex(DB, &index_cid(60), 9).await };
    table.proxy.on("UpdateItem", then_fluree(&table, again));
    let outcome = table.store.push_index(&Call::fresh(), &db, &cas(index_at(9, 0), index_of(50, 9))).await;
    let own = Index::new(9, IndexRoot { id: index_cid(50), rev: 1, graphs: Default::default() });
    assert!(
        matches!(&outcome, Err(Error::OutcomeUnknown { .. }))
            || outcome.as_ref().is_ok_and(|o| *o == updated(own.clone())),
        "{outcome:?}"
    );

    let next = |fluree: Fluree<'static>| async move { fluree.push_status(DB, (2, "syncing"), (3, "other")).await };
    table.proxy.on("UpdateItem", then_fluree(&table, next));
    let own = status_with(2, "syncing", json!({ "n": 1 }));
    let outcome = table.store.push_status(&Call::fresh(), &db, &cas(status_at(1), own.clone())).await.unwrap();
    assert_eq!(outcome, updated(own));
    assert_eq!(found(&table, &db).await.status.v, 3);

    let next = |fluree: Fluree<'static>| async move { fluree.push_config(DB, 1, "fluree:ctx", 2).await };
    table.proxy.on("UpdateItem", then_fluree(&table, next));
    let own = Config::new(1, json!({ "a": 1 }));
    let outcome = table.store.push_config(&Call::fresh(), &db, &cas(Config::unborn(), own.clone())).await.unwrap();
    assert_eq!(outcome, updated(own));
    assert_eq!(found(&table, &db).await.config.v, 2);
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn statuses_and_configs_that_others_have_written_over_are_unknown_too() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 1).await;
    let (store, address) = (table.direct().clone(), db.clone());
    table.proxy.on(
        "UpdateItem",
        Fault::cut_reply().after(move || {
            let (store, db) = (store.clone(), address.clone());
            async move {
                for v in 2..=5 {
                    let pushed = cas(status_at(v), status(v + 1, "x"));
                    store.push_status(&Call::fresh(), &db, &pushed).await.unwrap().applied();
                }
            }
        }),
    );
    let pushed = cas(status_at(1), status(2, "syncing"));
    let error = table.store.push_status(&Call::fresh(), &db, &pushed).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");

    let (store, address) = (table.direct().clone(), db.clone());
    table.proxy.on(
        "UpdateItem",
        Fault::cut_reply().after(move || {
            let (store, db) = (store.clone(), address.clone());
            async move {
                for v in 1..=4 {
                    let pushed = cas(Config::stored(v, None), Config::new(v + 1, json!({ "v": v })));
                    store.push_config(&Call::fresh(), &db, &pushed).await.unwrap().applied();
                }
            }
        }),
    );
    let pushed = cas(Config::unborn(), Config::new(1, json!({ "a": 1 })));
    let error = table.store.push_config(&Call::fresh(), &db, &pushed).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

#[tokio::test]
async fn a_lost_creation_that_was_purged_and_made_again_is_created_and_the_later_record_stays() {
    let table = Proxied::fresh().await;
    table.proxy.forget_tokens();
    let (db, store) = (at("mydb"), table.direct().clone());
    let other = db.clone();
    table.proxy.on(
        "TransactWriteItems",
        Fault::cut_reply().after(move || {
            let (store, db) = (store.clone(), other.clone());
            async move {
                assert_eq!(store.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
                store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
            }
        }),
    );
    let outcome = table.store.create_ledger(&Call::fresh(), &db, Some(&new_head(3)), None).await.unwrap();
    assert!(matches!(&outcome, Created::Created(record) if record.head == Some(head(3))), "{outcome:?}");
    assert_eq!(found(&table, &db).await.head, Some(Head::unborn()));
}

#[tokio::test]
async fn a_lost_request_is_sent_again_and_done() {
    let table = Proxied::fresh().await;
    let (store, db) = (&table.store, at("mydb"));
    table.proxy.on_writes(Fault::cut_request());
    let outcome = store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    assert!(matches!(outcome, Created::Created(_)), "{outcome:?}");
    assert_eq!(table.proxy.count("TransactWriteItems"), 2);
    let requests = table.proxy.take_requests();
    assert_eq!(requests[0].body, requests[1].body, "identical bytes");

    table.proxy.on_writes(Fault::cut_request().times(2));
    assert_eq!(store.push_head(&Call::fresh(), &db, &cas(Head::unborn(), head(1))).await.unwrap(), updated(head(1)));
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.body == requests[0].body), "identical bytes");

    table.proxy.on("Query", Fault::cut_request().times(2));
    assert_eq!(store.head(&db).await.unwrap(), Some(head(1)));
    table.proxy.on("Query", Fault::cut_reply().times(2));
    assert_eq!(store.lookup(&db).await.unwrap().unwrap().head, Some(head(1)));
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn a_busy_engine_is_asked_again_and_never_shown_as_a_conflict() {
    let table = Proxied::fresh().await;
    let (store, db) = (&table.store, ledger(&table, "mydb", 1).await);
    for (t, code) in (2..).zip(BUSY) {
        let (expected, new) = (head(t - 1), head(t));
        table.proxy.on("UpdateItem", Fault::answer(400, code).times(2));
        let outcome = store.push_head(&Call::fresh(), &db, &cas(expected, new.clone())).await.unwrap();
        assert_eq!(outcome, updated(new), "{code}");
        table.proxy.on("TransactWriteItems", Fault::answer(400, code).times(2));
        let name = at(&format!("new{t}"));
        let outcome = store.create_ledger(&Call::fresh(), &name, None, None).await.unwrap();
        assert!(matches!(outcome, Created::Created(_)), "{code}: {outcome:?}");
        table.proxy.on("Query", Fault::answer(400, code).times(2));
        assert!(store.lookup(&db).await.unwrap().is_some(), "{code}");
        assert!(table.proxy.is_spent());
    }
}

#[tokio::test]
async fn a_rejection_after_a_busy_answer_is_certain() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 1).await;
    table.proxy.on("UpdateItem", then_heads(Fault::answer(400, "ThrottlingException"), &table, &db, 3, 3));
    let outcome = table.store.push_head(&Call::fresh(), &db, &cas(head(1), head(2))).await.unwrap();
    assert_eq!(outcome, conflict(head(3)));
    table.proxy.on("UpdateItem", then_heads(Fault::answer(400, "TransactionConflictException"), &table, &db, 4, 4));
    let outcome = table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap();
    assert_eq!(outcome, stale(head(4)));
}

#[tokio::test]
async fn a_cancelled_transaction_is_judged_by_all_of_its_reasons() {
    let table = Proxied::fresh().await;
    let (store, db) = (&table.store, ledger(&table, "mydb", 1).await);
    for (n, reason) in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"].iter().enumerate() {
        for reasons in [
            [*reason, "None", "None", "None", "None"],
            ["None", "None", "None", "None", *reason],
            ["ConditionalCheckFailed", "None", *reason, "None", "None"],
        ] {
            let name = at(&format!("new{n}-{}", Call::fresh().request_id));
            table.proxy.on("TransactWriteItems", Fault::cancelled(&reasons).times(2));
            let outcome = store.create_ledger(&Call::fresh(), &name, None, None).await.unwrap();
            assert!(matches!(outcome, Created::Created(_)), "{reasons:?}: {outcome:?}");
        }
    }
    let conflicts = ["None", "None", "None", "None", "None", "TransactionConflict"];
    table.proxy.on("TransactWriteItems", Fault::cancelled(&conflicts));
    let outcome = store.create_branch(&Call::fresh(), &at("mydb:dev"), &db, None).await.unwrap();
    assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    table.proxy.on("TransactWriteItems", Fault::cancelled(&conflicts));
    let outcome = store.retract(&Call::fresh(), &at("mydb:dev"), None).await.unwrap();
    assert!(matches!(outcome, Retracted::Retracted(_)), "{outcome:?}");
    table.proxy.on("TransactWriteItems", Fault::cancelled(&conflicts));
    assert_eq!(store.purge(&Call::fresh(), &at("mydb:dev")).await.unwrap(), Purged::Purged);
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn a_cancellation_that_no_outcome_explains_is_an_error() {
    let table = Proxied::fresh().await;
    let reasons = ["None", "ValidationError", "None", "None", "None"];
    table.proxy.on("TransactWriteItems", Fault::cancelled(&reasons).always());
    let outcome = table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await;
    assert!(matches!(outcome, Err(Error::Store { .. })), "{outcome:?}");
}

#[tokio::test]
async fn an_engine_that_stays_busy_is_unavailable() {
    let table = Proxied::fresh().await;
    let store = table.store.clone().with_retry_policy(IMPATIENT);
    let db = ledger(&table, "mydb", 1).await;
    let all = ["UpdateItem", "Query", "GetItem", "TransactWriteItems", "BatchGetItem", "Scan"];
    table.proxy.on_each(&all, Fault::answer(400, "ThrottlingException").always());
    let errors = [
        store.push_head(&Call::fresh(), &db, &older(head(2))).await.map(drop),
        store.lookup(&db).await.map(drop),
        store.create_ledger(&Call::fresh(), &at("new"), None, None).await.map(drop),
        store.retract(&Call::fresh(), &db, None).await.map(drop),
        store.list(&everything(), &anything).await.map(drop),
        store.snapshot(at_most(10), None, &anything).await.map(drop),
        store.ping().await,
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    }
    // A slow machine needs a longer deadline for a second attempt.
    let mut policy = IMPATIENT;
    while table.proxy.count("UpdateItem") < 2 {
        assert!(policy.deadline < LONG, "it was tried only once");
        table.proxy.take_requests();
        policy.deadline *= 2;
        let store = table.store.clone().with_retry_policy(policy);
        let error = store.push_head(&Call::fresh(), &db, &older(head(2))).await;
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    }
    table.proxy.disarm();
    assert_eq!(found(&table, &db).await.head, Some(head(1)));
}

#[tokio::test]
async fn a_write_whose_replies_all_get_lost_is_unknown() {
    for fault in [Fault::cut_reply(), Fault::cut_request(), Fault::answer(500, "InternalServerError")] {
        let table = Proxied::fresh().await;
        let store = table.store.clone().with_retry_policy(IMPATIENT);
        let db = ledger(&table, "mydb", 1).await;
        table.proxy.on_writes(fault.always());
        let errors = [
            store.push_head(&Call::fresh(), &db, &older(head(2))).await.map(drop),
            store.create_ledger(&Call::fresh(), &at("new"), None, None).await.map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(Error::OutcomeUnknown { .. })), "{error:?}");
        }
    }
}

#[tokio::test]
async fn reads_whose_replies_all_get_lost_are_unavailable() {
    let table = Proxied::fresh().await;
    let store = table.store.clone().with_retry_policy(IMPATIENT);
    let db = ledger(&table, "mydb", 1).await;
    table.proxy.on("Query", Fault::cut_reply().always());
    let error = store.lookup(&db).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

async fn listed_whole(store: &Store) -> Result<usize> {
    Ok(store.list(&ListQuery { full: true, ..everything() }, &anything).await?.items.len())
}

#[tokio::test]
async fn keys_that_were_left_unprocessed_are_asked_for_again_and_none_is_dropped() {
    let table = Proxied::fresh().await;
    table.put_many(&(0..45).flat_map(|n| rows::ledger(&format!("db{n}:main")).rows()).collect::<Vec<_>>()).await;
    table.proxy.on("BatchGetItem", Fault::partial_batch().times(6));
    assert_eq!(listed_whole(&table.store).await.unwrap(), 45);
    table.proxy.on("BatchGetItem", Fault::untouched_batch().times(3));
    assert_eq!(listed_whole(&table.store).await.unwrap(), 45);
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn keys_that_stay_unprocessed_are_an_error_not_a_shorter_list() {
    let table = Proxied::fresh().await;
    table.put_many(&(0..45).flat_map(|n| rows::ledger(&format!("db{n}:main")).rows()).collect::<Vec<_>>()).await;
    // The third batch is never processed.
    table.proxy.on("BatchGetItem", Fault::untouched_batch().skipping(2).always());
    let error = listed_whole(&table.store.clone().with_retry_policy(IMPATIENT)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn deletions_that_were_left_unprocessed_are_asked_for_again() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb", 40).await;
    table.put_many(&(1..=40).map(|t| rows::commit_log("mydb:main", &cid(t), t)).collect::<Vec<_>>()).await;
    table.proxy.on("BatchWriteItem", Fault::partial_batch().times(2));
    assert_eq!(table.store.purge(&Call::fresh(), &at("mydb")).await.unwrap(), Purged::Purged);
    assert!(table.proxy.is_spent());
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_purge_that_dies_while_sweeping_is_finished_by_the_next() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb", 40).await;
    table.put_many(&(1..=40).map(|t| rows::commit_log("mydb:main", &cid(t), t)).collect::<Vec<_>>()).await;
    table.proxy.on("BatchWriteItem", Fault::answer(400, "AccessDeniedException").always());
    table.store.purge(&Call::fresh(), &at("mydb")).await.ok();
    assert_eq!(table.direct().lookup(&at("mydb")).await.unwrap(), None);
    assert!(!table.rows("mydb:main").await.is_empty());
    table.proxy.disarm();
    assert_eq!(table.store.purge(&Call::fresh(), &at("mydb")).await.unwrap(), Purged::Purged);
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_given_up_and_what_it_did_is_reported() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb", 1).await;
    // A client as the product has it: an attempt is given up after 3 s.
    let store = Store::new(endpoint_client(table.proxy.url()), &table.name);
    let never = || Fault::none().after(std::future::pending);
    table.proxy.on("UpdateItem", never());
    let repeating = store.clone().with_retry_policy(engine::RETRIES);
    let (call, push) = (Call::fresh(), cas(head(1), head(2)));
    let outcome =
        timeout(LONG, repeating.push_head(&call, &db, &push)).await.expect("the first attempt is given up").unwrap();
    assert_eq!(outcome, updated(head(2)));
    table.proxy.on("Query", never().always());
    let impatient = store.with_retry_policy(IMPATIENT);
    let error = timeout(LONG, impatient.lookup(&db)).await.expect("the attempt is given up").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn errors_name_what_was_attempted_and_keep_their_source() {
    let table = Proxied::fresh().await;
    table.proxy.on("Query", Fault::answer(400, "AccessDeniedException").always());
    let error = table.store.lookup(&at("mydb")).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(table.proxy.count("Query"), 1, "asking again would not help");
}
