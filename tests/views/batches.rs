//! Many rows in one call.

use super::*;

#[tokio::test]
async fn a_batch_of_any_length_is_written_whole_in_requests_of_25() {
    let ground = Ground::of(&ORDERS).await;
    let rows: Vec<_> = (0..130).map(|n| (order("ada", format!("{n:03}")), None)).collect();
    ground.proxy.on("BatchWriteItem", Fault::partial_batch().times(4));
    ground.proxy.on("BatchWriteItem", Fault::untouched_batch().times(2));
    ground.proxy.on("BatchWriteItem", Fault::cut_reply());
    ground.proxy.on("BatchWriteItem", Fault::answer(400, "ProvisionedThroughputExceededException"));
    ground.view.save_batch(&rows).await.unwrap();
    assert!(ground.proxy.is_spent());
    for request in ground.proxy.take_requests() {
        assert!(request.body["RequestItems"][ground.view.table()].as_array().unwrap().len() <= 25);
    }
    let saved = ground.direct.load::<Order>("ada").await.unwrap();
    assert_eq!(saved, rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());

    ground.proxy.on("BatchWriteItem", Fault::partial_batch().times(3));
    let keys: Vec<_> = saved.iter().skip(1).map(key).collect();
    ground.view.delete_batch(&keys).await.unwrap();
    assert!(ground.proxy.is_spent());
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), saved[..1]);
    ground.view.delete_batch(&keys).await.unwrap();
    ground.proxy.take_requests();
    ground.view.save_batch::<Order>(&[]).await.unwrap();
    ground.view.delete_batch(&[]).await.unwrap();
    assert_eq!(ground.proxy.take_operations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_batch_of_keys_is_read_in_its_order_and_what_the_first_reads_miss_is_read_again() {
    let ground = Ground::of(&ORDERS).await;
    let rows: Vec<_> = (0..230).map(|n| (order("ada", format!("{n:03}")), None)).collect();
    ground.direct.save_batch(&rows).await.unwrap();
    let late = order("ada", "900");
    let keys: Vec<_> =
        rows.iter().rev().map(|(row, _)| key(row)).chain([key(&late), RowKey::sorted("ada", "none")]).collect();
    let read = async || {
        ground.proxy.take_requests();
        let read: Vec<Option<Order>> = ground.view.load_batch(&keys).await.unwrap();
        let requests = ground.proxy.take_requests();
        let of = |request: &nameservice_tests::proxy::Request| {
            let wanted = &request.body["RequestItems"][ground.view.table()];
            (wanted["ConsistentRead"] == true, wanted["Keys"].as_array().unwrap().len())
        };
        (read, requests.iter().map(of).collect::<Vec<_>>())
    };
    let stored: Vec<Option<Order>> = rows.iter().rev().map(|(row, _)| Some(row.clone())).collect();
    let requests = [(false, 100), (false, 100), (false, 32), (true, 2)];
    assert_eq!(read().await, ([&stored[..], &[None, None]].concat(), requests.to_vec()));
    // A row that the first reads do not see yet.
    let (direct, row) = (ground.direct.clone(), late.clone());
    ground.proxy.on(
        "BatchGetItem",
        Fault::none().skipping(2).after(move || {
            let (direct, row) = (direct.clone(), row.clone());
            async move { direct.save(&row, SaveMode::Init, None).await.unwrap() }
        }),
    );
    assert_eq!(read().await, ([&stored[..], &[Some(late), None]].concat(), requests.to_vec()));
    ground.proxy.on("BatchGetItem", Fault::partial_batch().times(3));
    ground.proxy.on("BatchGetItem", Fault::untouched_batch().times(2));
    assert_eq!(read().await.0.iter().flatten().count(), 231);
    assert!(ground.proxy.is_spent());
    let none: Vec<Option<Order>> = ground.view.load_batch(&[]).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn rows_that_cannot_be_written_are_reported_one_by_one_and_take_no_other_with_them() {
    let ground = Ground::of(&ORDERS).await;
    let mut rows: Vec<_> = (0..40).map(|n| (order("ada", format!("{n:02}")), None)).collect();
    rows[3].0.note = "x".repeat(410 * 1024);
    rows[11].0.placed_at = String::new();
    rows[30].0.state = String::new();
    let failure = ground.view.save_batch(&rows).await.unwrap_err();
    let shown: Vec<_> = failure.failed.iter().map(|row| (row.position, row.key.clone())).collect();
    assert_eq!(
        shown,
        [(3, Some(RowKey::sorted("ada", "03"))), (11, None), (30, Some(RowKey::sorted("ada", "30")))],
        "{failure}"
    );
    assert_eq!(failure.of, 40);
    assert!(matches!(*failure.failed[0].source, Source::TooLarge));
    assert!(Error::from(failure).is_too_large());
    let saved = ground.direct.load::<Order>("ada").await.unwrap();
    let fine = rows.iter().enumerate().filter(|(n, _)| ![3, 11, 30].contains(n)).map(|(_, (row, _))| row.clone());
    assert_eq!(saved, fine.collect::<Vec<_>>());

    let keys = [RowKey::sorted("ada", "00"), RowKey::new("ada"), RowKey::sorted("ada", "01")];
    let failure = ground.view.delete_batch(&keys).await.unwrap_err();
    assert_eq!(failure.failed.iter().map(|row| row.position).collect::<Vec<_>>(), [1]);
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap().len(), 35);
}

#[tokio::test]
async fn rows_that_stay_unprocessed_are_reported_and_can_be_sent_again() {
    let ground = Ground::of(&ORDERS).await;
    let rows: Vec<_> = (0..50).map(|n| (order("ada", format!("{n:02}")), None)).collect();
    ground.proxy.on("BatchWriteItem", Fault::untouched_batch().skipping(1).always());
    let failure = ground.impatient().save_batch(&rows).await.unwrap_err();
    assert_eq!(failure.failed.len(), 25);
    let positions: BTreeSet<_> = failure.failed.iter().map(|row| row.position).collect();
    for (n, (row, _)) in rows.iter().enumerate() {
        assert_eq!(ground.found(row).await.is_none(), positions.contains(&n));
    }
    ground.proxy.disarm();
    let left: Vec<_> = positions.iter().map(|&n| rows[n].clone()).collect();
    assert!(Error::from(failure).is_unavailable());
    ground.view.save_batch(&left).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap().len(), 50);

    ground.proxy.on("BatchWriteItem", Fault::cut_reply().always());
    let failure = ground.impatient().delete_batch(&[key(&rows[0].0)]).await.unwrap_err();
    assert!(Error::from(failure).is_outcome_unknown());
}

#[tokio::test]
async fn of_rows_with_one_key_the_last_of_a_batch_is_saved() {
    let ground = Ground::of(&ORDERS).await;
    let rows = [noted("ada", 1, "a"), order("ada", 2), noted("ada", 1, "b")].map(|row| (row, None));
    ground.view.save_batch(&rows).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [rows[2].0.clone(), rows[1].0.clone()]);
    let twice = [key(&rows[0].0), key(&rows[0].0)];
    ground.view.delete_batch(&twice).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [rows[1].0.clone()]);
}
