//! The state that every handler uses.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::extract::FromRef;
use metrics::gauge;
use nameservice_model::{
    AdminPublisher, BesideFluree, ChangeFeed, ConfigPublisher, GraphSourceLookup, GraphSourcePublisher, LeasePublisher,
    NameService, Publisher, Records, RefPublisher, StatusPublisher, TransactionPublisher,
};
use tokio::{sync::watch, time::timeout};

use crate::{auth::Auth, hub::Hub, meters, verifier::Verifier};

/// How long the gauges wait for the feed.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the service: the backend, its change feed, and how callers are recognised. Cheap to clone.
///
/// A handler takes the one trait that it needs, `State(refs): State<Arc<dyn RefPublisher>>`.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// Shared by one `Arc`, since a request clones the state many times.
struct Parts {
    backend: Arc<dyn Records>,
    feed: Arc<dyn ChangeFeed>,
    hub: Hub,
    auth: Arc<Auth>,
    shutdown: Shutdown,
}

impl App {
    /// Returns a service over this backend and its feed for these callers.
    pub fn new(backend: Arc<dyn Records>, feed: Arc<dyn ChangeFeed>, auth: Auth) -> Self {
        let (hub, auth) = (Hub::new(feed.clone()), Arc::new(auth));
        Self(Arc::new(Parts { backend, feed, hub, auth, shutdown: Shutdown::default() }))
    }

    /// Returns the same service with another view of its change feed, such as one with an archive behind it.
    #[must_use]
    pub fn with_feed(&self, view: impl FnOnce(Arc<dyn ChangeFeed>) -> Arc<dyn ChangeFeed>) -> Self {
        let Parts { backend, feed, auth, shutdown, .. } = &*self.0;
        let (backend, feed, auth, shutdown) = (backend.clone(), view(feed.clone()), auth.clone(), shutdown.clone());
        Self(Arc::new(Parts { backend, hub: Hub::new(feed.clone()), feed, auth, shutdown }))
    }

    /// Returns the same service over a place that is shared with Fluree: ids that Fluree's engine cannot read are rejected.
    #[must_use]
    pub fn beside_fluree(&self) -> Self {
        let Parts { backend, feed, auth, shutdown, hub } = &*self.0;
        let backend = Arc::new(BesideFluree::new(backend.clone()));
        let (feed, hub, auth, shutdown) = (feed.clone(), hub.clone(), auth.clone(), shutdown.clone());
        Self(Arc::new(Parts { backend, feed, hub, auth, shutdown }))
    }

    /// Returns whether every caller may do everything.
    pub fn is_open(&self) -> bool {
        matches!(*self.0.auth, Auth::Open)
    }

    /// Returns what checks the tokens of callers, if they have any.
    pub fn verifier(&self) -> Option<&Verifier> {
        match &*self.0.auth {
            Auth::Verified(verifier) => Some(verifier),
            _ => None,
        }
    }

    /// Passes the request metrics to the recorder of this process, and sets the gauges that are only read on demand. On
    /// DynamoDB this is one request.
    pub async fn sample(&self) {
        meters::sample();
        if let Some(verifier) = self.verifier() {
            verifier.sample();
        }
        gauge!("nameservice_feed_readers").set(self.0.hub.subscribers() as f64);
        if let Ok(Ok(position)) = timeout(SAMPLE_TIMEOUT, self.0.feed.position()).await {
            gauge!("nameservice_feed_position").set(position as f64);
        }
    }

    /// Returns the handle with which a server ends the answers that have no end of their own.
    pub fn shutdown(&self) -> Shutdown {
        self.0.shutdown.clone()
    }
}

macro_rules! gives {
    ($($narrow:ident)*) => {$(
        impl FromRef<App> for Arc<dyn $narrow> {
            fn from_ref(app: &App) -> Self {
                app.0.backend.clone()
            }
        }
    )*};
}

gives! {
    AdminPublisher ConfigPublisher GraphSourceLookup GraphSourcePublisher LeasePublisher NameService Publisher
    RefPublisher StatusPublisher TransactionPublisher
}

impl FromRef<App> for Arc<dyn ChangeFeed> {
    fn from_ref(app: &App) -> Self {
        app.0.feed.clone()
    }
}

impl FromRef<App> for Arc<Auth> {
    fn from_ref(app: &App) -> Self {
        app.0.auth.clone()
    }
}

impl FromRef<App> for Hub {
    fn from_ref(app: &App) -> Self {
        app.0.hub.clone()
    }
}

impl FromRef<App> for Shutdown {
    fn from_ref(app: &App) -> Self {
        app.shutdown()
    }
}

/// When the runtime ends this request, finished or not: the deadline of a Lambda invocation. It is one of the request's
/// extensions.
#[derive(Clone, Copy, Debug)]
pub struct EndsBy(pub SystemTime);

/// The path below which the service is reached, such as `/nameservice`, for answers that name paths. It is one of the request's
/// extensions; without it, the service is at the root.
#[derive(Clone, Debug)]
pub struct MountedAt(pub Arc<str>);

/// Marks that the runtime sends whole answers of a bounded size, and no streams: a Lambda function behind a gateway. It is
/// one of the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct WholeAnswers;

/// Signals that the service is about to stop. A server waits for running answers before it stops; those without an end
/// of their own end when the shutdown begins.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<watch::Sender<bool>>);

impl Shutdown {
    /// Begins the shutdown, which cannot be undone.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Completes once it has begun.
    pub async fn begun(&self) {
        // The only error is a dropped sender, which `self` keeps alive.
        let _ = self.0.subscribe().wait_for(|begun| *begun).await;
    }
}
