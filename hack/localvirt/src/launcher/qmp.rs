//! QEMU's control channel: commands one at a time, and the machine's state as its events tell it.
//!
//! One task owns the connection. Protocol: QEMU's docs/interop/qmp-spec.txt. Entry point: [`Qmp::start`].

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::codec::{Framed, LinesCodec};

use super::qemu::AGENT_ID;

/// QEMU answers in milliseconds; a screendump under load takes a second.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// No answer that we ask for comes near it.
const MAX_MESSAGE: usize = 1 << 20;
/// Commands that may wait for their turn.
const QUEUE: usize = 16;

/// The machine, as QEMU's events describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineState {
    /// The processors stand still.
    pub paused: bool,
    /// The guest has powered off.
    pub powered_off: bool,
    /// The guest agent has opened its channel.
    pub agent_connected: bool,
}

/// A handle to QEMU's control channel.
#[derive(Clone, Debug)]
pub struct Qmp {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<MachineState>,
}

#[derive(Debug)]
struct Command {
    message: Value,
    answer: oneshot::Sender<Result<Value, QmpError>>,
}

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// QEMU is gone.
    #[error("QEMU's control channel is closed")]
    Closed,
    /// QEMU is stuck.
    #[error("QEMU did not answer within {} s", ANSWER_TIME.as_secs())]
    Timeout,
    /// QEMU said no.
    #[error("QEMU refused: {0}")]
    Refused(String),
    /// QEMU said something else.
    #[error("QEMU's greeting is not QMP")]
    Greeting,
}

type Lines = Framed<UnixStream, LinesCodec>;

impl Qmp {
    /// Greets QEMU on a connection that it has just opened.
    pub async fn start(connection: UnixStream) -> Result<Self, QmpError> {
        let mut lines = Framed::new(connection, LinesCodec::new_with_max_length(MAX_MESSAGE));
        let greeting = next(&mut lines).await?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Greeting);
        }
        let (commands, queue) = mpsc::channel(QUEUE);
        let (events, state) = watch::channel(MachineState::default());
        tokio::spawn(serve(lines, queue, events.clone()));
        let qmp = Self { commands, state };
        qmp.execute("qmp_capabilities", json!({})).await?;
        let status = qmp.execute("query-status", json!({})).await?;
        tracing::debug!(%status, "QEMU is up");
        // No event tells of a machine that has never run.
        if stands_still(&status) {
            events.send_modify(|state| state.paused = true);
        }
        Ok(qmp)
    }

    /// Runs one command.
    pub async fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let (answer, answered) = oneshot::channel();
        let message = json!({ "execute": command, "arguments": arguments });
        let run = async {
            self.commands
                .send(Command { message, answer })
                .await
                .map_err(|_| QmpError::Closed)?;
            answered.await.map_err(|_| QmpError::Closed)?
        };
        tokio::time::timeout(ANSWER_TIME, run)
            .await
            .map_err(|_| QmpError::Timeout)?
    }

    /// The state by now.
    pub fn state(&self) -> MachineState {
        *self.state.borrow()
    }

    /// Waits until the state is as wanted; an error says that QEMU is gone.
    pub async fn wait_until(
        &self,
        wanted: impl FnMut(&MachineState) -> bool,
    ) -> Result<(), QmpError> {
        self.state
            .clone()
            .wait_for(wanted)
            .await
            .map(drop)
            .map_err(|_| QmpError::Closed)
    }
}

/// Owns the connection until QEMU or every handle is gone.
async fn serve(
    mut lines: Lines,
    mut queue: mpsc::Receiver<Command>,
    events: watch::Sender<MachineState>,
) {
    loop {
        tokio::select! {
            message = next(&mut lines) => match message {
                Ok(message) => note(&events, &message),
                Err(_) => return,
            },
            command = queue.recv() => {
                let Some(Command { message, answer }) = command else { return };
                let result = converse(&mut lines, &message, &events).await;
                let lost = matches!(result, Err(QmpError::Closed));
                // nobody may wait for it any more
                let _ = answer.send(result);
                if lost {
                    return;
                }
            }
        }
    }
}

/// Sends one command and reads up to its answer; events come in between.
async fn converse(
    lines: &mut Lines,
    message: &Value,
    events: &watch::Sender<MachineState>,
) -> Result<Value, QmpError> {
    lines
        .send(message.to_string())
        .await
        .map_err(|_| QmpError::Closed)?;
    loop {
        let mut message = next(lines).await?;
        if let Some(value) = message.get_mut("return") {
            return Ok(value.take());
        }
        if let Some(error) = message.get("error") {
            return Err(QmpError::Refused(
                error["desc"]
                    .as_str()
                    .unwrap_or("no reason given")
                    .to_owned(),
            ));
        }
        note(events, &message);
    }
}

