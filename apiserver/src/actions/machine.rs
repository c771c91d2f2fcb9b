//! `reboot` and `reset`: done once, to what runs the workspace.

use std::time::Duration;

use apiserver_generic::{ApiError, Object, cache::Freshness, endpoints::Action};
use http::Request;
use kube::{
    Api, Client,
    api::DeleteParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;

use super::{
    Deps, Outcome, conflict,
    decide::{self, Instance, Reboot},
    pods, unavailable,
};
use crate::streams::{
    resolve::{Kind, Workspace},
    upstream::errors,
};

/// How long the cluster or KubeVirt may take; virt-api itself gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// `reboot`: the guest reboots in its machine, or the pod is replaced.
pub(super) async fn reboot(deps: &Deps, action: &Action) -> Result<Outcome, ApiError> {
    let (object, workspace) = read(deps, action).await?;
    let name = workspace.name.clone();
    let how = match action.switch("force") {
        true => Reboot::Hard,
        false => Reboot::Soft,
    };
    let message = match workspace.kind {
        Kind::Vm => {
            let instance = find(deps, &workspace).await?;
            let instance = decide::reboot(&workspace, instance, how)?;
            if !action.writer.dry_run {
                ask_kubevirt(&deps.client, &workspace, &instance, how).await?;
            }
            format!("workspace \"{name}\" is being rebooted")
        }
        Kind::Container | Kind::Scratch => {
            decide::awake(&workspace)?;
            let pods = pods::to_replace(&workspace, &deps.fetch.pods(&workspace).await?)?;
            for pod in pods {
                delete(
                    deps,
                    action,
                    &workspace,
                    ("", "Pod", "pods"),
                    (&pod.name, &pod.uid),
                )
                .await?;
            }
            format!("the pod of workspace \"{name}\" is being replaced")
        }
    };
    Ok(Outcome {
        workspace: object,
        changed: true,
        message,
    })
}

/// `reset`: the machine gets a new root disk from its image.
pub(super) async fn reset(deps: &Deps, action: &Action) -> Result<Outcome, ApiError> {
    let (object, workspace) = read(deps, action).await?;
    decide::check_reset(&workspace)?;
    let found = find(deps, &workspace).await?;
    let Some(instance) = decide::reset(&workspace, found)? else {
        let name = &workspace.name;
        return Ok(Outcome {
            workspace: object,
            changed: false,
            message: format!("workspace \"{name}\" gets a new root disk when it starts, as always"),
        });
    };
    let kind = (
        "kubevirt.io",
        "VirtualMachineInstance",
        "virtualmachineinstances",
    );
    let target = (instance.name.as_str(), instance.uid.as_str());
    delete(deps, action, &workspace, kind, target).await?;
    Ok(Outcome {
        message: format!(
            "workspace \"{}\" is being reset: its root disk will be as in the image",
            workspace.name
        ),
        workspace: object,
        changed: true,
    })
}

async fn read(deps: &Deps, action: &Action) -> Result<(Object, Workspace), ApiError> {
    let object = deps.workspaces.get(&action.key, Freshness::Latest).await?;
    let workspace = Workspace::read(&object);
    Ok((object, workspace))
}

async fn find(deps: &Deps, workspace: &Workspace) -> Result<Option<Instance>, ApiError> {
    let (vm, vmi) = deps.fetch.machine_parts(workspace).await?;
    decide::own_instance(workspace, vm.as_ref(), vmi.as_ref())
}

/// Deletes the object of this UID; one that is gone by now was replaced by somebody else. A dry run
/// is one in the cluster too.
async fn delete(
    deps: &Deps,
    action: &Action,
    workspace: &Workspace,
    (group, kind, plural): (&str, &str, &str),
    (name, uid): (&str, &str),
) -> Result<(), ApiError> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let api: Api<DynamicObject> =
        Api::namespaced_with(deps.client.clone(), &workspace.namespace, &resource);
    let mut params = DeleteParams {
        dry_run: action.writer.dry_run,
        ..DeleteParams::default()
    };
    params.preconditions = Some(kube::api::Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    match tokio::time::timeout(PATIENCE, api.delete(name, &params)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
            let why = "what runs it was replaced meanwhile; try again if it is still wanted";
            Err(conflict(&workspace.name, why).because(status.message))
        }
        Ok(Err(error)) => Err(unavailable(error)),
        Err(_) => Err(unavailable("no answer")),
    }
}

/// KubeVirt's own action on the instance.
async fn ask_kubevirt(
    client: &Client,
    workspace: &Workspace,
    instance: &Instance,
    how: Reboot,
) -> Result<(), ApiError> {
    let (namespace, name) = (&workspace.namespace, &instance.name);
    let uri = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}/{}",
        how.subresource()
    );
    let body = json!({}).to_string().into_bytes();
    let request = Request::put(uri)
        .header("Content-Type", "application/json")
        .body(body)
        .map_err(ApiError::internal)?;
    match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) => {
            Err(refusal(&workspace.name, status.code, &status.message))
        }
        Ok(Err(error)) => Err(unavailable(error)),
        Err(_) => Err(unavailable("no answer of KubeVirt")),
    }
}

/// KubeVirt's refusal: a state that forbids it is a conflict, an instance that is gone too; a 404
/// about anything else means that KubeVirt's API is not there. The rest is as for streams.
fn refusal(workspace: &str, code: u16, said: &str) -> ApiError {
    match code {
        404 if !said.contains("virtualmachineinstance") => unavailable(format!("KubeVirt: {said}")),
        400 | 404 | 409 => conflict(workspace, &format!("KubeVirt refuses the reboot: {said}")),
        _ => errors::translate(code, said.as_bytes(), "reboot of the machine"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubevirts_words_reach_the_caller_and_our_own_rights_are_not_theirs() {
        for (code, said, expected) in [
            (409, "VMI is paused", 409),
            (
                404,
                "virtualmachineinstance.kubevirt.io \"demo\" not found",
                409,
            ),
            (
                400,
                "Failed to reset non-running VMI with phase Pending",
                409,
            ),
            (404, "404 page not found", 503),
            (403, "the server may not", 500),
            (429, "slow down", 429),
            (500, "Internal error occurred", 503),
            (503, "no endpoints available", 503),
        ] {
            let error = refusal("demo", code, said);
            assert_eq!(error.reason.code(), expected, "{code}: {}", error.message);
            if expected == 409 {
                assert!(error.message.contains(said), "{}", error.message);
            }
        }
    }
}
