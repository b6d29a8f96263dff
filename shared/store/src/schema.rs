//! The table, and every name in it.
//!
//! ```text
//! fluree-nameservice                               pk (S) = address, sk (S) = which item
//!
//!   pk           sk                    what it holds
//!   mydb:main    a-calls               request_id … created_at bp_source ttl              the memory of the address
//!   mydb:main    backref#search:main   dependent                                          one a record that depends on it
//!   mydb:main    commit#0000…0042      commit_cid commit_t ttl                            Fluree's log; read, never required
//!   mydb:main    config                default_context_address|_id config_meta config_v   (graph source: config_json config_v)
//!   mydb:main    head                  commit_id commit_t                                 ledgers only
//!   mydb:main    index                 index_id index_t rev rev_id graphs
//!   mydb:main    meta                  kind name branch retracted …                       makes the record exist
//!   mydb:main    status                status status_v status_meta lease lease_token
//!
//!   everywhere: schema updated_at_ms       concern items and meta: request_id request_id_1 _2 _3; concern items: retracted (a mark)
//!
//! gsi1-kind          kind → pk           meta items (INCLUDE name branch source_type dependencies retracted)
//! source-type-index  source_type → pk    meta items of graph sources (the same projection)
//! state-index        status → pk         status items (KEYS_ONLY)
//! ```
//!
//! A record is read as one Query `sk >= "config"`: what sorts before that is not part of it. See docs/specification.md,
//! Table.

use nameservice_model::{ConcernKind, RecordAttribute, RecordKind};

pub use crate::attribute::{Attribute, Owner, Shape};

/// Partition key (S): the address.
pub const ATTR_PK: &str = "pk";
/// Sort key (S): which item.
pub const ATTR_SK: &str = "sk";
/// Layout version (N), always [`SCHEMA_VERSION`].
pub const ATTR_SCHEMA: &str = "schema";
/// Last write of the item (N), epoch milliseconds.
pub const ATTR_UPDATED_AT_MS: &str = "updated_at_ms";

/// meta: `ledger` or `graph_source` (S). An item without it is not a record.
pub const ATTR_KIND: &str = "kind";
/// meta: the part of the address before the colon (S).
pub const ATTR_NAME: &str = "name";
/// meta: the part of the address after the colon (S).
pub const ATTR_BRANCH: &str = "branch";
/// meta: soft-deleted (BOOL). On concern items it is a mark by which a push is rejected in its single request.
pub const ATTR_RETRACTED: &str = "retracted";
/// meta of a branch: the branch it was created from (S).
pub const ATTR_BP_SOURCE: &str = "bp_source";
/// meta, ours: it cannot be retracted, purged or reset (BOOL), absent = false.
pub const ATTR_PROTECTED: &str = "protected";
/// meta: how many branches were created from it (N), absent = 0.
pub const ATTR_BRANCHES: &str = "branches";
/// meta of a graph source: its type (S).
pub const ATTR_SOURCE_TYPE: &str = "source_type";
/// meta of a graph source: what it depends on (L of S).
pub const ATTR_DEPENDENCIES: &str = "dependencies";
/// meta, ours: creation time (N), epoch seconds.
pub const ATTR_CREATED_AT: &str = "created_at";
/// meta, ours: the call that created it (S), which distinguishes it from a record that is created later at its address.
pub const ATTR_LIFE: &str = "life";
/// meta, ours: the call that last reset its head (S): a branch is not created at a head that the reset has taken away.
pub const ATTR_RESET: &str = "reset_by";
/// meta, ours: how many records depend on it (N), absent = 0.
pub const ATTR_DEPENDENTS: &str = "dependents";
/// meta, ours: the dependencies that are counted at their targets (L of S).
pub const ATTR_COUNTED: &str = "counted";

/// head: the latest commit (S), absent while unborn.
pub const ATTR_COMMIT_ID: &str = "commit_id";
/// head: its transaction time (N), 0 while unborn.
pub const ATTR_COMMIT_T: &str = "commit_t";

/// index: the latest index root (S), absent while unborn.
pub const ATTR_INDEX_ID: &str = "index_id";
/// index: the transaction time it covers (N), 0 while unborn.
pub const ATTR_INDEX_T: &str = "index_t";
/// index, ours: how often this `t` was indexed again (N). Counts only while `rev_id` equals `index_id`.
pub const ATTR_REV: &str = "rev";
/// index, ours: the index that `rev` belongs to (S).
pub const ATTR_REV_ID: &str = "rev_id";
/// index, ours: named graph → `{id, t, rev}` or NULL (M).
pub const ATTR_GRAPHS: &str = "graphs";
/// Members of an entry of `graphs`.
pub const MEMBER_ID: &str = "id";
/// See [`MEMBER_ID`].
pub const MEMBER_T: &str = "t";
/// See [`MEMBER_ID`].
pub const MEMBER_REV: &str = "rev";

