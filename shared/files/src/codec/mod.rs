//! One codec of the files: what a directory and a bucket hold, as records.

mod encode;
pub(crate) mod files;
mod former;
mod note;

use bytes::Bytes;
use jiff::Timestamp;
use nameservice_embedded::state::{Now, Portable};
use nameservice_model::{
    Address, ConcernKind, ConcernValue, Config, ContentId, Head, Index, IndexRoot, LEGACY_ADDRESS, Lease, Object,
    Record, RecordAttributes, RecordKind, Status, StatusPayload, is_lease_member,
};
use serde_json::{Map, Value, json};

use self::{
    files::{LedgerIndexFile, LedgerMain, SourceIndexFile, SourceMain},
    note::Note,
};
pub(crate) use encode::{encode_index, encode_main, with_inline_index};
pub(crate) use former::Former;

/// How much later than the time in our note a file may have been stored, in milliseconds. A file that was stored later
/// than that was written by another program.
const STORED_WITHIN_MS: i64 = 5_000;
const DEFAULT_CONTEXT: &str = "default_context_id";
const CONFIG_ID: &str = "config_id";
const TOKEN: &str = "token";

/// A record as its files hold it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// The record in the files. The lease and the remembered calls are this crate's own.
    pub(crate) portable: Portable,
    pub(crate) main: Main,
    pub(crate) index: Option<IndexFile>,
    /// Members of the status that are leases of other programs, unchanged.
    pub(crate) foreign: Object,
    /// The format of an earlier version, if a file is in one: then it is read and never rewritten.
    pub(crate) former: Option<Former>,
}

/// A main file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Main {
    Ledger(Box<LedgerMain>),
    Source(Box<SourceMain>),
}

/// An index file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum IndexFile {
    Ledger(LedgerIndexFile),
    Source(SourceIndexFile),
}

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {which} file cannot be read: {reason}")]
pub(crate) struct Malformed {
    pub(crate) which: &'static str,
    pub(crate) reason: String,
}

/// The bytes of a file, and when it was stored (epoch milliseconds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    pub(crate) modified: i64,
}

impl Stored {
    /// Reads a record from its main file and, if there is one, its index file.
    pub(crate) fn decode(main: &Content, index: Option<&Content>) -> Result<Self, Malformed> {
        let (parsed, former) = parse_main(&main.bytes).map_err(|reason| Malformed { which: "main", reason })?;
        let kind = parsed.kind();
        let mut former = former;
        let index_file = match index {
            None => None,
            Some(index) => {
                let parsed = parse_index(&index.bytes, kind);
                let (file, is_former) = parsed.map_err(|reason| Malformed { which: "index", reason })?;
                former = former.or(is_former);
                Some(file)
            }
        };
        let note = Note::of(parsed.context());
        let index_note = index_file.as_ref().map(|index| Note::of(index.context())).unwrap_or_default();
        let mut updated = stored_at(&note, main.modified);
        if let Some(index) = index {
            updated = updated.max(stored_at(&index_note, index.modified));
        }
        let mut calls = note.calls.clone();
        calls[1].clone_from(&index_note.calls[1]);
        let index_value = merged(&parsed, index_file.as_ref(), &index_note);
        let (mut record, lease, foreign) = parsed.record(&note, index_value, updated);
        if former.is_some() {
            keep_addresses(&mut record, &main.bytes, index.map(|index| &*index.bytes));
        }
        let portable = Portable { record, lease, token: note.token, calls };
        Ok(Self { portable, main: parsed, index: index_file, foreign, former })
    }

    /// The address in the files themselves.
    pub(crate) fn address(&self) -> &Address {
        &self.portable.record.address
    }

    /// The unexpired lease of another program that excludes this holder, in the shape of the specification.
    pub(crate) fn foreign_lease(&self, holder: &str, now: Now) -> Option<Lease> {
        let lease = |(name, value): (&String, &Value)| {
            Some(Lease {
                name: name.parse().ok()?,
                holder: value["holder"].as_str()?.to_owned(),
                target_t: value["target_t"].as_i64(),
                acquired_at: value["acquired_at"].as_i64().unwrap_or(0),
                expires_at: value["expires_at"].as_i64()?,
                refreshed_at: value["refreshed_at"].as_i64(),
            })
        };
        let excludes = |lease: &Lease| lease.holder != holder && lease.expires_at > now.seconds();
        self.foreign.iter().filter_map(lease).find(excludes)
    }

    /// The record as its readers see it.
    pub(crate) fn record(&self) -> Record {
        shown(&self.portable, &self.foreign)
    }
}

/// A record with its lease, and those of other programs, inside its status.
pub(crate) fn shown(portable: &Portable, foreign: &Object) -> Record {
    let mut record = portable.record.clone();
    if let Some(payload) = &mut record.status.payload {
        payload.meta.extend(foreign.clone());
        if let Some(lease) = &portable.lease {
            payload.meta.insert(lease.name.to_string(), lease_member(lease));
        }
    }
    record
}

