//! Answers that need no endpoint: a Status, a text, a JSON document.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{ApiError, Body, call::full};

/// `text/plain`, as Go's `http.Error` sends it.
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// `application/json`.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl ApiError {
    /// The failure as a JSON Status, with `Retry-After` where it says when to come back.
    pub fn to_response(&self) -> Response<Body> {
        let mut response = json(self.reason.code(), &self.to_status());
        let retry = self.details.as_ref().and_then(|d| d.retry_after_seconds);
        if let Some(seconds) = retry {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        // Audit says why, without reading the body again.
        response.extensions_mut().insert(self.clone());
        response
    }
}

/// A JSON document.
pub fn json(code: StatusCode, document: &serde_json::Value) -> Response<Body> {
    with_type(code, JSON, document.to_string())
}

/// A text.
pub fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = with_type(code, TEXT, text.into());
    let nosniff = HeaderValue::from_static("nosniff");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn with_type(code: StatusCode, kind: HeaderValue, body: String) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
