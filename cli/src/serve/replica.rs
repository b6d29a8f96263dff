//! `serve --upstream`: a replica of another service.

use std::sync::Arc;

use console_get::SignIn;
use nameservice::Place;
use nameservice_client::Http;
use nameservice_embedded::Options;
use nameservice_http::{App, Auth, CorsLayer};
use nameservice_sync::Replica;
use tokio::net::TcpListener;

use super::{ServeArgs, Settings, reload_on_hangup, shutdown_timeout, start_with, until};
use crate::{
    archives::with_archive,
    connections,
    failure::Failure,
    options::TargetArgs,
    output,
    prometheus::{self, Sampled},
    upstream::Upstream,
};

/// `nameservice serve --upstream`
pub(super) async fn run(
    args: &ServeArgs,
    url: &str,
    place: Place,
    target: &TargetArgs,
    (listener, metrics): (TcpListener, Option<TcpListener>),
    (auth, cors, sign_in): (Auth, Option<CorsLayer>, Option<SignIn>),
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let http = Http::new(url).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut client = nameservice_client::Client::builder(url);
    if let Some(token) = &target.token {
        client = client.token(token.clone());
    }
    let (client, options) = (client.build()?, Options::default().with_retention(args.feed_retention));
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
    if let Auth::Verified(verifier) = &auth {
        reload_on_hangup(verifier.clone())?;
    }
    let app = with_archive(App::new(names.clone(), Arc::new(replica.clone()), auth), args.archive.open().await?);
    let upstream = Upstream::new(replica, http);
    let sampled = Sampled::new(app.clone(), Some(upstream.clone()));
    let metrics = metrics.map(|listener| tokio::spawn(prometheus::serve(listener, sampled)));
    let (base_path, unmeasured, traced) = (args.base_path.clone(), args.no_metrics, args.is_traced());
    let (origins, limits) = (args.cors_origin.clone(), connections::Limits::default().with_max(args.max_connections));
    let upstream_of = Some(upstream.clone());
    let settings = Settings {
        cors,
        origins,
        limits,
        base_path,
        upstream: upstream_of,
        unmeasured,
        traced,
        sign_in,
        ..Settings::default()
    };
    let service = start_with(listener, app, settings)?;
    let _ =
        output::print(&format!("Listening on {}, a replica of {}. Ctrl-C stops it.", service.url(), upstream.url()));
    let ended = until(stop, upstream.ended()).await;
    service.stop_within(shutdown_timeout(&ended)).await;
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    // Dropping waits for the writer of the log, so it must not run on an async worker thread.
    let _ = tokio::task::spawn_blocking(move || drop((upstream, names))).await;
    ended
}
