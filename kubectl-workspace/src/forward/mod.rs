//! `kubectl workspace port-forward`: each local connection is a stream of its own, and fails alone.
//! Entry points: [`port_forward`], [`stdio`].

mod listen;
mod ports;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cli;
use crate::close::{Way, explain};
use crate::cluster::Cluster;
use crate::say;
use crate::target::Target;
use crate::tunnel::{End, PROTOCOLS, Wire, relay};
use crate::upgrade::{Patience, Stream, open, open_when_ready};

pub use listen::{Address, ListenError, addresses, listen};
pub use ports::{Pair, Ports, PortsError};

/// Local connections at once; more wait to be accepted. The server allows 100 for a workspace.
const MAX_CONNECTIONS: usize = 256;
/// After an accept that failed, as for lack of file descriptors.
const BREATH: Duration = Duration::from_millis(100);
const SUBRESOURCE: &str = "portforward";

/// Forwards ports until a signal ends it.
pub async fn port_forward(cluster: &Cluster, options: cli::PortForward) -> anyhow::Result<u8> {
    let cli::PortForward {
        workspace,
        ports,
        address,
        stdio: as_proxy,
    } = options;
    let target = cluster.target(workspace)?;
    let object = cluster.get(&target).await?;
    let pairs = pairs(&ports, &object)?;
    if as_proxy {
        let [pair] = pairs.as_slice() else {
            bail!("--stdio carries one connection: give one port");
        };
        let path = format!("{}/{SUBRESOURCE}/{}", target.path(), pair.remote);
        let tunnel = Tunnel {
            target: &target,
            subresource: SUBRESOURCE,
            path: &path,
        };
        return self::stdio(cluster, tunnel, Patience::of(Some(Duration::ZERO))).await;
    }
    let addresses = addresses(&address)?;
    let mut listeners = Vec::new();
    for pair in pairs {
        for listener in listen(&addresses, pair.local).await? {
            let bound = listener.local_addr()?;
            say::out(&format!("Forwarding from {bound} -> {}", pair.remote))?;
            listeners.push((listener, pair.remote));
        }
    }
    let forward = Arc::new(Forward {
        cluster: cluster.clone(),
        target,
        // a listener holds one while it waits
        permits: Arc::new(Semaphore::new(MAX_CONNECTIONS + listeners.len())),
        half_close_missing: AtomicBool::new(false),
    });
    serve(forward, listeners).await
}

/// Each pair once.
fn pairs(ports: &[Ports], workspace: &Value) -> Result<Vec<Pair>, PortsError> {
    let mut seen = BTreeSet::new();
    let resolved = ports.iter().map(|ports| ports.resolve(workspace));
    let all = resolved.collect::<Result<Vec<_>, _>>()?;
    let first = |pair: &Pair| pair.local == 0 || seen.insert((pair.local, pair.remote));
    Ok(all.into_iter().filter(first).collect())
}

struct Forward {
    cluster: Cluster,
    target: Target,
    permits: Arc<Semaphore>,
    /// Said once.
    half_close_missing: AtomicBool,
}

/// Runs until it is dropped; the tasks end with it.
async fn serve(forward: Arc<Forward>, listeners: Vec<(TcpListener, u16)>) -> anyhow::Result<u8> {
    let mut accepting = JoinSet::new();
    for (listener, remote) in listeners {
        accepting.spawn(accept(forward.clone(), listener, remote));
    }
    match accepting.join_next().await {
        Some(Err(e)) => Err(e).context("a listener ended"),
        _ => Ok(0),
    }
}

async fn accept(forward: Arc<Forward>, listener: TcpListener, remote: u16) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = forward.permits.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((connection, peer)) => {
                let forward = forward.clone();
                connections.spawn(async move {
                    forward.carry(connection, peer, remote).await;
                    drop(permit);
                });
            }
            Err(e) => {
                say::note(&format!("error: cannot accept a connection: {e}"));
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

impl Forward {
    async fn carry(&self, connection: TcpStream, peer: SocketAddr, remote: u16) {
        // as kubectl says it; forwarding goes on when nobody reads that
        let _ = say::out(&format!(
            "Handling connection for {}",
            local_port(&connection)
        ));
        let path = format!("{}/{SUBRESOURCE}/{remote}", self.target.path());
        let (stream, protocol) = match open(&self.cluster, &path, &PROTOCOLS).await {
            Ok(opened) => opened,
            Err(e) => {
                say::note(&format!(
                    "error: the connection from {peer} to port {remote}: {e}"
                ));
                return;
            }
        };
        // without it keys and small answers wait for each other; a socket that refuses works all the same
        let _ = connection.set_nodelay(true);
        let (reader, writer) = connection.into_split();
        let end = relay(reader, writer, stream, Wire::of(&protocol)).await;
        self.tell(&end, peer, remote);
    }

    fn tell(&self, end: &End, peer: SocketAddr, remote: u16) {
        match end {
            End::Finished | End::LocalGone => {}
            end if end.is_for_both() => {
                if !self.half_close_missing.swap(true, Ordering::Relaxed) {
                    say::note(NO_HALF_CLOSE);
                }
            }
            End::FinishedForBoth => {}
            End::Stream(ending) => {
                let command = self.target.command("port-forward");
                let way = Way {
                    target: &self.target,
                    subresource: SUBRESOURCE,
                    command: &command,
                };
                let explanation = explain(ending, way);
                if !explanation.clean {
                    let sentence = explanation.sentence;
                    say::note(&format!(
                        "error: the connection from {peer} to port {remote}: {sentence}"
                    ));
                }
            }
        }
    }
}

const NO_HALF_CLOSE: &str = "Note: on the way to this workspace the end of one direction cannot be told from the end of both. A connection ends when the local side has sent all, and what the guest has not answered by then is lost.";

fn local_port(connection: &TcpStream) -> u16 {
    connection.local_addr().map_or(0, |address| address.port())
}

/// A tunnel to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel<'a> {
    /// The workspace.
    pub target: &'a Target,
    /// The subresource, as RBAC has it.
    pub subresource: &'a str,
    /// The path of the request.
    pub path: &'a str,
}

/// Carries one connection between standard input and output, for ProxyCommand. Its own words go to standard error.
pub async fn stdio(
    cluster: &Cluster,
    tunnel: Tunnel<'_>,
    patience: Patience,
) -> anyhow::Result<u8> {
    let Tunnel {
        target,
        subresource,
        path,
    } = tunnel;
    let (stream, protocol) = open_when_ready(cluster, path, &PROTOCOLS, patience).await?;
    let end = carry_stdio(stream, Wire::of(&protocol)).await;
    // ssh ends its conversation before the connection, and loses nothing
    if end.is_for_both() && subresource == SUBRESOURCE {
        say::note(NO_HALF_CLOSE);
    }
    match end {
        End::Finished | End::FinishedForBoth | End::LocalGone => Ok(0),
        End::Stream(ending) => {
            let way = Way {
                target,
                subresource,
                command: "the same command",
            };
            let explanation = explain(&ending, way);
            if explanation.clean {
                return Ok(0);
            }
            bail!("{}", explanation.sentence);
        }
    }
}

/// Ends when nobody reads standard output any more, too: a client that was killed leaves nothing behind.
async fn carry_stdio(stream: Stream, wire: Wire) -> End {
    let closed = crate::terminal::stdout_closed();
    tokio::select! {
        end = relay(tokio::io::stdin(), tokio::io::stdout(), stream, wire) => end,
        Ok(()) = closed => End::LocalGone,
    }
}
