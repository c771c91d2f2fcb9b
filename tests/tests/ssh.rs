//! Terminals over SSH against a real OpenSSH server: host keys and user keys of all types, sizes,
//! exit statuses, signals, banners, refusals, servers that stall, clients that are slow.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use apiservice::v1alpha1::{HostKey, HostKeyAlgorithm};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubeworkspaces_tests::sshd::Sshd;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::task::TaskTracker;
use workspaces_apiserver::streams::{
    ssh::{
        guest::{Guest, Screen, Shown, exchange},
        hello::Hello,
        key::{BadKey, UserKey},
        shell::Shell,
        trouble::Trouble,
    },
    wire::{Exit, Size},
};
use zeroize::Zeroizing;

const PATIENCE: Duration = Duration::from_secs(60);
const TYPES: [(&str, HostKeyAlgorithm); 3] = [
    ("ed25519", HostKeyAlgorithm::Ed25519),
    ("ecdsa", HostKeyAlgorithm::EcdsaP256),
    ("rsa", HostKeyAlgorithm::Rsa),
];

/// A terminal and what it has printed.
struct Session {
    shell: Shell,
    printed: String,
    tasks: TaskTracker,
}

fn pinned(sshd: &Sshd, kind: &str) -> Result<HostKey> {
    let blob = STANDARD.decode(sshd.host_key(kind)?)?;
    HostKey::of_blob(&blob).context("no host key")
}

fn hello(user: &str, key: &str) -> Result<Hello> {
    let text = json!({"type": "ssh", "user": user, "privateKey": key}).to_string();
    Ok(Hello::read(Zeroizing::new(text.into_bytes()))?)
}

async fn meet(sshd: &Sshd, kind: &str) -> Result<Guest> {
    let io = TcpStream::connect(sshd.address()).await?;
    Ok(Guest::meet(io, &[pinned(sshd, kind)?]).await?)
}

async fn log_in(guest: Guest, user: &str, key: &str, screen: &Screen) -> Result<Session> {
    let (user, key) = UserKey::read(hello(user, key)?).await?;
    let tasks = TaskTracker::new();
    let shell = guest.log_in(&user, key, screen, &tasks).await?;
    Ok(Session {
        shell,
        printed: String::new(),
        tasks,
    })
}

async fn open(sshd: &Sshd, key: &str) -> Result<Session> {
    let guest = meet(sshd, "ed25519").await?;
    log_in(guest, &sshd.user(), key, &Screen::default()).await
}

impl Session {
    async fn type_(&mut self, text: &str) -> Result<()> {
        Ok(self.shell.io.write_all(text.as_bytes()).await?)
    }

    /// Reads until this was printed, and not merely echoed.
    async fn expect(&mut self, wanted: &str) -> Result<()> {
        let reading = async {
            let mut buffer = [0; 4096];
            while !self.printed.contains(wanted) {
                let read = self.shell.io.read(&mut buffer).await?;
                ensure!(read > 0, "the shell ended: {:?}", self.printed);
                self.printed
                    .push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
            Ok(())
        };
        let read = timeout(PATIENCE, reading).await;
        read.with_context(|| format!("{wanted:?} is not in {:?}", self.printed))?
    }

    /// Reads to the end; how it ended.
    async fn end(mut self) -> Result<Option<Exit>> {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.shell.io.read_to_end(&mut rest)).await??;
        self.tasks.close();
        timeout(PATIENCE, self.tasks.wait()).await?;
        Ok(self.shell.exit.await.ok())
    }
}

