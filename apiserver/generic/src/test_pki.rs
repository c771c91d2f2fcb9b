//! Certificates made for tests.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::CertificateDer;

use crate::authn::CaBundle;

/// A CA made for a test.
pub(crate) struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate made for a test, with its key.
pub(crate) struct Leaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    pub(crate) fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        change(&mut params);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.pem.clone()
    }

    pub(crate) fn bundle(&self) -> Arc<CaBundle> {
        Arc::new(CaBundle::from_pem(self.pem.as_bytes()).unwrap())
    }

    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            der: certificate.der().clone(),
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    pub(crate) fn client(&self, name: &str) -> Leaf {
        self.issue(|params| {
            params.distinguished_name.push(DnType::CommonName, name);
            params
                .distinguished_name
                .push(DnType::OrganizationName, "dev");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    pub(crate) fn server(&self) -> Leaf {
        self.issue(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }
}
