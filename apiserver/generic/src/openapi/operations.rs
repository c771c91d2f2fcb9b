//! The operations of a resource, independent of how a version of OpenAPI writes them down.
//!
//! kubectl finds a kind through the operations' group, version and kind, and sends
//! `fieldValidation` only where a PATCH says that it takes it: without that parameter
//! `--validate=strict` silently checks nothing.

use super::names;
use crate::{Resource, Scope, Subresource, Verb, resource::Rest};

/// Media types that PATCH takes.
pub const PATCH_TYPES: [&str; 2] = [
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// A parameter's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
}

/// A query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) description: &'static str,
}

/// What a request's body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// None.
    Nothing,
    /// The object itself.
    Object,
    /// A patch.
    Patch,
    /// Options of a deletion, which may be left out.
    DeleteOptions,
    /// Options of an action, of the operation's kind, which may be left out.
    Options,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// The object.
    Object,
    /// A list of objects.
    List,
    /// A Status.
    Status,
    /// A stream or whatever the subresource sends.
    Any,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) action: &'static str,
    pub(super) id: String,
    pub(super) description: String,
    pub(super) query: Vec<Query>,
    pub(super) input: Input,
    pub(super) output: Output,
    /// HTTP codes of success.
    pub(super) codes: &'static [u16],
    /// Kind that the operation is about.
    pub(super) kind: &'static str,
}

/// One path, with the names of its path parameters.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) path: String,
    pub(super) parameters: Vec<&'static str>,
    pub(super) operations: Vec<Operation>,
}

const fn text(name: &'static str, description: &'static str) -> Query {
    Query {
        name,
        kind: Kind::Text,
        description,
    }
}

const fn number(name: &'static str, description: &'static str) -> Query {
    Query {
        name,
        kind: Kind::Number,
        description,
    }
}

const fn flag(name: &'static str, description: &'static str) -> Query {
    Query {
        name,
        kind: Kind::Flag,
        description,
    }
}

const WRITE: [Query; 3] = [
    text("dryRun", "All: nothing is stored."),
    text("fieldManager", "Name under which the fields are set."),
    text(
        "fieldValidation",
        "Ignore, Warn or Strict: what happens to unknown and duplicate fields.",
    ),
];

const COLLECTION: [Query; 10] = [
    flag("allowWatchBookmarks", "Asks a watch for bookmarks."),
    text("continue", "Token of the next part of a list."),
    text("fieldSelector", "Restricts the objects by their fields."),
    text("labelSelector", "Restricts the objects by their labels."),
    number("limit", "At most so many objects in one part."),
    text("resourceVersion", "Version that the answer must have."),
    text("resourceVersionMatch", "NotOlderThan or Exact."),
    flag(
        "sendInitialEvents",
        "Starts a watch with the objects that there are.",
    ),
    number("timeoutSeconds", "How long a watch lasts."),
    flag("watch", "Watches instead of listing."),
];

const DELETE: [Query; 4] = [
    text("dryRun", "All: nothing is stored."),
    number(
        "gracePeriodSeconds",
        "Seconds that the object has to end gracefully.",
    ),
    flag("orphanDependents", "Deprecated: use propagationPolicy."),
    text("propagationPolicy", "Orphan, Background or Foreground."),
];

/// All paths of a resource.
pub(super) fn paths(row: &Resource) -> Vec<Path> {
    let base = format!("/apis/{}/{}", row.group, row.version);
    let namespaced = row.scope == Scope::Namespaced;
    let (home, parameters) = match row.scope {
        Scope::Cluster => (format!("{base}/{}", row.plural), Vec::new()),
        Scope::Namespaced => {
            let home = format!("{base}/namespaces/{{namespace}}/{}", row.plural);
            (home, vec!["namespace"])
        }
    };
    let mut of_object = vec!["name"];
    of_object.extend(&parameters);
    let mut all = vec![
        Path {
            path: home.clone(),
            parameters,
            operations: collection(row, namespaced),
        },
        Path {
            path: format!("{home}/{{name}}"),
            parameters: of_object.clone(),
            operations: single(row, namespaced),
        },
    ];
    if namespaced && row.verbs.contains(&Verb::List) {
        all.push(Path {
            path: format!("{base}/{}", row.plural),
            parameters: Vec::new(),
            operations: vec![list(row, false, "ForAllNamespaces")],
        });
    }
    for sub in &row.subresources {
        let (tail, parameter) = match sub.rest {
            Rest::None => (String::new(), None),
            Rest::Segment => ("/{port}".to_owned(), Some("port")),
            Rest::Path => ("/{path}".to_owned(), Some("path")),
        };
        let mut parameters = of_object.clone();
        parameters.extend(parameter);
        all.push(Path {
            path: format!("{home}/{{name}}/{}{tail}", sub.name),
            parameters,
            operations: of_subresource(row, sub, namespaced),
        });
    }
    all.retain(|path| !path.operations.is_empty());
    all
}

