//! The name under which a workspace's host keys are known: workspace, namespace and a hash of the cluster, so that equal
//! names in two namespaces or two clusters are two. Entry points: [`host_key_alias`], [`host_name`].

use sha2::{Digest as _, Sha256};

use crate::target::Target;

/// Characters of the hash. People read it, and it tells a person's clusters apart.
const HASH: usize = 12;

/// `NAME.NAMESPACE.HASH`. A namespace has no dots, so no two workspaces have one alias.
pub(super) fn host_key_alias(target: &Target, server: &str, authorities: &[Vec<u8>]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(server.as_bytes()).chain(authorities.iter().map(Vec::as_slice)) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hex: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}.{}.{}", target.name, target.namespace, &hex[..HASH])
}

/// What people type once the stanza is in their configuration.
pub(super) fn host_name(target: &Target) -> String {
    format!("{}.{}.ws", target.name, target.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_01_equal_names_in_two_namespaces_or_clusters_are_two_hosts() {
        let alias = |name: &str, namespace: &str, server: &str, authority: &[u8]| {
            let target = Target {
                name: name.into(),
                namespace: namespace.into(),
            };
            host_key_alias(&target, server, &[authority.to_vec()])
        };
        let all = [
            alias("rhel9", "t1", "https://a", b"x"),
            alias("rhel9.arm64", "t1", "https://a", b"x"),
            alias("rhel9", "arm64", "https://a", b"x"),
            alias("rhel9", "t1", "https://b", b"x"),
            alias("rhel9", "t1", "https://a", b"y"),
            alias("rhel9", "t1", "https://", b"ax"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert!(all[1].starts_with("rhel9.arm64.t1."), "{}", all[1]);
        assert_eq!(all[0], alias("rhel9", "t1", "https://a", b"x"));
    }
}
