//! The arguments of `serve`.

#[cfg(feature = "files")]
use std::path::PathBuf;
use std::{net::SocketAddr, time::Duration};

use clap::{ArgGroup, Args};
#[cfg(feature = "migration")]
use nameservice::Place;

use super::sign_in::SignInArgs;
use crate::{
    backups::BackupArgs,
    base_path::BasePath,
    connections::{Listen, tls::TlsArgs},
    options::ArchiveArgs,
    scrubs::ScrubArgs,
    values,
};

/// `serve`
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("issuers").args(["issuer", "any_issuer"]).requires("jwks"),
    group = ArgGroup::new("audiences").args(["audience", "any_audience"]).requires("jwks"),
)]
pub struct ServeArgs {
    /// Where to listen: ADDRESS:PORT, localhost:PORT, a port of this machine alone, or unix:PATH for a Unix socket
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: Listen,
    /// Who may connect to the Unix socket [default: 0660, its owner and group]. A proxy of another user and group needs 0666, with
    /// which every user of this machine may: then require tokens
    #[arg(long, value_name = "MODE", value_parser = values::mode)]
    pub socket_mode: Option<u32>,
    /// The files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Keep everything in memory, and lose it on exit
    #[arg(long)]
    pub memory: bool,
    /// Run as a replica of the service at this URL: answer reads from memory, and forward writes to it. --token is used to read
    /// it; with --data DIR, the replica is kept on disk
    #[cfg(feature = "replica")]
    #[arg(long, value_name = "URL")]
    #[cfg_attr(feature = "dynamodb", arg(conflicts_with_all = ["consumer", "no_consumer"]))]
    pub upstream: Option<String>,
    /// Also show the records of this older place, and take each over when it is first written: v1:TABLE, item:TABLE,
    /// dynamodb://TABLE, file:///DIR, s3://BUCKET/PREFIX, …
    #[cfg(feature = "migration")]
    #[arg(long, value_name = "PLACE")]
    #[cfg_attr(feature = "replica", arg(conflicts_with = "upstream"))]
    pub legacy: Option<Place>,
    /// The archive of changes that the feed no longer holds.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Require bearer tokens signed by a key in this JWKS file or URL
    ///
    /// A file is read again when it changes, a URL every five minutes; both are read on SIGHUP and when a token names an
    /// unknown key. While a URL has not answered since the start, requests with tokens are answered 503.
    #[arg(long, value_name = "FILE|URL", requires_all = ["issuers", "audiences"])]
    pub jwks: Option<String>,
    /// Required `iss` claim
    #[arg(long, value_name = "ISSUER")]
    pub issuer: Option<String>,
    /// Accept tokens of any issuer
    #[arg(long)]
    pub any_issuer: bool,
    /// Required `aud` claim
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// Accept tokens for any audience
    #[arg(long)]
    pub any_audience: bool,
    /// The sign-in of the console.
    #[command(flatten)]
    pub sign_in: SignInArgs,
    /// Its backups.
    #[command(flatten)]
    pub backups: BackupArgs,
    /// Its scrubs.
    #[command(flatten)]
    pub scrubs: ScrubArgs,
    /// Let web pages of this origin use the service, `*` for all; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,
    /// The maximum number of open connections; on further ones health is answered, and everything else is rejected with 503
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Require this bearer token, which may do everything: for development
    #[arg(long, value_name = "TOKEN", env = "NAMESERVICE_DEV_TOKEN", hide_env_values = true, conflicts_with_all = ["jwks", "insecure"])]
    pub dev_token: Option<String>,
    /// Allow every request without authentication, even from other machines
    #[arg(long, conflicts_with = "jwks")]
    pub insecure: bool,
    /// The table, or the data, is shared with Fluree: reject heads and indexes whose ids Fluree's engine cannot read. Files and
    /// buckets always are
    #[arg(long)]
    #[cfg_attr(feature = "replica", arg(conflicts_with = "upstream"))]
    pub fluree: bool,
    /// Serve below this path, such as /nameservice, behind a proxy that keeps it. Health is also answered without it
    #[arg(long, value_name = "PATH")]
    pub base_path: Option<BasePath>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics; by default, a service on loopback has them at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::listen)]
    pub metrics: Option<SocketAddr>,
    /// Send traces of requests to the OpenTelemetry collector at this URL, over HTTP: http://127.0.0.1:4318
    #[cfg(feature = "traces")]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Collect no metrics
    #[arg(long, conflicts_with = "metrics")]
    pub no_metrics: bool,
    /// With files or a bucket: keep the change feed in this directory [default: .nameservice-feed]
    #[cfg(feature = "files")]
    #[arg(long, value_name = "DIR")]
    pub feed_data: Option<PathBuf>,
    /// With --aws: run the feed consumer in this process (normally the stream_consumer function does this)
    #[cfg(feature = "dynamodb")]
    #[arg(long)]
    pub consumer: bool,
    /// Run without the stream consumer
    #[cfg(feature = "dynamodb")]
    #[arg(long, conflicts_with = "consumer")]
    pub no_consumer: bool,
    /// How long changes can be read: 7d, 36h, 90m, or a number of hours
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = values::retention)]
    pub feed_retention: Duration,
}

impl ServeArgs {
    /// Returns whether traces are exported.
    pub(super) fn is_traced(&self) -> bool {
        #[cfg(feature = "traces")]
        return self.otlp.is_some();
        #[cfg(not(feature = "traces"))]
        false
    }
}