/// config of a ledger: the default JSON-LD context (S), as deployed servers name it.
pub const ATTR_DEFAULT_CONTEXT_ADDRESS: &str = "default_context_address";
/// config of a ledger: the same value, as the guide names it. Which one is read is decided in `items`.
pub const ATTR_DEFAULT_CONTEXT_ID: &str = "default_context_id";
/// config: counter (N), 0 while unborn.
pub const ATTR_CONFIG_V: &str = "config_v";
/// config of a ledger: everything but the default context (M).
pub const ATTR_CONFIG_META: &str = "config_meta";
/// config of a graph source: a JSON object as text (S).
pub const ATTR_CONFIG_JSON: &str = "config_json";

/// status: the state (S).
pub const ATTR_STATUS: &str = "status";
/// status: counter (N), starts at 1.
pub const ATTR_STATUS_V: &str = "status_v";
/// status: everything but the state (M).
pub const ATTR_STATUS_META: &str = "status_meta";
/// status, ours: the lease (M), with its name among its members. No status writer touches it.
pub const ATTR_LEASE: &str = "lease";
/// status, ours: the fencing token (N).
pub const ATTR_LEASE_TOKEN: &str = "lease_token";
/// Member of `lease` (S): the name of the lease.
pub const MEMBER_LEASE_NAME: &str = "name";
/// Member of `lease` (S): who holds it.
pub const MEMBER_LEASE_HOLDER: &str = "holder";
/// Member of `lease` (N): the `t` it is held for.
pub const MEMBER_LEASE_TARGET_T: &str = "target_t";
/// Member of `lease` (N): since when, epoch seconds.
pub const MEMBER_LEASE_ACQUIRED_AT: &str = "acquired_at";
/// Member of `lease` (N): until when, epoch seconds.
pub const MEMBER_LEASE_EXPIRES_AT: &str = "expires_at";
/// Member of `lease` (N): when it was last refreshed, epoch seconds.
pub const MEMBER_LEASE_REFRESHED_AT: &str = "refreshed_at";

/// backref: the address of the record that depends on this one (S).
pub const ATTR_DEPENDENT: &str = "dependent";
/// commit log: the commit (S).
pub const ATTR_COMMIT_CID: &str = "commit_cid";
/// commit log, calls: expiry (N), epoch seconds.
pub const ATTR_TTL: &str = "ttl";

/// Concern items, meta, calls, ours: the calls that wrote last, newest first (S). Those of a meta item are the calls that
/// have changed its protection.
pub const ATTR_REQUEST_IDS: [&str; 4] = ["request_id", "request_id_1", "request_id_2", "request_id_3"];

/// The value of a slot of [`ATTR_REQUEST_IDS`] that no call has filled.
pub const NO_REQUEST: &str = "-";

/// Sort key of the item that makes a record exist.
pub const SK_META: &str = "meta";
/// The lowest sort key of a record: everything from here on belongs to it.
pub const SK_FIRST_OF_RECORD: &str = "config";
/// Sort key of the memory of an address, which outlives its records: the last four calls that ended or began one.
pub const SK_CALLS: &str = "a-calls";
/// Sort keys of back references start with this.
pub const SK_BACKREF_PREFIX: &str = "backref#";
/// Sort keys of Fluree's commit log start with this.
pub const SK_COMMIT_PREFIX: &str = "commit#";

/// Lists records by kind. Every table has it: Fluree creates it too.
pub const GSI_KIND: &str = "gsi1-kind";
/// Lists graph sources by type.
pub const GSI_SOURCE_TYPE: &str = "source-type-index";
/// Lists records by state.
pub const GSI_STATE: &str = "state-index";

/// The version of the layout.
pub const SCHEMA_VERSION: i64 = 2;

/// Returns the sort key of the row that Fluree's commit log has for a `t`.
pub fn sk_commit(t: i64) -> String {
    format!("{SK_COMMIT_PREFIX}{t:020}")
}

/// Returns the sort key of a concern's item.
pub const fn sk_of(concern: ConcernKind) -> &'static str {
    match concern {
        ConcernKind::Head => "head",
        ConcernKind::Index => "index",
        ConcernKind::Status => "status",
        ConcernKind::Config => "config",
    }
}

/// Returns the concern whose item has this sort key.
pub fn concern_of(sk: &str) -> Option<ConcernKind> {
    ConcernKind::ALL.into_iter().find(|concern| sk_of(*concern) == sk)
}

/// Returns the sort key of a target's row for `dependent`, which depends on it.
pub fn sk_backref(dependent: &str) -> String {
    format!("{SK_BACKREF_PREFIX}{dependent}")
}