/// A lease as seed 003 and this service show it.
fn lease_member(lease: &Lease) -> Value {
    let mut member =
        json!({ "holder": lease.holder, "acquired_at": lease.acquired_at, "expires_at": lease.expires_at });
    if let Some(t) = lease.target_t {
        member["target_t"] = t.into();
    }
    if let Some(at) = lease.refreshed_at {
        member["refreshed_at"] = at.into();
    }
    member
}

fn stored_at(note: &Note, modified: i64) -> i64 {
    match note.updated {
        Some(updated) if modified <= updated.saturating_add(STORED_WITHIN_MS) => updated,
        _ => modified,
    }
}

impl Main {
    pub(crate) const fn kind(&self) -> RecordKind {
        match self {
            Self::Ledger(_) => RecordKind::Ledger,
            Self::Source(_) => RecordKind::GraphSource,
        }
    }

    fn context(&self) -> &Value {
        match self {
            Self::Ledger(main) => &main.context,
            Self::Source(main) => &main.context,
        }
    }

    fn record(&self, note: &Note, index: Index, updated: i64) -> (Record, Option<Lease>, Object) {
        let created_at = note.created.and_then(|at| Timestamp::from_second(at).ok());
        let updated_at = Timestamp::from_millisecond(updated).unwrap_or(Timestamp::UNIX_EPOCH);
        match self {
            Self::Ledger(main) => {
                let (meta, lease, foreign) = leases(main.status_meta.clone().unwrap_or_default());
                let payload = StatusPayload { state: main.status.clone(), meta };
                let branch_point = main.branch_point.as_ref().map(|point| point.source.clone());
                let address = Address::stored(format!("{}:{}", main.ledger.id, main.branch));
                let attributes = RecordAttributes {
                    source_branch: main.source_branch.clone().or(branch_point),
                    ..note.attributes.clone()
                };
                let record = Record {
                    retracted: main.status == StatusPayload::RETRACTED,
                    created_at,
                    updated_at,
                    branches: main.branches.unwrap_or(0).into(),
                    head: Some(Head::stored(main.t, cid(main.commit_cid.as_deref()))),
                    index,
                    status: Status::new(main.status_v.unwrap_or(1), payload),
                    config: config(main),
                    ..Record::base(address, RecordKind::Ledger, attributes)
                };
                (record, lease, foreign)
            }
            Self::Source(main) => {
                let payload =
                    StatusPayload { state: main.status.clone(), meta: note.status_meta.clone().unwrap_or_default() };
                let address = Address::stored(format!("{}:{}", main.name, main.branch));
                let attributes = RecordAttributes {
                    source_type: source_type(&main.types),
                    dependencies: main.dependencies.clone(),
                    ..note.attributes.clone()
                };
                let record = Record {
                    retracted: main.status == StatusPayload::RETRACTED,
                    created_at,
                    updated_at,
                    index,
                    status: Status::new(note.status_v.unwrap_or(1), payload),
                    config: Config::new(
                        note.config_v.unwrap_or(1),
                        serde_json::from_str(&main.config.value).unwrap_or(Value::Null),
                    ),
                    ..Record::base(address, RecordKind::GraphSource, attributes)
                };
                (record, note.lease.clone(), Object::new())
            }
        }
    }
}

impl IndexFile {
    fn context(&self) -> &Value {
        match self {
            Self::Ledger(file) => &file.context,
            Self::Source(file) => &file.context,
        }
    }
}

/// Shows the storage addresses of an earlier format in the config, if there are no ids.
fn keep_addresses(record: &mut Record, main: &[u8], index: Option<&[u8]>) {
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let mut addresses = Former::addresses(&parsed(main), index.map(parsed).as_ref());
    let has_head = record.head.as_ref().is_none_or(|head| head.payload.is_some() || head.v == 0);
    let has_index = record.index.payload.is_some() || record.index.v == 0;
    addresses.retain(|concern, _| if concern == "head" { !has_head } else { !has_index });
    if addresses.is_empty() {
        return;
    }
    let mut config = match record.config.payload.take() {
        Some(Value::Object(config)) => config,
        _ => Object::new(),
    };
    config.insert(LEGACY_ADDRESS.to_owned(), Value::Object(addresses));
    record.config = Config::new(record.config.v.max(1), Value::Object(config));
}

/// An id as Fluree reads it: one that cannot be parsed counts as none.
fn cid(text: Option<&str>) -> Option<ContentId> {
    text.and_then(|text| ContentId::parse(text).ok())
}

fn source_type(types: &[String]) -> Option<String> {
    types.iter().find(|kind| !files::is_kind_marker(kind)).map(|kind| files::prefixed(kind))
}

