//! A home with a kubeconfig, and the plugin run in it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::double::Double;

pub const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-workspace");
/// Fifty ssh clients on a busy machine of two cores take their time.
const PATIENCE: Duration = Duration::from_secs(240);

pub struct Place {
    pub double: Double,
    pub home: TempDir,
}

impl Place {
    /// A double, and a kubeconfig that leads to it with a token and namespace `t1`.
    pub async fn new() -> Self {
        Self::of(Double::start().await)
    }

    pub fn of(double: Double) -> Self {
        let home = tempfile::tempdir().unwrap();
        let place = Self { double, home };
        let server = format!("http://{}", place.double.address);
        place.kubeconfig(&json!({"server": server}), &json!({"token": "secret"}));
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn kubeconfig(&self, cluster: &Value, user: &Value) {
        let text = config("here", cluster, user);
        std::fs::write(self.path("config"), text).unwrap();
    }

    /// The plugin, to be run as the test likes. Nothing of the caller's own surroundings reaches it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PLUGIN);
        self.surround(&mut command);
        command.args(args);
        command
    }

    /// Any program in the same surroundings.
    pub fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("KUBECONFIG", self.path("config"))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
    }

    pub async fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args)).await
    }

    pub async fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let typing = tokio::spawn(async move {
            // who ends early reads no more
            let _ = stdin.write_all(&input).await;
        });
        let ran = Ran::end(child).await;
        typing.await.unwrap();
        ran
    }
}

/// A kubeconfig with one context.
pub fn config(context: &str, cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": "t1"}}],
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
    })
    .to_string()
}

/// How a program ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub bytes: Vec<u8>,
}

impl Ran {
    pub async fn of(mut command: Command) -> Self {
        Self::end(command.spawn().unwrap()).await
    }

    pub async fn end(child: Child) -> Self {
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let output: Output = output.expect("it ends").unwrap();
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }

    /// It did what it should.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It failed, with these words.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {self:?}");
        }
        self
    }
}

/// A program of a test's own.
pub fn script(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}
