//! Rows that are written together.

use super::*;
use nameservice_views::Outcome;

fn init(row: &Order) -> Write {
    Write::save(row, SaveMode::Init, None).unwrap()
}

fn advance(from: i64, to: i64) -> Write {
    let set = to_item(&json!({"size": to * 10, "by": "test"})).unwrap();
    Write::Advance { key: RowKey::sorted("counter", "n"), field: "n".into(), from, to, set }
}

async fn counter(ground: &Ground) -> Option<serde_json::Value> {
    ground.direct.load_one(&RowKey::sorted("counter", "n")).await.unwrap()
}

fn at(n: i64) -> serde_json::Value {
    json!({"customer": "counter", "placed_at": "n", "n": n, "size": n * 10, "by": "test"})
}

#[tokio::test]
async fn a_transaction_is_written_whole_or_not_at_all_and_says_what_stood_in_the_way() {
    let ground = Ground::of(&ORDERS).await;
    ground.view.transact(Vec::new()).await.unwrap().into_result().unwrap();
    ground
        .view
        .transact(vec![advance(0, 2), init(&order("ada", 1)), init(&order("ada", 2))])
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(counter(&ground).await, Some(at(2)));
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [order("ada", 1), order("ada", 2)]);

    let writes = vec![advance(0, 1), init(&order("ada", 3)), init(&noted("ada", 2, "again"))];
    let rejected = ground.view.transact(writes).await.unwrap().into_result().unwrap_err();
    let [Rejected { position: 0, item: Some(moved) }, Rejected { position: 2, item: Some(there) }] = &rejected[..]
    else {
        panic!("{rejected:?}")
    };
    assert_eq!(from_item::<serde_json::Value>(moved.clone()).unwrap(), at(2));
    assert_eq!(from_item::<Order>(there.clone()).unwrap(), order("ada", 2));
    assert_eq!(ground.found(&order("ada", 3)).await, None);

    let absent =
        Write::Advance { key: RowKey::sorted("counter", "none"), field: "n".into(), from: 1, to: 2, set: Item::new() };
    let rejected = ground.view.transact(vec![absent, init(&order("ada", 3))]).await.unwrap().into_result().unwrap_err();
    assert_eq!(rejected, [Rejected { position: 0, item: None }]);

    let over = Write::save(&noted("ada", 1, "over"), SaveMode::Any, Some(9)).unwrap();
    ground.view.transact(vec![advance(2, 3), over]).await.unwrap().into_result().unwrap();
    assert_eq!(ground.raw(&order("ada", 1)).await.unwrap()["ttl"], AttributeValue::N("9".into()));
    assert_eq!(counter(&ground).await, Some(at(3)));

    let twice = ground.view.transact(vec![init(&order("bob", 1)), init(&order("bob", 1))]).await;
    assert!(matches!(twice, Err(Error::NotWritten { .. })), "{twice:?}");
}

#[tokio::test]
async fn of_many_transactions_from_one_state_exactly_one_is_written() {
    let ground = Ground::of(&ORDERS).await;
    let appended = AtomicUsize::new(0);
    let writers = (0..6).map(|writer| {
        let (view, appended) = (&ground.direct, &appended);
        async move {
            let mut n = 0;
            while n < 12 {
                let row = noted("ada", format!("{:03}", n + 1), writer);
                match view.transact(vec![advance(n, n + 1), init(&row)]).await.unwrap() {
                    Outcome::Applied(()) => {
                        appended.fetch_add(1, Ordering::Relaxed);
                        n += 1;
                    }
                    Outcome::Rejected(rejected) => {
                        let item = rejected[0].item.clone().unwrap();
                        n = from_item::<serde_json::Value>(item).unwrap()["n"].as_i64().unwrap();
                    }
                }
            }
        }
    });
    join_all(writers).await;
    let rows = ground.direct.load::<Order>("ada").await.unwrap();
    let places: Vec<_> = rows.iter().map(|row| row.placed_at.parse::<usize>().unwrap()).collect();
    assert_eq!(places, (1..=appended.into_inner()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transaction_whose_reply_is_lost_is_written_once() {
    let ground = Ground::of(&ORDERS).await;
    for (n, fault) in [Fault::cut_reply(), Fault::done_but_answer(500, "InternalServerError"), Fault::cut_request()]
        .into_iter()
        .enumerate()
    {
        let n = n as i64;
        ground.proxy.on("TransactWriteItems", fault);
        ground.view.transact(vec![advance(n, n + 1), init(&order("ada", n))]).await.unwrap().into_result().unwrap();
        assert!(ground.proxy.is_spent());
        assert_eq!(counter(&ground).await, Some(at(n + 1)));
    }
    ground.proxy.on("TransactWriteItems", Fault::cancelled(&["TransactionConflict", "None"]).times(3));
    ground.view.transact(vec![advance(3, 4), init(&order("ada", 3))]).await.unwrap().into_result().unwrap();
    assert!(ground.proxy.is_spent());
}

#[tokio::test]
async fn a_transaction_that_is_rejected_after_a_lost_reply_does_not_claim_to_know() {
    let ground = Ground::of(&ORDERS).await;
    ground.proxy.forget_tokens();
    ground.proxy.on("TransactWriteItems", Fault::cut_reply());
    let error = ground.view.transact(vec![advance(0, 1), init(&order("ada", 1))]).await.unwrap_err();
    assert!(matches!(&error, Error::NotWritten { .. }) && error.is_outcome_unknown(), "{error}");
    assert_eq!(counter(&ground).await, Some(at(1)));
}
