//! `check-edges`: the dependency edges between the crates of this workspace, against the table in
//! `docs/architecture.md`.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use serde_json::Value;

/// What each crate may use. One that is not here may use nothing and be used by nobody, until it is added here and in
/// the table.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("apiserver-generic", &[]),
    ("apiservice", &["apiserver-generic"]),
    ("certs", &[]),
    ("controller", &["apiserver-generic", "apiservice", "certs"]),
    (
        "workspaces-apiserver",
        &["apiserver-generic", "apiservice", "certs", "controller"],
    ),
    ("kubectl-workspace", &[]),
    ("oci-archive", &[]),
    ("localcluster", &["oci-archive"]),
    ("localvirt", &[]),
    ("relay-ends", &[]),
    (
        "kubeworkspaces-tests",
        &[
            "apiserver-generic",
            "apiservice",
            "certs",
            "controller",
            "workspaces-apiserver",
            "kubectl-workspace",
            "oci-archive",
            "localcluster",
            "localvirt",
            "relay-ends",
        ],
    ),
];

/// What any crate's own tests may use besides.
const IN_TESTS: [&str; 1] = ["localcluster"];

/// Somebody uses somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    only_in_tests: bool,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(super::top());
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata failed ({})",
        output.status
    );
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let (crates, edges) = parse(&metadata);
    let faults = faults(&crates, &edges);
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The crates of the workspace and the edges between them, from `cargo metadata --no-deps`.
fn parse(metadata: &Value) -> (Vec<String>, Vec<Edge>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let crates: Vec<String> = packages.iter().map(|p| text(&p["name"])).collect();
    let edge = |from: &Value, dependency: &Value| Edge {
        from: text(&from["name"]),
        to: text(&dependency["name"]),
        only_in_tests: dependency["kind"] == "dev",
    };
    let edges = packages
        .iter()
        .flat_map(|p| {
            list(&p["dependencies"])
                .into_iter()
                .map(move |d| edge(p, &d))
        })
        .filter(|e| crates.contains(&e.to))
        .collect();
    (crates, edges)
}

/// What is wrong, a sentence each.
fn faults(crates: &[String], edges: &[Edge]) -> Vec<String> {
    let allowed = |name: &str| {
        ALLOWED
            .iter()
            .find(|(from, _)| *from == name)
            .map(|(_, to)| *to)
    };
    let unknown = crates.iter().filter(|name| allowed(name).is_none()).map(|name| {
        format!("{name} is not in the table: add it to docs/architecture.md and to hack/localcluster/src/cli/edges.rs")
    });
    let fine = |edge: &Edge| {
        let listed = allowed(&edge.from).is_some_and(|to| to.contains(&edge.to.as_str()));
        listed || edge.only_in_tests && IN_TESTS.contains(&edge.to.as_str())
    };
    let forbidden = edges
        .iter()
        .filter(|e| !fine(e))
        .map(|Edge { from, to, .. }| {
            format!(
                "{from} must not use {to}: docs/architecture.md says which way dependencies point"
            )
        });
    unknown.chain(forbidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, only_in_tests: bool) -> Edge {
        Edge {
            from: from.into(),
            to: to.into(),
            only_in_tests,
        }
    }

    #[test]
    fn edges_against_the_order_are_named() {
        for (edge, fine) in [
            (edge("controller", "certs", false), true),
            (edge("certs", "controller", false), false),
            (edge("apiserver-generic", "apiservice", false), false),
            (edge("apiserver-generic", "localcluster", false), false),
            (edge("apiserver-generic", "localcluster", true), true),
            (edge("apiserver-generic", "controller", true), false),
            (edge("certs", "kubeworkspaces-tests", true), false),
            (edge("somebody", "certs", false), false),
        ] {
            assert_eq!(
                faults(&[], std::slice::from_ref(&edge)).is_empty(),
                fine,
                "{edge:?}"
            );
        }
    }

    #[test]
    fn a_crate_that_nobody_decided_about_is_named() {
        let faults = faults(&["certs".into(), "extra".into()], &[]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("extra is not in the table"));
    }

    #[test]
    fn edges_to_crates_of_others_do_not_count() {
        let metadata = serde_json::json!({"packages": [
            {"name": "certs", "dependencies": [{"name": "serde", "kind": null}, {"name": "localcluster", "kind": "dev"}]},
            {"name": "localcluster", "dependencies": []},
        ]});
        let (crates, edges) = parse(&metadata);
        assert_eq!(crates, ["certs", "localcluster"]);
        assert_eq!(edges, [edge("certs", "localcluster", true)]);
    }
}
