//! The versions of everything that is built, in one place.
//!
//! The Go modules under `hack/go` pin the same versions with their checksums; a test holds both together, and
//! `hack/go/update` changes both.

/// Kubernetes: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl.
pub const KUBERNETES: &str = "v1.37.2";

/// The `k8s.io/*` modules that are released with [`KUBERNETES`].
pub const KUBERNETES_STAGING: &str = "v0.37.2";

/// etcd's server module.
pub const ETCD: &str = "v3.7.3";

/// containerd, its runc shim and `ctr`.
pub const CONTAINERD: &str = "v2.4.2";

/// runc.
pub const RUNC: &str = "v1.5.3";

/// The older kubectl with which compatibility is tested: three minor versions behind [`KUBERNETES`].
pub const OLD_KUBECTL: &str = "v1.34.4";

/// The registry of tests against a cluster that exists.
pub const REGISTRY: &str = "v3.0.0";

/// The oldest Go toolchain that compiles the modules above, as (major, minor).
pub const GO: (u32, u32) = (1, 26);

/// The major and minor number of a version such as `v1.37.2`, as `version.Info` wants them.
pub fn major_minor(version: &str) -> Option<(&str, &str)> {
    let mut parts = version.strip_prefix('v')?.split('.');
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_splits_into_major_and_minor() {
        assert_eq!(major_minor(KUBERNETES), Some(("1", "37")));
        assert_eq!(major_minor("1.37.2"), None);
        assert_eq!(major_minor("v2"), None);
    }
}
