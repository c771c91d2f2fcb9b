//! What a request is, for metrics and limits: everything comes from the resource table.

use http::{HeaderMap, Method, header};

use crate::{
    Resource, Subresource,
    metrics::{RequestKind, RequestLabels},
    request::{self, RequestInfo},
    resource::Streaming,
};

/// The row and subresource that a request is about, if they are served.
pub(super) fn find<'r>(
    rows: &'r [Resource],
    info: &RequestInfo,
) -> Option<(&'r Resource, Option<&'r Subresource>)> {
    let wanted = |row: &&Resource| {
        (row.group, row.version, row.plural) == (&*info.group, &*info.version, &*info.resource)
    };
    let row = rows.iter().find(wanted).filter(|_| info.is_resource)?;
    Some((row, row.subresource(&info.subresource)))
}

/// Whether a request lasts: a watch, an upgrade of a subresource that streams, or anything that is
/// passed on. A stream's subresource without an upgrade is a question like any other, with the
/// limits of any other.
pub(super) fn is_long_running(
    info: &RequestInfo,
    found: Option<&Subresource>,
    headers: &HeaderMap,
) -> bool {
    let streams = match found.map(|sub| sub.streaming) {
        None | Some(Streaming::Never) => false,
        Some(Streaming::Upgrades) => headers.contains_key(header::UPGRADE),
        Some(Streaming::Always) => true,
    };
    streams || info.is_resource && info.verb == "watch"
}

/// Which limit it counts against.
pub(super) fn kind(method: &Method) -> RequestKind {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => RequestKind::ReadOnly,
        _ => RequestKind::Mutating,
    }
}

/// The labels of a request.
pub(super) fn labels(
    rows: &[Resource],
    info: &RequestInfo,
    query: &str,
    headers: &HeaderMap,
) -> RequestLabels {
    let mut labels = RequestLabels {
        verb: verb(info, headers),
        component: "apiserver",
        ..RequestLabels::default()
    };
    let Some((row, sub)) = find(rows, info) else {
        return labels;
    };
    labels.group = row.group;
    labels.version = row.version;
    labels.resource = row.plural;
    labels.scope = scope(info);
    if let Some(sub) = sub {
        labels.subresource = sub.name;
        if sub.streaming != Streaming::Never {
            labels.verb = "CONNECT";
        }
    }
    if request::first(query, "dryRun").is_some_and(|value| value == "All") {
        labels.dry_run = "All";
    }
    labels
}

fn verb(info: &RequestInfo, headers: &HeaderMap) -> &'static str {
    let applies = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"));
    match info.verb.as_str() {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if applies => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rows::rows;

    /// `UPGRADE` for the method is a GET that upgrades.
    fn of(line: &str) -> (String, bool) {
        let mut headers = HeaderMap::new();
        let line = line.strip_prefix("UPGRADE ").map_or_else(
            || line.to_owned(),
            |target| {
                headers.insert(header::UPGRADE, http::HeaderValue::from_static("websocket"));
                format!("GET {target}")
            },
        );
        let (method, uri) = line.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::parse(&method, &uri.parse().unwrap()).unwrap();
        let rows = rows();
        let query = uri.split_once('?').map_or("", |(_, q)| q);
        let l = labels(&rows, &info, query, &headers);
        let sub = find(&rows, &info).and_then(|(_, sub)| sub);
        let long = is_long_running(&info, sub, &headers);
        let text = [l.verb, l.resource, l.subresource, l.scope, l.dry_run].join(" ");
        (text, long)
    }

    #[test]
    fn labels_come_from_the_table() {
        let base = "/apis/toys.example.com/v1/namespaces/a/robots";
        for (line, expected, long) in [
            ("GET {}/r", "GET robots  resource ", false),
            ("GET {}", "LIST robots  namespace ", false),
            ("GET {}?watch=1", "WATCH robots  namespace ", true),
            ("POST {}?dryRun=All", "POST robots  resource All", false),
            (
                "GET {}/r/console",
                "CONNECT robots console resource ",
                false,
            ),
            (
                "UPGRADE {}/r/console",
                "CONNECT robots console resource ",
                true,
            ),
            ("PUT {}/r/proxy/a/b", "CONNECT robots proxy resource ", true),
            ("UPGRADE {}/r", "GET robots  resource ", false),
            ("PUT {}/r/status", "PUT robots status resource ", false),
            ("GET {}/r/secret", "GET robots  resource ", false),
            (
                "GET /apis/toys.example.com/v1/boxes",
                "LIST boxes  cluster ",
                false,
            ),
            ("GET /apis/toys.example.com/v1/lions/x", "GET    ", false),
            ("GET /metrics", "GET    ", false),
            ("BREW /", "other    ", false),
        ] {
            let line = line.replace("{}", base);
            assert_eq!(of(&line), (expected.to_owned(), long), "{line}");
        }
    }
}
