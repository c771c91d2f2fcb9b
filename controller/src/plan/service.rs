//! The Service, which every type of workspace has.

use apiservice::v1alpha1::WorkspaceType;
use serde_json::{Value, json};

use super::catalog::Settings;
use super::input::Workspace;
use super::pods::selector;
use super::problem::Problem;
use super::{Child, ChildKind, ports};
use crate::names::{WORKSPACE_NAME, child_name};

/// The Service, with what it cannot offer.
pub(crate) fn service(workspace: &Workspace, settings: &Settings) -> (Child, Vec<Problem>) {
    let declared = ports::declared(workspace.main_container(), settings.agent_port);
    let (ports, problems) = ports::of_service(&declared);
    let key = match workspace.kind {
        WorkspaceType::Container => "statefulset",
        WorkspaceType::Scratch | WorkspaceType::Vm => WORKSPACE_NAME,
    };
    let name = child_name(&workspace.owner.name);
    let body: Value = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": workspace.owner.child_metadata(&name),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(key, workspace),
            "ports": ports,
        },
    });
    let child = Child {
        kind: ChildKind::Service,
        name,
        body,
    };
    (child, problems)
}
