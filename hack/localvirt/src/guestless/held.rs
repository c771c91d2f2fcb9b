//! A stream that holds a device, and lets go of it at the first sign of its end.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::DuplexStream;

use crate::{between::Between, launcher::session::Session};

/// The session of a stream, which ends with either end of the stream, whichever goes first: the player leaves when it is
/// cut, so that a reader that stalls keeps nobody from the device.
#[derive(Clone)]
pub(super) struct Hold(Arc<Mutex<Option<Session>>>);

/// Releases when it is dropped.
pub(super) struct Releases(Hold);

/// The reader's end of the stream. Dropping it frees the device before anything else happens.
pub(super) type Held = Between<Releases, DuplexStream, ()>;

impl Hold {
    pub(super) fn new(session: Session) -> Self {
        Self(Arc::new(Mutex::new(Some(session))))
    }

    /// The device is free.
    pub(super) fn release(&self) {
        self.0.lock().take();
    }

    /// The reader's end of a stream, as long as which this is held at most.
    pub(super) fn with(self, io: DuplexStream) -> Held {
        Between::new(Releases(self), io, ())
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.0.release();
    }
}
