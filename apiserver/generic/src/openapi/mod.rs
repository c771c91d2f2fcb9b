//! OpenAPI: what the resources look like, for `kubectl explain`, validation and code generators.
//!
//! Entry point: [`OpenApi::answer`]. Both versions are made from the resource rows when the server
//! starts, and checked: kube-apiserver merges version 2 of every server into one document, and one
//! key that Swagger 2.0 does not know would break that document for the whole cluster.
//!
//! A version 3 document asked for with the hash of another build is answered with the current one.
//! Go's server redirects, which kube-apiserver turns into 502.

mod meta;
mod names;
mod operations;
mod swagger;
mod v2;
mod v3;

use std::collections::BTreeMap;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    Body, Resource,
    discovery::{VersionInfo, group_versions},
    document::Document,
    request, respond,
};

pub use operations::PATCH_TYPES;

#[cfg(test)]
mod tests;

/// The documents cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenApiError {
    /// The rows make a document that clients would choke on.
    #[error("the OpenAPI v2 document would not be valid Swagger 2.0: {0}")]
    Swagger(String),
    /// The shared types that the program carries are broken.
    #[error("the definitions of meta.v1 in this program are broken: {0}")]
    Meta(#[from] serde_json::Error),
}

/// The documents.
pub struct OpenApi {
    v2: Document,
    v3_root: Document,
    v3: BTreeMap<String, Document>,
}

impl OpenApi {
    /// Makes the documents.
    ///
    /// # Errors
    /// When a schema leads to a document that is not valid.
    pub fn new(
        rows: &[Resource],
        title: &str,
        version: &VersionInfo,
    ) -> Result<Self, OpenApiError> {
        let info = json!({"title": title, "version": format!("v{}", version.version)});
        let v2 = v2::document(rows, &info)?;
        swagger::check(&v2).map_err(OpenApiError::Swagger)?;
        let mut v3 = BTreeMap::new();
        for gv in group_versions(rows) {
            let document = v3::document(&gv.rows, &info)?;
            let path = format!("apis/{}/{}", gv.group, gv.version);
            v3.insert(path, Document::json(&document, "application/json"));
        }
        Ok(Self {
            v2: Document::json(&v2, "application/json"),
            v3_root: Document::json(&root(&v3), "application/json"),
            v3,
        })
    }

    /// Answers a path below `/openapi`; `None` when it is none.
    pub fn answer(&self, path: &str, query: &str, request: &HeaderMap) -> Option<Response<Body>> {
        let path = path.strip_prefix("/openapi/")?.trim_end_matches('/');
        if path == "v2" {
            return Some(if wants_json(request) {
                self.v2.respond(request, "no-cache, private")
            } else {
                not_acceptable()
            });
        }
        let path = path.strip_prefix("v3")?;
        if path.is_empty() {
            return Some(self.v3_root.respond(request, "no-cache, private"));
        }
        let document = self.v3.get(path.strip_prefix('/')?)?;
        if !wants_json(request) {
            return Some(not_acceptable());
        }
        let current = request::first(query, "hash").is_some_and(|hash| hash == document.hash());
        let caching = if current {
            "public, immutable, max-age=31536000"
        } else {
            "no-cache, private"
        };
        Some(document.respond(request, caching))
    }
}

fn root(documents: &BTreeMap<String, Document>) -> Value {
    let paths: BTreeMap<&str, Value> = documents
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash());
            (path.as_str(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// Whether JSON is among the accepted types. The protobuf form is not offered: kube-apiserver asks
/// for JSON, and makes protobuf for its own clients.
fn wants_json(request: &HeaderMap) -> bool {
    let mut accept = request
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|clause| clause.split(';').next().unwrap_or_default().trim())
        .peekable();
    accept.peek().is_none()
        || accept.any(|kind| matches!(kind, "" | "*/*" | "application/*" | "application/json"))
}

fn not_acceptable() -> Response<Body> {
    respond::text(
        StatusCode::NOT_ACCEPTABLE,
        "only the following media types are accepted: application/json\n",
    )
}
