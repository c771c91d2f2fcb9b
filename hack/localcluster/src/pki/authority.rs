//! A certificate authority that issues for servers and clients.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::{PkiError, Subject};

/// Certificates hold for as long as anybody keeps a local cluster. They open nothing but a cluster that listens on
/// loopback or on a link of its own, and a cluster that dies of its certificates' age helps nobody.
const YEARS: (i32, i32) = (2025, 2125);

/// A certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its private key, PKCS #8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

/// An authority: its certificate and key.
pub struct Authority {
    cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority called `name`.
    pub fn generate(name: &str) -> Result<Self, PkiError> {
        let fail = |source| PkiError::Issue {
            subject: name.to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(fail)?;
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let cert = params.self_signed(&key).map_err(fail)?.pem();
        Ok(Self {
            cert,
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority that `issued` holds.
    pub fn open(name: &str, issued: &Issued) -> Result<Self, PkiError> {
        let fail = |source| PkiError::Issue {
            subject: name.to_owned(),
            source,
        };
        let key = KeyPair::from_pem(&issued.key).map_err(fail)?;
        let issuer = Issuer::from_ca_cert_pem(&issued.cert, key).map_err(fail)?;
        Ok(Self {
            cert: issued.cert.clone(),
            issuer,
        })
    }

    /// Its own certificate and key.
    pub fn issued(&self) -> Issued {
        Issued {
            cert: self.cert.clone(),
            key: self.issuer.key().serialize_pem(),
        }
    }

    /// A certificate with which `subject` calls servers.
    pub fn client(&self, subject: &Subject) -> Result<Issued, PkiError> {
        self.issue(subject, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate with which `subject` serves under `names`, DNS names and addresses mixed.
    pub fn server(&self, subject: &Subject, names: &[String]) -> Result<Issued, PkiError> {
        self.issue(subject, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn issue(
        &self,
        to: &Subject,
        names: &[String],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Issued, PkiError> {
        let fail = |source| PkiError::Issue {
            subject: to.user.clone(),
            source,
        };
        let key = KeyPair::generate().map_err(fail)?;
        let mut params = params(&to.user);
        params.subject_alt_names = CertificateParams::new(names.to_vec())
            .map_err(fail)?
            .subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let plain = params.signed_by(&key, &self.issuer).map_err(fail)?;
        let der = to.put_into(plain.der(), self.issuer.key())?;
        Ok(Issued {
            cert: pem(&der),
            key: key.serialize_pem(),
        })
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) =
        (date_time_ymd(YEARS.0, 1, 1), date_time_ymd(YEARS.1, 1, 1));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// RFC 7468: base64 in lines of 64 characters.
fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use x509_parser::pem::parse_x509_pem;
    use x509_parser::prelude::*;

    use super::*;

    fn with_parsed<T>(pem: &str, f: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        f(&pem.parse_x509().unwrap())
    }

    #[test]
    fn a_client_certificate_names_the_user_and_every_group_and_verifies() {
        let ca = Authority::generate("ca").unwrap();
        let many: Vec<String> = (0..40).map(|n| format!("team-{n}")).collect();
        for groups in [vec![], vec!["system:masters".to_owned()], many] {
            let subject = Subject {
                user: "ärger".into(),
                groups: groups.clone(),
            };
            let issued = ca.client(&subject).unwrap();
            with_parsed(&issued.cert, |cert| {
                let cn: Vec<_> = cert
                    .subject()
                    .iter_common_name()
                    .map(|a| a.as_str().unwrap())
                    .collect();
                let o: Vec<_> = cert
                    .subject()
                    .iter_organization()
                    .map(|a| a.as_str().unwrap())
                    .collect();
                assert_eq!(cn, ["ärger"]);
                assert_eq!(o, groups);
                assert!(
                    cert.extended_key_usage()
                        .unwrap()
                        .unwrap()
                        .value
                        .client_auth
                );
                with_parsed(&ca.issued().cert, |ca| {
                    cert.verify_signature(Some(ca.public_key())).unwrap()
                });
            });
        }
    }

    #[test]
    fn a_server_certificate_holds_for_names_and_addresses() {
        let ca = Authority::generate("ca").unwrap();
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let issued = ca.server(&Subject::user("kube-apiserver"), &names).unwrap();
        with_parsed(&issued.cert, |cert| {
            let found = cert
                .subject_alternative_name()
                .unwrap()
                .unwrap()
                .value
                .general_names
                .len();
            assert_eq!(found, names.len());
            assert!(
                cert.extended_key_usage()
                    .unwrap()
                    .unwrap()
                    .value
                    .server_auth
            );
        });
    }

    #[test]
    fn an_authority_that_was_saved_goes_on_issuing() {
        let first = Authority::generate("ca").unwrap();
        let again = Authority::open("ca", &first.issued()).unwrap();
        let issued = again
            .client(&Subject::user("alice").in_group("team"))
            .unwrap();
        with_parsed(&issued.cert, |cert| {
            with_parsed(&first.issued().cert, |ca| {
                assert_eq!(cert.issuer(), ca.subject());
                cert.verify_signature(Some(ca.public_key())).unwrap();
            });
        });
    }

    #[test]
    fn keys_do_not_show_in_debug_output() {
        let ca = Authority::generate("ca").unwrap();
        assert!(!format!("{ca:?} {:?}", ca.issued()).contains("PRIVATE"));
    }
}
