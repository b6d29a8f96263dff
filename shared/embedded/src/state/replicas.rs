//! The state as a copy of another nameservice's: fed by its snapshot and by its changes, under its positions.

use std::sync::Arc;

use nameservice_model::{
    Address, Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Error, MAX_WATERMARK, Object,
    Record as ModelRecord, RecordAttributes, StatusPayload, is_lease_member, is_redacted,
};
use serde_json::Value;

use super::{
    Applied, Origin, Portable, Record, State, Touched,
    call_id::Ring,
    record::{ConfigItem, Graph, HeadItem, IndexItem, LeaseItem, Root, StatusItem, json_text},
};

/// The ids of records that a change created begin here, beyond those of a snapshot.
const IDS: u64 = 1 << 48;

/// Returns the position of the change that created a record in a replica; 0 for one of a snapshot.
pub(crate) const fn created_at_position(id: u64) -> u64 {
    id.saturating_sub(IDS)
}

/// The greatest position of a feed.
const MAX_POSITION: u64 = MAX_WATERMARK.unsigned_abs();

/// A change of another nameservice, with the payload if the change itself does not carry all of it.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// The change.
    pub change: Change,
    /// The full payload, if it is left out of the change or redacted in it. Without it, the concern stays as it was: a
    /// later change brings a newer value.
    pub payload: Option<Value>,
    /// Whether it is of an item that belongs to no record. Then it takes its position, and shows in nothing else.
    pub is_orphan: bool,
}

impl Replicated {
    /// Returns whether the change does not carry its full payload.
    pub fn is_partial(change: &Change) -> bool {
        match &change.payload {
            ChangePayload::Omitted => true,
            ChangePayload::Value(value) => is_redacted(value),
            ChangePayload::None => false,
        }
    }
}

impl From<Change> for Replicated {
    fn from(change: Change) -> Self {
        Self { change, payload: None, is_orphan: false }
    }
}

/// The reason why a change is not the next one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the change at position {found} does not follow {position}: it is a different feed, or only a part of it is visible"
)]
pub(crate) struct NotNext {
    found: u64,
    position: u64,
}

impl State {
    /// Replaces everything with these records.
    pub(super) fn adopt(&mut self, records: &[ModelRecord], position: u64) -> Applied {
        if position > MAX_POSITION {
            let source = format!("{position} is not a position of a feed").into();
            let outcome = Err(Error::Store { operation: "adopt a snapshot", source });
            return Applied { outcome, changes: Vec::new(), touched: Vec::new(), memories: Vec::new(), replaced: None };
        }
        *self = Self { adopted: self.adopted + 1, ..Self::of_records(records, position) };
        let touched = |record: &Arc<Record>| Touched { id: record.id, record: Some(record.clone()) };
        Applied {
            outcome: Ok(None),
            changes: Vec::new(),
            touched: self.records.values().map(touched).collect(),
            memories: Vec::new(),
            replaced: Some((position, self.recorded_at)),
        }
    }

    /// Applies changes up to the first that does not follow.
    pub(super) fn take(&mut self, replicated: &[Replicated]) -> Applied {
        let (mut changes, mut touched) = (Vec::with_capacity(replicated.len()), Vec::new());
        let mut outcome = Ok(None);
        for replicated in replicated {
            if let Err(error) = self.replicate(replicated, &mut touched) {
                outcome = Err(Error::Store { operation: "take changes", source: error.into() });
                break;
            }
            changes.push(replicated.change.clone());
        }
        Applied { outcome, changes, touched, memories: Vec::new(), replaced: None }
    }

    /// Returns the state of these records at a position.
    pub(crate) fn of_records(records: &[ModelRecord], position: u64) -> Self {
        let mut state = Self { position, ..Self::default() };
        let records: Vec<Record> = records.iter().zip(1..).map(|(record, id)| from_model(record, id)).collect();
        for record in &records {
            state.recorded_at = state.recorded_at.max(record.updated_at);
        }
        // A record may occur twice if it was moved from one place to another during the snapshot: the later one counts.
        let mut by_address: std::collections::HashMap<Arc<str>, Record> =
            records.into_iter().map(|record| (record.address.clone(), record)).collect();
        let referred: Vec<(Option<Address>, Vec<Arc<str>>)> =
            by_address.values().map(|record| (record.parent(), record.dependencies().to_vec())).collect();
        for (parent, dependencies) in referred {
            if let Some(parent) = parent.and_then(|parent| by_address.get_mut(parent.as_str())) {
                parent.branches = parent.branches.saturating_add(1);
            }
            for dependency in dependencies {
                if let Some(target) = by_address.get_mut(&dependency) {
                    target.dependents = target.dependents.saturating_add(1);
                }
            }
        }
        state.load(by_address.into_values());
        state
    }

