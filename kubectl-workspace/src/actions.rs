//! `kubectl workspace start`, `stop`, `reboot` and `reset`: what the server is asked, and when it is done.
//! Entry point: [`act`].

use std::time::{Duration, Instant};

use anyhow::bail;
use http::Method;
use serde_json::{Value, json};

use crate::cli;
use crate::cluster::{Cluster, ClusterError};
use crate::say;
use crate::target::Target;

const POLL: Duration = Duration::from_millis(500);

/// A subresource that is posted to, with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run.
    Start {
        /// And halt before the first instruction.
        paused: bool,
    },
    /// Stop.
    Stop,
    /// Restart the guest.
    Reboot {
        /// Without asking it.
        force: bool,
    },
    /// New root disk.
    Reset,
}

impl Action {
    fn subresource(self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Stop => "stop",
            Self::Reboot { .. } => "reboot",
            Self::Reset => "reset",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Start { .. } => "started",
            Self::Stop => "stopped",
            Self::Reboot { .. } => "rebooted",
            Self::Reset => "reset",
        }
    }

    fn options(self) -> Value {
        match self {
            Self::Start { paused: true } => json!({ "paused": true }),
            Self::Reboot { force: true } => json!({ "force": true }),
            _ => json!({}),
        }
    }

    /// Whether `now` is what was asked for. After a restart that is another life of the guest than `before`.
    fn is_reached(self, before: &Value, now: &Value) -> bool {
        match self {
            Self::Start { paused: false } => is_ready(now),
            Self::Start { paused: true } => is_ready(now) || ready(now)["reason"] == "Paused",
            Self::Stop => phase(now) == "Stopped",
            Self::Reset => is_restarted(before, now),
            Self::Reboot { .. } => is_restarted(before, now) || has_agent_back(before, now),
        }
    }

    /// Whether anything will tell that this is done. A guest that reboots in its machine leaves the
    /// machine as it was, and ready; only its agent goes and comes back.
    fn can_be_seen(self, before: &Value) -> bool {
        let in_place = matches!(self, Self::Reboot { .. }) && before["spec"]["type"] == "vm";
        !in_place || is_true(condition(before, AGENT))
    }
}

/// The condition that a guest agent answers.
const AGENT: &str = "AgentConnected";

/// Whether it became ready again in between.
fn is_restarted(before: &Value, now: &Value) -> bool {
    is_ready(now) && since(ready(now)) != since(ready(before))
}

/// Whether the guest's agent went and came back.
fn has_agent_back(before: &Value, now: &Value) -> bool {
    let agent = condition(now, AGENT);
    is_ready(now) && is_true(agent) && since(agent) != since(condition(before, AGENT))
}

fn phase(workspace: &Value) -> &str {
    workspace["status"]["phase"].as_str().unwrap_or("Pending")
}

fn condition<'a>(workspace: &'a Value, kind: &str) -> &'a Value {
    let conditions = workspace["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == kind);
    found.unwrap_or(&Value::Null)
}

fn ready(workspace: &Value) -> &Value {
    condition(workspace, "Ready")
}

fn is_ready(workspace: &Value) -> bool {
    is_true(ready(workspace))
}

fn is_true(condition: &Value) -> bool {
    condition["status"] == "True"
}

fn since(condition: &Value) -> &Value {
    &condition["lastTransitionTime"]
}

impl Action {
    /// What is waited for, for people who wait.
    fn progress(self, now: &Value) -> String {
        match self {
            Self::Reboot { .. } if is_ready(now) && now["spec"]["type"] == "vm" => {
                match is_true(condition(now, AGENT)) {
                    true => "the guest has not gone down yet".to_owned(),
                    false => "the guest reboots; its agent is not back yet".to_owned(),
                }
            }
            _ => progress(now),
        }
    }
}

/// Phase and reason.
fn progress(workspace: &Value) -> String {
    let text = |field: &str| ready(workspace)[field].as_str().unwrap_or_default();
    let (phase, reason, message) = (phase(workspace), text("reason"), text("message"));
    let mut line = phase.to_owned();
    if !reason.is_empty() && reason != phase {
        line.push_str(&format!(" ({reason})"));
    }
    if !message.is_empty() {
        line.push_str(&format!(": {message}"));
    }
    line
}

/// Asks for the action, and waits when that is wanted.
pub async fn act(cluster: &Cluster, options: cli::Action, action: Action) -> anyhow::Result<u8> {
    let cli::Action {
        workspace,
        wait,
        timeout,
        dry_run,
    } = options;
    let target = cluster.target(workspace)?;
    let before = match wait {
        true => cluster.get(&target).await?,
        false => Value::Null,
    };
    let answer = post(cluster, &target, action, dry_run).await?;
    let done = format!("workspace/{} {}", target.name, action.done());
    let seen = wait && action.can_be_seen(&before);
    if !seen {
        let said = answer["message"].as_str().unwrap_or(&done);
        let suffix = if dry_run { " (server dry run)" } else { "" };
        say::out(&format!("{said}{suffix}"))?;
    }
    if wait && !seen {
        say::note(UNSEEN);
    }
    if !seen {
        return Ok(0);
    }
    wait_until_reached(cluster, &target, action, &before, timeout).await?;
    say::out(&done)?;
    Ok(0)
}

