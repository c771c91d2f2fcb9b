//! The kinds of the cluster that the controller touches, as data.

use kube::core::{ApiResource, GroupVersionKind};

use crate::plan::ChildKind;

/// A kind that the controller reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Secret,
    Service,
    Pod,
    StatefulSet,
    Deployment,
    VirtualMachine,
    VirtualMachineInstance,
}

impl Kind {
    /// What is watched in every cluster. Secrets are not: the right to watch them is the right to
    /// read all of them.
    pub(crate) const CORE: [Self; 4] = [
        Self::Service,
        Self::Pod,
        Self::StatefulSet,
        Self::Deployment,
    ];
    /// What is watched while KubeVirt is installed.
    pub(crate) const KUBEVIRT: [Self; 2] = [Self::VirtualMachine, Self::VirtualMachineInstance];

    /// Group, version, kind and plural.
    const fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::VirtualMachine => ("kubevirt.io", "v1", "VirtualMachine", "virtualmachines"),
            Self::VirtualMachineInstance => (
                "kubevirt.io",
                "v1",
                "VirtualMachineInstance",
                "virtualmachineinstances",
            ),
        }
    }

    /// API group.
    pub(crate) fn group(self) -> &'static str {
        self.names().0
    }

    /// Plural name.
    pub(crate) fn plural(self) -> &'static str {
        self.names().3
    }

    /// As kube-rs has it.
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.names();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

impl From<ChildKind> for Kind {
    fn from(kind: ChildKind) -> Self {
        match kind {
            ChildKind::Secret => Self::Secret,
            ChildKind::VirtualMachine => Self::VirtualMachine,
            ChildKind::StatefulSet => Self::StatefulSet,
            ChildKind::Deployment => Self::Deployment,
            ChildKind::Service => Self::Service,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.names().2)
    }
}
