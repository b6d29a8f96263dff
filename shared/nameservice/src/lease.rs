//! Leases that are kept: refreshed in time, watched, and released at the end. Works over any [`LeasePublisher`].

use std::{fmt, sync::Arc, time::Duration};

use nameservice_model::{
    Address, Backend, Call, Error as BackendError, Held, Lease, LeaseClaim, LeaseName, LeasePublisher, LeaseRequest,
    Leased, Object, Released,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{Nameservice, Result};

/// The longest delay after a failed refresh.
const REFRESH_AGAIN: Duration = Duration::from_secs(1);

/// A lease that this process holds. If dropped, the lease is neither refreshed nor released: it expires.
pub struct LeaseKeeper<P: ?Sized = dyn Backend> {
    address: Address,
    request: LeaseRequest,
    lease: Lease,
    token: i64,
    /// The expiry by this process's clock, which continues while the process is stopped. It is counted from before the
    /// request was sent, so it is never later than the service's.
    expires: Instant,
    due: Instant,
    check: Arc<Notify>,
    publisher: Arc<P>,
}

impl<P: ?Sized> fmt::Debug for LeaseKeeper<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LeaseKeeper");
        shown.field("address", &self.address).field("lease", &self.lease).field("token", &self.token);
        shown.finish_non_exhaustive()
    }
}

/// The result of asking for a lease.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Acquired<P: ?Sized = dyn Backend> {
    /// The lease is held.
    Held(LeaseKeeper<P>),
    /// The lease is not held: the outcome says why.
    NotHeld(Leased),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LeaseLost {
    /// The service reports that it is no longer held, with the current lease, if there is one.
    Taken(Option<Lease>),
    /// The record is gone or retracted.
    RecordGone,
    /// No refresh was answered before the lease expired.
    Expired,
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(Some(lease)) => write!(f, "it was taken over by {}", lease.holder),
            Self::Taken(None) => f.write_str("it expired or was released"),
            Self::RecordGone => f.write_str("the record is retracted or gone"),
            Self::Expired => f.write_str("it expired before it could be refreshed"),
        }
    }
}

impl std::error::Error for LeaseLost {}

impl<P: LeasePublisher + ?Sized> LeaseKeeper<P> {
    /// Acquires a lease that is free, expired, or held by the same holder.
    pub async fn acquire(
        publisher: Arc<P>,
        address: Address,
        request: LeaseRequest,
    ) -> Result<Acquired<P>, BackendError> {
        let asked = Instant::now();
        let held = match publisher.acquire_lease(&Call::fresh(), &address, &request).await? {
            Leased::Held(held) => held,
            other => return Ok(Acquired::NotHeld(other)),
        };
        Ok(Acquired::Held(Self::held(publisher, address, request, held, asked)))
    }

    /// Keeps a lease that was granted to a request that was sent at this time.
    pub fn held(publisher: Arc<P>, address: Address, request: LeaseRequest, held: Held, asked: Instant) -> Self {
        let ttl = ttl(&request);
        Self {
            publisher,
            address,
            request,
            lease: held.lease,
            token: held.token,
            expires: asked + ttl,
            due: asked + ttl / 3,
            check: Arc::new(Notify::new()),
        }
    }

    /// Returns the claim that pushes make under this lease.
    pub fn claim(&self) -> LeaseClaim {
        self.request.claim(self.token)
    }

    /// Returns the lease as it was last granted.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns a handle that makes [`LeaseKeeper::keep`] check immediately whether the lease is still held, for example when
    /// the change feed shows another holder.
    pub fn check(&self) -> Arc<Notify> {
        self.check.clone()
    }

    /// Keeps the lease: refreshes it after a third of its duration, and returns only once it is lost. Errors of a refresh
    /// are passed to `failed`, and the refresh is repeated until the lease expires. Cancel safe: it can be called again.
    pub async fn keep(&mut self, mut failed: impl FnMut(BackendError)) -> LeaseLost {
        let ttl = ttl(&self.request);
        loop {
            let (due, check) = (self.due, self.check.clone());
            let refresh = async {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = check.notified() => {}
                }
                let asked = Instant::now();
                (asked, self.publisher.refresh_lease(&Call::fresh(), &self.address, &self.request, self.token).await)
            };
            let (asked, answer) = tokio::select! {
                biased;
                // Checked first: after a suspension both times may have passed.
                () = sleep_until(self.expires) => return LeaseLost::Expired,
                answered = refresh => answered,
            };
            match answer {
                Ok(Leased::Held(held)) => {
                    self.lease = held.lease;
                    self.expires = asked + ttl;
                    self.due = asked + ttl / 3;
                }
                Ok(Leased::Unknown | Leased::Retracted) => return LeaseLost::RecordGone,
                Ok(Leased::Busy(lease)) => return LeaseLost::Taken(Some(lease)),
                Ok(Leased::Lost { lease }) => return LeaseLost::Taken(lease),
                Ok(_) => return LeaseLost::Taken(None),
                Err(error) => {
                    failed(error);
                    self.due = Instant::now() + (ttl / 6).min(REFRESH_AGAIN);
                }
            }
        }
    }

    /// Releases the lease. If the state is still that of the lease, it becomes `ready`.
    pub async fn release(self) -> Result<Released, BackendError> {
        self.publisher.release_lease(&Call::fresh(), &self.address, &self.claim()).await
    }
}

