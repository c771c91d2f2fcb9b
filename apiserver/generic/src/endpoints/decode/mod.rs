//! Reading bodies: bounded, in JSON or YAML, with keys that are given twice seen.

mod document;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, LengthLimitError};
use serde_json::Value;

pub use document::{Decoded, parse_json, parse_yaml};

use super::media::Language;
use crate::{ApiError, Body, Object, Reason, call::BodyError, registry::Submission};

/// Most bytes of a body.
pub(super) const LIMIT: usize = 3 << 20;

/// Reads a whole body.
pub(super) async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(unreadable)?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > LIMIT {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

fn unreadable(error: BodyError) -> ApiError {
    if error.is::<LengthLimitError>() {
        return too_large();
    }
    ApiError::bad_request("the request's body could not be read to its end").because(error)
}

fn too_large() -> ApiError {
    ApiError::new(
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {LIMIT}"),
    )
}

/// Decodes a document.
pub(super) fn document(bytes: &[u8], language: Language) -> Result<Decoded, String> {
    match language {
        Language::Json => parse_json(bytes),
        Language::Yaml => parse_yaml(bytes),
    }
}

/// Decodes an object of a kind; a body without type is of the kind that the URL names.
pub(super) fn object(
    bytes: &[u8],
    language: Language,
    row: &crate::Resource,
) -> Result<Submission, ApiError> {
    let cannot = |why: &str| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            row.kind, row.version, row.kind
        ))
    };
    let Decoded { value, duplicates } = document(bytes, language).map_err(|why| cannot(&why))?;
    let Ok(object) = Object::from_value(value) else {
        return Err(cannot("the body is not an object"));
    };
    check_type(&object, row)?;
    let faults = duplicates
        .iter()
        .map(|path| format!("duplicate field \"{path}\""));
    Ok(Submission {
        faults: faults.collect(),
        object,
    })
}

fn check_type(object: &Object, row: &crate::Resource) -> Result<(), ApiError> {
    let given = |field: &str| match object.fields().get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(ApiError::bad_request(format!("{field} must be a string"))),
    };
    let expected = row.api_version();
    if let Some(version) = given("apiVersion")?.filter(|v| *v != expected) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if let Some(kind) = given("kind")?.filter(|k| k != row.kind) {
        let why = format!("must be {}", row.kind);
        let cause = crate::registry::invalid("kind", &Value::String(kind), &why);
        return Err(ApiError::invalid(
            row.group,
            row.kind,
            object.name(),
            vec![cause],
        ));
    }
    Ok(())
}