/// Returns the concerns that a kind of record has.
pub const fn concerns_of(kind: RecordKind) -> &'static [ConcernKind] {
    match kind {
        RecordKind::Ledger => &ConcernKind::ALL,
        RecordKind::GraphSource => &[ConcernKind::Index, ConcernKind::Status, ConcernKind::Config],
    }
}

/// A group of attributes that occur together on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The attributes that every item has.
    All,
    /// The item that makes a record exist.
    Meta,
    /// The value of a concern.
    Concern(ConcernKind),
    /// The attributes that every concern item has besides its value.
    Concerns,
    /// The lease on the status item.
    Lease,
    /// The row of a dependent.
    Backref,
    /// A row of Fluree's commit log.
    Commit,
    /// The memory of an address.
    Calls,
}

impl Part {
    /// Returns whether the item with this sort key has the attributes.
    pub fn is_in(self, sk: &str) -> bool {
        match self {
            Self::All => !sk.starts_with(SK_COMMIT_PREFIX),
            Self::Meta => sk == SK_META,
            Self::Concern(concern) => sk == sk_of(concern),
            Self::Concerns => concern_of(sk).is_some(),
            Self::Lease => sk == sk_of(ConcernKind::Status),
            Self::Backref => sk.starts_with(SK_BACKREF_PREFIX),
            Self::Commit => sk.starts_with(SK_COMMIT_PREFIX),
            Self::Calls => sk == SK_CALLS,
        }
    }
}

/// The attributes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The part.
    pub part: Part,
    /// Its attributes.
    pub attributes: &'static [Attribute],
}

/// Every attribute of the table. The change feed, the doctor and the tests take what they know about attributes from
/// here.
pub const LAYOUT: &[Layout] = &[
    Layout {
        part: Part::All,
        attributes: &[
            Attribute::shared(ATTR_PK, Shape::Text).required(),
            Attribute::shared(ATTR_SK, Shape::Text).required(),
            Attribute::shared(ATTR_SCHEMA, Shape::Count).required(),
            Attribute::shared(ATTR_UPDATED_AT_MS, Shape::Count).required(),
        ],
    },
    Layout {
        part: Part::Meta,
        attributes: &[
            Attribute::shared(ATTR_KIND, Shape::Text).required().strict(),
            Attribute::shared(ATTR_NAME, Shape::Text).required(),
            Attribute::shared(ATTR_BRANCH, Shape::Text).required(),
            Attribute::shared(ATTR_RETRACTED, Shape::Truth).required().strict(),
            Attribute::shared(ATTR_BP_SOURCE, Shape::Text).only(RecordKind::Ledger).strict(),
            Attribute::shared(ATTR_BRANCHES, Shape::Count),
            Attribute::shared(ATTR_SOURCE_TYPE, Shape::Text).only(RecordKind::GraphSource).required().strict(),
            Attribute::shared(ATTR_DEPENDENCIES, Shape::List).only(RecordKind::GraphSource).required(),
            Attribute::ours(ATTR_COUNTED, Shape::List).only(RecordKind::GraphSource),
            Attribute::ours(ATTR_CREATED_AT, Shape::Count).required(),
            Attribute::ours(ATTR_DEPENDENTS, Shape::Count),
            Attribute::ours(ATTR_PROTECTED, Shape::Truth).strict(),
            Attribute::ours(ATTR_LIFE, Shape::Text),
            Attribute::ours(ATTR_RESET, Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[0], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[1], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[2], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[3], Shape::Text),
        ],
    },
    Layout {
        part: Part::Concern(ConcernKind::Head),
        attributes: &[
            Attribute::shared(ATTR_COMMIT_ID, Shape::Text).strict(),
            Attribute::shared(ATTR_COMMIT_T, Shape::Count).required().strict(),
        ],
    },
    Layout {
        part: Part::Concern(ConcernKind::Index),
        attributes: &[
            Attribute::shared(ATTR_INDEX_ID, Shape::Text).strict(),
            Attribute::shared(ATTR_INDEX_T, Shape::Count).required().strict(),
            Attribute::ours(ATTR_REV, Shape::Count),
            Attribute::ours(ATTR_REV_ID, Shape::Text),
            Attribute::ours(ATTR_GRAPHS, Shape::Map).strict(),
        ],
    },
    Layout {
        part: Part::Concern(ConcernKind::Status),
        attributes: &[
            Attribute::shared(ATTR_STATUS, Shape::Text).required().strict(),
            Attribute::shared(ATTR_STATUS_V, Shape::Count).required().strict(),
            Attribute::shared(ATTR_STATUS_META, Shape::Map).strict(),
        ],
    },
    Layout {
        part: Part::Concern(ConcernKind::Config),
        attributes: &[
            Attribute::shared(ATTR_CONFIG_V, Shape::Count).required().strict(),
            Attribute::shared(ATTR_CONFIG_META, Shape::Map).only(RecordKind::Ledger).strict(),
            Attribute::shared(ATTR_CONFIG_JSON, Shape::Text).only(RecordKind::GraphSource).required().strict(),
            Attribute::shared(ATTR_DEFAULT_CONTEXT_ADDRESS, Shape::Text).only(RecordKind::Ledger).strict(),
            Attribute::shared(ATTR_DEFAULT_CONTEXT_ID, Shape::Text).only(RecordKind::Ledger),
        ],
    },
    Layout {
        part: Part::Concerns,
        attributes: &[
            Attribute::ours(ATTR_RETRACTED, Shape::Truth).strict(),
            Attribute::ours(ATTR_REQUEST_IDS[0], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[1], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[2], Shape::Text),
            Attribute::ours(ATTR_REQUEST_IDS[3], Shape::Text),
        ],
    },
    Layout {
        part: Part::Lease,
        attributes: &[Attribute::ours(ATTR_LEASE, Shape::Map), Attribute::ours(ATTR_LEASE_TOKEN, Shape::Count)],
    },
    Layout { part: Part::Backref, attributes: &[Attribute::ours(ATTR_DEPENDENT, Shape::Text).required()] },
    Layout {
        part: Part::Commit,
        attributes: &[
            Attribute::shared(ATTR_COMMIT_CID, Shape::Text),
            Attribute::shared(ATTR_COMMIT_T, Shape::Count),
            Attribute::shared(ATTR_TTL, Shape::Count),
        ],
    },
    Layout {
        part: Part::Calls,
        attributes: &[
            Attribute::ours(ATTR_REQUEST_IDS[0], Shape::Text).required(),
            Attribute::ours(ATTR_REQUEST_IDS[1], Shape::Text).required(),
            Attribute::ours(ATTR_REQUEST_IDS[2], Shape::Text).required(),
            Attribute::ours(ATTR_REQUEST_IDS[3], Shape::Text).required(),
            Attribute::ours(ATTR_CREATED_AT, Shape::Count),
            Attribute::ours(ATTR_BP_SOURCE, Shape::Text),
            Attribute::ours(ATTR_LIFE, Shape::Text),
            Attribute::ours(ATTR_COMMIT_ID, Shape::Text),
            Attribute::ours(ATTR_COMMIT_T, Shape::Count),
            Attribute::ours(ATTR_TTL, Shape::Count).required(),
        ],
    },
];

