//! Counters.

use super::*;

#[tokio::test]
async fn no_count_is_lost_among_many_concurrent_ones() {
    let ground = Ground::of(&COUNTERS).await;
    let (visits, view) = (RowKey::new("visits"), &ground.direct);
    let counts = (0..8).map(|_| async {
        let mut seen = Vec::new();
        for _ in 0..25 {
            seen.push(view.count(&visits, "size", 3).await.unwrap());
        }
        seen
    });
    let seen: BTreeSet<i64> = join_all(counts).await.into_iter().flatten().collect();
    assert_eq!(seen, (1..=200).map(|n| 3 * n).collect());
    assert_eq!(view.count(&visits, "size", -600).await.unwrap(), 0);
    // The count of the field that was asked for, whatever else the row has.
    assert_eq!(view.count(&visits, "count", 5).await.unwrap(), 5);
}

#[tokio::test]
async fn a_count_whose_reply_is_lost_is_not_counted_twice() {
    let ground = Ground::of(&COUNTERS).await;
    let visits = RowKey::new("visits");
    let mut there = 0;
    for (fault, counted) in
        [(Fault::cut_reply(), 1), (Fault::done_but_answer(500, "InternalServerError"), 1), (Fault::cut_request(), 0)]
    {
        ground.proxy.on("UpdateItem", fault);
        let error = ground.view.count(&visits, "n", 1).await.unwrap_err();
        assert!(matches!(&error, Error::NotCounted { .. }) && error.is_outcome_unknown(), "{error}");
        there += counted;
        assert_eq!(ground.direct.count(&visits, "n", 0).await.unwrap(), there);
    }
    ground.proxy.on("UpdateItem", Fault::answer(400, "ThrottlingException").times(3));
    assert_eq!(ground.view.count(&visits, "n", 1).await.unwrap(), there + 1);
    assert!(ground.proxy.is_spent());
}

#[tokio::test]
async fn what_is_no_number_is_not_counted() {
    let ground = Ground::of(&COUNTERS).await;
    ground.view.save(&json!({"name": "visits", "n": "many"}), SaveMode::Any, None).await.unwrap();
    let error = ground.view.count(&RowKey::new("visits"), "n", 1).await.unwrap_err();
    assert!(matches!(&error, Error::NotCounted { field, .. } if field == "n"), "{error}");
    assert!(!error.is_outcome_unknown() && !error.is_unavailable());
}