/// # Cancel safety
/// Safe: the codec keeps what it has read of a line.
async fn next(lines: &mut Lines) -> Result<Value, QmpError> {
    let line = lines
        .next()
        .await
        .and_then(Result::ok)
        .ok_or(QmpError::Closed)?;
    serde_json::from_str(&line).map_err(|_| QmpError::Greeting)
}

/// Whether `query-status` tells of a machine that waits for `cont` (qapi/run-state.json, RunState).
fn stands_still(status: &Value) -> bool {
    matches!(status["status"].as_str(), Some("prelaunch" | "paused"))
}

fn note(events: &watch::Sender<MachineState>, message: &Value) {
    events.send_if_modified(|state| {
        let after = after_event(*state, message);
        std::mem::replace(state, after) != after
    });
}

/// The state after an event (qapi/run-state.json, qapi/char.json).
fn after_event(state: MachineState, message: &Value) -> MachineState {
    match message["event"].as_str().unwrap_or_default() {
        "STOP" => MachineState {
            paused: true,
            ..state
        },
        "RESUME" => MachineState {
            paused: false,
            powered_off: false,
            ..state
        },
        "SHUTDOWN" => MachineState {
            powered_off: true,
            ..state
        },
        "RESET" => MachineState {
            agent_connected: false,
            ..state
        },
        "VSERPORT_CHANGE" if message["data"]["id"] == AGENT_ID => MachineState {
            agent_connected: message["data"]["open"] == true,
            ..state
        },
        _ => state,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;

    /// A peer that says what the script has for each line that it hears.
    fn scripted(answers: &'static [&'static str]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (read, mut write) = theirs.into_split();
            let mut heard = BufReader::new(read).lines();
            write
                .write_all(b"{\"QMP\":{\"version\":{}}}\n{\"event\":\"STOP\"}\n")
                .await
                .unwrap();
            for answer in ["{\"return\":{}}", "{\"return\":{\"status\":\"running\"}}"]
                .iter()
                .chain(answers)
            {
                heard.next_line().await.unwrap();
                write
                    .write_all(format!("{answer}\n").as_bytes())
                    .await
                    .unwrap();
            }
        });
        ours
    }

    #[tokio::test]
    async fn events_between_command_and_answer_are_noted_and_not_taken_for_it() {
        let answers = &[
            "{\"event\":\"RESUME\"}\n{\"return\":7}",
            "{\"error\":{\"class\":\"x\",\"desc\":\"not now\"}}",
        ];
        let qmp = Qmp::start(scripted(answers)).await.unwrap();
        qmp.wait_until(|state| state.paused).await.unwrap();
        assert_eq!(qmp.execute("cont", json!({})).await.unwrap(), 7);
        assert!(!qmp.state().paused);
        let refused = qmp.execute("quit", json!({})).await.unwrap_err();
        assert_eq!(refused.to_string(), "QEMU refused: not now");
    }

    #[test]
    fn a_machine_that_has_never_run_stands_still() {
        for (status, want) in [("prelaunch", true), ("paused", true), ("running", false)] {
            assert_eq!(stands_still(&json!({ "status": status })), want, "{status}");
        }
    }

    #[tokio::test]
    async fn a_qemu_that_goes_away_fails_what_waits() {
        let qmp = Qmp::start(scripted(&[])).await.unwrap();
        assert!(matches!(
            qmp.execute("cont", json!({})).await,
            Err(QmpError::Closed)
        ));
        assert!(matches!(
            qmp.wait_until(|s| s.powered_off).await,
            Err(QmpError::Closed)
        ));
    }

    #[test]
    fn events_change_what_they_are_about() {
        let on = MachineState {
            paused: true,
            powered_off: true,
            agent_connected: true,
        };
        let off = MachineState::default();
        let agent =
            |open| json!({ "event": "VSERPORT_CHANGE", "data": { "id": AGENT_ID, "open": open } });
        let cases = [
            (
                off,
                json!({ "event": "STOP" }),
                MachineState {
                    paused: true,
                    ..off
                },
            ),
            (
                on,
                json!({ "event": "RESUME" }),
                MachineState {
                    agent_connected: true,
                    ..off
                },
            ),
            (
                off,
                json!({ "event": "SHUTDOWN" }),
                MachineState {
                    powered_off: true,
                    ..off
                },
            ),
            (
                on,
                json!({ "event": "RESET" }),
                MachineState {
                    agent_connected: false,
                    ..on
                },
            ),
            (
                off,
                agent(true),
                MachineState {
                    agent_connected: true,
                    ..off
                },
            ),
            (
                on,
                agent(false),
                MachineState {
                    agent_connected: false,
                    ..on
                },
            ),
            (
                off,
                json!({ "event": "VSERPORT_CHANGE", "data": { "id": "x", "open": true } }),
                off,
            ),
            (on, json!({ "event": "RTC_CHANGE" }), on),
        ];
        for (before, event, after) in cases {
            assert_eq!(after_event(before, &event), after, "{event}");
        }
    }
}
