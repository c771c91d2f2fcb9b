//! Reads a terminal's first message off the WebSocket, straight into a buffer that is wiped.
//!
//! The relay's decoder keeps what it has read until it needs the room; this one reads each frame to
//! its last byte and not one further, so that the key is nowhere else and the relay finds the
//! connection where the message ended. Entry point: [`message`].

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

use super::hello::LONGEST;
use crate::streams::frame::{Head, Opcode, Violation, encode, parse_head, unmask};

/// The longest head of a frame (RFC 6455 §5.2).
const LONGEST_HEAD: usize = 14;
/// The longest payload of a control frame (§5.5).
const LONGEST_CONTROL: usize = 125;
/// How many frames may make up the message, pings between them included.
const MOST_FRAMES: usize = 1_000;

/// Why there is no first message.
#[derive(Debug, thiserror::Error)]
pub enum NoMessage {
    /// The client said goodbye.
    #[error("the client closed the stream before its first message")]
    Closed,
    /// The client's connection broke.
    #[error("the client went away before its first message: {0}")]
    Gone(#[from] std::io::Error),
    /// The client broke the protocol.
    #[error("{0}")]
    Violation(#[from] Violation),
    /// It is bytes.
    #[error("the first message must be a text frame that says who logs in, not bytes")]
    NotText,
    /// It does not fit.
    #[error("the first message is longer than {LONGEST} bytes")]
    TooLong,
}

/// The next message, if it is text of at most [`LONGEST`] bytes.
///
/// # Errors
/// Why there is none. Nothing that was read is kept.
///
/// # Cancel safety
/// None: a stream whose first message was not read to its end cannot go on.
pub async fn message<IO>(io: &mut IO) -> Result<Zeroizing<Vec<u8>>, NoMessage>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    // With all its room from the start: growing would leave copies behind.
    let mut message = Zeroizing::new(Vec::with_capacity(LONGEST));
    let mut begun = false;
    for _ in 0..MOST_FRAMES {
        let head = head(io).await?;
        if head.mask.is_none() {
            return Err(Violation("frames from a client must be masked").into());
        }
        match head.opcode {
            Opcode::Ping | Opcode::Pong | Opcode::Close => control(io, &head).await?,
            Opcode::Binary => return Err(NoMessage::NotText),
            Opcode::Text if begun => {
                return Err(Violation("a new message inside a fragmented one").into());
            }
            Opcode::Continuation if !begun => {
                return Err(Violation("a continuation without a message to continue").into());
            }
            Opcode::Text | Opcode::Continuation => {
                begun = true;
                append(io, &head, &mut message).await?;
                if head.fin {
                    return Ok(message);
                }
            }
        }
    }
    Err(Violation("the first message is in too many frames").into())
}

async fn head<IO: AsyncRead + Unpin>(io: &mut IO) -> Result<Head, NoMessage> {
    let mut bytes = [0; LONGEST_HEAD];
    for have in 1..=LONGEST_HEAD {
        bytes[have - 1] = io.read_u8().await?;
        if let Some((head, _)) = parse_head(&bytes[..have])? {
            return Ok(head);
        }
    }
    Err(Violation("a frame without end of its head").into())
}

async fn append<IO: AsyncRead + Unpin>(
    io: &mut IO,
    head: &Head,
    message: &mut Zeroizing<Vec<u8>>,
) -> Result<(), NoMessage> {
    let start = message.len();
    let room = LONGEST - start;
    let length = usize::try_from(head.length).ok().filter(|n| *n <= room);
    let length = length.ok_or(NoMessage::TooLong)?;
    message.resize(start + length, 0);
    let payload = &mut message[start..];
    io.read_exact(payload).await?;
    unmask(payload, head.mask, 0);
    Ok(())
}

async fn control<IO>(io: &mut IO, head: &Head) -> Result<(), NoMessage>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    if !head.fin {
        return Err(Violation("a control frame must not be fragmented").into());
    }
    let mut payload = [0; LONGEST_CONTROL];
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    let Some(payload) = payload.get_mut(..length) else {
        return Err(Violation("a control frame is longer than 125 bytes").into());
    };
    io.read_exact(payload).await?;
    unmask(payload, head.mask, 0);
    match head.opcode {
        Opcode::Close => Err(NoMessage::Closed),
        Opcode::Ping => {
            let mut pong = BytesMut::new();
            encode(&mut pong, Opcode::Pong, None, &[payload]);
            io.write_all(&pong).await?;
            Ok(io.flush().await?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// A frame of a client.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        encode(&mut bytes, Opcode::Binary, Some([1, 2, 3, 4]), &[payload]);
        bytes[0] = first;
        bytes.to_vec()
    }

    async fn read(sent: &[u8]) -> (Result<String, String>, Vec<u8>, Vec<u8>) {
        let (mut ours, mut theirs) = duplex(64 * 1024);
        theirs.write_all(sent).await.unwrap();
        let (mut rest, mut answered) = (Vec::new(), Vec::new());
        let result = message(&mut ours).await;
        let result = result
            .map(|m| String::from_utf8(m.to_vec()).unwrap())
            .map_err(|error| error.to_string());
        let (mut reading, mut writing) = tokio::io::split(theirs);
        writing.shutdown().await.unwrap();
        ours.read_to_end(&mut rest).await.unwrap();
        drop(ours);
        reading.read_to_end(&mut answered).await.unwrap();
        (result, rest, answered)
    }

    #[tokio::test]
    async fn a_message_is_read_to_its_last_byte_and_not_further() {
        let sent = [
            frame(0x89, b"are you there"),
            frame(0x01, b"{\"type\""),
            frame(0x8a, b""),
            frame(0x80, b":1}"),
            frame(0x82, b"typed"),
        ]
        .concat();
        let (message, rest, answered) = read(&sent).await;
        assert_eq!(message.as_deref(), Ok("{\"type\":1}"));
        assert_eq!(rest, frame(0x82, b"typed"));
        assert_eq!(answered, [&[0x8a, 13][..], b"are you there"].concat());
    }

    #[tokio::test]
    async fn the_longest_message_fits_and_a_longer_one_does_not() {
        let long = "x".repeat(LONGEST);
        let (message, _, _) = read(&frame(0x81, long.as_bytes())).await;
        assert_eq!(message, Ok(long.clone()));
        let parts = [frame(0x01, long.as_bytes()), frame(0x80, b"x")].concat();
        let (message, _, _) = read(&parts).await;
        assert_eq!(
            message,
            Err("the first message is longer than 16384 bytes".into())
        );
        let mut endless = frame(0x81, b"");
        endless[1] = 0xff;
        endless.splice(2..2, [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        let (message, _, _) = read(&endless).await;
        assert_eq!(
            message,
            Err("the first message is longer than 16384 bytes".into())
        );
    }

    #[tokio::test]
    async fn what_is_no_message_says_why() {
        let unmasked = b"\x81\x02{}".to_vec();
        for (sent, why) in [
            (frame(0x82, b"ls"), "not bytes"),
            (frame(0x80, b"x"), "continuation"),
            ([frame(0x01, b"x"), frame(0x01, b"y")].concat(), "inside"),
            (frame(0x88, b"\x03\xe8"), "closed the stream"),
            (frame(0x09, b""), "fragmented"),
            (frame(0x89, &[0; 126]), "125"),
            (frame(0xc1, b"x"), "reserved"),
            (unmasked, "masked"),
            (
                [frame(0x01, b""), frame(0x00, b"").repeat(1_000)].concat(),
                "too many frames",
            ),
        ] {
            let (message, _, _) = read(&sent).await;
            let error = message.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let (mut ours, theirs) = duplex(64);
        drop(theirs);
        assert!(matches!(message(&mut ours).await, Err(NoMessage::Gone(_))));
    }
}
