//! The node: kubelet, containerd, runc and kube-proxy in namespaces of their own.
//!
//! ```text
//! machine                          │ namespaces: net, mount, pid, uts, ipc
//!                                  │
//!   kw-xxxxxxxx  .1 ── veth pair ──┼── .2  eth0     node-init (pid 1): reaps
//!                                  │               containerd ─ shims ─ pods
//!   .state/node/containerd ────────┼─→ /var/lib/containerd
//!   .state/node/kubelet ───────────┼─→ /var/lib/kubelet      kubelet, kube-proxy
//!   .state/log/pods ───────────────┼─→ /var/log/pods         and the control plane
//!   cgroup kw-xxxxxxxx/kubepods    │   cni0: pods, IPv4 and IPv6
//! ```
//!
//! [`Node::prepare`] makes the namespaces and the link, [`Node::enter`] is how the control plane is put inside,
//! [`Node::start`] runs the node's programs, [`ready()`] waits for it, [`down`] ends and undoes all of it. Everything
//! may be called again at any time: what is there already is left alone.
//!
//! - **Isolation.** The machine has no route to pods or Services and the node none to anywhere but the machine's end
//!   of the link. Nothing of the machine's settings is changed ([`sysctl`]). What is left outside the namespaces is
//!   written down first ([`footprint`]).
//! - **Left out.** In-cluster DNS (pods find kube-apiserver by `KUBERNETES_SERVICE_HOST`; CoreDNS would cost three
//!   minutes of building for names that nothing here looks up), `hostPort` (the plugin needs iptables) and network
//!   policies. Pods get an empty `resolv.conf`, so that no name of theirs is asked for outside.
//! - **Images** are imported, never pulled: [`images`].

pub mod cgroups;
mod commands;
pub mod containerd;
mod error;
mod files;
pub mod footprint;
pub mod images;
pub mod init;
pub mod kubelet;
pub mod modules;
pub mod namespaces;
pub mod network;
pub mod packages;
mod programs;
pub mod proxy;
mod ready;
mod subnet;
pub mod sysctl;
mod tool;
mod wait;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use commands::NodeCommand;
pub use error::NodeError;
pub use programs::Programs;
pub use ready::ready;

use error::io_error;
use footprint::Footprint;
use namespaces::{Namespaces, Start};
use network::Link;
use tool::output;
use wait::wait_for;

use crate::pki::{Component, Pki};
use crate::proc::{CommandLine, Ledger, Record};
use crate::state::State;

/// The node's name.
pub const NAME: &str = "node";
/// The names of its programs in records and logs, in the order of their starts.
pub const PROGRAMS: [&str; 4] = ["node", "containerd", "kubelet", "kube-proxy"];
/// How long containerd may take to answer.
const CONTAINERD_LIMIT: Duration = Duration::from_secs(60);
/// What pods' names are looked up with: nothing.
const RESOLV_CONF: &str =
    "# No server: names of the cluster are not served, and none is asked for outside of it.\n";

/// A node whose namespaces run.
#[derive(Debug)]
pub struct Node<'a> {
    state: &'a State,
    programs: &'a Programs,
    ledger: Ledger,
    namespaces: Namespaces,
    footprint: Footprint,
}

impl<'a> Node<'a> {
    /// Makes the namespaces and the link, or finds them. What an earlier node left behind that no longer runs (it was
    /// killed, the machine was restarted) is undone first.
    ///
    /// # Errors
    /// When the machine refuses; nothing is left then that [`down`] does not undo.
    pub fn prepare(state: &'a State, programs: &'a Programs) -> Result<Self, NodeError> {
        let (dir, ledger) = (state.node(), Ledger::in_dir(state.run()));
        if let (Some(namespaces), Some(footprint)) =
            (Namespaces::find(state.root())?, Footprint::load(&dir)?)
            && namespaces.is_linked()
        {
            return Ok(Self {
                state,
                programs,
                ledger,
                namespaces,
                footprint,
            });
        }
        down(state)?;
        for dir in [
            dir.join("containerd"),
            dir.join("kubelet"),
            dir.join("cni"),
            state.logs().join("pods"),
        ] {
            fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
        }
        let footprint = Footprint::plan(state.root())?;
        footprint.store(&dir)?;
        footprint.modules.load()?;
        footprint.cgroups.make()?;
        let log = state.log(PROGRAMS[0]);
        let record = ledger.start(&start(state, programs).command(), &log)?;
        let namespaces = Namespaces::wait(state.root(), &record)?;
        let node = Self {
            state,
            programs,
            ledger,
            namespaces,
            footprint,
        };
        node.connect()?;
        Ok(node)
    }

    /// What a command line is put [`CommandLine::inside`] of to run in the node.
    pub fn enter(&self) -> CommandLine {
        self.namespaces.enter()
    }

    /// The link: kube-apiserver listens on [`Link::node`], servers of the machine are reached at [`Link::host`].
    pub fn link(&self) -> &Link {
        &self.footprint.link
    }

    /// The pid of the node's pid 1 on the machine.
    pub fn pid(&self) -> i32 {
        self.namespaces.pid()
    }