#[tokio::test]
async fn a_user_logs_in_whatever_type_the_host_key_has() -> Result<()> {
    let sshd = Sshd::start(&["ed25519", "ecdsa", "rsa"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    for (kind, _) in TYPES {
        let guest = meet(&sshd, kind).await?;
        let mut session = log_in(guest, &sshd.user(), &key, &Screen::default()).await?;
        session.type_("echo in-$((40+2)); exit 0\r").await?;
        session.expect("in-42").await?;
        assert_eq!(session.end().await?, Some(Exit::Code(0)), "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_user_logs_in_with_every_type_and_form_of_key() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "MaxAuthTries 2").await?;
    for arguments in [
        &["-t", "ed25519"][..],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "ecdsa", "-m", "PKCS8"],
        &["-t", "ecdsa", "-m", "PEM"],
        &["-t", "rsa", "-b", "3072"],
        &["-t", "rsa", "-b", "2048", "-m", "PEM"],
        &["-t", "rsa", "-b", "2048", "-m", "PKCS8"],
    ] {
        let key = sshd.user_key(arguments).await?;
        let mut session = open(&sshd, &key)
            .await
            .with_context(|| format!("{arguments:?}"))?;
        session.type_("exit 3\r").await?;
        assert_eq!(session.end().await?, Some(Exit::Code(3)), "{arguments:?}");
    }
    // Files come with the line ends of the system that they were edited on.
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let session = open(&sshd, &key.replace('\n', "\r\n")).await?;
    drop(session);
    Ok(())
}

#[tokio::test]
async fn s_18_the_guest_sees_the_terminals_size_and_every_new_one() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let screen = Screen {
        term: Some("vt100".into()),
        size: Some(Size {
            cols: 132,
            rows: 43,
        }),
    };
    let guest = meet(&sshd, "ed25519").await?;
    let mut session = log_in(guest, &sshd.user(), &key, &screen).await?;
    session.type_("stty size; echo term=$TERM\r").await?;
    session.expect("43 132\r").await?;
    session.expect("term=vt100").await?;
    session.shell.sizes.send_replace(Some(Size {
        cols: 200,
        rows: 50,
    }));
    // A shell that traps the signal proves that it was told, without being asked.
    session
        .type_("while [ \"$(stty size)\" != '50 200' ]; do :; done; stty size\r")
        .await?;
    session.expect("50 200\r").await?;
    Ok(())
}

#[tokio::test]
async fn statuses_and_signals_are_told() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut session = open(&sshd, &key).await?;
    session.type_("exit 200\r").await?;
    assert_eq!(session.end().await?, Some(Exit::Code(200)));
    let mut session = open(&sshd, &key).await?;
    session.type_("kill -KILL $$\r").await?;
    let exit = session.end().await?;
    assert!(
        matches!(&exit, Some(Exit::Signal { name, core_dumped: false, .. }) if name == "KILL"),
        "{exit:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_banner_is_shown_before_the_shell() -> Result<()> {
    let banner = tempfile::NamedTempFile::new()?;
    std::fs::write(banner.path(), "Authorized use only.\nSecond line.\n")?;
    let mut readable = std::fs::metadata(banner.path())?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut readable, 0o644);
    std::fs::set_permissions(banner.path(), readable)?;
    let options = format!("Banner {}", banner.path().display());
    let sshd = Sshd::start(&["ed25519"], &options).await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut session = open(&sshd, &key).await?;
    session
        .expect("Authorized use only.\r\nSecond line.\r\n")
        .await?;
    assert!(
        session.printed.starts_with("Authorized"),
        "{:?}",
        session.printed
    );
    Ok(())
}

async fn refused(sshd: &Sshd, user: &str, key: &str) -> Result<Trouble> {
    let guest = meet(sshd, "ed25519").await?;
    let (user, key) = UserKey::read(hello(user, key)?).await?;
    let entered = guest
        .log_in(&user, key, &Screen::default(), &TaskTracker::new())
        .await;
    match entered {
        Ok(_) => anyhow::bail!("{user} was let in"),
        Err(trouble) => Ok(trouble),
    }
}

#[tokio::test]
async fn a_refusal_says_what_to_do() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let trouble = refused(&sshd, "nobody-here", &key).await?;
    assert_eq!(trouble.reason(), "AuthenticationFailed");
    let text = trouble.to_string();
    assert!(
        text.contains("nobody-here") && text.contains("SHA256:"),
        "{text}"
    );

    let other = Sshd::start(&["ed25519"], "").await?;
    let stranger = other.user_key(&["-t", "rsa", "-b", "2048"]).await?;
    let trouble = refused(&sshd, &sshd.user(), &stranger).await?;
    assert_eq!(trouble.reason(), "AuthenticationFailed");
    assert!(trouble.to_string().contains("authorized_keys"), "{trouble}");

    sshd.restrict("no-pty")?;
    let trouble = refused(&sshd, &sshd.user(), &key).await?;
    assert_eq!(trouble, Trouble::NoTerminal);

    let two = Sshd::start(&["ed25519"], "AuthenticationMethods publickey,publickey").await?;
    let key = two.user_key(&["-t", "ed25519"]).await?;
    let trouble = refused(&two, &two.user(), &key).await?;
    assert_eq!(trouble.reason(), "MoreAuthenticationWanted");
    Ok(())
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_refused_in_words() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let plain = sshd.user_key(&["-t", "ed25519"]).await?;
    let cut = &plain[..plain.len() / 2];
    let locked = sshd.user_key(&["-t", "ed25519", "-N", "secret"]).await?;
    let locked_pem = sshd
        .user_key(&["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret"])
        .await?;
    let locked_pkcs8 = sshd
        .user_key(&["-t", "ecdsa", "-m", "PKCS8", "-N", "secret"])
        .await?;
    let public = std::fs::read_to_string(sshd.dir().join("authorized_keys"))?;
    for (key, expected) in [
        (locked.as_str(), BadKey::Encrypted),
        (&locked_pem, BadKey::Encrypted),
        (&locked_pkcs8, BadKey::Encrypted),
        (&public, BadKey::Public),
        (cut, BadKey::Unreadable),
        ("hunter2", BadKey::Unreadable),
    ] {
        let read = UserKey::read(hello("u", key)?).await;
        assert_eq!(read.map(drop), Err(expected), "{key}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_with_another_key_gets_no_login() -> Result<()> {
    let mut sshd = Sshd::start(&["ed25519", "rsa"], "").await?;
    let pin = pinned(&sshd, "ed25519")?;
    sshd.renew("ed25519").await?;
    let meet = async |sshd: &Sshd| -> Result<Option<Trouble>> {
        let io = TcpStream::connect(sshd.address()).await?;
        Ok(Guest::meet(io, std::slice::from_ref(&pin)).await.err())
    };
    assert_eq!(meet(&sshd).await?, Some(Trouble::HostKey));
    sshd.remove("ed25519").await?;
    assert_eq!(
        meet(&sshd).await?,
        Some(Trouble::HostKey),
        "only other types"
    );
    assert!(!sshd.log().contains("Accepted"), "{}", sshd.log());
    Ok(())
}

#[tokio::test]
async fn an_exchange_shows_the_key_that_it_asked_for() -> Result<()> {
    let sshd = Sshd::start(&["ed25519", "ecdsa", "rsa"], "").await?;
    for (kind, algorithm) in TYPES {
        let io = TcpStream::connect(sshd.address()).await?;
        let shown = exchange(io, &[algorithm]).await?;
        assert_eq!(shown, Shown::Key(pinned(&sshd, kind)?));
    }
    let io = TcpStream::connect(sshd.address()).await?;
    let Shown::NoneOf(offered) = exchange(io, &[HostKeyAlgorithm::EcdsaP521]).await? else {
        anyhow::bail!("a key that it does not have");
    };
    assert!(offered.contains(&"ssh-ed25519".to_owned()), "{offered:?}");
    Ok(())
}

#[tokio::test]
async fn a_guest_that_shares_no_cipher_is_told_apart() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "Ciphers aes128-cbc").await?;
    let io = TcpStream::connect(sshd.address()).await?;
    let trouble = exchange(io, &[HostKeyAlgorithm::Ed25519])
        .await
        .unwrap_err();
    assert!(trouble.to_string().contains("aes128-cbc"), "{trouble}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_stalls_is_left_after_ten_seconds() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let io = TcpStream::connect(listener.local_addr()?).await?;
    let (mut silent, _) = listener.accept().await?;
    // One says nothing at all, the other stops after its greeting.
    let (ours, mut theirs) = duplex(4096);
    theirs.write_all(b"SSH-2.0-slow\r\n").await?;
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(
        exchange(io, &[HostKeyAlgorithm::Ed25519]),
        exchange(ours, &[HostKeyAlgorithm::Rsa]),
    );
    let stalled = Trouble::Stalled(Duration::from_secs(10));
    assert_eq!((first, second), (Err(stalled.clone()), Err(stalled)));
    assert!(begun.elapsed() < Duration::from_secs(15));
    // They were really left: their sides read our greeting, and then an end.
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, silent.read_to_end(&mut heard)).await?;
    assert!(heard.starts_with(b"SSH-2.0-kubeworkspaces\r\n"));
    let _ = timeout(PATIENCE, theirs.read_to_end(&mut heard)).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_no_ssh_server_is_named() -> Result<()> {
    let (ours, mut theirs) = duplex(4096);
    theirs
        .write_all(format!("HTTP/1.1 400 Bad Request\r\nx: {}", "y".repeat(2_000)).as_bytes())
        .await?;
    let shown = exchange(ours, &[HostKeyAlgorithm::Ed25519]).await;
    assert_eq!(shown, Err(Trouble::NotSsh));
    let (ours, theirs) = duplex(4096);
    drop(theirs);
    let shown = exchange(ours, &[HostKeyAlgorithm::Ed25519]).await;
    assert_eq!(shown, Err(Trouble::ClosedEarly));
    Ok(())
}

/// Counts what comes through a connection.
async fn counted(sshd: &Sshd) -> Result<(DuplexStream, Arc<std::sync::atomic::AtomicU64>)> {
    use std::sync::atomic::{AtomicU64, Ordering};
    let count = Arc::new(AtomicU64::new(0));
    let (ours, theirs) = duplex(16 * 1024);
    let (mut from_guest, mut to_guest) = TcpStream::connect(sshd.address()).await?.into_split();
    let (mut from_us, mut to_us) = tokio::io::split(theirs);
    tokio::spawn(async move { tokio::io::copy(&mut from_us, &mut to_guest).await });
    let counter = count.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from_guest.read(&mut buffer).await {
            counter.fetch_add(read as u64, Ordering::Relaxed);
            if to_us.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    });
    Ok((ours, count))
}

