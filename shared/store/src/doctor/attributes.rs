//! Items that cannot be read as they should, or contradict themselves.

use nameservice_model::{ConcernKind, ContentId, FlureeContent, RecordKind, Severity};
use serde_json::Value;

use super::{
    codes::*,
    diagnosis::{Doctor, Repair, named, shown},
};
use crate::{
    concern::as_seen,
    expressions::{Expression, Key},
    items::{self, Item},
    schema::*,
};

/// Attributes that have findings of their own, or are never read.
const NOT_CHECKED: [&str; 6] = [ATTR_PK, ATTR_SK, ATTR_SCHEMA, ATTR_KIND, ATTR_DEPENDENTS, ATTR_LEASE];

impl Doctor<'_> {
    pub(super) fn names(&mut self, meta: &Item) {
        if !self.address.is_well_formed() {
            return self.by_hand(
                ADDRESS_UNUSABLE,
                Severity::Note,
                "its address is not valid: it can be read through the library, but not over HTTP",
                "no action needed, or create the record again under a valid name",
            );
        }
        let parts = [(ATTR_NAME, self.address.name()), (ATTR_BRANCH, self.address.branch())];
        let wrong: Vec<String> = parts
            .into_iter()
            .filter(|(attribute, right)| items::text(meta, attribute).is_some_and(|stored| stored != *right))
            .map(|(attribute, _)| format!("`{attribute}` is {}", shown(meta, attribute)))
            .collect();
        if !wrong.is_empty() {
            self.by_hand(
                NAME_DISAGREES,
                Severity::Error,
                format!("the meta item contradicts its address: {}", wrong.join(", ")),
                "set name and branch to those of the address, or move the record to the address that they name",
            );
        }
    }

    pub(super) fn attributes(&mut self, kind: RecordKind) {
        let items = &self.partition.items;
        let mut malformed = Vec::new();
        for layout in LAYOUT {
            for (sk, item) in items.items.iter().filter(|(sk, _)| layout.part.is_in(sk)) {
                let checked = layout.attributes.iter().filter(|attribute| !NOT_CHECKED.contains(&attribute.name));
                for Attribute { name, shape, .. } in checked {
                    if items::present(item, name).is_some_and(|value| !shape.fits(value)) {
                        // Configurations hold secrets.
                        let shown = match sk == sk_of(ConcernKind::Config) {
                            true => String::new(),
                            false => format!(" but {}", shown(item, name)),
                        };
                        malformed.push(format!("{sk}.{name} is not {}{shown}", shape.words()));
                    }
                }
            }
        }
        if !malformed.is_empty() {
            self.by_hand(
                ATTRIBUTE_MALFORMED,
                Severity::Error,
                format!("read as if they were absent: {}", named(&malformed)),
                "correct or remove them",
            );
        }
        for (concern, id, t) in
            [(ConcernKind::Head, ATTR_COMMIT_ID, ATTR_COMMIT_T), (ConcernKind::Index, ATTR_INDEX_ID, ATTR_INDEX_T)]
        {
            let Some(item) = items.concern(concern) else { continue };
            let t = items::integer(item, t).filter(|t| *t > 0 && items::present(item, id).is_none());
            if let Some(t) = t {
                self.by_hand(
                    ID_MISSING,
                    Severity::Warning,
                    format!("its {concern} is at t {t}, without an id"),
                    "reset it to an id and its t, or push the next one",
                );
            }
        }
        self.content_ids();
        if kind == RecordKind::Ledger {
            self.foreign_ids();
        }
        let config = items.concern_or_empty(ConcernKind::Config);
        let json = items::text(&config, ATTR_CONFIG_JSON).filter(|_| kind == RecordKind::GraphSource);
        if let Some(json) = json.filter(|json| !matches!(serde_json::from_str(json), Ok(Value::Object(_)))) {
            self.by_hand(
                CONFIG_NOT_JSON,
                Severity::Error,
                // Not repeated here: configurations hold secrets.
                format!("its configuration, of {} bytes, is not a JSON object", json.len()),
                "publish it again with its configuration",
            );
        }
        let [deployed, guide] =
            [ATTR_DEFAULT_CONTEXT_ADDRESS, ATTR_DEFAULT_CONTEXT_ID].map(|a| items::present(&config, a));
        let ours = config.contains_key(ATTR_REQUEST_IDS[0]);
        // Fluree's servers write and remove only the first.
        if guide.is_some() && guide != deployed && (deployed.is_some() || ours) {
            let [deployed, guide] = [ATTR_DEFAULT_CONTEXT_ADDRESS, ATTR_DEFAULT_CONTEXT_ID].map(|a| shown(&config, a));
            self.by_hand(
                CONTEXTS_DIFFER,
                Severity::Note,
                format!("default_context_address is {deployed}, default_context_id is {guide}: the first one is used"),
                "nothing: the next push of the configuration sets both",
            );
        }
    }

    /// Finds ids that are no content ids.
    fn content_ids(&mut self) {
        let items = &self.partition.items;
        let ids = [
            (ConcernKind::Head, ATTR_COMMIT_ID),
            (ConcernKind::Index, ATTR_INDEX_ID),
            (ConcernKind::Config, ATTR_DEFAULT_CONTEXT_ADDRESS),
        ];
        let unreadable: Vec<String> = ids
            .into_iter()
            .filter_map(|(concern, attribute)| {
                let item = items.concern(concern)?;
                let id = items::text(item, attribute)?;
                ContentId::parse(id).is_err().then(|| format!("{concern}.{attribute} is {}", shown(item, attribute)))
            })
            .collect();
        if !unreadable.is_empty() {
            self.by_hand(
                ID_UNREADABLE,
                Severity::Error,
                format!("not a content id, and null for Fluree's readers: {}", unreadable.join(", ")),
                "push or reset it to the content id that was meant",
            );
        }
    }

    /// Finds a head or an index that Fluree's engine cannot read, on a ledger that Fluree writes: it has a commit log, or another
    /// id of Fluree's. A table that Fluree does not share has ids of any kind.
    fn foreign_ids(&mut self) {
        let items = &self.partition.items;
        let ids: Vec<(String, ContentId, FlureeContent)> = [
            (ConcernKind::Head, ATTR_COMMIT_ID, FlureeContent::Commit),
            (ConcernKind::Index, ATTR_INDEX_ID, FlureeContent::IndexRoot),
        ]
        .into_iter()
        .filter_map(|(concern, attribute, expected)| {
            let id = ContentId::parse(items::text(items.concern(concern)?, attribute)?).ok()?;
            Some((format!("{concern}.{attribute}"), id, expected))
        })
        .collect();
        let is_of_fluree =
            !self.partition.commits.is_empty() || ids.iter().any(|(_, id, expected)| expected.is_named_by(id));
        let foreign = ids.iter().filter(|(_, id, expected)| is_of_fluree && !expected.is_named_by(id));
        let foreign: Vec<_> = foreign
            .map(|(name, id, expected)| format!("{name} is {id}, not the id of {}", expected.describe()))
            .collect();
        if !foreign.is_empty() {
            self.by_hand(
                ID_FOREIGN,
                Severity::Error,
                format!("Fluree fails on the ledger: {}", foreign.join(", ")),
                "reset it to what Fluree has written",
            );
        }
    }

    pub(super) fn lease(&mut self) {
        let status = self.partition.items.concern_or_empty(ConcernKind::Status);
        if items::present(&status, ATTR_LEASE).is_none() || items::lease(&status).is_some() {
            return;
        }
        let mut remove = Expression::new();
        as_seen(&mut remove, &status, &[ATTR_LEASE]);
        remove.remove(ATTR_LEASE);
        remove.touch(self.now);
        let action = remove.into_update(&Key::new(&self.address, sk_of(ConcernKind::Status)));
        self.find(
            LEASE_MALFORMED,
            Severity::Warning,
            format!("its lease cannot be read and does not count: {}", shown(&status, ATTR_LEASE)),
            "remove it, if it is unchanged".into(),
            Some(Repair(vec![action])),
        );
    }
}
