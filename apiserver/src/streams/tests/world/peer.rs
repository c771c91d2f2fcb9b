//! What a peer of the server reads.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::CloseFrame},
};

use super::SOON;

/// The next data of a peer, in one piece of this length.
pub(in crate::streams::tests) async fn data<S>(
    peer: &mut WebSocketStream<S>,
    length: usize,
) -> Vec<u8>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut all = Vec::new();
    while all.len() < length {
        match next(peer).await {
            Some(Message::Binary(bytes)) => all.extend_from_slice(&bytes),
            Some(Message::Ping(_) | Message::Pong(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

/// The close that a peer gets.
pub(in crate::streams::tests) async fn closed<S>(
    peer: &mut WebSocketStream<S>,
) -> Option<CloseFrame>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match next(peer).await {
            Some(Message::Close(frame)) => return frame,
            Some(_) => {}
            None => return None,
        }
    }
}

async fn next<S>(peer: &mut WebSocketStream<S>) -> Option<Message>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    use futures::StreamExt as _;
    let next = tokio::time::timeout(SOON, peer.next()).await.unwrap();
    next.and_then(Result::ok)
}
