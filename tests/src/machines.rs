//! Machines for tests that have a control plane and no node: localvirt, with every machine guestless.
//!
//! Consoles, displays and ports are played inside localvirt; all else on the way to them is real: VirtualMachines, their
//! instances, Pods by UID (their status is localvirt's), KubeVirt's subresources behind kube-apiserver. What a machine
//! plays is its image's tag: [`ECHO`], [`FLOOD`], [`SILENT`]; any other image echoes. [`Machines::checker`] proves that
//! no device was ever held twice; [`Machines::fault`] makes streams fail; [`Machines::migrate`] moves a machine to a
//! node of another name; [`Machines::end_guest`] ends one that nobody stopped.

use std::{future::Future, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use localcluster::harness::{ControlPlane, Registration, register};
use localvirt::{
    api::{migration_resource, vmi_resource},
    checker::Checker,
    faults::ANNOTATION,
    guestless::Guestless,
    options::Options,
    run::Localvirt,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::deployment::repository;

/// A machine whose console greets with [`GREETING`] and sends back what it gets.
pub const ECHO: &str = "kubeworkspaces.io/guestless:echo";
/// A machine whose console sends numbered lines without an end.
pub const FLOOD: &str = "kubeworkspaces.io/guestless:flood";
/// A machine whose console takes everything and says nothing.
pub const SILENT: &str = "kubeworkspaces.io/guestless:silent";
/// The first line of a console that echoes; ports have none.
pub const GREETING: &str = "localvirt: there is no guest here, and what you type comes back\r\n";

const NAMESPACE: &str = "localvirt";
const LIMIT: Duration = Duration::from_secs(60);

/// localvirt, until it is dropped.
pub struct Machines {
    client: Client,
    checker: Checker,
    guestless: Guestless,
    shutdown: CancellationToken,
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Machines {
    /// Installs localvirt into a control plane, registered and Available.
    ///
    /// # Errors
    /// When a manifest is refused, or the server does not become Available.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        // Its consoles, and those of the test's clients, are files of this process.
        localvirt::limits::raise_files();
        let dir = repository().join("hack/localvirt");
        for file in [
            "crds",
            "deploy/00-namespace.yaml",
            "deploy/rbac.yaml",
            "deploy/user-roles.yaml",
        ] {
            let file = dir.join(file).to_string_lossy().into_owned();
            plane
                .kubectl(["apply", "--server-side", "-f", &file])
                .await?;
        }
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ];
        plane.kubectl(established).await?;
        // What its ServiceAccount may, and no more.
        let account = "system:serviceaccount:localvirt:localvirt";
        let kubeconfig = plane.kubeconfig_as(account, &["system:serviceaccounts"])?;
        let kubeconfig = kubeconfig.to_string_lossy().into_owned();
        let flags = [
            "localvirt",
            "--without-kubelet",
            "--listen=127.0.0.1:0",
            "--kubeconfig",
            &kubeconfig,
        ];
        let localvirt = Localvirt::start(&Options::try_parse_from(flags)?).await?;
        let (port, authority) = (
            localvirt.address()?.port(),
            localvirt.authority_pem().to_owned(),
        );
        let (client, checker, guestless, shutdown) = (
            plane.client()?,
            localvirt.checker(),
            localvirt.guestless(),
            CancellationToken::new(),
        );
        tokio::spawn(localvirt.run(shutdown.clone()));
        let machines = Self {
            client,
            checker,
            guestless,
            shutdown,
        };
        let registration = Registration {
            group: "subresources.kubevirt.io",
            version: "v1",
            namespace: NAMESPACE,
            service: NAMESPACE,
            port,
            ca: &authority,
        };
        register(&machines.client, &registration).await?;
        Ok(machines)
    }

    /// What watches that no console or display is held twice.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// From now on a port of every machine leads to a server of the test's own.
    pub fn serve(&self, port: u16, server: SocketAddr) {
        self.guestless.serve(port, server);
    }

    /// Makes streams of a machine fail, those that are open too: `console=die`, `vnc=stall`, `portforward=reset:2s`;
    /// the empty text ends it. All that may be written is in `localvirt::faults`.
    ///
    /// # Errors
    /// When there is no such instance.
    pub async fn fault(&self, namespace: &str, name: &str, plan: &str) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION: plan } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.instances(namespace)
            .patch(name, &params, &patch)
            .await?;
        Ok(())
    }

    /// Moves a machine to another node; returns once it is there, when the streams to it have been cut.
    ///
    /// # Errors
    /// When it does not move within a minute.
    pub async fn migrate(&self, namespace: &str, name: &str) -> Result<()> {
        let resource = migration_resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let mut migration =
            DynamicObject::new("", &resource).data(json!({ "spec": { "vmiName": name } }));
        migration.metadata.name = None;
        migration.metadata.generate_name = Some(format!("{name}-"));
        let migration = api
            .create(&PostParams::default(), &migration)
            .await?
            .name_any();
        until("the migration", || async {
            let status = api.get(&migration).await?.data["status"].clone();
            match status["phase"].as_str() {
                Some("Succeeded") => Ok(Some(())),
                Some("Failed") => bail!("the migration failed: {status}"),
                _ => Ok(None),
            }
        })
        .await
    }

    /// Ends a machine's guest as if it had died.
    ///
    /// # Errors
    /// When it has no launcher.
    pub async fn end_guest(&self, namespace: &str, name: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let launchers = ListParams::default().labels(&format!("vm.kubevirt.io/name={name}"));
        let pod = pods
            .list(&launchers)
            .await?
            .items
            .pop()
            .context("there is no launcher")?;
        let dead = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &dead)
            .await?;
        Ok(())
    }

    /// Waits until a machine's instance runs.
    ///
    /// # Errors
    /// When it does not within a minute.
    pub async fn running(&self, namespace: &str, name: &str) -> Result<()> {
        let instances = self.instances(namespace);
        until("the instance", || async {
            let found = instances.get_opt(name).await?;
            Ok(found
                .filter(|vmi| vmi.data["status"]["phase"] == "Running")
                .map(drop))
        })
        .await
    }

    fn instances(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &vmi_resource())
    }
}

async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let waiting = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, waiting).await;
    waited.unwrap_or_else(|_| bail!("waited in vain for {what}"))
}
