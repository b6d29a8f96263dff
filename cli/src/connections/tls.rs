//! TLS of the service: certificate, key and the authority of clients' certificates, read again when their files change.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use clap::Args;
use metrics::gauge;
use nameservice_model::{BoxError, chain};
use ring::digest::{Context, SHA256};
use rustls::{
    RootCertStore, ServerConfig, crypto,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::WebPkiClientVerifier,
};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use x509_cert::{Certificate, der::Decode as _};

/// How often the files are checked for changes, at most.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A certificate with those above it, a key, or some authorities.
const MAX_BYTES: u64 = 1024 * 1024;
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
    /// When the certificate ends, in seconds since the epoch; `None` if it cannot be parsed.
    ends_at: Option<u64>,
    /// The content of the files that are in use. Files that could not be read, or not be used, are not remembered: they are
    /// read again until they can be.
    used: Contents,
    checked_at: Instant,
    /// The last error, which is logged once.
    error: Option<String>,
}

/// The hashes of what the files contain. What counts is their content: their times may stay the same when they change, and
/// change when they stay the same; a file that cannot be read can be, once its mode is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contents {
    all: Hash,
    authority: Option<Authority>,
}

type Hash = [u8; 32];

/// A configuration, and when its certificate ends.
type Configured = (Arc<ServerConfig>, Option<u64>);

/// Which authorities sign the certificates of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authority(Hash);

/// The files, as they were read.
struct Files {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsArgs {
    /// Reads the files, if they are named.
    pub(crate) fn open(&self) -> Result<Option<Tls>, TlsError> {
        let Self { tls_cert: Some(cert), tls_key: Some(key), client_ca } = self.clone() else { return Ok(None) };
        let files = Files::read(&cert, &key, client_ca.as_deref())?;
        let (config, ends_at) = files.config(&cert, &key, client_ca.as_deref())?;
        let current = Current { config, ends_at, used: files.contents(), checked_at: Instant::now(), error: None };
        Ok(Some(Tls { cert, key, client_ca, current: Mutex::new(current) }))
    }
}

impl Tls {
    /// Returns what accepts a connection, with the files as they are now, and who signs the certificates of its clients, if
    /// they need one. If the files cannot be used, that is logged, and the previous ones stay in use.
    pub(super) fn acceptor(&self) -> (TlsAcceptor, Option<Authority>) {
        let current = self.checked();
        (current.config.clone().into(), current.used.authority)
    }

    /// Returns who signs the certificates of clients now.
    pub(super) fn authority(&self) -> Option<Authority> {
        self.checked().used.authority
    }

    /// Sets the gauge of how long the certificate remains valid.
    pub(crate) fn sample(&self) {
        let Some(ends_at) = self.checked().ends_at else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        gauge!("nameservice_certificate_remaining_seconds").set(ends_at as f64 - now.as_secs_f64());
    }

    /// Reads the files again. An error is logged, even if it is the same as before.
    pub(crate) fn reload(&self) {
        let mut current = self.current();
        current.error = None;
        self.check(&mut current);
    }

    fn checked(&self) -> MutexGuard<'_, Current> {
        let mut current = self.current();
        if current.checked_at.elapsed() >= CHECK_EVERY {
            self.check(&mut current);
        }
        current
    }

    fn check(&self, current: &mut Current) {
        current.checked_at = Instant::now();
        match self.read_other(current.used) {
            Ok(other) => {
                if let Some(((config, ends_at), contents)) = other {
                    tracing::info!(certificate = %self.cert.display(), "the files of TLS were read again");
                    (current.config, current.ends_at, current.used) = (config, ends_at, contents);
                }
                current.error = None;
            }
            Err(error) => {
                let error = chain(&error);
                if current.error.as_ref() != Some(&error) {
                    tracing::error!(error, "the files of TLS cannot be used: the previous ones stay in use");
                    current.error = Some(error);
                }
            }
        }
    }

    /// Reads the files; `None` if they are the ones in use.
    fn read_other(&self, used: Contents) -> Result<Option<(Configured, Contents)>, TlsError> {
        let (cert, key, client_ca) = (&self.cert, &self.key, self.client_ca.as_deref());
        let files = Files::read(cert, key, client_ca)?;
        let contents = files.contents();
        if contents == used {
            return Ok(None);
        }
        Ok(Some((files.config(cert, key, client_ca)?, contents)))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn read(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        Ok(Self { cert: read(cert)?, key: read(key)?, client_ca: client_ca.map(read).transpose()? })
    }

    fn contents(&self) -> Contents {
        let authority = self.client_ca.as_ref().map(|authorities| Authority(hash([authorities])));
        Contents { all: hash([&self.cert, &self.key].into_iter().chain(&self.client_ca)), authority }
    }

    fn config(&self, cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Configured, TlsError> {
        let provider = Arc::new(crypto::ring::default_provider());
        let pair = |source| TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), source };
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(pair)?;
        let builder = match client_ca.zip(self.client_ca.as_ref()) {
            None => builder.with_no_client_auth(),
            Some((path, pem)) => {
                let unusable = |source| TlsError::Authority { path: path.to_owned(), source };
                let mut roots = RootCertStore::empty();
                for authority in certificates(path, pem)? {
                    roots.add(authority).map_err(|error| unusable(error.into()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(error.into()))?)
            }
        };
        let certificates = certificates(cert, &self.cert)?;
        let ends_at = certificates.first().and_then(ends_at);
        let private = PrivateKeyDer::from_pem_slice(&self.key);
        let private = private.map_err(|source| TlsError::Pem { path: key.to_owned(), what: "private key", source })?;
        let mut config = builder.with_single_cert(certificates, private).map_err(pair)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok((Arc::new(config), ends_at))
    }
}

/// Returns when a certificate ends, in seconds since the epoch.
fn ends_at(certificate: &CertificateDer<'_>) -> Option<u64> {
    let parsed = Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

fn hash<'a>(contents: impl IntoIterator<Item = &'a Vec<u8>>) -> Hash {
    let mut context = Context::new(&SHA256);
    for content in contents {
        // So that what moves from one file into the next is a change.
        context.update(&(content.len() as u64).to_be_bytes());
        context.update(content);
    }
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut content));
    let read = read.and_then(|bytes| match bytes as u64 > MAX_BYTES {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than a mebibyte")),
        false => Ok(content),
    });
    read.map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::Pem { path: path.to_owned(), what: "certificate", source };
    let found = CertificateDer::pem_slice_iter(content).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
