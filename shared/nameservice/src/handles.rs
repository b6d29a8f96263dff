//! Handles of the concerns of a record: read one, or push it.

use std::sync::Arc;

use nameservice_model::{
    Address, Backend, Call, Config, ConfigPush, ContentId, Head, HeadPush, Index, IndexPush, IndexRoot, InvalidPayload,
    LeaseClaim, NewConfig, NewGraphIndex, NewHead, NewIndex, NewStatus, Object, Operation, PushOutcome, Status,
    StatusPayload, StatusPush,
};
use serde_json::Value;

use crate::{
    AtLeast, Error, Nameservice, Rejection, Result,
    builder::{Future, sent},
    names::{new_head, new_index},
};

macro_rules! handle {
    ($name:ident $value:ident $what:literal) => {
        #[doc = concat!("The ", $what, " of one record.")]
        #[derive(Clone, Debug)]
        pub struct $name {
            names: Nameservice,
            address: Address,
        }

        impl $name {
            pub(crate) fn new(names: Nameservice, address: Address) -> Self {
                Self { names, address }
            }

            fn backend(&self) -> &Arc<dyn Backend> {
                self.names.backend()
            }

            /// Returns the address of the record.
            pub const fn address(&self) -> &Address {
                &self.address
            }

            #[doc = concat!("Begins to read the ", $what, " once its watermark is at least this.")]
            pub fn at_least(&self, watermark: i64) -> AtLeast<$value> {
                let handle = self.clone();
                let read = move || -> Future<Option<$value>> {
                    let handle = handle.clone();
                    Box::pin(async move { handle.get().await })
                };
                AtLeast::new(self.backend().clone(), watermark, Box::new(read))
            }
        }
    };
}

handle!(HeadHandle Head "head");
handle!(IndexHandle Index "index");
handle!(StatusHandle Status "status");
handle!(ConfigHandle Config "configuration");

/// What pushes have in common.
macro_rules! push {
    ($name:ident, $push:ident) => {
        impl $name {
            /// Makes the push valid only under a lease.
            pub fn under(mut self, claim: LeaseClaim) -> Self {
                self.claim = Some(claim);
                self
            }

            /// Returns the push as an operation of a [transaction](Nameservice::commit).
            pub fn into_operation(self) -> Result<Operation> {
                let address = self.handle.address.clone();
                Ok(Operation::new(address, self.into_push()?))
            }
        }
    };
}

/// What a push of a head or an index expects.
#[derive(Debug)]
enum Expectation<T> {
    Older,
    NoRecord,
    Value(T),
}

impl HeadHandle {
    /// Returns the head; `None` if there is no record, or it is a graph source.
    pub async fn get(&self) -> Result<Option<Head>> {
        Ok(self.backend().head(&self.address).await?)
    }

    /// Begins a push of a commit and its `t`. Without an expectation it replaces any older head.
    pub fn push<I>(&self, id: I, t: i64) -> PushHead
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        let (call, expected) = (Call::fresh(), Expectation::Older);
        PushHead { handle: self.clone(), call, new: new_head(id, t), expected, claim: None }
    }
}

/// A push of a head: awaited, it returns the outcome.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct PushHead {
    handle: HeadHandle,
    call: Call,
    new: Result<NewHead>,
    expected: Expectation<Head>,
    claim: Option<LeaseClaim>,
}

impl PushHead {
    /// Expects this head.
    pub fn expect(mut self, head: Head) -> Self {
        self.expected = Expectation::Value(head);
        self
    }

    /// Expects a ledger without a commit.
    pub fn expect_unborn(self) -> Self {
        self.expect(Head::unborn())
    }

    /// Expects that there is no record: the push creates a ledger.
    pub fn expect_no_record(mut self) -> Self {
        self.expected = Expectation::NoRecord;
        self
    }

    /// Returns the push, for a transaction.
    pub fn into_push(self) -> Result<HeadPush> {
        let new = self.new?;
        let push = match self.expected {
            Expectation::Older => HeadPush::monotonic(new),
            Expectation::NoRecord => HeadPush::create(new),
            Expectation::Value(head) => HeadPush::cas(head, new),
        };
        Ok(match self.claim {
            Some(claim) => push.under(claim)?,
            None => push,
        })
    }
}

push!(PushHead, HeadPush);
sent!(PushHead -> PushOutcome<ContentId>, self => {
    let (handle, call) = (self.handle.clone(), self.call.clone());
    Ok(handle.backend().push_head(&call, &handle.address, &self.into_push()?).await?)
});

impl IndexHandle {
    /// Returns the index; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Index>> {
        Ok(self.backend().index(&self.address).await?)
    }

    /// Begins a push of an index root and the `t` that it covers. Without an expectation it replaces any older index.
    pub fn push<I>(&self, id: I, t: i64) -> PushIndex
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        let (call, expected) = (Call::fresh(), Expectation::Older);
        PushIndex { handle: self.clone(), call, new: new_index(id, t), expected, claim: None }
    }
}

