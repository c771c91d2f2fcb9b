//! The channels of `v5.channel.k8s.io` and `v4.channel.k8s.io`: the first byte of each binary message names one.
//!
//! Source: `k8s.io/apimachinery/pkg/util/remotecommand/constants.go`, `k8s.io/client-go/tools/remotecommand/v5.go`.
//! Entry points: [`frame`], [`read`].

use bytes::Bytes;
use serde::Deserialize;

/// What we type.
pub const STDIN: u8 = 0;
/// The size of our terminal.
pub const RESIZE: u8 = 4;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// v5 only: the channel named by the second byte is closed.
const CLOSE: u8 = 255;

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// For standard output.
    Output(Bytes),
    /// For standard error.
    Error(Bytes),
    /// The command has ended.
    Exit(Exit),
    /// Nothing for us.
    Nothing,
}

/// How a remote command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// It was not run, or not to its end.
    Failed(String),
}

/// A message for one channel.
pub fn frame(channel: u8, bytes: &[u8]) -> Bytes {
    [&[channel], bytes].concat().into()
}

/// The size of our terminal, as client-go writes it.
pub fn resize(columns: u16, rows: u16) -> Bytes {
    frame(
        RESIZE,
        format!("{{\"Width\":{columns},\"Height\":{rows}}}").as_bytes(),
    )
}

/// v5: nothing more will be typed.
pub fn close_stdin() -> Bytes {
    Bytes::from_static(&[CLOSE, STDIN])
}

/// Takes a message apart.
pub fn read(message: &Bytes) -> FromServer {
    match message.first() {
        Some(&STDOUT) => FromServer::Output(message.slice(1..)),
        Some(&STDERR) => FromServer::Error(message.slice(1..)),
        Some(&STATUS) => FromServer::Exit(exit(&message[1..])),
        _ => FromServer::Nothing,
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// A `metav1.Status`; `NonZeroExitCode` has the code in a cause.
fn exit(json: &[u8]) -> Exit {
    let Ok(status) = serde_json::from_slice::<Status>(json) else {
        return Exit::Failed(String::from_utf8_lossy(json).into_owned());
    };
    if status.status == "Success" {
        return Exit::Code(0);
    }
    let code = status
        .details
        .causes
        .iter()
        .find(|cause| cause.reason == "ExitCode");
    match code.and_then(|cause| cause.message.parse::<i64>().ok()) {
        // a shell shows the low byte too; 0 here would hide the failure
        Some(code) if status.reason == "NonZeroExitCode" => {
            Exit::Code(u8::try_from(code & 0xff).unwrap_or(1).max(1))
        }
        _ => Exit::Failed(status.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_where_their_first_byte_says() {
        let cases: &[(&[u8], FromServer)] = &[
            (b"\x01out", FromServer::Output("out".into())),
            (b"\x02err", FromServer::Error("err".into())),
            (b"\x01", FromServer::Output(Bytes::new())),
            (b"\xff\x01", FromServer::Nothing),
            (b"\x09x", FromServer::Nothing),
            (b"", FromServer::Nothing),
        ];
        for (message, expected) in cases {
            assert_eq!(read(&Bytes::from_static(message)), *expected);
        }
    }

    #[test]
    fn the_exit_status_of_the_shell_is_ours() {
        let failure = |code: &str| {
            format!(
                r#"{{"status":"Failure","reason":"NonZeroExitCode","message":"m","details":{{"causes":[{{"reason":"ExitCode","message":"{code}"}}]}}}}"#
            )
        };
        let cases = [
            (
                r#"{"metadata":{},"status":"Success"}"#.to_owned(),
                Exit::Code(0),
            ),
            (failure("3"), Exit::Code(3)),
            (failure("137"), Exit::Code(137)),
            (failure("256"), Exit::Code(1)),
            (failure("x"), Exit::Failed("m".into())),
            (
                r#"{"status":"Failure","message":"no such container"}"#.to_owned(),
                Exit::Failed("no such container".into()),
            ),
            ("not json".to_owned(), Exit::Failed("not json".into())),
        ];
        for (json, expected) in cases {
            assert_eq!(
                read(&frame(STATUS, json.as_bytes())),
                FromServer::Exit(expected),
                "{json}"
            );
        }
    }

    #[test]
    fn what_we_send_has_the_form_that_servers_read() {
        assert_eq!(frame(STDIN, b"ls\n"), &b"\x00ls\n"[..]);
        assert_eq!(resize(80, 24), &b"\x04{\"Width\":80,\"Height\":24}"[..]);
        assert_eq!(close_stdin(), &b"\xff\x00"[..]);
    }
}
