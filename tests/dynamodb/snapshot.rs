use nameservice_tests::prelude::*;

use crate::contract::{born, snapshot::walk};

#[tokio::test]
async fn a_snapshot_holds_flurees_records_and_neither_its_commit_log_nor_ghosts() {
    let table = Table::fresh().await;
    born(&table.store, "ours", 1).await;
    table.put(&rows::ledger("theirs:main").commit(cid(9), 9).rows()).await;
    table.put(&(1..=9).map(|t| rows::commit_log("theirs:main", &cid(t), t)).collect::<Vec<_>>()).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::orphans("orphan:main", cid(1), 1)).await;
    for limit in [1, 2, 100] {
        let mut records = walk(&table.store, limit, &anything).await;
        records.sort_by_key(|record| record.address.clone());
        assert_eq!(
            records.iter().map(|record| record.address.as_str()).collect::<Vec<_>>(),
            ["ours:main", "theirs:main"]
        );
        assert_eq!(records[1].head, Some(head(9)));
    }
}
