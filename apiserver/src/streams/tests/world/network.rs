//! The pod network, and the sockets that the server has open.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use hyper_util::client::legacy::connect::{Connected, Connection as Connects};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpListener,
};

use crate::streams::{
    dial::tcp::{DialError, Network, PodNetwork},
    relay::Connection,
};

/// Counts the server's ends of connections: clients', upstreams' and pods'.
#[derive(Clone, Default)]
pub(super) struct Sockets(Arc<AtomicUsize>);

impl Sockets {
    /// Counts this one until it is dropped.
    pub(super) fn count<IO>(&self, io: IO) -> Counted<IO> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted {
            io,
            sockets: self.clone(),
        }
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A connection that is counted.
pub(super) struct Counted<IO> {
    io: IO,
    sockets: Sockets,
}

impl<IO> Drop for Counted<IO> {
    fn drop(&mut self) {
        self.sockets.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<IO> Connects for Counted<IO> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counted<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A pod network: connections to the launcher pod's address lead to a listener of the test.
#[derive(Clone)]
pub(in crate::streams::tests) struct Pods {
    sockets: Sockets,
    listener: Arc<Mutex<Option<SocketAddr>>>,
    /// What was dialled.
    pub(in crate::streams::tests) dialled: Arc<Mutex<Vec<SocketAddr>>>,
    /// Answers a dial with this error.
    pub(in crate::streams::tests) refuse: Arc<Mutex<Option<std::io::ErrorKind>>>,
}

impl Pods {
    pub(super) fn new(sockets: Sockets) -> Self {
        Self {
            sockets,
            listener: Arc::default(),
            dialled: Arc::default(),
            refuse: Arc::default(),
        }
    }

    /// From now on the launcher pod's ports lead here.
    pub(in crate::streams::tests) async fn listen(&self) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        *self.listener.lock() = Some(listener.local_addr().unwrap());
        listener
    }
}

#[async_trait]
impl Network for Pods {
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<Box<dyn Connection>, DialError> {
        self.dialled.lock().extend(addresses);
        if let Some(kind) = *self.refuse.lock() {
            return Err(DialError::new(addresses[0], &kind.into()));
        }
        let listener = *self.listener.lock();
        let Some(listener) = listener else {
            return Err(DialError::silent(addresses[0], limit));
        };
        let io = PodNetwork.connect(&[listener], limit).await?;
        Ok(Box::new(self.sockets.count(io)))
    }
}