    /// Applies a change, which must follow the last one.
    pub(crate) fn replicate(&mut self, replicated: &Replicated, touched: &mut Vec<Touched>) -> Result<(), NotNext> {
        let Replicated { change, payload, is_orphan } = replicated;
        // A position beyond every watermark is not one that a nameservice gives.
        if self.position.checked_add(1) != Some(change.position) || change.position > MAX_POSITION {
            return Err(NotNext { found: change.position, position: self.position });
        }
        let is_known = payload.is_some() || !Replicated::is_partial(change);
        let payload = payload.as_ref().or(match &change.payload {
            ChangePayload::Value(value) => Some(value),
            _ => None,
        });
        match change.part {
            ChangedPart::Meta => self.replicate_meta(change, payload, touched),
            // The value is not known, and a wrong one must not be shown.
            ChangedPart::Concern(_) if !is_known || *is_orphan => {}
            ChangedPart::Concern(concern) => self.replicate_concern(change, concern, payload, touched),
        }
        self.position = change.position;
        self.recorded_at = self.recorded_at.max(change.recorded_at.as_millisecond());
        Ok(())
    }

    fn replicate_meta(&mut self, change: &Change, payload: Option<&Value>, touched: &mut Vec<Touched>) {
        let at = change.occurred_at.as_millisecond();
        let before = self.get(&change.address).cloned();
        if change.kind == ChangeKind::Purged {
            let Some(before) = before else { return };
            self.orders.remove(&before);
            self.records.remove(&before.address);
            touched.push(Touched { id: before.id, record: None });
            self.refer(Some(&before), None, at, touched);
            return;
        }
        let mut record = match &before {
            Some(before) => Record::clone(before),
            None => self.unknown(change),
        };
        if change.kind == ChangeKind::Created {
            record.created_at = at.div_euclid(1000);
        }
        record.retracted = match payload.and_then(|payload| payload.get("retracted")).and_then(Value::as_bool) {
            Some(retracted) => retracted,
            None => change.kind == ChangeKind::Retracted || (record.retracted && change.kind != ChangeKind::Restored),
        };
        if let Some(Value::Object(payload)) = payload {
            let mut attributes = RecordAttributes::of_change(payload);
            attributes.source_type = attributes.source_type.or_else(|| change.identity.source_type.clone());
            record.set_attributes(&attributes);
        }
        record.touch(at);
        let record = self.put_replicated(record, touched);
        self.refer(before.as_deref(), Some(&record), at, touched);
    }

    fn replicate_concern(
        &mut self,
        change: &Change,
        concern: ConcernKind,
        payload: Option<&Value>,
        touched: &mut Vec<Touched>,
    ) {
        let before = self.get(&change.address).cloned();
        if change.kind == ChangeKind::Purged {
            // The record is removed by the change of its meta.
            return;
        }
        let mut record = match &before {
            Some(before) => Record::clone(before),
            None => self.unknown(change),
        };
        // A snapshot that was read while others wrote may be ahead of this change.
        let is_advance = matches!(change.kind, ChangeKind::Created | ChangeKind::Updated);
        if is_advance && change.watermark < watermark(&record, concern) {
            return;
        }
        match concern {
            ConcernKind::Head => {
                let calls = Ring::default();
                record.head = Some(HeadItem { t: change.watermark, id: id_of(payload), calls });
            }
            ConcernKind::Index => {
                let root = payload.and_then(root).map(Arc::new);
                record.index = IndexItem { t: change.watermark, root, calls: Ring::default() };
            }
            ConcernKind::Status => {
                let Some(Value::Object(payload)) = payload else { return };
                let mut meta = payload.clone();
                let state = meta.remove("state");
                let state = state.as_ref().and_then(Value::as_str).unwrap_or(StatusPayload::READY).to_owned();
                record.status = status(change.watermark, &state, meta);
            }
            ConcernKind::Config => {
                let payload = payload.map(|payload| Arc::from(payload.to_string()));
                record.config = ConfigItem { v: change.watermark, payload, calls: Ring::default() };
            }
        }
        record.touch(change.occurred_at.as_millisecond());
        self.put_replicated(record, touched);
    }

    /// Returns a new record for its first change.
    fn unknown(&self, change: &Change) -> Record {
        let at = change.occurred_at.as_millisecond();
        let id = IDS + change.position;
        // Calls are remembered only by the nameservice that receives them.
        let mut record = Record::without_data(change.address.as_str(), change.identity.kind, id, Ring::default(), at);
        if change.identity.source_type.is_some() {
            let source_type = change.identity.source_type.as_deref().map(Arc::from);
            record.origin = Some(Arc::new(Origin { source_type, ..Origin::default() }));
        }
        record
    }

