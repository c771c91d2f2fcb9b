//! Issuing: a certificate authority and the serving certificates that it signs.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// Clocks of other machines may be behind ours by this much.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Why a certificate could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The key or certificate of the authority cannot be read, or signing failed.
    #[error("certificate could not be issued: {0}")]
    Rcgen(#[from] rcgen::Error),
    /// A time is outside what certificates can say.
    #[error("validity is out of range: {0}")]
    Validity(String),
}

/// A certificate and its private key in PEM. Its `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// `CERTIFICATE` blocks.
    pub certificate: String,
    /// `PRIVATE KEY` block.
    pub key: String,
}

impl std::fmt::Debug for PemPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemPair")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// A certificate authority that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes a new authority; the result is stored, the authority signs.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(
        name: &str,
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<PemPair, IssueError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("{name}@{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        set_validity(&mut params, now, valid)?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(PemPair {
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// An authority from what was stored.
    ///
    /// # Errors
    /// When either PEM cannot be read.
    pub fn load(pair: &PemPair) -> Result<Self, IssueError> {
        let key = KeyPair::from_pem(&pair.key)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key)?;
        Ok(Self {
            issuer,
            certificate: pair.certificate.clone(),
        })
    }

    /// Signs a serving certificate for DNS names; the chain ends with the authority's own certificate.
    ///
    /// # Errors
    /// When a name is no DNS name, or signing fails.
    pub fn issue_serving(
        &self,
        names: &[String],
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<PemPair, IssueError> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = common_name(names.first().map_or("", String::as_str));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, valid)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(PemPair {
            certificate: certificate + &self.certificate,
            key: key.serialize_pem(),
        })
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut out = DistinguishedName::new();
    // RFC 5280: a common name has at most 64 characters; clients read the SANs anyway.
    out.push(
        DnType::CommonName,
        name.chars().take(64).collect::<String>(),
    );
    out
}

fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    valid: SignedDuration,
) -> Result<(), IssueError> {
    params.not_before = date(now, -SKEW)?;
    params.not_after = date(now, valid)?;
    Ok(())
}

fn date(now: Timestamp, offset: SignedDuration) -> Result<time::OffsetDateTime, IssueError> {
    let at = now
        .checked_add(offset)
        .map_err(|e| IssueError::Validity(e.to_string()))?;
    time::OffsetDateTime::from_unix_timestamp(at.as_second())
        .map_err(|e| IssueError::Validity(e.to_string()))
}
