use super::*;
use crate::selector::Operator;

fn parse(line: &str) -> RequestInfo {
    let (method, uri) = line.split_once(' ').unwrap();
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    RequestInfo::parse(&method, &uri.parse().unwrap()).unwrap()
}

/// `verb group/version ns resource name subresource rest`, `-` for what is empty.
fn sentence(line: &str) -> String {
    let info = parse(line);
    if !info.is_resource {
        return format!("path {} {}", info.verb, info.path);
    }
    let dash = |s: &str| {
        if s.is_empty() {
            "-".to_owned()
        } else {
            s.to_owned()
        }
    };
    [
        dash(&info.verb),
        format!("{}/{}", dash(&info.group), info.version),
        dash(&info.namespace),
        dash(&info.resource),
        dash(&info.name),
        dash(&info.subresource),
        dash(&info.rest.join("|")),
    ]
    .join(" ")
}

#[test]
fn urls_are_taken_apart_as_kube_apiserver_does() {
    let base = "/apis/k.io/v1";
    for (line, expected) in [
        // Resources of a group, namespaced and not.
        ("GET {}/namespaces/a/ws/w", "get k.io/v1 a ws w - -"),
        ("HEAD {}/namespaces/a/ws/w", "get k.io/v1 a ws w - -"),
        ("PUT {}/namespaces/a/ws/w", "update k.io/v1 a ws w - -"),
        ("PATCH {}/namespaces/a/ws/w", "patch k.io/v1 a ws w - -"),
        ("DELETE {}/namespaces/a/ws/w", "delete k.io/v1 a ws w - -"),
        ("POST {}/namespaces/a/ws", "create k.io/v1 a ws - - -"),
        (
            "POST {}/namespaces/a/ws/w/stop",
            "create k.io/v1 a ws w stop -",
        ),
        ("OPTIONS {}/namespaces/a/ws", "- k.io/v1 a ws - - -"),
        ("GET {}/images/debian", "get k.io/v1 - images debian - -"),
        ("GET {}/images/", "list k.io/v1 - images - - -"),
        // Nameless: list, watch, deletecollection.
        ("GET {}/ws", "list k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=true", "watch k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=1", "watch k.io/v1 - ws - - -"),
        ("GET {}/ws?watch", "watch k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=", "watch k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=junk", "watch k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=False", "list k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=0", "list k.io/v1 - ws - - -"),
        ("GET {}/ws?watch=0&watch=1", "list k.io/v1 - ws - - -"),
        ("GET {}/namespaces/a/ws/w?watch=1", "get k.io/v1 a ws w - -"),
        (
            "DELETE {}/namespaces/a/ws",
            "deletecollection k.io/v1 a ws - - -",
        ),
        // A field selector that names one object.
        (
            "GET {}/ws?fieldSelector=metadata.name%3Dw",
            "list k.io/v1 - ws w - -",
        ),
        (
            "GET {}/ws?watch=1&fieldSelector=metadata.name==w",
            "watch k.io/v1 - ws w - -",
        ),
        (
            "GET {}/ws?fieldSelector=metadata.name!=w",
            "list k.io/v1 - ws - - -",
        ),
        (
            "GET {}/ws?fieldSelector=metadata.name=a/b",
            "list k.io/v1 - ws - - -",
        ),
        (
            "GET {}/ws?fieldSelector=metadata.name=..",
            "list k.io/v1 - ws - - -",
        ),
        // Subresources and what follows them.
        (
            "GET {}/namespaces/a/ws/w/console",
            "get k.io/v1 a ws w console -",
        ),
        (
            "GET {}/namespaces/a/ws/w/portforward/22",
            "get k.io/v1 a ws w portforward 22",
        ),
        (
            "GET {}/namespaces/a/ws/w/proxy/x/y%2Fz/",
            "get k.io/v1 a ws w proxy x|y/z",
        ),
        // Namespaces themselves.
        ("GET {}/namespaces", "list k.io/v1 - namespaces - - -"),
        ("GET {}/namespaces/a", "get k.io/v1 a namespaces a - -"),
        (
            "PUT {}/namespaces/a/finalize",
            "update k.io/v1 a namespaces a finalize -",
        ),
        (
            "PUT {}/namespaces/a/status",
            "update k.io/v1 a namespaces a status -",
        ),
        // The legacy group, and verbs in the path.
        (
            "GET /api/v1/namespaces/a/pods/p/log",
            "get -/v1 a pods p log -",
        ),
        ("GET /api/v1/nodes", "list -/v1 - nodes - - -"),
        ("GET {}/watch/namespaces/a/ws", "watch k.io/v1 a ws - - -"),
        (
            "GET {}/proxy/namespaces/a/ws/w/console",
            "proxy k.io/v1 a ws w - console",
        ),
        // Encoded segments are decoded once and never split.
        (
            "GET {}/namespaces/a/ws/w%2Fconsole",
            "get k.io/v1 a ws w/console - -",
        ),
        ("GET {}/namespaces/a/ws/w%252F", "get k.io/v1 a ws w%2F - -"),
        ("GET {}/namespaces//ws", "list k.io/v1 - ws - - -"),
        // Everything else is a path.
        ("GET /", "path get /"),
        ("GET /healthz", "path get /healthz"),
        ("POST /version", "path post /version"),
        ("GET /api", "path get /api"),
        ("GET /api/v1", "path get /api/v1"),
        ("GET /apis", "path get /apis"),
        ("GET /apis/k.io", "path get /apis/k.io"),
        ("GET {}", "path get /apis/k.io/v1"),
        ("GET {}/", "path get /apis/k.io/v1/"),
        (
            "GET /openapi/v3/apis/k.io/v1",
            "path get /openapi/v3/apis/k.io/v1",
        ),
        ("GET /a%20b", "path get /a b"),
        ("GET /apisx/a/b/c", "path get /apisx/a/b/c"),
    ] {
        assert_eq!(sentence(&line.replace("{}", base)), expected, "{line}");
    }
}

