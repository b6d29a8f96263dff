//! The values of the nameservice (addresses, content ids, concerns, records, leases), its outcomes, and the narrow
//! traits that a backend implements. Depends on neither AWS nor HTTP.
//!
//! A value that cannot be stored cannot be constructed: the new values of pushes ([`NewHead`], [`NewIndex`],
//! [`NewStatus`], [`NewConfig`]), transactions, publications and lease requests are checked by their constructors.

mod address;
mod address_glob;
mod attributes;
mod call;
mod capability;
mod change;
mod concern;
mod content_id;
mod desired;
mod difference;
mod error;
mod finding;
mod fluree;
mod forward;
mod item_size;
mod judge;
mod lease;
mod name;
mod outcome;
mod payload;
mod progress;
mod publication;
mod push;
mod query;
mod record;
mod redact;
mod search;
mod traits;
mod transaction;
mod write;

#[doc(hidden)]
pub use async_trait::async_trait;

pub use address::{Address, InvalidAddress, MAX_ADDRESS_BYTES, MAX_BRANCH_BYTES};
pub use address_glob::{AddressGlob, InvalidGlob};
pub use call::{Call, RequestId};
pub use capability::{Capabilities, Capability, FeedKind, LostReplies};
pub use change::{
    Change, ChangeEvent, ChangeKind, ChangePayload, ChangedPart, History, HistoryQuery, Identity,
    MAX_CHANGE_PAYLOAD_BYTES, Run, RunMemory,
};
pub use concern::{ConcernKind, ConcernState, ConcernValue, MAX_WATERMARK, check_watermark};
pub use content_id::{ContentId, InvalidContentId};
pub use desired::{
    MAX_GRAPHS, NewConcern, NewConfig, NewGraphIndex, NewHead, NewIndex, NewStatus, check_graph_count, check_graph_name,
};
pub use difference::PartState;
pub use error::{BoxError, Error, Result, chain};
pub use finding::{Finding, Fix, Severity};
pub use fluree::{BesideFluree, FlureeContent, check_fluree};
pub use item_size::{MAX_ITEM_BYTES, index_item_bytes};
pub use judge::{Expect, Judgement};
pub use lease::{
    DEFAULT_TTL_SECONDS, Held, InvalidLeaseName, Lease, LeaseClaim, LeaseName, LeaseRequest, Leased, MAX_HOLDER_BYTES,
    MAX_LEASE_NAME_BYTES, MAX_TTL_SECONDS, MIN_TTL_SECONDS, Released, is_held_until, is_lease_member, last_expiry,
};
pub use name::UnknownName;
pub use outcome::{BranchCreated, Created, Dropped, Protection, Published, Purged, Reset, Restored, Retracted};
pub use payload::{
    Config, GraphIndex, Head, Index, IndexRoot, InvalidPayload, InvalidReason, LEGACY_ADDRESS, MAX_GRAPH_NAME_BYTES,
    MAX_PAYLOAD_DEPTH, MAX_STATE_BYTES, Object, Status, StatusPayload, check_object, check_state,
};
pub use progress::{Observer, Progress};
pub use publication::{GraphSourcePublication, MAX_DEPENDENCIES, MAX_SOURCE_TYPE_BYTES, ResetTo};
pub use push::{ConfigPush, Expected, HeadPush, IndexPush, Push, PushOutcome, StatusPush};
pub use query::{Cursor, InvalidCursor, InvalidLimit, Limit, ListQuery, Listed, Page, Visible};
pub use record::{NewLedger, Record, RecordAttribute, RecordAttributes, RecordKind, Summary};
pub use redact::{REDACTED, ShownUrl, is_redacted, redact};
pub use search::{
    Hit, InvalidSearch, MAX_SEARCH_BYTES, MAX_SEARCH_WORDS, MAX_SEARCHED_CONFIG_BYTES, SearchField, SearchIndex,
    SearchQuery, SearchWords, Within, fold, searched_config,
};
pub use traits::{
    AdminPublisher, Backend, ChangeFeed, ConfigPublisher, GraphSourceLookup, GraphSourcePublisher, LeasePublisher,
    NameService, Publisher, Records, RefPublisher, StatusPublisher, TransactionPublisher,
};
pub use transaction::{Committed, MAX_OPERATIONS, Operation, OperationKind, OperationOutcome, Transaction};
pub use write::{Write, WriteAll, Written};
