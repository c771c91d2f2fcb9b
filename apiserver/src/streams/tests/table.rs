//! Every mode in every state: what is answered or how it ends, and that nothing is left.

use std::{io::ErrorKind, time::Duration};

use futures::SinkExt as _;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::world::{Client, MACHINE, Upstream, World, closed};
use crate::streams::{opening::StreamOptions, recheck::Times, relay::Pace};

const BINARY: [(&str, &str); 1] = [("sec-websocket-protocol", "binary")];

/// The modes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Console,
    Vnc,
    Tunnel,
    Port,
}

use Mode::{Console, Port, Tunnel, Vnc};

const MODES: [Mode; 4] = [Console, Vnc, Tunnel, Port];

impl Mode {
    fn path(self) -> &'static str {
        match self {
            Console => "demo/console",
            Vnc => "demo/vnc",
            Tunnel => "demo/ssh?mode=tunnel",
            Port => "demo/portforward/8080",
        }
    }

    /// The name of its claim.
    fn claim(self) -> Option<&'static str> {
        match self {
            Console => Some("console"),
            Vnc => Some("vnc"),
            Tunnel | Port => None,
        }
    }

    fn is_tcp(self) -> bool {
        self.claim().is_none()
    }
}

/// What the guest's side of a stream is.
enum Guest {
    KubeVirt(Box<Upstream>),
    Tcp(TcpStream),
}

impl Guest {
    /// Waits until we have ended it.
    async fn ended(&mut self) {
        match self {
            Self::KubeVirt(upstream) => drop(closed(&mut **upstream).await),
            Self::Tcp(tcp) => {
                let mut rest = Vec::new();
                let _ = tcp.read_to_end(&mut rest).await;
            }
        }
    }
}

async fn open(world: &mut World, mode: Mode) -> (Client, Guest) {
    let listener = world.pods.listen().await;
    let (client, _) = world.open(mode.path(), &BINARY).await.unwrap();
    let guest = match mode.is_tcp() {
        true => Guest::Tcp(listener.accept().await.unwrap().0),
        false => Guest::KubeVirt(Box::new(world.dialled().await.1)),
    };
    (client, guest)
}

/// How a client is told, while the guest's side is ended as it should be.
async fn told(client: &mut Client, mut guest: Guest) -> (u16, String) {
    let guest = async {
        guest.ended().await;
        drop(guest);
    };
    let (close, ()) = tokio::join!(closed(client), guest);
    let close = close.unwrap();
    (close.code.into(), close.reason.as_str().to_owned())
}

fn phase(world: &World, phase: &str) {
    world.edit_machine(|vmi| vmi["status"]["phase"] = json!(phase));
}

fn devices(world: &World, devices: Value) {
    world.edit_machine(|vmi| vmi["spec"] = json!({"domain": {"devices": devices}}));
}

async fn annotate_stopped(world: &World) {
    let stopped = json!({"kubeworkspaces.io/stopped": "now"});
    world
        .edit_workspace(|w| {
            w.metadata_mut().insert("annotations".into(), stopped);
        })
        .await;
}

/// States before the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Starting,
    NoInstance,
    Stopping,
    Failed,
    Stopped,
    Deleting,
    Deleted,
    Paused,
    NoSerial,
    NoGraphics,
    UpstreamRefuses,
    Draining,
    MayNotCreate,
}

async fn prepare(world: &World, state: Before) {
    match state {
        Before::Starting => phase(world, "Scheduling"),
        Before::NoInstance => drop(world.cluster.objects.lock().remove(MACHINE)),
        Before::Stopping => phase(world, "Succeeded"),
        Before::Failed => phase(world, "Failed"),
        Before::Stopped => annotate_stopped(world).await,
        Before::Deleting => {
            let edit = world.edit_workspace(|w| {
                w.set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
            });
            edit.await;
        }
        Before::Deleted => world.drop_workspace().await,
        Before::Paused => world.edit_machine(|vmi| {
            vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
        }),
        Before::NoSerial => devices(world, json!({"autoattachSerialConsole": false})),
        Before::NoGraphics => devices(world, json!({"autoattachGraphicsDevice": false})),
        Before::UpstreamRefuses => {
            let text = r#"{"kind":"Status","message":"no handler","code":500}"#;
            *world.cluster.refuse_all.lock() = Some((500, text.into()));
            *world.pods.refuse.lock() = Some(ErrorKind::ConnectionRefused);
        }
        Before::Draining => world.draining.cancel(),
        Before::MayNotCreate => drop(world.verbs.0.lock().remove("create")),
    }
}