/// Returns the attributes of the item with this sort key.
pub fn attributes_of(sk: &str) -> impl Iterator<Item = &'static Attribute> {
    LAYOUT.iter().filter(move |layout| layout.part.is_in(sk)).flat_map(|layout| layout.attributes)
}

/// Returns the attributes that hold the value of a concern.
pub fn value_of_concern(concern: ConcernKind) -> Vec<&'static str> {
    let layouts = LAYOUT.iter().filter(|layout| layout.part == Part::Concern(concern));
    layouts.flat_map(|layout| layout.attributes).map(|attribute| attribute.name).collect()
}

/// Returns the attribute of a meta item that holds an attribute of a record.
pub const fn name_of(attribute: RecordAttribute) -> &'static str {
    match attribute {
        RecordAttribute::Protected => ATTR_PROTECTED,
        RecordAttribute::SourceType => ATTR_SOURCE_TYPE,
        RecordAttribute::Dependencies => ATTR_DEPENDENCIES,
        RecordAttribute::SourceBranch => ATTR_BP_SOURCE,
    }
}

/// Returns the attribute that holds the watermark of a concern.
pub const fn watermark_of(concern: ConcernKind) -> &'static str {
    match concern {
        ConcernKind::Head => ATTR_COMMIT_T,
        ConcernKind::Index => ATTR_INDEX_T,
        ConcernKind::Status => ATTR_STATUS_V,
        ConcernKind::Config => ATTR_CONFIG_V,
    }
}

/// A secondary index of the table. All keys are strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondaryIndex {
    /// Its name.
    pub name: &'static str,
    /// Its partition key; its sort key is always [`ATTR_PK`].
    pub hash: &'static str,
    /// The attributes that it carries besides the keys; empty for KEYS_ONLY.
    pub include: &'static [&'static str],
}

const SUMMARY: &[&str] = &[ATTR_NAME, ATTR_BRANCH, ATTR_SOURCE_TYPE, ATTR_DEPENDENCIES, ATTR_RETRACTED];

/// The indexes of the table.
pub const INDEXES: [SecondaryIndex; 3] = [
    SecondaryIndex { name: GSI_KIND, hash: ATTR_KIND, include: SUMMARY },
    SecondaryIndex { name: GSI_SOURCE_TYPE, hash: ATTR_SOURCE_TYPE, include: SUMMARY },
    SecondaryIndex { name: GSI_STATE, hash: ATTR_STATUS, include: &[] },
];
