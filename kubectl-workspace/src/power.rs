//! `kubectl workspace start` and `stop`: the annotation that the controller obeys. Entry point: [`power`].

use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::{Value, json};

use crate::cli;
use crate::cluster::Cluster;
use crate::target::Target;

/// Present: the workspace is to be stopped.
const STOPPED: &str = "kubeworkspaces.io/stopped";
const POLL: Duration = Duration::from_secs(1);

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Run.
    On,
    /// Stop.
    Off,
}

impl Power {
    /// `now` is RFC 3339; the value tells people since when.
    fn patch(self, now: &str) -> Value {
        let value = match self {
            Self::On => Value::Null,
            Self::Off => json!(now),
        };
        json!({ "metadata": { "annotations": { STOPPED: value } } })
    }

    fn is_wanted_by(self, workspace: &Value) -> bool {
        workspace["metadata"]["annotations"][STOPPED].is_null() == (self == Self::On)
    }

    fn is_reached(self, workspace: &Value) -> bool {
        match self {
            Self::On => is_ready(workspace),
            Self::Off => phase(workspace) == "Stopped",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::On => "started",
            Self::Off => "stopped",
        }
    }
}

fn phase(workspace: &Value) -> &str {
    workspace["status"]["phase"].as_str().unwrap_or("Pending")
}

fn is_ready(workspace: &Value) -> bool {
    let conditions = workspace["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Sets or removes the annotation, and waits when that is asked for.
pub async fn power(cluster: &Cluster, options: cli::Power, power: Power) -> anyhow::Result<u8> {
    let cli::Power {
        workspace,
        wait,
        timeout,
    } = options;
    let target = cluster.target(workspace)?;
    let before = cluster.get(&target).await?;
    let already = power.is_wanted_by(&before);
    if !already {
        cluster.patch(&target, &power.patch(&now())).await?;
    }
    if wait {
        wait_until_reached(cluster, &target, power, timeout).await?;
    }
    println!(
        "workspace/{} {}{}",
        target.name,
        if already { "already " } else { "" },
        power.done()
    );
    Ok(0)
}

async fn wait_until_reached(
    cluster: &Cluster,
    target: &Target,
    power: Power,
    timeout: Duration,
) -> anyhow::Result<()> {
    let Target { name, namespace } = target;
    let start = Instant::now();
    let mut said = String::new();
    loop {
        let workspace = cluster.get(target).await?;
        if power.is_reached(&workspace) {
            return Ok(());
        }
        let phase = phase(&workspace);
        if said != phase {
            eprintln!("Waiting for {name}: {phase}");
            said = phase.to_owned();
        }
        if start.elapsed() >= timeout {
            bail!(
                "{name} is {phase} after {timeout:?}; `kubectl describe workspace {name} -n {namespace}` says why"
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

fn now() -> String {
    k8s_openapi::jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(stopped: bool, phase: &str, ready: &str) -> Value {
        let annotations = if stopped {
            json!({ STOPPED: "" })
        } else {
            json!({ "other": "x" })
        };
        json!({ "metadata": { "annotations": annotations },
                "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] } })
    }

    #[test]
    fn only_our_annotation_is_changed() {
        assert_eq!(
            Power::On.patch("t"),
            json!({ "metadata": { "annotations": { STOPPED: null } } })
        );
        assert_eq!(
            Power::Off.patch("t"),
            json!({ "metadata": { "annotations": { STOPPED: "t" } } })
        );
    }

    #[test]
    fn what_is_so_already_is_not_asked_for_again() {
        let (running, stopped) = (
            workspace(false, "Running", "True"),
            workspace(true, "Stopped", "False"),
        );
        assert!(Power::On.is_wanted_by(&running) && !Power::On.is_wanted_by(&stopped));
        assert!(Power::Off.is_wanted_by(&stopped) && !Power::Off.is_wanted_by(&running));
        assert!(Power::On.is_wanted_by(&json!({ "metadata": {} })));
    }

    #[test]
    fn waiting_ends_when_the_status_says_so() {
        assert!(Power::On.is_reached(&workspace(false, "Running", "True")));
        assert!(!Power::On.is_reached(&workspace(false, "Starting", "False")));
        assert!(Power::Off.is_reached(&workspace(true, "Stopped", "False")));
        assert!(!Power::Off.is_reached(&workspace(true, "Stopping", "False")));
        assert!(!Power::On.is_reached(&json!({})));
    }
}
