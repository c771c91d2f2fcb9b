//! The serial line: the launcher holds QEMU's one connection, and lends it to one session at a time.
//!
//! Without a session the guest's output is read and dropped, so a guest never waits for somebody to look. With one, the
//! guest waits for a slow reader, as on a real line, but only for [`STALL`]: then the session is cut.
//! Entry point: [`Serial::start`].

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::session::{Session, Slot};

/// How long a session may take nothing while the guest has output.
pub const STALL: Duration = Duration::from_secs(10);
/// What virt-handler reads at once.
const CHUNK: usize = 32 << 10;
/// Chunks under way in each direction.
const QUEUE: usize = 8;

/// The guest's serial line.
#[derive(Clone, Debug)]
pub struct Serial {
    slot: Slot,
    input: mpsc::Sender<Bytes>,
    listener: Listener,
    stall: Duration,
}

/// Who hears the guest now.
type Listener = Arc<Mutex<Option<mpsc::Sender<Bytes>>>>;

impl Serial {
    /// Serves the line on QEMU's connection until QEMU closes it. A session that takes nothing for `stall` ([`STALL`]
    /// but for tests) is cut; `log` hears all output too, as far as it keeps up.
    pub fn start(
        connection: UnixStream,
        stall: Duration,
        log: Option<mpsc::Sender<Bytes>>,
    ) -> Self {
        let (read, write) = connection.into_split();
        let (input, queue) = mpsc::channel(QUEUE);
        let listener = Listener::default();
        tokio::spawn(hear(read, listener.clone(), log));
        tokio::spawn(speak(write, queue));
        Self {
            slot: Slot::default(),
            input,
            listener,
            stall,
        }
    }

    /// The place of the one session.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Joins `stream` to the line until either ends, or the session is cut.
    pub async fn attach<S>(&self, session: Session, stream: &mut S)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (heard, mut output) = mpsc::channel(QUEUE);
        *self.listener.lock() = Some(heard);
        let (mut read, mut write) = tokio::io::split(stream);
        tokio::select! {
            () = to_client(&mut output, &mut write, self.stall) => {}
            () = to_guest(&mut read, &self.input) => {}
            () = session.cut() => {}
        }
        self.listener.lock().take();
        drop(session);
    }
}

/// Ends when the client is gone, or takes nothing for `stall`.
async fn to_client<W: AsyncWrite + Unpin>(
    output: &mut mpsc::Receiver<Bytes>,
    write: &mut W,
    stall: Duration,
) {
    while let Some(mut chunk) = output.recv().await {
        while chunk.has_remaining() {
            match tokio::time::timeout(stall, write.write_buf(&mut chunk)).await {
                Ok(Ok(written)) if written > 0 => {}
                Ok(_) => return,
                Err(_) => {
                    return tracing::info!(
                        "a console client took nothing for {stall:?} and is cut"
                    );
                }
            }
        }
        if !matches!(tokio::time::timeout(stall, write.flush()).await, Ok(Ok(()))) {
            return;
        }
    }
}

async fn to_guest<R: AsyncRead + Unpin>(read: &mut R, input: &mpsc::Sender<Bytes>) {
    let mut buffer = BytesMut::new();
    while let Some(chunk) = read_chunk(read, &mut buffer).await {
        if input.send(chunk).await.is_err() {
            return;
        }
    }
}

/// Reads the guest's output for whoever listens; an end of it ends the session.
async fn hear(mut read: OwnedReadHalf, listener: Listener, log: Option<mpsc::Sender<Bytes>>) {
    let mut buffer = BytesMut::new();
    while let Some(chunk) = read_chunk(&mut read, &mut buffer).await {
        if let Some(log) = &log {
            // the log is a help, not a promise: what it cannot take is dropped
            let _ = log.try_send(chunk.clone());
        }
        let client = listener.lock().clone();
        if let Some(client) = client {
            // a session that has ended hears nothing more, and its successor starts with what comes next
            let _ = client.send(chunk).await;
        }
    }
    listener.lock().take();
}

async fn speak(mut write: OwnedWriteHalf, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(chunk) = queue.recv().await {
        if write.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

/// The next bytes, or `None` at the end of them.
async fn read_chunk<R: AsyncRead + Unpin>(read: &mut R, buffer: &mut BytesMut) -> Option<Bytes> {
    buffer.reserve(CHUNK);
    match read.read_buf(buffer).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(buffer.split().freeze()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// A line, the guest's end of it, and a session's client end.
    async fn attached(serial: &Serial) -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>) {
        let (ours, mut theirs) = duplex(64);
        let serial = serial.clone();
        let session = serial.slot().take().await;
        let relay = tokio::spawn(async move { serial.attach(session, &mut theirs).await });
        (ours, relay)
    }

    async fn exchange(
        from: &mut (impl AsyncWrite + Unpin),
        to: &mut (impl AsyncRead + Unpin),
        bytes: &[u8],
    ) {
        from.write_all(bytes).await.unwrap();
        let mut got = vec![0; bytes.len()];
        to.read_exact(&mut got).await.unwrap();
        assert_eq!(got, bytes);
    }

    #[tokio::test]
    async fn the_last_session_has_the_line_and_the_first_is_cut() {
        let (line, mut guest) = UnixStream::pair().unwrap();
        let serial = Serial::start(line, STALL, None);
        let (mut first, first_relay) = attached(&serial).await;
        exchange(&mut first, &mut guest, b"a").await;
        exchange(&mut guest, &mut first, b"login: ").await;
        let (mut second, _relay) = attached(&serial).await;
        first_relay.await.unwrap();
        assert_eq!(first.read(&mut [0; 8]).await.unwrap(), 0);
        exchange(&mut guest, &mut second, b"again").await;
        exchange(&mut second, &mut guest, b"b").await;
    }

    #[tokio::test]
    async fn a_guest_never_waits_while_nobody_listens() {
        let (line, mut guest) = UnixStream::pair().unwrap();
        let serial = Serial::start(line, STALL, None);
        guest.write_all(&vec![b'x'; 8 << 20]).await.unwrap();
        let (mut client, _relay) = attached(&serial).await;
        exchange(&mut client, &mut guest, b"still here").await;
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_cut_and_the_guest_goes_on() {
        let (line, mut guest) = UnixStream::pair().unwrap();
        let serial = Serial::start(line, Duration::from_millis(20), None);
        let (_stuck, relay) = attached(&serial).await;
        guest.write_all(&vec![b'x'; 8 << 20]).await.unwrap();
        relay.await.unwrap();
        assert!(!serial.slot().is_held());
    }

    #[tokio::test]
    async fn the_end_of_the_guest_ends_the_session() {
        let (line, guest) = UnixStream::pair().unwrap();
        let serial = Serial::start(line, STALL, None);
        let (mut client, relay) = attached(&serial).await;
        drop(guest);
        relay.await.unwrap();
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn the_log_hears_what_no_session_does() {
        let (line, mut guest) = UnixStream::pair().unwrap();
        let (log, mut logged) = mpsc::channel(4);
        let _serial = Serial::start(line, STALL, Some(log));
        guest.write_all(b"boot").await.unwrap();
        assert_eq!(logged.recv().await.unwrap(), "boot");
    }
}
