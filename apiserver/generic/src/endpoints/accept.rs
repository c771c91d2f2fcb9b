//! What the caller accepts: a format and a shape. Pure.
//!
//! Mirrors `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`. Clauses that cannot be served are
//! skipped, so that a Protobuf client that also takes JSON gets JSON.

use http::{HeaderMap, header};

use super::query::Query;
use crate::{ApiError, Reason};

/// How an answer is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON on one line.
    #[default]
    Json,
    /// JSON for people.
    Pretty,
    /// YAML.
    Yaml,
}

/// Version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// `meta.k8s.io/v1`.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What an answer shows of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// All.
    #[default]
    Whole,
    /// Rows and columns.
    Table(MetaVersion),
    /// Metadata of one object.
    Partial(MetaVersion),
    /// Metadata of many objects.
    PartialList(MetaVersion),
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) format: Format,
    pub(super) shape: Shape,
}

/// Chooses.
pub(super) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Wanted, ApiError> {
    let text = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect::<Vec<_>>()
        .join(",");
    let mut wanted = if text.trim().is_empty() {
        Wanted::default()
    } else {
        best(&text).ok_or_else(not_acceptable)?
    };
    if wanted.format == Format::Json && pretty(headers, query) {
        wanted.format = Format::Pretty;
    }
    Ok(wanted)
}

/// 406.
pub(super) fn not_acceptable() -> ApiError {
    ApiError::new(
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json, application/yaml",
    )
}

/// People at a terminal or a browser get indented JSON.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(asked) = query.switch("pretty") {
        return asked;
    }
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|a| a.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|human| agent.starts_with(human))
}

fn best(accept: &str) -> Option<Wanted> {
    let mut clauses: Vec<(f32, u8, Wanted)> = accept.split(',').filter_map(clause).collect();
    // Stable: among equals the first wins.
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    clauses.first().map(|(_, _, wanted)| *wanted)
}

/// Quality, how specific it is, and what it asks for; `None` if it cannot be served.
fn clause(text: &str) -> Option<(f32, u8, Wanted)> {
    let mut parts = text.split(';').map(str::trim);
    let (mut format, specific) = match parts.next()?.to_ascii_lowercase().as_str() {
        "application/json" => (Format::Json, 2),
        "application/yaml" => (Format::Yaml, 2),
        "application/*" => (Format::Json, 1),
        "*/*" | "*" => (Format::Json, 0),
        _ => return None,
    };
    let (mut quality, mut kind, mut group, mut version) = (1.0, "", "", "");
    for parameter in parts {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match key.trim() {
            "q" => quality = value.trim().parse().ok()?,
            "as" => kind = value.trim(),
            "g" => group = value.trim(),
            "v" => version = value.trim(),
            "pretty" if format == Format::Json && value.trim() == "1" => format = Format::Pretty,
            _ => {}
        }
    }
    let shape = shape(kind, group, version)?;
    (quality > 0.0).then_some((quality, specific, Wanted { format, shape }))
}

fn shape(kind: &str, group: &str, version: &str) -> Option<Shape> {
    if kind.is_empty() {
        return Some(Shape::Whole);
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" => Some(Shape::Partial(version)),
        "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &str) -> Option<Wanted> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(&headers, &Query::default()).ok()
    }

    #[test]
    fn clients_get_what_they_can_read() {
        let json = Wanted::default();
        let shaped = |shape| Some(Wanted { shape, ..json });
        let v1 = MetaVersion::V1;
        for (accept, expected) in [
            ("", Some(json)),
            ("*/*", Some(json)),
            ("application/json", Some(json)),
            (
                "application/yaml",
                Some(Wanted {
                    format: Format::Yaml,
                    ..json
                }),
            ),
            (
                "application/json;q=0.5,application/yaml",
                Some(Wanted {
                    format: Format::Yaml,
                    ..json
                }),
            ),
            (
                "*/*,application/yaml",
                Some(Wanted {
                    format: Format::Yaml,
                    ..json
                }),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                shaped(Shape::Table(v1)),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                shaped(Shape::Table(MetaVersion::V1Beta1)),
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Some(json),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                shaped(Shape::PartialList(v1)),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(json),
            ),
            ("application/json;drop=metadata.managedFields", Some(json)),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
            ("application/json;q=0", None),
        ] {
            assert_eq!(wanted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn people_get_indented_json() {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "curl/8".parse().unwrap());
        let of = |uri: &str| {
            negotiate(&headers, &Query::of(&uri.parse().unwrap()))
                .unwrap()
                .format
        };
        assert_eq!(of("/x"), Format::Pretty);
        assert_eq!(of("/x?pretty=false"), Format::Json);
    }
}