#[tokio::test]
async fn s_19_a_client_that_does_not_read_holds_the_guest_back_and_loses_nothing() -> Result<()> {
    const BYTES: usize = 8 << 20;
    const HELD: u64 = 512 * 1024;
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let (io, count) = counted(&sshd).await?;
    let guest = Guest::meet(io, &[pinned(&sshd, "ed25519")?]).await?;
    let mut session = log_in(guest, &sshd.user(), &key, &Screen::default()).await?;
    session
        .type_("stty -echo -onlcr; echo ready-$((1+1))\r")
        .await?;
    session.expect("ready-2").await?;
    session
        .type_(&format!("head -c {BYTES} /dev/zero | tr '\\0' x; exit 5\r"))
        .await?;
    // Until nothing more comes: the guest waits for us.
    let passed = || count.load(std::sync::atomic::Ordering::Relaxed);
    let mut before = u64::MAX;
    while passed() != before || before < 16 * 1024 {
        before = passed();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < HELD, "{before} bytes came although nobody read");
    let mut rest = Vec::new();
    timeout(PATIENCE, session.shell.io.read_to_end(&mut rest)).await??;
    let printed = rest.iter().filter(|byte| **byte == b'x').count();
    assert_eq!(printed, BYTES);
    assert_eq!(session.shell.exit.await.ok(), Some(Exit::Code(5)));
    Ok(())
}

