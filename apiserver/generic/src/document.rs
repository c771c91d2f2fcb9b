//! A document that is made once and served many times: serialized, compressed and hashed ahead.
//!
//! Discovery and OpenAPI are such documents: kube-apiserver asks for them every minute, mostly with
//! the ETag that it has already.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use ring::digest::{SHA512, digest};
use serde_json::Value;

use crate::{Body, call::full};

/// A document is compressed only from this size on; below, it fits into one packet or two.
const WORTH_COMPRESSING: usize = 2_048;

/// A document, ready to be sent.
#[derive(Clone, Debug)]
pub struct Document {
    body: Bytes,
    gzip: Option<Bytes>,
    hash: String,
    content_type: HeaderValue,
}

impl Document {
    /// Serializes and compresses `value`.
    pub fn json(value: &Value, content_type: &'static str) -> Self {
        let body = Bytes::from(value.to_string());
        let hash = digest(&SHA512, &body)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        Self {
            gzip: (body.len() >= WORTH_COMPRESSING)
                .then(|| gzip(&body))
                .flatten(),
            body,
            hash,
            content_type: HeaderValue::from_static(content_type),
        }
    }

    /// Its SHA-512 in upper-case hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The document, or 304 when the caller has it.
    pub fn respond(&self, request: &HeaderMap, caching: &'static str) -> Response<Body> {
        let etag = format!("\"{}\"", self.hash);
        let unchanged = request
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .any(|tag| tag.trim().trim_start_matches("W/") == etag);
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(request));
        let mut response = match (unchanged, gzip) {
            (true, _) => Response::new(full("")),
            (false, Some(gzip)) => Response::new(full(gzip.clone())),
            (false, None) => Response::new(full(self.body.clone())),
        };
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        if !unchanged {
            headers.insert(header::CONTENT_TYPE, self.content_type.clone());
            if gzip.is_some() {
                let encoding = HeaderValue::from_static("gzip");
                headers.insert(header::CONTENT_ENCODING, encoding);
            }
        }
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        let vary = HeaderValue::from_static("Accept, Accept-Encoding");
        headers.insert(header::VARY, vary);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        response
    }
}

fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    request
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|coding| {
            let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
            let refused = matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
            name.trim().eq_ignore_ascii_case("gzip") && !refused
        })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    fn request(name: &'static str, value: &str) -> HeaderMap {
        [(http::HeaderName::from_static(name), value.parse().unwrap())]
            .into_iter()
            .collect()
    }

    #[tokio::test]
    async fn a_document_is_sent_once_and_then_304() {
        let document = Document::json(&json!({"a": 1}), "application/json");
        let first = document.respond(&HeaderMap::new(), "public");
        assert_eq!(first.status(), 200);
        assert_eq!(first.headers()["content-type"], "application/json");
        assert_eq!(first.headers()["cache-control"], "public");
        let etag = first.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(etag.len(), 128 + 2);
        assert_eq!(
            first.into_body().collect().await.unwrap().to_bytes(),
            r#"{"a":1}"#
        );
        for (tag, code) in [
            (etag.clone(), 304),
            (format!("\"x\", {etag}"), 304),
            ("\"x\"".into(), 200),
        ] {
            let response = document.respond(&request("if-none-match", &tag), "public");
            assert_eq!(response.status(), code, "{tag}");
            assert_eq!(response.headers()["etag"], etag.as_str());
        }
    }

    #[tokio::test]
    async fn a_long_document_is_compressed_for_who_can_read_it() {
        let value = json!({"a": "x".repeat(5_000)});
        let document = Document::json(&value, "application/json");
        let packed = document.respond(&request("accept-encoding", "br, gzip"), "public");
        assert_eq!(packed.headers()["content-encoding"], "gzip");
        let bytes = packed.into_body().collect().await.unwrap().to_bytes();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, value.to_string());
        for plain in ["", "gzip;q=0", "br"] {
            let response = document.respond(&request("accept-encoding", plain), "public");
            assert!(
                !response.headers().contains_key("content-encoding"),
                "{plain}"
            );
        }
    }
}
