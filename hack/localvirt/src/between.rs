//! A stream with what has to happen before and after it ends.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream between two values. Dropped, the first goes, then the stream, then the last: fields are
/// dropped in the order in which they stand.
pub struct Between<B, IO, A> {
    _before: B,
    io: IO,
    _after: A,
}

impl<B, IO, A> Between<B, IO, A> {
    /// `io`, whose end begins with the end of `before` and finishes with that of `after`.
    pub fn new(before: B, io: IO, after: A) -> Self {
        Self {
            _before: before,
            io,
            _after: after,
        }
    }
}

impl<B: Unpin, IO: AsyncRead + Unpin, A: Unpin> AsyncRead for Between<B, IO, A> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<B: Unpin, IO: AsyncWrite + Unpin, A: Unpin> AsyncWrite for Between<B, IO, A> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// Says when it is dropped.
    struct Says(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Says {
        fn drop(&mut self) {
            self.1.lock().push(self.0);
        }
    }

    /// A stream that does, too.
    type Told = Between<Says, DuplexStream, Says>;

    #[tokio::test]
    async fn bytes_pass_and_the_ends_come_in_order() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let says = |word| Says(word, said.clone());
        let (near, mut far) = tokio::io::duplex(16);
        let inner: Told = Between::new(says("inner before"), near, says("inner after"));
        let mut outer = Between::new(says("before"), inner, says("after"));
        outer.write_all(b"ping").await.unwrap();
        let mut heard = [0; 4];
        far.read_exact(&mut heard).await.unwrap();
        far.write_all(&heard).await.unwrap();
        outer.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ping");
        drop(outer);
        assert_eq!(
            *said.lock(),
            ["before", "inner before", "inner after", "after"]
        );
        assert_eq!(far.read(&mut heard).await.unwrap(), 0);
    }
}
