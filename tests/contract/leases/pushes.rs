//! Pushes under a lease.

use std::collections::BTreeMap;

use super::*;
use crate::contract::unborn;

/// Pushes each concern under a claim. Returns each concern with its outcome, less the value.
async fn push_each(ns: &Fixture, claim: &LeaseClaim, t: i64) -> Vec<(&'static str, String)> {
    fn word<T: std::fmt::Debug>(outcome: PushOutcome<T>) -> String {
        match outcome {
            PushOutcome::LeaseLost { lease } => format!("lost to {:?}", lease.map(|lease| lease.holder)),
            other => format!("{other:?}").split([' ', '(']).next().unwrap().to_owned(),
        }
    }
    let (call, db) = (Call::fresh, at(DB));
    let v = ns.status(&db).await.unwrap().map_or(1, |status| status.v);
    let config = ns.config(&db).await.unwrap().unwrap_or(Config::unborn());
    let new_config = Config::new(config.v + 1, json!({ "t": t }));
    vec![
        ("head", word(ns.push_head(&call(), &db, &under(claim, older(head(t)))).await.unwrap())),
        ("index", word(ns.push_index(&call(), &db, &under(claim, older(index(t)))).await.unwrap())),
        ("status", {
            let push = cas(Status::stored(v, None), status(v + 1, "indexing"));
            word(ns.push_status(&call(), &db, &under(claim, push)).await.unwrap())
        }),
        ("config", word(ns.push_config(&call(), &db, &under(claim, cas(config, new_config))).await.unwrap())),
    ]
}

fn all(word: &str) -> Vec<(&'static str, String)> {
    ["head", "index", "status", "config"].map(|concern| (concern, word.to_owned())).to_vec()
}

#[every_backend(Leases, LeasedIndexPushes)]
async fn only_the_current_token_of_a_live_lease_pushes(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    assert_eq!(push_each(ns, &claim("one", 1), 2).await, all("Updated"));
    for wrong in [claim("one", 2), claim("two", 1), claim_of(LeaseName::REINDEX, "one", 1)] {
        assert_eq!(push_each(ns, &wrong, 3).await, all("lost to Some(\"one\")"), "{wrong:?}");
    }
    expire(ns);
    assert_eq!(push_each(ns, &claim("one", 1), 3).await, all("lost to Some(\"one\")"), "expired");
    held(ns, "two").await;
    assert_eq!(push_each(ns, &claim("one", 1), 3).await, all("lost to Some(\"two\")"), "superseded");
    assert_eq!(push_each(ns, &claim("two", 2), 3).await, all("Updated"));
    release(ns, "two", 2).await.applied();
    assert_eq!(push_each(ns, &claim("two", 2), 4).await, all("lost to None"), "released");
    assert_eq!(ns.head(&at(DB)).await.unwrap(), Some(head(3)));
}

/// A minute of that is within the difference of two clocks.
#[every_backend(Leases, LeasedIndexPushes)]
async fn a_lease_that_was_acquired_before_the_clock_was_set_back_fences_no_push_until_it_is_refreshed(ns: &Fixture) {
    ledger(ns).await;
    let hour = for_seconds("one", 3_600);
    ns.acquire_lease(&Call::fresh(), &at(DB), &hour).await.unwrap().applied();
    ns.clock.set_back(Duration::from_secs(30));
    assert_eq!(push_each(ns, &claim("one", 1), 2).await, all("Updated"));
    ns.clock.set_back(Duration::from_secs(25 * 3_600));
    assert_eq!(push_each(ns, &claim("one", 1), 3).await, all("lost to Some(\"one\")"));
    let operation = Operation::new(at(DB), under(&claim("one", 1), older(head(3))));
    if ns.capabilities().await.unwrap().has(Capability::Transactions) {
        let committed = ns.commit(&Call::fresh(), &transaction(&[operation])).await.unwrap();
        assert!(
            matches!(&committed, Committed::Rejected(all) if matches!(all[..], [OperationOutcome::LeaseLost { .. }])),
            "{committed:?}"
        );
    }
    assert_eq!(ns.head(&at(DB)).await.unwrap(), Some(head(2)));
    // It is its holder's still, as long as nobody has taken it.
    ns.refresh_lease(&Call::fresh(), &at(DB), &hour, 1).await.unwrap().applied();
    assert_eq!(push_each(ns, &claim("one", 1), 3).await, all("Updated"));
    ns.clock.set_back(Duration::from_secs(25 * 3_600));
    assert_eq!(held(ns, "two").await.token, 2);
    assert_eq!(push_each(ns, &claim("one", 1), 4).await, all("lost to Some(\"two\")"));
    assert_eq!(push_each(ns, &claim("two", 2), 4).await, all("Updated"));
}

