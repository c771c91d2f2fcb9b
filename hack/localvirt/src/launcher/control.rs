//! The control endpoint: one request per TLS connection, as [`super::protocol`] describes.
//!
//! Entry point: [`serve`].

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::machine::{Machine, MachineError};
use super::protocol::{LineError, Refusal, Reply, Request, read_line, write_line};

/// Connections at a time; localvirt needs a handful.
const CONNECTIONS: usize = 64;
/// From accept to the end of the request line.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Serves `machine` until the task is dropped.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, machine: Arc<Machine>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // closed never: the semaphore lives as long as this loop
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let Ok((connection, peer)) = listener.accept().await else {
            // out of files: let some connections end first
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, machine) = (acceptor.clone(), machine.clone());
        tokio::spawn(async move {
            if let Err(e) = converse(connection, acceptor, &machine).await {
                tracing::info!(%peer, error = %e, "a control connection failed");
            }
            drop(place);
        });
    }
}

async fn converse(
    connection: TcpStream,
    acceptor: TlsAcceptor,
    machine: &Machine,
) -> Result<(), LineError> {
    connection.set_nodelay(true)?;
    let greet = async {
        let mut stream = acceptor.accept(connection).await?;
        let request = read_line::<Request, _>(&mut stream).await;
        Ok::<_, LineError>((stream, request))
    };
    let late = |_| LineError::Io(std::io::ErrorKind::TimedOut.into());
    let (mut stream, request) = tokio::time::timeout(REQUEST_TIME, greet)
        .await
        .map_err(late)??;
    match request {
        Ok(request) => answer(&mut stream, request, machine).await,
        Err(e @ (LineError::Json(_) | LineError::TooLong)) => {
            finish(&mut stream, &refused(Refusal::BadRequest, &e)).await
        }
        Err(e) => Err(e),
    }
}

/// Answers one request; streams end abruptly, when `stream` is dropped.
async fn answer<S>(stream: &mut S, request: Request, machine: &Machine) -> Result<(), LineError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match request {
        Request::Console => match machine.serial() {
            Ok(serial) => {
                let session = serial.slot().take().await;
                write_line(stream, &Reply::Stream).await?;
                serial.attach(session, stream).await;
                Ok(())
            }
            Err(e) => finish(stream, &refused(e.refusal(), &e)).await,
        },
        Request::Vnc { preserve_session } => vnc(stream, machine, preserve_session).await,
        Request::Status => finish(stream, &Reply::Status(machine.status())).await,
        Request::Screendump => match machine.screendump().await {
            Ok(picture) => {
                write_line(
                    stream,
                    &Reply::Image {
                        length: picture.len() as u64,
                    },
                )
                .await?;
                stream.write_all(&picture).await?;
                Ok(stream.shutdown().await?)
            }
            Err(e) => finish(stream, &refused(e.refusal(), &e)).await,
        },
        Request::Act { action } => finish(stream, &done(machine.act(action).await)).await,
    }
}

async fn vnc<S>(stream: &mut S, machine: &Machine, preserve: bool) -> Result<(), LineError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (slot, socket) = match machine.display() {
        Ok(display) => display,
        Err(e) => return finish(stream, &refused(e.refusal(), &e)).await,
    };
    let session = match preserve {
        false => slot.take().await,
        true => match slot.take_free() {
            Ok(session) => session,
            // KubeVirt's words
            Err(_) => {
                return finish(
                    stream,
                    &refused(
                        Refusal::ActiveVnc,
                        &"Active VNC connection. Request denied.",
                    ),
                )
                .await;
            }
        },
    };
    let mut display = match UnixStream::connect(socket).await {
        Ok(display) => display,
        Err(e) => {
            return finish(
                stream,
                &refused(
                    Refusal::Failed,
                    &format!("QEMU's display does not answer: {e}"),
                ),
            )
            .await;
        }
    };
    write_line(stream, &Reply::Stream).await?;
    tokio::select! {
        // either side's failure is the session's end
        _ = tokio::io::copy_bidirectional(stream, &mut display) => {}
        () = session.cut() => {}
    }
    Ok(())
}

fn done(result: Result<(), MachineError>) -> Reply {
    match result {
        Ok(()) => Reply::Done,
        Err(e) => refused(e.refusal(), &e),
    }
}

fn refused(refusal: Refusal, message: &dyn std::fmt::Display) -> Reply {
    Reply::Refused {
        refusal,
        message: message.to_string(),
    }
}

/// Answers and closes in the orderly way.
async fn finish<S: AsyncWrite + Unpin>(stream: &mut S, reply: &Reply) -> Result<(), LineError> {
    write_line(stream, reply).await?;
    Ok(stream.shutdown().await?)
}
