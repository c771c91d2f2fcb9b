//! The process at the near end: one client, or many that say nothing.
//!
//! It says `ready` when its streams are open, works after a line on its input, says in JSON what came of it, and ends
//! with its input. So whoever starts it can look at the relay before and after.

use std::{io::Write as _, path::PathBuf, sync::Arc, time::Duration, time::Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, Stdin},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, TlsStream};

use crate::{
    job::{Job, RECEIPT},
    link::{self, Link},
    noise::Noise,
    tls,
    upstream::{compare, pour},
};

/// How many streams are opened at a time.
const AT_ONCE: usize = 16;
/// A keystroke follows another after this time.
const BETWEEN_KEYS: Duration = Duration::from_millis(2);
/// The first keystrokes are not counted: caches are cold.
const WARM_UP: usize = 100;

/// Where a stream begins.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Port on 127.0.0.1.
    #[arg(long)]
    pub port: u16,
    /// Name in its certificate.
    #[arg(long)]
    pub name: String,
    /// File of the authority that signed it.
    #[arg(long)]
    pub authority: PathBuf,
    /// File of our certificate, if one is shown.
    #[arg(long, requires = "key")]
    pub cert: Option<PathBuf>,
    /// File of its key.
    #[arg(long)]
    pub key: Option<PathBuf>,
    /// User whom the front proxy names.
    #[arg(long)]
    pub user: Option<String>,
    /// Path of the stream.
    #[arg(long)]
    pub path: String,
}

impl Target {
    /// As arguments of a process.
    pub fn args(&self) -> Vec<String> {
        let Self {
            port,
            name,
            authority,
            cert,
            key,
            user,
            path,
        } = self;
        let mut args = vec![
            format!("--port={port}"),
            format!("--name={name}"),
            format!("--authority={}", authority.display()),
            format!("--path={path}"),
        ];
        args.extend(cert.iter().map(|file| format!("--cert={}", file.display())));
        args.extend(key.iter().map(|file| format!("--key={}", file.display())));
        args.extend(user.iter().map(|user| format!("--user={user}")));
        args
    }
}

/// What to do with it.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Work {
    /// Bytes to the upstream.
    Up {
        /// Size of each message.
        size: u32,
        /// How many bytes in all.
        bytes: u64,
    },
    /// Bytes from the upstream.
    Down {
        /// Size of each message.
        size: u32,
        /// How many bytes in all.
        bytes: u64,
    },
    /// Single bytes there and back.
    Keys {
        /// How many.
        count: usize,
    },
    /// Streams on which nothing passes.
    Hold {
        /// How many.
        streams: usize,
    },
    /// Streams one after the other.
    Open {
        /// How many.
        count: usize,
    },
}

impl Work {
    /// As arguments of a process.
    pub fn args(self) -> Vec<String> {
        let words = match self {
            Self::Up { size, bytes } => format!("up {size} {bytes}"),
            Self::Down { size, bytes } => format!("down {size} {bytes}"),
            Self::Keys { count } => format!("keys {count}"),
            Self::Hold { streams } => format!("hold {streams}"),
            Self::Open { count } => format!("open {count}"),
        };
        words.split(' ').map(str::to_owned).collect()
    }
}

/// Does it.
///
/// # Errors
/// When a stream does not open, or carries something wrong.
pub async fn run(target: &Target, work: Work) -> Result<()> {
    crate::raise_files();
    let identity = target.cert.as_deref().zip(target.key.as_deref());
    let tls = TlsConnector::from(Arc::new(tls::client(&target.authority, identity)?));
    let near = Near { target, tls };
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    match work {
        Work::Up { size, bytes } => near.transfer(&mut told, size, bytes, true).await,
        Work::Down { size, bytes } => near.transfer(&mut told, size, bytes, false).await,
        Work::Keys { count } => near.keys(&mut told, count).await,
        Work::Hold { streams } => near.hold(&mut told, streams).await,
        Work::Open { count } => near.open_one_by_one(&mut told, count).await,
    }
}

struct Near<'a> {
    target: &'a Target,
    tls: TlsConnector,
}

