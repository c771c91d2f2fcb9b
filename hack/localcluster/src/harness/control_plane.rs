//! A control plane for tests: etcd, kube-apiserver and kube-controller-manager on an address of their own.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::{Client, Config};
use tempfile::TempDir;

use super::{HarnessError, Kubectl, KubectlError, identity, loopback};
use crate::assets::{Assets, Binary, Places};
use crate::controlplane::{self, Controllers, Durability, ServiceRanges};
use crate::pki::{Component, FRONT_PROXY_NAME, Pki, Plan, Subject};
use crate::proc::{Child, CommandLine, Group, ProcError};

/// How long the control plane has to get ready: seconds on an idle machine, more on one that compiles meanwhile.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// A running control plane. It needs no root, collides with no other, and ends with the value, or with the process
/// when that is killed.
///
/// There is no node: pods stay Pending. The controllers that act on objects alone run: garbage collection, namespaces,
/// ServiceAccounts, aggregated roles, quotas.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order in which they must end.
    programs: Programs,
    group: Group,
    settings: controlplane::Config,
    admin: Config,
    kubectl: Kubectl,
    dir: TempDir,
}

#[derive(Debug)]
struct Programs {
    controllers: Child,
    apiserver: Child,
    etcd: Child,
}

impl ControlPlane {
    /// Starts one and waits until it is ready. Programs that are neither in `KUBEBUILDER_ASSETS` nor in the cache are
    /// built first, which takes minutes and is shown.
    pub async fn start() -> Result<Self, HarnessError> {
        let dir = tempfile::Builder::new()
            .prefix("kubeworkspaces-")
            .tempdir()
            .map_err(io(Path::new("TMPDIR")))?;
        let settings = settings(dir.path()).await?;
        let group = Group::start(dir.path())?;
        let admin = identity::load(&settings.pki.kubeconfig(Component::Admin)).await?;
        let kubectl = Kubectl::new(
            settings.assets.path(Binary::Kubectl)?,
            settings.pki.kubeconfig(Component::Admin),
            dir.path().join("kubectl"),
        );
        let programs =
            Programs::start(&settings, &group, dir.path(), &identity::client(&admin)?).await?;
        Ok(Self {
            programs,
            group,
            settings,
            admin,
            kubectl,
            dir,
        })
    }

    /// A client of the administrator, who may do everything (`system:masters`). Must be called on a runtime, and lives
    /// on that one.
    pub fn client(&self) -> Result<Client, HarnessError> {
        identity::client(&self.admin)
    }

    /// A client of `user` in `groups`, by a client certificate.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, HarnessError> {
        identity::client(&self.config_as(user, groups)?)
    }

    /// A client that does not say who it is.
    pub fn client_anonymous(&self) -> Result<Client, HarnessError> {
        identity::client(&identity::config_anonymous(&self.admin))
    }

    /// The settings of the administrator's client.
    pub fn config(&self) -> Config {
        self.admin.clone()
    }

    /// The settings of another user's client.
    pub fn config_as(&self, user: &str, groups: &[&str]) -> Result<Config, HarnessError> {
        identity::config_as(&self.admin, &self.settings.pki, user, groups)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.settings.pki.kubeconfig(Component::Admin)
    }

    /// A kubeconfig of `user` in `groups`.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf, HarnessError> {
        let subject = groups.iter().fold(Subject::user(user), |subject, group| {
            subject.in_group(*group)
        });
        let file = tempfile::Builder::new()
            .suffix(".kubeconfig")
            .tempfile_in(self.dir())
            .map_err(io(self.dir()))?;
        let path = file
            .into_temp_path()
            .keep()
            .map_err(|e| io(self.dir())(e.error))?;
        fs::write(&path, self.settings.pki.kubeconfig_for(&subject)?).map_err(io(&path))?;
        Ok(path)
    }

    /// What `kubectl args` writes, as the administrator.
    pub async fn kubectl<A: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, KubectlError> {
        self.kubectl.run(args).await
    }

    /// The administrator's kubectl, for input, other users and other versions.
    pub fn kubectl_program(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Certificates and keys: the client authority (`ca`), the front proxy's authority and certificate.
    pub fn pki(&self) -> &Pki {
        &self.settings.pki
    }

    /// The certificate file of the authority that signs the front proxy's certificate.
    pub fn front_proxy_ca(&self) -> PathBuf {
        self.settings.pki.cert("front-proxy-ca")
    }

    /// The certificate and key files with which kube-apiserver calls aggregated servers.
    pub fn front_proxy_client(&self) -> (PathBuf, PathBuf) {
        (
            self.settings.pki.cert(FRONT_PROXY_NAME),
            self.settings.pki.key(FRONT_PROXY_NAME),
        )
    }

    /// kube-apiserver's audit log: JSON lines, written before the answer is.
    pub fn audit_log(&self) -> &Path {
        &self.settings.audit_log
    }

    /// The log of `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn log(&self, program: &str) -> PathBuf {
        log(self.dir(), program)
    }

    /// Its directory, for files that should go with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills kube-apiserver, starts it again on the same port, and waits until it is ready: every watch is cut.
    pub async fn restart_apiserver(&mut self) -> Result<(), HarnessError> {
        let name = Binary::KubeApiserver.file_name();
        self.programs
            .apiserver
            .kill()
            .map_err(io(Path::new(name)))?;
        let command = controlplane::apiserver(&self.settings)?;
        self.programs.apiserver = self.group.spawn(&command, &self.log(name))?;
        let client = self.client()?;
        let programs = &mut self.programs;
        let log = log(self.dir.path(), name).display().to_string();
        Ok(controlplane::wait_until_ready(&client, READY_LIMIT, &log, || programs.check()).await?)
    }
}

