//! Gives one VirtualMachineInstance its launcher, and writes what is known about it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Pod, Secret},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
    runtime::controller::Action as Requeue,
};
use tracing::{debug, info};

use super::{
    names,
    pod::{self, Program},
    spec::launcher_spec,
    status::{self, Observed},
};
use crate::{
    api::{Instance, ObjectError, Phase, VMI_FINALIZER, is_controlled_by, vmi_resource},
    dial::{Launchers, Target, Way},
    faults::{Faults, Plan},
    finalizers,
    guestless::{self, Guestless, Script, pod::Binding},
    launcher::protocol::{Reply, Request, Status, server_name},
    pki::{Authority, PkiError, Usage},
};

/// How soon a launcher that has no guest yet is asked again.
const STARTING_INTERVAL: Duration = Duration::from_millis(500);
/// How soon a running guest's launcher is asked again (the agent comes and goes by itself).
const RUNNING_INTERVAL: Duration = Duration::from_secs(5);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The cluster said no.
    #[error("the cluster refused: {0}")]
    Kube(#[from] kube::Error),
    /// The object is not what its schema says.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// No certificate for the launcher.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The launcher's spec cannot be written.
    #[error("launcher spec: {0}")]
    Json(#[from] serde_json::Error),
}

/// What every reconciliation needs.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// What launchers are made of.
    pub program: Program,
    /// Makes their certificates.
    pub authority: Arc<Authority>,
    /// Asks them.
    pub launchers: Arc<dyn Launchers>,
    /// Machines without a guest.
    pub guestless: Guestless,
    /// The addresses of their Pods.
    pub guestless_addresses: Vec<IpAddr>,
    /// Whether those Pods name a node.
    pub binding: Binding,
    /// Told what objects say about faults.
    pub faults: Faults,
}

struct Apis {
    vmis: Api<DynamicObject>,
    pods: Api<Pod>,
    secrets: Api<Secret>,
}

