//! The APIService that routes `kubeworkspaces.io/v1alpha1` to us: made, and its `caBundle` kept right.
//!
//! Only the one object of that name is ever written (RBAC grants it by `resourceNames`). A
//! group-version that a CustomResourceDefinition serves is never taken over.
//! Rules of the object: `kube-aggregator/pkg/apis/apiregistration/validation`.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::v1alpha1;

/// Name of our APIService.
pub const NAME: &str = "v1alpha1.kubeworkspaces.io";
/// Label that kube-aggregator puts on APIServices of CustomResourceDefinitions.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Where kube-apiserver reaches us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReference {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Its port.
    pub port: u16,
}

/// Why we could not register.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A CustomResourceDefinition serves the group-version.
    #[error(
        "a CustomResourceDefinition serves kubeworkspaces.io/v1alpha1 (the APIService {NAME} is managed by kube-apiserver): \
         export the objects (kubectl get workspaces,images -A -o yaml), delete those CustomResourceDefinitions, and start again"
    )]
    CustomResource,
    /// kube-apiserver refused or could not be reached.
    #[error("the APIService {NAME} could not be written: {0}")]
    Api(#[from] kube::Error),
}

/// The APIService as it should be; `ca_bundle` is PEM.
pub fn desired(service: &ServiceReference, ca_bundle: &[u8]) -> Value {
    use base64::Engine as _;
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "kubeworkspaces"}},
        "spec": {
            "group": v1alpha1::GROUP,
            "version": v1alpha1::VERSION,
            "service": {"namespace": service.namespace, "name": service.name, "port": service.port},
            "caBundle": base64::engine::general_purpose::STANDARD.encode(ca_bundle),
            "groupPriorityMinimum": 2000,
            "versionPriority": 100,
        },
    })
}

/// Makes the APIService, or corrects it. Idempotent; cancel safe (one request writes).
///
/// # Errors
/// When a CustomResourceDefinition serves the group-version, or kube-apiserver refuses.
pub async fn ensure(
    client: &Client,
    service: &ServiceReference,
    ca_bundle: &[u8],
) -> Result<(), RegistrationError> {
    let api: Api<APIService> = Api::all(client.clone());
    if let Some(current) = api.get_opt(NAME).await? {
        if current
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(AUTOMANAGED))
        {
            return Err(RegistrationError::CustomResource);
        }
        if is_right(&current, service, ca_bundle) {
            return Ok(());
        }
    }
    let patch = Patch::Apply(desired(service, ca_bundle));
    api.patch(
        NAME,
        &PatchParams::apply("workspaces-apiserver").force(),
        &patch,
    )
    .await?;
    tracing::info!(apiservice = NAME, service = %service.name, "registered");
    Ok(())
}

fn is_right(current: &APIService, service: &ServiceReference, ca_bundle: &[u8]) -> bool {
    let Some(spec) = &current.spec else {
        return false;
    };
    let Some(reference) = &spec.service else {
        return false;
    };
    let bundle = spec
        .ca_bundle
        .as_ref()
        .is_some_and(|bundle| bundle.0 == ca_bundle);
    bundle
        && spec.insecure_skip_tls_verify != Some(true)
        && reference.namespace.as_deref() == Some(&service.namespace)
        && reference.name.as_deref() == Some(&service.name)
        && reference.port.unwrap_or(443) == i32::from(service.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> ServiceReference {
        ServiceReference {
            namespace: "ns".into(),
            name: "svc".into(),
            port: 443,
        }
    }

    #[test]
    fn what_is_desired_is_right_and_anything_else_is_not() {
        let parse = |value: Value| serde_json::from_value::<APIService>(value).unwrap();
        let good = desired(&reference(), b"pem");
        assert!(is_right(&parse(good.clone()), &reference(), b"pem"));
        assert!(!is_right(&parse(good.clone()), &reference(), b"other"));
        let mut other = good.clone();
        other["spec"]["service"]["name"] = json!("evil");
        assert!(!is_right(&parse(other), &reference(), b"pem"));
        let mut insecure = good;
        insecure["spec"]["insecureSkipTLSVerify"] = json!(true);
        assert!(!is_right(&parse(insecure), &reference(), b"pem"));
    }
}
