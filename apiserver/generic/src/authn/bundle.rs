//! A bundle of CA certificates, and whether a client's chain leads to one of them.

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject as _};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// A bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is no PEM.
    #[error("it is not PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// It holds no certificate.
    #[error("there is no certificate in it")]
    Empty,
    /// A certificate in it is none.
    #[error("certificate {0} in it cannot be read: {1}")]
    Certificate(usize, webpki::Error),
}

/// CA certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct CaBundle {
    anchors: Vec<TrustAnchor<'static>>,
}

impl CaBundle {
    /// Reads a PEM bundle.
    ///
    /// # Errors
    /// When it holds no certificate, or one that cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BundleError> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(BundleError::Pem)?;
        if certificates.is_empty() {
            return Err(BundleError::Empty);
        }
        let anchor = |(n, certificate): (usize, &CertificateDer<'_>)| {
            anchor_from_trusted_cert(certificate)
                .map(|anchor| anchor.to_owned())
                .map_err(|e| BundleError::Certificate(n + 1, e))
        };
        let anchors = certificates
            .iter()
            .enumerate()
            .map(anchor)
            .collect::<Result<_, _>>()?;
        Ok(Self { anchors })
    }

    /// Whether the first certificate of `chain` is a client's, valid `now`, and leads to the bundle
    /// over the rest of the chain.
    ///
    /// # Errors
    /// With the reason why it does not.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let [leaf, intermediates @ ..] = chain else {
            return Err(webpki::Error::UnknownIssuer);
        };
        EndEntityCert::try_from(leaf)?
            .verify_for_usage(
                ALL_VERIFICATION_ALGS,
                &self.anchors,
                intermediates,
                now,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map(|_| ())
    }

    /// Whether one CA (by key) is in both bundles.
    pub fn overlaps(&self, other: &Self) -> bool {
        let key = |a: &TrustAnchor<'_>| a.subject_public_key_info.as_ref().to_vec();
        let keys: Vec<_> = self.anchors.iter().map(key).collect();
        other
            .anchors
            .iter()
            .any(|anchor| keys.contains(&key(anchor)))
    }

    /// How many CAs it holds.
    pub fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Never: a bundle holds at least one CA.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }
}
