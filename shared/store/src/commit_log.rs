//! Fluree's commit log, beside its ledger: one row for each commit that Fluree has published. We never write one.
//!
//! Fluree's indexer trusts the log if it reaches the head without a gap, and follows the commits themselves if there is
//! a gap. So a missing row is harmless, but a row of a commit that is not the ledger's corrupts an index. Rows are
//! therefore deleted before a value that contradicts them is written: an interruption leaves a gap.

use nameservice_model::{Address, Result};

use crate::{
    Store,
    expressions::{Action, Expression, Key},
    items,
    schema::*,
};

/// Below the `t` of every commit.
pub(crate) const NO_COMMITS: i64 = -1;

/// The `t` of a ledger's first commit.
const FIRST_T: i64 = 1;

/// The rows of a log, and what was read along with them.
pub(crate) struct Log {
    pub(crate) rows: Vec<Key>,
    /// Whether the record is protected.
    pub(crate) is_protected: bool,
}

impl Store {
    /// Deletes the rows above a `t`, of which there may be many. Not part of a transaction: if it is interrupted,
    /// repeating it finishes the work.
    pub(crate) async fn sweep_commits(&self, operation: &'static str, address: &Address, above: i64) -> Result<usize> {
        let Log { rows, .. } = self.commits_above(operation, address, above).await?;
        let swept = rows.len();
        self.delete_all(operation, rows).await?;
        Ok(swept)
    }

    /// Returns the rows above a `t`.
    pub(crate) async fn commits_above(&self, operation: &'static str, address: &Address, above: i64) -> Result<Log> {
        let from = sk_commit(above.saturating_add(1));
        let projection = format!("#pk, #sk, {ATTR_PROTECTED}");
        let rows = self.query_partition(operation, address, "#sk >= :from", &from, Some(&projection)).await?;
        // The items of the record sort after its log.
        let log = rows.iter().filter(|row| items::sk(row).starts_with(SK_COMMIT_PREFIX));
        let is_protected = rows.iter().any(|row| items::sk(row) == SK_META && items::flag(row, ATTR_PROTECTED));
        Ok(Log { rows: log.map(|row| Key::new(items::pk(row), items::sk(row))).collect(), is_protected })
    }
}

/// Returns the condition that no log of an earlier ledger is left at the address of a new one. It checks only the first
/// row: without that, the log begins with a gap, and Fluree's indexer, which begins at `t` 0 in a new ledger, does not
/// use it.
pub(crate) fn no_log(address: &Address) -> Action {
    let mut none = Expression::new();
    none.not_exists(ATTR_PK);
    none.into_check(&Key::new(address, sk_commit(FIRST_T)))
}
