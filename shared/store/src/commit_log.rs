//! Fluree's commit log, beside its ledger: one row for each commit that Fluree has published. We never write one.
//!
//! Fluree's indexer trusts the log if it reaches the head without a gap, and follows the commits themselves if there is
//! a gap. So a missing row is harmless, but a row of a commit that is not the ledger's corrupts an index. Rows are
//! therefore deleted before a value that contradicts them is written: an interruption leaves a gap.

use nameservice_model::{Address, Error, Result};

use crate::{
    Store,
    client::Attempts,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems},
    schema::*,
};

/// Below the `t` of every commit.
pub(crate) const NO_COMMITS: i64 = -1;

/// The `t` of a ledger's first commit.
const FIRST_T: i64 = 1;

/// The attributes of the record that are read along with its log, besides the calls that it remembers.
const READ_ALONG: [&str; 12] = [
    ATTR_KIND,
    ATTR_CREATED_AT,
    ATTR_LIFE,
    ATTR_RETRACTED,
    ATTR_PROTECTED,
    ATTR_COMMIT_ID,
    ATTR_COMMIT_T,
    ATTR_INDEX_ID,
    ATTR_INDEX_T,
    ATTR_REV,
    ATTR_REV_ID,
    ATTR_GRAPHS,
];

/// How many items one page of a log has. Each page is deleted before the next is read, so that every repetition of an
/// operation that was cut off makes progress, however long the log is.
const PAGE: i32 = 1_000;

/// A page of a log, the newest rows first, and what was read along with it.
pub(crate) struct Log {
    rows: Vec<Key>,
    /// What a reset of the ledger needs to know about it: [`READ_ALONG`]. Only the first page has it.
    pub(crate) record: RecordItems,
    next: Option<Item>,
}

impl Store {
    /// Deletes the rows above a `t`, of which there may be many. Not part of a transaction: if it is interrupted,
    /// repeating it finishes the work.
    pub(crate) async fn sweep_commits(&self, operation: &'static str, address: &Address, above: i64) -> Result<usize> {
        let first = self.commits_above(operation, address, above, None).await?;
        self.delete_commits(operation, address, above, first).await
    }

    /// Deletes the rows of a page, and page by page those after it.
    async fn delete_commits(
        &self,
        operation: &'static str,
        address: &Address,
        above: i64,
        mut page: Log,
    ) -> Result<usize> {
        let mut swept = 0;
        loop {
            swept += page.rows.len();
            self.delete_all(operation, page.rows).await?;
            let Some(next) = page.next else { return Ok(swept) };
            page = self.commits_above(operation, address, above, Some(next)).await?;
        }
    }

    /// Deletes the rows above a `t` as a part of an operation that must not write before they are gone. `first` is the
    /// first page if it was read.
    pub(crate) async fn clear_commits(
        &self,
        operation: &'static str,
        address: &Address,
        above: i64,
        first: Option<Log>,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let clear = async {
            match first {
                Some(first) => self.delete_commits(operation, address, above, first).await,
                None => self.sweep_commits(operation, address, above).await,
            }
        };
        match self.within(operation, attempts, clear).await {
            Ok(_) => Ok(()),
            Err(Error::Unavailable { operation, .. }) => {
                let source =
                    "rows of Fluree's commit log had to be deleted first, and some are left: repeat the request";
                Err(Error::Unavailable { operation, source: Some(source.into()) })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a page of the rows above a `t`.
    pub(crate) async fn commits_above(
        &self,
        operation: &'static str,
        address: &Address,
        above: i64,
        start: Option<Item>,
    ) -> Result<Log> {
        let projection = format!("#pk, #sk, {}, {}", READ_ALONG.join(", "), ATTR_REQUEST_IDS.join(", "));
        let request = self
            .partition_query(address, "#sk >= :from", sk_commit(above.saturating_add(1)))
            .scan_index_forward(false)
            .limit(PAGE)
            .projection_expression(projection);
        let page = self.query_page(operation, &request, start).await?;
        // The items of the record sort after its log.
        let (log, record): (Vec<_>, Vec<_>) =
            page.items.into_iter().partition(|row| items::sk(row).starts_with(SK_COMMIT_PREFIX));
        let rows = log.iter().map(|row| Key::new(items::pk(row), items::sk(row))).collect();
        Ok(Log { rows, record: RecordItems::new(record), next: page.next })
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
