//! The wire protocol between localvirt and a launcher Pod.
//!
//! TLS on the pod's [`Spec::control_port`](super::spec::Spec::control_port), mutual: the launcher takes only client
//! certificates (EKU clientAuth) of the CA in its Secret, and localvirt verifies the launcher's certificate (EKU
//! serverAuth) under [`server_name`]. So nobody else in the cluster opens a console, and one launcher cannot pose as
//! another. The parts that virt-handler plays in KubeVirt (one session with last wins, `preserveSession`) are here.
//!
//! One connection is one [`Request`]: a line of JSON of at most [`MAX_LINE`] bytes. The launcher answers with one line,
//! a [`Reply`]; after [`Reply::Stream`] both sides are raw bytes until one closes, after [`Reply::Image`] exactly that
//! many bytes follow, after all others the connection ends. Bytes behind the request line already belong to the stream.
//! A stream that is cut (taken over, guest gone) ends without a TLS close_notify, as virt-handler drops its peers.

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest request or reply line, newline included.
pub const MAX_LINE: usize = 4096;

/// The one DNS name in a launcher's certificate.
pub fn server_name(vmi_uid: &str) -> String {
    format!("{vmi_uid}.launcher.localvirt")
}

/// What localvirt asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "op",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Request {
    /// The serial line. The session before it is cut first.
    Console,
    /// The display, RFB 3.8 end to end. The session before it is cut first, or this one refused.
    Vnc {
        /// Refuse with [`Refusal::ActiveVnc`] while there is a session.
        #[serde(default)]
        preserve_session: bool,
    },
    /// How the machine is: [`Reply::Status`].
    Status,
    /// The display as PNG: [`Reply::Image`].
    Screendump,
    /// Does something to the machine: [`Reply::Done`].
    Act {
        /// What.
        action: Action,
    },
}

/// What can be done to a running machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Stop the processors. Pausing a paused machine is done already.
    Pause,
    /// Let them run.
    Unpause,
    /// The reset button.
    Reset,
    /// The power button; the guest decides.
    Powerdown,
    /// The power button, and the guest boots again in the same pod instead of ending (KubeVirt's `softreboot`).
    SoftReboot,
}

/// The launcher's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "reply",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Reply {
    /// Raw bytes follow in both directions.
    Stream,
    /// It is done.
    Done,
    /// How the machine is.
    Status(Status),
    /// This many bytes of PNG follow.
    Image {
        /// Their number.
        length: u64,
    },
    /// It was not done.
    Refused {
        /// Why, for programs.
        refusal: Refusal,
        /// Why, for people.
        message: String,
    },
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// Another vnc session is live and this one asked to preserve it.
    ActiveVnc,
    /// The machine has no such device.
    NoDevice,
    /// The machine does not run yet, or not any more: ask again.
    NotRunning,
    /// The request cannot be read.
    BadRequest,
    /// QEMU said no.
    Failed,
}

/// How the machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// What it does.
    pub phase: Phase,
    /// What it runs on: `kvm` or `tcg`.
    pub accelerator: String,
    /// Whether the guest agent has opened its channel.
    pub agent_connected: bool,
    /// Whether somebody holds the console.
    pub console_active: bool,
    /// Whether somebody holds the display.
    pub vnc_active: bool,
}

/// What a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Disks are prepared, QEMU is not up.
    Starting,
    /// It runs.
    Running,
    /// Its processors stand still.
    Paused,
    /// It was told to power down, or has.
    ShuttingDown,
}

/// What can go wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The connection failed.
    #[error("the launcher connection failed")]
    Io(#[from] std::io::Error),
    /// The connection ended before a line did.
    #[error("the launcher connection ended before a whole line had come")]
    Eof,
    /// The line is longer than [`MAX_LINE`].
    #[error("the line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The line is not the JSON that was expected.
    #[error("the line is not what the protocol expects: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads one line and not a byte more, since the next byte may belong to the stream.
///
/// # Cancel safety
/// None: bytes that were read are lost. Cancel only to drop the connection.
pub async fn read_line<T, R>(from: &mut R) -> Result<T, LineError>
where
    T: serde::de::DeserializeOwned,
    R: AsyncRead + Unpin,
{
    let mut line = Vec::with_capacity(128);
    loop {
        let mut byte = [0];
        if from.read(&mut byte).await? == 0 {
            return Err(LineError::Eof);
        }
        if byte[0] == b'\n' {
            return Ok(serde_json::from_slice(&line)?);
        }
        line.push(byte[0]);
        if line.len() >= MAX_LINE {
            return Err(LineError::TooLong);
        }
    }
}

/// Writes one line and flushes it.
pub async fn write_line<T, W>(to: &mut W, message: &T) -> Result<(), LineError>
where
    T: Serialize,
    W: AsyncWrite + Unpin,
{
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > MAX_LINE {
        return Err(LineError::TooLong);
    }
    to.write_all(&line).await?;
    Ok(to.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json<T: Serialize>(message: &T) -> String {
        serde_json::to_string(message).unwrap()
    }

    #[test]
    fn the_wire_form_is_stable() {
        assert_eq!(json(&Request::Console), r#"{"op":"console"}"#);
        assert_eq!(
            json(&Request::Vnc {
                preserve_session: true
            }),
            r#"{"op":"vnc","preserveSession":true}"#
        );
        assert_eq!(
            json(&Request::Act {
                action: Action::SoftReboot
            }),
            r#"{"op":"act","action":"softReboot"}"#
        );
        assert_eq!(
            json(&Reply::Image { length: 7 }),
            r#"{"reply":"image","length":7}"#
        );
        let refused = Reply::Refused {
            refusal: Refusal::ActiveVnc,
            message: "m".into(),
        };
        assert_eq!(
            json(&refused),
            r#"{"reply":"refused","refusal":"activeVnc","message":"m"}"#
        );
        let status = Status {
            phase: Phase::Paused,
            accelerator: "tcg".into(),
            agent_connected: false,
            console_active: true,
            vnc_active: false,
        };
        let text = json(&Reply::Status(status.clone()));
        assert_eq!(
            serde_json::from_str::<Reply>(&text).unwrap(),
            Reply::Status(status)
        );
    }

    #[tokio::test]
    async fn what_follows_the_line_is_left_for_the_stream() {
        let mut wire: &[u8] = b"{\"op\":\"console\"}\nroot\n";
        assert_eq!(
            read_line::<Request, _>(&mut wire).await.unwrap(),
            Request::Console
        );
        assert_eq!(wire, b"root\n");
    }

    #[tokio::test]
    async fn a_line_is_bounded_and_must_end() {
        let long = vec![b' '; MAX_LINE + 1];
        assert!(matches!(
            read_line::<Request, _>(&mut long.as_slice()).await,
            Err(LineError::TooLong)
        ));
        assert!(matches!(
            read_line::<Request, _>(&mut b"{}".as_slice()).await,
            Err(LineError::Eof)
        ));
        assert!(matches!(
            read_line::<Request, _>(&mut b"{\"op\":\"sing\"}\n".as_slice()).await,
            Err(LineError::Json(_))
        ));
    }
}
