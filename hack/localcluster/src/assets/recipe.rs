//! How each program is built: module, package, flags. Pure: the key of the cache is a digest of all of it.

use sha2::{Digest as _, Sha256};

use super::Binary;
use crate::versions::{CONTAINERD, ETCD, KUBERNETES, OLD_KUBECTL, RUNC, major_minor};

/// A Go module under `hack/go`, carried in this program, so that it builds wherever it was copied.
#[derive(Debug, PartialEq, Eq)]
pub struct GoModule {
    /// Its directory's name.
    pub name: &'static str,
    /// Its files: name and content.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! go_module {
    ($name:literal: $($file:literal),+) => {
        GoModule {
            name: $name,
            files: &[$(($file, include_str!(concat!("../../../go/", $name, "/", $file)))),+],
        }
    };
}

static KUBERNETES_MODULE: GoModule =
    go_module!("kubernetes": "go.mod", "go.sum", "tools.go", "etcd/main.go");
static CONTAINERD_MODULE: GoModule = go_module!("containerd": "go.mod", "go.sum", "tools.go");
static RUNC_MODULE: GoModule = go_module!("runc": "go.mod", "go.sum", "tools.go");
static REGISTRY_MODULE: GoModule = go_module!("registry": "go.mod", "go.sum", "main.go");
static OLD_KUBECTL_MODULE: GoModule = go_module!("kubectl-old": "go.mod", "go.sum", "tools.go");

/// What `go build` is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Where it runs.
    pub module: &'static GoModule,
    /// The package with the main function.
    pub package: &'static str,
    /// Build tags.
    pub tags: &'static str,
    /// Linker flags.
    pub ldflags: String,
    /// Whether C is compiled in: only runc, whose seccomp support is libseccomp.
    pub cgo: bool,
}

/// How `binary` is built.
pub fn recipe(binary: Binary) -> Recipe {
    let kubernetes = |package| plain(&KUBERNETES_MODULE, package, kubernetes_ldflags(KUBERNETES));
    match binary {
        Binary::Etcd => plain(&KUBERNETES_MODULE, "./etcd", "-s -w".to_owned()),
        Binary::KubeApiserver => kubernetes("k8s.io/kubernetes/cmd/kube-apiserver"),
        Binary::KubeControllerManager => {
            kubernetes("k8s.io/kubernetes/cmd/kube-controller-manager")
        }
        Binary::KubeScheduler => kubernetes("k8s.io/kubernetes/cmd/kube-scheduler"),
        Binary::Kubelet => kubernetes("k8s.io/kubernetes/cmd/kubelet"),
        Binary::KubeProxy => kubernetes("k8s.io/kubernetes/cmd/kube-proxy"),
        Binary::Kubectl => kubernetes("k8s.io/kubernetes/cmd/kubectl"),
        Binary::OldKubectl => plain(
            &OLD_KUBECTL_MODULE,
            "k8s.io/kubernetes/cmd/kubectl",
            kubernetes_ldflags(OLD_KUBECTL),
        ),
        Binary::Containerd => containerd("github.com/containerd/containerd/v2/cmd/containerd"),
        Binary::ContainerdShim => {
            containerd("github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2")
        }
        Binary::Ctr => containerd("github.com/containerd/containerd/v2/cmd/ctr"),
        Binary::Runc => runc(),
        Binary::Registry => plain(&REGISTRY_MODULE, ".", "-s -w".to_owned()),
    }
}

/// The name of the cache's directory: the versions for people, a digest of every module and flag for the machine.
pub(super) fn key() -> String {
    let mut digest = Sha256::new();
    for binary in Binary::CLUSTER.into_iter().chain([Binary::OldKubectl]) {
        let Recipe {
            module,
            package,
            tags,
            ldflags,
            cgo,
        } = recipe(binary);
        for text in [package, tags, &ldflags, if cgo { "cgo" } else { "" }] {
            digest.update(text);
            digest.update([0]);
        }
        for (name, content) in module.files {
            digest.update(name);
            digest.update([0]);
            digest.update(content);
            digest.update([0]);
        }
    }
    let digest: String = digest.finalize()[..4]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("kubernetes-{KUBERNETES}-etcd-{ETCD}-containerd-{CONTAINERD}-runc-{RUNC}-{digest}")
}

