//! Counts of branches.

use super::*;

#[tokio::test]
async fn counts_of_branches_are_set_to_the_branches_that_there_are() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    let dev = branch(&table, "mydb:dev", &db).await;
    branch(&table, "mydb:dev2", &dev).await;
    let old = branch(&table, "mydb:old", &db).await;
    retract(&table, &old).await.applied();
    ledger(&table, "other").await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
    table.proxy.take_operations();
    examine(&table.store, false).await;
    assert_eq!(table.proxy.count("Scan"), 1, "counts that agree cost nothing");
    table.set(DB, "meta", "branches", rows::n(7)).await;
    table.set("mydb:dev", "meta", "branches", rows::n(0)).await;
    table.set("other:main", "meta", "branches", rows::n(1)).await;
    let all = ["mydb:dev branches-miscounted", "mydb:main branches-miscounted", "other:main branches-miscounted"];
    mended(&table, &all).await;
    assert_eq!(record(&table, &db).await.branches, 2, "a retracted branch can come back: it counts");
    assert_references(&table.all_rows().await);
}

/// The count was right: what it counts cannot be read.
#[tokio::test]
async fn a_count_of_branches_is_not_set_beside_a_branch_that_cannot_be_read() {
    for (attribute, value) in [("kind", rows::s("lodger")), ("bp_source", rows::n(1))] {
        let table = Table::fresh().await;
        let db = ledger(&table, "mydb").await;
        branch(&table, "mydb:dev", &db).await;
        table.set("mydb:dev", "meta", attribute, value).await;
        let findings = examine(&table.store, true).await;
        let miscounted = findings.iter().find(|finding| finding.code == "branches-miscounted");
        assert!(
            miscounted.is_some_and(|finding| finding.fix == Fix::ByHand && finding.mend.contains("mydb:dev")),
            "{attribute}: {findings:?}"
        );
        assert_eq!(record(&table, &db).await.branches, 1, "{attribute}");
    }
}

#[tokio::test]
async fn a_count_of_branches_that_moves_meanwhile_is_not_set() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    branch(&table, "mydb:dev", &db).await;
    table.set(DB, "meta", "branches", rows::n(0)).await;
    let direct = table.direct().clone();
    let create = move || {
        let direct = direct.clone();
        async move {
            let outcome = direct.create_branch(&Call::fresh(), &at("mydb:dev2"), &at(DB), None).await.unwrap();
            assert!(matches!(outcome, BranchCreated::Created(_)));
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(create));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(record(&table, &db).await.branches, 1);
    // A branch that is dropped while branches are counted leaves the count unsettled, not wrong.
    let direct = table.direct().clone();
    let drop_it = move || {
        let direct = direct.clone();
        async move {
            assert_eq!(
                direct.drop_branch(&Call::fresh(), &at("mydb:dev2")).await.unwrap(),
                Dropped::Dropped { parent_branches: 0 }
            )
        }
    };
    table.proxy.on("Scan", Fault::none().skipping(1).before(drop_it));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), findings[0].code), (1, "unsettled"), "{findings:?}");
    mended(&table, &["mydb:main branches-miscounted"]).await;
}

#[tokio::test]
async fn a_branch_whose_source_is_gone_is_reported() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:dev").branch_of("main").rows()).await;
    left_alone(&table, &["mydb:dev parent-missing"]).await;
}
