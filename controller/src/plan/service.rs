//! The Service, which every type of workspace has.

use serde_json::{Value, json};

use super::input::{Settings, Workspace, WorkspaceType};
use super::pods::selector;
use super::problem::Problem;
use super::{Child, ChildKind, ports};
use crate::names::{WORKSPACE_NAME, child_name};

/// The Service, with what it cannot offer.
pub(crate) fn service(workspace: &Workspace, settings: &Settings) -> (Child, Vec<Problem>) {
    let declared = ports::declared(workspace.main_container(), agent_port(settings));
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

/// Port of the agent in the guest, if the catalog entry names a possible one.
pub(crate) fn agent_port(settings: &Settings) -> Option<u16> {
    let port = settings.proxy_config.as_ref()?.agent_port;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_possible_agent_port_counts() {
        for (port, expected) in [
            (0, None),
            (-1, None),
            (65536, None),
            (1, Some(1)),
            (44787, Some(44787)),
            (65535, Some(65535)),
        ] {
            let settings: Settings =
                serde_json::from_value(json!({"proxyConfig": {"agentPort": port}})).unwrap();
            assert_eq!(agent_port(&settings), expected, "{port}");
        }
    }
}
