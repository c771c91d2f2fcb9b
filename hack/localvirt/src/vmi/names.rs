//! Names of what belongs to an instance.

use sha2::{Digest as _, Sha256};

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
    fn a_host_name_is_one_label() {
        assert_eq!(hostname("demo.example.test"), "demo");
        assert_eq!(hostname("demo"), "demo");
    }
}
