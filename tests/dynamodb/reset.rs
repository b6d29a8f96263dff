use nameservice_tests::prelude::*;

use crate::contract::found;

#[tokio::test]
async fn a_reset_fills_in_what_an_old_row_lacks() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let wanted = to_head(2);
    let outcome = table.store.reset_head(&Call::fresh(), &at("mydb"), &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: head(2), index: Index::unborn() });
    assert_eq!(found(&table.store, &at("mydb")).await.head, Some(head(2)));
}
