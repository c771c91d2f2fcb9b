//! Runs the reconcilers: what they watch, how they are woken, and what they do about errors.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    core::DynamicObject,
    runtime::{
        Controller,
        controller::{self, Action},
        watcher,
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    api::{migration_resource, vm_resource, vmi_resource},
    migration,
    server::handler::Nudge,
    vm, vmi,
};

/// When a failed reconciliation is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Reconciliations of one kind at a time.
const CONCURRENCY: u16 = 16;
/// Wakes the instance controller after something was done to a guest. Several nudges in a row are one.
#[derive(Clone)]
pub struct Nudges(mpsc::Sender<()>);

impl Nudges {
    /// The sender, and what the controller listens to.
    pub fn channel() -> (Self, mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel(1);
        (Self(sender), receiver)
    }
}

impl Nudge for Nudges {
    fn nudge(&self) {
        // Full means that a look is due anyway.
        let _ = self.0.try_send(());
    }
}

/// Runs the machine controller until cancelled.
pub async fn machines(context: Arc<vm::reconcile::Context>, shutdown: CancellationToken) {
    let client = context.client.clone();
    Controller::new_with(
        all(&client, &vm_resource()),
        watcher::Config::default(),
        vm_resource(),
    )
    .owns_with(
        all(&client, &vmi_resource()),
        vmi_resource(),
        watcher::Config::default(),
    )
    .with_config(controller::Config::default().concurrency(CONCURRENCY))
    .graceful_shutdown_on(shutdown.cancelled_owned())
    .run(
        vm::reconcile::reconcile,
        |object, error, _| again(&object, error),
        context,
    )
    .for_each(|outcome| async move { report("VirtualMachine", outcome.map(drop)) })
    .await;
}

/// Runs the instance controller until cancelled.
pub async fn instances(
    context: Arc<vmi::reconcile::Context>,
    nudges: mpsc::Receiver<()>,
    shutdown: CancellationToken,
) {
    let client = context.client.clone();
    let launchers = watcher::Config::default().labels("kubevirt.io=virt-launcher");
    Controller::new_with(
        all(&client, &vmi_resource()),
        watcher::Config::default(),
        vmi_resource(),
    )
    .owns_with(Api::<Pod>::all(client), (), launchers)
    .reconcile_all_on(received(nudges))
    .with_config(controller::Config::default().concurrency(CONCURRENCY))
    .graceful_shutdown_on(shutdown.cancelled_owned())
    .run(
        vmi::reconcile::reconcile,
        |object, error, _| again(&object, error),
        context,
    )
    .for_each(|outcome| async move { report("VirtualMachineInstance", outcome.map(drop)) })
    .await;
}

/// Runs the migration controller until cancelled.
pub async fn migrations(context: Arc<migration::reconcile::Context>, shutdown: CancellationToken) {
    Controller::new_with(
        all(&context.client, &migration_resource()),
        watcher::Config::default(),
        migration_resource(),
    )
    .with_config(controller::Config::default().concurrency(CONCURRENCY))
    .graceful_shutdown_on(shutdown.cancelled_owned())
    .run(
        migration::reconcile::reconcile,
        |object, error, _| again(&object, error),
        context,
    )
    .for_each(|outcome| async move {
        report("VirtualMachineInstanceMigration", outcome.map(drop));
    })
    .await;
}

fn all(client: &Client, resource: &kube::core::ApiResource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), resource)
}

fn received(nudges: mpsc::Receiver<()>) -> impl Stream<Item = ()> + Send {
    stream::unfold(nudges, |mut nudges| async move {
        nudges.recv().await?;
        Some(((), nudges))
    })
}

fn again(object: &DynamicObject, error: &impl std::fmt::Display) -> Action {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    warn!(name, %error, "will be tried again");
    Action::requeue(RETRY)
}

fn report<E: std::fmt::Display>(kind: &str, outcome: Result<(), E>) {
    // Failures of reconciliations are told by `again`; here are also those of the watches behind them, which go on by
    // themselves (the kind is not installed yet, for one).
    if let Err(error) = outcome {
        debug!(kind, %error, "not reconciled");
    }
}
