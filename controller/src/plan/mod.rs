//! Which children a Workspace should have. Entry point: [`plan`].
//!
//! **Architecture Invariant:** everything here is a function of its arguments: no client, no
//! clock, no randomness. Bodies are exactly the fields that the controller owns, ready for
//! server-side apply.

mod catalog;
mod input;
mod labels;
mod mac;
mod machine;
mod paused;
mod pods;
mod ports;
mod problem;
mod resources;
mod service;
mod unsupported;
mod userdata;

#[cfg(test)]
mod golden;

use apiservice::v1alpha1::WorkspaceType;
use base64::Engine;
use serde_json::Value;

use crate::names::cloud_init_secret;

pub use catalog::{Settings, resolve, user_data};
pub use input::{Facts, RunState, Workspace};
pub(crate) use paused::{PausedStart, paused_start};
pub use ports::{Port, Protocol, declared};
pub use problem::{Cause, Problem, Severity};

/// Kind of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// `v1` Secret.
    Secret,
    /// `kubevirt.io/v1` VirtualMachine.
    VirtualMachine,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `apps/v1` Deployment.
    Deployment,
    /// `v1` Service.
    Service,
}

/// A child as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its kind.
    pub kind: ChildKind,
    /// Its name; the namespace is the workspace's.
    pub name: String,
    /// The fields that we own, with `apiVersion`, `kind` and `metadata`.
    pub body: Value,
}

/// All that should exist for a workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Children in the order in which they are applied: what others refer to comes first.
    pub children: Vec<Child>,
    /// Children of an earlier plan that should be gone.
    pub unwanted: Vec<(ChildKind, String)>,
    /// What cannot be done, the worst first.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// The problem that keeps the workload from running, if there is one.
    pub fn blocker(&self) -> Option<&Problem> {
        self.problems
            .iter()
            .find(|problem| problem.severity != Severity::Ignored)
    }
}

/// User-data of a machine: none, or the text, or why it cannot be made.
pub type UserData = Option<Result<String, Problem>>;

/// Decides what should exist. Settings and user-data matter to machines only.
///
/// A workload that is refused is not planned, so that one which exists is left as it is; unless
/// it is stopped: stopping always works.
pub fn plan(workspace: &Workspace, settings: &Settings, user_data: UserData, facts: Facts) -> Plan {
    let (mut children, mut problems) = match workspace.kind {
        WorkspaceType::Container => one(pods::stateful_set(workspace)),
        WorkspaceType::Scratch => one(pods::deployment(workspace)),
        WorkspaceType::Vm => machine_or_why_not(workspace, settings, user_data, facts),
    };
    let (service, more) = service::service(workspace, settings);
    children.push(service);
    problems.extend(more);
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    Plan {
        children,
        unwanted: unwanted(workspace, settings),
        problems,
    }
}

fn one((child, problems): (Child, Vec<Problem>)) -> (Vec<Child>, Vec<Problem>) {
    (vec![child], problems)
}

/// A machine whose image has no user-data must not keep that of the image it had before.
fn unwanted(workspace: &Workspace, settings: &Settings) -> Vec<(ChildKind, String)> {
    if workspace.kind != WorkspaceType::Vm || settings.cloud_init {
        return Vec::new();
    }
    vec![(ChildKind::Secret, cloud_init_secret(&workspace.owner.name))]
}

fn machine_or_why_not(
    workspace: &Workspace,
    settings: &Settings,
    user_data: UserData,
    facts: Facts,
) -> (Vec<Child>, Vec<Problem>) {
    let mut problems = unsupported::of_machine(workspace, settings);
    let (children, more) = machine::machine(workspace, settings, user_data);
    problems.extend(more);
    if !facts.kubevirt {
        problems.push(Problem::kubevirt_missing());
    }
    let refused = problems.iter().any(|p| p.severity == Severity::Refused);
    let planned = facts.kubevirt && !(refused && workspace.run == RunState::Running);
    (if planned { children } else { Vec::new() }, problems)
}

/// Null, an empty string, list or map: the same as not being there.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
