use nameservice_tests::{layout, prelude::*};

use crate::contract::found;

#[tokio::test]
async fn ghosts_and_orphans_do_not_stand_in_the_way() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    table.put(&rows::orphans("mydb:main", cid(40), 40)).await;
    let db = at("mydb");
    assert_eq!(table.store.lookup(&db).await.unwrap(), None);
    let outcome = table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    let Created::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(Head::unborn()));
    assert!(!record.retracted, "the ghost was retracted, the new ledger is not");
    assert_eq!(*record, found(&table.store, &db).await);
    layout::assert_ours(table.rows("mydb:main").await.values());
}
