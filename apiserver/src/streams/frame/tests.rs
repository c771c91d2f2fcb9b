//! Passing frames on, with frames of every kind cut at random places.

use bytes::{Bytes, BytesMut};

use super::{
    Decoder, Event, Opcode, Passing, Peer, decode::parse_head, encode, encode::apply_mask,
};

/// A small generator of numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    fn key(&mut self, peer: Peer) -> Option<[u8; 4]> {
        let key = [0; 4].map(|_| self.below(256) as u8);
        (peer == Peer::Client).then_some(key)
    }
}

/// What a peer sends, and what of it is data, pings and pongs.
#[derive(Default)]
struct Script {
    wire: BytesMut,
    data: Vec<u8>,
    pings: Vec<Vec<u8>>,
}

impl Script {
    /// One message, in fragments, with pings between them, and heads of every form.
    fn message(&mut self, dice: &mut Dice, peer: Peer) {
        let fragments = 1 + dice.below(3);
        for at in 0..fragments {
            let longest = [1, 126, 400, 70_000][dice.below(4)];
            let payload = dice.below(longest);
            let payload = dice.bytes(payload);
            let opcode = if at == 0 { 2 } else { 0 };
            let fin = if at + 1 == fragments { 0x80 } else { 0 };
            self.frame(fin | opcode, &payload, dice.key(peer), dice.below(8) == 0);
            self.data.extend(payload);
            if dice.below(3) == 0 {
                let ping = dice.bytes(5);
                encode(&mut self.wire, Opcode::Ping, dice.key(peer), &[&ping]);
                self.pings.push(ping);
            }
        }
    }

    fn frame(&mut self, first: u8, payload: &[u8], mask: Option<[u8; 4]>, long: bool) {
        let masked = if mask.is_some() { 0x80 } else { 0 };
        self.wire.extend_from_slice(&[first]);
        match payload.len() {
            length @ 0..=125 if !long => self.wire.extend_from_slice(&[masked | length as u8]),
            length @ 0..=0xffff if !long => {
                self.wire.extend_from_slice(&[masked | 126]);
                self.wire.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                self.wire.extend_from_slice(&[masked | 127]);
                self.wire.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        self.wire
            .extend_from_slice(&mask.unwrap_or_default()[..if mask.is_some() { 4 } else { 0 }]);
        let start = self.wire.len();
        self.wire.extend_from_slice(payload);
        apply_mask(&mut self.wire[start..], mask.unwrap_or_default());
    }
}

/// Passes a script that arrives in pieces of these sizes; gives what was sent on and what was not.
fn pass(
    script: &[u8],
    peer: Peer,
    mut cut: impl FnMut() -> usize,
) -> (BytesMut, usize, Vec<Event>) {
    let (mut decoder, mut out) = (Decoder::new(peer), BytesMut::new());
    let (mut moved, mut others, mut wire) = (0, Vec::new(), script);
    while !wire.is_empty() {
        let (now, later) = wire.split_at(cut().min(wire.len()));
        decoder.buffer().extend_from_slice(now);
        wire = later;
        loop {
            moved += decoder.pass(&mut out, usize::MAX, Passing::Everything);
            match decoder.event().unwrap() {
                Some(event) => others.push(event),
                None => break,
            }
        }
    }
    (out, moved, others)
}

/// The data of frames that must each be a whole binary message in its shortest form.
fn whole_messages(mut wire: &[u8], peer: Peer) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some((head, used)) = parse_head(wire).unwrap() {
        assert_eq!((head.opcode, head.fin), (Opcode::Binary, true));
        assert_eq!(head.mask.is_some(), peer == Peer::Client);
        let length = head.length as usize;
        let shortest = match length {
            1..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        };
        assert_eq!(used, shortest + if head.mask.is_some() { 4 } else { 0 });
        let mut payload = wire[used..used + length].to_vec();
        apply_mask(&mut payload, head.mask.unwrap_or_default());
        data.extend(payload);
        wire = &wire[used + length..];
    }
    assert!(wire.is_empty(), "a frame goes on whose end is missing");
    data
}

#[test]
fn s_20_frames_of_every_kind_pass_whole_wherever_they_are_cut() {
    let mut dice = Dice(0x5eed_0000_0001);
    for round in 0..60 {
        let peer = [Peer::Client, Peer::Server][round % 2];
        let mut script = Script::default();
        for _ in 0..4 {
            script.message(&mut dice, peer);
        }
        let longest = [1, 3, 50, 5_000, 100_000][dice.below(5)];
        let longest = if script.wire.len() > 50_000 {
            longest.max(50)
        } else {
            longest
        };
        let (out, moved, others) = pass(&script.wire, peer, || 1 + dice.below(longest));
        assert_eq!(moved, script.data.len(), "round {round}");
        assert!(whole_messages(&out, peer) == script.data, "round {round}");
        let pings = others.into_iter().filter_map(|event| match event {
            Event::Ping(payload) => Some(payload.to_vec()),
            // Empty fragments are the only data that is left.
            Event::Piece(piece) if piece.payload.is_empty() => None,
            other => panic!("{other:?} was not passed on"),
        });
        assert_eq!(pings.collect::<Vec<_>>(), script.pings, "round {round}");
    }
}

#[test]
fn a_masked_frame_may_be_split_at_every_k() {
    let payload = b"what a client types";
    let mut wire = BytesMut::new();
    encode(&mut wire, Opcode::Binary, Some([1, 2, 3, 4]), &[payload]);
    for k in 1..wire.len() {
        let mut first = true;
        let cut = || {
            if std::mem::take(&mut first) {
                k
            } else {
                usize::MAX
            }
        };
        let (out, ..) = pass(&wire, Peer::Client, cut);
        assert_eq!(whole_messages(&out, Peer::Client), payload, "split at {k}");
    }
}

#[test]
fn frames_in_hand_go_on_as_they_stand() {
    let mut wire = BytesMut::new();
    for _ in 0..3 {
        encode(&mut wire, Opcode::Binary, Some([9, 8, 7, 6]), &[b"abc"]);
    }
    let (out, moved, others) = pass(&wire, Peer::Client, || usize::MAX);
    assert_eq!((out, moved, others), (wire, 9, Vec::new()));
}

#[test]
fn a_ping_is_next_while_the_end_of_a_long_frame_is_missing() {
    let (mut decoder, mut out) = (Decoder::new(Peer::Server), BytesMut::new());
    // A fragment of which half is there.
    decoder.buffer().extend_from_slice(&[0x02, 4, b'a', b'b']);
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 2);
    assert_eq!(
        &out[..],
        [0x82, 2, b'a', b'b'],
        "what is there is a message"
    );
    decoder.buffer().extend_from_slice(b"cd\x89\x00\x80\x01e");
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 2);
    assert_eq!(decoder.event().unwrap(), Some(Event::Ping(Bytes::new())));
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 1);
    assert_eq!(whole_messages(&out, Peer::Server), b"abcde");
}

