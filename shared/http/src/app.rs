//! What every handler draws on.

use std::sync::Arc;

use axum::extract::FromRef;
use nameservice_feed::Feed;
use nameservice_model::{
    AdminPublisher, ChangeFeed, ConfigPublisher, GraphSourceLookup, GraphSourcePublisher, LeasePublisher, NameService,
    Publisher, RefPublisher, StatusPublisher, TransactionPublisher,
};
use nameservice_store::Store;
use tokio::sync::watch;

use crate::auth::Auth;

/// The backend behind the narrow traits. Handlers see the traits alone, so another one is put in here.
pub type Backend = Store;

/// The state of the service: the backend, its change feed, and how callers are recognised. Cheap to clone.
///
/// A handler takes the one trait that it needs, `State(refs): State<Arc<dyn RefPublisher>>`. The trait object is made
/// from the concrete backend there and then, so a binary carries the code of the traits that its handlers name.
#[derive(Clone)]
pub struct App {
    backend: Arc<Backend>,
    feed: Arc<Feed>,
    pub(crate) auth: Arc<Auth>,
    shutdown: Shutdown,
}

impl App {
    /// A service over this store and its feed for these callers.
    pub fn new(store: Store, feed: Feed, auth: Auth) -> Self {
        Self { backend: Arc::new(store), feed: Arc::new(feed), auth: Arc::new(auth), shutdown: Shutdown::default() }
    }

    /// With this a server tells answers without an end that it wants to stop.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }
}

macro_rules! gives {
    ($($narrow:ident)*) => {$(
        impl FromRef<App> for Arc<dyn $narrow> {
            fn from_ref(app: &App) -> Self {
                app.backend.clone()
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
        app.feed.clone()
    }
}

impl FromRef<App> for Arc<Auth> {
    fn from_ref(app: &App) -> Self {
        app.auth.clone()
    }
}

impl FromRef<App> for Shutdown {
    fn from_ref(app: &App) -> Self {
        app.shutdown()
    }
}

/// Whether the service is about to stop. A server waits for running answers before it stops; those that have no end by
/// themselves end when this begins.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<watch::Sender<bool>>);

impl Shutdown {
    /// Tells everybody. It cannot be taken back.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Completes once it has begun.
    pub async fn begun(&self) {
        // An error would mean that the sender is gone, which is held here.
        let _ = self.0.subscribe().wait_for(|begun| *begun).await;
    }
}
