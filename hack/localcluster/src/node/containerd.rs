//! containerd: its configuration (version 3), the CNI network list, its command line.
//!
//! Source: containerd `docs/cri/config.md`; CNI specification 1.0.0, plugins `bridge` and `host-local`.

use std::path::Path;

use serde_json::json;

use super::network::POD_RANGES;
use crate::proc::CommandLine;

/// Where it listens, inside the node.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
/// Where it keeps images and snapshots, inside the node.
pub const ROOT: &str = "/var/lib/containerd";

/// Files that containerd is told of.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// runc.
    pub runc: &'a Path,
    /// The shim.
    pub shim: &'a Path,
    /// The directory of CNI plugins.
    pub cni_bin: &'a Path,
    /// The directory of [`conflist`].
    pub cni_conf: &'a Path,
    /// The name of the pause image.
    pub pause: &'a str,
}

/// `config.toml`. AppArmor and huge pages are left alone, and a container's OOM score is never below our own, so that
/// neither needs rights that a virtual machine or a container may lack.
pub fn config(files: Files<'_>) -> String {
    let Files {
        runc,
        shim,
        cni_bin,
        cni_conf,
        pause,
    } = files;
    let [runc, shim, cni_bin, cni_conf] =
        [runc, shim, cni_bin, cni_conf].map(|path| quoted(&path.to_string_lossy()));
    let pause = quoted(pause);
    format!(
        r#"version = 3
root = "{ROOT}"
state = "/run/containerd/state"

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {pause}

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  device_ownership_from_security_context = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = {shim}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = {runc}
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{cni_bin}]
    conf_dir = {cni_conf}
"#
    )
}

/// The network of pods: one bridge, addresses of both families, no NAT.
pub fn conflist() -> String {
    let ranges: Vec<_> = POD_RANGES
        .iter()
        .map(|subnet| json!([{ "subnet": subnet }]))
        .collect();
    let bridge = json!({
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": true,
        "isDefaultGateway": true,
        "hairpinMode": true,
        "ipMasq": false,
        "ipam": { "type": "host-local", "dataDir": "/run/cni", "ranges": ranges },
    });
    let loopback = json!({ "type": "loopback" });
    format!(
        "{:#}\n",
        json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, loopback] })
    )
}

/// The daemon.
pub fn daemon(program: &Path, config: &Path) -> CommandLine {
    CommandLine::new("containerd", program)
        .arg("--config")
        .arg(config)
}

/// `ctr` for what the kubelet sees.
pub fn ctr(program: &Path, socket: &Path) -> CommandLine {
    CommandLine::new("ctr", program)
        .arg("--address")
        .arg(socket)
        .args(["--namespace", "k8s.io"])
}

/// A TOML basic string. TOML's escapes are JSON's, but for DEL, which paths do not hold.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_and_every_file_is_named() {
        let text = config(Files {
            runc: Path::new("/c/runc"),
            shim: Path::new("/c/a \"b\"/shim"),
            cni_bin: Path::new("/c/cni"),
            cni_conf: Path::new("/s/cni"),
            pause: "local.test/pause:1",
        });
        for line in [
            "version = 3",
            "BinaryName = \"/c/runc\"",
            "runtime_path = \"/c/a \\\"b\\\"/shim\"",
            "bin_dirs = [\"/c/cni\"]",
            "conf_dir = \"/s/cni\"",
            "sandbox = \"local.test/pause:1\"",
        ] {
            assert!(
                text.lines().any(|l| l.trim() == line),
                "{line} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn pods_get_an_address_of_each_family_and_no_nat() {
        let list: serde_json::Value = serde_json::from_str(&conflist()).unwrap();
        let bridge = &list["plugins"][0];
        assert_eq!(bridge["ipMasq"], false);
        assert_eq!(bridge["ipam"]["ranges"][0][0]["subnet"], "10.244.0.0/16");
        assert_eq!(bridge["ipam"]["ranges"][1][0]["subnet"], "fd00:10:244::/64");
    }
}
