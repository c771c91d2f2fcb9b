//! TLS settings, from PEM.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::pki::Leaf;

/// PEM or certificates that TLS cannot use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text is no PEM.
    #[error("certificate or key is no PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// TLS refuses them.
    #[error("certificate or key is refused: {0}")]
    Tls(#[from] rustls::Error),
}

/// The roots in a PEM bundle.
///
/// # Errors
/// When it is no PEM, or a certificate in it is none.
pub fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    Ok(roots)
}

/// The chain and the key of a leaf.
///
/// # Errors
/// When either is no PEM.
pub fn identity(
    leaf: &Leaf,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(leaf.certificate_pem.as_bytes()).collect();
    Ok((
        chain?,
        PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes())?,
    ))
}

/// A client that trusts `ca_pem` and shows `leaf`.
///
/// # Errors
/// When the PEM cannot be used.
pub fn client(ca_pem: &str, leaf: Option<&Leaf>) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca_pem)?);
    Ok(Arc::new(match leaf {
        Some(leaf) => {
            let (chain, key) = identity(leaf)?;
            builder.with_client_auth_cert(chain, key)?
        }
        None => builder.with_no_client_auth(),
    }))
}

/// The one crypto provider.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server with this leaf that asks for client certificates as `verifier` says. No ALPN: HTTP/1.1 only.
///
/// # Errors
/// When the PEM cannot be used.
pub fn server(
    leaf: &Leaf,
    verifier: Arc<dyn rustls::server::danger::ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let (chain, key) = identity(leaf)?;
    Ok(ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?)
}

#[cfg(test)]
pub(crate) fn server_for_tests(leaf: &Leaf) -> Arc<ServerConfig> {
    Arc::new(server(leaf, rustls::server::WebPkiClientVerifier::no_client_auth()).unwrap())
}

#[cfg(test)]
pub(crate) fn handshake_for_tests(
    client: &Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: &str,
) -> Result<(), rustls::Error> {
    let mut client =
        rustls::ClientConnection::new(client.clone(), name.to_owned().try_into().unwrap()).unwrap();
    let mut server = rustls::ServerConnection::new(server).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}
