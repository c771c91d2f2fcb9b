//! A shell on a terminal of the guest, as one end of a pipe in this process.
//!
//! One task carries it, with a bounded buffer each way. When our end of the pipe is shut down or
//! dropped it says goodbye to the guest; when the guest ends it reports how, if the guest said so,
//! and closes its end. After that nothing of it is left. A guest that reads nothing is cut off once
//! the sender of sizes is dropped: until then what was typed may still get there.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::{
    Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect, Sig,
    client::{Handle, Msg},
};
use tokio::{
    io::{
        AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf, duplex, split,
    },
    sync::{oneshot, watch},
    time::timeout,
};
use tokio_util::{sync::DropGuard, task::TaskTracker};

use super::{guest::Door, trouble::said};
use crate::streams::wire::{Exit, Size};

/// What waits in the pipe, each way.
const PIPE: usize = 16 * 1024;
/// The most that is typed at once: the library queues ten of these for a guest that is slow.
const PIECE: usize = 4 * 1024;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A live shell.
#[derive(Debug)]
pub struct Shell {
    /// What is typed and what is printed.
    pub io: DuplexStream,
    /// The size of the terminal.
    pub sizes: watch::Sender<Option<Size>>,
    /// How it ended, after everything that was printed; nothing if the connection broke.
    pub exit: oneshot::Receiver<Exit>,
}

/// A shell that was opened a moment ago.
pub(super) struct ShellParts {
    pub(super) handle: Handle<Door>,
    pub(super) channel: Channel<Msg>,
    /// Cuts the connection at last.
    pub(super) knife: DropGuard,
    /// What goes before everything else that is printed.
    pub(super) greeting: Vec<u8>,
}

/// The other ends of a [`Shell`].
struct Ends {
    io: DuplexStream,
    sizes: watch::Receiver<Option<Size>>,
    exit: oneshot::Sender<Exit>,
}

/// How the typing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    /// The guest has it all.
    All,
    /// The guest does not take it, and nobody waits for that any more.
    GivenUp,
}

impl ShellParts {
    pub(super) fn start(self, tasks: &TaskTracker) -> Shell {
        let (io, theirs) = duplex(PIPE);
        let (sizes, resized) = watch::channel(None);
        let (exited, exit) = oneshot::channel();
        let ends = Ends {
            io: theirs,
            sizes: resized,
            exit: exited,
        };
        tasks.spawn(self.carry(ends));
        Shell { io, sizes, exit }
    }

    async fn carry(self, ends: Ends) {
        let Self {
            mut handle,
            channel,
            knife,
            greeting,
        } = self;
        let (typed, mut printed) = split(ends.io);
        let (mut read, write) = channel.split();
        let (exit, entered) = tokio::select! {
            exit = print(&greeting, &mut read, &mut printed) => (exit, Entered::All),
            entered = enter(typed, ends.sizes, &write) => (None, entered),
        };
        let goodbye = async {
            // First, so that a library that waits for us to read goes on.
            drop(read);
            let _ = write.close().await;
            drop(write);
            let _ = handle.disconnect(Disconnect::ByApplication, "", "").await;
            let _ = (&mut handle).await;
        };
        if entered == Entered::All {
            let _ = timeout(GOODBYE, goodbye).await;
        }
        drop(knife);
        if let Some(exit) = exit {
            let _ = ends.exit.send(exit);
        }
        // The other half is gone already: whoever reads the pipe now reads its end.
        drop(printed);
    }
}

/// Passes on what is printed until the session ends. `None`: the connection broke, or nobody reads.
async fn print<IO: AsyncWrite + Unpin>(
    greeting: &[u8],
    read: &mut ChannelReadHalf,
    printed: &mut IO,
) -> Option<Exit> {
    printed.write_all(greeting).await.ok()?;
    let mut exit = None;
    loop {
        match read.wait().await? {
            ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. } => {
                printed.write_all(&data).await.ok()?;
            }
            ChannelMsg::ExitStatus { exit_status } => {
                exit = Some(Exit::Code(exit_status.cast_signed()));
            }
            ChannelMsg::ExitSignal {
                signal_name,
                core_dumped,
                error_message,
                ..
            } => exit = Some(signal(&signal_name, core_dumped, &error_message)),
            ChannelMsg::Close => return Some(exit.unwrap_or_else(unexplained)),
            _ => {}
        }
    }
}

fn unexplained() -> Exit {
    Exit::Failed("the guest closed the session without an exit status".to_owned())
}

fn signal(name: &Sig, core_dumped: bool, message: &str) -> Exit {
    let name = match name {
        Sig::Custom(name) => said(name),
        known => format!("{known:?}"),
    };
    let message = match message.trim() {
        "" => String::new(),
        message => said(message),
    };
    Exit::Signal {
        name,
        core_dumped,
        message,
    }
}

/// Passes on what is typed until nothing more will be. If the session is gone it only waits: how it
/// ended is for the other direction to say.
async fn enter(
    mut typed: ReadHalf<DuplexStream>,
    mut sizes: watch::Receiver<Option<Size>>,
    write: &ChannelWriteHalf<Msg>,
) -> Entered {
    let (mut buffer, senders) = (BytesMut::new(), sizes.clone());
    loop {
        buffer.reserve(PIECE);
        let size = tokio::select! {
            biased;
            Ok(()) = sizes.changed() => Some(*sizes.borrow_and_update()),
            read = typed.read_buf(&mut buffer) => match read {
                Ok(0) | Err(_) => return Entered::All,
                Ok(_) => None,
            }
        };
        let sending = async {
            match size {
                Some(size) => resize(write, size).await,
                None => data(write, buffer.split().freeze()).await,
            }
        };
        let sent = tokio::select! {
            biased;
            sent = sending => sent,
            () = abandoned(senders.clone()) => return Entered::GivenUp,
        };
        if sent.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Whoever had the shell has dropped it.
async fn abandoned(mut sizes: watch::Receiver<Option<Size>>) {
    while sizes.changed().await.is_ok() {}
}

async fn resize(write: &ChannelWriteHalf<Msg>, size: Option<Size>) -> Result<(), russh::Error> {
    match size {
        Some(Size { cols, rows }) => write.window_change(cols.into(), rows.into(), 0, 0).await,
        None => Ok(()),
    }
}

async fn data(write: &ChannelWriteHalf<Msg>, mut bytes: Bytes) -> Result<(), russh::Error> {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        write.data_bytes(piece).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_keep_their_names_and_lose_their_escapes() {
        let exit = signal(&Sig::TERM, false, "");
        let Exit::Signal { name, message, .. } = exit else {
            panic!("{exit:?}");
        };
        assert_eq!((name.as_str(), message.as_str()), ("TERM", ""));
        let exit = signal(&Sig::Custom("WINCH\x1b[0m".into()), true, "a\nb");
        assert_eq!(
            exit,
            Exit::Signal {
                name: "WINCH [0m".into(),
                core_dumped: true,
                message: "a b".into()
            }
        );
    }
}
