//! An upstream of any kind, read and written as bytes by code of this process that is a client itself.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    liveness::Pace,
    upstream::{Connection, Told, Upstream, UpstreamLeg},
};
use crate::streams::wire::{Input, Output};

/// The most that is taken at once.
const PIECE: usize = 16 * 1024;

impl Upstream {
    /// As a connection. Frames are unwrapped on the way; a sign of life is for whoever uses it to send.
    pub fn into_connection(self) -> Box<dyn Connection> {
        match self {
            Self::Bytes(io, None) => io,
            other => Box::new(Plain {
                leg: UpstreamLeg::new(other, Pace::default()),
                unread: Bytes::new(),
                over: false,
            }),
        }
    }
}

struct Plain {
    leg: UpstreamLeg<Box<dyn Connection>>,
    unread: Bytes,
    over: bool,
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.unread.is_empty() && !this.over {
            match ready!(this.leg.poll_told(cx)).map_err(io::Error::other)? {
                Told::Output(Output::Data(bytes) | Output::Errors(bytes)) => this.unread = bytes,
                Told::Output(Output::Eof | Output::Exit(_)) | Told::Closed(_) | Told::Finished => {
                    this.over = true;
                }
                // A ping, whose answer goes out with the next write or now.
                Told::Nothing => drop(this.leg.poll_write(cx, now())?),
            }
        }
        let take = this.unread.len().min(buffer.remaining());
        buffer.put_slice(&this.unread[..take]);
        this.unread.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.leg.poll_write(cx, now())?;
        if !self.leg.has_room() {
            return Poll::Pending;
        }
        let take = bytes.len().min(PIECE);
        let input = Input::Data(Bytes::copy_from_slice(&bytes[..take]));
        self.leg.give(&input, now())?;
        self.leg.poll_write(cx, now())?;
        Poll::Ready(Ok(take))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.leg.poll_write(cx, now())?;
        match self.leg.is_drained() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Where an end cannot be told alone, dropping the connection tells it.
        self.leg.give(&Input::Eof, now())?;
        self.poll_flush(cx)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::streams::{
        frame::{Decoder, Event, Opcode, Peer, encode},
        wire::UpstreamWire,
    };

    #[tokio::test]
    async fn a_websocket_is_bytes_both_ways() {
        let (ours, mut theirs) = duplex(64 * 1024);
        let upstream = Upstream::frames(ours, UpstreamWire::GuestPort);
        let mut plain = upstream.into_connection();
        let mut sent = BytesMut::new();
        encode(&mut sent, Opcode::Binary, None, &[b"SSH-"]);
        encode(&mut sent, Opcode::Ping, None, &[b"?"]);
        encode(&mut sent, Opcode::Binary, None, &[b"2.0"]);
        theirs.write_all(&sent).await.unwrap();
        let mut read = [0; 7];
        plain.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"SSH-2.0");
        plain.write_all(b"hello").await.unwrap();
        plain.flush().await.unwrap();
        let (mut decoder, mut typed, mut ponged) = (Decoder::new(Peer::Client), Vec::new(), false);
        while typed != b"hello" || !ponged {
            theirs.read_buf(decoder.buffer()).await.unwrap();
            while let Some(event) = decoder.event().unwrap() {
                match event {
                    Event::Piece(piece) => typed.extend_from_slice(&piece.payload),
                    Event::Pong => ponged = true,
                    other => panic!("{other:?}"),
                }
            }
        }
        drop(theirs);
        assert_eq!(plain.read(&mut read).await.unwrap(), 0);
    }
}
