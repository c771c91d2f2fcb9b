//! What certificates a cluster needs, as values.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Subject;

/// The names of one cluster. A directory of certificates made for another plan is made anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where kube-apiserver is reached, `host:port`; goes into kubeconfigs.
    pub server: String,
    /// Further names and addresses of kube-apiserver: its Service's addresses, its own.
    pub server_names: Vec<String>,
    /// The node, if there is one.
    pub node: Option<NodeNames>,
}

/// The names of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNames {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A program, or the administrator, that calls kube-apiserver with a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// People: `system:masters`.
    Admin,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kube-proxy.
    Proxy,
    /// The kubelet of the plan's node.
    Kubelet,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Proxy,
        Self::Kubelet,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Proxy => "kube-proxy",
            Self::Kubelet => "kubelet",
        }
    }

    /// Who it is for kube-apiserver; none for the kubelet of a plan without a node.
    /// Source: `k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy`.
    pub fn subject(self, plan: &Plan) -> Option<Subject> {
        Some(match self {
            Self::Admin => Subject::user("admin").in_group("system:masters"),
            Self::ControllerManager => Subject::user("system:kube-controller-manager"),
            Self::Scheduler => Subject::user("system:kube-scheduler"),
            Self::Proxy => Subject::user("system:kube-proxy"),
            Self::Kubelet => {
                let node = plan.node.as_ref()?;
                Subject::user(format!("system:node:{}", node.name)).in_group("system:nodes")
            }
        })
    }
}

impl Plan {
    /// All names under which kube-apiserver's certificate holds.
    pub fn apiserver_names(&self) -> Vec<String> {
        let well_known = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let host = self
            .server
            .rsplit_once(':')
            .map_or(self.server.as_str(), |(host, _)| host);
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let mut names: Vec<String> = well_known.map(str::to_owned).into();
        for name in std::iter::once(host).chain(self.server_names.iter().cloned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_named_once_however_it_is_written() {
        for (server, want) in [
            ("127.0.0.1:6443", None),
            ("10.1.2.3:6443", Some("10.1.2.3")),
            ("[fd00::1]:6443", Some("fd00::1")),
        ] {
            let plan = Plan {
                server: server.into(),
                server_names: vec!["10.43.0.1".into()],
                node: None,
            };
            let names = plan.apiserver_names();
            let extra: Vec<&str> = names[7..].iter().map(String::as_str).collect();
            let want: Vec<&str> = want.into_iter().chain(["10.43.0.1"]).collect();
            assert_eq!(extra, want, "{server}");
        }
    }

    #[test]
    fn a_kubelet_exists_only_with_a_node() {
        let mut plan = Plan {
            server: "a:1".into(),
            server_names: vec![],
            node: None,
        };
        assert_eq!(Component::Kubelet.subject(&plan), None);
        plan.node = Some(NodeNames {
            name: "n".into(),
            addresses: vec![],
        });
        assert_eq!(
            Component::Kubelet.subject(&plan),
            Some(Subject::user("system:node:n").in_group("system:nodes"))
        );
    }
}