/// Brings one instance a step closer to running, and its status up to date.
///
/// # Errors
/// When the cluster refuses; the controller comes back later.
pub async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Requeue, ReconcileError> {
    let vmi = Instance::read(&object)?;
    let namespace = object.namespace().unwrap_or_default();
    let apis = Apis {
        vmis: Api::namespaced_with(context.client.clone(), &namespace, &vmi_resource()),
        pods: Api::namespaced(context.client.clone(), &namespace),
        secrets: Api::namespaced(context.client.clone(), &namespace),
    };
    let mut seen = Observed {
        pod: own(&apis, &vmi, &names::current(&vmi)).await?,
        ..Observed::default()
    };
    if let Some(name) = names::other(&vmi) {
        seen.other = own(&apis, &vmi, &name).await?;
    }
    match Plan::of(&vmi.meta) {
        Ok(plan) => context.faults.publish(vmi.uid(), plan),
        // Its streams are refused with the same words.
        Err(error) => debug!(instance = vmi.name(), %error, "no faults"),
    }
    if vmi.is_deleted() {
        context.guestless.shut(vmi.uid());
        if finalize(&apis, &vmi, &seen).await? {
            return Ok(Requeue::await_change());
        }
    }
    if !vmi.is_deleted() && seen.pod.is_none() && vmi.phase <= Phase::Pending {
        let launched = match Script::of(&vmi) {
            Some(script) => launch_guestless(&apis, &context, &vmi, script).await?,
            None => launch(&apis, &context, &vmi).await?,
        };
        match launched {
            Ok(pod) => seen.pod = Some(pod),
            Err(why) => seen.failure = Some(why),
        }
    }
    run_guestless(&apis, &context, &vmi, &mut seen).await?;
    seen.launcher = ask(&context, &vmi, seen.pod.as_ref()).await;
    if let Some(patch) = status::patch(&vmi, &seen, Timestamp::now()) {
        apis.vmis
            .patch(vmi.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(again(&vmi, &seen))
}

fn again(vmi: &Instance, seen: &Observed) -> Requeue {
    match status::next_phase(vmi, seen) {
        // Nothing happens to it that is not an event.
        Phase::Running if Script::of(vmi).is_some() => Requeue::await_change(),
        Phase::Scheduled => Requeue::requeue(STARTING_INTERVAL),
        Phase::Running => Requeue::requeue(RUNNING_INTERVAL),
        // A quota may be raised, without anything here that watches for it.
        Phase::Pending if seen.failure.is_some() => Requeue::requeue(RUNNING_INTERVAL),
        _ => Requeue::await_change(),
    }
}

/// Makes the Secret and the Pod. What the instance cannot have is the inner error.
async fn launch(
    apis: &Apis,
    context: &Context,
    vmi: &Instance,
) -> Result<Result<Pod, String>, ReconcileError> {
    let parts = launcher_spec(vmi, context.program.control_port)
        .and_then(|spec| Ok((spec, pod::pod(vmi, &context.program)?)));
    let (spec, pod) = match parts {
        Ok(parts) => parts,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let leaf = context
        .authority
        .issue(&[server_name(vmi.uid())], &[], Usage::Server)?;
    let secret = pod::secret(vmi, &spec, &leaf, context.authority.certificate_pem())?;
    match apis.secrets.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        other => drop(other?),
    }
    create(apis, vmi, &pod).await
}

/// The Pod of a machine without a guest: no Secret, since nothing runs in it.
async fn launch_guestless(
    apis: &Apis,
    context: &Context,
    vmi: &Instance,
    script: Script,
) -> Result<Result<Pod, String>, ReconcileError> {
    let name = names::launcher(vmi.name(), vmi.uid());
    let node = guestless::NODES[0];
    let pod = guestless::pod::pod(vmi, script, &name, node, context.binding);
    create(apis, vmi, &pod).await
}

/// Makes a launcher Pod. What the owner can put right is the inner error.
async fn create(
    apis: &Apis,
    vmi: &Instance,
    pod: &Pod,
) -> Result<Result<Pod, String>, ReconcileError> {
    match apis.pods.create(&PostParams::default(), pod).await {
        // Quota, pod security, a node selector that is none: what the owner can put right.
        Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => {
            Ok(Err(status.message.clone()))
        }
        Err(error) => Err(error.into()),
        Ok(pod) => {
            info!(instance = vmi.name(), pod = %pod.name_any(), "created a launcher");
            Ok(Ok(pod))
        }
    }
}

/// Ends the launcher of a deleted instance; true once it is gone and the instance may go too.
async fn finalize(apis: &Apis, vmi: &Instance, seen: &Observed) -> Result<bool, ReconcileError> {
    let pods: Vec<&Pod> = seen.pod.iter().chain(&seen.other).collect();
    if pods.is_empty() {
        if !finalizers::missing(&vmi.meta, VMI_FINALIZER) {
            let patch = Patch::Merge(finalizers::removed(&vmi.meta, VMI_FINALIZER));
            apis.vmis
                .patch(vmi.name(), &PatchParams::default(), &patch)
                .await?;
        }
        return Ok(true);
    }
    for pod in pods {
        if pod.metadata.deletion_timestamp.is_none() {
            // The instance's own value, which a forced stop may have lowered since the Pod was made.
            let grace = u32::try_from(vmi.grace_seconds.max(0)).unwrap_or(u32::MAX);
            // Where nothing runs, nothing has to end.
            let grace = if Script::of(vmi).is_some() { 0 } else { grace };
            delete_pod(&apis.pods, pod, grace).await?;
        }
    }
    Ok(false)
}

/// Deletes this very Pod.
///
/// # Errors
/// When the cluster refuses. A Pod that is gone already is none.
pub async fn delete_pod(pods: &Api<Pod>, pod: &Pod, grace: u32) -> Result<(), kube::Error> {
    let params = DeleteParams {
        grace_period_seconds: Some(grace),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match pods.delete(&pod.name_any(), &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// The Pod of this name, if it belongs to the instance.
async fn own(apis: &Apis, vmi: &Instance, name: &str) -> Result<Option<Pod>, kube::Error> {
    let pod = apis.pods.get_opt(name).await?;
    Ok(pod.filter(|p| is_controlled_by(&p.metadata, vmi.uid())))
}

/// What a kubelet does for other launchers: the status of the Pod, and a guest that runs as long as the Pod does.
async fn run_guestless(
    apis: &Apis,
    context: &Context,
    vmi: &Instance,
    seen: &mut Observed,
) -> Result<(), kube::Error> {
    if Script::of(vmi).is_none() {
        return Ok(());
    }
    let addresses = &context.guestless_addresses;
    if let Some(pod) = &seen.pod
        && let Some(patch) = guestless::pod::running(pod, addresses, Timestamp::now())
    {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = apis
            .pods
            .patch_status(&pod.name_any(), &params, &patch)
            .await?;
        seen.pod = Some(written);
    }
    for pod in seen.pod.iter().chain(&seen.other) {
        // Somebody else deleted it, and no kubelet will say that it has ended.
        if pod.metadata.deletion_timestamp.is_some() {
            delete_pod(&apis.pods, pod, 0).await?;
        }
    }
    let over = seen.pod.is_none() || status::next_phase(vmi, seen).is_final();
    if over || vmi.is_deleted() {
        context.guestless.shut(vmi.uid());
    } else {
        let starts_paused = vmi.starts_paused && vmi.phase < Phase::Running;
        let paused = starts_paused || vmi.condition("Paused").is_some();
        context.guestless.boot(vmi.uid(), paused);
    }
    Ok(())
}

async fn ask(context: &Context, vmi: &Instance, pod: Option<&Pod>) -> Option<Status> {
    let target = target(vmi, pod?)?;
    match context.launchers.ask(&target, &Request::Status).await {
        Ok(answer) => match answer.reply {
            Reply::Status(status) => Some(status),
            other => {
                debug!(
                    instance = vmi.name(),
                    ?other,
                    "the launcher said something else"
                );
                None
            }
        },
        Err(error) => {
            debug!(instance = vmi.name(), %error, "the launcher does not answer");
            None
        }
    }
}

/// Where a launcher listens; `None` until it runs.
pub fn target(vmi: &Instance, pod: &Pod) -> Option<Target> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Running") {
        return None;
    }
    if let Some(script) = Script::of(vmi) {
        return Some(inside(vmi, script));
    }
    let address = status.pod_ip.as_deref()?.parse().ok()?;
    Some(Target {
        way: Way::Pod(address),
        vmi_uid: vmi.uid().to_owned(),
    })
}

/// A machine without a guest, which is asked in this process.
pub fn inside(vmi: &Instance, script: Script) -> Target {
    Target {
        way: Way::Inside(script),
        vmi_uid: vmi.uid().to_owned(),
    }
}
