//! Fluree's commit log beside a ledger: rows that contradict its head or the history of its head. They are deleted, and
//! never written: Fluree's indexer ignores a log that has a gap, and trusts one that has none.

use std::collections::{BTreeMap, HashMap};

use nameservice_model::{
    Address, Change, ChangeFeed, ChangePayload, ChangedPart, ConcernKind, HistoryQuery, RecordKind, Result, Severity,
};

use super::{
    codes::*,
    diagnosis::{Diagnosis, Doctor, Repair, no_record, repairable},
    partition::{LoggedCommit, SWEPT_AT_ONCE},
};
use crate::{
    Store,
    concern::as_seen,
    expressions::{Action, Expression, Key},
    items::{self, Item, string},
    schema::*,
};

const COMPARE: &str = "compare a commit log with the history of its ledger";

impl Doctor<'_> {
    /// Finds rows without a ledger: there is no record, or it is a graph source.
    pub(super) fn leftover_commits(&mut self, kind: Option<RecordKind>) {
        let commits = &self.partition.commits;
        if commits.is_empty() {
            return;
        }
        let meta = Key::meta(&self.address);
        let (check, beside, still) = match kind {
            None => (no_record(&meta), "without a record", "if there is still no record"),
            Some(kind) => {
                let mut check = Expression::new();
                check.kind_is(kind);
                (check.into_check(&meta), "beside a graph source, which has no commits", "if it is still one")
            }
        };
        let mut actions = vec![check];
        actions.extend(commits.iter().map(|row| Expression::new().into_delete(&Key::new(&self.address, &row.sk))));
        let many = if commits.len() == SWEPT_AT_ONCE { " or more" } else { "" };
        self.find(
            LEFTOVER_COMMITS,
            Severity::Warning,
            format!("{}{many} rows of a commit log exist {beside}", commits.len()),
            format!("delete them, {still}"),
            Some(Repair(actions)),
        );
    }

    /// Finds rows that contradict the head: those that a reset by another program left above it, and one at its `t`
    /// that an earlier ledger left.
    pub(super) fn commits_against_head(&mut self) {
        let item = self.partition.items.concern_or_empty(ConcernKind::Head);
        if items::present(&item, ATTR_COMMIT_T).is_some() && items::integer(&item, ATTR_COMMIT_T).is_none() {
            // The head is unreadable, which is a finding of its own: no conclusion.
            return;
        }
        let head = items::head(&item);
        let id = head.payload.as_ref().map(|id| id.as_str());
        let at_head = |row: &&LoggedCommit| {
            row.t() == Some(head.v) && id.is_some() && row.cid.as_deref().is_some_and(|cid| Some(cid) != id)
        };
        let partition = self.partition;
        let above: Vec<&LoggedCommit> =
            partition.commits.iter().filter(|row| row.t().is_some_and(|t| t > head.v)).collect();
        if !above.is_empty() {
            let many = if above.len() == SWEPT_AT_ONCE { " or more" } else { "" };
            self.find(
                COMMITS_ABOVE_HEAD,
                Severity::Error,
                format!(
                    "{}{many} rows of Fluree's commit log are above its head at t {}: commits that were rolled back",
                    above.len(),
                    head.v
                ),
                "delete them, if the head is unchanged".into(),
                Some(Repair(delete_rows(&self.address, &item, &above))),
            );
        }
        if let Some(row) = partition.commits.iter().find(at_head) {
            self.find(
                COMMIT_NOT_HEAD,
                Severity::Error,
                format!(
                    "its head is {}@{}, and Fluree's commit log has another commit there",
                    id.unwrap_or_default(),
                    head.v
                ),
                "delete the row of the log, if the head is unchanged".into(),
                Some(Repair(delete_rows(&self.address, &item, &[row]))),
            );
        }
    }
}

/// Returns the actions that delete rows, on the condition that they and the head are as they were read.
fn delete_rows(address: &Address, head: &Item, rows: &[&LoggedCommit]) -> Vec<Action> {
    let mut check = Expression::new();
    as_seen(&mut check, head, &[ATTR_COMMIT_ID, ATTR_COMMIT_T]);
    let mut actions = vec![check.into_check(&Key::new(address, sk_of(ConcernKind::Head)))];
    actions.extend(rows.iter().map(|row| {
        let mut delete = Expression::new();
        match &row.cid {
            // The row may be gone: rows expire.
            Some(cid) => delete.equals_or_absent(ATTR_COMMIT_CID, string(cid)),
            None => delete.is(ATTR_COMMIT_CID, None),
        }
        delete.into_delete(&Key::new(address, &row.sk))
    }));
    actions
}

