//! A real OpenSSH server of the test's own: unprivileged, on a loopback port, with its own keys.
//!
//! `sshd` is the machine's, else the Debian package's, unpacked once into the user's cache. It logs
//! in only the user that it runs as: us, or, where we are root, a user who exists in its own mount
//! namespace only.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::{Instant, sleep},
};

/// The user's number, where we are root.
const UID: u32 = 2000;
const PATIENCE: Duration = Duration::from_secs(20);
/// Ports are chosen before they are listened on.
const TRIES: usize = 5;

/// A running server.
pub struct Sshd {
    dir: TempDir,
    program: Program,
    options: String,
    child: Child,
    address: SocketAddr,
}

/// The folder that `openssh-server` is unpacked in: `/`, or one of ours.
struct Program(PathBuf);

impl Program {
    const INSTALLED: &str = "/";

    fn is_installed(&self) -> bool {
        self.0 == Path::new(Self::INSTALLED)
    }

    /// Where another user can run it: nobody else may look into our cache.
    fn within_reach(&self, dir: &Path) -> Result<Self> {
        if self.is_installed() || !is_root() {
            return Ok(Self(self.0.clone()));
        }
        let copy = dir.join("openssh");
        if !copy.exists() {
            let copied = std::process::Command::new("cp")
                .args(["-r", "--no-preserve=ownership"])
                .arg(&self.0)
                .arg(&copy)
                .status()?;
            succeeded(copied, "cp")?;
        }
        Ok(Self(copy))
    }

    fn libraries(&self) -> Option<PathBuf> {
        let known = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
        let folders = known.map(|name| self.0.join("usr/lib").join(name));
        let found = folders.into_iter().find(|folder| folder.exists());
        found.filter(|_| !self.is_installed())
    }

    /// OpenSSH 9.8 and later run programs beside sshd, by the path that they were built with.
    fn helpers(&self) -> Vec<String> {
        let helper = |option: &str, name: &str| {
            let path = self.0.join("usr/lib/openssh").join(name);
            path.exists()
                .then(|| format!("{option} {}", path.display()))
        };
        let helpers = [
            helper("SshdSessionPath", "sshd-session"),
            helper("SshdAuthPath", "sshd-auth"),
        ];
        helpers
            .into_iter()
            .flatten()
            .filter(|_| !self.is_installed())
            .collect()
    }
}