    fn put_replicated(&mut self, mut record: Record, touched: &mut Vec<Touched>) -> Arc<Record> {
        let before = self.records.get(&record.address).cloned();
        if let Some(before) = &before {
            record.address = before.address.clone();
        }
        let record = Arc::new(record);
        self.orders.replace(before.as_deref(), &record);
        self.records.insert(record.address.clone(), record.clone());
        touched.push(Touched { id: record.id, record: Some(record.clone()) });
        record
    }

    /// Updates the counts at the records that a record refers to, or no longer refers to.
    fn refer(&mut self, before: Option<&Record>, after: Option<&Record>, at: i64, touched: &mut Vec<Touched>) {
        let of = |record: Option<&Record>| -> (Option<Address>, Vec<Arc<str>>) {
            record.map_or((None, Vec::new()), |record| (record.parent(), record.dependencies().to_vec()))
        };
        let ((old_parent, old), (new_parent, new)) = (of(before), of(after));
        if old_parent != new_parent {
            if let Some(parent) = old_parent {
                self.recount(parent.as_str(), at, touched, |record| {
                    record.branches = record.branches.saturating_sub(1)
                });
            }
            if let Some(parent) = new_parent {
                self.recount(parent.as_str(), at, touched, |record| {
                    record.branches = record.branches.saturating_add(1)
                });
            }
        }
        for target in old.iter().filter(|target| !new.contains(target)) {
            self.recount(target, at, touched, |record| record.dependents = record.dependents.saturating_sub(1));
        }
        for target in new.iter().filter(|target| !old.contains(target)) {
            self.recount(target, at, touched, |record| record.dependents = record.dependents.saturating_add(1));
        }
    }

    fn recount(&mut self, address: &str, at: i64, touched: &mut Vec<Touched>, count: impl FnOnce(&mut Record)) {
        if let Some(record) = self.records.get(address) {
            let mut record = Record::clone(record);
            count(&mut record);
            record.touch(at);
            self.put_replicated(record, touched);
        }
    }
}

fn watermark(record: &Record, concern: ConcernKind) -> i64 {
    match concern {
        ConcernKind::Head => record.head.as_ref().map_or(0, |head| head.t),
        ConcernKind::Index => record.index.t,
        ConcernKind::Status => record.status.v,
        ConcernKind::Config => record.config.v,
    }
}

fn from_model(model: &ModelRecord, id: u64) -> Record {
    let mut record = model.clone();
    let lease = record.status.payload.as_mut().and_then(|status| take_lease(&mut status.meta));
    let portable = Portable {
        record,
        lease: lease.and_then(|lease| lease.value()),
        // Fencing tokens and calls are kept only by the nameservice that grants or receives them.
        token: 0,
        calls: Default::default(),
    };
    // References are counted locally.
    Record { id, branches: 0, dependents: 0, ..Record::from(&portable) }
}

fn id_of(payload: Option<&Value>) -> Option<Arc<str>> {
    payload?.get("id")?.as_str().map(Arc::from)
}

fn root(payload: &Value) -> Option<Root> {
    let graph = |value: &Value| {
        Some(Graph {
            id: Box::from(value.get("id")?.as_str()?),
            t: value.get("t")?.as_i64()?,
            rev: value.get("rev").and_then(Value::as_i64).unwrap_or(0),
        })
    };
    let graphs = payload.get("graphs").and_then(Value::as_object);
    Some(Root {
        id: Box::from(payload.get("id")?.as_str()?),
        rev: payload.get("rev").and_then(Value::as_i64).unwrap_or(0),
        graphs: graphs.into_iter().flatten().map(|(name, value)| (name.clone(), graph(value))).collect(),
    })
}

/// Returns a status with its lease separate from the metadata. It has no fencing token: only the upstream grants those.
fn status(v: i64, state: &str, mut meta: Object) -> StatusItem {
    let lease = take_lease(&mut meta).map(Arc::new);
    let mut status = StatusItem { v, state: None, meta: None, lease, token: 0, calls: Ring::default() };
    status.set_state(state);
    status.meta = (!meta.is_empty()).then(|| json_text(&meta));
    status
}

/// Takes the lease out of what a status shows.
fn take_lease(meta: &mut Object) -> Option<LeaseItem> {
    let (name, lease) = meta.iter().find_map(|(name, value)| {
        let lease = is_lease_member(name, value).then(|| lease(name, value)).flatten()?;
        Some((name.clone(), lease))
    })?;
    meta.remove(&name);
    Some(lease)
}

fn lease(name: &str, value: &Value) -> Option<LeaseItem> {
    let number = |name: &str| value.get(name).and_then(Value::as_i64);
    Some(LeaseItem {
        name: Box::from(name),
        holder: Box::from(value.get("holder")?.as_str()?),
        target_t: number("target_t"),
        acquired_at: number("acquired_at")?,
        expires_at: number("expires_at")?,
        refreshed_at: number("refreshed_at"),
    })
}
