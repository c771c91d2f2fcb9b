//! A request on its way to the guest, put together from what was received.

use apiserver_generic::{ApiError, Body, Call, authn::Via, call::full};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header, uri::PathAndQuery};
use http_body::Body as _;

use super::{
    request::{self, Passage, Wants},
    response::Return,
};
use crate::streams::asked::Asked;

/// What a request is beside what was [`Asked`].
pub(super) struct Given {
    pub(super) uri: Uri,
    /// The address that the client used, if it is known.
    pub(super) host: Option<String>,
    /// The name in the path, with its port.
    pub(super) name: String,
    body: Body,
    via: Via,
}

impl Given {
    /// Takes it out of a call.
    pub(super) fn take(call: &mut Call) -> Self {
        let via = call.client.via;
        let name = call.info.name.clone();
        let request = &mut call.request;
        let authority = request.uri().authority().map(ToString::to_string);
        let named = request.headers().get(header::HOST);
        let named = named.and_then(|host| host.to_str().ok()).map(str::to_owned);
        Self {
            uri: request.uri().clone(),
            // kube-apiserver names our own endpoint, which is no address for a client.
            host: authority.or(named).filter(|_| via != Via::FrontProxy),
            name,
            body: std::mem::replace(request.body_mut(), full("")),
            via,
        }
    }

    /// A handshake ends with its head: what followed could be taken for a body by one side and for the
    /// first bytes of the tunnel by the other.
    ///
    /// # Errors
    /// 400 for one with a body.
    pub(super) fn check_handshake(&self, wants: Wants) -> Result<(), ApiError> {
        if wants == Wants::Answer || self.body.is_end_stream() {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "a WebSocket's handshake has no body; leave Content-Length and Transfer-Encoding out",
        ))
    }

    /// Whether kube-apiserver passed it on.
    pub(super) fn is_proxied(&self) -> bool {
        self.via == Via::FrontProxy
    }

    /// The request for the guest.
    ///
    /// # Errors
    /// It is none that HTTP/1.1 can carry.
    pub(super) fn request(
        self,
        asked: &Asked,
        wants: Wants,
        back: &Return,
        target: PathAndQuery,
    ) -> Result<Request<Body>, ApiError> {
        let passage = Passage {
            prefix: &back.prefix,
            tag: &back.tag,
            own: &back.own,
            client: &asked.client_address,
            host: self.host.as_deref(),
            plain: back.proxied,
            wants,
        };
        let mut headers = request::headers(&asked.headers, &passage);
        set_length(&mut headers, &asked.method, &self.body);
        if let Some(expect) = asked.headers.get(header::EXPECT)
            && !self.body.is_end_stream()
        {
            headers.insert(header::EXPECT, expect.clone());
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = Uri::from(target);
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// What the connection's own parser found, in one way: nothing that a client says about its length is
/// repeated.
fn set_length(headers: &mut HeaderMap, method: &Method, body: &Body) {
    let takes_a_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    match body.size_hint().exact() {
        Some(0) if !takes_a_body => {}
        Some(length) => drop(headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length))),
        None => {
            let chunked = HeaderValue::from_static("chunked");
            headers.insert(header::TRANSFER_ENCODING, chunked);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn length(method: &Method, body: &Body) -> Vec<String> {
        let mut headers = HeaderMap::new();
        set_length(&mut headers, method, body);
        headers
            .iter()
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn a_body_has_the_length_that_it_has() {
        let unknown = StreamBody::new(futures::stream::empty()).boxed_unsync();
        for (method, body, expected) in [
            (Method::GET, full(""), None),
            (Method::DELETE, full(""), None),
            (Method::POST, full(""), Some("content-length: 0")),
            (Method::GET, full("x"), Some("content-length: 1")),
            (Method::PUT, unknown, Some("transfer-encoding: chunked")),
        ] {
            let got = length(&method, &body);
            assert_eq!(got.first().map(String::as_str), expected, "{method}");
        }
    }
}