fn plain(module: &'static GoModule, package: &'static str, ldflags: String) -> Recipe {
    Recipe {
        module,
        package,
        tags: "",
        ldflags,
        cgo: false,
    }
}

/// Without the version, clients cannot parse what `/version` answers. Both packages hold a copy of it.
fn kubernetes_ldflags(version: &str) -> String {
    let (major, minor) = major_minor(version).unwrap_or_default();
    ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].iter().fold("-s -w".to_owned(), |flags, package| {
        format!("{flags} -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
    })
}

/// The snapshotters that need C libraries or other filesystems are left out.
fn containerd(package: &'static str) -> Recipe {
    Recipe {
        module: &CONTAINERD_MODULE,
        package,
        tags: "no_btrfs no_devmapper no_zfs",
        ldflags: format!(
            "-s -w -X github.com/containerd/containerd/v2/version.Version={CONTAINERD}"
        ),
        cgo: false,
    }
}

fn runc() -> Recipe {
    let version = RUNC.trim_start_matches('v');
    Recipe {
        module: &RUNC_MODULE,
        package: "github.com/opencontainers/runc",
        tags: "seccomp netgo osusergo",
        ldflags: format!("-s -w -X main.version={version} -linkmode external -extldflags -static"),
        cgo: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::{KUBERNETES_STAGING, REGISTRY};

    fn go_mod(module: &GoModule) -> &'static str {
        module
            .files
            .iter()
            .find(|(name, _)| *name == "go.mod")
            .unwrap()
            .1
    }

    #[test]
    fn the_modules_pin_the_versions_that_this_crate_names() {
        for (module, pins) in [
            (
                &KUBERNETES_MODULE,
                vec![
                    format!("k8s.io/kubernetes {KUBERNETES}"),
                    format!("go.etcd.io/etcd/server/v3 {ETCD}"),
                ],
            ),
            (
                &CONTAINERD_MODULE,
                vec![format!("github.com/containerd/containerd/v2 {CONTAINERD}")],
            ),
            (
                &RUNC_MODULE,
                vec![format!("github.com/opencontainers/runc {RUNC}")],
            ),
            (
                &REGISTRY_MODULE,
                vec![format!(
                    "github.com/distribution/distribution/v3 {REGISTRY}"
                )],
            ),
            (
                &OLD_KUBECTL_MODULE,
                vec![format!("k8s.io/kubernetes {OLD_KUBECTL}")],
            ),
        ] {
            for pin in pins {
                assert!(
                    go_mod(module).contains(&pin),
                    "hack/go/{}/go.mod does not require {pin}",
                    module.name
                );
            }
        }
        let replaced = go_mod(&KUBERNETES_MODULE)
            .lines()
            .filter(|l| l.contains("=> k8s.io/"));
        for line in replaced {
            assert!(line.ends_with(KUBERNETES_STAGING), "{line}");
        }
    }

    #[test]
    fn every_program_is_imported_by_its_module_so_that_go_sum_covers_it() {
        for binary in Binary::CLUSTER.into_iter().chain([Binary::OldKubectl]) {
            let Recipe {
                module, package, ..
            } = recipe(binary);
            let held = package == "./etcd"
                || module
                    .files
                    .iter()
                    .any(|(_, text)| text.contains(&format!("\"{package}\"")));
            assert!(
                held,
                "hack/go/{}/tools.go does not import {package}",
                module.name
            );
        }
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        let flags = recipe(Binary::Kubectl).ldflags;
        assert!(
            flags.contains("-X k8s.io/component-base/version.gitVersion=v1.37.2"),
            "{flags}"
        );
        assert!(
            flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=37"),
            "{flags}"
        );
        assert!(recipe(Binary::OldKubectl).ldflags.contains("gitMinor=34"));
    }

    #[test]
    fn the_key_names_the_versions() {
        assert!(
            key().starts_with("kubernetes-v1.37.2-etcd-v3.7.3-containerd-v2.4.2-runc-v1.5.3-"),
            "{}",
            key()
        );
    }
}