#[tokio::test]
async fn s_09_before_the_upgrade_every_state_has_its_status() {
    // Code and Retry-After for console, vnc, ssh tunnel, port; 101 is a stream.
    let same = |code, retry: Option<u64>| [(code, retry); 4];
    let open = (101, None);
    let table = [
        (Before::Starting, same(400, Some(2))),
        (Before::NoInstance, same(400, Some(2))),
        (Before::Stopping, same(400, Some(2))),
        (Before::Failed, same(409, None)),
        (Before::Stopped, same(409, None)),
        (Before::Deleting, same(409, None)),
        (Before::Deleted, same(404, None)),
        (Before::Paused, [open, open, (409, None), (409, None)]),
        (Before::NoSerial, [(409, None), open, open, open]),
        (Before::NoGraphics, [open, (409, None), open, open]),
        (Before::UpstreamRefuses, same(503, Some(1))),
        (Before::Draining, same(503, Some(1))),
        (Before::MayNotCreate, same(403, None)),
    ];
    let cells = table.into_iter().flat_map(|(state, expected)| {
        MODES
            .into_iter()
            .zip(expected)
            .map(move |(mode, expected)| is_answered(state, mode, expected))
    });
    futures::future::join_all(cells).await;
}

async fn is_answered(state: Before, mode: Mode, (code, retry): (u16, Option<u64>)) {
    let mut world = World::new("vm").await;
    let _listener = world.pods.listen().await;
    prepare(&world, state).await;
    match world.open(mode.path(), &BINARY).await {
        Ok(_) => assert_eq!(code, 101, "{mode:?} {state:?} was opened"),
        Err((got, status)) => {
            assert_eq!(got, code, "{mode:?} {state:?}: {status}");
            let seconds = status["details"]["retryAfterSeconds"].as_u64();
            assert_eq!(seconds, retry, "{mode:?} {state:?}: {status}");
        }
    }
    world.at_rest().await;
}

/// What happens to an open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    UpstreamDies,
    UpstreamSaysGoodbye,
    GuestGone,
    Migrated,
    Stopped,
    Deleted,
    Drain,
    Revoked,
    EndedByAdmin,
}

fn brisk() -> StreamOptions {
    StreamOptions {
        recheck: Times {
            every: Duration::from_millis(50),
            per_second: 1_000.0,
            ..Times::default()
        },
        ..StreamOptions::default()
    }
}

/// Makes it happen; gives the guest's side back if it is still there.
async fn happen(world: &World, mode: Mode, state: After, guest: Guest) -> Option<Guest> {
    match state {
        After::UpstreamDies => return reset(guest),
        After::UpstreamSaysGoodbye => {
            if let Guest::KubeVirt(mut upstream) = guest {
                upstream.as_mut().close(None).await.unwrap();
                closed(&mut *upstream).await;
            }
            return None;
        }
        After::GuestGone => drop(world.cluster.objects.lock().remove(MACHINE)),
        After::Migrated => world.edit_machine(|vmi| vmi["status"]["nodeName"] = json!("n2")),
        After::Stopped => {
            annotate_stopped(world).await;
            world.cluster.objects.lock().remove(MACHINE);
        }
        After::Deleted => {
            world.drop_workspace().await;
            world.cluster.objects.lock().remove(MACHINE);
        }
        After::Drain => world.draining.cancel(),
        After::Revoked => drop(world.verbs.0.lock().remove("get")),
        After::EndedByAdmin => world.delete_session(mode.claim().unwrap()).await,
    }
    let cut = matches!(
        state,
        After::GuestGone | After::Migrated | After::Stopped | After::Deleted
    );
    match guest {
        // KubeVirt's streams end with their guest, without a word; over TCP nobody is left to say so.
        Guest::KubeVirt(upstream) if cut => {
            drop(upstream);
            None
        }
        guest => Some(guest),
    }
}