/// A push of an index: awaited, it returns the outcome.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct PushIndex {
    handle: IndexHandle,
    call: Call,
    new: Result<NewIndex>,
    expected: Expectation<Index>,
    claim: Option<LeaseClaim>,
}

impl PushIndex {
    /// Expects this index. The new one may have the same `t`: the same data, indexed again.
    pub fn expect(mut self, index: Index) -> Self {
        self.expected = Expectation::Value(index);
        self
    }

    /// Expects a record without an index.
    pub fn expect_unborn(self) -> Self {
        self.expect(Index::unborn())
    }

    /// Expects that there is no record: the push creates a ledger.
    pub fn expect_no_record(mut self) -> Self {
        self.expected = Expectation::NoRecord;
        self
    }

    /// Sets the index of a named graph too; `None` for one that exists and has no index yet.
    pub fn graph(mut self, name: impl Into<String>, graph: Option<NewGraphIndex>) -> Self {
        self.new = self.new.and_then(|new| Ok(new.with_graph(name, graph)?));
        self
    }

    /// Returns the push, for a transaction.
    pub fn into_push(self) -> Result<IndexPush> {
        let new = self.new?;
        let push = match self.expected {
            Expectation::Older => IndexPush::monotonic(new),
            Expectation::NoRecord => IndexPush::create(new),
            Expectation::Value(index) => IndexPush::cas(index, new),
        };
        Ok(match self.claim {
            Some(claim) => push.under(claim)?,
            None => push,
        })
    }
}

push!(PushIndex, IndexPush);
sent!(PushIndex -> PushOutcome<IndexRoot>, self => {
    let (handle, call) = (self.handle.clone(), self.call.clone());
    Ok(handle.backend().push_index(&call, &handle.address, &self.into_push()?).await?)
});

/// A builder of pushes of a status or a configuration, which always name the version that they replace.
macro_rules! replacement {
    ($(#[$doc:meta])* $name:ident: $handle:ident, $value:ident, $new:ident, $push:ident, $send:ident -> $payload:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "nothing is sent before it is awaited"]
        pub struct $name {
            handle: $handle,
            call: Call,
            new: Result<$new>,
            expected: Option<$value>,
            claim: Option<LeaseClaim>,
        }

        impl $name {
            #[doc = concat!("Expects this ", $what, ". By default, the current version is read first, and expected.")]
            pub fn expect(mut self, expected: $value) -> Self {
                self.expected = Some(expected);
                self
            }

            /// Sets the version that is stored; by default, one more than the expected one.
            pub fn v(mut self, v: i64) -> Self {
                self.new = self.new.and_then(|new| Ok(new.with_v(v)?));
                self
            }

            #[doc = concat!("Returns the push, for a transaction. It needs the expected ", $what, ".")]
            pub fn into_push(self) -> Result<$push> {
                let missing = || InvalidPayload::new("expected", concat!("is required: the ", $what, " that is replaced"));
                let push = $push::cas(self.expected.ok_or_else(missing)?, self.new?);
                Ok(match self.claim {
                    Some(claim) => push.under(claim)?,
                    None => push,
                })
            }
        }

        push!($name, $push);
        sent!($name -> PushOutcome<$payload>, self => {
            let mut this = self;
            let (handle, call) = (this.handle.clone(), this.call.clone());
            // Nothing is read for a value that cannot be stored.
            this.new = Ok(this.new?);
            if this.expected.is_none() {
                let current = handle.get().await?.ok_or(Rejection::Unknown)?;
                this.expected = Some($value::stored(current.v, None));
            }
            Ok(handle.backend().$send(&call, &handle.address, &this.into_push()?).await?)
        });
    };
}

replacement! {
    /// A push of a status: awaited, it returns the outcome.
    SetStatus: StatusHandle, Status, NewStatus, StatusPush, push_status -> StatusPayload, "status"
}

replacement! {
    /// A push of a configuration: awaited, it returns the outcome.
    SetConfig: ConfigHandle, Config, NewConfig, ConfigPush, push_config -> Value, "configuration"
}

impl StatusHandle {
    /// Returns the status; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Status>> {
        Ok(self.backend().status(&self.address).await?)
    }

    /// Begins to replace the status by this state and metadata. If the status changes meanwhile, that is a conflict.
    pub fn set(&self, state: impl Into<String>, meta: Object) -> SetStatus {
        let new = NewStatus::new(StatusPayload { state: state.into(), meta }).map_err(Error::from);
        SetStatus { handle: self.clone(), call: Call::fresh(), new, expected: None, claim: None }
    }
}

impl ConfigHandle {
    /// Returns the configuration; `None` if there is no record.
    pub async fn get(&self) -> Result<Option<Config>> {
        Ok(self.backend().config(&self.address).await?)
    }

    /// Begins to replace the configuration of a ledger. If it changes meanwhile, that is a conflict.
    pub fn set(&self, config: Object) -> SetConfig {
        let new = NewConfig::new(config).map_err(Error::from);
        SetConfig { handle: self.clone(), call: Call::fresh(), new, expected: None, claim: None }
    }
}
