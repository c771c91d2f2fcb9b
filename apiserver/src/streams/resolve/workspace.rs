//! What a stream needs to know of a Workspace.

use apiserver_generic::Object;
use apiservice::v1alpha1::STOPPED;
use controller::plan::{Port, declared};
use serde_json::Value;

use super::Unresolved;

/// What runs a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A StatefulSet.
    Container,
    /// A Deployment.
    Scratch,
    /// A virtual machine.
    Vm,
}

/// The identity and the state of a Workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; everything is resolved from it.
    pub uid: String,
    /// What runs it.
    pub kind: Kind,
    /// The shell that its catalog entry names.
    pub shell: Option<String>,
    /// The ports that it declares.
    pub ports: Vec<Port>,
    /// Whether it is to be stopped.
    pub stopped: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl Workspace {
    /// Reads an object of ours.
    pub fn read(object: &Object) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().unwrap_or_default().to_owned(),
            kind: match object.str_at("/spec/type") {
                Some("vm") => Kind::Vm,
                Some("scratch") => Kind::Scratch,
                _ => Kind::Container,
            },
            shell: object
                .str_at("/status/image/settings/defaultShell")
                .filter(|shell| !shell.is_empty())
                .map(str::to_owned),
            ports: ports(object),
            stopped: object.annotation(STOPPED).is_some(),
            deleting: object.deletion_timestamp().is_some(),
        }
    }

    /// Whether it is to run at all.
    ///
    /// # Errors
    /// Being deleted, or stopped.
    pub fn wanted(&self) -> Result<(), Unresolved> {
        match self {
            Self { deleting: true, .. } => Err(Unresolved::Deleting),
            Self { stopped: true, .. } => Err(Unresolved::Stopped),
            _ => Ok(()),
        }
    }
}

/// Those of the main container, and the agent's of its image.
fn ports(object: &Object) -> Vec<Port> {
    let container = object.pointer("/spec/template/spec/containers/0");
    let agent = object
        .pointer("/status/image/settings/agentPort")
        .and_then(Value::as_u64)
        .and_then(|port| u16::try_from(port).ok());
    declared(container.unwrap_or(&Value::Null), agent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workspace_is_a_container_unless_it_says_otherwise() {
        for (spec, kind) in [
            (json!({}), Kind::Container),
            (json!({"type": "scratch"}), Kind::Scratch),
            (json!({"type": "vm"}), Kind::Vm),
        ] {
            let object = Object::from_value(json!({"metadata": {"name": "a"}, "spec": spec}));
            assert_eq!(Workspace::read(&object.unwrap()).kind, kind);
        }
    }

    #[test]
    fn the_main_containers_ports_are_the_workspaces() {
        let of = |containers: serde_json::Value| {
            let object = json!({"metadata": {"name": "a"},
                "spec": {"template": {"spec": {"containers": containers}}},
                "status": {"image": {"settings": {"agentPort": 7000}}}});
            let ports = Workspace::read(&Object::from_value(object).unwrap()).ports;
            ports.iter().map(|port| port.number).collect::<Vec<_>>()
        };
        let sidecar = json!({"ports": [{"containerPort": 1}]});
        let main =
            json!({"ports": [{"containerPort": 3000}, {"containerPort": 53, "protocol": "UDP"}]});
        assert_eq!(of(json!([main, sidecar])), [3000, 53, 7000]);
        assert_eq!(of(json!([])), [8080, 7000]);
    }

    #[test]
    fn deletion_comes_before_stopping() {
        let meta = json!({"deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"kubeworkspaces.io/stopped": ""}});
        let object = Object::from_value(json!({ "metadata": meta })).unwrap();
        assert_eq!(Workspace::read(&object).wanted(), Err(Unresolved::Deleting));
    }
}
