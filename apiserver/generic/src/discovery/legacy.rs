//! `APIGroupList`, `APIGroup` and `APIResourceList`: discovery one document at a time.

use serde_json::{Map, Value, json};

use super::GroupVersion;
use crate::{Resource, Scope, Subresource, Verb};

/// `/`: which paths there are.
pub(super) fn paths(discovery: &[&str]) -> Value {
    let fixed = [
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
    ];
    let mut paths: Vec<&str> = discovery.iter().copied().chain(fixed).collect();
    paths.sort_unstable();
    json!({ "paths": paths })
}

/// `/apis`.
pub(super) fn group_list(all: &[GroupVersion<'_>]) -> Value {
    let groups: Vec<Value> = group_names(all)
        .into_iter()
        .map(|name| group_body(name, all))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(super) fn group(name: &str, all: &[GroupVersion<'_>]) -> Value {
    let mut group = group_body(name, all);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

pub(super) fn group_names<'r>(all: &[GroupVersion<'r>]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for gv in all {
        if !names.contains(&gv.group) {
            names.push(gv.group);
        }
    }
    names
}

fn group_body(name: &str, all: &[GroupVersion<'_>]) -> Value {
    let versions: Vec<Value> = all
        .iter()
        .filter(|gv| gv.group == name)
        .map(|gv| {
            let group_version = format!("{}/{}", gv.group, gv.version);
            json!({"groupVersion": group_version, "version": gv.version})
        })
        .collect();
    let preferred = versions.first().cloned();
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

/// `/apis/<group>/<version>`.
pub(super) fn resource_list(gv: &GroupVersion<'_>) -> Value {
    let mut resources = Vec::new();
    for row in &gv.rows {
        resources.push(resource(row));
        resources.extend(row.subresources.iter().map(|s| subresource(row, s)));
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{}/{}", gv.group, gv.version), "resources": resources,
    })
}

fn resource(row: &Resource) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(row.plural));
    out.insert("singularName".into(), json!(row.singular));
    out.insert("namespaced".into(), json!(row.scope == Scope::Namespaced));
    out.insert("kind".into(), json!(row.kind));
    out.insert("verbs".into(), json!(verbs(row.verbs)));
    if !row.short_names.is_empty() {
        out.insert("shortNames".into(), json!(row.short_names));
    }
    if !row.categories.is_empty() {
        out.insert("categories".into(), json!(row.categories));
    }
    Value::Object(out)
}

fn subresource(row: &Resource, sub: &Subresource) -> Value {
    json!({
        "name": format!("{}/{}", row.plural, sub.name), "singularName": row.singular,
        "namespaced": row.scope == Scope::Namespaced, "kind": sub.kind, "verbs": verbs(sub.verbs),
    })
}

/// The verbs, sorted.
pub(super) fn verbs(list: &[Verb]) -> Vec<&'static str> {
    let mut verbs: Vec<&'static str> = list.iter().map(|verb| verb.as_str()).collect();
    verbs.sort_unstable();
    verbs
}
