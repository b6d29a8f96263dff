//! Items under no record.

use nameservice_model::{ConcernKind, Severity};

use super::{
    codes::*,
    diagnosis::{Doctor, Repair, concerns, no_record, unchanged},
};
use crate::{expressions::Key, items::Item, schema::*};

impl Doctor<'_> {
    pub(super) fn ghost(&mut self, meta: Option<&Item>) {
        let Some(meta) = meta else { return };
        let key = Key::meta(&self.address);
        let mut delete = unchanged(meta);
        delete.not_exists(ATTR_KIND);
        self.find(
            GHOST_META,
            Severity::Warning,
            "its meta item has no kind: an unguarded update has left it, and it is not a record".into(),
            "delete it, if it is still without a kind".into(),
            Some(Repair(vec![delete.into_delete(&key)])),
        );
    }

    pub(super) fn orphans(&mut self) {
        let items = &self.partition.items;
        let orphans: Vec<(ConcernKind, &Item)> =
            ConcernKind::ALL.into_iter().filter_map(|concern| Some((concern, items.concern(concern)?))).collect();
        if orphans.is_empty() {
            return;
        }
        let mut actions = vec![no_record(&Key::meta(&self.address))];
        for (concern, item) in &orphans {
            actions.push(unchanged(item).into_delete(&Key::new(&self.address, sk_of(*concern))));
        }
        let left: Vec<ConcernKind> = orphans.iter().map(|(concern, _)| *concern).collect();
        self.find(
            ORPHAN_ITEMS,
            Severity::Warning,
            format!("{} exist without a meta item, so they are not a record", concerns(&left)),
            "delete them, if they are unchanged and there is still no record".into(),
            Some(Repair(actions)),
        );
    }
}
