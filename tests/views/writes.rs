//! Rows saved, expired and deleted.

use super::*;

#[tokio::test]
async fn an_initial_save_leaves_what_is_there_and_others_replace_it() {
    let ground = Ground::of(&ORDERS).await;
    ground.view.save(&noted("ada", 1, "a"), SaveMode::Init, None).await.unwrap();
    let error = ground.view.save(&noted("ada", 1, "b"), SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { key, .. } if *key == RowKey::sorted("ada", "1")), "{error}");
    assert_eq!(ground.found(&order("ada", 1)).await, Some(noted("ada", 1, "a")));
    // The same row again is rejected, too: no reply was lost.
    let again = ground.view.save(&noted("ada", 1, "a"), SaveMode::Init, None).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    for mode in [SaveMode::Any, SaveMode::Overwrite] {
        let row = noted("ada", 1, format!("{mode:?}"));
        ground.view.save(&row, mode, None).await.unwrap();
        assert_eq!(ground.found(&row).await, Some(row));
    }
    ground.view.save(&order("ada", 2), SaveMode::Any, None).await.unwrap();
    assert_eq!(ground.view.load::<Order>("ada").await.unwrap().len(), 2);
}

#[tokio::test]
async fn of_many_initial_saves_exactly_one_is_first() {
    let ground = Ground::of(&ORDERS).await;
    let saves = (0..16).map(|n| {
        let view = &ground.direct;
        async move { view.save(&noted("ada", 1, n), SaveMode::Init, None).await }
    });
    let results = join_all(saves).await;
    let winners: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_ok()).map(|(n, _)| n).collect();
    assert_eq!(winners.len(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(Error::AlreadyExists { .. }))));
    assert_eq!(ground.found(&order("ada", 1)).await.unwrap().note, winners[0].to_string());
}

#[tokio::test]
async fn an_initial_save_whose_reply_is_lost_is_saved() {
    let ground = Ground::of(&ORDERS).await;
    for (n, fault) in [Fault::cut_reply(), Fault::done_but_answer(500, "InternalServerError"), Fault::cut_request()]
        .into_iter()
        .enumerate()
    {
        ground.proxy.on("PutItem", fault);
        // 1.50 and sets come back in another form than they were sent in.
        let row = json!({ "customer": "ada", "placed_at": n.to_string(), "price": 1.50, "list": [1.0, {"a": -0.25}] });
        ground.view.save(&row, SaveMode::Init, Some(1_900_000_000)).await.unwrap();
        assert!(ground.proxy.is_spent());
    }
    assert_eq!(ground.direct.load::<serde_json::Value>("ada").await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_initial_save_that_finds_a_row_of_another_after_a_lost_reply_does_not_claim_to_know() {
    let ground = Ground::of(&ORDERS).await;
    let (ours, theirs) = (noted("ada", 1, "ours"), noted("ada", 1, "theirs"));
    let direct = ground.direct.clone();
    let (row, saved) = (theirs.clone(), direct.clone());
    ground.proxy.on(
        "PutItem",
        Fault::cut_request().before(move || {
            let (row, saved) = (row.clone(), saved.clone());
            async move { saved.save(&row, SaveMode::Init, None).await.unwrap() }
        }),
    );
    let error = ground.view.save(&ours, SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(error, Error::NotSaved { .. }) && error.is_outcome_unknown(), "{error}");
    assert_eq!(ground.found(&ours).await, Some(theirs));
}

#[tokio::test]
async fn a_busy_table_is_asked_again_and_a_table_that_stays_busy_is_unavailable() {
    let ground = Ground::of(&ORDERS).await;
    for code in ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"] {
        ground.proxy.on_each(&["PutItem", "Query", "DeleteItem"], Fault::answer(400, code).times(3));
        ground.view.save(&order("ada", code), SaveMode::Init, None).await.unwrap();
        assert!(ground.proxy.is_spent());
    }
    ground.proxy.on_each(&["PutItem", "Query"], Fault::answer(400, "ThrottlingException").always());
    let error = ground.impatient().save(&order("bob", 1), SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { .. }) && error.is_unavailable(), "{error}");
    let error = ground.impatient().load::<Order>("ada").await.unwrap_err();
    assert!(matches!(&error, Error::NotLoaded { .. }) && error.is_unavailable(), "{error}");
    ground.proxy.disarm();
    ground.proxy.on("PutItem", Fault::cut_reply().always());
    let error = ground.impatient().save(&order("cid", 1), SaveMode::Any, None).await.unwrap_err();
    assert!(error.is_outcome_unknown() && !error.is_unavailable(), "{error}");
    assert_eq!(ground.found(&order("bob", 1)).await, None);
}

