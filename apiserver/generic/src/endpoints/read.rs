//! `GET` of an object and of a collection.

use http::{Response, StatusCode};
use serde_json::json;

use super::{
    accept::{Wanted, negotiate},
    list::{List, view},
    list_options,
    query::Query,
    respond,
    shape::Include,
    token::Token,
};
use crate::{
    ApiError, Body, Call, Object, Reason, Registry,
    cache::Freshness,
    registry::{ListAt, ListOptions, Listed},
    request::RequestInfo,
    storage::{Key, Revision},
};

/// Words for a continue token that is too old; clients show them.
const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The object that a request names.
pub(super) fn key(info: &RequestInfo) -> Key {
    Key {
        namespace: namespace(info),
        name: info.name.clone(),
    }
}

/// The namespace that a request names.
pub(super) fn namespace(info: &RequestInfo) -> Option<String> {
    Some(info.namespace.clone()).filter(|namespace| !namespace.is_empty())
}

/// One object as an answer.
pub(super) fn object(
    registry: &Registry,
    object: &Object,
    code: StatusCode,
    call: &Parts,
) -> Result<Response<Body>, ApiError> {
    let view = view(registry, call.wanted.shape, Include::of(&call.query)?);
    let document = view.single(object)?;
    respond::document(code, &document, call.wanted, &call.headers)
}

/// What shapes the answer to a request.
pub(super) struct Parts {
    pub(super) query: Query,
    pub(super) wanted: Wanted,
    pub(super) headers: http::HeaderMap,
}

impl Parts {
    /// Of a request; fails before anything is done if no answer would be acceptable.
    pub(super) fn of(call: &Call) -> Result<Self, ApiError> {
        let query = Query::of(call.request.uri());
        let headers = call.request.headers().clone();
        let wanted = negotiate(&headers, &query)?;
        Ok(Self {
            query,
            wanted,
            headers,
        })
    }
}

/// `get`.
pub(super) async fn get(registry: &Registry, call: Call) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let freshness = match parts.query.text("resourceVersion") {
        "" => Freshness::Latest,
        "0" => Freshness::Any,
        text => {
            let revision = text.parse().map(Revision);
            let revision = revision.map_err(|_| {
                ApiError::bad_request(format!("invalid resource version: {text:?} is no number"))
            })?;
            Freshness::NotOlderThan(revision)
        }
    };
    let key = key(&call.info);
    drop(call);
    let found = registry.get(&key, freshness).await?;
    object(registry, &found, StatusCode::OK, &parts)
}

/// `list`.
pub(super) async fn list(registry: &Registry, call: Call) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    let include = Include::of(&parts.query)?;
    let options = options(registry, &parts.query, &call.info)?;
    drop(call);
    let listed = registry.list(&options).await;
    let listed = listed.map_err(|error| with_continuation(error, &options))?;
    let metadata = metadata(&listed, &options);
    let list = List {
        items: listed.items,
        metadata,
        include,
    };
    list.respond(registry, parts.wanted, &parts.headers)
}

/// The options of a list, as a request gives them.
pub(super) fn options(
    registry: &Registry,
    query: &Query,
    info: &RequestInfo,
) -> Result<ListOptions, ApiError> {
    let selector =
        list_options::selector(query, registry.strategy().selectable_fields(), &info.name)?;
    list_options::list(query, namespace(info), selector)
}

/// `metadata` of a list.
fn metadata(listed: &Listed, options: &ListOptions) -> serde_json::Value {
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if let (1.., Some(last)) = (listed.remaining, listed.items.last()) {
        let token = Token::after(&last.key, Some(listed.revision), &options.selector);
        metadata["continue"] = json!(token.encode());
        if options.selector.is_everything() {
            metadata["remainingItemCount"] = json!(listed.remaining);
        }
    }
    metadata
}

/// A continued list whose state is gone can go on with the latest one.
fn with_continuation(mut error: ApiError, options: &ListOptions) -> ApiError {
    if let (Reason::Expired, Some(after), ListAt::Exact(_)) =
        (error.reason, &options.after, options.at)
    {
        error.message = TOO_OLD.to_owned();
        let token = Token::after(after, None, &options.selector);
        error.continue_token = Some(token.encode());
    }
    error
}
