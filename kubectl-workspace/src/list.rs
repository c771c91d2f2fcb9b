//! `kubectl workspace list`, and lists in general. Entry points: [`list`], [`fetch`].

use http::Method;
use serde_json::Value;

use crate::cli::{self, Output};
use crate::cluster::{Cluster, ClusterError};
use crate::say;
use crate::table::{self, Shown};
use crate::target::collection;

/// Prints the workspaces of a namespace, or of all.
pub async fn list(cluster: &Cluster, options: cli::List) -> anyhow::Result<u8> {
    let cli::List {
        all_namespaces,
        selector,
        output,
    } = options;
    let namespace = match all_namespaces {
        true => None,
        false => Some(cluster.namespace()?),
    };
    let mut path = collection("workspaces", namespace.as_deref());
    if let Some(selector) = selector {
        path.push_str(&format!("?labelSelector={}", encoded(&selector)));
    }
    let found = fetch(cluster, &path, output).await?;
    let none = match &namespace {
        Some(namespace) => format!("No workspaces found in {namespace} namespace."),
        None => "No workspaces found.".to_owned(),
    };
    show(&found, output, "workspace", namespace.is_none(), &none)?;
    Ok(0)
}

/// A table, or the objects when those are wanted.
pub async fn fetch(
    cluster: &Cluster,
    path: &str,
    output: Option<Output>,
) -> Result<Value, ClusterError> {
    let accept = match output {
        Some(Output::Json) => "application/json",
        _ => table::ACCEPT,
    };
    cluster.json(Method::GET, path, accept, None).await
}

/// Prints what was fetched.
pub fn show(
    found: &Value,
    output: Option<Output>,
    kind: &str,
    namespaces: bool,
    none: &str,
) -> anyhow::Result<()> {
    let lines = match output {
        Some(Output::Json) => vec![serde_json::to_string_pretty(found)?],
        Some(Output::Name) => {
            let names = table::names(found).into_iter();
            names.map(|name| format!("{kind}/{name}")).collect()
        }
        None | Some(Output::Wide) => {
            let shown = Shown {
                wide: output == Some(Output::Wide),
                namespaces,
            };
            let lines = table::lines(found, shown);
            if lines.len() <= 1 {
                say::note(none);
                return Ok(());
            }
            lines
        }
    };
    if !lines.is_empty() {
        say::out(&lines.join("\n"))?;
    }
    Ok(())
}

/// RFC 3986 §2.3: everything but unreserved characters.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_stays_inside_its_parameter() {
        assert_eq!(
            encoded("app=web,x!=y&limit=1"),
            "app%3Dweb%2Cx%21%3Dy%26limit%3D1"
        );
    }
}
