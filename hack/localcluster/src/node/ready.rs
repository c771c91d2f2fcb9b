//! Waits for what a new cluster needs before a Pod can be created: the Node is Ready, the default ServiceAccount is
//! there (it comes a moment later, and Pods are refused without it).

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};

use super::error::NodeError;

/// Waits until the node called `name` takes Pods.
///
/// # Errors
/// When it does not within `limit`, or kube-apiserver cannot be asked; `log` says why.
pub async fn ready(
    client: &Client,
    name: &str,
    limit: Duration,
    log: &Path,
) -> Result<(), NodeError> {
    let late = |what: String| NodeError::Late {
        what,
        limit,
        log: log.to_owned(),
    };
    let nodes: Api<Node> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let both = async {
        wait("nodes", await_condition(nodes, name, is_ready())).await?;
        wait(
            "ServiceAccounts",
            await_condition(accounts, "default", exists()),
        )
        .await
    };
    tokio::time::timeout(limit, both)
        .await
        .map_err(|_| late(format!("node {name} is not ready for pods")))?
}

async fn wait<K>(
    what: &'static str,
    condition: impl Future<Output = Result<Option<K>, kube::runtime::wait::Error>>,
) -> Result<(), NodeError> {
    let api = |source| NodeError::Watch {
        what,
        source: Box::new(source),
    };
    condition.await.map(drop).map_err(api)
}

fn is_ready() -> impl Condition<Node> {
    |node: Option<&Node>| node.is_some_and(takes_pods)
}

fn exists() -> impl Condition<ServiceAccount> {
    |account: Option<&ServiceAccount>| account.is_some()
}

/// Ready, and without a taint that keeps Pods away.
fn takes_pods(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True");
    ready && taints.count() == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_takes_pods_when_it_is_ready_and_untainted() {
        let node = |status: &str, taints: serde_json::Value| -> Node {
            serde_json::from_value(json!({
                "metadata": { "name": "node" },
                "spec": { "taints": taints },
                "status": { "conditions": [{ "type": "DiskPressure", "status": "True" }, { "type": "Ready", "status": status }] },
            }))
            .unwrap()
        };
        assert!(takes_pods(&node("True", json!([]))));
        assert!(!takes_pods(&node("False", json!([]))));
        let taint = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }]);
        assert!(!takes_pods(&node("True", taint)));
        assert!(!takes_pods(&Node::default()));
    }
}
