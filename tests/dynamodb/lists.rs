use nameservice_tests::prelude::*;

use crate::contract::{
    lists::{addresses, assert_filters, assert_pages, populate},
    unborn,
};

#[tokio::test]
async fn an_index_that_may_not_be_read_is_an_error_and_not_one_that_is_missing() {
    let table = Table::fresh().await;
    populate(&table.store).await;
    let table = table.proxied().await;
    let query = ListQuery { state: Some("syncing".into()), ..ListQuery::default() };
    for code in ["AccessDeniedException", "ValidationException"] {
        table.proxy.on("Query", Fault::answer(400, code));
        let error = table.store.list(&query, &anything).await.unwrap_err();
        assert!(matches!(error, Error::Store { .. }), "{code}: {error:?}");
        assert!(table.proxy.is_spent());
    }
}

#[tokio::test]
async fn a_table_that_fluree_made_lists_the_same() {
    let table = Table::made_by_fluree().await;
    populate(&table.store).await;
    assert_filters(&table.store).await;
    assert_pages(&table.store).await;
}

#[tokio::test]
async fn names_outside_the_grammar_and_ghosts_are_invisible_in_lists() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("my@db:main").rows()).await;
    table.put(&rows::ledger("a%2Fb:main").rows()).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::orphans("orphan:main", cid(1), 1)).await;
    unborn(&table.store, "mydb").await;
    for full in [false, true] {
        let visible = Address::is_well_formed;
        let page = table.store.list(&ListQuery { full, ..everything() }, &visible).await.unwrap();
        assert_eq!(addresses(&page.items), ["mydb:main"]);
        assert_eq!(page.cursor, None);
    }
}
