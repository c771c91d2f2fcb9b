//! Bringing up the node and, inside of it, the control plane.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;

use super::{RootError, io_error, ownership};
use crate::assets::{Assets, AssetsError, Binary, Places};
use crate::controlplane::{self, Config, Controllers, Durability, Ports, ServiceRanges};
use crate::harness;
use crate::node::network::Link;
use crate::node::packages::Packages;
use crate::node::{self, Node, Programs};
use crate::pki::{Component, NodeNames, Pki, Plan};
use crate::proc::{CommandLine, Ledger, ProcError, Record};
use crate::state::State;

/// The control plane's programs in the order of their starts.
pub const CONTROL_PLANE: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// How long kube-apiserver and the node have to get ready.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// Brings up the cluster, or what of it does not run. `localcluster` is this program's file: the node runs it too.
pub async fn up(state: &State, places: &Places, localcluster: PathBuf) -> Result<(), RootError> {
    let _lock = state.root_lock()?;
    state.create()?;
    let result = bring_up(state, places, localcluster).await;
    // After a failure too: the user has to see what ran and what it logged.
    let given = give_to_user(state);
    result.and(given)
}

/// Imports images into the node that runs, each an OCI archive; those it has already are left alone.
pub fn import(
    state: &State,
    places: &Places,
    localcluster: PathBuf,
    archives: &[PathBuf],
) -> Result<(), RootError> {
    let _lock = state.root_lock()?;
    let programs = programs(
        &Assets::find(&Binary::CLUSTER, places)?,
        places,
        localcluster,
    )?;
    if !Ledger::in_dir(state.run())
        .get("node")?
        .is_some_and(|r| r.is_alive())
    {
        return Err(RootError::NoNode);
    }
    let node = Node::prepare(state, &programs)?;
    for archive in archives {
        let imported = node.import(archive)?;
        let what = if imported {
            "imported"
        } else {
            "there already"
        };
        eprintln!("{}: {what}", archive.display());
    }
    Ok(())
}

async fn bring_up(state: &State, places: &Places, localcluster: PathBuf) -> Result<(), RootError> {
    let assets = Assets::find(&Binary::CLUSTER, places)?;
    let programs = programs(&assets, places, localcluster)?;
    let ledger = Ledger::in_dir(state.run());
    let node = prepare(state, &programs, &ledger)?;
    let settings = settings(state, assets, node.link())?;
    publish(state, &settings.pki)?;
    let run = |command: CommandLine| {
        let log = state.log(command.name());
        ledger.start(&command.inside(&node.enter()), &log)
    };
    let client = harness::administrator(&state.kubeconfig()).await?;
    start_control_plane(&settings, &client, &state.log("kube-apiserver"), run).await?;
    node.start(&settings.pki)?;
    node::ready(&client, node::NAME, READY_LIMIT, &state.log("kubelet")).await?;
    Ok(())
}

fn programs(
    assets: &Assets,
    places: &Places,
    localcluster: PathBuf,
) -> Result<Programs, RootError> {
    let unpacked = Packages::in_cache(places.base()).unpacked()?;
    let find = |binary| Ok::<_, AssetsError>(assets.path(binary)?.to_owned());
    Ok(Programs::new(localcluster, unpacked, find)?)
}

/// The node's namespaces. When they had to be made, whatever ran or was stored before is gone with the last ones:
/// a cluster that remembers pods which no longer run would only be confused.
fn prepare<'a>(
    state: &'a State,
    programs: &'a Programs,
    ledger: &Ledger,
) -> Result<Node<'a>, RootError> {
    let running =
        |ledger: &Ledger| Ok::<_, ProcError>(ledger.get("node")?.filter(Record::is_alive));
    let before = running(ledger)?;
    let node = Node::prepare(state, programs)?;
    if before.is_none() || running(ledger)? != before {
        for name in CONTROL_PLANE.iter().rev() {
            ledger.stop(name, Duration::ZERO)?;
        }
        match fs::remove_dir_all(state.etcd()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error(state.etcd())(e));
            }
            _ => {}
        }
    }
    Ok(node)
}

fn settings(state: &State, assets: Assets, link: &Link) -> Result<Config, RootError> {
    let ports = Ports::USUAL;
    let audit_policy = state.config().join("audit-policy.yaml");
    fs::write(&audit_policy, controlplane::AUDIT_POLICY).map_err(io_error(&audit_policy))?;
    Ok(Config {
        assets,
        pki: Pki::ensure(&state.pki(), &plan(link, ports))?,
        address: link.node.into(),
        private_address: IpAddr::from([127, 0, 0, 1]),
        ports,
        services: ServiceRanges::default(),
        etcd_data: state.etcd(),
        audit_policy,
        audit_log: state.audit_log(),
        durability: Durability::Synced,
        controllers: Controllers::All,
    })
}

/// kube-apiserver listens on the link, where the machine reaches it, and is called by its Service's addresses inside.
fn plan(link: &Link, ports: Ports) -> Plan {
    let node = NodeNames {
        name: node::NAME.to_owned(),
        addresses: link.node_addresses().to_vec(),
    };
    Plan {
        server: format!("{}:{}", link.node, ports.apiserver),
        server_names: ServiceRanges::KUBERNETES.map(str::to_owned).into(),
        node: Some(node),
    }
}

/// Puts the administrator's kubeconfig where people look.
fn publish(state: &State, pki: &Pki) -> Result<(), RootError> {
    let (from, to) = (pki.kubeconfig(Component::Admin), state.kubeconfig());
    fs::copy(&from, &to).map(drop).map_err(io_error(&to))
}

/// Gives the user what they read: keys for clients as anybody, records for hack/status, the audit log for tests.
fn give_to_user(state: &State) -> Result<(), RootError> {
    let all = [
        state.kubeconfig(),
        state.pki(),
        state.config(),
        state.bin(),
        state.run(),
        state.audit_log(),
    ];
    all.iter()
        .filter(|path| path.exists())
        .try_for_each(|path| ownership::give(path, state.root()))
}

/// The two that call kube-apiserver wait for it: before its own roles exist it refuses them, and they give up.
async fn start_control_plane(
    settings: &Config,
    client: &Client,
    log: &Path,
    run: impl Fn(CommandLine) -> Result<Record, ProcError>,
) -> Result<(), RootError> {
    let servers = [
        run(controlplane::etcd(settings)?)?,
        run(controlplane::apiserver(settings)?)?,
    ];
    let log = log.display().to_string();
    controlplane::wait_until_ready(client, READY_LIMIT, &log, || check(&servers)).await?;
    run(controlplane::controller_manager(settings)?)?;
    run(controlplane::scheduler(settings)?)?;
    Ok(())
}

fn check(records: &[Record]) -> Result<(), ProcError> {
    let Some(ended) = records.iter().find(|r| !r.is_alive()) else {
        return Ok(());
    };
    Err(ProcError::Ended {
        name: ended.name.clone(),
        status: "before it was ready".to_owned(),
        log: ended.log.clone(),
        tail: crate::proc::tail(Path::new(&ended.log), 20),
    })
}
