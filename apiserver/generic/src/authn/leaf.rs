//! The subject of a certificate, read as Go reads it (`crypto/x509/pkix.Name`).

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// OID of the subject attribute that carries a user's UID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// What a certificate says about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// Common name; the last one, if there are several.
    pub(super) common_name: String,
    /// Organizations.
    pub(super) organizations: Vec<String>,
    /// UID attributes.
    pub(super) uids: Vec<String>,
}

impl Subject {
    /// Reads a DER certificate. What cannot be read is left empty.
    pub(super) fn of(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return Self::default();
        };
        let name = certificate.subject();
        let texts =
            |it: &mut dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>>| {
                it.filter_map(|a| a.as_str().ok().map(str::to_owned))
                    .collect::<Vec<_>>()
            };
        let mut uids = name
            .iter_attributes()
            .filter(|a| a.attr_type().to_id_string() == UID);
        Self {
            common_name: texts(&mut name.iter_common_name())
                .pop()
                .unwrap_or_default(),
            organizations: texts(&mut name.iter_organization()),
            uids: texts(&mut uids),
        }
    }
}

/// `X509SHA256=<hex>`, the id of the credential.
pub(super) fn credential_id(der: &[u8]) -> String {
    let mut id = "X509SHA256=".to_owned();
    for byte in Sha256::digest(der) {
        // Writing to a String does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}