#[every_backend(Leases)]
async fn a_push_under_a_lease_is_rejected_as_any_push_is(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    let mine = claim("one", 1);
    let push = async |push: HeadPush| ns.push_head(&Call::fresh(), &at(DB), &under(&mine, push)).await.unwrap();
    assert_eq!(push(older(head(1))).await, replayed(head(1)));
    assert_eq!(push(older(Head::new(1, cid(9)))).await, stale(head(1)));
    assert_eq!(push(cas(head(5), head(6))).await, conflict(head(1)));
    assert_eq!(push(cas(head(1), head(2))).await, updated(head(2)));
    let status_push = cas(Status::stored(9, None), status(10, "x"));
    let outcome = ns.push_status(&Call::fresh(), &at(DB), &under(&mine, status_push)).await.unwrap();
    assert!(matches!(&outcome, PushOutcome::Conflict { actual: Some(actual) } if actual.v == 2), "{outcome:?}");
    let nowhere = ns.push_head(&Call::fresh(), &at("nowhere"), &under(&mine, older(head(2)))).await.unwrap();
    assert_eq!(nowhere, PushOutcome::Unknown);
    unborn(ns, "other").await;
    let other = ns.push_head(&Call::fresh(), &at("other"), &under(&mine, older(head(2)))).await.unwrap();
    assert_eq!(other, PushOutcome::LeaseLost { lease: None });
}

#[every_backend(Leases, LeasedIndexPushes, NamedGraphs)]
async fn an_index_push_under_a_lease_counts_revisions_and_named_graphs(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    let mine = claim("one", 1);
    let push = async |push: IndexPush| ns.push_index(&Call::fresh(), &at(DB), &under(&mine, push)).await.unwrap();
    assert_eq!(push(older(index(1))).await, updated(index_at(1, 0)));
    let again = index_of(50, 1);
    let there = Index::new(1, IndexRoot { id: index_cid(50), rev: 1, graphs: BTreeMap::new() });
    assert_eq!(push(cas(index_at(1, 0), again)).await, updated(there.clone()));
    let graphs = |range: std::ops::Range<i64>, t: i64| -> BTreeMap<String, Option<NewGraphIndex>> {
        range.map(|n| (format!("g{n}"), Some(graph(100 + n, t, None)))).collect()
    };
    let wide = index(5).with_graphs(graphs(0..90, 5)).unwrap();
    let outcome = push(older(wide.clone())).await;
    let PushOutcome::Updated { value, replayed: false } = outcome else { panic!("{outcome:?}") };
    assert_eq!(value.payload.as_ref().unwrap().graphs.len(), 90);
    assert_eq!(ns.index(&at(DB)).await.unwrap(), Some(value.clone()));
    assert_eq!(push(older(wide)).await, replayed(value.clone()), "current");
    let stale_one = index(4).with_graphs(graphs(0..90, 4)).unwrap();
    assert_eq!(push(older(stale_one)).await, stale(value));
}

#[every_backend(Leases, LeasedIndexPushes, NamedGraphs)]
async fn a_wide_index_push_never_goes_backwards(ns: &Fixture) {
    ledger(ns).await;
    let graphs = |t: i64| -> BTreeMap<String, Option<NewGraphIndex>> {
        (0..40).map(|n| (format!("g{n}"), Some(graph(100 + t, t, None)))).collect()
    };
    let push = async |push: IndexPush| ns.push_index(&Call::fresh(), &at(DB), &push).await.unwrap();
    let wide = |t: i64| index(t).with_graphs(graphs(t)).unwrap();
    let PushOutcome::Updated { value, replayed: false } = push(older(wide(5))).await else { panic!("not updated") };
    assert_eq!(push(older(wide(4))).await, stale(value.clone()));
    assert_eq!(push(cas(index_at(3, 0), wide(6))).await, conflict(value.clone()));
    assert_eq!(push(older(wide(5))).await, replayed(value.clone()));
    assert_eq!(ns.index(&at(DB)).await.unwrap(), Some(value));
    let nowhere = ns.push_index(&Call::fresh(), &at("nowhere"), &older(wide(1))).await.unwrap();
    assert_eq!(nowhere, PushOutcome::Unknown);
}
