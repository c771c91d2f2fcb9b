//! The kernel module that the node needs and that nothing loads by itself: `br_netfilter`, without which a Service's
//! answer to a pod of the same node goes past kube-proxy's rules.
//!
//! What else is a module (overlay, veth, nf_tables) the kernel loads when it is asked for. Loading this one would make
//! the machine's own bridges filter packets, so there it is switched off; the node switches it on in its namespace.
//! Source: the kernel's `br_netfilter_hooks.c` and `ip-sysctl.rst`.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{NodeError, io_error};
use super::namespaces::Namespaces;
use super::tool::{machine, output};

/// Its name, and where its settings are once it is there.
const MODULE: &str = "br_netfilter";
const SETTINGS: &str = "/proc/sys/net/bridge";

/// The modules that were loaded for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modules(Vec<String>);

impl Modules {
    /// What has to be loaded. Changes nothing.
    pub fn plan() -> Self {
        Self::without(Path::new(SETTINGS))
    }

    fn without(settings: &Path) -> Self {
        let missing = (!settings.is_dir()).then(|| MODULE.to_owned());
        Self(missing.into_iter().collect())
    }

    /// Loads them, and leaves the machine's bridges as they are.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn load(&self) -> Result<(), NodeError> {
        for module in &self.0 {
            output(&machine("modprobe").arg(module))?;
            switch_off(Path::new(SETTINGS))?;
        }
        Ok(())
    }

    /// Unloads them, unless somebody else has begun to use them; another node does without the kernel's knowing it.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn unload(&self) -> Result<(), NodeError> {
        if self.0.is_empty() || Namespaces::any()? {
            return Ok(());
        }
        for module in &self.0 {
            match output(&machine("modprobe").arg("--remove").arg(module)) {
                Err(NodeError::Command { stderr, .. }) if stderr.contains("in use") => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

/// Writes 0 to every setting that makes bridges call filters.
fn switch_off(settings: &Path) -> Result<(), NodeError> {
    for entry in fs::read_dir(settings).map_err(io_error("list", settings))? {
        let entry = entry.map_err(io_error("list", settings))?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("bridge-nf-call-") {
            let path = entry.path();
            fs::write(&path, "0").map_err(io_error("write", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_loaded_and_bridges_of_the_machine_stay_as_they_are() {
        let temp = tempfile::tempdir().unwrap();
        let settings = temp.path().join("bridge");
        assert_eq!(
            Modules::without(&settings),
            Modules(vec![MODULE.to_owned()])
        );
        fs::create_dir(&settings).unwrap();
        assert_eq!(Modules::without(&settings), Modules::default());
        for name in ["bridge-nf-call-iptables", "bridge-nf-pass-vlan-input-dev"] {
            fs::write(settings.join(name), "1").unwrap();
        }
        switch_off(&settings).unwrap();
        let read = |name: &str| fs::read_to_string(settings.join(name)).unwrap();
        assert_eq!(read("bridge-nf-call-iptables"), "0");
        assert_eq!(read("bridge-nf-pass-vlan-input-dev"), "1");
    }

    #[test]
    fn nothing_loaded_is_nothing_to_unload() {
        Modules::default().load().unwrap();
        Modules::default().unload().unwrap();
    }
}
