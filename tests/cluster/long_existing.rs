//! `hack/up --kubeconfig FILE --push REPO` against a cluster that knows nothing of us, with a real registry
//! between: the image is pushed and pulled, a workspace runs, and the server leaves again. And what is said
//! when it cannot work.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::{
    deployment::{APISERVICE, NAMESPACE},
    own_cluster::{OwnCluster, Running},
};
use localcluster::{
    assets::{Assets, Binary, Places},
    harness::Cluster,
    pki::Subject,
};

/// What runs in the cluster that exists: its nodes have this image already.
const WORKSPACE: &str = "apiVersion: kubeworkspaces.io/v1alpha1
kind: Workspace
metadata: {name: toolbox, namespace: default}
spec:
  type: container
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: 'images.kubeworkspaces.test/busybox:1', command: [sleep, '3600']}
";

#[tokio::test]
async fn a_cluster_that_exists_gets_the_server_from_a_registry_and_loses_it_again() -> Result<()> {
    let there = OwnCluster::new()?;
    bare(&there)?;
    let cluster = Cluster::attach_to(there.state().clone()).await?;
    let registry = Registry::start(&there)?;
    let here = OwnCluster::new()?;
    let file = there.state().kubeconfig().display().to_string();
    let up = ["--kubeconfig", &file, "--push", &registry.repository];

    let said = here.run("up", &up)?;
    ensure!(said.contains("The server is installed"), "{said}");
    here.run("up", &up)?;
    let image = [
        "-n",
        NAMESPACE,
        "get",
        "pods",
        "-o",
        "jsonpath={.items[*].spec.containers[*].image}",
    ];
    let image = cluster.kubectl(image).await?;
    ensure!(image.starts_with(&registry.repository), "{image}");
    let available = [
        "wait",
        "--for=condition=Available",
        "--timeout=60s",
        "apiservice",
        APISERVICE,
    ];
    cluster.kubectl(available).await?;
    let env = here.run("env", &[])?;
    ensure!(env.contains(&format!("KUBECONFIG='{file}'")), "{env}");
    here.run("status", &[])?;

    let manifest = here.state().root().join("workspace.yaml");
    fs::write(&manifest, WORKSPACE)?;
    cluster
        .kubectl(["apply", "-f", &manifest.to_string_lossy()])
        .await?;
    let ready = [
        "wait",
        "--for=condition=Ready",
        "--timeout=60s",
        "workspace",
        "toolbox",
    ];
    cluster.kubectl(ready).await?;
    let refused = fails(here.start("down", &["--uninstall"])?)?;
    ensure!(
        refused.contains("1 workspaces are still there"),
        "{refused}"
    );
    cluster.kubectl(["delete", "workspace", "toolbox"]).await?;

    here.run("down", &["--uninstall"])?;
    for left in [
        &["get", "apiservices", "-o", "name"][..],
        &[
            "get",
            "crds,namespaces,clusterroles,validatingadmissionpolicies",
            "-o",
            "name",
        ],
    ] {
        let answer = cluster.kubectl(left).await?;
        ensure!(!answer.contains("kubeworkspaces"), "{answer}");
    }
    ensure!(
        !here.state().root().exists(),
        "the state directory is still there"
    );
    // Only what was installed has gone.
    cluster.kubectl(["get", "nodes", "node"]).await?;
    Ok(())
}

#[tokio::test]
async fn what_cannot_work_with_a_cluster_that_exists_is_said_at_once() -> Result<()> {
    let there = OwnCluster::new()?;
    bare(&there)?;
    let cluster = Cluster::attach_to(there.state().clone()).await?;
    let here = OwnCluster::new()?;
    let dir = tempfile::tempdir()?;
    let put = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let admin = fs::read_to_string(there.state().kubeconfig())?;
    let link = admin
        .lines()
        .find_map(|line| line.split("https://").nth(1))
        .and_then(|rest| rest.split(['"', ',', '/']).next())
        .context("the kubeconfig names no server")?;
    let nobody = cluster.pki().kubeconfig_for(&Subject::user("nobody"))?;
    let push = ["--push", "127.0.0.1:9/team"];
    for (file, want) in [
        (there.state().kubeconfig().display().to_string(), "--push"),
        (
            "/does/not/exist".to_owned(),
            "there is no kubeconfig /does/not/exist",
        ),
        (put("broken", "{")?, "cannot use the kubeconfig"),
        (
            put("away", &admin.replace(link, "127.0.0.1:9"))?,
            "is it up",
        ),
        (put("nobody", &nobody)?, "may not create namespaces"),
    ] {
        let push = if want == "--push" { &[][..] } else { &push[..] };
        let all = [&["--kubeconfig", &file], push].concat();
        let said = fails(here.start("up", &all)?)?;
        ensure!(said.contains(want), "{want} is not in:\n{said}");
        ensure!(!said.contains("compiling our programs"), "{said}");
    }
    Ok(())
}

fn bare(cluster: &OwnCluster) -> Result<()> {
    let words = cluster.bare()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.spawn_as_root(&words)?.end().map(drop)
}

fn fails(running: Running) -> Result<String> {
    match running.end() {
        Ok(output) => anyhow::bail!("it should have failed:\n{output}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// A registry of images that both sides reach under the same name: one process on this machine's loopback
/// and one on the node's, over the same files.
struct Registry {
    processes: Vec<Running>,
    repository: String,
    directory: tempfile::TempDir,
}

impl Registry {
    fn start(node: &OwnCluster) -> Result<Self> {
        let assets = Assets::ensure(&[Binary::Registry], &Places::from_env()?)?;
        let program = assets.path(Binary::Registry)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let directory = tempfile::tempdir()?;
        let config = config(directory.path(), port)?;
        let config = config.to_string_lossy();
        let here = node.spawn(program, &["serve", &config])?;
        // Its files are this machine's. It ends with the node.
        let target = format!("--target={}", node.pid_one()?);
        let program = program.to_string_lossy();
        let enter = ["nsenter", &target, "--net", "--pid", "--"];
        let there = [&enter[..], &[&program, "serve", &config]].concat();
        let there = node.spawn_as_root(&there)?;
        wait_for_port(port)?;
        Ok(Self {
            processes: vec![here, there],
            repository: format!("127.0.0.1:{port}/team"),
            directory,
        })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        for process in self.processes.drain(..) {
            if let Err(error) = process.kill_after(Duration::ZERO, true) {
                eprintln!(
                    "a registry in {} did not end: {error:#}",
                    self.directory.path().display()
                );
            }
        }
    }
}

fn config(dir: &Path, port: u16) -> Result<PathBuf> {
    let path = dir.join("config.json");
    let files = dir.join("images");
    let text = serde_json::json!({
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": files}},
        "http": {"addr": format!("127.0.0.1:{port}")},
    });
    fs::write(&path, text.to_string())?;
    Ok(path)
}

fn wait_for_port(port: u16) -> Result<()> {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(
            std::time::Instant::now() < end,
            "the registry does not listen on port {port}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
