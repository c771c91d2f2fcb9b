//! Puts localvirt together and runs it until it is told to stop.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use kube::{Client, Config, config::Kubeconfig};
use tokio::{net::TcpListener, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use crate::{
    controllers::{self, Nudges},
    dial::{Launchers, PodLaunchers},
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
        Ok(Self {
            client,
            authority,
            launchers: Arc::new(PodLaunchers::new(to_launchers, options.control_port)),
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

    /// Runs the controllers and the server until cancelled; streams have five seconds more.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            client,
            authority,
            launchers,
            program,
            listener,
            acceptor,
            front_proxy,
        } = self;
        let (nudges, nudged) = Nudges::channel();
        let app = Arc::new(App {
            cluster: Arc::new(KubeCluster::new(client.clone())),
            launchers: launchers.clone(),
            front_proxy: front_proxy.clone(),
            nudge: Arc::new(nudges),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        });
        let machines = Arc::new(vm::reconcile::Context {
            client: client.clone(),
        });
        let instances = vmi::reconcile::Context {
            client: client.clone(),
            program,
            authority: authority.clone(),
            launchers,
        };
        let tasks = TaskTracker::new();
        tasks.spawn(controllers::machines(machines, shutdown.clone()));
        tasks.spawn(controllers::instances(
            Arc::new(instances),
            nudged,
            shutdown.clone(),
        ));
        tasks.spawn(until(
            shutdown.clone(),
            setup::keep_ca_bundle(client.clone(), authority),
        ));
        tasks.spawn(until(
            shutdown.clone(),
            setup::follow_front_proxy(client, front_proxy),
        ));
        tasks.spawn(until(
            shutdown.clone(),
            listener::serve(app.clone(), listener, acceptor),
        ));
        tasks.close();
        tasks.wait().await;
        info!("stopping; open streams have {GRACE:?}");
        app.tasks.close();
        if timeout(GRACE, app.tasks.wait()).await.is_err() {
            app.shutdown.cancel();
            app.tasks.wait().await;
        }
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
