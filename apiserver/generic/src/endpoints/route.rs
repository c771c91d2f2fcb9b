//! Which endpoint a request is for, or why none. Pure.

use crate::{
    ApiError, Reason, Resource, Scope, Verb,
    request::RequestInfo,
    resource::{Rest, Subresource},
    status::qualified,
};

/// Subresource that registries serve themselves.
const STATUS: &str = "status";

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Route {
    Get {
        subresource: Option<&'static str>,
    },
    List,
    Watch,
    Create,
    Update {
        subresource: Option<&'static str>,
    },
    Patch {
        subresource: Option<&'static str>,
    },
    Delete,
    DeleteCollection,
    /// A subresource with a handler of its own.
    Connect(&'static str),
}

/// 404 for a path that nothing serves; clients know these words.
pub(super) fn unknown_path() -> ApiError {
    ApiError::new(
        Reason::NotFound,
        "the server could not find the requested resource",
    )
}

/// Finds the endpoint.
pub(super) fn route(row: &Resource, info: &RequestInfo) -> Result<Route, ApiError> {
    let in_group = info.group == row.group && info.version == row.version;
    let misplaced = row.scope == Scope::Cluster && !info.namespace.is_empty();
    if !in_group || misplaced {
        return Err(unknown_path());
    }
    match info.subresource.as_str() {
        "" => main(row, info),
        name => match row.subresource(name) {
            Some(subresource) => sub(row, info, subresource),
            None => Err(unknown_path()),
        },
    }
}

fn main(row: &Resource, info: &RequestInfo) -> Result<Route, ApiError> {
    let verb = allowed(row, info, row.verbs)?;
    let needs_namespace = row.scope == Scope::Namespaced && info.namespace.is_empty();
    let across = matches!(verb, Verb::List | Verb::Watch);
    if needs_namespace && !across {
        // A name without a namespace is no path; a collection across namespaces is read only.
        return Err(match verb {
            Verb::Create | Verb::DeleteCollection => not_allowed(row, &info.verb),
            _ => unknown_path(),
        });
    }
    let named = !info.name.is_empty();
    let route = match verb {
        Verb::List => Route::List,
        Verb::Watch => Route::Watch,
        Verb::DeleteCollection => Route::DeleteCollection,
        Verb::Create if !named => Route::Create,
        Verb::Get if named => Route::Get { subresource: None },
        Verb::Update if named => Route::Update { subresource: None },
        Verb::Patch if named => Route::Patch { subresource: None },
        Verb::Delete if named => Route::Delete,
        _ => return Err(not_allowed(row, &info.verb)),
    };
    Ok(route)
}

fn sub(row: &Resource, info: &RequestInfo, of: &Subresource) -> Result<Route, ApiError> {
    let verb = allowed(row, info, of.verbs)?;
    let fits = match of.rest {
        Rest::None => info.rest.is_empty(),
        Rest::Segment => info.rest.len() <= 1,
        Rest::Path => true,
    };
    let needs_namespace = row.scope == Scope::Namespaced && info.namespace.is_empty();
    if !fits || info.name.is_empty() || needs_namespace {
        return Err(unknown_path());
    }
    if of.name != STATUS {
        return Ok(Route::Connect(of.name));
    }
    let subresource = Some(of.name);
    match verb {
        Verb::Get => Ok(Route::Get { subresource }),
        Verb::Update => Ok(Route::Update { subresource }),
        Verb::Patch => Ok(Route::Patch { subresource }),
        _ => Err(not_allowed(row, &info.verb)),
    }
}

fn allowed(row: &Resource, info: &RequestInfo, verbs: &[Verb]) -> Result<Verb, ApiError> {
    let verb = Verb::ALL.into_iter().find(|v| v.as_str() == info.verb);
    verb.filter(|verb| verbs.contains(verb))
        .ok_or_else(|| not_allowed(row, &info.verb))
}

fn not_allowed(row: &Resource, verb: &str) -> ApiError {
    let what = qualified(row.group, row.plural);
    ApiError::new(
        Reason::MethodNotAllowed,
        format!("{verb} is not supported on resources of kind \"{what}\""),
    )
    .about(row.group, row.plural, "")
}
