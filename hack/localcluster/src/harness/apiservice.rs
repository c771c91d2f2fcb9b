//! Putting an aggregated server that runs on this machine behind kube-apiserver.
//!
//! A Service of type ExternalName leads to `localhost`; the APIService's port is the server's own. The name that
//! kube-apiserver checks in the server's certificate is still `<service>.<namespace>.svc`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::HarnessError;

/// Whose fields these are.
const MANAGER: &str = "localcluster-harness";
/// How long an APIService has to become Available. kube-apiserver asks at once and then with growing pauses.
const AVAILABLE_LIMIT: Duration = Duration::from_secs(60);

/// What to register.
#[derive(Clone, Debug)]
pub struct Registration<'a> {
    /// The API group.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The namespace of the Service, made if it is missing.
    pub namespace: &'a str,
    /// The Service's name.
    pub service: &'a str,
    /// Where the server listens on this machine.
    pub port: u16,
    /// The authority of its certificate, PEM.
    pub ca: &'a str,
}

impl Registration<'_> {
    /// The APIService's name.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// Makes the Service and the APIService, and waits until kube-apiserver finds the server Available.
pub async fn register(
    client: &Client,
    registration: &Registration<'_>,
) -> Result<(), HarnessError> {
    external_name_service(client, registration.namespace, registration.service).await?;
    let name = registration.name();
    let api: Api<APIService> = Api::all(client.clone());
    apply(&api, &name, &apiservice(registration)).await?;
    wait_available(client, &name).await
}

/// Makes only the Service, for a server that registers itself.
pub async fn external_name_service(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(), HarnessError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    apply(
        &namespaces,
        namespace,
        &json!({"apiVersion": "v1", "kind": "Namespace"}),
    )
    .await?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    apply(
        &services,
        name,
        &json!({"apiVersion": "v1", "kind": "Service", "spec": spec}),
    )
    .await
}

/// Waits until the APIService called `name` is Available.
pub async fn wait_available(client: &Client, name: &str) -> Result<(), HarnessError> {
    let api: Api<APIService> = Api::all(client.clone());
    let available =
        |service: Option<&APIService>| service.is_some_and(|s| condition(s).0 == "True");
    match tokio::time::timeout(
        AVAILABLE_LIMIT,
        await_condition(api.clone(), name, available),
    )
    .await
    {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(not_available(name, e.to_string())),
        Err(_) => {
            let last = api.get_opt(name).await.map_or_else(
                |e| e.to_string(),
                |found| found.map_or_else(|| "it does not exist".to_owned(), |s| condition(&s).1),
            );
            Err(not_available(name, last))
        }
    }
}

fn not_available(name: &str, last: String) -> HarnessError {
    HarnessError::NotAvailable {
        name: name.to_owned(),
        seconds: AVAILABLE_LIMIT.as_secs(),
        last,
    }
}

/// The status and message of the condition Available.
fn condition(service: &APIService) -> (String, String) {
    let conditions = service
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .filter(|c| c.type_ == "Available")
        .map(|c| (c.status.clone(), c.message.clone().unwrap_or_default()))
        .next()
        .unwrap_or_else(|| (String::new(), "it has no condition yet".to_owned()))
}

fn apiservice(registration: &Registration<'_>) -> Value {
    use base64::Engine as _;
    let Registration {
        group,
        version,
        namespace,
        service,
        port,
        ca,
    } = registration;
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": {"namespace": namespace, "name": service, "port": port},
            "caBundle": base64::engine::general_purpose::STANDARD.encode(ca),
        },
    })
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<(), HarnessError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut object = object.clone();
    object["metadata"] = json!({ "name": name });
    let params = PatchParams::apply(MANAGER).force();
    let fail = |e| HarnessError::Api {
        doing: format!("applying {} {name}", object["kind"]),
        source: Box::new(e),
    };
    api.patch(name, &params, &Patch::Apply(&object))
        .await
        .map(drop)
        .map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_explains_itself() {
        let with = |conditions: Value| -> APIService {
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let failing = with(json!([
            {"type": "Other", "status": "True"},
            {"type": "Available", "status": "False", "message": "connection refused"},
        ]));
        assert_eq!(
            condition(&failing),
            ("False".into(), "connection refused".into())
        );
        assert_eq!(condition(&with(json!([]))).0, "");
    }
}
