//! Which root disk a guest runs on: what its host keys live as long as.

use apiserver_generic::{ApiError, Object, Reason};
use apiservice::v1alpha1::{RootIdentity, RootKind};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use std::time::Duration;

/// How long the look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a VirtualMachineInstance says of its root disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// Made anew at every start, so the instance itself stands for it.
    Instance(String),
    /// In the PersistentVolumeClaim of this name.
    Claim(String),
}

/// The root disk: the one that is booted first, else the first (`kubevirt.io/api/core/v1`, Disk
/// `bootOrder`). A DataVolume's claim has its name.
pub fn root(instance: &Object) -> Root {
    let disks = instance.pointer("/spec/domain/devices/disks");
    let disks = disks.and_then(Value::as_array).into_iter().flatten();
    let first = disks.min_by_key(|disk| disk["bootOrder"].as_u64().unwrap_or(u64::MAX));
    let volumes = instance.pointer("/spec/volumes").and_then(Value::as_array);
    let volume = first.and_then(|disk| {
        let named = |volume: &&Value| volume["name"] == disk["name"];
        volumes.into_iter().flatten().find(named)
    });
    let claim = volume.and_then(|volume| {
        let name = volume["persistentVolumeClaim"]["claimName"].as_str();
        name.or(volume["dataVolume"]["name"].as_str())
    });
    match claim {
        Some(name) => Root::Claim(name.to_owned()),
        None => Root::Instance(instance.uid().unwrap_or_default().to_owned()),
    }
}

/// Its identity.
///
/// # Errors
/// The claim is not there, or the cluster did not answer.
pub async fn identify(
    client: &Client,
    namespace: &str,
    root: Root,
) -> Result<RootIdentity, ApiError> {
    let name = match root {
        Root::Instance(uid) => {
            return Ok(RootIdentity {
                kind: RootKind::VirtualMachineInstance,
                uid,
            });
        }
        Root::Claim(name) => name,
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = timeout(PATIENCE, claims.get_opt(&name)).await;
    let claim = match found {
        Ok(Ok(claim)) => claim,
        Ok(Err(error)) => return Err(unavailable(error)),
        Err(late) => return Err(unavailable(late)),
    };
    let uid = claim.and_then(|claim| claim.metadata.uid);
    let kind = RootKind::PersistentVolumeClaim;
    uid.map(|uid| RootIdentity { kind, uid }).ok_or_else(|| {
        ApiError::bad_request(format!(
            "PersistentVolumeClaim \"{name}\" of the guest's root disk is not there; try again in a moment"
        ))
        .retry_after(2)
    })
}

fn unavailable(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the guest's root disk could not be looked up in the cluster; try again",
    )
    .retry_after(1)
    .because(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_is_what_is_booted_first() {
        let volumes = json!([
            {"name": "seed", "cloudInitNoCloud": {}},
            {"name": "rootdisk", "dataVolume": {"name": "demo-root"}},
            {"name": "other", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "image", "containerDisk": {"image": "i"}},
        ]);
        let claim = |name: &str| Root::Claim(name.into());
        let instance = || Root::Instance("vmi".into());
        for (disks, expected) in [
            (
                json!([{"name": "rootdisk"}, {"name": "seed"}]),
                claim("demo-root"),
            ),
            (
                json!([{"name": "rootdisk"}, {"name": "other", "bootOrder": 1}]),
                claim("data"),
            ),
            (
                json!([{"name": "other", "bootOrder": 2}, {"name": "image", "bootOrder": 1}]),
                instance(),
            ),
            (json!([{"name": "image"}, {"name": "other"}]), instance()),
            (json!([{"name": "nowhere"}]), instance()),
            (json!([]), instance()),
        ] {
            let object = json!({"metadata": {"name": "demo", "uid": "vmi"}, "spec": {
                "domain": {"devices": {"disks": disks}}, "volumes": volumes}});
            let object = Object::from_value(object).unwrap();
            assert_eq!(root(&object), expected, "{disks}");
        }
    }
}
