//! What the scripts do with a stream.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

use super::{Script, board::Board, display};

/// The first line of a console that echoes.
pub(super) const GREETING: &[u8] =
    b"localvirt: there is no guest here, and what you type comes back\r\n";
/// One read.
const CHUNK: usize = 4 << 10;

/// A console, until its other end goes.
pub(super) async fn console(script: Script, mut stream: DuplexStream, board: Arc<Board>) {
    if script == Script::Echo {
        runs(&board).await;
        if stream.write_all(GREETING).await.is_err() {
            return;
        }
    }
    port(script, stream, &board).await;
}

/// A port: the same without a greeting, since what comes back is compared with what was sent.
pub(super) async fn port(script: Script, stream: DuplexStream, board: &Board) {
    let (mut read, mut write) = tokio::io::split(stream);
    match script {
        Script::Echo => echo(&mut read, &mut write, board).await,
        Script::Flood => tokio::select! {
            () = flood(&mut write, board) => {}
            () = swallow(&mut read) => {}
        },
        Script::Silent => swallow(&mut read).await,
    }
}

/// A display, until its other end goes.
pub(super) async fn display(script: Script, mut stream: DuplexStream, board: Arc<Board>) {
    match script {
        Script::Silent => swallow(&mut stream).await,
        Script::Echo | Script::Flood => {
            // Whatever ended it, the stream is over.
            let _ = display::serve(&mut stream, &board, script == Script::Flood).await;
        }
    }
}

/// Waits while the machine is paused.
pub(super) async fn runs(board: &Board) {
    // The board outlives its streams.
    let _ = board.paused.subscribe().wait_for(|paused| !paused).await;
}

async fn echo<R, W>(read: &mut R, write: &mut W, board: &Board)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = read.read(&mut buffer).await {
        runs(board).await;
        if write.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Numbered lines, so that a reader sees what is missing.
async fn flood<W: AsyncWrite + Unpin>(write: &mut W, board: &Board) {
    let mut number = 0_u64;
    loop {
        runs(board).await;
        let mut lines = String::with_capacity(CHUNK);
        while lines.len() < CHUNK {
            lines.push_str(&format!("{number:012}\r\n"));
            number += 1;
        }
        if write.write_all(lines.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn swallow<R: AsyncRead + Unpin>(read: &mut R) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(1..) = read.read(&mut buffer).await {}
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::{guestless::Guestless, launcher::protocol::Request};

    async fn console(script: Script) -> Box<dyn crate::dial::Duplex> {
        let machines = Guestless::default();
        machines.boot("uid", false);
        machines
            .ask("uid", script, &Request::Console)
            .await
            .unwrap()
            .stream
    }

    #[tokio::test]
    async fn an_echo_greets_and_sends_back_every_byte() {
        let mut stream = console(Script::Echo).await;
        let mut greeting = vec![0; GREETING.len()];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting, GREETING);
        let sent: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let (mut read, mut write) = tokio::io::split(stream);
        let writing = tokio::spawn({
            let sent = sent.clone();
            async move { write.write_all(&sent).await.unwrap() }
        });
        let mut back = vec![0; sent.len()];
        read.read_exact(&mut back).await.unwrap();
        writing.await.unwrap();
        assert_eq!(back, sent);
    }

    #[tokio::test]
    async fn a_flood_is_numbered_without_a_gap() {
        let mut stream = console(Script::Flood).await;
        let mut lines = vec![0; 14 * 1_000];
        stream.read_exact(&mut lines).await.unwrap();
        for (number, line) in lines.chunks(14).enumerate() {
            assert_eq!(line, format!("{number:012}\r\n").as_bytes());
        }
    }

    #[tokio::test]
    async fn a_silent_one_takes_everything() {
        let (mut near, mut far) = duplex(64);
        let swallowing = tokio::spawn(async move { swallow(&mut far).await });
        near.write_all(&[7; 10_000]).await.unwrap();
        drop(near);
        swallowing.await.unwrap();
    }
}
