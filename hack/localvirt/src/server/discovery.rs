//! What is served, for clients that ask first: discovery (legacy and aggregated) and OpenAPI.
//!
//! KubeVirt's own documents are incomplete (no kinds, `verbs: null`, a misspelt group); these are what it should
//! serve, since nothing of ours depends on its mistakes. The parents of the subresources live in `kubevirt.io`,
//! so they are not listed as resources of this group, which would make `kubectl get virtualmachines` ambiguous.

use http::{HeaderMap, header::ACCEPT};
use serde_json::{Value, json};

use super::route::{GROUP, VERSIONS};

/// (parent, subresource, verb).
const SUBRESOURCES: [(&str, &str, &str); 16] = [
    ("virtualmachineinstances", "console", "get"),
    ("virtualmachineinstances", "vnc", "get"),
    ("virtualmachineinstances", "vnc/screenshot", "get"),
    ("virtualmachineinstances", "portforward", "get"),
    ("virtualmachineinstances", "guestosinfo", "get"),
    ("virtualmachineinstances", "userlist", "get"),
    ("virtualmachineinstances", "filesystemlist", "get"),
    ("virtualmachineinstances", "pause", "update"),
    ("virtualmachineinstances", "unpause", "update"),
    ("virtualmachineinstances", "reset", "update"),
    ("virtualmachineinstances", "softreboot", "update"),
    ("virtualmachines", "portforward", "get"),
    ("virtualmachines", "start", "update"),
    ("virtualmachines", "stop", "update"),
    ("virtualmachines", "restart", "update"),
    ("virtualmachines", "migrate", "update"),
];

/// A document and its media type.
pub type Document = (Value, &'static str);

const JSON: &str = "application/json";
const AGGREGATED: [(&str, &str); 2] = [
    (
        "v2",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ),
    (
        "v2beta1",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ),
];

/// The document at this path, for everybody; `None` if there is none.
pub fn document(path: &str, headers: &HeaderMap) -> Option<Document> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    Some(match parts.as_slice() {
        [""] => (paths(), JSON),
        ["apis"] => apis(headers),
        ["apis", GROUP] => (with_kind("APIGroup", group()), JSON),
        ["apis", GROUP, version] if VERSIONS.contains(version) => (resources(version), JSON),
        ["apis", GROUP, version, "version"] if VERSIONS.contains(version) => (version_info(), JSON),
        ["version"] => (version_info(), JSON),
        ["openapi", "v2"] => (openapi_v2(), JSON),
        ["openapi", "v3"] => (openapi_v3_root(), JSON),
        ["openapi", "v3", "apis", GROUP, version] if VERSIONS.contains(version) => {
            (openapi_v3(version), JSON)
        }
        _ => return None,
    })
}

/// The health document, at KubeVirt's path.
pub fn is_health(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz"] => true,
        ["apis", GROUP, version, "healthz"] => VERSIONS.contains(version),
        _ => false,
    }
}

/// What `healthz` says while all is well.
pub fn health() -> Value {
    json!({ "apiserver": { "connectivity": "ok", "version": version_info() }, "config-resource-version": "" })
}

fn paths() -> Value {
    let mut paths = vec![
        "/apis".to_owned(),
        format!("/apis/{GROUP}"),
        "/healthz".to_owned(),
    ];
    paths.extend(VERSIONS.map(|v| format!("/apis/{GROUP}/{v}")));
    paths.extend([
        "/openapi/v2".to_owned(),
        "/openapi/v3".to_owned(),
        "/version".to_owned(),
    ]);
    json!({ "paths": paths })
}

fn apis(headers: &HeaderMap) -> Document {
    let accept: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    // The order of parameters in a clause is the client's, so they are looked for one by one.
    let clauses = accept.iter().flat_map(|a| a.split(','));
    for clause in clauses {
        let parameters: Vec<&str> = clause.split(';').map(str::trim).collect();
        let asks = |p: &str| parameters.contains(&p);
        if asks("g=apidiscovery.k8s.io") && asks("as=APIGroupDiscoveryList") {
            if let Some((version, media)) = AGGREGATED.iter().find(|(v, _)| asks(&format!("v={v}")))
            {
                return (aggregated(version), media);
            }
        } else if asks(JSON) || asks("*/*") {
            break;
        }
    }
    (
        json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group()] }),
        JSON,
    )
}

fn with_kind(kind: &str, mut value: Value) -> Value {
    value["kind"] = json!(kind);
    value["apiVersion"] = json!("v1");
    value
}

fn group() -> Value {
    let versions =
        VERSIONS.map(|v| json!({ "groupVersion": format!("{GROUP}/{v}"), "version": v }));
    json!({ "name": GROUP, "versions": versions, "preferredVersion": versions[0] })
}

fn kind_of(parent: &str) -> &'static str {
    match parent {
        "virtualmachines" => "VirtualMachine",
        _ => "VirtualMachineInstance",
    }
}

fn resources(version: &str) -> Value {
    let list = SUBRESOURCES.map(|(parent, name, verb)| {
        json!({
            "name": format!("{parent}/{name}"), "singularName": kind_of(parent).to_lowercase(), "namespaced": true,
            "group": "kubevirt.io", "version": "v1", "kind": kind_of(parent), "verbs": [verb],
        })
    });
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"), "resources": list })
}

