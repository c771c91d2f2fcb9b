//! Which client certificate is the front proxy's: checked in the TLS handshake, against what is trusted now.
//!
//! Like KubeVirt (`pkg/util/tls`), a certificate of another CA or with another name ends the handshake, and none at
//! all passes (kube-apiserver's availability probe has none) to be refused later where it matters.

use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::ConfigMap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::authn::HeaderNames;
use crate::tls::{TlsError, provider, roots};

/// Namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-system";
/// The ConfigMap in which kube-apiserver says whom its extensions may trust.
pub const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// A ConfigMap that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// kube-apiserver runs without `--requestheader-client-ca-file`.
    #[error(
        "{CONFIG_MAP} has no requestheader-client-ca-file; kube-apiserver needs its --requestheader flags"
    )]
    NoAuthority,
    /// The CA is none.
    #[error("requestheader-client-ca-file: {0}")]
    Authority(#[from] TlsError),
    /// No certificate in the bundle can verify another.
    #[error("requestheader-client-ca-file: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What is trusted.
#[derive(Debug)]
pub struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    allowed_names: Vec<String>,
    /// Where the proxy writes who calls.
    pub headers: HeaderNames,
}

impl Trust {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// When it names no usable CA.
    pub fn read(map: &ConfigMap) -> Result<Self, TrustError> {
        let get = |key: &str| {
            map.data
                .as_ref()
                .and_then(|d| d.get(key))
                .map(String::as_str)
        };
        let pem = get("requestheader-client-ca-file").ok_or(TrustError::NoAuthority)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), provider())
                .build()?;
        // Values are JSON lists; KubeVirt adds them to the built-in names.
        let list = |key: &str| -> Vec<String> {
            get(key)
                .and_then(|v| serde_json::from_str(v).ok())
                .unwrap_or_default()
        };
        let HeaderNames {
            mut user,
            mut groups,
            mut extra_prefixes,
        } = HeaderNames::default();
        for (names, key) in [
            (&mut user, "requestheader-username-headers"),
            (&mut groups, "requestheader-group-headers"),
            (&mut extra_prefixes, "requestheader-extra-headers-prefix"),
        ] {
            for name in list(key) {
                if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                    names.push(name);
                }
            }
        }
        Ok(Self {
            verifier,
            allowed_names: list("requestheader-allowed-names"),
            headers: HeaderNames {
                user,
                groups,
                extra_prefixes,
            },
        })
    }

    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let allowed = |name: &str| self.allowed_names.iter().any(|n| n == name);
        self.allowed_names.is_empty() || common_name(certificate).is_some_and(|name| allowed(&name))
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()?
        .as_str()
        .ok()?;
    Some(name.to_owned())
}

/// The trust of this moment. Connections see a change at their next handshake.
#[derive(Debug, Default)]
pub struct FrontProxy {
    current: RwLock<Option<Arc<Trust>>>,
}

impl FrontProxy {
    /// Replaces what is trusted.
    pub fn set(&self, trust: Trust) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(trust));
    }

    /// What is trusted, if anything is known yet.
    pub fn current(&self) -> Option<Arc<Trust>> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ClientCertVerifier for FrontProxy {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No hints: kube-apiserver sends its certificate without them, and a borrowed list could not change.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let trust = self.current().ok_or_else(unknown)?;
        let verified = trust
            .verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        if !trust.allows(end_entity) {
            tracing::warn!(name = ?common_name(end_entity), allowed = ?trust.allowed_names, "Common name is invalid");
            let refused = rustls::CertificateError::ApplicationVerificationFailure;
            return Err(rustls::Error::InvalidCertificate(refused));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        pki::{Authority, Leaf, Usage},
        tls,
    };

    fn config_map(authority: &Authority, allowed: &str) -> ConfigMap {
        let data = BTreeMap::from([
            (
                "requestheader-client-ca-file".to_owned(),
                authority.certificate_pem().to_owned(),
            ),
            ("requestheader-allowed-names".to_owned(), allowed.to_owned()),
            (
                "requestheader-username-headers".to_owned(),
                r#"["X-Remote-User","X-Other-User"]"#.to_owned(),
            ),
        ]);
        ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    fn handshake(front: Arc<FrontProxy>, client: Option<&Leaf>) -> Result<(), rustls::Error> {
        let own = Authority::generate().unwrap();
        let leaf = own
            .issue(&["localvirt.test".into()], &[], Usage::Server)
            .unwrap();
        let server = Arc::new(tls::server(&leaf, front).unwrap());
        let client = tls::client(own.certificate_pem(), client).unwrap();
        tls::handshake_for_tests(&client, server, "localvirt.test")
    }

    #[test]
    fn only_the_front_proxys_certificate_passes_and_none_at_all() {
        let authority = Authority::generate().unwrap();
        let proxy = authority
            .issue(&["front-proxy-client".into()], &[], Usage::Client)
            .unwrap();
        let other_name = authority
            .issue(&["somebody".into()], &[], Usage::Client)
            .unwrap();
        let other_use = authority
            .issue(&["front-proxy-client".into()], &[], Usage::Server)
            .unwrap();
        let stranger = Authority::generate()
            .unwrap()
            .issue(&["front-proxy-client".into()], &[], Usage::Client)
            .unwrap();
        let front = Arc::new(FrontProxy::default());
        assert!(
            handshake(front.clone(), Some(&proxy)).is_err(),
            "nothing is trusted yet"
        );
        front.set(Trust::read(&config_map(&authority, r#"["front-proxy-client"]"#)).unwrap());
        handshake(front.clone(), Some(&proxy)).unwrap();
        handshake(front.clone(), None).unwrap();
        for refused in [&other_name, &other_use, &stranger] {
            assert!(handshake(front.clone(), Some(refused)).is_err());
        }
        front.set(Trust::read(&config_map(&authority, "[]")).unwrap());
        handshake(front, Some(&other_name)).unwrap();
    }

    #[test]
    fn header_names_are_added_to_the_usual_ones() {
        let authority = Authority::generate().unwrap();
        let trust = Trust::read(&config_map(&authority, "")).unwrap();
        assert_eq!(trust.headers.user, ["X-Remote-User", "X-Other-User"]);
        assert!(matches!(
            Trust::read(&ConfigMap::default()),
            Err(TrustError::NoAuthority)
        ));
    }
}
