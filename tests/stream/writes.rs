//! Random writes: ours of every kind, Fluree's, and rows put as they are.

use nameservice_tests::{prelude::*, rows::Fluree};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

use super::expected::{Reported, Rows, changes_between, rows_of};

const LEDGERS: [&str; 4] = ["a:main", "b:main", "c/d:main", "a:dev"];
const SOURCES: [&str; 2] = ["s:main", "t:main"];

/// Writes at random, and returns what each write has changed.
pub(super) async fn write(table: &Table, random: &mut StdRng, writes: usize) -> Vec<Vec<Reported>> {
    let mut expected = Vec::new();
    let mut before: Rows = rows_of(table).await;
    for n in 0..writes {
        let heads = write_one(table, random, n).await;
        let after = rows_of(table).await;
        let changes = changes_between(&before, &after);
        for (address, t) in heads {
            let moved = changes
                .iter()
                .any(|reported| reported.0 == address.as_str() && reported.1 == "head" && reported.3 == t);
            assert!(moved, "{address}: the head was moved to {t}, but the rows do not show it: {changes:?}");
        }
        expected.push(changes);
        before = after;
    }
    expected.retain(|changes| !changes.is_empty());
    expected
}

/// Returns the heads that were moved, as the store reports them.
async fn write_one(table: &Table, random: &mut StdRng, n: usize) -> Vec<(Address, i64)> {
    let store = &table.store;
    let call = Call::fresh();
    let ledger = at(LEDGERS.choose(random).unwrap());
    let source = at(SOURCES.choose(random).unwrap());
    let any = if random.random_bool(0.7) { ledger.clone() } else { source.clone() };
    let record = store.lookup(&any).await.unwrap();
    let t_of =
        |record: &Option<Record>| record.as_ref().and_then(|record| record.head.as_ref()).map_or(0, |head| head.v) + 1;
    let n = i64::try_from(n).unwrap();
    let fluree = Fluree::on(table);
    // Every third payload has a row of its own in the feed's table.
    let large = if n % 3 == 0 { 2_000 } else { 0 };
    match random.random_range(0..100) {
        0..10 => {
            let born = new_head(random.random_range(1..4));
            let head = random.random_bool(0.5).then_some(&born);
            drop(store.create_ledger(&call, &ledger, head, None).await.unwrap());
        }
        10..28 => {
            let t = t_of(&store.lookup(&ledger).await.unwrap()) + random.random_range(-1..3i64);
            let pushed = store.push_head(&call, &ledger, &older(head(t.max(1)))).await.unwrap();
            if let PushOutcome::Updated { value, replayed: false } = pushed {
                return vec![(ledger, value.v)];
            }
        }
        28..38 => {
            let t = record.as_ref().map_or(0, |record| record.index.v) + random.random_range(0..2i64);
            let id = nameservice_tests::cids::id_of(&format!("i{n}"));
            let push = IndexPush::overwrite(NewIndex::new(id, t.max(1)).unwrap());
            drop(store.push_index(&call, &any, &push).await.unwrap());
        }
        38..46 => {
            if let Some(record) = &record {
                let current = store.status(&any).await.unwrap().unwrap_or(record.status.clone());
                let new = status_with(
                    current.v + 1,
                    "indexing",
                    json!({ "step": n, "token": "hidden", "log": "x".repeat(large) }),
                );
                let expected = ConcernValue::stored(current.v, None);
                drop(store.push_status(&call, &any, &cas(expected, new)).await.unwrap());
            }
        }
        46..52 => {
            if let Some(current) = store.config(&ledger).await.unwrap() {
                let new = ConcernValue::new(
                    current.v + 1,
                    json!({ "default_context_id": cid(n).as_str(), "n": "x".repeat(large) }),
                );
                let expected = ConcernValue::stored(current.v, None);
                drop(store.push_config(&call, &ledger, &cas(expected, new)).await.unwrap());
            }
        }
        52..60 => {
            let depends: &[&str] = if random.random_bool(0.3) { &["a:main"] } else { &[] };
            drop(store.publish_graph_source(&call, &bm25(&source, json!({ "n": n }), depends)).await.unwrap());
        }
        60..64 => drop(store.retract(&call, &any, Some("over")).await.unwrap()),
        64..68 => drop(store.restore(&call, &any).await.unwrap()),
        68..73 => drop(store.purge(&call, &any).await.unwrap()),
        73..77 => drop(store.create_branch(&call, &at("a:dev"), &at("a:main"), None).await.unwrap()),
        77..80 => {
            let to = to_head(1);
            drop(store.reset_head(&call, &ledger, &to).await.unwrap());
        }
        80..84 => {
            let token = table.row(any.as_str(), "status").await.and_then(|status| {
                status.contains_key("lease").then(|| status["lease_token"]["N"].as_str().unwrap().parse().unwrap())
            });
            match token {
                Some(token) => {
                    drop(store.release_lease(&call, &any, &claim_of(LeaseName::INDEX, "h", token)).await.unwrap());
                }
                None => {
                    drop(store.acquire_lease(&call, &any, &index_lock("h", 60)).await.unwrap());
                }
            }
        }
        84..88 => {
            let mut operations = Vec::new();
            for address in LEDGERS.map(at) {
                if let Some(record) = store.lookup(&address).await.unwrap().filter(|record| !record.retracted) {
                    let t = t_of(&Some(record));
                    operations.push(Operation { address, action: OperationKind::PushHead(older(head(t))) });
                }
            }
            if !operations.is_empty() {
                drop(store.commit(&call, &transaction(&operations)).await.unwrap());
            }
        }
        88..91 => drop(fluree.commit(ledger.as_str(), &cid(n + 1_000), t_of(&record)).await),
        91..93 => drop(fluree.reindex(any.as_str(), &index_cid(n), n + 1).await),
        93..94 => drop(fluree.push_status(any.as_str(), (1, "ready"), (2, "busy")).await),
        94..95 => drop(fluree.push_config(ledger.as_str(), 0, "ctx", 1).await),
        95..96 => drop(fluree.clear_config(ledger.as_str(), 1, 2).await),
        96..97 => {
            if record.is_some() {
                fluree.retract(any.as_str()).await;
            }
        }
        97..98 => table.put(&[rows::commit_log(ledger.as_str(), &cid(n), n)]).await,
        98..99 => {
            if table.rows(ledger.as_str()).await.is_empty() {
                table.put(&rows::ledger(ledger.as_str()).commit(cid(n), 2).rows()).await;
            }
        }
        // The same again: nothing changes.
        _ => {
            let rows: Vec<Row> = table.rows(any.as_str()).await.into_values().collect();
            table.put(&rows).await;
        }
    }
    Vec::new()
}
