//! A bundle of CA certificates, and whether a client's chain leads to one of them.

use std::borrow::Cow;

use crate::validity::{Invalid, Validity};
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
    /// The time in which a certificate in it is valid cannot be read.
    #[error("certificate {0} in it cannot be read: its validity")]
    Validity(usize),
}

/// CA certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct CaBundle {
    anchors: Vec<TrustAnchor<'static>>,
    /// When each is valid; an anchor by itself would be believed for ever.
    validities: Vec<Validity>,
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
        let validity = |(n, certificate): (usize, &CertificateDer<'_>)| {
            Validity::of(certificate).map_err(|_| BundleError::Validity(n + 1))
        };
        let validities = certificates
            .iter()
            .enumerate()
            .map(validity)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            anchors,
            validities,
        })
    }

    /// Whether any of its CAs is valid at this moment, in Unix seconds.
    ///
    /// # Errors
    /// Why the first one is not.
    pub fn check(&self, now: i64) -> Result<(), Invalid> {
        let mut first = Ok(());
        for validity in &self.validities {
            match validity.check(now) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    }

    /// The CAs that are valid now; as a rule all of them, and then nothing is copied.
    fn valid(&self, now: UnixTime) -> Cow<'_, [TrustAnchor<'static>]> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_valid = |validity: &Validity| validity.check(now).is_ok();
        if self.validities.iter().all(is_valid) {
            return Cow::Borrowed(&self.anchors);
        }
        let both = self.anchors.iter().zip(&self.validities);
        let valid = both.filter(|(_, validity)| is_valid(validity));
        Cow::Owned(valid.map(|(anchor, _)| anchor.clone()).collect())
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
                &self.valid(now),
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