impl Store {
    /// Compares the whole log of a ledger with the history of its head.
    ///
    /// The log is read first, then the head, then the history, which is used only if it ends with that head: a feed
    /// that lags behind says nothing about changes that it does not hold yet.
    pub(super) async fn compare_log(&self, pk: &str, feed: &dyn ChangeFeed) -> Result<Vec<Diagnosis>> {
        let address = Address::stored(pk);
        let rows = self.query_partition(COMPARE, &address, "begins_with(#sk, :from)", SK_COMMIT_PREFIX).await?;
        let log: Vec<LoggedCommit> = rows.iter().map(LoggedCommit::of).collect();
        let item = self.get_item(COMPARE, &Key::new(&address, sk_of(ConcernKind::Head))).await?;
        let mut replay = Replay::of(&log);
        let part = Some(ChangedPart::Concern(ConcernKind::Head));
        let mut query = HistoryQuery { part, ..HistoryQuery::default() };
        loop {
            let page = feed.history(&address, &query).await?;
            page.changes.iter().for_each(|change| replay.follow(change));
            match page.more_after {
                Some(after) => query.after = after,
                None => break,
            }
        }
        let head = items::head(&item);
        let id = head.payload.as_ref().map(|id| id.as_str().to_owned());
        if replay.has_unread || replay.last != Some((head.v, id)) {
            return Ok(Vec::new());
        }
        // The row at the head's own `t`, and those above, have findings of their own.
        let superseded: Vec<&LoggedCommit> =
            log.iter().filter(|row| row.t().is_some_and(|t| t < head.v) && replay.contradicts(row)).collect();
        let all = superseded.len();
        Ok(superseded
            .chunks(SWEPT_AT_ONCE)
            .map(|rows| {
                repairable(
                    pk,
                    COMMITS_SUPERSEDED,
                    Severity::Error,
                    format!("{all} rows of Fluree's commit log name commits that the history of its head contradicts"),
                    "delete them, if the head is unchanged".into(),
                    Repair(delete_rows(&address, &item, rows)),
                )
            })
            .collect())
    }
}

/// The heads of a ledger, from its history, at every `t` for which its log has a row.
#[derive(Default)]
struct Replay {
    /// The head at each `t`; `None` if the history has no valid head there.
    heads: BTreeMap<i64, Option<String>>,
    /// Heads that a reset or a purge has taken back.
    undone: HashMap<i64, Vec<String>>,
    /// The last head.
    last: Option<(i64, Option<String>)>,
    /// A head could not be read when it was written, or is not in the feed: what it took back is not known.
    has_unread: bool,
}

impl Replay {
    fn of(log: &[LoggedCommit]) -> Self {
        let heads = log.iter().filter_map(|row| Some((row.t()?, None))).collect();
        Self { heads, ..Self::default() }
    }

    fn follow(&mut self, change: &Change) {
        let id = match &change.payload {
            ChangePayload::Value(head) => head["id"].as_str().map(str::to_owned),
            ChangePayload::None => None,
            ChangePayload::Omitted => {
                self.has_unread = true;
                None
            }
        };
        // A change between them is not in the feed.
        if let (Some(previous), Some((last, _))) = (change.previous, &self.last) {
            self.has_unread |= previous != *last;
        }
        // Earlier heads at this `t` and above no longer belong to the ledger.
        for (t, head) in self.heads.range_mut(change.watermark..) {
            if let Some(head) = head.take() {
                self.undone.entry(*t).or_default().push(head);
            }
        }
        if let Some(head) = self.heads.get_mut(&change.watermark) {
            head.clone_from(&id);
        }
        self.last = Some((change.watermark, id));
    }

    fn contradicts(&self, row: &LoggedCommit) -> bool {
        let (Some(t), Some(cid)) = (row.t(), row.cid.as_ref()) else { return false };
        match self.heads.get(&t) {
            Some(Some(head)) => head != cid,
            _ => self.undone.get(&t).is_some_and(|undone| undone.contains(cid)),
        }
    }
}
