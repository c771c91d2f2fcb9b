//! A guest's answer on its way to the client.

use apiserver_generic::{ApiError, Body, call::full};
use http::{HeaderValue, Response, StatusCode, header, response::Parts};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};

use super::{
    body::{Answer, Page},
    errors, hops,
    html::{Links, Rewriter},
    location::Target,
    page,
    request::Wants,
    response::{self, Redirect, Return},
    shared::Hold,
};
use crate::streams::relay::End;

/// What the client gets.
pub(super) enum Passed {
    /// An answer.
    Answer(Response<Body>),
    /// The `101`, the guest's connection, and what holds the exchange.
    Upgrade(Response<Body>, OnUpgrade, Hold),
}

/// Makes the client's answer of the guest's.
///
/// # Errors
/// 502 for one that cannot be passed back.
pub(super) fn passed(
    back: &Return,
    port: u16,
    wants: Wants,
    mut answer: Response<Incoming>,
    hold: Hold,
) -> Result<Passed, ApiError> {
    let status = answer.status();
    if let Err(error) = check(port, wants, &answer) {
        hold.shared.ended(End::Finished);
        return Err(error);
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let guest = hyper::upgrade::on(&mut answer);
        return Ok(Passed::Upgrade(switching(back, &answer), guest, hold));
    }
    let (head, body) = answer.into_parts();
    let response = match back.redirect(status, &head.headers) {
        None => plain(back, &head, Answer::new(body, hold)),
        Some(redirect) => {
            hold.shared.ended(End::Finished);
            instead(back, port, &head, &redirect)
        }
    };
    Ok(Passed::Answer(response))
}

/// What no answer may be.
fn check(port: u16, wants: Wants, answer: &Response<Incoming>) -> Result<(), ApiError> {
    let (status, headers) = (answer.status(), answer.headers());
    if response::is_ambiguous(headers) {
        return Err(errors::ambiguous(port));
    }
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let to_websocket = hops::has_token(headers, &header::UPGRADE, "websocket");
    match wants {
        Wants::WebSocket if switches && to_websocket => Ok(()),
        // A success would say that there is a WebSocket.
        Wants::WebSocket if switches || status.is_success() => {
            Err(errors::no_upgrade(port, status))
        }
        Wants::Answer if switches => Err(errors::bad_gateway(
            port,
            "switched to another protocol without being asked",
            "see its log",
        )),
        Wants::WebSocket | Wants::Answer => Ok(()),
    }
}

/// The `101`.
fn switching(back: &Return, answer: &Response<Incoming>) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = back.headers(answer.headers(), false);
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    *response.headers_mut() = headers;
    response
}

/// The guest's own answer.
fn plain(back: &Return, head: &Parts, answer: Answer) -> Response<Body> {
    let rewritten = back.is_rewritten(head.status, &head.headers);
    let body = match rewritten {
        true => {
            let links = Links::new(back.prefix.clone(), &back.own);
            Page::new(answer, Rewriter::new(links)).boxed_unsync()
        }
        false => answer.boxed_unsync(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    let mut headers = back.headers(&head.headers, rewritten);
    if back.proxied && head.status.is_redirection() {
        // kube-apiserver would make an error of it.
        headers.remove(header::LOCATION);
    }
    *response.headers_mut() = headers;
    response
}

/// What stands for a redirect. The cookies that it sets are part of most log-ins.
fn instead(back: &Return, port: u16, head: &Parts, redirect: &Redirect) -> Response<Body> {
    let (mut response, target) = match redirect {
        Redirect::Page(target) => (leading_to(target), target),
        Redirect::Refused(target) => (errors::redirect(port).to_response(), target),
    };
    let headers = response.headers_mut();
    for cookie in back.cookies(&head.headers) {
        headers.append(header::SET_COOKIE, cookie);
    }
    if let Ok(target) = HeaderValue::from_str(target.as_str()) {
        headers.insert(response::LOCATION, target);
    }
    response
}

fn leading_to(target: &Target) -> Response<Body> {
    let mut response = Response::new(full(page::leading_to(target)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "Text/HTML; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