fn ttl(request: &LeaseRequest) -> Duration {
    Duration::from_secs(request.ttl_seconds().into())
}

/// How a future that ran under a lease has ended.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Ran<T> {
    /// It ran to its end under the lease, which was then released.
    Done(T),
    /// The lease was not acquired: this is why.
    NotHeld(Leased),
    /// The lease was lost, and the future was dropped.
    Lost(LeaseLost),
}

impl<T> Ran<T> {
    /// Returns what the future returned, or an error that says why it did not run to its end.
    pub fn done(self) -> Result<T> {
        match self {
            Self::Done(output) => Ok(output),
            Self::NotHeld(outcome) => Err(outcome.into()),
            Self::Lost(lost) => Err(lost.into()),
        }
    }
}

/// Runs a future under a lease: acquires it, passes the claim to the future, keeps the lease, drops the future when the
/// lease is lost, and releases the lease at the end. Every push of the future should carry the claim: only the claim
/// prevents a process that was suspended from publishing after its lease has expired.
pub async fn hold_lease<P, T, F>(
    publisher: Arc<P>,
    address: &Address,
    request: &LeaseRequest,
    run: impl FnOnce(LeaseClaim) -> F,
) -> Result<Ran<T>, BackendError>
where
    P: LeasePublisher + ?Sized,
    F: Future<Output = T>,
{
    let mut keeper = match LeaseKeeper::acquire(publisher, address.clone(), request.clone()).await? {
        Acquired::Held(keeper) => keeper,
        Acquired::NotHeld(outcome) => return Ok(Ran::NotHeld(outcome)),
    };
    let claim = keeper.claim();
    let ended = tokio::select! {
        biased;
        // Polled while a refresh waits for its answer, too.
        output = run(claim) => Ran::Done(output),
        lost = keeper.keep(|error| tracing::debug!(%address, %error, "a lease was not refreshed")) => Ran::Lost(lost),
    };
    // A failure does not change the result: the lease expires.
    if let Err(error) = keeper.release().await {
        tracing::warn!(%address, %error, "a lease was not released");
    }
    Ok(ended)
}

/// A lease to be acquired.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before it is acquired"]
pub struct LeaseHandle {
    names: Nameservice,
    address: Address,
    request: LeaseRequest,
}

impl LeaseHandle {
    pub(crate) fn new(names: Nameservice, address: Address, name: LeaseName, holder: String) -> Result<Self> {
        Ok(Self { names, address, request: LeaseRequest::new(name, holder)? })
    }

    /// Sets how long the lease lasts without a refresh, in whole seconds.
    pub fn ttl(mut self, ttl: Duration) -> Result<Self> {
        let seconds = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        self.request = self.request.with_ttl_seconds(seconds)?;
        Ok(self)
    }

    /// Sets the `t` that the holder works towards.
    pub fn target_t(mut self, t: i64) -> Result<Self> {
        self.request = self.request.with_target_t(t)?;
        Ok(self)
    }

    /// Sets metadata of the status, such as progress.
    pub fn meta(mut self, meta: Object) -> Result<Self> {
        self.request = self.request.with_meta(meta)?;
        Ok(self)
    }

    /// Acquires the lease.
    pub async fn acquire(self) -> Result<LeaseKeeper> {
        match LeaseKeeper::acquire(self.names.backend().clone(), self.address, self.request).await? {
            Acquired::Held(keeper) => Ok(keeper),
            Acquired::NotHeld(outcome) => Err(outcome.into()),
        }
    }

    /// Runs a future under the lease, as [`hold_lease`] does.
    pub async fn hold<T, F: Future<Output = T>>(self, run: impl FnOnce(LeaseClaim) -> F) -> Result<Ran<T>> {
        Ok(hold_lease(self.names.backend().clone(), &self.address, &self.request, run).await?)
    }
}
