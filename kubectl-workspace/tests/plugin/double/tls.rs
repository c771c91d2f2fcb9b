//! Certificates for the double.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

/// An authority for servers and clients.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
    der: CertificateDer<'static>,
}

/// How the double is secured.
pub struct Tls {
    pub acceptor: TlsAcceptor,
    pub authority: Authority,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Certificate and key, PEM.
    pub fn client(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(Vec::new()).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl Tls {
    /// With a certificate for this name, or for the address.
    pub fn for_name(name: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der.clone()).unwrap();
        let clients = WebPkiClientVerifier::builder(roots.into())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            authority,
        }
    }
}
