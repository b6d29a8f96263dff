//! Counters that other programs have set to NULL, or to something that is no number: they count as absent.

use nameservice_tests::{layout, prelude::*};

use super::writes::Write;
use crate::contract::{born, found, source, unborn};

/// Every counter of a record.
const COUNTERS: [(&str, &str); 8] = [
    ("meta", "branches"),
    ("meta", "dependents"),
    ("head", "commit_t"),
    ("index", "index_t"),
    ("index", "rev"),
    ("status", "status_v"),
    ("status", "lease_token"),
    ("config", "config_v"),
];

/// What is left in place of a counter: nothing, and what counts as nothing.
fn left() -> [Option<Value>; 3] {
    [None, Some(rows::null()), Some(rows::s("seven"))]
}

/// Leaves this in place of a counter. Returns whether there is such a row.
async fn leave(table: &Table, pk: &str, (sk, counter): (&str, &str), left: Option<&Value>) -> bool {
    let Some(mut row) = table.row(pk, sk).await else { return false };
    row.remove(counter);
    row.extend(left.map(|left| (counter.to_owned(), left.clone())));
    table.put(&[row]).await;
    true
}

/// The rows of an address with their counters and marks, without those that are as they were left.
async fn stored(table: &Table, pk: &str, left: Option<&Value>) -> Vec<String> {
    let marks = ["status", "retracted", "protected", "commit_id", "index_id", "rev_id"];
    let mut stored = Vec::new();
    for (sk, row) in table.rows(pk).await {
        stored.push(sk.split('#').next().unwrap().to_owned());
        for name in COUNTERS.iter().map(|(_, counter)| *counter).chain(marks) {
            let value = row.get(name).filter(|value| Some(*value) != left);
            stored.extend(value.map(|value| format!("{sk} {name} {value}")));
        }
    }
    stored
}

fn word(answer: Result<(bool, String)>) -> String {
    let (applied, answer) = answer.unwrap();
    format!("{applied} {}", answer.split([' ', '(', '{']).next().unwrap())
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_as_an_absent_one_to_every_write() {
    let table = Table::fresh().await;
    for write in Write::ALL {
        for (n, counter) in COUNTERS.into_iter().enumerate() {
            let mut expected = None;
            for (m, left) in left().iter().enumerate() {
                let left = left.as_ref();
                let name = format!("{}-{n}-{m}", format!("{write:?}").to_lowercase());
                write.prepare(&table, &name).await;
                let (own, main) = (write.address(&name), at(&name));
                let is_there = leave(&table, main.as_str(), counter, left).await;
                if own != main {
                    leave(&table, own.as_str(), counter, left).await;
                }
                if !is_there {
                    break;
                }
                let answer = word(write.make(&table.store, &Call::fresh(), &name).await);
                let after = [stored(&table, main.as_str(), left).await, stored(&table, own.as_str(), left).await];
                let expected = expected.get_or_insert_with(|| (answer.clone(), after.clone()));
                assert_eq!((answer, after), *expected, "{write:?}, {counter:?} is {left:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_refresh_on_a_status_without_a_readable_v_counts_from_one() {
    for left in left() {
        let table = Table::fresh().await;
        let (store, db) = (&table.store, born(&table.store, "mydb", 1).await);
        store.acquire_lease(&Call::fresh(), &db, &index_lock("me", 60)).await.unwrap().applied();
        leave(&table, db.as_str(), ("status", "status_v"), left.as_ref()).await;
        store.refresh_lease(&Call::fresh(), &db, &index_lock("me", 60), 1).await.unwrap().applied();
        assert_eq!(store.status(&db).await.unwrap().unwrap().v, 2, "{left:?}");
    }
}

#[tokio::test]
async fn an_unreadable_count_of_dependents_begins_again_with_the_next_one() {
    for left in left() {
        let table = Table::fresh().await;
        let (store, db) = (&table.store, unborn(&table.store, "mydb").await);
        let spoil = || leave(&table, db.as_str(), ("meta", "dependents"), left.as_ref());
        let counted = async || (found(store, &db).await.dependents, store.dependents(&db).await.unwrap().len());
        assert!(spoil().await);
        let search = source(store, "search", &["mydb"]).await;
        assert_eq!(counted().await, (1, 1), "{left:?}");
        // The count is lost again: nothing to decrement.
        spoil().await;
        let none = bm25(&search, json!({}), &[]);
        store.publish_graph_source(&Call::fresh(), &none).await.unwrap().applied();
        assert_eq!(counted().await, (0, 0), "{left:?}");
        // A row that an earlier target has left.
        spoil().await;
        table.put(&[rows::row(db.as_str(), "backref#search:main", [("dependent", rows::s("search:main"))])]).await;
        let one = bm25(&search, json!({}), &["mydb"]);
        store.publish_graph_source(&Call::fresh(), &one).await.unwrap().applied();
        assert_eq!(counted().await, (1, 1), "{left:?}");
        spoil().await;
        store.purge(&Call::fresh(), &search).await.unwrap().applied();
        assert_eq!(counted().await, (0, 0), "{left:?}");
        // Fluree's references are adopted.
        spoil().await;
        table.put(&rows::graph_source("theirs:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
        store.examine(true, &mut |_| {}).await.unwrap();
        assert_eq!(counted().await, (1, 1), "{left:?}");
        layout::assert_references(&table.all_rows().await);
        store.purge(&Call::fresh(), &at("theirs")).await.unwrap().applied();
        spoil().await;
        store.retract(&Call::fresh(), &db, None).await.unwrap().applied();
        store.purge(&Call::fresh(), &db).await.unwrap().applied();
    }
}

#[tokio::test]
async fn an_unreadable_revision_is_none_to_another_index_at_the_same_t() {
    let mut expected = None;
    for left in left() {
        let table = Table::fresh().await;
        let (store, db) = (&table.store, born(&table.store, "mydb", 1).await);
        store.push_index(&Call::fresh(), &db, &older(index(1))).await.unwrap().applied();
        store.acquire_lease(&Call::fresh(), &db, &index_lock("me", 60)).await.unwrap().applied();
        let mut answers = Vec::new();
        let mut current = index_at(1, 0);
        for n in [50, 51, 52] {
            leave(&table, db.as_str(), ("index", "rev"), left.as_ref()).await;
            let push = cas(current, index_of(n, 1));
            match n {
                50 => answers.push(format!("{:?}", store.push_index(&Call::fresh(), &db, &push).await.unwrap())),
                51 => {
                    let push = push.under(claim_of(LeaseName::INDEX, "me", 1)).unwrap();
                    answers.push(format!("{:?}", store.push_index(&Call::fresh(), &db, &push).await.unwrap()));
                }
                _ => {
                    let all = transaction(&[Operation::new(db.clone(), push)]);
                    answers.push(format!("{:?}", store.commit(&Call::fresh(), &all).await.unwrap()));
                }
            }
            current = store.index(&db).await.unwrap().unwrap();
            assert_eq!(current.payload.as_ref().unwrap().id, index_cid(n), "{left:?}");
        }
        let expected = expected.get_or_insert_with(|| answers.clone());
        assert_eq!(answers, *expected, "{left:?}");
    }
}
