//! What a stream needs to know of a Workspace.

use apiserver_generic::Object;
use apiservice::v1alpha1::STOPPED;

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
    fn deletion_comes_before_stopping() {
        let meta = json!({"deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"kubeworkspaces.io/stopped": ""}});
        let object = Object::from_value(json!({ "metadata": meta })).unwrap();
        assert_eq!(Workspace::read(&object).wanted(), Err(Unresolved::Deleting));
    }
}
