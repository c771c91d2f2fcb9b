//! localvirt's own certificates: one CA, kept in a Secret, and leaves made from it.
//!
//! The CA signs the serving certificate that the APIService trusts, localvirt's client certificate towards
//! launchers, and each launcher's serving certificate. It outlives a restart of localvirt, since launchers do.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A certificate or key cannot be made, or the stored CA cannot be read.
    #[error(
        "certificate: {0}; delete the Secret of localvirt's CA and its launchers to start afresh"
    )]
    Certificate(#[from] rcgen::Error),
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").finish_non_exhaustive()
    }
}

/// Which side of a connection a leaf is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// It listens.
    Server,
    /// It dials.
    Client,
}

/// The CA.
pub struct Authority {
    certificate_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new CA.
    ///
    /// # Errors
    /// When a key cannot be made.
    pub fn generate() -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "localvirt");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate_pem = params.self_signed(&key)?.pem();
        Self::load(&certificate_pem, &key.serialize_pem())
    }

    /// The CA of before.
    ///
    /// # Errors
    /// When either is not what it should be.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self {
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            issuer,
        })
    }

    /// The CA's certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The CA's key, to be stored.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// A leaf for these DNS names and addresses; the first name is the CN too.
    ///
    /// # Errors
    /// When a name is not one.
    pub fn issue(
        &self,
        names: &[String],
        addresses: &[IpAddr],
        usage: Usage,
    ) -> Result<Leaf, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params
            .subject_alt_names
            .extend(addresses.iter().map(|ip| rcgen::SanType::IpAddress(*ip)));
        if let Some(first) = names.first() {
            params
                .distinguished_name
                .push(DnType::CommonName, first.as_str());
        }
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![match usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let certificate_pem = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf {
            certificate_pem,
            key_pem: key.serialize_pem(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_authority_issues_leaves_that_chain_to_it() {
        let first = Authority::generate().unwrap();
        let again = Authority::load(first.certificate_pem(), first.key_pem()).unwrap();
        let leaf = again
            .issue(&["uid.launcher.localvirt".into()], &[], Usage::Server)
            .unwrap();
        let tls = crate::tls::client(first.certificate_pem(), None).unwrap();
        let server = crate::tls::server_for_tests(&leaf);
        crate::tls::handshake_for_tests(&tls, server, "uid.launcher.localvirt").unwrap();
        let tls =
            crate::tls::client(Authority::generate().unwrap().certificate_pem(), None).unwrap();
        let server = crate::tls::server_for_tests(&leaf);
        assert!(crate::tls::handshake_for_tests(&tls, server, "uid.launcher.localvirt").is_err());
    }

    #[test]
    fn debug_output_has_no_key() {
        let leaf = Authority::generate()
            .unwrap()
            .issue(&["a".into()], &[], Usage::Client)
            .unwrap();
        assert!(!format!("{leaf:?}").contains("PRIVATE"));
    }
}
