//! Converts records into a state and out of it, for backends that keep them elsewhere.

use std::sync::Arc;

use nameservice_model::{Address, ConcernKind, ContentId, IndexRoot, Lease, Record as ModelRecord, StatusPayload};
use serde_json::Value;

use super::{
    Record, State,
    call_id::{CallId, Ring},
    record::{ConfigItem, Graph, HeadItem, IndexItem, LeaseItem, Root, StatusItem, json_text},
};

/// The creation time of a record for which it is unknown. It is not a valid timestamp, so none is shown.
pub(super) const UNKNOWN: i64 = i64::MIN;

/// A record with everything that the state machine keeps for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Portable {
    /// The record. The payload of its status shows no lease.
    pub record: ModelRecord,
    /// Its lease.
    pub lease: Option<Lease>,
    /// The last fencing token that was given.
    pub token: i64,
    /// The calls that its concerns remember, in the order of [`ConcernKind::ALL`], each the newest first, as text.
    pub calls: [Vec<String>; 4],
}

impl State {
    /// Puts a record as it is, without a change in the feed.
    pub fn insert(&mut self, portable: &Portable) {
        let mut record = Record::from(portable);
        record.id = self.position + 1;
        let record = Arc::new(record);
        self.orders.replace(self.records.get(&record.address).map(|before| &**before), &record);
        self.records.insert(record.address.clone(), record);
    }

    /// Returns the addresses of all records, in no particular order.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.records.keys().map(|address| Address::stored(address.clone()))
    }

    /// Returns a record with everything that is kept for it.
    pub fn portable(&self, address: &Address) -> Option<Portable> {
        self.get(address).map(|record| Portable::from(&**record))
    }
}

impl From<&Portable> for Record {
    fn from(portable: &Portable) -> Self {
        let Portable { record, lease, token, calls } = portable;
        let ring = |concern: usize| Ring::of(calls[concern].iter().filter_map(|call| CallId::from_text(call)));
        let count = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        let mut status = StatusItem {
            v: record.status.v,
            state: None,
            meta: None,
            lease: lease.as_ref().map(|lease| Arc::new(LeaseItem::from(lease))),
            token: *token,
            calls: ring(2),
        };
        if let Some(StatusPayload { state, meta }) = &record.status.payload {
            status.set_state(state);
            status.set_meta(meta);
        }
        let mut stored = Self {
            retracted: record.retracted,
            created_at: record.created_at.map_or(UNKNOWN, |at| at.as_second()),
            updated_at: record.updated_at.as_millisecond(),
            branches: count(record.branches),
            dependents: count(record.dependents),
            head: record.head.as_ref().map(|head| HeadItem {
                t: head.v,
                id: head.payload.as_ref().map(ContentId::shared),
                calls: ring(0),
            }),
            index: IndexItem {
                t: record.index.v,
                root: record.index.payload.as_ref().map(|root| Arc::new(Root::from(root))),
                calls: ring(1),
            },
            status,
            config: ConfigItem {
                v: record.config.v,
                payload: record.config.payload.as_ref().map(|payload| match payload {
                    Value::Object(object) => json_text(object),
                    other => Arc::from(other.to_string()),
                }),
                calls: ring(3),
            },
            ..Self::without_data(record.address.as_str(), record.kind, 0, Ring::default(), 0)
        };
        stored.set_attributes(&record.attributes());
        stored
    }
}

impl From<&Record> for Portable {
    fn from(record: &Record) -> Self {
        let mut shown = record.to_model();
        let lease = record.status.lease();
        if let Some(payload) = &mut shown.status.payload {
            payload.meta = record.status.meta();
        }
        let calls = ConcernKind::ALL.map(|concern| record.calls(concern).map(Ring::texts).unwrap_or_default());
        Self { record: shown, lease, token: record.status.token, calls }
    }
}

impl From<&Lease> for LeaseItem {
    fn from(lease: &Lease) -> Self {
        Self {
            name: Box::from(lease.name.as_str()),
            holder: Box::from(&*lease.holder),
            target_t: lease.target_t,
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
            refreshed_at: lease.refreshed_at,
        }
    }
}

impl From<&IndexRoot> for Root {
    fn from(root: &IndexRoot) -> Self {
        let graphs = root.graphs.iter().map(|(name, graph)| {
            let graph =
                graph.as_ref().map(|graph| Graph { id: Box::from(graph.id.as_str()), t: graph.t, rev: graph.rev });
            (name.clone(), graph)
        });
        Self { id: Box::from(root.id.as_str()), rev: root.rev, graphs: graphs.collect() }
    }
}
