//! What a request body is written in. Pure.

use http::{HeaderMap, header};

use crate::{ApiError, Reason};

/// Media type of a body, without parameters, in lower case; empty if none is given.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// A language that objects are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// JSON, also when nothing is said.
    Json,
    /// YAML.
    Yaml,
}

/// The language of a body that is an object.
pub(super) fn language(headers: &HeaderMap) -> Result<Language, ApiError> {
    match content_type(headers).as_str() {
        "" | "*/*" | "application/json" => Ok(Language::Json),
        "application/yaml" => Ok(Language::Yaml),
        _ => Err(unsupported(&["application/json", "application/yaml"], "")),
    }
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
}

const PATCHES: [&str; 2] = [
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// The kind of a patch.
pub(super) fn patch_kind(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    match content_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(unsupported(
            &PATCHES,
            " (server-side apply is not offered by this server)",
        )),
        "application/strategic-merge-patch+json" => Err(unsupported(
            &PATCHES,
            " (strategic merge patch is not offered, as for custom resources; use a merge patch)",
        )),
        _ => Err(unsupported(&PATCHES, "")),
    }
}

fn unsupported(accepted: &[&str], why: &str) -> ApiError {
    let list = accepted.join(", ");
    ApiError::new(
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {list}{why}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        headers
    }

    #[test]
    fn languages() {
        assert_eq!(language(&HeaderMap::new()), Ok(Language::Json));
        assert_eq!(
            language(&headers("application/json; charset=utf-8")),
            Ok(Language::Json)
        );
        assert_eq!(language(&headers("application/YAML")), Ok(Language::Yaml));
        let protobuf = language(&headers("application/vnd.kubernetes.protobuf")).unwrap_err();
        assert_eq!(protobuf.reason, Reason::UnsupportedMediaType);
    }

    #[test]
    fn patches_that_are_not_offered_say_so() {
        assert_eq!(
            patch_kind(&headers("application/merge-patch+json")),
            Ok(PatchKind::Merge)
        );
        for kind in [
            "application/apply-patch+yaml",
            "application/strategic-merge-patch+json",
        ] {
            let error = patch_kind(&headers(kind)).unwrap_err();
            assert_eq!(error.reason, Reason::UnsupportedMediaType);
            assert!(error.message.contains("not offered"));
        }
    }
}
