//! Names, labels and owner references of what we create. Entry point: [`Owner`].
//!
//! A workspace's name is a DNS subdomain of at most 63 characters. Its VirtualMachine and its
//! Secrets bear that name as it is; kinds that allow no dots, or that need room for a suffix of
//! their controller, bear [`child_name`].

use apiservice::v1alpha1::API_VERSION;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::key::Key;

/// The one field manager of everything that the controller applies.
pub const FIELD_MANAGER: &str = "kubeworkspaces-controller";

/// Annotation of a Secret: the catalog entry that it was made from.
pub const MADE_FROM: &str = "kubeworkspaces.io/made-from";
/// Label that maps a child, a pod or a machine back to its workspace by name.
pub const WORKSPACE_NAME: &str = "workspace-name";
/// Label that says which program made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGER: &str = "kubeworkspaces";

/// StatefulSets put `<name>-<10 characters>` into a label of at most 63 characters.
const LONGEST: usize = 52;
const HASH_DIGITS: usize = 12;

/// A name for children whose kind allows no dots (Service, StatefulSet) or adds a suffix.
///
/// The workspace's own name where it is legal, else its beginning and a hash. A legal name that
/// merely looks like such a derived one is derived too: so no two workspaces share a child name.
pub fn child_name(workspace: &str) -> String {
    if is_plain(workspace) {
        return workspace.to_owned();
    }
    let hash = hex(workspace, HASH_DIGITS);
    let mut stem: String = workspace
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .collect();
    if !stem.starts_with(|c: char| c.is_ascii_lowercase()) {
        stem.insert_str(0, "ws-");
    }
    stem.truncate(LONGEST - HASH_DIGITS - 1);
    format!("{}-{hash}", stem.trim_end_matches('-'))
}

/// Name of the Secret with the cloud-init user-data.
pub fn cloud_init_secret(workspace: &str) -> String {
    format!("{workspace}-cloudinit")
}

fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.contains('.')
        && !looks_derived(name)
}

fn looks_derived(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, tail)| {
        tail.len() == HASH_DIGITS && tail.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn hex(text: &str, digits: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let all: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    all[..digits].to_owned()
}

/// The workspace as what it owns refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the workspace.
    pub name: String,
    /// Its namespace, which is that of all its children.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
}

impl Owner {
    /// The address of the workspace.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// The controller reference. It blocks the owner's foreground deletion, so that a machine is
    /// gone before its workspace is.
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": "Workspace", "name": self.name, "uid": self.uid,
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// `metadata` of a child.
    pub fn child_metadata(&self, name: &str) -> Value {
        json!({
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(),
            "ownerReferences": [self.reference()],
        })
    }

    /// Labels that every child has.
    pub fn labels(&self) -> Map<String, Value> {
        let mut labels = Map::new();
        labels.insert(MANAGED_BY.to_owned(), json!(MANAGER));
        labels.insert(WORKSPACE_NAME.to_owned(), json!(self.name));
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn legal_label(name: &str) -> bool {
        !name.is_empty()
            && name.len() <= LONGEST
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["demo", "a", "my-ws", &"a".repeat(52)] {
            assert_eq!(child_name(name), name);
        }
    }

    #[test]
    fn every_name_gives_a_legal_and_distinct_child_name() {
        let long = |tail: &str| format!("{}{tail}", "a".repeat(60));
        let mut names: Vec<String> = ["rhel9.arm64", "rhel9-arm64", "9lives", "ws-9lives", "a.b"]
            .map(str::to_owned)
            .into();
        names.extend([long("aaa"), long("aab"), long("a.b"), "a".repeat(53)]);
        names.push(format!("{}.{}", "x".repeat(38), "y".repeat(20)));
        // A user may pick the very name that another workspace's child has.
        let derived: Vec<String> = names.iter().map(|n| child_name(n)).collect();
        names.extend(derived);
        names.sort();
        names.dedup();

        let children: HashSet<String> = names.iter().map(|n| child_name(n)).collect();
        assert_eq!(children.len(), names.len());
        for child in &children {
            assert!(legal_label(child), "{child}");
        }
    }

    #[test]
    fn children_refer_to_their_workspace_as_controller() {
        let owner = Owner {
            name: "demo".into(),
            namespace: "t1".into(),
            uid: "u-1".into(),
        };
        let metadata = owner.child_metadata("demo-cloudinit");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(metadata["labels"][WORKSPACE_NAME], "demo");
    }
}
