//! What a certificate says.

use jiff::Timestamp;
use x509_parser::{extensions::GeneralName, pem::Pem};

/// A certificate that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("certificate cannot be read: {0}")]
pub struct UnreadableCertificate(String);

/// The parts of a certificate that decide about renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Subject's common name.
    pub common_name: String,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Raw subject of the issuer, to match a chain.
    pub issuer: Vec<u8>,
    /// Raw subject.
    pub subject: Vec<u8>,
}

impl Identity {
    /// Reads the first certificate of a PEM text.
    ///
    /// # Errors
    /// When there is none or it cannot be parsed.
    pub fn from_pem(pem: &str) -> Result<Self, UnreadableCertificate> {
        let unreadable = |what: String| UnreadableCertificate(what);
        let block = Pem::iter_from_buffer(pem.as_bytes())
            .next()
            .ok_or_else(|| unreadable("no PEM block".to_owned()))?
            .map_err(|e| unreadable(e.to_string()))?;
        let certificate = block.parse_x509().map_err(|e| unreadable(e.to_string()))?;
        let time = |t: x509_parser::time::ASN1Time| {
            Timestamp::from_second(t.timestamp()).map_err(|e| unreadable(e.to_string()))
        };
        let common_name = certificate
            .subject()
            .iter_common_name()
            .next()
            .and_then(|cn| cn.as_str().ok());
        Ok(Self {
            common_name: common_name.unwrap_or_default().to_owned(),
            dns_names: dns_names(&certificate),
            not_before: time(certificate.validity().not_before)?,
            not_after: time(certificate.validity().not_after)?,
            issuer: certificate.issuer().as_raw().to_vec(),
            subject: certificate.subject().as_raw().to_vec(),
        })
    }

    /// The moment when two thirds of its life are over.
    pub fn renew_at(&self) -> Timestamp {
        self.at_fraction(2, 3)
    }

    /// The moment when `part`/`whole` of its life are over.
    pub fn at_fraction(&self, part: i64, whole: i64) -> Timestamp {
        let life = self.not_after.as_second() - self.not_before.as_second();
        Timestamp::from_second(self.not_before.as_second() + life / whole * part)
            .unwrap_or(self.not_after)
    }
}

fn dns_names(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect()
}
