//! Discovery: which groups, versions and resources there are.
//!
//! Entry point: [`Discovery::answer`]. All documents are made from the resource rows when the
//! server starts, and answering touches nothing but memory: kube-apiserver calls this server
//! unavailable when it cannot answer, and the garbage collector and namespace deletion of the whole
//! cluster wait for it. Formats: `k8s.io/apiserver/pkg/endpoints/discovery`.

mod accept;
mod aggregated;
mod legacy;
mod version;

use std::collections::BTreeMap;

use http::{HeaderMap, Response};

use crate::{ApiError, Body, Reason, Resource, document::Document};
use accept::Format;
pub use version::VersionInfo;

#[cfg(test)]
mod tests;

/// The documents, by path.
pub struct Discovery {
    plain: BTreeMap<String, Document>,
    v2: Document,
    v2beta1: Document,
}

/// The rows of one group and version, in the order of the table.
pub(crate) struct GroupVersion<'r> {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) rows: Vec<&'r Resource>,
}

/// The rows by group and version. The order of the table is the order of preference.
pub(crate) fn group_versions(rows: &[Resource]) -> Vec<GroupVersion<'_>> {
    let mut all: Vec<GroupVersion<'_>> = Vec::new();
    for row in rows {
        let at = |gv: &&mut GroupVersion<'_>| (gv.group, gv.version) == (row.group, row.version);
        match all.iter_mut().find(at) {
            Some(known) => known.rows.push(row),
            None => all.push(GroupVersion {
                group: row.group,
                version: row.version,
                rows: vec![row],
            }),
        }
    }
    all
}

impl Discovery {
    /// Makes the documents.
    pub fn new(rows: &[Resource], version: &VersionInfo) -> Self {
        let all = group_versions(rows);
        let json = |value| Document::json(&value, "application/json");
        let mut plain = BTreeMap::from([
            ("/apis".to_owned(), json(legacy::group_list(&all))),
            ("/version".to_owned(), json(version.to_json())),
        ]);
        for gv in &all {
            let group = format!("/apis/{}", gv.group);
            plain.insert(
                format!("{group}/{}", gv.version),
                json(legacy::resource_list(gv)),
            );
            plain.insert(group, json(legacy::group(gv.group, &all)));
        }
        let paths: Vec<&str> = plain.keys().map(String::as_str).collect();
        plain.insert("/".to_owned(), json(legacy::paths(&paths)));
        let aggregated = |version| {
            let content_type = aggregated::content_type(version);
            Document::json(&aggregated::document(&all, version), content_type)
        };
        Self {
            plain,
            v2: aggregated("v2"),
            v2beta1: aggregated("v2beta1"),
        }
    }

    /// Answers a path of discovery; `None` when it is none.
    pub fn answer(&self, path: &str, request: &HeaderMap) -> Option<Response<Body>> {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            trimmed => trimmed,
        };
        let plain = self.plain.get(path)?;
        Some(match accept::choose(request, path == "/apis") {
            Some(Format::Plain) => plain.respond(request, "no-cache, private"),
            Some(Format::V2) => self.v2.respond(request, "public"),
            Some(Format::V2Beta1) => self.v2beta1.respond(request, "public"),
            None => not_acceptable().to_response(),
        })
    }
}

fn not_acceptable() -> ApiError {
    ApiError::new(
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json",
    )
}
