//! Puts localvirt together and runs it until it is told to stop.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use kube::{Client, Config, config::Kubeconfig};
use tokio::{net::TcpListener, sync::mpsc::Receiver, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use crate::{
    checker::Checker,
    controllers::{self, Nudges},
    dial::{AllLaunchers, Launchers},
    faults::Faults,
    guestless::{Guestless, Policy},
    migration,
    options::Options,
    pki::{Authority, Usage},
    server::{cluster::KubeCluster, handler::App, listener, trust::FrontProxy},
    setup, tls, vm,
    vmi::{self, pod::Program},
};

/// What virt-api lets its streams live after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// localvirt, ready to run.
pub struct Localvirt {
    client: Client,
    authority: Arc<Authority>,
    launchers: Arc<dyn Launchers>,
    guestless: Guestless,
    guestless_addresses: Vec<IpAddr>,
    policy: Policy,
    checker: Checker,
    faults: Faults,
    program: Program,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    front_proxy: Arc<FrontProxy>,
}

impl Localvirt {
    /// Connects, finds or makes the CA, and listens.
    ///
    /// # Errors
    /// With a sentence on what could not be had.
    pub async fn start(options: &Options) -> Result<Self> {
        let client = client(options).await?;
        let authority = Arc::new(setup::authority(&client, &options.namespace).await?);
        let ours = authority.issue(&["localvirt".to_owned()], &[], Usage::Client)?;
        let to_launchers = tls::client(authority.certificate_pem(), Some(&ours))?;
        let serving = authority.issue(&[options.server_name()], &[], Usage::Server)?;
        let front_proxy = Arc::new(FrontProxy::default());
        let acceptor = TlsAcceptor::from(Arc::new(tls::server(&serving, front_proxy.clone())?));
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        let guestless = Guestless::default();
        let launchers = AllLaunchers::new(to_launchers, options.control_port, guestless.clone());
        Ok(Self {
            client,
            authority,
            launchers: Arc::new(launchers),
            guestless,
            guestless_addresses: options.guestless_address.clone(),
            policy: options.policy(),
            checker: Checker::default(),
            faults: Faults::default(),
            program: Program {
                image: options.launcher_image.clone(),
                control_port: options.control_port,
            },
            listener,
            acceptor,
            front_proxy,
        })
    }

    /// The address that is served.
    ///
    /// # Errors
    /// When the socket has none.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The authority of the serving certificate, PEM: what an APIService has to trust.
    pub fn authority_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// The machines without a guest, whose ports may be served.
    pub fn guestless(&self) -> Guestless {
        self.guestless.clone()
    }

    /// What watches that no console or display is held twice.
    pub fn checker(&self) -> Checker {
        self.checker.clone()
    }

    /// Runs the controllers and the server until cancelled; streams have five seconds more.
    pub async fn run(self, shutdown: CancellationToken) {
        let (nudges, nudged) = Nudges::channel();
        let app = self.app(nudges);
        let tasks = TaskTracker::new();
        self.control(&tasks, nudged, &shutdown);
        let Self {
            client,
            authority,
            listener,
            acceptor,
            front_proxy,
            ..
        } = self;
        for service in setup::API_SERVICES {
            let kept = setup::keep_ca_bundle(client.clone(), authority.clone(), service);
            tasks.spawn(until(shutdown.clone(), kept));
        }
        let followed = setup::follow_front_proxy(client, front_proxy);
        tasks.spawn(until(shutdown.clone(), followed));
        let served = listener::serve(app.clone(), listener, acceptor);
        tasks.spawn(until(shutdown.clone(), served));
        tasks.close();
        tasks.wait().await;
        info!("stopping; open streams have {GRACE:?}");
        app.tasks.close();
        if timeout(GRACE, app.tasks.wait()).await.is_err() {
            app.shutdown.cancel();
            app.tasks.wait().await;
        }
    }

    fn app(&self, nudges: Nudges) -> Arc<App> {
        Arc::new(App {
            cluster: Arc::new(KubeCluster::new(self.client.clone())),
            launchers: self.launchers.clone(),
            front_proxy: self.front_proxy.clone(),
            nudge: Arc::new(nudges),
            guestless: self.guestless.clone(),
            checker: self.checker.clone(),
            faults: self.faults.clone(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Starts the controllers.
    fn control(&self, tasks: &TaskTracker, nudged: Receiver<()>, shutdown: &CancellationToken) {
        let machines = vm::reconcile::Context {
            client: self.client.clone(),
            guestless: self.policy,
        };
        let instances = vmi::reconcile::Context {
            client: self.client.clone(),
            program: self.program.clone(),
            authority: self.authority.clone(),
            launchers: self.launchers.clone(),
            guestless: self.guestless.clone(),
            guestless_addresses: self.guestless_addresses.clone(),
            binding: self.policy.binding(),
            faults: self.faults.clone(),
        };
        let migrations = migration::reconcile::Context {
            client: self.client.clone(),
            guestless: self.guestless.clone(),
            addresses: self.guestless_addresses.clone(),
            binding: self.policy.binding(),
        };
        tasks.spawn(controllers::machines(Arc::new(machines), shutdown.clone()));
        tasks.spawn(controllers::instances(
            Arc::new(instances),
            nudged,
            shutdown.clone(),
        ));
        tasks.spawn(controllers::migrations(
            Arc::new(migrations),
            shutdown.clone(),
        ));
    }
}

async fn until(shutdown: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = task => {}
    }
}

async fn client(options: &Options) -> Result<Client> {
    let config = match &options.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?
        }
        None => Config::incluster().context(
            "localvirt runs in a Pod of the cluster; give --kubeconfig FILE to run it elsewhere (it must reach Pods)",
        )?,
    };
    Client::try_from(config).context("cannot use the cluster's configuration")
}
