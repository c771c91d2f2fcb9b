//! `kubectl workspace vnc`: the display, for a viewer on this machine. Entry point: [`vnc`].

mod screenshot;
mod viewer;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::cli;
use crate::close::{Way, explain};
use crate::cluster::Cluster;
use crate::say;
use crate::target::Target;
use crate::tunnel::{End, Wire, goodbye, relay};
use crate::upgrade::{Patience, Stream, open_when_ready};
use viewer::{Surroundings, Viewer};

const SUBRESOURCE: &str = "vnc";
/// Bytes as they are, by either name.
const PROTOCOLS: [&str; 2] = ["binary", "plain.kubevirt.io"];
/// A viewer that asks nothing of its user connects within seconds.
const VIEWER_TIME: Duration = Duration::from_secs(60);
/// How long a viewer may take to end when the display has.
const VIEWER_END: Duration = Duration::from_secs(3);

/// Shows the display, or takes a picture of it.
pub async fn vnc(cluster: &Cluster, options: cli::Vnc) -> anyhow::Result<u8> {
    let target = cluster.target(options.workspace.clone())?;
    if let Some(file) = &options.screenshot {
        return screenshot::screenshot(cluster, &target, file).await;
    }
    let display = Display {
        cluster,
        target: &target,
        takeover: options.takeover,
        patience: Patience::of(options.timeout),
    };
    let local = SocketAddr::new(options.address, options.port);
    if options.proxy_only {
        return display.proxy(local).await;
    }
    let viewer = viewer::choose(
        options.viewer.as_deref(),
        Surroundings {
            find: &|name: &Path| crate::which::find(name),
            macos: cfg!(target_os = "macos"),
            display: ["DISPLAY", "WAYLAND_DISPLAY"]
                .iter()
                .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())),
        },
    )?;
    display.view(local, &viewer).await
}

async fn listen(local: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let context = || format!("cannot listen on {local}: choose another --port or --address");
    let listener = TcpListener::bind(local).await.with_context(context)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

struct Display<'a> {
    cluster: &'a Cluster,
    target: &'a Target,
    takeover: bool,
    patience: Patience,
}

impl Display<'_> {
    async fn open(&self) -> anyhow::Result<Stream> {
        let takeover = if self.takeover { "?takeover=true" } else { "" };
        let path = format!("{}/{SUBRESOURCE}{takeover}", self.target.path());
        let (stream, _) = open_when_ready(self.cluster, &path, &PROTOCOLS, self.patience).await?;
        Ok(stream)
    }

    /// The display first: what the server refuses is told before a window opens.
    async fn view(&self, local: SocketAddr, viewer: &Viewer) -> anyhow::Result<u8> {
        let mut stream = self.open().await?;
        let (listener, bound) = listen(local).await?;
        let mut window = start(viewer, bound)?;
        let connection = match connected(&listener, &mut window, viewer).await {
            Ok(connection) => connection,
            Err(error) => {
                goodbye(&mut stream).await;
                return Err(error);
            }
        };
        // one viewer, one session: nobody else finds the port
        drop(listener);
        let end = carry(connection, stream).await;
        let code = self.verdict(&end);
        if code == 0
            && tokio::time::timeout(VIEWER_END, window.wait())
                .await
                .is_err()
        {
            // it shows that the connection has ended, and its user closes it
            say::note("The viewer is still open.");
        }
        Ok(code)
    }

    /// One viewer after the other, each with a session of its own, until a signal.
    async fn proxy(&self, local: SocketAddr) -> anyhow::Result<u8> {
        self.check().await?;
        let (listener, bound) = listen(local).await?;
        say::out(&format!(
            "Listening on {bound} for VNC viewers, Ctrl-C ends"
        ))?;
        loop {
            let (connection, peer) = listener.accept().await?;
            say::note(&format!("Viewer connected from {peer}."));
            match self.open().await {
                Ok(stream) => {
                    let end = carry(connection, stream).await;
                    self.verdict(&end);
                }
                Err(error) => say::note(&format!("error: {error:#}")),
            }
        }
    }

    /// What would be refused later is better told now.
    async fn check(&self) -> anyhow::Result<()> {
        let path = format!("{}/{SUBRESOURCE}", self.target.path());
        let session = self
            .cluster
            .json(http::Method::GET, &path, "application/json", None)
            .await?;
        if session["status"]["inUse"] == Value::Bool(true) && !self.takeover {
            let text = |field: &str| {
                session["spec"][field]
                    .as_str()
                    .unwrap_or("somebody")
                    .to_owned()
            };
            bail!(
                "the vnc is held by {} since {}: run the command again with --takeover to end that session",
                text("user"),
                text("since")
            );
        }
        Ok(())
    }

    /// Says why it ended, if the user did not end it, and gives the exit code.
    fn verdict(&self, end: &End) -> u8 {
        let End::Stream(ending) = end else {
            return 0;
        };
        let command = self.target.command(SUBRESOURCE);
        let way = Way {
            target: self.target,
            subresource: SUBRESOURCE,
            command: &command,
        };
        let explanation = explain(ending, way);
        say::note(&explanation.sentence);
        u8::from(!explanation.clean)
    }
}

fn start(viewer: &Viewer, address: SocketAddr) -> anyhow::Result<Child> {
    Command::new(&viewer.program)
        .args(viewer.arguments(address))
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", viewer.program.display()))
}

/// The viewer's connection. Some start a window in the background and end well at once, so only a failure counts.
async fn connected(
    listener: &TcpListener,
    window: &mut Child,
    viewer: &Viewer,
) -> anyhow::Result<TcpStream> {
    let failed = async {
        match window.wait().await {
            Ok(status) if status.success() => std::future::pending().await,
            Ok(status) => status.to_string(),
            Err(e) => e.to_string(),
        }
    };
    let name = viewer.program.display();
    tokio::select! {
        accepted = listener.accept() => Ok(accepted?.0),
        why = failed => bail!("{name} ended before it connected ({why}): try another one with --viewer, or --proxy-only"),
        () = tokio::time::sleep(VIEWER_TIME) => bail!(
            "{name} did not connect within {} s: try another one with --viewer, or --proxy-only",
            VIEWER_TIME.as_secs()
        ),
    }
}

async fn carry(connection: TcpStream, stream: Stream) -> End {
    // keys and pointers do not wait for each other; a socket that refuses works all the same
    let _ = connection.set_nodelay(true);
    let (reader, writer) = connection.into_split();
    relay(reader, writer, stream, Wire::Binary).await
}
