//! The programs that a cluster consists of, and from which Go module each is built.

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binary {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    KubeApiserver,
    /// kube-controller-manager.
    KubeControllerManager,
    /// kube-scheduler.
    KubeScheduler,
    /// kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
    /// kubectl of the cluster's version.
    Kubectl,
    /// kubectl of an older version, for compatibility tests.
    OldKubectl,
    /// containerd.
    Containerd,
    /// containerd's shim for runc.
    ContainerdShim,
    /// containerd's own client.
    Ctr,
    /// runc.
    Runc,
    /// A registry of images, for tests.
    Registry,
}

impl Binary {
    /// What the control plane needs, kubectl included.
    pub const CONTROL_PLANE: [Self; 4] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
    ];

    /// What a whole cluster needs.
    pub const CLUSTER: [Self; 11] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Runc,
    ];

    /// Its file name.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::OldKubectl => "kubectl-old",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Registry => "registry",
        }
    }
}
