//! A scripted cluster and our streams, both over real sockets on loopback.
//!
//! Entry point: [`World::new`]. The server is in [`server`], what it asks in [`rights`], [`cluster`] and
//! [`network`]; clients are in [`ask`].

mod ask;
mod cluster;
mod network;
mod objects;
mod peer;
mod rights;
mod server;
mod stored;

use std::{net::SocketAddr, time::Duration};

use apiserver_generic::{Object, storage::memory::MemoryStorage};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(super) use self::{
    ask::Client,
    cluster::{Cluster, Upstream},
    peer::{closed, data},
};
use self::{
    network::{Pods, Sockets},
    rights::{Phase, Verbs},
    server::Parts,
};
use crate::{
    sessions::Timing,
    streams::{limits::StreamLimits, opening::StreamOptions},
};

pub(super) const MACHINE: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo";
pub(super) const LAUNCHER: &str = "10.1.0.9";
pub(super) const PODS: &str = "/api/v1/namespaces/t1/pods";
const SOON: Duration = Duration::from_secs(20);

/// One server with its streams, and the cluster behind it.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) pods: Pods,
    pub(super) verbs: Verbs,
    pub(super) namespace: Phase,
    pub(super) draining: CancellationToken,
    /// The streams that live.
    pub(super) tasks: TaskTracker,
    sockets: Sockets,
    limits: StreamLimits,
    workspaces: MemoryStorage,
    sessions: MemoryStorage,
    dials: mpsc::UnboundedReceiver<(String, Upstream)>,
    address: SocketAddr,
    /// Another replica, which does not serve yet.
    other: Parts,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A workspace of this type, whose machine or pod runs.
    pub(super) async fn new(kind: &str) -> Self {
        Self::with(kind, StreamOptions::default()).await
    }

    /// The same where an operator has set something.
    pub(super) async fn with(kind: &str, options: StreamOptions) -> Self {
        Self::timed(kind, options, Timing::default()).await
    }

    /// The same with other times of sessions.
    pub(super) async fn timed(kind: &str, options: StreamOptions, timing: Timing) -> Self {
        let (sender, dials) = mpsc::unbounded_channel();
        let cluster = Cluster::new(sender);
        let (stop, sockets) = (CancellationToken::new(), Sockets::default());
        let parts = Parts {
            pod: "pod-1",
            upstream: server::cluster(&cluster).await,
            pods: Pods::new(sockets.clone()),
            sockets: sockets.clone(),
            verbs: Verbs::default(),
            namespace: Phase::default(),
            draining: CancellationToken::new(),
            tasks: TaskTracker::new(),
            workspaces: MemoryStorage::default(),
            sessions: MemoryStorage::default(),
            stop: stop.clone(),
            options,
            timing,
        };
        parts.verbs.0.lock().extend(["get", "create"]);
        let (address, limits) = parts.serve().await;
        let other = Parts {
            pod: "pod-2",
            ..parts.clone()
        };
        let Parts {
            pods,
            verbs,
            namespace,
            draining,
            tasks,
            workspaces,
            sessions,
            ..
        } = parts;
        let world = Self {
            cluster,
            pods,
            verbs,
            namespace,
            draining,
            tasks,
            sockets,
            limits,
            workspaces,
            sessions,
            dials,
            address,
            other,
            stop,
        };
        world.put_workspace(objects::workspace(kind)).await;
        let children = objects::children(kind).into_iter();
        let children = children.map(|(path, object)| (path.to_owned(), object));
        world.cluster.objects.lock().extend(children);
        world
    }

    /// The same cluster and workspace at another replica: where it is asked.
    pub(super) async fn other_replica(&self) -> SocketAddr {
        self.other.serve().await.0
    }

    /// From now on requests go to this replica.
    pub(super) fn turn_to(&mut self, replica: SocketAddr) {
        self.address = replica;
    }

    /// Waits until nothing is left: no task, no socket, no session, no counted place.
    pub(super) async fn at_rest(&mut self) {
        self.streams_end().await;
        assert_eq!(self.session_names().await, [""; 0], "sessions are left");
        let (sockets, limits) = (&self.sockets, &self.limits);
        let closing = async {
            while sockets.open() > 0 || !limits.is_unused() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let closed = tokio::time::timeout(SOON, closing).await;
        let (open, unused) = (sockets.open(), limits.is_unused());
        assert!(
            closed.is_ok(),
            "{open} sockets are open; places are free: {unused}"
        );
    }

    /// Waits until no stream lives any more; upstreams that nobody has asked for end.
    pub(super) async fn streams_end(&mut self) {
        self.tasks.close();
        let rest = async {
            tokio::select! {
                () = self.tasks.wait() => {}
                () = async { while self.dials.recv().await.is_some() {} } => {}
            }
        };
        let rest = tokio::time::timeout(SOON, rest).await;
        assert!(rest.is_ok(), "{} streams live", self.tasks.len());
        self.tasks.reopen();
    }

    /// Changes the machine's instance.
    pub(super) fn edit_machine(&self, edit: impl FnOnce(&mut Value)) {
        edit(self.cluster.objects.lock().get_mut(MACHINE).unwrap());
    }

    /// Changes the pods.
    pub(super) fn edit_pod(&self, edit: impl FnOnce(&mut Value)) {
        let mut objects = self.cluster.objects.lock();
        edit(&mut objects.get_mut(PODS).unwrap()["items"][0]);
    }

    /// Says that the workspace is to be stopped.
    pub(super) async fn annotate_stopped(&self) {
        let stopped = serde_json::json!({"kubeworkspaces.io/stopped": "now"});
        let edit = |workspace: &mut Object| {
            workspace
                .metadata_mut()
                .insert("annotations".into(), stopped);
        };
        self.edit_workspace(edit).await;
    }

    /// The next connection that the cluster has got, and its URI.
    pub(super) async fn dialled(&mut self) -> (String, Upstream) {
        tokio::time::timeout(SOON, self.dials.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// Whether nothing was dialled.
    pub(super) fn nothing_dialled(&mut self) -> bool {
        self.dials.try_recv().is_err()
    }
}
