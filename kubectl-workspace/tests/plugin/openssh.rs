//! A real sshd that needs no rights, and the programs that go with it. What the machine does not have is fetched as
//! Debian packages and unpacked beside the build, never installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;

/// sshd, its SFTP server, the clients, rsync, and the libraries that a small machine lacks.
const PACKAGES: [&str; 12] = [
    "openssh-client",
    "openssh-server",
    "openssh-sftp-server",
    "libwrap0",
    "libfido2-1",
    "libcbor0.8",
    "libedit2",
    "libbsd0",
    "libmd0",
    "rsync",
    "libpopt0",
    "libxxhash0",
];
/// With all of these nothing is fetched.
const INSTALLED: [&str; 5] = [
    "/usr/sbin/sshd",
    "/usr/bin/ssh",
    "/usr/bin/scp",
    "/usr/bin/ssh-keygen",
    "/usr/bin/rsync",
];

/// One test fetches, the others wait for it.
static FETCHING: Mutex<()> = Mutex::new(());

/// Where the programs are.
pub struct Programs {
    root: PathBuf,
}

impl Programs {
    pub fn get() -> Self {
        if INSTALLED.iter().all(|file| Path::new(file).exists()) {
            return Self { root: "/".into() };
        }
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openssh");
        let _one = FETCHING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !root.join("usr/sbin/sshd").exists() {
            fetch(&root);
        }
        Self { root }
    }

    /// A program of the user's: the machine's own, if it has one.
    pub fn program(&self, name: &str) -> PathBuf {
        let installed = Path::new("/usr/bin").join(name);
        match installed.exists() {
            true => installed,
            false => self.file("usr/bin").join(name),
        }
    }

    fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// For PATH and `LD_LIBRARY_PATH`.
    pub fn surround(&self, command: &mut tokio::process::Command) {
        if self.root != Path::new("/") {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{path}:{}", self.file("usr/bin").display()));
            command.env("LD_LIBRARY_PATH", self.libraries());
        }
    }

    fn libraries(&self) -> PathBuf {
        self.file("usr/lib")
            .join(format!("{}-linux-gnu", std::env::consts::ARCH))
    }
}

fn fetch(root: &Path) {
    let debs = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |command: &mut Command| {
        let output = command.current_dir(debs.path()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    };
    run(Command::new("apt-get")
        .args(["-q", "download"])
        .args(PACKAGES));
    let unpacked = debs.path().join("root");
    for entry in std::fs::read_dir(debs.path()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|e| e == "deb") {
            run(Command::new("dpkg-deb")
                .arg("--extract")
                .arg(file)
                .arg(&unpacked));
        }
    }
    std::fs::rename(unpacked, root).unwrap();
}

/// A running sshd with keys of its own.
pub struct Sshd {
    pub address: SocketAddr,
    pub dir: tempfile::TempDir,
    child: Child,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // it may be gone already
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    pub async fn start() -> Self {
        let programs = Programs::get();
        let dir = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        for name in ["host", "user"] {
            keygen(&programs, &dir.path().join(name));
        }
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "ListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nMaxStartups 200\nPermitRootLogin yes\nAllowAgentForwarding yes\n\
             SetEnv LD_LIBRARY_PATH={}\nSubsystem sftp {}\n",
            path("host"),
            path("user.pub"),
            programs.libraries().display(),
            programs.file("usr/lib/openssh/sftp-server").display(),
        );
        std::fs::write(path("sshd_config"), config).unwrap();
        let mut command = daemon(&programs, dir.path());
        let log = std::fs::File::create(path("log")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let sshd = Self {
            address,
            dir,
            child,
        };
        sshd.ready().await;
        sshd
    }

    async fn ready(&self) {
        let connects = async {
            while TcpStream::connect(self.address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), connects)
            .await
            .is_err()
        {
            panic!(
                "sshd does not listen: {}",
                std::fs::read_to_string(self.path("log")).unwrap()
            );
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The pin of its host key, as a workspace's status has it.
    pub fn pin(&self) -> Value {
        let text = std::fs::read_to_string(self.path("host.pub")).unwrap();
        let mut words = text.split(' ');
        json!({"hostKeys": [{"algorithm": words.next(), "key": words.next().map(str::trim)}]})
    }
}

fn keygen(programs: &Programs, file: &Path) {
    let mut keygen = Command::new(programs.program("ssh-keygen"));
    keygen.env("LD_LIBRARY_PATH", programs.libraries());
    let keygen = keygen
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(file);
    assert!(keygen.status().unwrap().success());
}

/// As root sshd wants a directory and an account, which it is given where nobody else sees them.
fn daemon(programs: &Programs, dir: &Path) -> Command {
    let sshd = programs.file("usr/sbin/sshd");
    let config = dir.join("sshd_config");
    let mut command = if rustix::process::geteuid().is_root() {
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
        let account = "sshd:x:65532:65534::/run/sshd:/usr/sbin/nologin\n";
        let ours = dir.join("passwd");
        std::fs::write(&ours, format!("{accounts}{account}")).unwrap();
        let script = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(ours)
            .arg(sshd);
        command
    } else {
        Command::new(sshd)
    };
    command
        .args(["-D", "-e", "-f"])
        .arg(config)
        .env("LD_LIBRARY_PATH", programs.libraries());
    command
}
