//! Names of definitions and operations, in the manner of kube-openapi.
//!
//! A definition's name has dots and never a slash: several consumers do not unescape `~1` in `$ref`
//! and then know no model at all.

use crate::Resource;

/// `io.k8s.apimachinery.pkg.apis.meta.v1`, where the shared types live.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `com.example.toys.v1.Robot`.
pub(super) fn definition(row: &Resource) -> String {
    kind_definition(row, row.kind)
}

/// `com.example.toys.v1.SpinOptions`: another kind of the row's group and version.
pub(super) fn kind_definition(row: &Resource, kind: &str) -> String {
    let mut labels: Vec<&str> = row.group.split('.').collect();
    labels.reverse();
    format!("{}.{}.{kind}", labels.join("."), row.version)
}

/// `com.example.toys.v1.RobotList`.
pub(super) fn list_definition(row: &Resource) -> String {
    format!("{}List", definition(row))
}

/// `toysExampleCom_v1`.
pub(super) fn tag(row: &Resource) -> String {
    format!("{}_{}", camel(row.group), row.version)
}

/// `readToysExampleComV1NamespacedRobotStatus`.
pub(super) fn operation(row: &Resource, verb: &str, namespaced: bool, rest: &str) -> String {
    let scope = if namespaced { "Namespaced" } else { "" };
    format!(
        "{verb}{}{}{scope}{}{}",
        upper(&camel(row.group)),
        upper(row.version),
        row.kind,
        upper(rest)
    )
}

fn camel(group: &str) -> String {
    let mut out = String::new();
    for (n, label) in group.split(['.', '-']).enumerate() {
        out.push_str(&if n == 0 {
            label.to_owned()
        } else {
            upper(label)
        });
    }
    out
}

fn upper(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
