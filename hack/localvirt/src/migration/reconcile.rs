//! Does what [`decide`](super::decide) says for one migration.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
    runtime::controller::Action as Requeue,
};
use serde_json::{Value, json};
use tracing::info;

use super::{
    Migration,
    decide::{Seen, Step, decide, phase_after},
};
use crate::{
    api::{Instance, ObjectError, is_controlled_by, migration_resource, vmi_resource},
    guestless::{
        self, Guestless, Script,
        pod::{Binding, node_of},
    },
    vmi::{names, reconcile::delete_pod},
};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The cluster said no.
    #[error("the cluster refused: {0}")]
    Kube(#[from] kube::Error),
    /// The instance is not what its schema says.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The migration is not what its schema says.
    #[error("a VirtualMachineInstanceMigration cannot be read: {0}")]
    Migration(#[from] serde_json::Error),
}

/// What every reconciliation needs.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// Whose streams are cut.
    pub guestless: Guestless,
    /// The addresses of their Pods.
    pub addresses: Vec<IpAddr>,
    /// Whether those Pods name a node.
    pub binding: Binding,
}

struct Apis {
    migrations: Api<DynamicObject>,
    vmis: Api<DynamicObject>,
    pods: Api<Pod>,
}

/// Brings one migration a step further.
///
/// # Errors
/// When the cluster refuses; the controller comes back later.
pub async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Requeue, ReconcileError> {
    let migration = Migration::read(&object)?;
    if migration.is_final() || object.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let client = &context.client;
    let apis = Apis {
        migrations: Api::namespaced_with(client.clone(), &namespace, &migration_resource()),
        vmis: Api::namespaced_with(client.clone(), &namespace, &vmi_resource()),
        pods: Api::namespaced(client.clone(), &namespace),
    };
    let seen = look(&apis, &migration).await?;
    let step = decide(&migration, &seen, Timestamp::now());
    act(&apis, &context, &migration, &seen, &step).await?;
    if let Some(phase) = phase_after(&step).filter(|phase| *phase != migration.phase) {
        info!(
            migration = migration.name(),
            instance = migration.vmi_name,
            ?step,
            "a migration goes on"
        );
        let mut status = json!({ "phase": phase });
        if let Step::Fail(why) = step {
            status["migrationState"] = json!({ "failed": true, "failureReason": why });
        }
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({ "status": status })),
        );
        apis.migrations
            .patch_status(migration.name(), &params, &patch)
            .await?;
    }
    Ok(match step {
        Step::Wait(time) => Requeue::requeue(time.try_into().unwrap_or(Duration::from_secs(1))),
        Step::Keep | Step::Finish | Step::Fail(_) => Requeue::await_change(),
        // Its consequence may be no event of the migration.
        Step::Launch(_) | Step::Begin | Step::HandOver => {
            Requeue::requeue(Duration::from_millis(100))
        }
    })
}

async fn look(apis: &Apis, migration: &Migration) -> Result<Seen, ReconcileError> {
    let Some(object) = apis.vmis.get_opt(&migration.vmi_name).await? else {
        return Ok(Seen::default());
    };
    let vmi = Instance::read(&object)?;
    let moved = vmi
        .migration
        .as_ref()
        .filter(|m| m.migration_uid == migration.uid());
    let source = match moved {
        Some(state) => state.source_pod.clone(),
        None => names::current(&vmi),
    };
    let own = |pod: Option<Pod>| pod.filter(|p| is_controlled_by(&p.metadata, vmi.uid()));
    Ok(Seen {
        source: own(apis.pods.get_opt(&source).await?),
        target: own(apis.pods.get_opt(&target_name(&vmi, migration)).await?),
        instance: Some(vmi),
    })
}

/// The target's name comes from the migration, as a launcher's comes from its instance.
fn target_name(vmi: &Instance, migration: &Migration) -> String {
    names::launcher(vmi.name(), migration.uid())
}

