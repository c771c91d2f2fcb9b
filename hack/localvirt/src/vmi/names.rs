//! Names of what belongs to an instance.

use sha2::{Digest as _, Sha256};

use crate::api::Instance;

/// Letters that kube-apiserver's own generated names use: no vowels, hence no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest instance name that a launcher's name can carry whole.
const LONGEST: usize = 63;

/// `virt-launcher-<instance>-<suffix>`: the suffix comes from the UID, so that making it twice makes one.
pub fn launcher(vmi_name: &str, vmi_uid: &str) -> String {
    let short: String = vmi_name.chars().take(LONGEST).collect();
    format!(
        "virt-launcher-{}-{}",
        short.trim_end_matches(['-', '.']),
        suffix(vmi_uid)
    )
}

/// The launcher that an instance's guest is in now: another one after a migration.
pub fn current(vmi: &Instance) -> String {
    let moved = vmi.migration.as_ref().map(|m| match m.has_moved() {
        true => &m.target_pod,
        false => &m.source_pod,
    });
    match moved.filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => launcher(vmi.name(), vmi.uid()),
    }
}

/// The other launcher of a migration: the target before the guest has moved, the source afterwards.
pub fn other(vmi: &Instance) -> Option<String> {
    let migration = vmi.migration.as_ref()?;
    let name = match migration.has_moved() {
        true => &migration.source_pod,
        false => &migration.target_pod,
    };
    Some(name.clone()).filter(|name| !name.is_empty())
}

fn suffix(seed: &str) -> String {
    Sha256::digest(seed.as_bytes())
        .iter()
        .take(5)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// A host name from an instance name: its first label (`pkg/hostname/sanitize.go`).
pub fn hostname(vmi_name: &str) -> String {
    let first = vmi_name.split('.').next().unwrap_or(vmi_name);
    let short: String = first.chars().take(LONGEST).collect();
    short.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::instance;

    #[test]
    fn a_launchers_name_is_stable_and_differs_between_instances_of_one_name() {
        let name = launcher("demo", "uid-1");
        assert_eq!(name, launcher("demo", "uid-1"));
        assert_ne!(name, launcher("demo", "uid-2"));
        assert!(
            name.starts_with("virt-launcher-demo-")
                && name.len() == "virt-launcher-demo-".len() + 5
        );
    }

    #[test]
    fn a_guest_is_in_the_target_once_it_has_moved() {
        let with = |state: serde_json::Value| {
            let status = serde_json::json!({ "migrationState": state });
            let vmi = instance(serde_json::json!({"domain": {}}), status);
            (current(&vmi), other(&vmi))
        };
        let pods = |current: &str, other: &str| (current.to_owned(), Some(other.to_owned()));
        let state = |completed, failed| serde_json::json!({"sourcePod": "s", "targetPod": "t", "completed": completed, "failed": failed});
        assert_eq!(with(state(false, false)), pods("s", "t"));
        assert_eq!(with(state(true, false)), pods("t", "s"));
        assert_eq!(with(state(true, true)), pods("s", "t"));
        let (current, other) = with(serde_json::Value::Null);
        assert!(current.starts_with("virt-launcher-demo-") && other.is_none());
    }

    #[test]
    fn a_host_name_is_one_label() {
        assert_eq!(hostname("demo.example.test"), "demo");
        assert_eq!(hostname("demo"), "demo");
    }
}
