//! The server as a process of this machine, behind its Service in the cluster: for quick rebuilds.
//!
//! It has the rights of its ServiceAccount and nothing more. The Service has no selector; an EndpointSlice leads to
//! the machine's end of the link to the node.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Context;
use super::compile::{Profile, program};
use super::kubectl::kubectl;
use super::server::{NAME, NAMESPACE};
use crate::node::footprint::Footprint;
use crate::proc::{self, CommandLine, Ledger, Record};

/// Whose EndpointSlice it is.
pub(super) const MANAGED_BY: &str = "hack-up";
/// Where it listens, on the link's address only.
const PORT: u16 = 8443;
/// How long it has to end its streams.
const GRACE: Duration = Duration::from_secs(15);
/// How long its token is valid: longer than a development cluster lives.
const TOKEN: &str = "--duration=8760h";

/// Where kube-proxy sends what comes for the Service.
pub(super) fn endpoints(context: &Context) -> anyhow::Result<Value> {
    Ok(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{NAME}-host"),
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address(context)?], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
    }))
}

/// Starts it, or starts it again if its program was compiled anew.
pub(super) async fn start(context: &Context) -> anyhow::Result<()> {
    let ledger = Ledger::in_dir(context.state.run());
    let program = program(NAME, Profile::Debug)?;
    let running = ledger.get(NAME)?.filter(Record::is_alive);
    if running.is_some_and(|record| runs(record.process.pid, &program)) {
        return Ok(());
    }
    end(&ledger)?;
    let kubeconfig = context.state.config().join(format!("{NAME}.kubeconfig"));
    write_private(&kubeconfig, &credentials(context).await?)?;
    let command = command(&program, &kubeconfig, &address(context)?);
    ledger.start(&command, &context.state.log(NAME))?;
    Ok(())
}

/// Ends it if it runs, and takes its endpoint away.
pub(super) async fn stop(context: &Context) -> anyhow::Result<()> {
    let ledger = Ledger::in_dir(context.state.run());
    if ledger.get(NAME)?.is_none() {
        return Ok(());
    }
    let slice = format!("endpointslice/{NAME}-host");
    kubectl(context)
        .run(["-n", NAMESPACE, "delete", "--ignore-not-found", &slice])
        .await?;
    end(&ledger)
}

/// An error with the end of its log when it has ended.
pub(super) fn check(context: &Context) -> anyhow::Result<()> {
    let running = Ledger::in_dir(context.state.run()).get(NAME)?;
    let log = context.state.log(NAME);
    anyhow::ensure!(
        running.is_some_and(|record| record.is_alive()),
        "the server has ended; its log is {}:\n{}",
        log.display(),
        proc::tail(&log, 10)
    );
    Ok(())
}

fn end(ledger: &Ledger) -> anyhow::Result<()> {
    Ok(ledger.stop(NAME, GRACE)?)
}

/// The machine's end of the link, in the node's own record.
fn address(context: &Context) -> anyhow::Result<String> {
    let footprint = Footprint::load(&context.state.node())?;
    let footprint = footprint.context("the node has no record of its link")?;
    Ok(footprint.link.host.to_string())
}

fn command(program: &Path, kubeconfig: &Path, address: &str) -> CommandLine {
    CommandLine::new(NAME, program)
        .flag("bind-address", address)
        .flag("secure-port", PORT.to_string())
        .flag("kubeconfig", kubeconfig)
        .flag("authentication-kubeconfig", kubeconfig)
        .flag("authorization-kubeconfig", kubeconfig)
        .flag("namespace", NAMESPACE)
        .flag("service-name", NAME)
        .flag("certificates", "self-managed")
        .flag("register", "true")
        // The machine has no route to pods.
        .flag("pod-network", "false")
        .flag("audit-log-path", "-")
        .flag("replica", "host")
}

/// Whether the process runs exactly this file: cargo puts a new one in its place.
fn runs(pid: i32, program: &Path) -> bool {
    let file = |path: PathBuf| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let now = file(program.to_owned());
    now.is_some() && file(format!("/proc/{pid}/exe").into()) == now
}

/// A kubeconfig of the server's ServiceAccount: the administrator's cluster, its own token.
async fn credentials(context: &Context) -> anyhow::Result<String> {
    let kubectl = kubectl(context);
    let token = kubectl
        .run(["-n", NAMESPACE, "create", "token", NAME, TOKEN])
        .await?;
    let view = kubectl
        .run(["config", "view", "--raw", "--minify", "-o", "json"])
        .await?;
    Ok(kubeconfig(&serde_json::from_str(&view)?, token.trim()).to_string())
}

/// JSON is YAML.
fn kubeconfig(admin: &Value, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": admin["clusters"][0]["cluster"]}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": "cluster", "user": NAME}}],
        "current-context": NAME,
    })
}

/// For the owner alone from the start.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_own_token_and_nothing_of_the_administrators_but_the_cluster() {
        let admin = json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}],
            "users": [{"name": "admin", "user": {"client-key-data": "secret"}}],
        });
        let made = kubeconfig(&admin, "t");
        assert_eq!(
            made["clusters"][0]["cluster"]["server"],
            "https://192.0.2.1:6443"
        );
        assert_eq!(made["users"][0]["user"], json!({"token": "t"}));
        assert!(!made.to_string().contains("secret"));
    }

    #[test]
    fn a_process_is_compared_by_its_file() {
        let own = std::env::current_exe().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(runs(pid, &own));
        assert!(!runs(pid, Path::new("/bin/sh")));
        assert!(!runs(pid, Path::new("/does/not/exist")));
    }
}
