//! The plugin against the real server behind a real kube-apiserver, over machines without a guest: what the plugin's own
//! double promises is what the server does.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::{
    deployment::{Deployment, binary},
    machines::{ECHO, GREETING, Machines},
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(60);

/// A machine `demo` in `t1`, and `ann`, who may edit there.
struct Desk {
    deployment: Deployment,
    _machines: Machines,
    ann: PathBuf,
    bin: tempfile::TempDir,
}

impl Desk {
    async fn new() -> Result<Self> {
        let deployment = Deployment::start().await?;
        let machines = Machines::start(deployment.plane()).await?;
        deployment.kubectl(&["create", "namespace", "t1"]).await?;
        let binding = [
            "create",
            "rolebinding",
            "ann",
            "-n",
            "t1",
            "--clusterrole=edit",
            "--user=ann",
        ];
        deployment.kubectl(&binding).await?;
        let manifest = format!(
            "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {{name: demo, namespace: t1}}\nspec:\n  \
             type: vm\n  template:\n    spec:\n      containers:\n      - name: main\n        image: {ECHO}\n        \
             ports: [{{containerPort: 8080, name: http}}]\n        resources: {{limits: {{cpu: '1', memory: 128Mi}}}}\n"
        );
        deployment.apply(&manifest).await?;
        machines.running("t1", "demo").await?;
        let ann = deployment.plane().kubeconfig_as("ann", &[])?;
        let desk = Self {
            deployment,
            _machines: machines,
            ann,
            bin: tempfile::tempdir()?,
        };
        desk.can_stream().await?;
        for name in ["kubectl-workspace", "kubectl_complete-workspace"] {
            symlink(binary("kubectl-workspace")?, desk.bin.path().join(name))?;
        }
        Ok(desk)
    }

    /// The aggregated role and the binding reach the authorizer a moment later, the status the controller's caches.
    async fn can_stream(&self) -> Result<()> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let child = self.spawn(&["port-forward", "--stdio", "demo", "8080"])?;
            let ran = self.exchange(child, b"ready").await?;
            if ran.stdout == b"ready" {
                return Ok(());
            }
            ensure!(std::time::Instant::now() < end, "{ran:?}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn surround(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("KUBECONFIG", &self.ann)
            .env("PATH", format!("{}:{path}", self.bin.path().display()))
            .env("HOME", self.bin.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
    }

    fn spawn(&self, args: &[&str]) -> Result<Child> {
        let mut command = Command::new(binary("kubectl-workspace")?);
        self.surround(&mut command);
        Ok(command.args(["-n", "t1"]).args(args).spawn()?)
    }

    /// What comes back of `input`. The answer is read before the input ends: machines without a guest are reached
    /// through KubeVirt's port forward, where the end of one direction is the end of both.
    async fn exchange(&self, mut child: Child, input: &[u8]) -> Result<Output> {
        let mut stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.as_mut().context("no stdout")?;
        let mut answer = vec![0; input.len()];
        let talk = async {
            stdin.write_all(input).await?;
            stdout.read_exact(&mut answer).await
        };
        let talked = tokio::time::timeout(PATIENCE, talk).await?;
        drop(stdin);
        let mut output = ended(child).await?;
        if talked.is_ok() {
            output.stdout.splice(0..0, answer);
        }
        Ok(output)
    }

    async fn run(&self, args: &[&str], input: &[u8]) -> Result<Output> {
        let mut child = self.spawn(args)?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        // who ends early reads no more
        let _ = stdin.write_all(input).await;
        drop(stdin);
        ended(child).await
    }
}

async fn ended(child: Child) -> Result<Output> {
    Ok(tokio::time::timeout(PATIENCE, child.wait_with_output()).await??)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads until the greeting of the machine has come.
async fn greeted(child: &mut Child) -> Result<()> {
    let stdout = child.stdout.as_mut().context("no stdout")?;
    let mut bytes = vec![0; GREETING.len()];
    tokio::time::timeout(PATIENCE, stdout.read_exact(&mut bytes)).await??;
    ensure!(
        bytes == GREETING.as_bytes(),
        "{}",
        String::from_utf8_lossy(&bytes)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn consoles_ports_sessions_and_completion_meet_the_real_server() -> Result<()> {
    let desk = Desk::new().await?;
    let child = desk.spawn(&["port-forward", "--stdio", "demo", "http"])?;
    let ran = desk.exchange(child, b"\x00\x01hello").await?;
    assert_eq!(
        (ran.status.code(), ran.stdout.as_slice()),
        (Some(0), &b"\x00\x01hello"[..]),
        "{}",
        said(&ran)
    );
    let ran = desk
        .run(&["port-forward", "--stdio", "demo", "9999"], b"")
        .await?;
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));

    let mut first = desk.spawn(&["console", "demo"])?;
    greeted(&mut first).await?;
    let second = desk.run(&["console", "demo"], b"").await?;
    assert_eq!(second.status.code(), Some(1));
    assert!(
        said(&second).contains("the console is held by ann since 2"),
        "{}",
        said(&second)
    );
    let sessions = desk.run(&["sessions", "demo"], b"").await?;
    let sessions = String::from_utf8_lossy(&sessions.stdout).into_owned();
    assert!(
        sessions.contains("demo.console") && sessions.contains("ann"),
        "{sessions}"
    );

    let mut third = desk.spawn(&["console", "demo", "--takeover"])?;
    greeted(&mut third).await?;
    let first = ended(first).await?;
    assert_eq!(first.status.code(), Some(1));
    assert!(
        said(&first).contains("kubectl workspace console demo -n t1 --takeover"),
        "{}",
        said(&first)
    );
    // nobody reads any more
    drop(third.stdout.take());
    let third = ended(third).await?;
    assert_eq!(third.status.code(), Some(0), "{}", said(&third));

    let mut kubectl = desk.deployment.plane().kubectl_program().command([
        "__complete",
        "workspace",
        "console",
        "-n",
        "t1",
        "",
    ]);
    desk.surround(&mut kubectl);
    let completed = kubectl.output().await?;
    let completed = String::from_utf8_lossy(&completed.stdout).into_owned();
    assert!(completed.starts_with("demo\tvm "), "{completed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p_04_streams_pass_through_kubectl_proxy() -> Result<()> {
    let desk = Desk::new().await?;
    let mut proxy = desk
        .deployment
        .plane()
        .kubectl_program()
        .command(["proxy", "--port=0"]);
    desk.surround(&mut proxy);
    let mut proxy = proxy.spawn()?;
    let mut lines = BufReader::new(proxy.stdout.take().context("no stdout")?).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
    let address = line
        .as_deref()
        .and_then(|l| l.rsplit(' ').next())
        .context("no address")?;
    let server = format!("http://{address}");
    let with = |args: &[&str]| -> Result<Command> {
        let mut command = Command::new(binary("kubectl-workspace")?);
        desk.surround(&mut command);
        command
            .env_remove("KUBECONFIG")
            .args(["--server", &server, "-n", "t1"])
            .args(args);
        Ok(command)
    };
    let mut console = with(&["console", "demo"])?.spawn()?;
    greeted(&mut console).await?;
    drop(console.stdout.take());
    assert_eq!(ended(console).await?.status.code(), Some(0));

    let forward = with(&["port-forward", "--stdio", "demo", "8080"])?.spawn()?;
    let ran = desk.exchange(forward, b"hello").await?;
    assert_eq!(
        (ran.status.code(), ran.stdout.as_slice()),
        (Some(0), &b"hello"[..]),
        "{}",
        said(&ran)
    );
    Ok(())
}