#[tokio::test]
async fn a_row_that_is_too_large_or_has_no_key_is_not_saved() {
    let ground = Ground::of(&ORDERS).await;
    let error = ground.view.save(&noted("ada", 1, "x".repeat(410 * 1024)), SaveMode::Any, None).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { id, .. } if id == "ada 1") && error.is_too_large(), "{error}");
    for row in [
        json!({"customer": "ada"}),
        json!({"customer": "", "placed_at": "1"}),
        json!([1]),
        json!({"customer": 1, "placed_at": "1"}),
    ] {
        let error = ground.view.save(&row, SaveMode::Any, None).await.unwrap_err();
        assert!(matches!(&error, Error::NotSaved { .. }) && !error.is_too_large(), "{error}");
    }
}

#[tokio::test]
async fn a_row_past_its_end_is_gone_for_those_who_say_what_time_it_is() {
    const NOON: i64 = 4_000_000_000;
    let ground = Ground::of(&ORDERS).await;
    ground.view.save(&order("ada", 1), SaveMode::Init, Some(NOON)).await.unwrap();
    ground.view.save_batch(&[(order("ada", 2), Some(NOON + 1)), (order("ada", 3), None)]).await.unwrap();
    assert_eq!(ground.raw(&order("ada", 1)).await.unwrap()["ttl"], AttributeValue::N(NOON.to_string()));
    assert_eq!(ground.raw(&order("ada", 2)).await.unwrap()["ttl"], AttributeValue::N((NOON + 1).to_string()));
    assert!(!ground.raw(&order("ada", 3)).await.unwrap().contains_key("ttl"));
    assert_eq!(ground.view.load::<Order>("ada").await.unwrap().len(), 3);
    indexed::<Order>(&ground.view, "by-state", "open", &Range::new(), 3).await;

    let placed = |rows: Vec<Order>| rows.into_iter().map(|row| row.placed_at).collect::<Vec<_>>();
    for (now, left) in [(NOON - 1, vec!["1", "2", "3"]), (NOON, vec!["2", "3"]), (NOON + 1, vec!["3"])] {
        let view = ground.view.alive_at(now);
        assert_eq!(placed(view.load("ada").await.unwrap()), left);
        assert_eq!(placed(view.load_range("ada", &Range::new()).await.unwrap().rows), left);
        assert_eq!(view.load_one::<Order>(&RowKey::sorted("ada", "1")).await.unwrap().is_some(), now < NOON);
        let open = view.query_index::<Order>("by-state", "open", &Range::new()).await.unwrap();
        assert_eq!(open.rows.len(), left.len());
    }

    let again = noted("ada", 1, "again");
    let rejected = ground.view.save(&again, SaveMode::Init, None).await;
    assert!(matches!(rejected, Err(Error::AlreadyExists { .. })));
    let rejected = ground.view.alive_at(NOON - 1).save(&again, SaveMode::Init, None).await;
    assert!(matches!(rejected, Err(Error::AlreadyExists { .. })));
    ground.view.alive_at(NOON).save(&again, SaveMode::Init, None).await.unwrap();
    assert_eq!(ground.found(&again).await, Some(again));
}

#[tokio::test]
async fn rows_of_a_table_without_ttl_do_not_expire() {
    let ground = Ground::of(&COUNTERS).await;
    let error = ground.view.save(&json!({"name": "visits"}), SaveMode::Any, Some(1)).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { .. }), "{error}");
    ground.view.save(&json!({"name": "visits", "ttl": 1}), SaveMode::Any, None).await.unwrap();
    assert_eq!(ground.view.alive_at(9).load::<serde_json::Value>("visits").await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_deleted_is_gone_however_often() {
    let ground = Ground::of(&ORDERS).await;
    ground.save_all(&[order("ada", 1), order("ada", 2)]).await;
    ground.proxy.on("DeleteItem", Fault::cut_reply());
    for _ in 0..2 {
        ground.view.delete(&RowKey::sorted("ada", "1")).await.unwrap();
    }
    assert!(ground.proxy.is_spent());
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [order("ada", 2)]);
    ground.proxy.on("DeleteItem", Fault::cut_reply().always());
    let error = ground.impatient().delete(&RowKey::sorted("ada", "2")).await.unwrap_err();
    assert!(matches!(&error, Error::NotDeleted { .. }) && error.is_outcome_unknown(), "{error}");
}
