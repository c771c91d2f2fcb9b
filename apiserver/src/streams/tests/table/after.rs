//! What happens to an open stream.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

use super::{
    Cell, Mode, State, before,
    guest::{self, Guest},
};
use crate::{
    sessions::Timing,
    streams::{
        opening::StreamOptions,
        recheck::Times,
        relay::Pace,
        tests::world::{Client, World, closed},
    },
};

/// Longer than anything may be idle here.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Opens a stream and lets this happen.
pub(super) async fn check(mode: Mode, state: State, expected: Cell) {
    if mode == Mode::Screenshot {
        return picture_nobody_waits_for(state).await;
    }
    let timing = Timing {
        shared_after: Duration::from_millis(20),
        ..Timing::default()
    };
    let mut world = World::timed(mode.kind(), options(state), timing).await;
    before::settle(&world, mode).await;
    let opened = guest::open(&mut world, mode, mode.path(), "jane").await;
    let (mut client, mut guest) = opened.unwrap();
    let what = format!("{mode:?} {state:?}");
    let close = match state {
        State::ClientDies => {
            drop(client);
            guest.ended().await;
            None
        }
        State::SlowClient => slow_client(&mut world, client, guest).await,
        State::SlowGuest => slow_guest(client, guest).await,
        State::TakenOver if matches!(expected, Cell::GoesOn) => {
            let second = guest::open(&mut world, mode, &takeover(mode), "joe").await;
            guest.hears(&mut client).await;
            drop((second, client, guest));
            None
        }
        State::Idle if matches!(expected, Cell::GoesOn) => {
            let waiting = tokio::time::timeout(A_WHILE, closed(&mut client));
            let (ended, ()) = tokio::join!(waiting, guest.lives(A_WHILE));
            assert!(ended.is_err(), "{what} has ended");
            guest.hears(&mut client).await;
            drop((client, guest));
            None
        }
        _ => happens(&mut world, mode, state, &mut client, guest).await,
    };
    judge(&what, state, expected, close);
    if let (Some(claim), State::ClientCloses) = (mode.claim(), state) {
        assert!(!world.has_session_of(claim).await, "{what} is still held");
    }
    world.at_rest().await;
}

fn judge(what: &str, state: State, expected: Cell, close: Option<CloseFrame>) {
    match (expected, close) {
        (Cell::EndsUnheard | Cell::GoesOn, None) => {}
        // What waits for the client to read ends with it.
        (Cell::Ends(..), None) if state == State::SlowClient => {}
        (Cell::Ends(code, words), Some(close)) => {
            let (got, reason) = (u16::from(close.code), close.reason.as_str());
            assert_eq!(got, code, "{what}: {reason}");
            assert!(reason.contains(words), "{what}: {reason}");
        }
        (expected, close) => panic!("{what}: {expected:?}, but {close:?}"),
    }
}

/// A caller that does not wait for its picture.
async fn picture_nobody_waits_for(state: State) {
    assert_eq!(state, State::ClientDies);
    let mut world = World::new("vm").await;
    drop(world.ask_blindly("demo/screenshot", "").await);
    world.at_rest().await;
}

fn options(state: State) -> StreamOptions {
    let mut options = StreamOptions {
        recheck: Times {
            every: Duration::from_millis(50),
            per_second: 1_000.0,
            ..Times::default()
        },
        ..StreamOptions::default()
    };
    match state {
        State::Idle => {
            options.idle_after = Some(Duration::from_millis(500));
            options.pace.ping_every = Duration::from_millis(250);
        }
        State::SlowClient | State::SlowGuest => {
            options.pace = Pace {
                ping_every: Duration::from_millis(100),
                no_progress: Duration::from_millis(400),
                goodbye: Duration::from_millis(300),
            };
        }
        _ => {}
    }
    options
}

fn takeover(mode: Mode) -> String {
    let separator = if mode.path().contains('?') { '&' } else { '?' };
    format!("{}{separator}takeover=true", mode.path())
}

/// Makes it happen; what the client is told, while the guest's side is ended as it should be.
async fn happens(
    world: &mut World,
    mode: Mode,
    state: State,
    client: &mut Client,
    guest: Guest,
) -> Option<CloseFrame> {
    let mut guest = match state {
        State::UpstreamDies => {
            guest.breaks();
            return closed(client).await;
        }
        State::UpstreamEnds => {
            guest.ends(client).await;
            return closed(client).await;
        }
        State::TakenOver => return taken_over(world, mode, client, guest).await,
        State::ClientCloses => {
            client.close(None).await.unwrap();
            guest
        }
        _ => match cause(world, mode, state).await {
            Cut::Yes if matches!(guest, Guest::Frames(..)) => {
                // These end with their guest, without a word.
                drop(guest);
                return closed(client).await;
            }
            _ => guest,
        },
    };
    let ended = async {
        guest.ended().await;
        drop(guest);
    };
    tokio::join!(closed(client), ended).0
}

/// Whether the upstream's connection goes with what happened.
enum Cut {
    Yes,
    No,
}

async fn cause(world: &World, mode: Mode, state: State) -> Cut {
    match state {
        State::GuestGone => before::gone(world, mode),
        State::Migrated => world.edit_machine(|vmi| vmi["status"]["nodeName"] = json!("n2")),
        State::StoppedMeanwhile => {
            world.annotate_stopped().await;
            before::gone(world, mode);
        }
        State::DeletedMeanwhile => {
            world.drop_workspace().await;
            before::gone(world, mode);
        }
        State::Drain => world.draining.cancel(),
        State::Revoked => drop(world.verbs.0.lock().remove("get")),
        State::EndedByAdmin => {
            let name = loop {
                match world.session_names().await.pop() {
                    Some(name) => break name,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            world.mark_session(&name).await;
        }
        _ => {}
    }
    match state {
        State::GuestGone | State::Migrated | State::StoppedMeanwhile | State::DeletedMeanwhile => {
            Cut::Yes
        }
        _ => Cut::No,
    }
}

async fn taken_over(
    world: &mut World,
    mode: Mode,
    client: &mut Client,
    mut guest: Guest,
) -> Option<CloseFrame> {
    world.verbs.0.lock().insert("delete");
    let ended = async {
        guest.ended().await;
        drop(guest);
    };
    let path = takeover(mode);
    let second = guest::open(world, mode, &path, "joe");
    let (second, close, ()) = tokio::join!(second, closed(client), ended);
    let (mut second, mut guest) = second.unwrap();
    guest.hears(&mut second).await;
    drop((second, guest));
    close
}

/// The guest writes, and the client does not read.
async fn slow_client(world: &mut World, mut client: Client, guest: Guest) -> Option<CloseFrame> {
    guest.floods(&mut client).await;
    world.streams_end().await;
    closed(&mut client).await
}

/// The client writes, and the guest does not read.
async fn slow_guest(mut client: Client, mut guest: Guest) -> Option<CloseFrame> {
    guest.stalls(&mut client).await;
    let (mut writer, mut reader) = client.split();
    let typing = tokio::spawn(async move {
        let block = vec![b'x'; 64 * 1024];
        while writer.send(Message::binary(block.clone())).await.is_ok() {}
    });
    let close = loop {
        match reader.next().await {
            Some(Ok(Message::Close(close))) => break close,
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    typing.abort();
    drop(guest);
    close
}