const UNSEEN: &str = "Not waited for: the guest has no agent that answers (qemu-guest-agent), and nothing else tells when it has rebooted.";

/// The server's answer, a Status that says in a sentence what is done.
pub async fn post(
    cluster: &Cluster,
    target: &Target,
    action: Action,
    dry_run: bool,
) -> Result<Value, ClusterError> {
    let query = if dry_run { "?dryRun=All" } else { "" };
    let path = format!("{}/{}{query}", target.path(), action.subresource());
    let options = action.options();
    cluster
        .json(Method::POST, &path, "application/json", Some(&options))
        .await
}

async fn wait_until_reached(
    cluster: &Cluster,
    target: &Target,
    action: Action,
    before: &Value,
    timeout: Duration,
) -> anyhow::Result<()> {
    let Target { name, namespace } = target;
    let start = Instant::now();
    let mut said = String::new();
    loop {
        let now = cluster.get(target).await?;
        if action.is_reached(before, &now) {
            return Ok(());
        }
        let progress = action.progress(&now);
        if said != progress {
            say::note(&format!("Waiting for {name}: {progress}"));
            said = progress;
        }
        if start.elapsed() >= timeout {
            bail!(
                "{name}: {said} after {timeout:?}; `kubectl describe workspace {name} -n {namespace}` says more"
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(phase: &str, ready: &str, since: &str) -> Value {
        json!({ "status": { "phase": phase, "conditions": [
            { "type": "Ready", "status": ready, "reason": "R", "message": "m", "lastTransitionTime": since }] } })
    }

    const START: Action = Action::Start { paused: false };
    const REBOOT: Action = Action::Reboot { force: false };

    #[test]
    fn options_are_sent_when_they_are_wanted() {
        assert_eq!(START.options(), json!({}));
        assert_eq!(
            Action::Start { paused: true }.options(),
            json!({"paused": true})
        );
        assert_eq!(
            Action::Reboot { force: true }.options(),
            json!({"force": true})
        );
    }

    #[test]
    fn waiting_ends_when_the_status_says_so() {
        let before = workspace("Running", "True", "1");
        let cases = [
            (START, workspace("Running", "True", "1"), true),
            (START, workspace("Starting", "False", "2"), false),
            (Action::Stop, workspace("Stopped", "False", "2"), true),
            (Action::Stop, workspace("Stopping", "False", "2"), false),
            (REBOOT, workspace("Running", "True", "1"), false),
            (REBOOT, workspace("Starting", "False", "2"), false),
            (REBOOT, workspace("Running", "True", "3"), true),
            (Action::Reset, workspace("Running", "True", "3"), true),
        ];
        for (action, now, expected) in cases {
            assert_eq!(
                action.is_reached(&before, &now),
                expected,
                "{action:?} {now}"
            );
        }
        assert!(!START.is_reached(&json!({}), &json!({})));
        let mut paused = workspace("Running", "False", "2");
        paused["status"]["conditions"][0]["reason"] = json!("Paused");
        assert!(Action::Start { paused: true }.is_reached(&before, &paused));
        assert!(!START.is_reached(&before, &paused));
    }

    #[test]
    fn a_guest_that_reboots_in_its_machine_is_seen_by_its_agent_alone() {
        let vm = |agent: Option<(&str, &str)>| {
            let mut vm = workspace("Running", "True", "1");
            vm["spec"] = json!({"type": "vm"});
            let conditions = vm["status"]["conditions"].as_array_mut().unwrap();
            conditions.extend(agent.map(|(status, since)| {
                json!({"type": "AgentConnected", "status": status, "lastTransitionTime": since})
            }));
            vm
        };
        let before = vm(Some(("True", "1")));
        assert!(REBOOT.can_be_seen(&before));
        assert!(!REBOOT.is_reached(&before, &before));
        assert!(!REBOOT.is_reached(&before, &vm(Some(("False", "2")))));
        assert!(REBOOT.is_reached(&before, &vm(Some(("True", "3")))));
        assert!(!REBOOT.can_be_seen(&vm(None)) && !REBOOT.can_be_seen(&vm(Some(("False", "1")))));
        // What replaces the machine or the pod is seen in any case.
        assert!(Action::Reset.can_be_seen(&vm(None)));
        assert!(REBOOT.can_be_seen(&workspace("Running", "True", "1")));
        for (now, words) in [
            (before.clone(), "not gone down yet"),
            (vm(Some(("False", "2"))), "not back yet"),
        ] {
            assert!(REBOOT.progress(&now).contains(words));
        }
    }

    #[test]
    fn progress_says_phase_reason_and_message() {
        assert_eq!(
            progress(&workspace("Starting", "False", "1")),
            "Starting (R): m"
        );
        assert_eq!(progress(&json!({})), "Pending");
    }
}
