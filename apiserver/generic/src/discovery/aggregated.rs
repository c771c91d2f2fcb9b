//! `APIGroupDiscoveryList`: all of discovery in one document (KEP-3352).
//!
//! kube-apiserver caches it per Service, so one document holds all groups that the server has.
//! `responseKind` is always there: old clients panic without it.

use serde_json::{Map, Value, json};

use super::{
    GroupVersion,
    legacy::{group_names, verbs},
};
use crate::{Resource, Scope};

/// The media type, down to the order of its parameters, which old kube-apiservers compare.
pub(super) fn content_type(version: &str) -> &'static str {
    match version {
        "v2beta1" => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    }
}

/// The document.
pub(super) fn document(all: &[GroupVersion<'_>], version: &str) -> Value {
    let items: Vec<Value> = group_names(all)
        .into_iter()
        .map(|name| {
            let versions: Vec<Value> = all
                .iter()
                .filter(|gv| gv.group == name)
                .map(group_version)
                .collect();
            json!({
                "metadata": {"name": name, "creationTimestamp": null}, "versions": versions,
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn group_version(gv: &GroupVersion<'_>) -> Value {
    let resources: Vec<Value> = gv.rows.iter().map(|row| resource(row)).collect();
    json!({"version": gv.version, "freshness": "Current", "resources": resources})
}

fn resource(row: &Resource) -> Value {
    let scope = match row.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let kind = |kind: &str| json!({"group": row.group, "version": row.version, "kind": kind});
    let subresources: Vec<Value> = row
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name, "responseKind": kind(sub.kind), "verbs": verbs(sub.verbs),
            })
        })
        .collect();
    let mut out = Map::new();
    out.insert("resource".into(), json!(row.plural));
    out.insert("responseKind".into(), kind(row.kind));
    out.insert("scope".into(), json!(scope));
    out.insert("singularResource".into(), json!(row.singular));
    out.insert("verbs".into(), json!(verbs(row.verbs)));
    for (key, list) in [
        ("shortNames", row.short_names),
        ("categories", row.categories),
    ] {
        if !list.is_empty() {
            out.insert(key.into(), json!(list));
        }
    }
    if !subresources.is_empty() {
        out.insert("subresources".into(), json!(subresources));
    }
    Value::Object(out)
}
