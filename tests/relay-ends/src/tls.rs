//! TLS as Go speaks it, for both relays alike: kube-apiserver is our client and our upstream, and it takes AES-128-GCM
//! first.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// The order of cipher suites in Go's crypto/tls on machines with AES instructions.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    let first = ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.retain(|suite| *suite != first);
    provider.cipher_suites.insert(0, first);
    Arc::new(provider)
}

/// For the upstream.
///
/// # Errors
/// When the files cannot be used.
pub(crate) fn server(cert: &Path, key: &Path) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.ignore_client_order = true;
    Ok(config)
}

/// For the client, who trusts this authority and shows this certificate.
///
/// # Errors
/// When the files cannot be used.
pub(crate) fn client(authority: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
        }
    })
}
