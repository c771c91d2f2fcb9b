//! What a user has: a machine, the right to edit its namespace, and a home with the plugin and the guest's password.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::{deployment::binary, guests::Place};

/// The user.
pub const USER: &str = "ann";
/// How long anything may take: emulated guests on busy machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A machine, a user who may edit its namespace, and that user's home with the guest's password.
#[derive(Debug)]
pub struct Desk {
    /// The cluster and the namespace.
    pub place: Place,
    home: tempfile::TempDir,
}

impl Desk {
    /// With the machine `demo`, which has started; its services may not have.
    ///
    /// # Errors
    /// When there is no cluster, or the machine does not start.
    pub async fn new() -> Result<Self> {
        let place = Place::new("openssh").await?;
        place.machine("demo").await?;
        place.editor(USER).await?;
        let desk = Self {
            place,
            home: tempfile::tempdir()?,
        };
        let askpass = desk.file("askpass");
        std::fs::write(&askpass, "#!/bin/sh\necho guest\n")?;
        std::fs::set_permissions(&askpass, PermissionsExt::from_mode(0o755))?;
        Ok(desk)
    }

    /// A file in the home.
    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// What every command of the user has around it.
    pub fn surround(&self, command: &mut Command) {
        command
            .env("KUBECONFIG", self.place.cluster.state().kubeconfig())
            .env("SSH_ASKPASS", self.file("askpass"))
            .env("SSH_ASKPASS_REQUIRE", "force")
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
    }

    /// The plugin as the user; flags stand before the command.
    ///
    /// # Errors
    /// When the plugin is not built.
    pub fn plugin(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary("kubectl-workspace")?);
        self.surround(&mut command);
        command
            .args(["--as", USER, "-n", &self.place.namespace])
            .args(args);
        Ok(command)
    }

    /// Runs the plugin to its end.
    ///
    /// # Errors
    /// When it does not start or does not end.
    pub async fn run(&self, args: &[&str]) -> Result<Output> {
        ended(self.plugin(args)?).await
    }

    /// The same, and it has to succeed.
    ///
    /// # Errors
    /// With its output when it fails.
    pub async fn well(&self, args: &[&str]) -> Result<Output> {
        let output = self.run(args).await?;
        ensure!(output.status.success(), "{args:?}: {output:?}");
        Ok(output)
    }

    /// A port forward, and the local address of its only port.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn forward(&self, port: &str) -> Result<(Child, String)> {
        let mut child = self
            .plugin(&["port-forward", "demo", port, "--address", "127.0.0.1"])?
            .spawn()?;
        let address = third_word(&mut child).await?;
        Ok((child, address))
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it does not start or does not end.
pub async fn ended(mut command: Command) -> Result<Output> {
    Ok(tokio::time::timeout(PATIENCE, command.output()).await??)
}

/// The address in `Forwarding from ADDRESS -> …`, `Listening on ADDRESS for …`.
///
/// # Errors
/// When no such line comes.
pub async fn third_word(child: &mut Child) -> Result<String> {
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
    let line = line.context("it ended")?;
    // the rest is read as long as the child lives, or it would wait for a reader
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(line.split(' ').nth(2).context(line.clone())?.to_owned())
}

/// Until an address sends `wanted` first: a guest that has started may not listen yet.
///
/// # Errors
/// When it does not in good time.
pub async fn greeted(address: &str, wanted: &[u8]) -> Result<()> {
    let come = async {
        loop {
            match first_bytes(address, wanted.len()).await {
                Ok(bytes) => return bytes,
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    };
    let bytes = tokio::time::timeout(PATIENCE, come).await?;
    ensure!(bytes == wanted, "{address} sends {bytes:?}");
    Ok(())
}

/// What is first sent at an address.
///
/// # Errors
/// When less comes.
pub async fn first_bytes(address: &str, count: usize) -> Result<Vec<u8>> {
    let read = async {
        let mut connection = TcpStream::connect(address).await?;
        let mut bytes = vec![0; count];
        connection.read_exact(&mut bytes).await?;
        anyhow::Ok(bytes)
    };
    tokio::time::timeout(PATIENCE, read).await?
}
