//! Native OpenSSH through the plugin, against a real sshd.

use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::double::{Refuse, Script};
use crate::openssh::{Programs, Sshd};
use crate::place::{PLUGIN, Place, Ran};

struct Guest {
    place: Place,
    sshd: Sshd,
    programs: Programs,
}

const OBJECT: &str = "namespaces/t1/workspaces/demo";

impl Guest {
    async fn new() -> Self {
        Self::named("demo").await
    }

    async fn named(name: &str) -> Self {
        let guest = Self {
            place: Place::new().await,
            sshd: Sshd::start().await,
            programs: Programs::get(),
        };
        guest.place.double.workspace("t1", name, "vm");
        let pin = guest.sshd.pin();
        let object = format!("namespaces/t1/workspaces/{name}");
        guest.place.double.edit(&object, |object| {
            object["status"]["ssh"] = pin;
            object["status"]["image"] = serde_json::json!({"settings": {"defaultUser": whoami()}});
        });
        for end in ["ssh", "portforward/22", "portforward/2222"] {
            let end = format!("{name}/{end}");
            guest
                .place
                .double
                .script(&end, Script::Tunnel(guest.sshd.address, true));
        }
        guest
    }

    /// A program with the plugin and the key, as a user would have them.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.place.surround(&mut command);
        self.programs.surround(&mut command);
        command
    }

    fn key(&self) -> String {
        self.sshd.path("user").display().to_string()
    }

    async fn ssh(&self, args: &[&str]) -> Ran {
        let mut command = self.command(PLUGIN);
        command.args(["ssh", "-i", &self.key()]).args(args);
        Ran::of(command).await
    }

    /// `~/.ssh/config` of a user who has asked for it; ssh itself looks for the home in the account.
    async fn ssh_config(&self) -> String {
        let mut command = self.command(PLUGIN);
        command.args(["ssh-config", "demo"]);
        let stanza = Ran::of(command).await.well().out;
        let file = self.place.path("ssh_config");
        std::fs::write(&file, format!("{stanza}  IdentityFile {}\n", self.key())).unwrap();
        file.display().to_string()
    }
}