#[test]
fn text_waits_where_it_may_mean_something() {
    let wire = [
        &[0x82, 1, b'a'][..],
        &[0x01, 2, b'{', b'}'],
        &[0x80, 1, b'!'],
        &[0x82, 1, b'b'],
    ];
    let (mut decoder, mut out) = (Decoder::new(Peer::Server), BytesMut::new());
    decoder.buffer().extend_from_slice(&wire.concat());
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Binary), 1);
    for expected in [&b"{}"[..], b"!"] {
        assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Binary), 0);
        let Some(Event::Piece(piece)) = decoder.event().unwrap() else {
            panic!("no text");
        };
        assert_eq!((&piece.payload[..], piece.text), (expected, true));
    }
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Binary), 1);
    assert_eq!(whole_messages(&out, Peer::Server), b"ab");
}

#[test]
fn a_violation_waits_behind_what_came_before_it() {
    for broken in [
        &[0x80, 1, b'x'][..],
        &[0x82, 0x81, 0, 0, 0, 0, b'x'],
        &[0x83, 0],
    ] {
        let (mut decoder, mut out) = (Decoder::new(Peer::Server), BytesMut::new());
        decoder.buffer().extend_from_slice(b"\x82\x02ok");
        decoder.buffer().extend_from_slice(broken);
        assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 2);
        assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 0);
        decoder.event().unwrap_err();
        assert_eq!(whole_messages(&out, Peer::Server), b"ok");
    }
}

#[test]
fn no_more_is_queued_than_there_is_room_for() {
    let (mut decoder, mut out) = (Decoder::new(Peer::Server), BytesMut::new());
    for _ in 0..10 {
        encode(decoder.buffer(), Opcode::Binary, None, &[&[7; 100]]);
    }
    assert_eq!(
        decoder.pass(&mut out, 250, Passing::Everything),
        300,
        "a frame is not cut for it"
    );
    assert_eq!(decoder.pass(&mut out, 250, Passing::Everything), 0);
    out.clear();
    assert_eq!(decoder.pass(&mut out, usize::MAX, Passing::Everything), 700);
}