impl Sshd {
    /// With host keys of these types, as `ssh-keygen -t` names them, and more lines of `sshd_config`.
    pub async fn start(types: &[&str], options: &str) -> Result<Self> {
        let program = program().await?;
        let dir = TempDir::new()?;
        for kind in types {
            host_key(dir.path(), kind).await?;
        }
        fs::write(dir.path().join("authorized_keys"), "")?;
        give(&dir.path().join("authorized_keys"))?;
        give(dir.path())?;
        let (child, address) = launch(dir.path(), &program, options).await?;
        Ok(Self {
            dir,
            program,
            options: options.to_owned(),
            child,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The one user whom it logs in.
    pub fn user(&self) -> String {
        user()
    }

    /// Its folder: host keys are `host_TYPE` in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The public host key of this type in base64, as known_hosts files have it.
    pub fn host_key(&self, kind: &str) -> Result<String> {
        let text = fs::read_to_string(self.dir.path().join(format!("host_{kind}.pub")))?;
        let key = text.split(' ').nth(1).context("no key in the .pub file")?;
        Ok(key.to_owned())
    }

    /// A new key of a user, made by `ssh-keygen` with these arguments; it may log in.
    pub async fn user_key(&self, arguments: &[&str]) -> Result<String> {
        let scratch = TempDir::new()?;
        let file = scratch.path().join("key");
        keygen(&file, arguments).await?;
        let known = self.dir.path().join("authorized_keys");
        let mut keys = fs::read_to_string(&known)?;
        keys.push_str(&fs::read_to_string(file.with_extension("pub"))?);
        fs::write(&known, keys)?;
        Ok(fs::read_to_string(file)?)
    }

    /// Puts this in front of the options of the next key.
    pub fn restrict(&self, options: &str) -> Result<()> {
        let known = self.dir.path().join("authorized_keys");
        let keys = fs::read_to_string(&known)?;
        let restricted: Vec<_> = keys
            .lines()
            .map(|key| format!("{options} {key}\n"))
            .collect();
        Ok(fs::write(&known, restricted.concat())?)
    }

    /// Replaces a host key, as an administrator does, or somebody in between.
    pub async fn renew(&mut self, kind: &str) -> Result<()> {
        host_key(self.dir.path(), kind).await?;
        self.restart().await
    }

    /// Takes a type of host keys away.
    pub async fn remove(&mut self, kind: &str) -> Result<()> {
        fs::remove_file(self.dir.path().join(format!("host_{kind}")))?;
        self.restart().await
    }

    /// Starts it anew; the address may be another.
    pub async fn restart(&mut self) -> Result<()> {
        self.child.kill().await?;
        let (dir, program) = (self.dir.path(), &self.program);
        (self.child, self.address) = launch(dir, program, &self.options).await?;
        Ok(())
    }

    /// Its own log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn user() -> String {
    match is_root() {
        true => "tester".to_owned(),
        false => std::env::var("USER").unwrap_or_else(|_| "nobody".to_owned()),
    }
}

/// Hands a file over to the user whom the server runs as.
fn give(path: &Path) -> Result<()> {
    if is_root() {
        chown(path, Some(UID), Some(UID))?;
    }
    Ok(())
}

async fn host_key(dir: &Path, kind: &str) -> Result<()> {
    let file = dir.join(format!("host_{kind}"));
    let _ = fs::remove_file(&file);
    keygen(&file, &["-t", kind]).await?;
    give(&file)
}

async fn keygen(file: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-C", ""])
        .args(arguments)
        .arg("-f")
        .arg(file);
    if !arguments.contains(&"-N") {
        command.args(["-N", ""]);
    }
    succeeded(command.status().await?, "ssh-keygen")
}

fn succeeded(status: ExitStatus, what: &str) -> Result<()> {
    ensure!(status.success(), "{what} failed: {status}");
    Ok(())
}

async fn launch(dir: &Path, program: &Program, options: &str) -> Result<(Child, SocketAddr)> {
    for _ in 0..TRIES {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        drop(listener);
        let program = program.within_reach(dir)?;
        let options = [program.helpers().join("\n").as_str(), options].join("\n");
        fs::write(dir.join("config"), config(dir, address.port(), &options)?)?;
        let mut child = command(dir, &program)?.spawn().context("sshd")?;
        if listens(&mut child, address).await? {
            return Ok((child, address));
        }
    }
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    bail!("sshd does not start: {log}");
}

async fn listens(child: &mut Child, address: SocketAddr) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        if TcpStream::connect(address).await.is_ok() {
            return Ok(true);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(false)
}

fn config(dir: &Path, port: u16, options: &str) -> Result<String> {
    let at = dir.display();
    let mut lines = vec![
        format!("Port {port}"),
        "ListenAddress 127.0.0.1".to_owned(),
        format!("AuthorizedKeysFile {at}/authorized_keys"),
        "PidFile none".to_owned(),
        "StrictModes no".to_owned(),
        "PrintMotd no".to_owned(),
        "PrintLastLog no".to_owned(),
        "LogLevel VERBOSE".to_owned(),
    ];
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("host_") && !name.contains('.') {
            lines.push(format!("HostKey {at}/{name}"));
        }
    }
    lines.push(options.to_owned());
    Ok(lines.join("\n") + "\n")
}

/// As root, the server is given a user database of its own in which one user has a shell, and no
/// group `tty`, whose terminals it could not hand out.
fn command(dir: &Path, program: &Program) -> Result<Command> {
    let log = fs::File::create(dir.join("log"))?;
    let sshd = program.0.join("usr/sbin/sshd");
    let mut command = match is_root() {
        true => {
            let users = fs::read_to_string("/etc/passwd")?;
            let home = dir.display();
            let users = format!("{users}tester:x:{UID}:{UID}::{home}:/bin/sh\n");
            fs::write(dir.join("passwd"), users)?;
            let groups = fs::read_to_string("/etc/group")?;
            let groups = groups.lines().filter(|line| !line.starts_with("tty:"));
            fs::write(
                dir.join("group"),
                groups.collect::<Vec<_>>().join("\n") + "\n",
            )?;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
            command.arg(format!(
                "mount --bind passwd /etc/passwd; mount --bind group /etc/group; exec setpriv --reuid {UID} --regid {UID} --clear-groups \"$@\""
            ));
            command.arg("sh").arg(&sshd);
            command
        }
        false => Command::new(&sshd),
    };
    if let Some(libraries) = program.libraries() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
        .current_dir(dir)
        .args(["-D", "-e", "-f"])
        .arg(dir.join("config"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.kill_on_drop(true);
    Ok(command)
}

async fn program() -> Result<Program> {
    if Path::new("/usr/sbin/sshd").exists() {
        return Ok(Program(Program::INSTALLED.into()));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = cache
        .or_else(home)
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    let tools = cache.join("kubeworkspaces/tools");
    let root = tools.join("openssh-server");
    if !root.exists() {
        unpack(&tools, &root).await?;
    }
    Ok(Program(root))
}

async fn unpack(tools: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(tools)?;
    let scratch = TempDir::new_in(tools)?;
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = ". hack/lib/debs; unpack_debs \"$1\" openssh-server libwrap0";
    let mut command = Command::new("bash");
    command
        .args(["-ec", script, "bash"])
        .arg(scratch.path())
        .current_dir(top);
    succeeded(command.status().await?, "unpacking openssh-server")?;
    // A TempDir is its owner's alone, and the server runs as another.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    match fs::rename(scratch.keep(), root) {
        Err(_) if root.exists() => Ok(()),
        renamed => Ok(renamed?),
    }
}