#[test]
fn a_path_that_does_not_decode_is_refused() {
    for path in ["/apis/k.io/v1/ws/%ff", "/%zz", "/a%2", "/apis/g/v1/watch"] {
        let error = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap_err();
        assert_eq!(error.reason.code(), 400, "{path}");
    }
    let passed_on = parse("GET /apis/k.io/v1/namespaces/a/ws/w/proxy/%e4/b");
    assert_eq!(passed_on.rest, ["\u{fffd}", "b"]);
}

#[test]
fn selectors_belong_to_collections_only() {
    let query = "labelSelector=a%20in%20(x,y)&fieldSelector=status.phase!=Failed";
    let list = parse(&format!("GET /apis/k.io/v1/ws?{query}")).selectors;
    assert_eq!(list.fields[0].operator, Operator::NotIn);
    assert_eq!(list.labels[0].values, ["x", "y"]);
    assert_eq!(
        parse(&format!("DELETE /apis/k.io/v1/ws?{query}")).selectors,
        list
    );
    for line in [
        "GET /apis/k.io/v1/watch/ws",
        "GET /apis/k.io/v1/ws/w",
        "POST /apis/k.io/v1/ws",
    ] {
        assert_eq!(
            parse(&format!("{line}?{query}")).selectors,
            Selectors::default(),
            "{line}"
        );
    }
}

#[test]
fn attributes_say_what_the_url_says() {
    let a = parse("POST /apis/k.io/v1/namespaces/a/ws/w/stop?x=y").attributes();
    assert_eq!(
        (
            a.verb.as_str(),
            a.group.as_str(),
            a.version.as_str(),
            a.namespace.as_str()
        ),
        ("create", "k.io", "v1", "a")
    );
    assert_eq!(
        (a.resource.as_str(), a.subresource.as_str(), a.name.as_str()),
        ("ws", "stop", "w")
    );
    assert!(a.path.is_empty());
    let a = parse("GET /metrics?x=y").attributes();
    assert_eq!((a.verb.as_str(), a.path.as_str()), ("get", "/metrics"));
}
