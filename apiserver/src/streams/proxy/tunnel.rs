//! After an upgrade: bytes both ways, whatever they mean.
//!
//! Nothing of ours is put between them, neither pings nor a close frame: the frames, and their
//! extensions, are the two sides' own. So a tunnel that is told to end is cut.

use std::{io, time::Duration};

use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split,
    },
    time::timeout,
};

use super::shared::{Shared, now};
use crate::streams::relay::{Connection, End, Pace};

/// Where reading begins: an idle tunnel holds no more than this for each direction.
const FIRST_READ: usize = 1024;
/// The most that is read at once.
const LONGEST_READ: usize = 16 * 1024;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToGuest,
    ToClient,
}

/// Carries bytes until both sides have ended, or one has and the other says nothing for a while.
///
/// # Cancel safety
/// Dropping it drops both connections.
pub(super) async fn carry<C, G>(client: C, guest: G, shared: &Shared, pace: Pace) -> End
where
    C: Connection,
    G: Connection,
{
    let (client, guest) = (split(client), split(guest));
    let to_guest = copy(client.0, guest.1, Way::ToGuest, shared, pace.no_progress);
    let to_client = copy(guest.0, client.1, Way::ToClient, shared, pace.no_progress);
    let (mut to_guest, mut to_client) = (std::pin::pin!(to_guest), std::pin::pin!(to_client));
    let first = tokio::select! {
        end = &mut to_guest => end,
        end = &mut to_client => end,
    };
    let rest = async {
        match first {
            End::ClientGone => to_client.await,
            _ => to_guest.await,
        }
    };
    if matches!(first, End::ClientGone | End::OutputEnded) {
        let _ = timeout(pace.goodbye, rest).await;
    }
    first
}

/// One direction to its end, which the other side is told.
async fn copy<R: AsyncRead, W: AsyncWrite>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    way: Way,
    shared: &Shared,
    limit: Duration,
) -> End {
    let mut buffer = vec![0; FIRST_READ];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => return way.unread(&error),
        };
        match timeout(limit, pass(&mut to, &buffer[..read])).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return way.unwritten(&error),
            Err(_) => return way.stalled(),
        }
        match way {
            Way::ToGuest => shared.traffic.typed(read),
            Way::ToClient => shared.traffic.printed(read),
        }
        shared.traffic.touch(now());
        if read == buffer.len() && read < LONGEST_READ {
            buffer.resize(read * 4, 0);
        }
    }
    let _ = timeout(limit, to.shutdown()).await;
    match way {
        Way::ToGuest => End::ClientGone,
        Way::ToClient => End::OutputEnded,
    }
}

async fn pass<W: AsyncWrite>(to: &mut WriteHalf<W>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

impl Way {
    fn unread(self, error: &io::Error) -> End {
        match self {
            Self::ToGuest => End::ClientGone,
            Self::ToClient => End::UpstreamLost(error.to_string()),
        }
    }

    fn unwritten(self, error: &io::Error) -> End {
        match self {
            Self::ToGuest => End::UpstreamLost(error.to_string()),
            Self::ToClient => End::ClientGone,
        }
    }

    fn stalled(self) -> End {
        match self {
            Self::ToGuest => End::UpstreamLost("it takes no data".into()),
            Self::ToClient => End::ClientStalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// A tunnel and its far ends: the client's, and the guest's.
    fn tunnel() -> (
        DuplexStream,
        DuplexStream,
        Arc<Shared>,
        tokio::task::JoinHandle<End>,
    ) {
        let (client, near_client) = duplex(64);
        let (guest, near_guest) = duplex(64);
        let shared = Arc::new(Shared::new(now()));
        let carried = shared.clone();
        let task =
            tokio::spawn(
                async move { carry(near_client, near_guest, &carried, Pace::default()).await },
            );
        (client, guest, shared, task)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_are_counted() {
        let (mut client, mut guest, shared, task) = tunnel();
        client.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        guest.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        let long = vec![7; 100_000];
        let sent = long.clone();
        let sending = tokio::spawn(async move {
            guest.write_all(&sent).await.unwrap();
            guest
        });
        let mut got = vec![0; long.len()];
        client.read_exact(&mut got).await.unwrap();
        assert!(got == long);
        let counted = (shared.traffic.received(), shared.traffic.sent());
        assert_eq!(counted, (5, 100_000));
        drop(sending.await.unwrap());
        assert_eq!(client.read(&mut read).await.unwrap(), 0);
        drop(client);
        assert_eq!(task.await.unwrap(), End::OutputEnded);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_side_says_after_the_others_end_still_arrives_for_a_while() {
        let (mut client, mut guest, _, task) = tunnel();
        client.shutdown().await.unwrap();
        assert_eq!(guest.read(&mut [0; 1]).await.unwrap(), 0);
        guest.write_all(b"bye").await.unwrap();
        let mut read = [0; 3];
        client.read_exact(&mut read).await.unwrap();
        // It goes on for ever, and is not waited for.
        assert_eq!(task.await.unwrap(), End::ClientGone);
        assert!(guest.write_all(b"x").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_not_waited_for_for_ever() {
        let (_client, mut guest, _, task) = tunnel();
        let flood = async { while guest.write_all(&[0; 64]).await.is_ok() {} };
        let (end, ()) = tokio::join!(task, flood);
        assert_eq!(end.unwrap(), End::ClientStalled);
    }
}
