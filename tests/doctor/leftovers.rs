//! Rows that belong to no record.

use super::*;

#[tokio::test]
async fn orphans_ghosts_and_leftover_commits_are_swept() {
    let table = Table::fresh().await;
    table.put(&rows::orphans("orphan:main", cid(3), 3)).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&[rows::ghost_meta("both:main")]).await;
    table.put(&rows::orphans("both:main", cid(3), 3)).await;
    table.put(&[rows::bare("bare:main", "status")]).await;
    let commits: Vec<Row> = (1..=200).map(|t| rows::commit_log("purged:main", &cid(t), t)).collect();
    table.put_many(&commits).await;
    table.put(&[rows::commit_log("kept:main", &cid(1), 1)]).await;
    table.put(&rows::ledger("kept:main").commit(cid(1), 1).rows()).await;
    let all = [
        "bare:main orphan-items",
        "both:main ghost-meta",
        "both:main orphan-items",
        "ghost:main ghost-meta",
        "orphan:main orphan-items",
        "purged:main leftover-commits",
    ];
    mended(&table, &all).await;
    assert!(table.all_rows().await.iter().all(|row| row["pk"] == rows::s("kept:main")));
    assert_eq!(table.rows("kept:main").await.len(), 6);
}

#[tokio::test]
async fn a_record_that_is_created_meanwhile_is_not_swept() {
    for leftovers in [rows::orphans(DB, cid(3), 3), vec![rows::ghost_meta(DB)], vec![rows::commit_log(DB, &cid(3), 1)]]
    {
        let table = Proxied::fresh().await;
        table.put(&leftovers).await;
        let direct = table.direct().clone();
        let create = move || {
            let direct = direct.clone();
            async move {
                let created = direct.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap();
                assert!(matches!(created, Created::Created(_)));
            }
        };
        table.proxy.on("TransactWriteItems", Fault::none().before(create));
        let findings = examine(&table.store, true).await;
        assert!(table.proxy.is_spent());
        assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
        assert_eq!(record(&table, &at("mydb")).await.head, Some(head(1)));
        let rows = table.rows(DB).await;
        let concerns = rows.values().filter(|row| !row["sk"]["S"].as_str().unwrap().starts_with("commit#"));
        layout::assert_ours(concerns);
        assert_eq!(found(&table).await, [] as [&str; 0]);
    }
}

#[tokio::test]
async fn an_orphan_that_is_written_meanwhile_is_not_swept() {
    let table = Proxied::fresh().await;
    table.put(&rows::orphans(DB, cid(3), 3)).await;
    // Fluree's own update takes the row for that of a record.
    let client: &'static _ = Box::leak(Box::new(table.client.clone()));
    let name: &'static str = Box::leak(table.name.clone().into_boxed_str());
    let push = move || async move { assert!(Fluree::with(client, name).commit(DB, &cid(9), 9).await) };
    table.proxy.on("TransactWriteItems", Fault::none().before(push));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(table.row(DB, "head").await.unwrap()["commit_t"], rows::n(9));
    mended(&table, &["mydb:main orphan-items"]).await;
}
