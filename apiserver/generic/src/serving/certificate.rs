//! The serving certificate: where it comes from, and what is current.
//!
//! Entry points: [`CertificateSource`], and [`FileCertificate`] for files. Whoever manages
//! certificates in process publishes them through a `tokio::sync::watch` channel, whose receiver is
//! a source as it is.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{files::FileChanges, validity::Validity};

/// The certificate of the moment; `None` until there is one, and handshakes fail until then.
pub type CurrentCertificate = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// Something that knows the serving certificate, and its successors.
pub trait CertificateSource: Send + Sync + 'static {
    /// The certificate now and from now on.
    fn subscribe(&self) -> CurrentCertificate;
}

impl CertificateSource for CurrentCertificate {
    fn subscribe(&self) -> CurrentCertificate {
        self.clone()
    }
}

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate is no PEM.
    #[error("the certificate is not PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    /// The certificate's file is empty of certificates.
    #[error("there is no certificate in it")]
    Empty,
    /// The key is no PEM, or none of the known kinds.
    #[error("the private key is not PEM of a known kind: {0}")]
    Key(rustls::pki_types::pem::Error),
    /// The two do not belong together, or the key's algorithm is not supported.
    #[error("the certificate and the private key do not work together: {0}")]
    Mismatch(#[from] rustls::Error),
}

/// Parses a chain and its key, and checks that they belong together.
///
/// # Errors
/// With what is wrong with either.
pub fn certified_key(cert_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(cert_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(CertificateError::Certificate)?;
    if chain.is_empty() {
        return Err(CertificateError::Empty);
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(CertificateError::Key)?;
    let provider = rustls::crypto::ring::default_provider();
    Ok(CertifiedKey::from_der(chain, key, &provider)?)
}

/// Whether the current certificate is valid at this moment, in Unix seconds: what readiness asks.
/// The rest of the chain is for clients to judge: an expired certificate in it can be one that they
/// do not need.
///
/// # Errors
/// With what is wrong, in words for everybody.
pub fn check_current(current: &CurrentCertificate, now: i64) -> Result<(), String> {
    let key = current.borrow().clone();
    let Some(leaf) = key.as_ref().and_then(|key| key.cert.first()) else {
        return Err("there is no serving certificate yet".to_owned());
    };
    let validity = Validity::of(leaf).map_err(|error| error.to_string())?;
    validity
        .check(now)
        .map_err(|why| format!("the serving certificate {why}; it has to be renewed"))
}

/// A pair of files, read again when they change. A pair that does not work is left aside, and the
/// last good one stays in use.
#[derive(Debug)]
pub struct FileCertificate {
    cert: PathBuf,
    key: PathBuf,
    first: Fingerprint,
    publish: watch::Sender<Option<Arc<CertifiedKey>>>,
}

/// Digest of both files' contents: enough to see that they changed.
type Fingerprint = [u8; 32];

impl FileCertificate {
    /// Reads the pair.
    ///
    /// # Errors
    /// When it does not work at the start.
    pub fn load(cert: PathBuf, key: PathBuf) -> Result<Self, CertificateError> {
        let (cert_pem, key_pem) = (read(&cert)?, read(&key)?);
        let first = certified_key(&cert_pem, &key_pem)?;
        let (publish, _) = watch::channel(Some(Arc::new(first)));
        Ok(Self {
            cert,
            key,
            first: fingerprint(&cert_pem, &key_pem),
            publish,
        })
    }

    /// Follows the files until `stop`.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = FileChanges::of([&self.cert, &self.key]);
        let mut seen = self.first;
        loop {
            if let (Ok(cert), Ok(key)) = (read(&self.cert), read(&self.key)) {
                let now = fingerprint(&cert, &key);
                if now != seen {
                    self.replace(&cert, &key);
                    seen = now;
                }
            }
            if stop.run_until_cancelled(changes.next()).await.is_none() {
                return;
            }
        }
    }

    fn replace(&self, cert: &[u8], key: &[u8]) {
        match certified_key(cert, key) {
            Ok(pair) => {
                tracing::info!(file = %self.cert.display(), "loaded the new serving certificate");
                self.publish.send_replace(Some(Arc::new(pair)));
            }
            Err(error) => tracing::warn!(
                file = %self.cert.display(), %error,
                "the new serving certificate cannot be used; the last one stays"
            ),
        }
    }
}

fn fingerprint(cert: &[u8], key: &[u8]) -> Fingerprint {
    let mut digest = Sha256::new();
    digest.update(cert.len().to_be_bytes());
    digest.update(cert);
    digest.update(key);
    digest.finalize().into()
}

impl CertificateSource for FileCertificate {
    fn subscribe(&self) -> CurrentCertificate {
        self.publish.subscribe()
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Read {
        path: path.clone(),
        source,
    })
}