fn whoami() -> String {
    let output = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_command_runs_with_its_output_and_its_exit_status() {
    let guest = Guest::new().await;
    let ran = guest
        .ssh(&[
            "demo",
            "--",
            "echo",
            "out;",
            "echo err >&2;",
            "id -un; exit 7",
        ])
        .await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_eq!(ran.out, format!("out\n{}\n", whoami()));
    assert_eq!(ran.err, "err\n");
    guest.place.double.streams(0).await;
    let asked = guest.place.double.asked();
    assert!(
        asked
            .iter()
            .any(|a| a.target.ends_with("/demo/ssh?mode=tunnel")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn our_own_failures_are_255_and_say_what_to_do() {
    let guest = Guest::new().await;
    guest
        .ssh(&["nobody", "--", "true"])
        .await
        .failed(255, &["error: workspaces \"nobody\" not found"]);
    guest.place.double.refuse(
        "/ssh",
        Refuse::status(
            409,
            "demo is stopped: start it with kubectl workspace start demo",
        ),
    );
    let ran = guest.ssh(&["demo", "--", "true"]).await;
    let ran = ran.failed(255, &["error: demo is stopped: start it"]);
    assert_eq!(ran.err.matches("demo is stopped").count(), 1, "{ran:?}");
    let mut command = guest.command(PLUGIN);
    command.args(["ssh", "demo"]).env("PATH", "/nowhere");
    Ran::of(command)
        .await
        .failed(255, &["OpenSSH's ssh is not on PATH"]);
    guest
        .ssh(&["--stdio", "demo", "x"])
        .await
        .failed(255, &["\"x\" is no port"]);
}

#[tokio::test]
async fn p_12_only_the_pinned_key_is_accepted_and_known_hosts_is_left_alone() {
    let guest = Guest::new().await;
    guest.ssh(&["demo", "--", "true"]).await.well();
    let pin = guest.sshd.pin();
    // a new root disk, which the API knows of: no warning
    let other = Sshd::start().await;
    guest
        .place
        .double
        .script("demo/ssh", Script::Tunnel(other.address, true));
    let refused = guest
        .ssh(&["-o", "StrictHostKeyChecking=no", "demo", "--", "true"])
        .await;
    refused.failed(255, &["REMOTE HOST IDENTIFICATION HAS CHANGED"]);
    guest
        .place
        .double
        .edit(OBJECT, |demo| demo["status"]["ssh"] = other.pin());
    let key = other.path("user").display().to_string();
    let ran = guest.ssh(&["-i", &key, "demo", "--", "true"]).await.well();
    assert_eq!(ran.err, "");
    // no pin at all: never taken on trust
    guest.place.double.edit(OBJECT, |demo| {
        demo["status"]["ssh"] = serde_json::Value::Null
    });
    guest
        .ssh(&["demo", "--", "true"])
        .await
        .failed(255, &["no pinned host key"]);
    guest
        .place
        .double
        .edit(OBJECT, |demo| demo["status"]["ssh"] = pin);
    assert!(!guest.place.path(".ssh").exists());
    guest
        .ssh(&["--accept-new-host-key", "demo", "--", "true"])
        .await;
    let asked = guest.place.double.asked();
    assert!(
        asked
            .iter()
            .any(|a| a.target.ends_with("/ssh?mode=tunnel&acceptNewHostKey=true"))
    );
}

#[tokio::test]
async fn p_01_a_dot_in_a_name_is_a_dot_in_a_name() {
    let guest = Guest::named("rhel9.arm64").await;
    let login = format!("{}@rhel9.arm64", whoami());
    guest.ssh(&[&login, "-n", "t1", "--", "true"]).await.well();
    let file = guest.place.path("f");
    std::fs::write(&file, "dots").unwrap();
    let mut command = guest.command(PLUGIN);
    let there = format!("{login}:{}", guest.place.path("g").display());
    command.args(["cp", "-q", "-i", &guest.key(), "f", &there]);
    Ran::of(command).await.well();
    assert_eq!(
        std::fs::read_to_string(guest.place.path("g")).unwrap(),
        "dots"
    );
    let mut command = guest.command(PLUGIN);
    command.args(["ssh-config", "rhel9.arm64"]);
    assert!(
        Ran::of(command)
            .await
            .well()
            .out
            .starts_with("Host rhel9.arm64.t1.ws\n")
    );
}

#[tokio::test]
async fn names_that_a_shell_would_read_are_quoted() {
    let guest = Guest::new().await;
    let awkward = guest.place.path("it's $HOME & 100% \"mine\"");
    std::fs::rename(guest.place.path("config"), &awkward).unwrap();
    let awkward = awkward.display().to_string();
    guest
        .ssh(&["--kubeconfig", &awkward, "demo", "--", "true"])
        .await
        .well();
    let mut command = guest.command(PLUGIN);
    command
        .args(["ssh", "-i", &guest.key(), "demo", "--", "true"])
        .env("KUBECONFIG", format!("/nowhere:{awkward}"));
    Ran::of(command).await.well();
    // the token goes on where nobody reads it
    guest
        .place
        .double
        .change(|world| world.token = Some("typed".into()));
    guest
        .ssh(&[
            "--kubeconfig",
            &awkward,
            "--token",
            "typed",
            "demo",
            "--",
            "true",
        ])
        .await
        .well();
}

#[tokio::test]
async fn ports_are_forwarded_by_ssh_itself() {
    let guest = Guest::new().await;
    let local = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let forward = format!("{local}:{}", guest.sshd.address);
    let mut command = guest.command(PLUGIN);
    command.args(["ssh", "-i", &guest.key(), "-N", "-L", &forward, "demo"]);
    let mut child = command.spawn().unwrap();
    let banner = async {
        loop {
            let Ok(mut connection) = TcpStream::connect(local).await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let mut banner = [0; 7];
            connection.read_exact(&mut banner).await.unwrap();
            return banner;
        }
    };
    let banner = tokio::time::timeout(Duration::from_secs(20), banner)
        .await
        .unwrap();
    assert_eq!(&banner, b"SSH-2.0");
    // killed, it leaves nothing behind
    child.kill().await.unwrap();
    guest.place.double.streams(0).await;
}

#[tokio::test]
async fn another_port_of_the_guest_is_a_port_forward() {
    let guest = Guest::new().await;
    guest
        .ssh(&["-p", "2222", "demo", "--", "true"])
        .await
        .well();
    let asked = guest.place.double.asked();
    assert!(
        asked
            .iter()
            .any(|a| a.target.ends_with("/demo/portforward/2222")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn over_a_jump_host_the_pin_is_checked_too() {
    let guest = Guest::new().await;
    // the jump host is the same sshd, which ssh reaches by a configuration of the user's
    let config = guest.place.path("jump");
    let text = format!(
        "Host bastion\n  HostName 127.0.0.1\n  Port {}\n  User {}\n  IdentityFile {}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
        guest.sshd.address.port(),
        whoami(),
        guest.key()
    );
    std::fs::write(&config, text).unwrap();
    let port = guest.sshd.address.port().to_string();
    let jump = |pinned| {
        guest.place.double.edit(OBJECT, |demo| {
            demo["status"]["address"] = "127.0.0.1".into();
            demo["status"]["ssh"] = pinned;
        });
        // ssh reads -F for the jump host as well
        let shim = guest.place.path("ssh");
        crate::place::script(
            &shim,
            &format!(
                "#!/bin/sh\nexec {} -F {} \"$@\"\n",
                guest.programs.program("ssh").display(),
                config.display()
            ),
        );
        let mut command = guest.command(PLUGIN);
        let path = format!("{}:/usr/bin:/bin", guest.place.home.path().display());
        command.env("PATH", path).args([
            "ssh",
            "-i",
            &guest.key(),
            "-J",
            "bastion",
            "-p",
            &port,
            "demo",
            "--",
            "echo over",
        ]);
        command
    };
    let ran = Ran::of(jump(guest.sshd.pin())).await.well();
    assert_eq!(ran.out, "over\n");
    let asked = guest.place.double.asked();
    assert!(
        !asked.iter().any(|a| a.target.contains("tunnel")),
        "{asked:?}"
    );
    let other = Sshd::start().await;
    Ran::of(jump(other.pin()))
        .await
        .failed(255, &["HOST IDENTIFICATION HAS CHANGED"]);
}

/// As much as each of the cases below copies.
const SIZE: usize = 24 << 20;

fn random(file: &Path) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = vec![0; SIZE];
    std::fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    std::fs::write(file, &bytes).unwrap();
    bytes
}

#[tokio::test]
async fn p_06_copies_arrive_whole_and_a_cut_one_is_an_error() {
    let guest = Guest::new().await;
    let (here, there, back) = (
        guest.place.path("here"),
        guest.place.path("there"),
        guest.place.path("back"),
    );
    let bytes = random(&here);
    let cp = |from: &str, to: &str, more: &[&str]| {
        let mut command = guest.command(PLUGIN);
        command
            .args(["cp", "-q", "-i", &guest.key()])
            .args(more)
            .args([from, to]);
        command
    };
    let remote = |path: &Path| format!("demo:{}", path.display());
    for protocol in [&[][..], &["-O"]] {
        Ran::of(cp("here", &remote(&there), protocol)).await.well();
        assert!(std::fs::read(&there).unwrap() == bytes);
        Ran::of(cp(&remote(&there), "back", protocol)).await.well();
        assert!(std::fs::read(&back).unwrap() == bytes);
        std::fs::remove_file(&there).unwrap();
        std::fs::remove_file(&back).unwrap();
    }
    std::fs::create_dir_all(guest.place.path("dir/sub")).unwrap();
    std::fs::write(guest.place.path("dir/sub/file"), "x").unwrap();
    Ran::of(cp("dir", &remote(&guest.place.path("copy")), &["-r"]))
        .await
        .well();
    assert_eq!(
        std::fs::read_to_string(guest.place.path("copy/sub/file")).unwrap(),
        "x"
    );

    // cut at about the half
    let cutting = crate::cut::Cut::after(guest.sshd.address, SIZE / 2).await;
    guest
        .place
        .double
        .script("demo/ssh", Script::Tunnel(cutting.address, true));
    let ran = Ran::of(cp("here", &remote(&there), &[])).await;
    assert!(
        !matches!(ran.code, Some(0) | None) && !ran.err.is_empty(),
        "{ran:?}"
    );
    assert!(std::fs::metadata(&there).unwrap().len() < SIZE as u64);
}

#[tokio::test]
async fn p_13_plain_openssh_uses_the_printed_stanza() {
    let guest = Guest::new().await;
    let config = guest.ssh_config().await;
    let with = |program: &str, args: &[&str]| {
        let mut command = guest.command(program);
        command.args(["-F", &config]).args(args);
        command
    };
    let ran = Ran::of(with("ssh", &["demo.t1.ws", "exit 5"])).await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(5), "", "")
    );
    let here = guest.place.path("here");
    let bytes = random(&here);
    let there = guest.place.path("there");
    for old in [&["-q"][..], &["-q", "-O"]] {
        let remote = format!("demo.t1.ws:{}", there.display());
        Ran::of(with("scp", &[old, &["here", &remote]].concat()))
            .await
            .well();
        assert!(std::fs::read(&there).unwrap() == bytes);
        std::fs::remove_file(&there).unwrap();
    }
    let many = (0..50).map(|n| {
        let ran = Ran::of(with("ssh", &["demo.t1.ws", &format!("echo {n}")]));
        async move { (n, ran.await) }
    });
    for (n, ran) in futures::future::join_all(many).await {
        assert_eq!(ran.well().out, format!("{n}\n"));
    }
    guest.place.double.streams(0).await;
}

#[tokio::test]
async fn p_13_rsync_runs_over_the_plugin_and_over_the_stanza() {
    let guest = Guest::new().await;
    let config = guest.ssh_config().await;
    std::fs::create_dir(guest.place.path("dir")).unwrap();
    let bytes = random(&guest.place.path("dir/file"));
    let shells = [
        (format!("ssh -F {config}"), "demo.t1.ws"),
        (format!("{PLUGIN} ssh -n t1 -i {}", guest.key()), "demo"),
    ];
    for (shell, host) in shells {
        let there = guest.place.path("there");
        let mut command = guest.command("rsync");
        let remote = format!("{host}:{}", there.display());
        let rsync = which("rsync", &guest);
        command.args(["-a", "-e", &shell, "--rsync-path", &rsync, "dir/", &remote]);
        Ran::of(command).await.well();
        assert!(std::fs::read(there.join("file")).unwrap() == bytes);
        std::fs::remove_dir_all(&there).unwrap();
    }
}

/// Where the guest, which is this machine, has the program.
fn which(name: &str, guest: &Guest) -> String {
    let mut command = guest.command("sh");
    let output = command
        .as_std_mut()
        .args(["-c", &format!("command -v {name}")])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn p_13_a_port_forward_is_a_proxy_command_too() {
    let guest = Guest::new().await;
    let known = guest.place.path("known");
    let mut command = guest.command(PLUGIN);
    command.args(["known-hosts", "demo"]);
    let lines = Ran::of(command).await.well().out;
    let alias = lines.split(' ').next().unwrap();
    std::fs::write(&known, &lines).unwrap();
    let mut command = guest.command("ssh");
    let proxy = format!("ProxyCommand={PLUGIN} port-forward --stdio -n t1 demo %p");
    let known = format!("UserKnownHostsFile={}", known.display());
    command
        .args([
            "-F",
            "none",
            "-o",
            &proxy,
            "-o",
            &known,
            "-o",
            &format!("HostKeyAlias={alias}"),
        ])
        .args([
            "-o",
            "StrictHostKeyChecking=yes",
            "-i",
            &guest.key(),
            "demo.ws",
            "echo hi",
        ]);
    let ran = Ran::of(command).await.well();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("hi\n", ""));
    guest.place.double.streams(0).await;
}