#[tokio::test]
async fn s_19_a_long_paste_arrives_whole() -> Result<()> {
    const LINES: usize = 20_000;
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut session = open(&sshd, &key).await?;
    session
        .type_("stty -echo; echo ready-$((1+1)); wc -l | sed 's/^/counted /'\r")
        .await?;
    session.expect("ready-2").await?;
    let paste = "0123456789abcdef0123456789abcdef\r".repeat(LINES);
    let Session {
        shell,
        printed,
        tasks,
    } = session;
    let (read, mut write) = tokio::io::split(shell.io);
    let pasting = tokio::spawn(async move {
        write.write_all(paste.as_bytes()).await?;
        write.write_all(b"\x04").await?;
        Ok::<_, std::io::Error>(write)
    });
    let write = timeout(PATIENCE, pasting).await???;
    let shell = Shell {
        io: read.unsplit(write),
        ..shell
    };
    let mut session = Session {
        shell,
        printed,
        tasks,
    };
    session.expect(&format!("counted {LINES}\r")).await?;
    Ok(())
}

#[tokio::test]
async fn s_20_bytes_that_are_not_utf_8_pass() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut session = open(&sshd, &key).await?;
    session
        .type_("stty raw -echo; printf 'go\\377\\376'; head -c 4 | od -An -tx1; exit\r")
        .await?;
    let mut seen = Vec::new();
    let wanted = b"go\xff\xfe";
    while !seen.windows(4).any(|window| window == wanted) {
        let byte = timeout(PATIENCE, session.shell.io.read_u8()).await??;
        seen.push(byte);
    }
    session.shell.io.write_all(b"\x00\xff\xc3\x28").await?;
    session.expect("00 ff c3 28").await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_session_in_the_guest() -> Result<()> {
    let sshd = Sshd::start(&["ed25519"], "").await?;
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut session = open(&sshd, &key).await?;
    session.type_("echo ready-$((1+1))\r").await?;
    session.expect("ready-2").await?;
    let Session { shell, tasks, .. } = session;
    drop(shell);
    tasks.close();
    timeout(PATIENCE, tasks.wait()).await?;
    let gone = async {
        while !sshd.log().contains("Disconnected from user") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.context(sshd.log())
}