fn aggregated(api_version: &str) -> Value {
    let parents = ["virtualmachineinstances", "virtualmachines"].map(|parent| {
        let of_parent = SUBRESOURCES.iter().filter(|(p, ..)| *p == parent);
        let subresources: Vec<Value> = of_parent
            .map(|(_, name, verb)| {
                let kind = json!({ "group": "kubevirt.io", "version": "v1", "kind": kind_of(parent) });
                json!({ "subresource": name, "responseKind": kind, "verbs": [verb] })
            })
            .collect();
        // An empty kind is how a parent that is not here is written: clients then list its subresources only.
        json!({
            "resource": parent, "responseKind": { "group": "", "version": "", "kind": "" }, "scope": "Namespaced",
            "singularResource": "", "verbs": [], "subresources": subresources,
        })
    });
    let versions =
        VERSIONS.map(|v| json!({ "version": v, "freshness": "Current", "resources": parents }));
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{api_version}"), "metadata": {},
        "items": [{ "metadata": { "name": GROUP, "creationTimestamp": null }, "versions": versions }],
    })
}

fn version_info() -> Value {
    json!({
        "major": "1", "minor": "9", "gitVersion": concat!("v1.9.0+localvirt.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn info() -> Value {
    json!({ "title": "localvirt, a stand-in for KubeVirt", "version": env!("CARGO_PKG_VERSION") })
}

fn operations(version: &str, responses: &Value) -> Value {
    let mut paths = json!({});
    for (parent, name, verb) in SUBRESOURCES {
        let port = if name == "portforward" { "/{port}" } else { "" };
        let path = format!(
            "/apis/{GROUP}/{version}/namespaces/{{namespace}}/{parent}/{{name}}/{name}{port}"
        );
        let method = if verb == "get" { "get" } else { "put" };
        let words: String = name.split('/').collect();
        let id = format!("{version}{}{words}", kind_of(parent));
        paths[path] = json!({ method: { "operationId": id, "responses": responses } });
    }
    paths
}

/// Empty on purpose: kube-apiserver merges this into its own, and no schema of ours is worth a clash there.
fn openapi_v2() -> Value {
    json!({ "swagger": "2.0", "info": info(), "paths": {} })
}

fn openapi_v3_root() -> Value {
    let mut paths = json!({});
    for version in VERSIONS {
        let url = format!(
            "/openapi/v3/apis/{GROUP}/{version}?hash={}",
            env!("CARGO_PKG_VERSION")
        );
        paths[format!("apis/{GROUP}/{version}")] = json!({ "serverRelativeURL": url });
    }
    json!({ "paths": paths })
}

fn openapi_v3(version: &str) -> Value {
    let responses = json!({ "default": { "description": "as KubeVirt answers" } });
    json!({ "openapi": "3.0.0", "info": info(), "paths": operations(version, &responses) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, accept: &str) -> Option<Document> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        document(path, &headers)
    }

    #[test]
    fn legacy_resources_have_kinds_and_verbs() {
        let (list, _) = get("/apis/subresources.kubevirt.io/v1", "application/json").unwrap();
        assert_eq!(
            (&list["apiVersion"], &list["groupVersion"]),
            (&json!("v1"), &json!("subresources.kubevirt.io/v1"))
        );
        for resource in list["resources"].as_array().unwrap() {
            assert!(!resource["kind"].as_str().unwrap().is_empty(), "{resource}");
            assert!(
                !resource["verbs"].as_array().unwrap().is_empty(),
                "{resource}"
            );
        }
    }

    #[test]
    fn aggregated_discovery_is_served_to_those_who_ask_for_it() {
        let v2 =
            "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io,application/json";
        let cases = [
            (v2, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                "APIGroupDiscoveryList",
                "apidiscovery.k8s.io/v2beta1",
            ),
            ("application/json", "APIGroupList", "v1"),
            (
                "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList",
                "APIGroupList",
                "v1",
            ),
        ];
        for (accept, kind, version) in cases {
            let (document, media) = get("/apis", accept).unwrap();
            assert_eq!(
                (&document["kind"], &document["apiVersion"]),
                (&json!(kind), &json!(version)),
                "{accept}"
            );
            assert_eq!(
                media.contains("apidiscovery"),
                kind == "APIGroupDiscoveryList"
            );
        }
    }

    #[test]
    fn parents_are_no_resources_of_this_group() {
        let (document, _) = get("/apis", AGGREGATED[0].1).unwrap();
        for parent in document["items"][0]["versions"][0]["resources"]
            .as_array()
            .unwrap()
        {
            assert_eq!(parent["responseKind"]["kind"], "");
            assert!(!parent["subresources"].as_array().unwrap().is_empty());
        }
    }

    #[test]
    fn openapi_is_served_in_both_versions_and_names_only_this_group() {
        assert_eq!(get("/openapi/v2", "*/*").unwrap().0["swagger"], "2.0");
        let (root, _) = get("/openapi/v3", "*/*").unwrap();
        for (key, path) in root["paths"].as_object().unwrap() {
            assert!(key.starts_with("apis/subresources.kubevirt.io/"));
            let url = path["serverRelativeURL"].as_str().unwrap();
            let (path, _) = url.split_once('?').unwrap();
            assert_eq!(get(path, "*/*").unwrap().0["openapi"], "3.0.0");
        }
        assert!(get("/apis/subresources.kubevirt.io/v2", "*/*").is_none());
    }

    #[test]
    fn health_has_kubevirts_path_and_ours() {
        assert!(is_health("/healthz") && is_health("/apis/subresources.kubevirt.io/v1/healthz"));
        assert!(!is_health("/livez") && !is_health("/apis/subresources.kubevirt.io/v2/healthz"));
        assert_eq!(health()["apiserver"]["connectivity"], "ok");
    }
}
