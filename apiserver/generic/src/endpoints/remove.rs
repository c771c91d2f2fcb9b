//! `DELETE` of an object and of a collection.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::{
    accept::{Shape, Wanted},
    decode,
    list::List,
    media,
    query::Query,
    read::{self, Parts},
    respond,
    shape::Include,
    write_options,
};
use crate::{
    ApiError, Body, Call, Object, Registry, Resource,
    cache::Item,
    registry::{DeleteOptions, Removed, Writer},
    storage::{Key, Revision, Stored},
};

/// `delete`.
pub(super) async fn delete(registry: &Registry, call: Call) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let key = read::key(&call.info);
    let (writer, options) = options(call, &parts.query, &parts.headers).await?;
    match registry.delete(&writer, &key, &options).await? {
        Removed::Gone(last) => {
            let wanted = Wanted {
                shape: Shape::Whole,
                ..parts.wanted
            };
            let status = success(registry.resource(), &last);
            respond::document(StatusCode::OK, &status, wanted, &parts.headers)
        }
        Removed::Waiting(object) => {
            let code = match options.orphan_dependents {
                Some(false) => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            read::object(registry, &object, code, &parts)
        }
    }
}

fn success(row: &Resource, last: &Object) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {
            "name": last.name(), "group": row.group, "kind": row.plural,
            "uid": last.uid().unwrap_or_default(),
        },
    })
}

/// `deletecollection`.
pub(super) async fn delete_collection(
    registry: &Registry,
    call: Call,
) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let list = read::options(registry, &parts.query, &call.info)?;
    let (writer, options) = options(call, &parts.query, &parts.headers).await?;
    let deleted = registry.delete_collection(&writer, &list, &options).await?;
    let list = List {
        items: deleted.into_iter().map(item).collect(),
        metadata: json!({"resourceVersion": registry.cache().revision().to_string()}),
        include: Include::of(&parts.query)?,
    };
    list.respond(registry, parts.wanted, &parts.headers)
}

fn item(object: Object) -> Arc<Item> {
    let revision = object.resource_version().and_then(|v| v.parse().ok());
    let key = Key {
        namespace: object.namespace().map(str::to_owned),
        name: object.name().to_owned(),
    };
    Arc::new(Item::new(Stored {
        key,
        object,
        revision: Revision(revision.unwrap_or_default()),
    }))
}

/// The options of a deletion: its body if it has one, else the query.
async fn options(
    call: Call,
    query: &Query,
    headers: &HeaderMap,
) -> Result<(Writer, DeleteOptions), ApiError> {
    let audit_id = Some(call.audit_id.clone());
    let user = call.authorized.user().clone();
    let bytes = decode::read(call.request.into_body()).await?;
    let body = match bytes.is_empty() {
        true => None,
        false => {
            let decoded = decode::document(&bytes, media::language(headers)?);
            let decoded = decoded.map_err(|why| {
                ApiError::bad_request(format!("DeleteOptions cannot be read: {why}"))
            })?;
            Some(decoded.value)
        }
    };
    let (options, dry_run) = write_options::delete(query, body)?;
    let writer = Writer {
        user,
        dry_run,
        audit_id,
        ..Writer::default()
    };
    Ok((writer, options))
}
