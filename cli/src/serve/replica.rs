//! `serve --upstream`: a replica of another service.

use std::sync::Arc;

use nameservice::Place;
use nameservice_client::Http;
use nameservice_embedded::Options;
use nameservice_http::{App, Auth};
use nameservice_sync::Replica;
use tokio::net::TcpListener;

use super::{ServeArgs, Settings, reload_on_hangup, shutdown_timeout, start_with, until};
use crate::{
    archives::with_archive,
    connections::Listener,
    failure::Failure,
    health::Damage,
    options::TargetArgs,
    output,
    prometheus::{self, Sampled},
    scrubs::Scrubs,
    supervisor::Supervisor,
    upstream::Upstream,
};

/// `nameservice serve --upstream`
pub(super) async fn run(
    args: &ServeArgs,
    url: &str,
    place: Place,
    target: &TargetArgs,
    (listener, metrics): (Listener, Option<TcpListener>),
    (auth, settings): (Auth, Settings),
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let credentials = target.credentials()?;
    let http = Http::authenticated(url, credentials.certificate_for(url));
    let http = http.map_err(|error| Failure::Usage(error.to_string()))?;
    if args.backups.is_wanted() {
        return Err(Failure::Usage("a replica is not backed up: back up what it is a replica of".into()));
    }
    let (client, options) = (credentials.client(url).build()?, Options::default().with_retention(args.feed_retention));
    let replica = match &place {
        Place::Memory => Replica::in_memory(client, options)?,
        Place::Embedded(directory) => Replica::open(directory, url, client, options).await?,
        _ => {
            return Err(Failure::Usage(
                "a replica keeps its data in a directory (--data) or in memory (--memory)".into(),
            ));
        }
    };
    let names = Arc::new(replica.names().clone());
    reload_on_hangup(&auth, settings.tls.as_ref())?;
    let app = with_archive(App::new(names.clone(), Arc::new(replica.clone()), auth), args.archive.open().await?);
    let upstream = Upstream::new(replica, http);
    let damage = Damage::default();
    let scrubs = match place {
        Place::Embedded(_) => args.scrubs.start(&names, &damage)?,
        _ => None,
    };
    let scrub_age = scrubs.as_ref().map(Scrubs::age);
    let sampled =
        Sampled::new(app.clone(), Some(upstream.clone()), None, scrub_age.clone()).with_tls(settings.tls.clone());
    let metrics = metrics.map(|listener| tokio::spawn(prometheus::serve(listener, sampled)));
    let settings = Settings { upstream: Some(upstream.clone()), scrubs: scrub_age, damage, ..settings };
    let service = start_with(listener, app, settings)?;
    let _ =
        output::print(&format!("Listening on {}, a replica of {}. Ctrl-C stops it.", service.url(), upstream.url()));
    let supervisor = Supervisor::ready();
    let ended = until(stop, upstream.ended()).await;
    supervisor.stopping();
    service.stop_within(shutdown_timeout(&ended)).await;
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    // Ending and dropping wait for other threads, so they must not run on an async worker thread.
    let end = move || {
        scrubs.into_iter().for_each(Scrubs::end);
        drop((upstream, names));
    };
    let _ = tokio::task::spawn_blocking(end).await;
    ended
}
