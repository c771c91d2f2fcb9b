//! Does what [`decide`](super::decide) says for one VirtualMachine, and writes its status.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
    runtime::controller::Action as Requeue,
};
use serde_json::json;
use tracing::info;

use super::{
    decide::{Action, decide},
    instance::{instance_of, needs_restart},
    status::{self, Findings},
    validate,
};
use crate::{
    api::{
        Instance, Machine, ObjectError, StateChange, VM_FINALIZER, is_controlled_by, vm_resource,
        vmi_resource,
    },
    finalizers,
    guestless::Policy,
};

/// Field manager of what is created.
const MANAGER: &str = "localvirt";

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The cluster said no.
    #[error("the cluster refused: {0}")]
    Kube(#[from] kube::Error),
    /// The object is not what its schema says.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The status cannot be written.
    #[error("status: {0}")]
    Json(#[from] serde_json::Error),
}

/// What every reconciliation needs.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// Which machines have no guest.
    pub guestless: Policy,
}

struct Apis {
    vms: Api<DynamicObject>,
    vmis: Api<DynamicObject>,
}

/// Brings one machine a step closer to what it asks for.
///
/// # Errors
/// When the cluster refuses; the controller comes back later.
pub async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Requeue, ReconcileError> {
    let vm = Machine::read(&object)?;
    let namespace = object.namespace().unwrap_or_default();
    let apis = Apis {
        vms: Api::namespaced_with(context.client.clone(), &namespace, &vm_resource()),
        vmis: Api::namespaced_with(context.client.clone(), &namespace, &vmi_resource()),
    };
    let existing = apis.vmis.get_opt(vm.name()).await?;
    let foreign = existing
        .as_ref()
        .is_some_and(|o| !is_controlled_by(&o.metadata, vm.uid()));
    let vmi = existing
        .filter(|_| !foreign)
        .as_ref()
        .map(Instance::read)
        .transpose()?;
    if vm.is_deleted() {
        return finalize(&apis, &vm, vmi.as_ref()).await;
    }
    if finalizers::missing(&vm.meta, VM_FINALIZER) {
        let patch = finalizers::added(&vm.meta, VM_FINALIZER);
        apis.vms
            .patch(vm.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    if foreign {
        let failure = format!(
            "a VirtualMachineInstance {:?} exists that this VirtualMachine does not own",
            vm.name()
        );
        let found = Findings {
            failure: Some(failure),
            restart_required: false,
        };
        write_status(&apis, &vm, None, &found, &Action::Keep).await?;
        return Ok(Requeue::await_change());
    }
    act(&apis, &vm, vmi.as_ref(), context.guestless).await
}

async fn act(
    apis: &Apis,
    vm: &Machine,
    vmi: Option<&Instance>,
    guestless: Policy,
) -> Result<Requeue, ReconcileError> {
    let now = Timestamp::now();
    let action = decide(vm, vmi, now);
    let mut found = Findings {
        failure: None,
        restart_required: vmi.is_some_and(|i| needs_restart(vm, &i.spec)),
    };
    match &action {
        Action::Create { paused } => {
            found.failure = create(apis, vm, *paused, guestless).await?;
            write_status(apis, vm, vmi, &found, &action).await?;
        }
        Action::Unhalt => {
            unhalt(apis, vm).await?;
        }
        // The status first: a failed instance must be counted, and its restart asked for, before it is gone.
        Action::Delete | Action::DeleteAndRestart => {
            write_status(apis, vm, vmi, &found, &action).await?;
            delete(apis, vm).await?;
        }
        Action::Keep | Action::Wait(_) => {
            write_status(apis, vm, vmi, &found, &action).await?;
        }
    }
    Ok(match action {
        Action::Wait(until) => {
            Requeue::requeue((until - now).try_into().unwrap_or(Duration::from_secs(1)))
        }
        _ => Requeue::await_change(),
    })
}

/// Creates the instance; what it cannot have is returned as the reason of the machine's failure.
async fn create(
    apis: &Apis,
    vm: &Machine,
    paused: bool,
    guestless: Policy,
) -> Result<Option<String>, ReconcileError> {
    let script = match guestless.script(vm).transpose() {
        Ok(script) => script,
        Err(word) => {
            return Ok(Some(format!(
                "{word:?} is not a script of guestless machines: echo, flood, silent"
            )));
        }
    };
    let object = instance_of(vm, paused, script);
    let problems = validate::problems(&Instance::read(&object)?);
    if !problems.is_empty() {
        return Ok(Some(problems.join("; ")));
    }
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    match apis.vmis.create(&params, &object).await {
        Ok(_) => {
            info!(machine = vm.name(), "created an instance");
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.code == 422 || status.code == 400 => {
            Ok(Some(status.message.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

async fn unhalt(apis: &Apis, vm: &Machine) -> Result<(), kube::Error> {
    let spec = if vm.uses_running {
        json!({ "running": true })
    } else {
        json!({ "runStrategy": "Always" })
    };
    let patch = Patch::Merge(json!({ "spec": spec }));
    apis.vms
        .patch(vm.name(), &PatchParams::default(), &patch)
        .await
        .map(drop)
}

async fn delete(apis: &Apis, vm: &Machine) -> Result<(), kube::Error> {
    info!(machine = vm.name(), "deleting its instance");
    match apis.vmis.delete(vm.name(), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

async fn finalize(
    apis: &Apis,
    vm: &Machine,
    vmi: Option<&Instance>,
) -> Result<Requeue, ReconcileError> {
    let orphans = !finalizers::missing(&vm.meta, "orphan");
    match vmi {
        Some(vmi) if !orphans => {
            if !vmi.is_deleted() {
                delete(apis, vm).await?;
            }
            write_status(apis, vm, Some(vmi), &Findings::default(), &Action::Keep).await?;
        }
        _ if finalizers::missing(&vm.meta, VM_FINALIZER) => {}
        _ => {
            let patch = Patch::Merge(finalizers::removed(&vm.meta, VM_FINALIZER));
            apis.vms
                .patch(vm.name(), &PatchParams::default(), &patch)
                .await?;
        }
    }
    Ok(Requeue::await_change())
}

async fn write_status(
    apis: &Apis,
    vm: &Machine,
    vmi: Option<&Instance>,
    found: &Findings,
    action: &Action,
) -> Result<(), ReconcileError> {
    let mut status = status::status_of(vm, vmi, found, Timestamp::now());
    if found.failure.is_some() {
        // Nothing was started, so a strategy that starts once has not done it yet.
        status.run_strategy = vm.status.run_strategy;
    }
    if *action == Action::DeleteAndRestart && status.state_change_requests.is_empty() {
        status.state_change_requests = vec![StateChange {
            action: "Start".into(),
            uid: None,
            data: None,
        }];
    }
    if status == vm.status {
        return Ok(());
    }
    let patch = Patch::Merge(status::patch(&status)?);
    apis.vms
        .patch_status(vm.name(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