fn collection(row: &Resource, namespaced: bool) -> Vec<Operation> {
    let mut out = Vec::new();
    if row.verbs.contains(&Verb::List) {
        out.push(list(row, namespaced, ""));
    }
    if row.verbs.contains(&Verb::Create) {
        out.push(Operation {
            query: WRITE.to_vec(),
            input: Input::Object,
            codes: &[200, 201, 202],
            ..operation(
                row,
                "post",
                "post",
                names::operation(row, "create", namespaced, ""),
                format!("create a {}", row.kind),
            )
        });
    }
    if row.verbs.contains(&Verb::DeleteCollection) {
        out.push(Operation {
            query: DELETE
                .iter()
                .chain(&COLLECTION)
                .filter(|q| q.name != "watch")
                .copied()
                .collect(),
            input: Input::DeleteOptions,
            output: Output::Status,
            ..operation(
                row,
                "delete",
                "deletecollection",
                names::operation(row, "deleteCollection", namespaced, ""),
                format!("delete a collection of {}", row.kind),
            )
        });
    }
    out
}

fn list(row: &Resource, namespaced: bool, rest: &str) -> Operation {
    Operation {
        query: COLLECTION.to_vec(),
        output: Output::List,
        ..operation(
            row,
            "get",
            "list",
            names::operation(row, "list", namespaced, rest),
            format!("list or watch objects of kind {}", row.kind),
        )
    }
}

fn single(row: &Resource, namespaced: bool) -> Vec<Operation> {
    of_verbs(row, row.verbs, row.kind, namespaced, "")
}

fn of_subresource(row: &Resource, sub: &Subresource, namespaced: bool) -> Vec<Operation> {
    // A subresource that answers with the object itself and can be updated is a view of it.
    if sub.verbs.contains(&Verb::Update) && sub.kind == row.kind {
        return of_verbs(row, sub.verbs, sub.kind, namespaced, sub.name);
    }
    let method = |verb: &Verb| match verb {
        Verb::Get => Some("get"),
        Verb::Create => Some("post"),
        Verb::Update => Some("put"),
        Verb::Patch => Some("patch"),
        Verb::Delete => Some("delete"),
        Verb::DeleteCollection | Verb::List | Verb::Watch => None,
    };
    sub.verbs
        .iter()
        .filter_map(method)
        .map(|method| {
            let id = names::operation(
                row,
                &format!("connect{}", method.to_uppercase()),
                namespaced,
                sub.name,
            );
            let text = format!(
                "connect {} requests to {} of {}",
                method.to_uppercase(),
                sub.name,
                row.kind
            );
            if method == "post" && row.options(sub.kind).is_some() {
                return act(row, sub, namespaced);
            }
            Operation {
                output: Output::Any,
                kind: sub.kind,
                // kubectl takes any PATCH of a kind for its own: it must say fieldValidation too.
                query: if method == "patch" {
                    WRITE.to_vec()
                } else {
                    Vec::new()
                },
                ..operation(row, method, "connect", id, text)
            }
        })
        .collect()
}

/// An action, with its options.
fn act(row: &Resource, sub: &Subresource, namespaced: bool) -> Operation {
    let id = names::operation(row, "create", namespaced, sub.name);
    let text = format!("{} the specified {}", sub.name, row.kind);
    Operation {
        query: WRITE.to_vec(),
        input: Input::Options,
        output: Output::Status,
        kind: sub.kind,
        ..operation(row, "post", "post", id, text)
    }
}

/// get, put, patch and delete of one object, or of one view of it.
fn of_verbs(
    row: &Resource,
    verbs: &[Verb],
    kind: &'static str,
    namespaced: bool,
    rest: &str,
) -> Vec<Operation> {
    let what = if rest.is_empty() {
        format!("the specified {kind}")
    } else {
        format!("{rest} of the specified {kind}")
    };
    let make = |method, action, verb: &str| {
        let id = names::operation(row, verb, namespaced, rest);
        operation(
            row,
            method,
            action,
            id,
            format!("{} {what}", verb_in_words(verb)),
        )
    };
    let mut out = Vec::new();
    if verbs.contains(&Verb::Get) {
        out.push(make("get", "get", "read"));
    }
    if verbs.contains(&Verb::Update) {
        out.push(Operation {
            query: WRITE.to_vec(),
            input: Input::Object,
            codes: &[200, 201],
            ..make("put", "put", "replace")
        });
    }
    if verbs.contains(&Verb::Patch) {
        out.push(Operation {
            query: WRITE.to_vec(),
            input: Input::Patch,
            codes: &[200, 201],
            ..make("patch", "patch", "patch")
        });
    }
    if verbs.contains(&Verb::Delete) {
        out.push(Operation {
            query: DELETE.to_vec(),
            input: Input::DeleteOptions,
            output: Output::Status,
            codes: &[200, 202],
            ..make("delete", "delete", "delete")
        });
    }
    out
}

fn verb_in_words(verb: &str) -> &str {
    match verb {
        "patch" => "partially update",
        other => other,
    }
}

fn operation(
    row: &Resource,
    method: &'static str,
    action: &'static str,
    id: String,
    description: String,
) -> Operation {
    Operation {
        method,
        action,
        id,
        description,
        query: Vec::new(),
        input: Input::Nothing,
        output: Output::Object,
        codes: &[200],
        kind: row.kind,
    }
}
