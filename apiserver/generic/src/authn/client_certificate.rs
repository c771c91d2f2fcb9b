//! Authentication by client certificate
//! (`k8s.io/apiserver/pkg/authentication/request/x509/x509.go`).

use rustls::pki_types::{CertificateDer, UnixTime};

use super::{
    AuthnError, CaBundle, UserInfo,
    leaf::{Subject, credential_id},
};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The holder of the certificate: its common name is the user, its organizations the groups.
pub(super) fn identify(
    ca: &CaBundle,
    chain: &[CertificateDer<'static>],
    now: UnixTime,
) -> Result<Option<UserInfo>, AuthnError> {
    let Some(leaf) = chain.first() else {
        return Ok(None);
    };
    let subject = Subject::of(leaf);
    let fault = |reason: String| AuthnError::Certificate {
        subject: format!("{:?}", subject.common_name),
        reason,
    };
    ca.verify(chain, now).map_err(|e| fault(e.to_string()))?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    let uid = match subject.uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err(fault("it must carry one UID that is not empty".to_owned())),
    };
    Ok(Some(UserInfo {
        name: subject.common_name,
        uid,
        groups: subject.organizations,
        extra: [(CREDENTIAL_ID.to_owned(), vec![credential_id(leaf)])].into(),
    }))
}