    /// A path inside the node as the machine sees it.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.namespaces.path(inside)
    }

    /// Starts containerd with our images, then the kubelet and kube-proxy. kube-apiserver should answer by then.
    ///
    /// # Errors
    /// When a program does not start; its log is named.
    pub fn start(&self, pki: &Pki) -> Result<(), NodeError> {
        self.start_containerd()?;
        let dir = self.state.node().join("images");
        for archive in images::write_own(&self.programs.busybox, &dir)? {
            self.import(&archive)?;
        }
        self.start_kubelet(pki)?;
        self.start_proxy(pki)
    }

    /// Imports an OCI archive unless it is there already; says whether it did.
    ///
    /// # Errors
    /// When the archive is none, or containerd refuses it.
    pub fn import(&self, archive: &Path) -> Result<bool, NodeError> {
        images::import(&self.ctr(), archive)
    }

    /// `ctr` on the node's images and containers. It runs on the machine, so archives may lie anywhere.
    pub fn ctr(&self) -> CommandLine {
        containerd::ctr(&self.programs.ctr, &self.path(containerd::SOCKET))
    }

    fn connect(&self) -> Result<(), NodeError> {
        let link = self.link();
        link.make(self.namespaces.pid(), &self.enter())?;
        let rules = self.write("node.nft", &link.rules())?;
        output(&self.nft().arg("-f").arg(rules))?;
        self.namespaces.set_linked()
    }

    fn start_containerd(&self) -> Result<(), NodeError> {
        let cni = self.state.node().join("cni");
        let conflist = cni.join("10-pods.conflist");
        files::put(&conflist, containerd::conflist())?;
        let files = containerd::Files {
            runc: &self.programs.runc,
            shim: &self.programs.shim,
            cni_bin: &self.programs.cni,
            cni_conf: &cni,
            pause: images::PAUSE,
        };
        let config = self.write("containerd.toml", &containerd::config(files))?;
        let record = self.run(containerd::daemon(&self.programs.containerd, &config))?;
        let answer = || Ok(output(&self.ctr().arg("version")).ok());
        wait_for(
            &record,
            "containerd does not answer",
            CONTAINERD_LIMIT,
            answer,
        )
        .map(drop)
    }

    fn start_kubelet(&self, pki: &Pki) -> Result<(), NodeError> {
        let resolv_conf = self.write("resolv.conf", RESOLV_CONF)?;
        let settings = kubelet::Settings {
            client_ca: &pki.cert("ca"),
            cert: &pki.cert("kubelet"),
            key: &pki.key("kubelet"),
            resolv_conf: &resolv_conf,
            cgroup: &self.footprint.cgroup,
            link: self.link(),
        };
        let config = self.write("kubelet.json", &kubelet::config(settings))?;
        let kubeconfig = pki.kubeconfig(Component::Kubelet);
        let daemon = kubelet::daemon(
            &self.programs.kubelet,
            &config,
            &kubeconfig,
            NAME,
            self.link(),
        );
        self.run(sysctl::wrapped(daemon, &self.programs.localcluster))
            .map(drop)
    }

    fn start_proxy(&self, pki: &Pki) -> Result<(), NodeError> {
        let config = proxy::config(&pki.kubeconfig(Component::Proxy), NAME, self.link());
        let config = self.write("kube-proxy.json", &config)?;
        self.run(proxy::daemon(&self.programs.kube_proxy, &config))
            .map(drop)
    }

    /// `nft`, unpacked or the machine's, inside the node.
    fn nft(&self) -> CommandLine {
        let program = self.programs.nft.as_ref().map(|nft| nft.bin.join("nft"));
        let plain = program.map_or_else(
            || tool::machine("nft"),
            |program| CommandLine::new("nft", program),
        );
        self.programs.with_tools(plain).inside(&self.enter())
    }

    fn run(&self, command: CommandLine) -> Result<Record, NodeError> {
        let log = self.state.log(command.name());
        let command = self.programs.with_tools(command).inside(&self.enter());
        Ok(self.ledger.start(&command, &log)?)
    }

    /// Writes a configuration file.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, NodeError> {
        let path = self.state.config().join(name);
        files::put(&path, text)?;
        Ok(path)
    }
}

fn start<'a>(state: &'a State, programs: &'a Programs) -> Start<'a> {
    let dir = state.node();
    Start {
        localcluster: &programs.localcluster,
        state: state.root(),
        hostname: NAME,
        keep: [state.root().to_owned()]
            .into_iter()
            .chain(programs.dirs.iter().cloned())
            .collect(),
        bind: vec![
            (dir.join("containerd"), containerd::ROOT),
            (dir.join("kubelet"), kubelet::ROOT),
            (state.logs().join("pods"), kubelet::POD_LOGS),
        ],
    }
}

/// Whether the node runs, and in which namespaces: the pid of its pid 1. Programs and their logs are in the ledger of
/// [`State::run`], as those of the control plane are.
///
/// # Errors
/// When the process table cannot be read.
pub fn status(state: &State) -> Result<Option<i32>, NodeError> {
    Ok(Namespaces::find(state.root())?
        .filter(Namespaces::is_linked)
        .map(|found| found.pid()))
}

/// Ends the node and undoes what it left on the machine; its directory goes too. Records of other programs that ran
/// inside stay with their ledger, whose [`Ledger::stop_all`] finds them ended.
///
/// # Errors
/// When the machine refuses; trying again is safe.
pub fn down(state: &State) -> Result<(), NodeError> {
    let (dir, ledger) = (state.node(), Ledger::in_dir(state.run()));
    while let Some(namespaces) = Namespaces::find(state.root())? {
        namespaces.kill(&state.log(PROGRAMS[0]))?;
    }
    for name in PROGRAMS.iter().rev() {
        ledger.stop(name, Duration::from_secs(5))?;
    }
    match Footprint::load(&dir)? {
        Some(footprint) => footprint.undo(&dir)?,
        None => footprint::undo_unrecorded(state.root())?,
    }
    files::remove_dir(&dir)
}
