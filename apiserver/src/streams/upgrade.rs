//! From the 101 to the client's connection.
//!
//! The connection is ours only when the client has been sent the whole 101. Until then the claim may be
//! taken over or ended by somebody: the upstream and the name are freed at once, and the client, who
//! believes that it has a stream, is told the reason as soon as it can be.

use std::{future::Future, sync::Arc, time::Duration};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{
    close::CloseReason,
    relay::{ClientSide, Connection, Limits, Relay, Traffic, Upstream},
    wire::ClientWire,
};

/// How long the client's connection may take to be ours after the 101.
pub(super) const UPGRADE_LIMIT: Duration = Duration::from_secs(10);

/// What becomes of the client's connection after the 101.
pub(super) enum Upgraded {
    /// It is ours.
    Ours(Box<dyn Connection>),
    /// The client is gone, or did not read the 101 in time.
    Gone,
    /// The claim is over, for this reason; the connection may still come.
    Told(CloseReason),
}

/// Waits for the connection, or for the end of the claim.
///
/// # Cancel safety
/// Nothing is lost: the connection can be waited for again.
pub(super) async fn upgraded(
    upgrade: &mut OnUpgrade,
    lost: impl Future<Output = CloseReason>,
) -> Upgraded {
    tokio::select! {
        biased;
        reason = lost => Upgraded::Told(reason),
        upgraded = timeout(UPGRADE_LIMIT, upgrade) => match upgraded {
            Ok(Ok(client)) => Upgraded::Ours(Box::new(TokioIo::new(client))),
            Ok(Err(_)) | Err(_) => Upgraded::Gone,
        },
    }
}

/// Says why to a client whose stream was over before it began: it has its 101, or is about to.
pub(super) async fn tell(
    upgrade: OnUpgrade,
    wire: ClientWire,
    reason: &CloseReason,
    limits: Limits,
) {
    let Ok(Ok(client)) = timeout(UPGRADE_LIMIT, upgrade).await else {
        return;
    };
    let client: Box<dyn Connection> = Box::new(TokioIo::new(client));
    let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
    let relay = Relay::new(
        ClientSide::new(client, wire),
        Upstream::gone(),
        traffic,
        limits,
    );
    relay.end_client(reason).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::StreamExt as _;
    use http::{Request, Response, StatusCode};
    use http_body_util::Empty;
    use hyper::service::service_fn;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        sync::mpsc,
    };
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };

    use super::*;
    use crate::streams::negotiate::Subprotocol;

    /// A server whose 101 does not fit into what its client has not read.
    fn serve(io: DuplexStream) -> mpsc::UnboundedReceiver<OnUpgrade> {
        let (sender, upgrades) = mpsc::unbounded_channel();
        let service = service_fn(move |mut request: Request<hyper::body::Incoming>| {
            let _ = sender.send(hyper::upgrade::on(&mut request));
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        tokio::spawn(connection);
        upgrades
    }

    async fn asked() -> (DuplexStream, OnUpgrade) {
        let (mut client, server) = duplex(16);
        let mut upgrades = serve(server);
        let request = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        client.write_all(request).await.unwrap();
        let upgrade = upgrades.recv().await.unwrap();
        (client, upgrade)
    }

    async fn head(client: &mut DuplexStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
    }

    #[tokio::test]
    async fn s_04_a_claim_that_is_over_before_the_101_is_read_still_has_a_reason() {
        let (mut client, mut upgrade) = asked().await;
        let over = std::future::ready(CloseReason::TakenOver);
        let Upgraded::Told(reason) = upgraded(&mut upgrade, over).await else {
            panic!("the claim is over");
        };
        let wire = ClientWire::terminal(Subprotocol::Plain);
        let read = async {
            head(&mut client).await;
            let mut socket = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
            socket.next().await
        };
        let ((), message) = tokio::join!(tell(upgrade, wire, &reason, Limits::default()), read);
        let Some(Ok(Message::Close(Some(frame)))) = message else {
            panic!("{message:?}");
        };
        assert_eq!(u16::from(frame.code), 1000);
        assert_eq!(frame.reason.as_str(), "taken over by another user");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_before_its_101_is_gone() {
        let (client, mut upgrade) = asked().await;
        drop(client);
        let early = upgraded(&mut upgrade, std::future::pending()).await;
        assert!(matches!(early, Upgraded::Gone));
    }
}
