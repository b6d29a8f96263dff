//! Why the service does not start, or has ended.

use std::io;

use nameservice_model::BoxError;

use crate::connections::{Listen, tls::TlsError};

/// The reason why the service did not start, or has ended without being asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is in use.
    #[error("{0} is in use: choose another address with --listen, or stop what listens there")]
    InUse(Listen),
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: Listen,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The listening socket cannot be used.
    #[error("the listening socket cannot be used")]
    Listener(#[source] io::Error),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Other machines could reach a service that requires no token.
    #[error(
        "{0} can be reached from other machines: name the keys of callers' tokens with --jwks, require certificates of \
         clients with --client-ca, or one token with --dev-token, or allow every request with --insecure"
    )]
    Exposed(Listen),
    /// The key set is missing or cannot be used.
    #[error("cannot use the keys in {place}")]
    Keys {
        /// The file or the URL.
        place: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The service can no longer write to its log.
    #[error("the service has ended, so that its supervisor restarts it: {0}")]
    Ended(String),
    /// The system does not let this process handle signals.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
}

impl ServeError {
    /// Whether only another command line would help.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::Exposed(_) | Self::Keys { .. } | Self::Tls(_))
    }

    /// Whether the same command line may help later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            // Of a network that is not up yet.
            Self::Listen { source, .. } => source.kind() == io::ErrorKind::AddrNotAvailable,
            _ => false,
        }
    }
}
