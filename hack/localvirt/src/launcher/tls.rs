//! Mutual TLS of the control endpoint: only localvirt gets in, see [`super::protocol`].
//!
//! Entry point: [`acceptor`].

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use super::spec::{CA_FILE, CERT_FILE, KEY_FILE};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or not PEM.
    #[error("cannot read {file} in the launcher's Secret: {problem}")]
    File {
        /// Its name.
        file: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The files do not fit.
    #[error("the launcher's certificate, key and CA do not make a TLS server: {0}")]
    Config(String),
}

/// An acceptor for the certificate, key and CA in `dir`.
pub fn acceptor(dir: &Path) -> Result<TlsAcceptor, TlsError> {
    let config = |e: &dyn std::fmt::Display| TlsError::Config(e.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for ca in certificates(dir, CA_FILE)? {
        roots.add(ca).map_err(|e| config(&e))?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|e| config(&e))?;
    let key =
        PrivateKeyDer::from_pem_file(dir.join(KEY_FILE)).map_err(|e| unreadable(KEY_FILE, &e))?;
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| config(&e))?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(dir, CERT_FILE)?, key)
        .map_err(|e| config(&e))?;
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn certificates(dir: &Path, file: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(dir.join(file))
        .and_then(Iterator::collect)
        .map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &'static str, problem: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        file,
        problem: problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::launcher::protocol::server_name;

    type Ca = Issuer<'static, KeyPair>;

    fn ca() -> (Ca, String) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (Issuer::new(params, key), pem)
    }

    fn issue(ca: &Ca, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![server_name("uid")]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, ca).unwrap().pem(),
            key.serialize_pem(),
        )
    }

    fn launcher(ca: &Ca, ca_pem: &str) -> TlsAcceptor {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = issue(ca, ExtendedKeyUsagePurpose::ServerAuth);
        for (file, content) in [(CA_FILE, ca_pem), (CERT_FILE, &cert), (KEY_FILE, &key)] {
            std::fs::write(dir.path().join(file), content).unwrap();
        }
        acceptor(dir.path()).unwrap()
    }

    fn client(ca_pem: &str, identity: Option<&(String, String)>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(
                        vec![cert],
                        PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                    )
                    .unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }

    /// Whether a byte comes through.
    async fn gets_in(acceptor: &TlsAcceptor, connector: TlsConnector) -> bool {
        let (ours, theirs) = duplex(64 << 10);
        let name = ServerName::try_from(server_name("uid")).unwrap();
        let server = async {
            let mut stream = acceptor.accept(theirs).await?;
            stream.write_all(b"!").await?;
            stream.flush().await
        };
        let client = async {
            let mut stream = connector.connect(name, ours).await?;
            stream.read_u8().await
        };
        let (served, byte) = tokio::join!(server, client);
        served.is_ok() && byte.is_ok()
    }

    #[tokio::test]
    async fn only_a_client_certificate_of_the_same_ca_gets_in() {
        let ((ca, ca_pem), (other, _)) = (ca(), self::ca());
        let acceptor = launcher(&ca, &ca_pem);
        let localvirt = issue(&ca, ExtendedKeyUsagePurpose::ClientAuth);
        let another_launcher = issue(&ca, ExtendedKeyUsagePurpose::ServerAuth);
        let stranger = issue(&other, ExtendedKeyUsagePurpose::ClientAuth);
        let cases = [
            (Some(&localvirt), true),
            (None, false),
            (Some(&another_launcher), false),
            (Some(&stranger), false),
        ];
        for (identity, expected) in cases {
            assert_eq!(
                gets_in(&acceptor, client(&ca_pem, identity)).await,
                expected
            );
        }
    }
}
