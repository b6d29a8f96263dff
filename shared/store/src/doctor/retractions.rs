//! Marks of retracted records.

use nameservice_model::{ConcernKind, ConcernValue, RecordKind, Severity, StatusPayload};

use super::{
    codes::*,
    diagnosis::{Doctor, Repair, concerns},
};
use crate::{
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems},
    references::is_referenced,
    retractions::{concern_action, next_status_v, retracted_status, set_marks, unmarked},
    schema::*,
};

impl Doctor<'_> {
    pub(super) fn marks(&mut self, meta: &Item, kind: RecordKind) {
        let items = &self.partition.items;
        let unmarked = unmarked(items, kind);
        let mut check = Expression::new();
        check.same_record(meta);
        if items::flag(meta, ATTR_RETRACTED) {
            if is_referenced(meta) {
                let [branches, dependents] =
                    [ATTR_BRANCHES, ATTR_DEPENDENTS].map(|a| items::integer(meta, a).unwrap_or(0));
                self.by_hand(
                    RETRACTED_IN_USE,
                    Severity::Warning,
                    format!("it is retracted, with {branches} branches and {dependents} dependents"),
                    "restore it, or purge those that depend on it",
                );
            }
            if unmarked.is_empty() {
                return;
            }
            check.retracted();
            let repair = retracted_status(items, None, self.now).map(|status| {
                let mut actions = vec![check.into_check(&Key::meta(&self.address))];
                let marks = set_marks(&self.address, kind, items, &status, self.call, self.now);
                actions.extend(marks.into_iter().map(|(_, action)| action));
                Repair(actions)
            });
            self.find(
                MARKS_MISSING,
                Severity::Error,
                format!("it is retracted in its meta item only: {} still accept pushes", concerns(&unmarked)),
                "mark them and set the status to retracted, as `nameservice retract` does".into(),
                repair,
            );
            return;
        }
        let marked: Vec<ConcernKind> =
            concerns_of(kind).iter().copied().filter(|concern| !unmarked.contains(concern)).collect();
        if marked.is_empty() {
            return;
        }
        check.live();
        let mut actions = vec![check.into_check(&Key::meta(&self.address))];
        actions.extend(marked.iter().map(|concern| self.unmark(items, *concern)));
        self.find(
            MARKS_LEFT,
            Severity::Error,
            format!("its meta item is live, and {} reject pushes as if it were retracted", concerns(&marked)),
            "remove the marks, and set the status to ready, as `nameservice restore` does".into(),
            Some(Repair(actions)),
        );
    }

    fn unmark(&self, items: &RecordItems, concern: ConcernKind) -> Action {
        let mut unmark = Expression::new();
        unmark.remove(ATTR_RETRACTED);
        let state = items.concern(concern).and_then(|item| items::text(item, ATTR_STATUS));
        let v = next_status_v(items).filter(|_| concern == ConcernKind::Status);
        if let Some(v) = v.filter(|_| state == Some(StatusPayload::RETRACTED)) {
            let ready = ConcernValue::new(v, StatusPayload::state(StatusPayload::READY));
            return concern_action(&self.address, items, concern, unmark, &ready, self.call, self.now).1;
        }
        // Otherwise another state has been pushed since, or none can follow, and it stays.
        unmark.touch(self.now);
        unmark.into_update(&Key::new(&self.address, sk_of(concern)))
    }
}
