//! TLS of the service: certificate, key and the authority of clients' certificates, read again when their files change.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use clap::Args;
use nameservice_model::{BoxError, chain};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::WebPkiClientVerifier,
};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// How often the files are checked for changes, at most.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// HTTP/2 before HTTP/1.1, as a client may choose.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Serve over TLS with this certificate and the intermediate ones after it, in PEM. The files are read again when they change
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let only clients connect that have a certificate signed by one of these authorities, in PEM. Without tokens, such a client
    /// may do everything
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
}

/// The reason why the files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} has no {what} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key cannot be used, or not together.
    #[error("the certificate {cert} cannot be used with the key {key}")]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The certificates of clients cannot be verified.
    #[error("clients' certificates cannot be verified with {path}")]
    Authority {
        /// The file of the authorities.
        path: PathBuf,
        /// The cause.
        #[source]
        source: BoxError,
    },
}

/// TLS with the present certificate.
#[derive(Debug)]
pub(crate) struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// What the files were when they were last read, whether they could be used or not.
    read: Vec<Option<Stamp>>,
    checked_at: Instant,
}

/// What changes with a file: when it was modified, its size, and which file it is.
type Stamp = (SystemTime, u64, u64);

impl TlsArgs {
    /// Reads the files, if they are named.
    pub(crate) fn open(&self) -> Result<Option<Tls>, TlsError> {
        let Self { tls_cert: Some(cert), tls_key: Some(key), client_ca } = self else { return Ok(None) };
        // Before their content, so that a change in between is noticed.
        let read = stamps(cert, key, client_ca.as_deref());
        let config = config(cert, key, client_ca.as_deref())?;
        let current = Mutex::new(Current { config, read, checked_at: Instant::now() });
        Ok(Some(Tls { cert: cert.clone(), key: key.clone(), client_ca: client_ca.clone(), current }))
    }
}

impl Tls {
    /// Returns what accepts a connection, with the files as they are now. If they cannot be used, that is logged, and the
    /// previous ones stay in use.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current();
        if current.checked_at.elapsed() >= CHECK_EVERY {
            current.checked_at = Instant::now();
            let read = stamps(&self.cert, &self.key, self.client_ca.as_deref());
            if read != current.read {
                current.read = read;
                match config(&self.cert, &self.key, self.client_ca.as_deref()) {
                    Ok(config) => {
                        tracing::info!(certificate = %self.cert.display(), "the files of TLS were read again");
                        current.config = config;
                    }
                    Err(error) => {
                        tracing::error!(
                            error = chain(&error),
                            "the files of TLS cannot be used: the previous ones stay in use"
                        );
                    }
                }
            }
        }
        current.config.clone().into()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Vec<Option<Stamp>> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let id = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let id = 0;
        Some((metadata.modified().ok()?, metadata.len(), id))
    };
    [Some(cert), Some(key), client_ca].into_iter().flatten().map(stamp).collect()
}

fn config(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let pair = |source| TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), source };
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(pair)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = |source| TlsError::Authority { path: path.to_owned(), source };
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| unusable(error.into()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(error.into()))?)
        }
    };
    let certificates = certificates(cert)?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?);
    let private = private.map_err(|source| TlsError::Pem { path: key.to_owned(), what: "private key", source })?;
    let mut config = builder.with_single_cert(certificates, private).map_err(pair)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::Pem { path: path.to_owned(), what: "certificate", source };
    let found = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}
