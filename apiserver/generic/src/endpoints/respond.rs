//! Answers in the format that was asked for, with warnings.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::{
    accept::{Format, Wanted, negotiate},
    body,
    gzip::{self, Chunks},
    query::Query,
};
use crate::{ApiError, Body};

/// Most bytes of all warnings of an answer.
const WARNINGS: usize = 4 << 10;
/// What one warning is cut to once they are too many, in characters.
const WARNING: usize = 256;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");

/// A document.
pub(super) fn document(
    code: StatusCode,
    document: &Value,
    wanted: Wanted,
    request: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let (bytes, kind) = encode(document, wanted.format)?;
    let mut response = gzip::respond(Box::new(std::iter::once(bytes.into())), request);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A JSON document in pieces.
pub(super) fn chunks(chunks: Chunks, request: &HeaderMap) -> Response<Body> {
    let mut response = gzip::respond(chunks, request);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

fn encode(document: &Value, format: Format) -> Result<(Vec<u8>, HeaderValue), ApiError> {
    let failed = |error: &dyn std::fmt::Display| ApiError::internal(format!("encoding: {error}"));
    match format {
        Format::Json => Ok((document.to_string().into_bytes(), JSON)),
        Format::Pretty => {
            let mut bytes = serde_json::to_vec_pretty(document).map_err(|e| failed(&e))?;
            bytes.push(b'\n');
            Ok((bytes, JSON))
        }
        Format::Yaml => {
            let text = serde_saphyr::to_string(document).map_err(|e| failed(&e))?;
            Ok((text.into_bytes(), YAML))
        }
    }
}

/// A failure, in YAML only for those who take nothing else. Its shape is always a Status.
pub(super) fn failure(error: &ApiError, request: &HeaderMap) -> Response<Body> {
    if let Some(inside) = &error.internal {
        tracing::warn!(reason = error.reason.as_str(), message = %error.message, inside, "a request failed");
    }
    let mut response = error.to_response();
    let wanted = negotiate(request, &Query::default()).unwrap_or_default();
    if wanted.format == Format::Yaml
        && let Ok((bytes, kind)) = encode(&error.to_status(), Format::Yaml)
    {
        *response.body_mut() = body(bytes);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// Adds `Warning` headers: each text once, cut short when they are many.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let total: usize = warnings.iter().map(String::len).sum();
    let (mut seen, mut sent) = (Vec::new(), 0);
    for warning in warnings {
        if seen.contains(&warning) {
            continue;
        }
        seen.push(warning);
        let text = match total > WARNINGS {
            true => warning.chars().take(WARNING).collect(),
            false => warning.clone(),
        };
        let value = HeaderValue::from_str(&quoted(&text));
        sent += text.len();
        if let (Ok(value), true) = (value, sent <= WARNINGS) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// `299 - "text"` (RFC 7234, 5.5), with nothing in it that a header cannot carry.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let clean: String = escaped.chars().filter(|c| !c.is_control()).collect();
    format!("299 - \"{clean}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_once_and_bounded() {
        let mut response = Response::new(body(""));
        let text = "unknown field \"spec.foo\"\n".to_owned();
        warn(&mut response, &[text.clone(), text]);
        let all: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(all, ["299 - \"unknown field \\\"spec.foo\\\"\""]);
        let many: Vec<String> = (0..100)
            .map(|i| format!("{i}{}", "x".repeat(500)))
            .collect();
        let mut response = Response::new(body(""));
        warn(&mut response, &many);
        let bytes: usize = response
            .headers()
            .get_all(header::WARNING)
            .iter()
            .map(HeaderValue::len)
            .sum();
        assert!(bytes > 2000 && bytes < WARNINGS + 1000, "{bytes}");
    }
}
