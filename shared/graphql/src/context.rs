//! What resolvers use: the backend, and the caller of the request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_graphql::{Context, Error, Result};
use axum::extract::FromRef as _;
use nameservice_http::{
    App, Problem,
    auth::Scope,
    extract::{Allowed, Read},
    filter::MAX_PATTERNS,
    hub::Hub,
    problem::Kind,
};
use nameservice_model::{
    Address, Call, ChangeFeed, ConfigPublisher, GraphSourcePublisher, NameService, Publisher, RefPublisher,
    StatusPublisher, chain,
};
use nameservice_projector::records::RecordPages;

use crate::{
    budget::Budget,
    errors::{self, problem},
};

/// The traits of the backend.
pub(crate) struct Service {
    pub(crate) names: Arc<dyn NameService>,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) refs: Arc<dyn RefPublisher>,
    pub(crate) statuses: Arc<dyn StatusPublisher>,
    pub(crate) configs: Arc<dyn ConfigPublisher>,
    pub(crate) sources: Arc<dyn GraphSourcePublisher>,
    pub(crate) feed: Arc<dyn ChangeFeed>,
    pub(crate) hub: Hub,
    pub(crate) views: Arc<dyn RecordPages>,
}

impl Service {
    pub(crate) fn of(app: &App, views: Arc<dyn RecordPages>) -> Self {
        Self {
            names: Arc::from_ref(app),
            publisher: Arc::from_ref(app),
            refs: Arc::from_ref(app),
            statuses: Arc::from_ref(app),
            configs: Arc::from_ref(app),
            sources: Arc::from_ref(app),
            feed: Arc::from_ref(app),
            hub: Hub::from_ref(app),
            views,
        }
    }
}

/// Where writes go.
#[derive(Clone, Debug)]
pub enum Writes {
    /// To the backend.
    Here,
    /// Nowhere: this service is a replica of the one at this URL.
    At(String),
}

/// The caller of a request, and the call that its `Idempotency-Key` names.
pub(crate) struct Caller {
    allowed: Allowed<Read>,
    writes: Writes,
    /// The id of the request, for the log.
    request_id: String,
    /// Whether the request has a key, and so identifies one write.
    is_named: bool,
    has_written: AtomicBool,
}

impl Caller {
    pub(crate) fn new(allowed: Allowed<Read>, writes: Writes, request_id: String, is_named: bool) -> Self {
        Self { allowed, writes, request_id, is_named, has_written: AtomicBool::new(false) }
    }

    pub(crate) fn allowed(&self) -> &Allowed<Read> {
        &self.allowed
    }

    pub(crate) fn sees(&self, address: &Address) -> bool {
        self.allowed.sees(address)
    }

    /// Whether a write has begun.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    /// How long its token is valid; `None` if it does not expire.
    pub(crate) fn ends_in(&self) -> Option<Duration> {
        self.allowed.expires_at().map(|end| end.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// A failure of the backend while a field was resolved.
    pub(crate) fn failed(&self, field: &str, error: nameservice_model::Error) -> Error {
        let cause = chain(&error);
        let problem = Problem::from(error);
        if matches!(problem.kind(), Kind::Internal | Kind::Unavailable | Kind::OutcomeUnknown) {
            tracing::error!(request_id = self.request_id, field, error = cause, "failed");
        }
        errors::problem(problem)
    }

    /// Returns the call of a write to an address, if the caller may write there.
    pub(crate) fn write(&self, address: &Address) -> Result<Call> {
        self.allowed.check(Scope::Write, address).map_err(problem)?;
        if let Writes::At(url) = &self.writes {
            return Err(errors::error(
                "replica",
                &format!("this service is a replica: send mutations to {url}/graphql"),
            ));
        }
        let is_first = !self.has_written.swap(true, Ordering::Relaxed);
        match (self.is_named, is_first) {
            (false, _) => Ok(Call::fresh()),
            (true, true) => Ok(self.allowed.call().clone()),
            (true, false) => {
                let reason = "an Idempotency-Key names one write: send the other mutations in requests of their own";
                Err(errors::error("invalid-idempotency-key", reason))
            }
        }
    }
}

pub(crate) fn service<'a>(context: &Context<'a>) -> &'a Service {
    context.data_unchecked::<Arc<Service>>()
}

/// The patterns of all subscriptions of a socket.
#[derive(Clone, Default)]
pub(crate) struct Patterns(Arc<AtomicUsize>);

/// Some of them, while their subscription runs.
pub(crate) struct Reserved(Patterns, usize);

impl Patterns {
    /// Reserves patterns for a subscription.
    pub(crate) fn reserve(&self, count: usize) -> Result<Reserved> {
        let all = self.0.fetch_add(count, Ordering::Relaxed).saturating_add(count);
        // Released by dropping it, whether it is rejected or not.
        let reserved = Reserved(self.clone(), count);
        match all <= MAX_PATTERNS {
            true => Ok(reserved),
            false => {
                let reason = format!("at most {MAX_PATTERNS} addresses are followed over a socket");
                Err(problem(Problem::invalid_parameter("address", reason)))
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

pub(crate) fn patterns<'a>(context: &Context<'a>) -> &'a Patterns {
    context.data_unchecked::<Patterns>()
}

pub(crate) fn budget<'a>(context: &Context<'a>) -> &'a Budget {
    context.data_unchecked::<Budget>()
}

pub(crate) fn caller<'a>(context: &Context<'a>) -> &'a Arc<Caller> {
    context.data_unchecked::<Arc<Caller>>()
}

/// Converts a failure of the backend to the error of the field that is resolved. The cause is logged, and not shown.
pub(crate) fn failed(context: &Context<'_>, error: nameservice_model::Error) -> Error {
    caller(context).failed(context.item.node.name.node.as_str(), error)
}

/// Parses an address.
pub(crate) fn parse(address: &str) -> Result<Address> {
    Address::parse(address).map_err(|reason| problem(Problem::invalid_address(reason)))
}
