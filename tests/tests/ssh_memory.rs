//! A private key that was used is in this process's memory no more: not on its heap, not on a stack,
//! not in a buffer of the TLS that it came through. The program wipes what it frees, as here.

use std::{alloc::System, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use apiservice::v1alpha1::HostKey;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubeworkspaces_tests::{
    memory::{Needle, search},
    sshd::Sshd,
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::TaskTracker;
use workspaces_apiserver::streams::ssh::{
    first,
    guest::{Guest, Screen},
    hello::Hello,
    key::UserKey,
};
use zeroize::Zeroizing;
use zeroizing_alloc::ZeroAlloc;

#[global_allocator]
static WIPING: ZeroAlloc<System> = ZeroAlloc(System);

/// What is looked for: the text as it was sent, and the numbers in it as they may lie in memory.
fn needles(pem: &str) -> Result<Vec<Needle>> {
    let lines: Vec<&str> = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let mut needles: Vec<_> = lines
        .iter()
        // The first line of an OpenSSH key says nothing that is secret.
        .skip(1)
        .filter(|line| line.len() >= 32)
        .map(|line| Needle::new(&line.as_bytes()[8..32]))
        .collect();
    let blob = Zeroizing::new(STANDARD.decode(Zeroizing::new(lines.concat()).as_bytes())?);
    for secret in secrets(&blob)? {
        let backwards = Zeroizing::new(secret.iter().rev().copied().collect::<Vec<_>>());
        needles.extend([Needle::new(secret), Needle::new(&backwards)]);
    }
    Ok(needles)
}

/// The private numbers of an unencrypted OpenSSH key (PROTOCOL.key): long strings behind the two
/// equal check numbers, without those that are public.
fn secrets(blob: &[u8]) -> Result<Vec<&[u8]>> {
    let check = blob
        .windows(8)
        .position(|w| w[..4] == w[4..] && w[..4] != [0; 4])
        .context("no check numbers")?;
    let mut rest = &blob[check + 8..];
    let mut found = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((string, tail)) = tail.split_at_checked(length) else {
            break;
        };
        let number = match string {
            // An ed25519 key is its seed and then its public half.
            [seed @ .., _] if length == 64 => &seed[..32],
            [0, number @ ..] => number,
            number => number,
        };
        let public = blob[..check]
            .windows(number.len().max(1))
            .any(|w| w == number);
        if number.len() >= 24 && !public {
            found.push(&number[..24]);
        }
        rest = tail;
    }
    ensure!(!found.is_empty(), "no private numbers");
    Ok(found)
}

async fn tls() -> Result<(
    impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
)> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["us".to_owned()])?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone())?;
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (ours, theirs) = duplex(64 * 1024);
    let name = ServerName::try_from("us")?;
    let accepting = TlsAcceptor::from(Arc::new(server)).accept(ours);
    let connecting = TlsConnector::from(Arc::new(client)).connect(name, theirs);
    let (ours, theirs) = tokio::try_join!(accepting, connecting)?;
    Ok((ours, theirs))
}

/// A masked text frame.
fn frame(payload: &[u8]) -> Zeroizing<Vec<u8>> {
    let mask = [0x11, 0x22, 0x33, 0x44];
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut frame = Zeroizing::new(Vec::with_capacity(payload.len() + 8));
    frame.extend([0x81, 0x80 | 126]);
    frame.extend(length.to_be_bytes());
    frame.extend(mask);
    let masked = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, key)| byte ^ key);
    frame.extend(masked);
    frame
}

fn message(user: &str, pem: &str) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(2 * pem.len() + 256));
    text.extend_from_slice(br#"{"type":"ssh","user":""#);
    text.extend_from_slice(user.as_bytes());
    text.extend_from_slice(br#"","privateKey":""#);
    for byte in pem.bytes() {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            byte => text.push(byte),
        }
    }
    text.extend_from_slice(br#""}"#);
    text
}

async fn leaves_no_trace(sshd: &Sshd, arguments: &[&str]) -> Result<()> {
    let pem = Zeroizing::new(sshd.user_key(arguments).await?);
    let needles = needles(&pem)?;
    let message = message(&sshd.user(), &pem);
    drop(pem);
    let (mut ours, mut theirs) = tls().await?;
    theirs.write_all(&frame(&message)).await?;
    drop(message);

    let hello = Hello::read(first::message(&mut ours).await?)?;
    let before = search(&needles)?;
    ensure!(
        before.iter().any(|n| *n > 0),
        "the search finds nothing: {before:?}"
    );
    let (user, key) = UserKey::read(hello).await?;
    let held = search(&needles)?;
    ensure!(held.iter().any(|n| *n > 0), "the key is nowhere: {held:?}");

    let pin = HostKey::of_blob(&STANDARD.decode(sshd.host_key("ed25519")?)?).context("no key")?;
    let io = TcpStream::connect(sshd.address()).await?;
    let guest = Guest::meet(io, &[pin]).await?;
    let tasks = TaskTracker::new();
    let mut shell = guest.log_in(&user, key, &Screen::default(), &tasks).await?;
    shell.io.write_all(b"echo in-$((40+2))\r").await?;
    let mut printed = Vec::new();
    while !printed.windows(5).any(|window| window == b"in-42") {
        printed.push(shell.io.read_u8().await?);
    }
    let after = search(&needles)?;
    ensure!(
        after.iter().all(|n| *n == 0),
        "{arguments:?}: {after:?}, before {before:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_gone_from_memory_once_its_user_is_in() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sshd = Sshd::start(&["ed25519"], "").await?;
    for arguments in [
        &["-t", "ed25519"][..],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "2048"],
    ] {
        leaves_no_trace(&sshd, arguments).await?;
    }
    Ok(())
}
