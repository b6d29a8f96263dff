//! Retractions that Fluree made, and marks that were left.

use super::*;

#[tokio::test]
async fn flurees_retraction_is_completed_as_ours_would_be() {
    let table = Table::fresh().await;
    let (flurees, ours) = (ledger(&table, "mydb").await, ledger(&table, "ours").await);
    Fluree::on(&table).retract(DB).await;
    let pushed = table.store.push_head(&Call::fresh(), &flurees, &older(head(2))).await.unwrap();
    assert_eq!(pushed, updated(head(2)), "until then, pushes go through");
    mended(&table, &["mydb:main marks-missing"]).await;
    retract(&table, &ours).await.applied();
    for address in [&flurees, &ours] {
        let record = record(&table, address).await;
        assert!(record.retracted);
        let status = record.status;
        assert_eq!((status.v, &*status.payload.as_ref().unwrap().state), (2, "retracted"));
        assert!(status.payload.unwrap().meta["retracted_at"].is_i64());
        for concern in ["head", "index", "status", "config"] {
            assert_eq!(table.row(address.as_str(), concern).await.unwrap()["retracted"], rows::truth(true));
        }
        let pushed = table.store.push_head(&Call::fresh(), address, &older(head(3))).await.unwrap();
        assert_eq!(pushed, PushOutcome::Retracted);
    }
    layout::assert_ours(table.rows(DB).await.values());
    assert!(matches!(table.store.restore(&Call::fresh(), &flurees).await.unwrap(), Restored::Restored(_)));
    let pushed = table.store.push_head(&Call::fresh(), &flurees, &older(head(3))).await.unwrap();
    assert_eq!(pushed, updated(head(3)));
}

#[tokio::test]
async fn retractions_of_graph_sources_and_of_bare_metas_are_completed_too() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only(DB)).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    Fluree::on(&table).retract(DB).await;
    Fluree::on(&table).retract("search:main").await;
    mended(&table, &["mydb:main marks-missing", "search:main marks-missing"]).await;
    let pushed = table.store.push_head(&Call::fresh(), &at("mydb"), &older(head(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    let pushed = table.store.push_index(&Call::fresh(), &at("search"), &older(index(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    assert_eq!(table.rows("search:main").await.len(), 4, "a graph source has no head to mark");
}

#[tokio::test]
async fn marks_that_a_restoration_has_left_are_taken_away() {
    let table = Table::fresh().await;
    let (db, reported) = (ledger(&table, "mydb").await, ledger(&table, "reported").await);
    retract(&table, &db).await.applied();
    retract(&table, &reported).await.applied();
    for pk in [DB, "reported:main"] {
        table.set(pk, "meta", "retracted", rows::truth(false)).await;
    }
    // Fluree's writers do not look at marks.
    assert!(Fluree::on(&table).push_status("reported:main", (2, "retracted"), (3, "indexing")).await);
    mended(&table, &["mydb:main marks-left", "reported:main marks-left"]).await;
    assert_eq!(record(&table, &db).await.status, status(3, "ready"));
    let status = record(&table, &reported).await.status;
    assert_eq!((status.v, status.payload.unwrap().state), (3, "indexing".to_owned()));
    for address in [&db, &reported] {
        let pushed = table.store.push_head(&Call::fresh(), address, &older(head(2))).await.unwrap();
        assert_eq!(pushed, updated(head(2)));
    }
    layout::assert_ours(table.rows(DB).await.values());
}

#[tokio::test]
async fn a_retraction_that_is_undone_meanwhile_is_left_undone() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    let direct = table.direct().clone();
    table.proxy.on(
        "TransactWriteItems",
        Fault::none().before(move || {
            let direct = direct.clone();
            async move { drop(direct.restore(&Call::fresh(), &at(DB)).await.unwrap()) }
        }),
    );
    let findings = examine(&table.store, true).await;
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].code, &findings[0].fix), ("marks-missing", &Fix::ChangedMeanwhile));
    assert!(findings[0].what.contains("head, index, status, config"), "{}", findings[0].what);
    assert!(findings[0].is_open());
    assert!(!record(&table, &db).await.retracted);
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap(), updated(head(2)));
    assert_eq!(found(&table).await, [] as [&str; 0]);
}

#[tokio::test]
async fn nor_does_one_that_fluree_undoes_meanwhile_get_marks() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    let (client, name) = (table.client.clone(), table.name.clone());
    let undo = move || {
        let (client, name) = (client.clone(), name.clone());
        async move {
            let text = |text: &str| AttributeValue::S(text.into());
            let undo = client.update_item().table_name(name).key("pk", text(DB)).key("sk", text("meta"));
            let undo = undo.update_expression("SET retracted = :no");
            undo.expression_attribute_values(":no", AttributeValue::Bool(false)).send().await.unwrap();
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(undo));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap(), updated(head(2)));
}
