//! `POST`, `PUT` and `PATCH`.

use http::{Response, StatusCode};
use serde_json::Value;

use super::{
    decode,
    media::{self, PatchKind},
    read::{self, Parts},
    respond, write_options,
};
use crate::{
    ApiError, Body, Call, Object, Reason, Registry,
    registry::{OPERATIONS, Patch, Written},
};

/// `create`.
pub(super) async fn create(registry: &Registry, call: Call) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let writer = write_options::writer(&call, &parts.query, "CreateOptions")?;
    let language = media::language(&parts.headers)?;
    let namespace = read::namespace(&call.info);
    let bytes = decode::read(call.request.into_body()).await?;
    let submission = decode::object(&bytes, language, registry.resource())?;
    check_namespace(&submission.object, namespace.as_deref())?;
    let written = registry
        .create(&writer, namespace.as_deref(), submission)
        .await?;
    answer(registry, written, StatusCode::CREATED, &parts)
}

/// `update`.
pub(super) async fn update(
    registry: &Registry,
    call: Call,
    subresource: Option<&str>,
) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let writer = write_options::writer(&call, &parts.query, "UpdateOptions")?;
    let language = media::language(&parts.headers)?;
    let key = read::key(&call.info);
    let bytes = decode::read(call.request.into_body()).await?;
    let submission = decode::object(&bytes, language, registry.resource())?;
    check_namespace(&submission.object, key.namespace.as_deref())?;
    if submission.object.name().is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            key.name
        )));
    }
    let written = registry
        .update(&writer, &key, subresource, submission)
        .await?;
    answer(registry, written, StatusCode::OK, &parts)
}

/// `patch`.
pub(super) async fn patch(
    registry: &Registry,
    call: Call,
    subresource: Option<&str>,
) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let kind = media::patch_kind(&parts.headers)?;
    let writer = write_options::writer(&call, &parts.query, "PatchOptions")?;
    let key = read::key(&call.info);
    let bytes = decode::read(call.request.into_body()).await?;
    let patch = decode_patch(&bytes, kind)?;
    let written = registry.patch(&writer, &key, subresource, &patch).await?;
    answer(registry, written, StatusCode::OK, &parts)
}

fn decode_patch(bytes: &[u8], kind: PatchKind) -> Result<Patch, ApiError> {
    let undecodable =
        |why: String| ApiError::bad_request(format!("the patch cannot be read: {why}"));
    match kind {
        PatchKind::Json => {
            let patch: json_patch::Patch =
                serde_json::from_slice(bytes).map_err(|error| undecodable(error.to_string()))?;
            if patch.0.len() > OPERATIONS {
                return Err(ApiError::new(
                    Reason::RequestEntityTooLarge,
                    format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS}, got {}",
                        patch.0.len()
                    ),
                ));
            }
            Ok(Patch::Json(patch))
        }
        PatchKind::Merge => {
            let decoded = decode::parse_json(bytes).map_err(undecodable)?;
            if !matches!(decoded.value, Value::Object(_)) {
                return Err(undecodable("a merge patch must be an object".to_owned()));
            }
            let faults = decoded.duplicates.iter();
            Ok(Patch::Merge {
                faults: faults
                    .map(|path| format!("duplicate field \"{path}\""))
                    .collect(),
                document: decoded.value,
            })
        }
    }
}

/// A body's namespace is that of its URL, or absent.
fn check_namespace(object: &Object, namespace: Option<&str>) -> Result<(), ApiError> {
    match (object.namespace(), namespace) {
        (Some(given), Some(url)) if given != url => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => Ok(()),
    }
}

fn answer(
    registry: &Registry,
    written: Written,
    code: StatusCode,
    parts: &Parts,
) -> Result<Response<Body>, ApiError> {
    let mut response = read::object(registry, &written.object, code, parts)?;
    respond::warn(&mut response, &written.warnings);
    Ok(response)
}