/// The index of a record: the index file wins over the main file unless its `t` is lower.
fn merged(main: &Main, file: Option<&IndexFile>, note: &Note) -> Index {
    let inline = match main {
        Main::Ledger(ledger) => ledger.index.as_ref().map(|index| (index.t, index.cid.as_deref())),
        Main::Source(_) => None,
    };
    let (t, id, is_file) = match (file, inline.unwrap_or((0, None))) {
        (Some(IndexFile::Ledger(file)), (t, _)) if file.index.t >= t => (file.index.t, file.index.cid.as_deref(), true),
        (Some(IndexFile::Source(file)), _) => (file.t, file.index.cid.as_deref(), true),
        (_, (t, id)) => (t, id, false),
    };
    let rev = if is_file && note.rev_of.as_deref() == id { note.rev } else { 0 };
    ConcernValue::stored(t, cid(id).map(|id| IndexRoot { id, rev, graphs: Default::default() }))
}

/// The config of a ledger: its metadata, with the two ids that have members of their own.
fn config(main: &LedgerMain) -> Config {
    let mut payload = main.config_meta.clone().unwrap_or_default();
    let ids = [(DEFAULT_CONTEXT, &main.default_context_cid), (CONFIG_ID, &main.config_cid)];
    for (member, id) in ids {
        if let Some(id) = cid(id.as_deref()) {
            payload.insert(member.to_owned(), id.as_str().into());
        }
    }
    let has_data = !payload.is_empty();
    let v = main.config_v.unwrap_or(i64::from(has_data));
    ConcernValue::stored(v, (v != 0 || has_data).then_some(Value::Object(payload)))
}

/// Splits the metadata of a status: what its writers wrote, our lease, and the leases of other programs.
fn leases(meta: Object) -> (Object, Option<Lease>, Object) {
    let (locks, meta): (Object, Object) = meta.into_iter().partition(|(name, value)| is_lease_member(name, value));
    let mut lease = None;
    let mut foreign = Object::new();
    for (name, value) in locks {
        match ours(&name, &value).filter(|_| lease.is_none()) {
            Some(found) => lease = Some(found),
            None => {
                foreign.insert(name, value);
            }
        }
    }
    (meta, lease, foreign)
}

/// A lease with a token is one that this crate has stored.
fn ours(name: &str, value: &Value) -> Option<Lease> {
    let mut members: Map<String, Value> = value.as_object()?.clone();
    members.remove(TOKEN)?;
    members.insert("name".to_owned(), name.into());
    serde_json::from_value(Value::Object(members)).ok()
}

/// Whether an index file remembers a call.
pub(crate) fn index_remembers(bytes: &[u8], call: &str) -> bool {
    let json: Value = serde_json::from_slice(bytes).unwrap_or_default();
    Note::of(&json["@context"]).calls[1].iter().any(|known| known == call)
}

/// Whether a change of a record rewrites its index file.
pub(crate) fn index_differs(before: &Portable, after: &Portable) -> bool {
    let place = ConcernKind::ALL.iter().position(|concern| *concern == ConcernKind::Index).unwrap_or(1);
    before.record.index != after.record.index || before.calls[place] != after.calls[place]
}

/// Whether a change of a record rewrites its main file: anything but the index differs.
pub(crate) fn main_differs(before: &Portable, after: &Portable) -> bool {
    let plain = |portable: &Portable| {
        let mut portable = portable.clone();
        portable.record.index = Index::unborn();
        portable.record.updated_at = Timestamp::UNIX_EPOCH;
        portable.calls[1].clear();
        portable
    };
    plain(before) != plain(after)
}

fn parse_main(bytes: &[u8]) -> Result<(Main, Option<Former>), String> {
    let json: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if let Some(former) = Former::of_main(&json) {
        return Ok((former.main(&json)?, Some(former)));
    }
    let is_source =
        json["@type"].as_array().is_some_and(|types| types.iter().filter_map(Value::as_str).any(files::is_kind_marker));
    let read = |error: serde_json::Error| error.to_string();
    Ok(match is_source {
        true => (Main::Source(Box::new(serde_json::from_value(json).map_err(read)?)), None),
        false => (Main::Ledger(Box::new(serde_json::from_value(json).map_err(read)?)), None),
    })
}

fn parse_index(bytes: &[u8], kind: RecordKind) -> Result<(IndexFile, Option<Former>), String> {
    let json: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if let Some(former) = Former::of_index(&json) {
        return Ok((former.index(&json, kind)?, Some(former)));
    }
    let read = |error: serde_json::Error| error.to_string();
    Ok(match kind {
        RecordKind::Ledger => (IndexFile::Ledger(serde_json::from_value(json).map_err(read)?), None),
        RecordKind::GraphSource => (IndexFile::Source(serde_json::from_value(json).map_err(read)?), None),
    })
}
