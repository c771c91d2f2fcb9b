//! Who is calling: request header, client certificate, bearer token, anonymous, in this order.
//!
//! Entry point: [`Authentication::authenticate`]. It follows
//! `k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go`: the first that knows
//! the caller wins, failures are collected, and only a request that presents nothing at all is
//! anonymous. **A failure never degrades to anonymous.**
//!
//! Trust ([`Trust`]) is looked up for each request, so a CA that is removed stops working on
//! connections that exist. Identity headers are removed before anybody else sees the request.

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use rustls::pki_types::{CertificateDer, UnixTime};

mod bundle;
mod client_certificate;
mod config_map;
mod files;
mod leaf;
mod request_header;
mod token;
mod trust;

pub use bundle::{BundleError, CaBundle};
pub use config_map::{ConfigMapTrust, LookupError, Missing};
pub use files::TrustFiles;
pub use request_header::RequestHeader;
pub use token::{TokenConfig, TokenReviews};
pub use trust::{Hazard, Trust, TrustStore};

#[cfg(test)]
mod tests;

/// An authenticated caller.
///
/// Mirrors `k8s.io/apiserver/pkg/authentication/user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// Name, as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// UID, often empty.
    pub uid: String,
    /// Groups, in the order in which they arrived.
    pub groups: Vec<String>,
    /// Extra attributes; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Everybody who presented something that was accepted.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody who presented nothing.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of who presented nothing.
pub const ANONYMOUS: &str = "system:anonymous";

impl UserInfo {
    /// Who presented nothing.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Adds `system:authenticated`, unless the user is anonymous or has it already. Group-less
    /// users of the aggregator may read discovery thanks to it.
    #[must_use]
    fn authenticated(mut self) -> Self {
        let settled = |g: &String| g == AUTHENTICATED || g == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(settled) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// How a caller was recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By the front proxy, which said who it is.
    FrontProxy,
    /// By its own certificate.
    ClientCertificate,
    /// By a token.
    Token,
    /// Not at all.
    Anonymous,
}

/// A caller and how it was recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub user: UserInfo,
    /// How.
    pub via: Via,
}

/// Why what a caller presented was not accepted. The caller reads `Unauthorized`; this is for the log.
#[derive(Debug, thiserror::Error)]
pub enum AuthnError {
    /// The certificate does not verify.
    #[error("verifying the client certificate of {subject} failed: {reason}")]
    Certificate {
        /// Its common name.
        subject: String,
        /// Why.
        reason: String,
    },
    /// A front proxy's certificate whose name is not allowed speaks for somebody.
    #[error(
        "x509: subject with cn={name} is not in the allowed list {allowed:?}: it is signed by the \
         request-header CA and sends identity headers; add the name to \
         --requestheader-allowed-names of kube-apiserver or of this server if it may"
    )]
    NameNotAllowed {
        /// Its common name.
        name: String,
        /// Those that are.
        allowed: Vec<String>,
    },
    /// The token is none that kube-apiserver accepts.
    #[error("invalid bearer token{}", suffix(.0))]
    Token(String),
    /// The token could not be reviewed.
    #[error("the token could not be reviewed: {0}")]
    Review(String),
    /// The bearer subprotocol of a WebSocket is malformed.
    #[error("{0}")]
    Subprotocol(&'static str),
}

fn suffix(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

/// What a request presented was not accepted.
#[derive(Debug)]
pub struct Rejected(pub Vec<AuthnError>);

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

/// All ways to recognize a caller, in their order.
pub struct Authentication {
    trust: Arc<TrustStore>,
    tokens: Option<TokenReviews>,
}

impl Authentication {
    /// Certificates are judged by `trust`, tokens by `tokens`; without it tokens are not accepted.
    pub fn new(trust: Arc<TrustStore>, tokens: Option<TokenReviews>) -> Self {
        Self { trust, tokens }
    }

    /// Recognizes the caller and removes from `headers` what it identified itself with.
    ///
    /// # Errors
    /// When something was presented and nothing of it was accepted.
    pub async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<Identity, Rejected> {
        let trust = self.trust.current();
        let by_certificate = by_certificate(&trust, headers, chain, now);
        let presented = token::presented(headers);
        request_header::strip(&trust, headers);
        token::strip(headers);
        let mut errors = match by_certificate {
            Ok(identity) => return Ok(identity),
            // A front proxy that may not speak for others is never taken for somebody else.
            Err(Denied::Finally(error)) => return Err(Rejected(vec![error])),
            Err(Denied::SoFar(errors)) => errors,
        };
        match self.by_token(presented).await {
            Ok(Some(identity)) => return Ok(identity),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
        if !errors.is_empty() {
            return Err(Rejected(errors));
        }
        Ok(Identity {
            user: UserInfo::anonymous(),
            via: Via::Anonymous,
        })
    }

    async fn by_token(
        &self,
        presented: Result<Option<token::Token>, AuthnError>,
    ) -> Result<Option<Identity>, AuthnError> {
        let Some(token) = presented? else {
            return Ok(None);
        };
        let user = self.review(&token).await?.authenticated();
        Ok(Some(Identity {
            user,
            via: Via::Token,
        }))
    }

    async fn review(&self, token: &token::Token) -> Result<UserInfo, AuthnError> {
        match &self.tokens {
            Some(reviews) => reviews.review(token).await,
            None => Err(AuthnError::Token("tokens are not reviewed here".to_owned())),
        }
    }
}

enum Denied {
    SoFar(Vec<AuthnError>),
    Finally(AuthnError),
}

/// What the connection's certificate says: somebody by the front proxy's word, or its own subject.
fn by_certificate(
    trust: &Trust,
    headers: &HeaderMap,
    chain: &[CertificateDer<'static>],
    now: UnixTime,
) -> Result<Identity, Denied> {
    let mut errors = Vec::new();
    let known = |user: UserInfo, via| {
        let user = user.authenticated();
        Identity { user, via }
    };
    if let Some(request_header) = trust.request_header.as_deref() {
        match request_header.identify(headers, chain, now) {
            Ok(Some(user)) => return Ok(known(user, Via::FrontProxy)),
            Ok(None) => {}
            Err(error @ AuthnError::NameNotAllowed { .. }) => return Err(Denied::Finally(error)),
            Err(error) => errors.push(error),
        }
    }
    if let Some(client_ca) = trust.client_ca.as_deref() {
        match client_certificate::identify(client_ca, chain, now) {
            Ok(Some(user)) => return Ok(known(user, Via::ClientCertificate)),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    Err(Denied::SoFar(errors))
}
