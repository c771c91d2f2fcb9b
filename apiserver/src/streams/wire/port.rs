//! A port of a pod through its kubelet, by `v4.channel.k8s.io`
//! (`k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go`).
//!
//! Channel 0 carries the data, channel 1 why it failed; each begins with the port's number in two
//! bytes. Neither direction can end by itself.

use bytes::{Buf as _, BytesMut};

use super::{Exit, Output};
use crate::streams::frame::Piece;

/// Where data goes and comes from.
pub(super) const DATA: u8 = 0;
/// The longest failure that is repeated.
const LONGEST: usize = 1024;

/// Reader of a kubelet's messages.
#[derive(Debug)]
pub struct PortReader {
    current: Option<u8>,
    /// Bytes of the port's number that are still to come, by channel.
    number: [usize; 2],
    error: BytesMut,
}

impl Default for PortReader {
    fn default() -> Self {
        Self {
            current: None,
            number: [2, 2],
            error: BytesMut::new(),
        }
    }
}

impl PortReader {
    /// The meaning of the next piece, if it has one.
    pub(super) fn take(&mut self, mut piece: Piece) -> Option<Output> {
        if piece.first {
            self.current = None;
        }
        if self.current.is_none() && !piece.payload.is_empty() {
            self.current = Some(piece.payload.get_u8());
        }
        let channel = self.current?;
        let skipped = self.number.get_mut(usize::from(channel))?;
        let skip = piece.payload.len().min(*skipped);
        piece.payload.advance(skip);
        *skipped -= skip;
        // The other of the two says why it failed.
        if channel == DATA {
            return (!piece.payload.is_empty()).then_some(Output::Data(piece.payload));
        }
        let room = LONGEST.saturating_sub(self.error.len());
        let take = piece.payload.len().min(room);
        self.error.extend_from_slice(&piece.payload[..take]);
        let complete = piece.last && !self.error.is_empty();
        complete.then(|| Output::Exit(Exit::Failed(self.words())))
    }

    /// The last part of the kubelet's sentence says what a person wants to know.
    fn words(&mut self) -> String {
        let text = self.error.split();
        let text = String::from_utf8_lossy(&text);
        let last = text.trim().rsplit(": ").next().unwrap_or_default();
        last.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn whole(payload: &'static [u8]) -> Piece {
        Piece {
            text: false,
            first: true,
            last: true,
            payload: Bytes::from_static(payload),
        }
    }

    #[test]
    fn the_ports_number_is_no_data() {
        let mut reader = PortReader::default();
        assert_eq!(reader.take(whole(b"\x00\x50")), None);
        assert_eq!(reader.take(whole(b"\x01\x50\x00")), None);
        let data = |bytes| Some(Output::Data(Bytes::from_static(bytes)));
        assert_eq!(reader.take(whole(b"\x00\x00hello")), data(b"hello"));
        assert_eq!(reader.take(whole(b"\x00P\x00")), data(b"P\x00"));
        assert_eq!(reader.take(whole(b"\x07x")), None, "no such channel");
    }

    #[test]
    fn a_failure_is_told_by_its_last_words() {
        let mut reader = PortReader::default();
        assert_eq!(reader.take(whole(b"\x01\x50\x00")), None);
        let text = b"\x01error forwarding port 80 to pod abc, uid : failed to connect to localhost:80: connection refused";
        assert_eq!(
            reader.take(whole(text)),
            Some(Output::Exit(Exit::Failed("connection refused".into())))
        );
    }
}
