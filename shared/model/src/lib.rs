//! The words of the nameservice: addresses, content ids, concerns and their values, records, outcomes, and the
//! narrow traits that a backend implements. Knows neither AWS nor HTTP.

mod address;
mod call;
mod change;
mod concern;
mod content_id;
mod error;
mod lease;
mod outcome;
mod payload;
mod query;
mod record;
mod redact;
mod traits;
mod transaction;

pub use address::{Address, InvalidAddress, MAX_ADDRESS_BYTES, MAX_BRANCH_BYTES};
pub use call::{Call, RequestId};
pub use change::{
    Change, ChangeKind, ChangePayload, ChangedPart, History, HistoryQuery, Identity, MAX_CHANGE_PAYLOAD_BYTES, Run,
};
pub use concern::{CasResult, ConcernKind, ConcernValue};
pub use content_id::{ContentId, InvalidContentId};
pub use error::{BoxError, Error, Result, chain};
pub use lease::{
    DEFAULT_TTL_SECONDS, Held, Lease, LeaseClaim, LeaseName, LeaseRequest, Leased, MAX_TTL_SECONDS, MIN_TTL_SECONDS,
    Released,
};
pub use outcome::{
    BranchCreated, Created, Dropped, Expected, GraphSourcePublication, Published, Purged, Push, PushOutcome, Reset,
    ResetTo, Restored, Retracted,
};
pub use payload::{
    Config, GraphIndex, GraphPush, Head, Index, IndexRoot, IndexUpdate, InvalidPayload, MAX_GRAPH_NAME_BYTES,
    MAX_PAYLOAD_DEPTH, MAX_STATE_BYTES, Object, Status, StatusPayload, check_object, check_state,
};
pub use query::{Cursor, InvalidCursor, ListQuery, Listed, Page, Visible};
pub use record::{Record, RecordKind, Summary};
pub use redact::redact;
pub use traits::{
    AdminPublisher, ChangeFeed, ConfigPublisher, GraphSourceLookup, GraphSourcePublisher, LeasePublisher, NameService,
    Publisher, RefPublisher, StatusPublisher, TransactionPublisher,
};

pub use transaction::{Committed, ConcernState, MAX_OPERATIONS, Operation, OperationKind, OperationOutcome};

/// The most records that one graph source may depend on: twice as many (all replaced by others) still fit one
/// DynamoDB transaction of 100 actions.
pub const MAX_DEPENDENCIES: usize = 24;
