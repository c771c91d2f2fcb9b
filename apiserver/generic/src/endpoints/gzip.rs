//! Compressing large answers for those who accept it.
//!
//! As kube-apiserver: from 128 KiB on, at the fastest level, and never what is smaller.

use std::{collections::VecDeque, io::Write as _};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use super::body;
use crate::Body;

/// What is smaller is sent as it is.
const THRESHOLD: usize = 128 << 10;

/// An answer's bytes, made as they are sent.
pub(super) type Chunks = Box<dyn Iterator<Item = Bytes> + Send>;

/// An answer of these bytes.
pub(super) fn respond(mut chunks: Chunks, request: &HeaderMap) -> Response<Body> {
    let (mut first, mut size) = (VecDeque::new(), 0);
    while size <= THRESHOLD {
        let Some(chunk) = chunks.next() else {
            let whole: Vec<u8> = first.into_iter().flat_map(|c: Bytes| c.to_vec()).collect();
            return Response::new(body(whole));
        };
        size += chunk.len();
        first.push_back(chunk);
    }
    let all = first.into_iter().chain(chunks);
    if !accepts_gzip(request) {
        return vary(Response::new(stream_body(all)));
    }
    let compressed = Compressed {
        chunks: Some(all),
        encoder: GzEncoder::new(Vec::new(), Compression::fast()),
    };
    let mut response = vary(Response::new(stream_body(compressed)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

fn vary(mut response: Response<Body>) -> Response<Body> {
    let vary = HeaderValue::from_static("Accept-Encoding");
    response.headers_mut().insert(header::VARY, vary);
    response
}

fn stream_body(chunks: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    let frames = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
    StreamBody::new(frames).boxed_unsync()
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = parameters.trim().trim_start_matches("q=").parse() == Ok(0.0_f32);
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

/// Compresses chunk by chunk.
struct Compressed<I> {
    /// `None` once the end is written.
    chunks: Option<I>,
    encoder: GzEncoder<Vec<u8>>,
}

impl<I: Iterator<Item = Bytes>> Iterator for Compressed<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            // Writing into a vector does not fail.
            match self.chunks.as_mut()?.next() {
                Some(chunk) => self.encoder.write_all(&chunk).ok()?,
                None => {
                    self.chunks = None;
                    self.encoder.try_finish().ok()?;
                }
            }
            let ready = std::mem::take(self.encoder.get_mut());
            if !ready.is_empty() || self.chunks.is_none() {
                return Some(ready.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    async fn answer(bytes: usize, accept: &str) -> (Option<HeaderValue>, Vec<u8>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        let chunks = (0..bytes / 1000).map(|i| Bytes::from(vec![b'a' + (i % 7) as u8; 1000]));
        let response = respond(Box::new(chunks), &headers);
        let encoding = response.headers().get(header::CONTENT_ENCODING).cloned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (encoding, body.to_vec())
    }

    #[tokio::test]
    async fn only_large_answers_are_compressed_and_come_back_whole() {
        let (encoding, plain) = answer(300_000, "identity").await;
        assert_eq!((encoding, plain.len()), (None, 300_000));
        let (encoding, small) = answer(100_000, "gzip").await;
        assert_eq!((encoding, small.len()), (None, 100_000));
        let (encoding, packed) = answer(300_000, "deflate, gzip;q=0.8").await;
        assert_eq!(encoding.unwrap(), "gzip");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut unpacked)
            .unwrap();
        assert_eq!(unpacked, plain);
        assert_eq!(answer(300_000, "gzip;q=0").await.0, None);
    }
}
