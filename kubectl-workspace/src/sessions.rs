//! `kubectl workspace sessions`: who is connected, and ending that. Entry point: [`sessions`].

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http::Method;
use serde_json::{Value, json};

use crate::cli;
use crate::cluster::Cluster;
use crate::list::{fetch, show};
use crate::say;
use crate::target::{Typed, collection};

const RESOURCE: &str = "workspacesessions";
const POLL: Duration = Duration::from_millis(200);

/// Lists sessions, or ends some.
pub async fn sessions(cluster: &Cluster, options: cli::Sessions) -> anyhow::Result<u8> {
    let cli::Sessions {
        command,
        workspace,
        all_namespaces,
        output,
    } = options;
    if let Some(cli::SessionsCommand::Kill(options)) = command {
        return kill(cluster, options).await;
    }
    let target = workspace.map(|typed| cluster.target(typed)).transpose()?;
    let namespace = match (&target, all_namespaces) {
        (Some(target), _) => Some(target.namespace.clone()),
        (None, true) => None,
        (None, false) => Some(cluster.namespace()?),
    };
    let path = collection(RESOURCE, namespace.as_deref());
    let mut found = fetch(cluster, &path, output).await?;
    if let Some(target) = &target {
        keep(&mut found, &target.name);
    }
    show(
        &found,
        output,
        "workspacesession",
        namespace.is_none(),
        "No open sessions.",
    )?;
    Ok(0)
}

/// Only the sessions of one workspace, of a table or of a list.
fn keep(found: &mut Value, workspace: &str) {
    for (list, name) in [
        ("rows", "/object/metadata/name"),
        ("items", "/metadata/name"),
    ] {
        if let Some(rows) = found[list].as_array_mut() {
            rows.retain(|row| {
                row.pointer(name)
                    .and_then(Value::as_str)
                    .and_then(workspace_of)
                    == Some(workspace)
            });
        }
    }
}

/// Session names are `WORKSPACE.MODE` or `WORKSPACE.MODE.HASH`. A workspace may have dots, modes and hashes have none.
fn workspace_of(session: &str) -> Option<&str> {
    const MODES: [&str; 5] = ["console", "vnc", "ssh", "portforward", "proxy"];
    let (rest, last) = session.rsplit_once('.')?;
    if MODES.contains(&last) {
        return Some(rest);
    }
    let (workspace, mode) = rest.rsplit_once('.')?;
    MODES.contains(&mode).then_some(workspace)
}

async fn kill(cluster: &Cluster, options: cli::Kill) -> anyhow::Result<u8> {
    let cli::Kill {
        sessions,
        workspace,
        timeout,
    } = options;
    let (namespace, names) = match workspace {
        None => (cluster.namespace()?, checked(sessions)?),
        Some(typed) => of_workspace(cluster, typed).await?,
    };
    if names.is_empty() {
        say::note("No open sessions.");
        return Ok(0);
    }
    for name in &names {
        end(cluster, &namespace, name, timeout).await?;
        say::out(&format!("workspacesession/{name} ended"))?;
    }
    Ok(0)
}

/// A name must not change the path of a request.
fn checked(names: Vec<String>) -> anyhow::Result<Vec<String>> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    match names
        .iter()
        .find(|n| n.is_empty() || !n.chars().all(plain) || n.contains(".."))
    {
        Some(name) => {
            bail!("{name:?} is not the name of a session: `kubectl workspace sessions` lists them")
        }
        None => Ok(names),
    }
}

async fn of_workspace(cluster: &Cluster, typed: Typed) -> anyhow::Result<(String, Vec<String>)> {
    let target = cluster.target(typed)?;
    let path = collection(RESOURCE, Some(&target.namespace));
    let mut found = fetch(cluster, &path, Some(cli::Output::Json)).await?;
    keep(&mut found, &target.name);
    let items = found["items"].as_array();
    let names = items
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str());
    Ok((target.namespace, names.map(str::to_owned).collect()))
}

/// Asks for the end and waits for it: the object is gone when the stream is. A successor's session of the same name
/// is another one.
async fn end(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<()> {
    let path = format!("{}/{name}", collection(RESOURCE, Some(namespace)));
    let ask = |method| cluster.json(method, &path, "application/json", None);
    let uid = ask(Method::GET).await?["metadata"]["uid"].clone();
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    cluster
        .json(Method::DELETE, &path, "application/json", Some(&options))
        .await
        .with_context(|| format!("session {name} cannot be ended"))?;
    let start = Instant::now();
    loop {
        match ask(Method::GET).await {
            Err(error) if error.code() == Some(404) => return Ok(()),
            Ok(now) if now["metadata"]["uid"] != uid => return Ok(()),
            Ok(_) if start.elapsed() >= timeout => {
                bail!("session {name} has been told to end and has not after {timeout:?}")
            }
            Ok(_) => tokio::time::sleep(POLL).await,
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_of_a_session_is_what_stands_before_its_mode() {
        let cases = [
            ("demo.console", Some("demo")),
            ("demo.vnc", Some("demo")),
            ("rhel9.arm64.console", Some("rhel9.arm64")),
            ("demo.portforward.0a1b2c", Some("demo")),
            ("rhel9.arm64.ssh.ff00", Some("rhel9.arm64")),
            ("demo", None),
            ("demo.x", None),
        ];
        for (session, workspace) in cases {
            assert_eq!(workspace_of(session), workspace, "{session}");
        }
    }

    #[test]
    fn only_the_workspaces_own_sessions_are_kept() {
        let mut table = json!({"rows": [
            {"object": {"metadata": {"name": "demo.console"}}},
            {"object": {"metadata": {"name": "demo.x.console"}}},
            {"object": {"metadata": {"name": "demo.portforward.ab"}}}]});
        keep(&mut table, "demo");
        assert_eq!(
            crate::table::names(&table),
            ["demo.console", "demo.portforward.ab"]
        );
        let mut list =
            json!({"items": [{"metadata": {"name": "a.vnc"}}, {"metadata": {"name": "b.vnc"}}]});
        keep(&mut list, "b");
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_name_never_becomes_a_path() {
        for name in ["", "a/b", "..", "a..b", "A", "a?x", "%2e"] {
            assert!(checked(vec![name.into()]).is_err(), "{name:?}");
        }
        assert!(checked(vec!["demo.console".into()]).is_ok());
    }
}
