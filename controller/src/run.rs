//! The running controller: watches, workers, and their orderly end. Entry point: [`run`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::apply::Applier;
use crate::cluster::Cluster;
use crate::events::Announcer;
use crate::key::Key;
use crate::kinds::Kind;
use crate::metrics::ControllerMetrics;
use crate::reconcile::{ReconcileError, Reconciler};
use crate::stores::Stores;
use crate::triggers::kubevirt::KubeVirt;
use crate::triggers::{Caches, Outcome, Queue, Watches, chance};

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Workspaces that are worked on at the same time.
    pub workers: usize,
    /// How often to look whether KubeVirt came or went.
    pub kubevirt_every: Duration,
    /// How often to look at a workspace although nothing is known to have changed; a lost Secret
    /// is made again after twice this time at the latest.
    pub look_again: Duration,
    /// After this time one reconcile is given up and tried again.
    pub reconcile_timeout: Duration,
    /// Which process this is, in the Events that it makes.
    pub identity: String,
    /// What Prometheus is told.
    pub metrics: ControllerMetrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 8,
            kubevirt_every: Duration::from_secs(10),
            look_again: Duration::from_secs(60),
            reconcile_timeout: Duration::from_secs(60),
            identity: "controller".to_owned(),
            metrics: ControllerMetrics::default(),
        }
    }
}

/// Why the controller ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store gives no more changes.
    #[error("the store of workspaces has ended")]
    StoreEnded,
    /// A task of the controller panicked.
    #[error("a task of the controller panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Reconciles until the token ends it; then every task has ended.
///
/// # Errors
/// When it cannot go on. It is safe to run it again.
pub async fn run(
    client: Client,
    stores: Stores,
    config: Config,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let stop = stop.child_token();
    let _ends_with_us = stop.clone().drop_guard();
    let queue = Arc::new(Queue::new(config.metrics.clone()));
    let caches = Caches::new();
    let mut core = Watches::start(&client, &Kind::CORE, &caches, &queue, &stop);
    let (available, kubevirt) = watch::channel(false);
    let (known, mut is_known) = watch::channel(false);
    let mut tasks: JoinSet<Result<(), RunError>> = JoinSet::new();
    let machines = KubeVirt {
        client: client.clone(),
        caches: caches.clone(),
        queue: queue.clone(),
        every: config.kubevirt_every,
        available,
    };
    tasks.spawn(ok(machines.run(stop.clone(), known)));
    // Nothing is decided on half a picture: a stopped pod not seen yet would look like none.
    let picture = async {
        core.synced().await;
        let _ = is_known.wait_for(|known| *known).await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = picture => {
            info!(workers = config.workers, "the controller reconciles");
            let (announcer, telling) = Announcer::new(
                client.clone(),
                &config.identity,
                config.metrics.clone(),
                stop.clone(),
            );
            tasks.spawn(ok(telling));
            let reconciler = Arc::new(Reconciler {
                announcer,
                stores: stores.clone(),
                applier: Applier::new(Cluster::new(client), config.look_again),
                look_again: config.look_again,
                caches,
                kubevirt: kubevirt.clone(),
            });
            for _ in 0..config.workers.max(1) {
                let config = config.clone();
                tasks.spawn(ok(work(reconciler.clone(), queue.clone(), config, stop.clone())));
            }
            tasks.spawn(feed(stores.clone(), queue.clone(), stop.clone()));
            tasks.spawn(ok(on_kubevirt(stores, kubevirt, queue, stop.clone())));
        }
    }
    let result = first_end(&mut tasks, &stop).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    core.ended().await;
    info!("the controller has ended");
    result
}

async fn ok(task: impl Future<Output = ()>) -> Result<(), RunError> {
    task.await;
    Ok(())
}

/// Waits until a task fails, or the token is cancelled.
async fn first_end(
    tasks: &mut JoinSet<Result<(), RunError>>,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            ended = tasks.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(panic)) => return Err(RunError::Panicked(panic)),
            },
        }
    }
}

/// Names every workspace that changes.
async fn feed(stores: Stores, queue: Arc<Queue>, stop: CancellationToken) -> Result<(), RunError> {
    let mut changes = stores.workspaces.changes();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            key = changes.next() => match key {
                Some(key) => queue.add(key),
                None if stop.is_cancelled() => return Ok(()),
                None => return Err(RunError::StoreEnded),
            },
        }
    }
}

/// Names all workspaces when KubeVirt comes or goes.
async fn on_kubevirt(
    stores: Stores,
    mut available: watch::Receiver<bool>,
    queue: Arc<Queue>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = available.changed() => if changed.is_err() { return },
        }
        match stores.workspaces.keys().await {
            Ok(keys) => keys.into_iter().for_each(|key| queue.add(key)),
            // Each workspace is looked at again within minutes anyway.
            Err(error) => warn!(%error, "cannot list workspaces after KubeVirt came or went"),
        }
    }
}

/// One worker.
async fn work(
    reconciler: Arc<Reconciler>,
    queue: Arc<Queue>,
    config: Config,
    stop: CancellationToken,
) {
    loop {
        let key = tokio::select! {
            () = stop.cancelled() => return,
            key = queue.next() => key,
        };
        let span = info_span!("reconcile", workspace = %key);
        let once = reconciler.reconcile(&key).instrument(span.clone());
        let began = Instant::now();
        config.metrics.began();
        let result = tokio::select! {
            () = stop.cancelled() => {
                config.metrics.ended("cancelled", began.elapsed());
                return;
            }
            result = tokio::time::timeout(config.reconcile_timeout, once) => result,
        };
        let outcome = span.in_scope(|| match result {
            Ok(Ok(None)) => Outcome::Done,
            Ok(Ok(Some(again))) => Outcome::Again(spread(again)),
            Ok(Err(error)) => failed(&key, &error),
            Err(_) => {
                error!("it took too long and is tried again");
                Outcome::Failed
            }
        });
        config.metrics.ended(label(outcome), began.elapsed());
        queue.finish(&key, outcome);
    }
}

fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "success",
        Outcome::Again(_) => "requeue_after",
        Outcome::Failed => "error",
    }
}

fn failed(key: &Key, error: &ReconcileError) -> Outcome {
    debug!(workspace = %key, ?error, "failed");
    warn!(%error, "it failed and is tried again");
    Outcome::Failed
}

/// Up to a tenth later, so that workspaces which came together do not stay together.
fn spread(wait: Duration) -> Duration {
    wait + wait.mul_f64(chance() / 10.0)
}