/// A connection that breaks.
fn reset(guest: Guest) -> Option<Guest> {
    if let Guest::Tcp(tcp) = guest {
        socket2::SockRef::from(&tcp)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
    None
}

#[tokio::test]
async fn s_10_after_the_upgrade_every_end_has_its_code_and_reason() {
    let all = |code| [Some(code); 4];
    let cut = "cut by the upstream";
    let table = [
        (After::UpstreamDies, all(1011), cut),
        (
            After::UpstreamSaysGoodbye,
            [Some(1011), Some(1011), Some(1000), Some(1000)],
            "",
        ),
        (After::GuestGone, all(4006), "the guest is gone"),
        (After::Migrated, all(4005), "moved to another node"),
        (After::Stopped, all(4003), "was stopped"),
        (After::Deleted, all(4004), "was deleted"),
        (After::Drain, all(1001), "another replica answers"),
        (After::Revoked, all(4002), "was revoked"),
        (
            After::EndedByAdmin,
            [Some(4007), Some(4007), None, None],
            "administrator",
        ),
    ];
    let cells = table.into_iter().flat_map(|(state, codes, words)| {
        MODES
            .into_iter()
            .zip(codes)
            .filter_map(move |(mode, code)| Some(ends_with(state, mode, code?, words)))
    });
    futures::future::join_all(cells).await;
}

async fn ends_with(state: After, mode: Mode, code: u16, words: &str) {
    let mut world = World::with("vm", brisk()).await;
    let (mut client, guest) = open(&mut world, mode).await;
    let told = match happen(&world, mode, state, guest).await {
        Some(guest) => told(&mut client, guest).await,
        None => {
            let close = closed(&mut client).await.unwrap();
            (close.code.into(), close.reason.as_str().to_owned())
        }
    };
    assert_eq!(told.0, code, "{mode:?} {state:?}: {}", told.1);
    assert!(told.1.contains(words), "{mode:?} {state:?}: {}", told.1);
    if let Some(claim) = mode.claim() {
        assert!(!world.has_session_of(claim).await, "{mode:?} {state:?}");
    }
    world.at_rest().await;
}

#[tokio::test]
async fn s_04_a_client_that_dies_leaves_nothing() {
    for mode in MODES {
        let mut world = World::new("vm").await;
        let (client, mut guest) = open(&mut world, mode).await;
        drop(client);
        guest.ended().await;
        drop(guest);
        world.at_rest().await;
    }
}

#[tokio::test]
async fn a_takeover_ends_exclusive_streams_and_disturbs_no_others() {
    for mode in MODES {
        let mut world = World::new("vm").await;
        let (mut client, guest) = open(&mut world, mode).await;
        let separator = if mode.path().contains('?') { '&' } else { '?' };
        let path = format!("{}{separator}takeover=true", mode.path());
        if mode.is_tcp() {
            let _listener = world.pods.listen().await;
            let _second = world.open(&path, &BINARY).await.unwrap();
            client.send(Message::binary(&b"x"[..])).await.unwrap();
            let Guest::Tcp(mut guest) = guest else {
                panic!("a port is TCP")
            };
            assert_eq!(guest.read(&mut [0; 8]).await.unwrap(), 1);
            continue;
        }
        let (second, (code, reason)) =
            tokio::join!(world.open(&path, &BINARY), told(&mut client, guest));
        assert_eq!(
            (code, &*reason),
            (1000, "taken over by another user"),
            "{mode:?}"
        );
        drop(second.unwrap());
        drop(world.dialled().await);
        world.at_rest().await;
    }
}

#[tokio::test]
async fn idle_streams_end_where_a_person_is_expected() {
    let options = StreamOptions {
        idle_after: Some(Duration::from_millis(150)),
        pace: Pace {
            ping_every: Duration::from_millis(20),
            ..Pace::default()
        },
        ..StreamOptions::default()
    };
    for mode in MODES {
        let mut world = World::with("vm", options.clone()).await;
        let (mut client, guest) = open(&mut world, mode).await;
        if mode.is_tcp() {
            let waiting = tokio::time::timeout(Duration::from_millis(500), closed(&mut client));
            assert!(waiting.await.is_err(), "{mode:?} has no idle end");
            continue;
        }
        // The guest answers pings meanwhile, and what a display prints is no activity.
        let (code, _) = told(&mut client, guest).await;
        assert_eq!(code, 4001, "{mode:?}");
        world.at_rest().await;
    }
}

fn impatient() -> StreamOptions {
    StreamOptions {
        pace: Pace {
            ping_every: Duration::from_millis(20),
            no_progress: Duration::from_millis(300),
            goodbye: Duration::from_millis(200),
        },
        ..StreamOptions::default()
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_ends_as_a_slow_reader() {
    for mode in MODES {
        let mut world = World::with("vm", impatient()).await;
        let (mut client, guest) = open(&mut world, mode).await;
        let flood = tokio::spawn(flood(guest));
        world.at_rest().await;
        flood.await.unwrap();
        let close = closed(&mut client).await;
        // The reason waits behind what was not read, and is cut with it.
        assert!(
            close.is_none_or(|close| u16::from(close.code) == 4008),
            "{mode:?}"
        );
    }
}

/// Writes until it is stopped.
async fn flood(guest: Guest) {
    use tokio::io::AsyncWriteExt as _;
    let block = vec![b'x'; 64 * 1024];
    match guest {
        Guest::KubeVirt(mut upstream) => {
            while upstream.send(Message::binary(block.clone())).await.is_ok() {}
        }
        Guest::Tcp(mut tcp) => while tcp.write_all(&block).await.is_ok() {},
    }
}

#[tokio::test]
async fn a_guest_that_reads_nothing_is_no_fault_of_the_client() {
    for mode in MODES {
        let mut world = World::with("vm", impatient()).await;
        let (client, guest) = open(&mut world, mode).await;
        let (mut writer, mut reader) = futures::StreamExt::split(client);
        let typing = tokio::spawn(async move {
            let block = vec![b'x'; 64 * 1024];
            while writer.send(Message::binary(block.clone())).await.is_ok() {}
        });
        let close = loop {
            match futures::StreamExt::next(&mut reader).await {
                Some(Ok(Message::Close(close))) => break close,
                Some(Ok(_)) => {}
                other => panic!("{mode:?}: {other:?}"),
            }
        };
        assert_eq!(u16::from(close.unwrap().code), 1011, "{mode:?}");
        typing.abort();
        world.at_rest().await;
        drop(guest);
    }
}
