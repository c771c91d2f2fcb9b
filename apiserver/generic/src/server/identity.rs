//! What a request's headers and connection say about its origin, beside the user.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Request, header};
use jiff::Timestamp;

use crate::{
    ApiError, Body, Reason, audit,
    authn::{AuthnError, Identity, Rejected, Via},
    call::ClientAddress,
    request::RequestInfo,
    serving::Peer,
};

/// Joins kube-apiserver's audit log and ours.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// An `Audit-ID` that is longer is replaced by ours.
const LONGEST_AUDIT_ID: usize = 64;

/// The caller's `Audit-ID` if it can be one, else a new id.
pub(super) fn audit_id(headers: &HeaderMap) -> Arc<str> {
    let given = headers
        .get(AUDIT_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| !id.is_empty() && id.len() <= LONGEST_AUDIT_ID);
    match given {
        Some(id) => id.into(),
        None => uuid::Uuid::new_v4().to_string().into(),
    }
}

/// Where a request came from. Only an authenticated front proxy is believed about others.
pub(super) fn client_address(
    identity: &Result<Identity, Rejected>,
    headers: &HeaderMap,
    peer: &Peer,
) -> ClientAddress {
    let via = identity.as_ref().map_or(Via::Anonymous, |i| i.via);
    ClientAddress {
        peer: peer.address,
        forwarded_for: forwarded(headers).pop().filter(|_| via == Via::FrontProxy),
        via,
    }
}

fn forwarded(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|address| address.trim().to_owned())
        .filter(|address| !address.is_empty())
        .collect()
}

/// What the audit log says about a request.
pub(super) fn audit_request(
    request: &Request<Body>,
    info: &RequestInfo,
    identity: &Result<Identity, Rejected>,
    client: &ClientAddress,
    id: &Arc<str>,
    received: Timestamp,
) -> audit::Request {
    let mut source_ips = match &client.forwarded_for {
        Some(_) => forwarded(request.headers()),
        None => Vec::new(),
    };
    source_ips.push(client.peer.ip().to_string());
    let user_agent = request.headers().get(header::USER_AGENT);
    audit::Request {
        id: id.clone(),
        uri: request
            .uri()
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        info: info.clone(),
        user: identity.as_ref().ok().map(|i| i.user.clone()),
        source_ips,
        user_agent: user_agent
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .unwrap_or_default(),
        received,
    }
}

/// 401. The caller learns nothing about why; the log says it.
pub(super) fn unauthorized(rejected: &Rejected) -> ApiError {
    let not_allowed = |e: &AuthnError| matches!(e, AuthnError::NameNotAllowed { .. });
    if rejected.0.iter().any(not_allowed) {
        tracing::warn!("a request was not authenticated: {rejected}");
    } else {
        tracing::info!("a request was not authenticated: {rejected}");
    }
    ApiError::new(Reason::Unauthorized, "Unauthorized")
}

/// kube-apiserver resolves impersonation before it proxies. Whoever asks us directly is told no,
/// since ignoring the headers would run the request with more rights than its author expects.
///
/// # Errors
/// 403 when the request asks for it.
pub(super) fn refuse_impersonation(headers: &HeaderMap) -> Result<(), ApiError> {
    let asks = headers
        .keys()
        .any(|name| name.as_str().starts_with("impersonate-"));
    if !asks {
        return Ok(());
    }
    Err(ApiError::new(
        Reason::Forbidden,
        "impersonation is not supported on this address: send the request to kube-apiserver, \
         which resolves it",
    ))
}