impl Near<'_> {
    async fn transfer(
        &self,
        told: &mut Lines<BufReader<Stdin>>,
        size: u32,
        bytes: u64,
        up: bool,
    ) -> Result<()> {
        let (noise, mut link) = (Noise::default(), self.open().await?);
        say("ready")?;
        told.next_line().await?;
        let start = Instant::now();
        if up {
            link.send(&Job::Take { bytes }.request()).await?;
            pour(&mut link, &noise, size, bytes).await?;
            let receipt = link.read(RECEIPT.len()).await?;
            ensure!(receipt == RECEIPT, "the upstream got other bytes");
        } else {
            link.send(&Job::Pour { size, bytes }.request()).await?;
            link.flush().await?;
            compare(&mut link, &noise, bytes).await?;
        }
        report(&json!({ "seconds": start.elapsed().as_secs_f64() }))?;
        told.next_line().await?;
        link.close().await
    }

    async fn keys(&self, told: &mut Lines<BufReader<Stdin>>, count: usize) -> Result<()> {
        let mut link = self.open().await?;
        link.send(&Job::Echo.request()).await?;
        link.flush().await?;
        say("ready")?;
        told.next_line().await?;
        let mut took = Vec::with_capacity(count);
        for turn in 0..count + WARM_UP {
            tokio::time::sleep(BETWEEN_KEYS).await;
            let key = [turn as u8];
            let start = Instant::now();
            link.send(&key).await?;
            link.flush().await?;
            ensure!(link.read(1).await? == key, "another key came back");
            took.push(start.elapsed().as_secs_f64());
        }
        report(&json!({ "seconds": took.split_off(WARM_UP) }))?;
        told.next_line().await?;
        link.close().await
    }

    async fn hold(&self, told: &mut Lines<BufReader<Stdin>>, streams: usize) -> Result<()> {
        let opening = stream::iter(0..streams).map(|_| async {
            let mut link = self.open().await?;
            link.send(&Job::Quiet.request()).await?;
            link.flush().await?;
            link.rest();
            anyhow::Ok(link)
        });
        let links: Vec<Link> = opening.buffer_unordered(AT_ONCE).try_collect().await?;
        say("ready")?;
        let ended = links.into_iter().map(|mut link| async move {
            // Pings are answered on the way.
            while let Some(_never) = link.receive().await? {}
            anyhow::Ok(())
        });
        let ended = ended.collect::<stream::FuturesUnordered<_>>();
        let ended = ended.try_for_each(|()| async { anyhow::bail!("a stream ended by itself") });
        tokio::select! {
            ended = ended => ended,
            _ = told.next_line() => Ok(()),
        }
    }

    async fn open_one_by_one(
        &self,
        told: &mut Lines<BufReader<Stdin>>,
        count: usize,
    ) -> Result<()> {
        say("ready")?;
        told.next_line().await?;
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let tls = self.connect().await?;
            let start = Instant::now();
            let mut link = self.upgrade(tls).await?;
            took.push(start.elapsed().as_secs_f64());
            link.send(&Job::Quiet.request()).await?;
            link.close().await?;
        }
        report(&json!({ "seconds": took }))?;
        told.next_line().await?;
        Ok(())
    }

    async fn open(&self) -> Result<Link> {
        let tls = self.connect().await?;
        self.upgrade(tls).await
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(("127.0.0.1", self.target.port)).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(self.target.name.clone())?;
        Ok(TlsStream::Client(self.tls.connect(name, tcp).await?))
    }

    async fn upgrade(&self, mut io: TlsStream<TcpStream>) -> Result<Link> {
        let Target {
            name, path, user, ..
        } = self.target;
        let user = user.as_ref();
        let user = user.map_or(String::new(), |user| format!("X-Remote-User: {user}\r\n"));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: plain.kubevirt.io\r\n{user}\r\n"
        );
        io.write_all(request.as_bytes()).await?;
        io.flush().await?;
        let (head, early) = link::head(&mut io).await?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(
            status.contains(" 101 "),
            "{status}: {}",
            String::from_utf8_lossy(&early)
        );
        Ok(Link::new(io, &early))
    }
}

fn report(value: &Value) -> Result<()> {
    say(&value.to_string())
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    std::io::stdout()
        .flush()
        .context("nobody reads what a client says")
}
