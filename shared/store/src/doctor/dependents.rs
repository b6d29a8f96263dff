//! References as stored at the target: the rows of its dependents, and their count.

use nameservice_model::Severity;

use super::{
    codes::*,
    diagnosis::{Doctor, REFERENCES_AT_ONCE, Repair, named, no_record, shown},
    partition::RecordState,
};
use crate::{
    concern::as_seen,
    expressions::{Expression, Key},
    items::{self, Item, number},
    references::counted,
    schema::*,
};

/// The most rows that a count can be conditional on.
const ROWS_CHECKED: usize = 90;

/// Returns the dependent of a row, from its sort key; `None` if the row contradicts itself.
pub(super) fn dependent_of(row: &Item) -> Option<&str> {
    let dependent = items::sk(row).strip_prefix(SK_BACKREF_PREFIX).filter(|dependent| !dependent.is_empty())?;
    let stored = items::text(row, ATTR_DEPENDENT)?;
    (stored == dependent && dependent != items::pk(row)).then_some(dependent)
}

impl Doctor<'_> {
    pub(super) fn backrefs(&mut self) {
        let malformed: Vec<&str> =
            self.partition.backrefs.iter().filter(|row| dependent_of(row).is_none()).map(items::sk).collect();
        if !malformed.is_empty() {
            self.by_hand(
                BACKREF_MALFORMED,
                Severity::Warning,
                format!("malformed rows of dependents: {}", named(&malformed)),
                "delete these rows; the next run counts again",
            );
        }
        let stale: Vec<&Item> = self
            .partition
            .backrefs
            .iter()
            .filter(|row| dependent_of(row).is_some_and(|dependent| !self.depends(dependent)))
            .collect();
        if stale.is_empty() {
            return;
        }
        let dependents: Vec<&str> = stale.iter().filter_map(|row| dependent_of(row)).collect();
        let what = format!("rows of records that are gone, or no longer depend on it: {}", named(&dependents));
        let repair = self.drop_rows(&stale);
        self.find(BACKREF_STALE, Severity::Warning, what, "delete them, and decrement the count".into(), repair);
    }

    /// Returns whether a record counts itself as a dependent of this one.
    fn depends(&self, dependent: &str) -> bool {
        self.related.record(dependent).is_some_and(|meta| counted(meta).contains(&self.address))
    }

    /// Returns `None` if a meta item of an unknown kind occupies the address.
    fn drop_rows(&self, stale: &[&Item]) -> Option<Repair> {
        let dropped = &stale[..stale.len().min(REFERENCES_AT_ONCE)];
        let mut actions = Vec::new();
        let key = Key::meta(&self.address);
        match self.partition.record_state() {
            RecordState::Record(meta, _) => {
                let rows = self.partition.backrefs.len();
                let counted = items::integer(meta, ATTR_DEPENDENTS).unwrap_or(0);
                let mut count = Expression::new();
                count.record_exists();
                // If the count matches the rows, a decrement keeps it so, whatever others write. Otherwise its own
                // finding sets it later.
                if usize::try_from(counted) == Ok(rows) {
                    let fewer = i64::try_from(dropped.len()).unwrap_or(i64::MAX);
                    count.at_least(ATTR_DEPENDENTS, fewer);
                    count.add(ATTR_DEPENDENTS, -fewer);
                    count.touch(self.now);
                    actions.push(count.into_update(&key));
                } else {
                    actions.push(count.into_check(&key));
                }
            }
            RecordState::NoRecord(_) => actions.push(no_record(&key)),
            RecordState::UnknownKind => return None,
        }
        for row in dropped {
            let Some(dependent) = dependent_of(row) else { continue };
            let mut still = Expression::new();
            match self.related.record(dependent) {
                Some(meta) => {
                    still.record_exists();
                    as_seen(&mut still, meta, &[ATTR_COUNTED]);
                    actions.push(still.into_check(&Key::meta(dependent)));
                }
                // A meta item of an unknown kind may belong to a record that is restored later.
                None if self.related.is_taken(dependent) => return None,
                None => actions.push(no_record(&Key::meta(dependent))),
            }
            let mut delete = Expression::new();
            delete.exists(ATTR_PK);
            actions.push(delete.into_delete(&Key::new(&self.address, items::sk(row))));
        }
        Some(Repair(actions))
    }

    pub(super) fn dependents(&mut self, meta: &Item) {
        let rows = &self.partition.backrefs;
        let counted = items::integer(meta, ATTR_DEPENDENTS);
        let readable = counted.is_some() || items::present(meta, ATTR_DEPENDENTS).is_none();
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if readable && counted.unwrap_or(0) == count {
            return;
        }
        let mut set = Expression::new();
        set.record_exists();
        // Counting a dependent updates this item, which the condition detects.
        as_seen(&mut set, meta, &[ATTR_DEPENDENTS, ATTR_UPDATED_AT_MS]);
        set.set(ATTR_DEPENDENTS, number(count));
        set.touch(self.now);
        let mut actions = vec![set.into_update(&Key::meta(&self.address))];
        // A row whose dependent was not counted may be deleted without updating the meta.
        for row in rows.iter().take(ROWS_CHECKED) {
            let mut there = Expression::new();
            there.exists(ATTR_PK);
            actions.push(there.into_check(&Key::new(&self.address, items::sk(row))));
        }
        self.find(
            DEPENDENTS_MISCOUNTED,
            Severity::Error,
            format!("`dependents` is {}, and it has {count} rows of dependents", shown(meta, ATTR_DEPENDENTS)),
            format!("set it to {count}, if the record has not changed since"),
            Some(Repair(actions)),
        );
    }
}
