//! Names that only the cluster knows. Who presses Tab waits, so it is asked for two seconds and never prompted.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::Candidate;
use crate::cli::ClusterFlags;
use crate::cluster::{self, Cluster};
use crate::table::ACCEPT;
use crate::target::collection;

const PATIENCE: Duration = Duration::from_secs(2);
/// More names than anyone looks at.
const LIMIT: usize = 500;

pub(super) fn contexts(flags: &ClusterFlags) -> Vec<Candidate> {
    let contexts = cluster::contexts(flags).unwrap_or_default().into_iter();
    contexts.map(|name| Candidate::new(name, "")).collect()
}

pub(super) async fn workspaces(flags: &ClusterFlags) -> Vec<Candidate> {
    in_namespace(flags, "workspaces").await
}

pub(super) async fn sessions(flags: &ClusterFlags) -> Vec<Candidate> {
    in_namespace(flags, "workspacesessions").await
}

pub(super) async fn namespaces(flags: &ClusterFlags) -> Vec<Candidate> {
    let Ok(cluster) = Cluster::connect_without_prompts(flags) else {
        return Vec::new();
    };
    let names = named(&ask(&cluster, "/api/v1/namespaces").await);
    names
        .into_iter()
        .map(|c| Candidate::new(c.word, ""))
        .collect()
}

async fn in_namespace(flags: &ClusterFlags, resource: &str) -> Vec<Candidate> {
    let Ok(cluster) = Cluster::connect_without_prompts(flags) else {
        return Vec::new();
    };
    match cluster.namespace() {
        Ok(namespace) => named(&ask(&cluster, &collection(resource, Some(&namespace))).await),
        Err(_) => Vec::new(),
    }
}

async fn ask(cluster: &Cluster, path: &str) -> Value {
    let path = format!("{path}?limit={LIMIT}");
    let asked = cluster.json(Method::GET, &path, ACCEPT, None);
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(table)) => table,
        _ => Value::Null,
    }
}

/// The first columns are the name and what people want to know of it.
fn named(table: &Value) -> Vec<Candidate> {
    let rows = table["rows"].as_array();
    let candidate = |row: &Value| {
        let text = |index: usize| row["cells"][index].as_str().unwrap_or_default();
        let name = row["object"]["metadata"]["name"].as_str()?;
        Some(Candidate::new(
            name,
            format!("{} {}", text(1), text(2)).trim(),
        ))
    };
    rows.into_iter().flatten().filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_comes_with_what_it_is() {
        let table = json!({"rows": [{"cells": ["demo", "vm", "Running"], "object": {"metadata": {"name": "demo"}}}]});
        assert_eq!(named(&table), [Candidate::new("demo", "vm Running")]);
        assert!(named(&Value::Null).is_empty());
    }
}