async fn act(
    apis: &Apis,
    context: &Context,
    migration: &Migration,
    seen: &Seen,
    step: &Step,
) -> Result<(), ReconcileError> {
    let Some(vmi) = &seen.instance else {
        return Ok(());
    };
    match step {
        Step::Keep | Step::Wait(_) => {}
        Step::Launch(node) => launch(apis, context, vmi, migration, node).await?,
        Step::Begin => patch_instance(apis, vmi, begun(migration, seen)).await?,
        Step::HandOver => {
            patch_instance(apis, vmi, handed_over(seen)).await?;
            // Only now, so that whoever asks why finds the guest on the other node.
            context.guestless.hand_over(vmi.uid());
        }
        Step::Finish => end(apis, seen.source.as_ref()).await?,
        Step::Fail(_) => {
            if vmi
                .migration
                .as_ref()
                .is_some_and(|m| m.migration_uid == migration.uid() && m.is_under_way())
            {
                let now = Timestamp::now().to_string();
                let failed = json!({ "failed": true, "completed": true, "endTimestamp": now });
                patch_instance(apis, vmi, json!({ "status": { "migrationState": failed } }))
                    .await?;
            }
            end(apis, seen.target.as_ref()).await?;
        }
    }
    Ok(())
}

/// Makes the target's Pod and, as nothing runs it, its status.
async fn launch(
    apis: &Apis,
    context: &Context,
    vmi: &Instance,
    migration: &Migration,
    node: &str,
) -> Result<(), kube::Error> {
    let Some(script) = Script::of(vmi) else {
        return Ok(());
    };
    let name = target_name(vmi, migration);
    let mut pod = guestless::pod::pod(vmi, script, &name, node, context.binding);
    let job = (
        "kubevirt.io/migrationJobUID".to_owned(),
        migration.uid().to_owned(),
    );
    pod.metadata.labels.get_or_insert_default().extend([job]);
    match apis.pods.create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        other => drop(other?),
    }
    if let Some(patch) = guestless::pod::running(&pod, &context.addresses, Timestamp::now()) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        apis.pods.patch_status(&name, &params, &patch).await?;
    }
    Ok(())
}

fn begun(migration: &Migration, seen: &Seen) -> Value {
    let node = |pod: &Option<Pod>| pod.as_ref().and_then(node_of);
    let name = |pod: &Option<Pod>| pod.as_ref().map(|p| p.name_any());
    let state = json!({
        "migrationUid": migration.uid(),
        "startTimestamp": Timestamp::now().to_string(),
        "endTimestamp": null,
        "completed": null,
        "failed": null,
        "mode": "PreCopy",
        "sourceNode": node(&seen.source),
        "sourcePod": name(&seen.source),
        "targetNode": node(&seen.target),
        "targetPod": name(&seen.target),
        "targetNodeDomainDetected": true,
    });
    let label = json!({ "kubevirt.io/migrationTargetNodeName": node(&seen.target) });
    json!({ "metadata": { "labels": label }, "status": { "migrationState": state } })
}

fn handed_over(seen: &Seen) -> Value {
    let node = seen.target.as_ref().and_then(node_of);
    let labels =
        json!({ "kubevirt.io/nodeName": node, "kubevirt.io/migrationTargetNodeName": null });
    let state = json!({ "completed": true, "endTimestamp": Timestamp::now().to_string() });
    json!({ "metadata": { "labels": labels }, "status": { "nodeName": node, "migrationState": state } })
}

async fn patch_instance(apis: &Apis, vmi: &Instance, patch: Value) -> Result<(), kube::Error> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    apis.vmis.patch(vmi.name(), &params, &patch).await.map(drop)
}

async fn end(apis: &Apis, pod: Option<&Pod>) -> Result<(), kube::Error> {
    match pod {
        Some(pod) => delete_pod(&apis.pods, pod, 0).await,
        None => Ok(()),
    }
}