impl Programs {
    /// kube-controller-manager waits for kube-apiserver here, because by itself it gives up after ten seconds.
    async fn start(
        settings: &controlplane::Config,
        group: &Group,
        dir: &Path,
        client: &Client,
    ) -> Result<Self, HarnessError> {
        let spawn = |command: CommandLine| group.spawn(&command, &log(dir, command.name()));
        let text = |binary: Binary| log(dir, binary.file_name()).display().to_string();
        let mut etcd = spawn(controlplane::etcd(settings)?)?;
        let mut apiserver = spawn(controlplane::apiserver(settings)?)?;
        let servers_run = || {
            [&mut etcd, &mut apiserver]
                .into_iter()
                .try_for_each(Child::check)
        };
        controlplane::wait_until_ready(
            client,
            READY_LIMIT,
            &text(Binary::KubeApiserver),
            servers_run,
        )
        .await?;
        let controllers = spawn(controlplane::controller_manager(settings)?)?;
        let mut programs = Self {
            controllers,
            apiserver,
            etcd,
        };
        let log = text(Binary::KubeControllerManager);
        controlplane::wait_for_controllers(client, READY_LIMIT, &log, || programs.check()).await?;
        Ok(programs)
    }

    fn check(&mut self) -> Result<(), ProcError> {
        let Self {
            controllers,
            apiserver,
            etcd,
        } = self;
        [etcd, apiserver, controllers]
            .into_iter()
            .try_for_each(Child::check)
    }
}

async fn settings(dir: &Path) -> Result<controlplane::Config, HarnessError> {
    // Finding is quick; building, if it must be, takes minutes and must not hold up the runtime.
    let build = || Assets::ensure(&Binary::CONTROL_PLANE, &Places::from_env()?);
    let assets = tokio::task::spawn_blocking(build)
        .await
        .map_err(|e| io(dir)(e.into()))??;
    let address: IpAddr = loopback::address().map_err(io(dir))?;
    let ports = loopback::ports(address).map_err(io(dir))?;
    let plan = Plan {
        server: format!("{address}:{}", ports.apiserver),
        server_names: Vec::new(),
        node: None,
    };
    let audit_policy = dir.join("audit-policy.yaml");
    fs::write(&audit_policy, controlplane::AUDIT_POLICY).map_err(io(&audit_policy))?;
    Ok(controlplane::Config {
        assets,
        pki: Pki::ensure(&dir.join("pki"), &plan)?,
        address,
        private_address: address,
        ports,
        services: ServiceRanges::default(),
        etcd_data: dir.join("etcd"),
        audit_policy,
        audit_log: dir.join("audit.log"),
        durability: Durability::Volatile,
        controllers: Controllers::ObjectsOnly,
    })
}

fn log(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{program}.log"))
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> HarnessError {
    let path = path.to_owned();
    move |source| HarnessError::Io {
        path: path.clone(),
        source,
    }
}
