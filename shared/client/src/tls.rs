//! What a client trusts over TLS, and how it authenticates itself.

use nameservice_model::chain;
use reqwest::{Certificate, ClientBuilder, Identity};

use crate::TransportError;

/// By default, the certificates of the system are trusted, and the client has none of its own.
#[derive(Default)]
pub(crate) struct Tls {
    /// The only certificates that are trusted, in PEM.
    pub(crate) roots: Option<Vec<u8>>,
    /// The chain and the private key of the client, in PEM.
    pub(crate) identity: Option<Vec<u8>>,
}

impl Tls {
    /// Sets it for a client.
    pub(crate) fn apply(&self, mut client: ClientBuilder) -> Result<ClientBuilder, TransportError> {
        let unusable =
            |what: &str, reason: &str| Err(TransportError::Invalid(format!("the {what} cannot be used: {reason}")));
        if let Some(pem) = &self.roots {
            const ROOTS: &str = "root certificates";
            client = match Certificate::from_pem_bundle(pem) {
                Ok(roots) if roots.is_empty() => return unusable(ROOTS, "no certificate in PEM is among them"),
                Ok(roots) => client.tls_certs_only(roots),
                Err(error) => return unusable(ROOTS, &chain(&error)),
            };
        }
        if let Some(pem) = &self.identity {
            client = match Identity::from_pem(pem) {
                Ok(identity) => client.identity(identity),
                Err(error) => return unusable("client certificate", &chain(&error)),
            };
        }
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nameservice_model::NameService as _;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };
    use tokio_rustls::TlsAcceptor;

    use crate::{Client, Retries};

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// A certificate for this machine, and its key.
    fn issued(by: &Authority) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, by).unwrap(), key)
    }

    /// A certificate of a client and its key, in PEM.
    fn identity(by: &Authority) -> String {
        let (certificate, key) = issued(by);
        certificate.pem() + &key.serialize_pem()
    }

    /// A service that answers every request, and requires certificates of the authority from its clients.
    async fn service(authority: &Authority) -> String {
        let (certificate, key) = issued(authority);
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(clients);
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                // Those who are not let in see why.
                let Ok(mut connection) = acceptor.accept(connection).await else { continue };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = connection.read_u8().await else { break };
                    request.push(byte);
                }
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\
                              connection: close\r\n\r\n{\"status\":\"ok\"}";
                let _ = connection.write_all(answer.as_bytes()).await;
                let _ = connection.shutdown().await;
            }
        });
        url
    }

    #[tokio::test]
    async fn a_client_trusts_the_given_roots_alone_and_shows_its_certificate() {
        let (authority, other) = (authority(), authority());
        let url = service(&authority).await;
        let ping = async |roots: Option<&Authority>, own: Option<&Authority>| {
            let mut client = Client::builder(&url).retries(Retries::NONE);
            if let Some(roots) = roots {
                client = client.root_certificates(roots.pem());
            }
            if let Some(own) = own {
                client = client.client_certificate(identity(own));
            }
            client.build().unwrap().ping().await
        };
        ping(Some(&authority), Some(&authority)).await.unwrap();
        for (roots, own) in [
            (None, Some(&authority)),
            (Some(&other), Some(&authority)),
            (Some(&authority), None),
            (Some(&authority), Some(&other)),
        ] {
            let error = ping(roots, own).await.unwrap_err();
            assert!(matches!(error, nameservice_model::Error::Unavailable { .. }), "{error:?}");
        }
    }

    #[test]
    fn certificates_that_are_none_are_named() {
        let builder = || Client::builder("https://127.0.0.1:1");
        for (built, what) in [
            (builder().root_certificates("").build(), "the root certificates cannot be used"),
            (builder().root_certificates("text").build(), "the root certificates cannot be used"),
            (builder().client_certificate("text").build(), "the client certificate cannot be used"),
            (builder().client_certificate(authority().pem()).build(), "the client certificate cannot be used"),
        ] {
            let message = built.unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }
}
