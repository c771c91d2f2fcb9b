//! What `status` says of what is in the cluster: our server, localvirt, the APIs, the guests.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use localcluster::steps::{localvirt, server};

/// A line: what it is, how it is, and whether that is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) how: String,
    pub(super) good: bool,
}

/// A line for each. `on_host` says that the server is a process of this machine, which has a line of its own.
pub(super) async fn lines(client: &Client, on_host: bool) -> Vec<Line> {
    let mut lines = vec![deployed(client, localvirt::NAME, localvirt::NAME).await];
    if !on_host {
        lines.push(deployed(client, server::NAMESPACE, server::NAME).await);
    }
    for name in [localvirt::APISERVICE, server::APISERVICE] {
        lines.push(registered(client, name).await);
    }
    lines.push(guests(client).await);
    lines
}

/// The same for a cluster that exists, where only the server is ours.
pub(super) async fn server_lines(client: &Client) -> Vec<Line> {
    vec![
        deployed(client, server::NAMESPACE, server::NAME).await,
        registered(client, server::APISERVICE).await,
    ]
}

async fn deployed(client: &Client, namespace: &str, name: &str) -> Line {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    deployment(name, &api.get_opt(name).await)
}

async fn registered(client: &Client, name: &str) -> Line {
    let api: Api<APIService> = Api::all(client.clone());
    apiservice(name, &api.get_opt(name).await)
}

fn deployment(name: &str, found: &kube::Result<Option<Deployment>>) -> Line {
    let (good, how) = match found {
        Ok(None) => (false, "not installed".to_owned()),
        Err(error) => (false, error.to_string()),
        Ok(Some(found)) => {
            let wanted = found.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
            let ready = found
                .status
                .as_ref()
                .and_then(|s| s.ready_replicas)
                .unwrap_or(0);
            (ready >= wanted, format!("{ready} of {wanted} ready"))
        }
    };
    line(format!("deployment {name}"), how, good)
}

fn apiservice(name: &str, found: &kube::Result<Option<APIService>>) -> Line {
    let (good, how) = match found {
        Ok(None) => (false, "not registered".to_owned()),
        Err(error) => (false, error.to_string()),
        Ok(Some(found)) => {
            let conditions = found
                .status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten());
            match conditions.into_iter().find(|c| c.type_ == "Available") {
                Some(c) if c.status == "True" => (true, "Available".to_owned()),
                Some(c) => (
                    false,
                    c.message
                        .clone()
                        .unwrap_or_else(|| "not Available".to_owned()),
                ),
                None => (false, "not asked yet".to_owned()),
            }
        }
    };
    line(format!("API {name}"), how, good)
}

/// Guests are people's own: none, or one that does not run, is no fault.
async fn guests(client: &Client) -> Line {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    match api.list(&ListParams::default()).await {
        Ok(list) => line("guests".into(), count(&list.items), true),
        Err(error) => line("guests".into(), error.to_string(), false),
    }
}

fn count(guests: &[DynamicObject]) -> String {
    let running = guests
        .iter()
        .filter(|guest| guest.data["status"]["phase"] == "Running")
        .count();
    format!("{running} running, {} in all", guests.len())
}

fn line(what: String, how: String, good: bool) -> Line {
    Line { what, how, good }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> kube::Result<Option<T>> {
        Ok(Some(serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn a_deployment_is_good_when_all_its_replicas_are_ready() {
        for (ready, good) in [(0, false), (1, false), (2, true)] {
            let found = parsed(
                json!({"metadata": {}, "spec": {"replicas": 2, "selector": {},
                "template": {}}, "status": {"readyReplicas": ready}}),
            );
            let line = deployment("x", &found);
            assert_eq!((line.good, line.how), (good, format!("{ready} of 2 ready")));
        }
        assert!(!deployment("x", &Ok(None)).good);
    }

    #[test]
    fn an_api_that_is_not_available_says_why() {
        let with = |status: &str, message: &str| {
            let condition = json!({"type": "Available", "status": status, "message": message});
            apiservice(
                "x",
                &parsed(json!({"metadata": {}, "spec": {"groupPriorityMinimum": 1,
                "versionPriority": 1}, "status": {"conditions": [condition]}})),
            )
        };
        assert!(with("True", "all checks passed").good);
        let bad = with("False", "no response");
        assert_eq!((bad.good, bad.how.as_str()), (false, "no response"));
        assert_eq!(apiservice("x", &Ok(None)).how, "not registered");
    }

    #[test]
    fn guests_are_counted_by_their_phase() {
        let guest = |phase: &str| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "g"}, "status": {"phase": phase}}))
                .unwrap()
        };
        let all = [guest("Running"), guest("Scheduling")];
        assert_eq!(count(&all), "1 running, 2 in all");
        assert_eq!(count(&[]), "0 running, 0 in all");
    }
}
