//! The rights that the controller needs, as data: manifests are made from them, and a test holds
//! every call to them.

use crate::kinds::Kind;

/// One rule of a ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Resources, with subresources as `workspaces/finalizers`.
    pub resources: Vec<&'static str>,
    /// Verbs.
    pub verbs: Vec<&'static str>,
}

/// Verbs of what is watched and applied. Apply is `patch`, and `create` when it makes something.
const OWNED: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// Secrets are neither read nor watched.
const BLIND: [&str; 3] = ["create", "patch", "delete"];
const READ: [&str; 3] = ["get", "list", "watch"];

/// Rules that hold in every namespace.
pub fn rbac_rules() -> Vec<Rule> {
    vec![
        rule(&[Kind::StatefulSet, Kind::Deployment], &OWNED),
        rule(&[Kind::Service], &OWNED),
        rule(&[Kind::Secret], &BLIND),
        rule(&[Kind::Pod], &READ),
        rule(&[Kind::VirtualMachine], &OWNED),
        rule(&[Kind::VirtualMachineInstance], &READ),
        // A machine that is to be started paused.
        Rule {
            group: "subresources.kubevirt.io",
            resources: vec!["virtualmachines/start"],
            verbs: vec!["update"],
        },
        // What happened, told to people. A repeated event is patched; none is read.
        Rule {
            group: "events.k8s.io",
            resources: vec!["events"],
            verbs: vec!["create", "patch"],
        },
        // For clusters that enforce who may set blockOwnerDeletion.
        Rule {
            group: apiservice::v1alpha1::GROUP,
            resources: vec!["workspaces/finalizers"],
            verbs: vec!["update"],
        },
    ]
}

/// Verbs on the one Lease, in the server's own namespace and under its name.
pub fn lease_rule() -> Rule {
    Rule {
        group: "coordination.k8s.io",
        resources: vec!["leases"],
        verbs: vec!["get", "create", "patch", "update"],
    }
}

fn rule(kinds: &[Kind], verbs: &[&'static str]) -> Rule {
    Rule {
        group: kinds.first().map(|kind| kind.group()).unwrap_or_default(),
        resources: kinds.iter().map(|kind| kind.plural()).collect(),
        verbs: verbs.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_cannot_be_read() {
        let rules = rbac_rules();
        let secrets = rules
            .iter()
            .filter(|rule| rule.resources.contains(&"secrets"));
        for rule in secrets {
            assert!(READ.iter().all(|verb| !rule.verbs.contains(verb)));
        }
    }

    #[test]
    fn no_rule_is_a_wildcard() {
        for rule in rbac_rules().iter().chain([&lease_rule()]) {
            assert!(!rule.verbs.contains(&"*") && !rule.resources.contains(&"*"));
            assert!(!rule.verbs.is_empty() && !rule.resources.is_empty());
        }
    }
}
