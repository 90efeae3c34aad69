//! Frames and steps of the handshake, as a hostile peer changes them.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tagmatch_device::{
    AccessKind, Address, Buffer, PeerId, PublishedRegion, ReadRequest, RegionAccess, RegionPlace,
    RegionSpan, RemoteSpan,
};
use tagmatch_secret::{NONCE_BYTES, PROOF_BYTES};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use super::accesses::Accesses;
use super::frame::{
    Frame, HEADER_BYTES, REGION_BYTES, REQUEST_BYTES, RegionBytes, emit_span, parse_span,
};
use super::greeting::{Admission, Opening};
use super::puts::PutsOfPeer;
use super::reads::{EndedRead, ReadOf, ReadsFromPeer};
use super::send_half::SendHalf;
use super::sources::{SharedMemory, StreamSource};

/// The longest message that the device takes, in bytes.
const MESSAGE_MAX: usize = 50;
/// The length of the read that is under way, in bytes.
const READ_BYTES: usize = 40;
/// How many of them have come when some have.
const FIRST_BYTES: usize = 30;

/// The key of the region.
const KEY: u64 = 7;
/// Its length, in bytes; a put of the peer has half of them.
const REGION_LENGTH: usize = 40;
/// The length of the put that is under way to the peer, in bytes.
const PUT_BYTES: usize = 10;
const PUT_TOKEN: u64 = 1000;

const DATA: Frame = Frame::ReadData { id: 0, length: 3 };

/// How much has come of the read with the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    NoRead,
    Requested,
    Begun,
    Complete,
    /// A put of the peer has begun.
    PutBegun,
    /// All but five bytes of it have come.
    PutHalf,
    /// A put of this worker waits to be sent.
    Putting,
    /// It was sent.
    PutSent,
}

/// What an established connection takes.
struct FrameRoom {
    reads: ReadsFromPeer,
    accesses: Accesses,
    puts: PutsOfPeer,
    out: SendHalf,
    memory: SharedMemory,
    region: Buffer,
    ended: Vec<u64>,
}

fn region_bytes(bytes: &[u8]) -> Result<RegionBytes, &'static str> {
    let bytes: &[u8; REGION_BYTES] = bytes.try_into().map_err(|_| "no bytes of a region")?;
    assert_eq!(RegionBytes::parse(bytes).emit(), *bytes);
    Ok(RegionBytes::parse(bytes))
}

impl FrameRoom {
    fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("no header")?;
        let whole = |length| if rest.len() == length { Ok(()) } else { Err("another length") };
        match Frame::parse(header, MESSAGE_MAX)? {
            Frame::Message { length, .. } => whole(length),
            Frame::ReadRequest { id } => {
                whole(REQUEST_BYTES)?;
                let span = rest.try_into().map_err(|_| "no span")?;
                assert_eq!(emit_span(parse_span(span)), *span);
                self.out.take_request(id, StreamSource::Exposed(parse_span(span)))
            }
            Frame::Get { id } => {
                self.out.take_request(id, StreamSource::Region(region_bytes(rest)?))
            }
            Frame::Put => self.puts.begin(region_bytes(rest)?, &mut self.memory.regions),
            Frame::PutData { length } => {
                whole(length)?;
                self.puts.land(length)?;
                if let Some(room) = self.puts.room(&mut self.memory.regions) {
                    assert_eq!(room.len(), length);
                    room.fill(rest);
                }
                self.puts.advance(length, &mut self.out).map(drop)
            }
            Frame::PutEnd { is_done } => {
                whole(0)?;
                self.accesses.end_put(&self.out, is_done)?;
                let ended = self.accesses.next_ended().ok_or("no access has ended")?;
                assert_eq!((ended.buffer.len(), ended.is_done), (PUT_BYTES, is_done));
                self.ended.push(PUT_TOKEN);
                Ok(())
            }
            Frame::ReadData { id, length } => {
                whole(length)?;
                self.reads.land(id, length)?;
                if let Some(room) = self.reads.room() {
                    room.fill(rest);
                }
                self.reads.advance(length);
                Ok(())
            }
            Frame::ReadEnd { id } => whole(0).and_then(|()| self.end(id, true)),
            Frame::ReadFailed { id } => whole(0).and_then(|()| self.end(id, false)),
            Frame::Bye | Frame::Flush => whole(0),
        }
    }

    fn end(&mut self, id: u32, is_good: bool) -> Result<(), &'static str> {
        let EndedRead { of, into, .. } = self.reads.end(&mut self.out, id, is_good)?;
        let ReadOf::Exposed(token) = of else { panic!("{of:?}") };
        assert_eq!(into.len(), READ_BYTES);
        self.ended.push(token);
        Ok(())
    }
}

impl Room for FrameRoom {
    type Situation = Situation;
    type Sender = ();

    fn enter(situation: Situation) -> Self {
        let mut room = FrameRoom {
            reads: ReadsFromPeer::default(),
            accesses: Accesses::default(),
            puts: PutsOfPeer::default(),
            out: SendHalf::default(),
            memory: SharedMemory::default(),
            region: Buffer::zeroed(REGION_LENGTH),
            ended: Vec::new(),
        };
        let memory = &room.region;
        let region = PublishedRegion {
            key: KEY,
            base: None,
            memory,
            reads: true,
            writes: true,
            changes: false,
        };
        room.memory.regions.publish(&region);
        let come = match situation {
            Situation::NoRead => return room,
            Situation::PutBegun | Situation::PutHalf => {
                let bytes = RegionBytes { key: KEY, offset: 5, length: 20 };
                room.take(&[&Frame::Put.emit()[..], &bytes.emit()].concat()).unwrap();
                if situation == Situation::PutHalf {
                    let header = Frame::PutData { length: 15 }.emit();
                    room.take(&[&header[..], &[3; 15]].concat()).unwrap();
                }
                return room;
            }
            Situation::Putting | Situation::PutSent => {
                let of = RegionSpan { key: KEY, place: RegionPlace::BY_KEY, offset: 0 };
                let buffer = Buffer::zeroed(PUT_BYTES);
                let kind = AccessKind::Write;
                room.accesses.add(RegionAccess { peer: PeerId(1), of, kind, buffer });
                room.accesses.begin_next(&mut room.out, &mut room.reads);
                if situation == Situation::PutSent {
                    let (here, _there) = UnixStream::pair().unwrap();
                    let sources = room.memory.for_peer(PeerId(1), room.accesses.put());
                    assert!(room.out.push(here.as_fd(), sources).unwrap());
                }
                return room;
            }
            Situation::Requested => 0,
            Situation::Begun => FIRST_BYTES,
            Situation::Complete => READ_BYTES,
        };
        let remote = RemoteSpan { address: 4096, length: READ_BYTES as u64, key: 1 };
        let into = Buffer::zeroed(READ_BYTES);
        let request = ReadRequest { peer: PeerId(1), remote, into, token: 9 };
        room.reads.start(&mut room.out, request, READ_BYTES);
        if come > 0 {
            let header = Frame::ReadData { id: 0, length: come }.emit();
            room.take(&[&header[..], &vec![7; come]].concat()).unwrap();
        }
        room
    }

    fn takes(situation: Situation, (): (), message: &Message) -> Legality {
        let is_legal = match message.name() {
            "first data" => situation == Situation::Requested,
            "last data" => situation == Situation::Begun,
            "read end" => situation == Situation::Complete,
            "read failed" => {
                let with_read = [Situation::Requested, Situation::Begun, Situation::Complete];
                with_read.contains(&situation)
            }
            "put" => !matches!(situation, Situation::PutBegun | Situation::PutHalf),
            "put done" | "put failed" => situation == Situation::PutSent,
            "first put data" => situation == Situation::PutBegun,
            "last put data" => situation == Situation::PutHalf,
            _ => true,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        self.take(bytes).is_ok()
    }

    fn state(&self) -> String {
        let is_expecting = self.reads.is_expecting();
        let landing = [self.reads.landing(), self.puts.landing()];
        format!("{:?}", (is_expecting, self.puts.is_expected, landing, &self.ended))
    }

    /// The read or the put ends once, whatever has come, and bytes beside a put stay as they are.
    fn audit(mut self) {
        let reads = self.reads.take_all().count();
        self.accesses.end_all();
        let puts = usize::from(self.accesses.next_ended().is_some());
        assert!(self.ended.len() + reads + puts <= 1, "{:?}, {reads}, {puts}", self.ended);
    }
}

fn frame(name: &'static str, frame: Frame, behind: &[u8], length: Meaning) -> Message {
    let bytes = [&frame.emit(), behind].concat();
    let message = Message::new(name, bytes).le(4, "length", length);
    let message = message.le(1, "kind", Meaning::OneOf((1..=13).collect()));
    message.le(3, "zeros", Meaning::Fixed)
}

/// A frame with as many bytes behind its header as it says, from `least` to `most`.
fn counted(name: &'static str, of: Frame, word: Meaning, least: usize, most: usize) -> Message {
    let rest = Rest { unit: 1, count: least..=most, legality: Legality::Legal };
    frame(name, of, &[5; 3], Meaning::Counts(1)).le(4, "word", word).rest(rest)
}

/// A frame that names bytes of a region.
fn of_region(name: &'static str, of: Frame, word: Meaning) -> Message {
    let bytes = RegionBytes { key: KEY, offset: 4, length: 9 }.emit();
    let message = frame(name, of, &bytes, Meaning::Fixed).le(4, "word", word);
    let length = if of == Frame::Put { Meaning::Within(1..=u64::MAX) } else { Meaning::Free };
    message.le(8, "key", Meaning::Free).le(8, "offset", Meaning::Free).le(8, "length", length)
}

fn frames() -> Vec<Message> {
    let short = |name, of| frame(name, of, &[], Meaning::Fixed);
    let span = emit_span(RemoteSpan { address: 1 << 40, length: 77, key: 3 });
    let request = frame("read request", Frame::ReadRequest { id: 5 }, &span, Meaning::Fixed);
    let request = request.le(4, "id", Meaning::Open).le(8, "address", Meaning::Free);
    let message = |immediate| Frame::Message { length: 3, immediate };
    vec![
        counted("message", message(None), Meaning::Open, 0, MESSAGE_MAX),
        counted("with immediate", message(Some(8)), Meaning::Free, 0, MESSAGE_MAX),
        request.le(8, "length of the span", Meaning::Free).le(4, "key", Meaning::Free),
        short("read end", Frame::ReadEnd { id: 0 }).le(4, "id", Meaning::Fixed),
        short("read failed", Frame::ReadFailed { id: 0 }).le(4, "id", Meaning::Fixed),
        of_region("get", Frame::Get { id: 5 }, Meaning::Open),
        of_region("put", Frame::Put, Meaning::Open),
        short("put done", Frame::PutEnd { is_done: true }).le(4, "word", Meaning::Open),
        short("put failed", Frame::PutEnd { is_done: false }).le(4, "word", Meaning::Open),
        short("bye", Frame::Bye).le(4, "word", Meaning::Open),
        short("flush", Frame::Flush).le(4, "word", Meaning::Open),
    ]
}

/// A step of the handshake that the other end has to parse.
struct StepRoom {
    step: MeetingStep,
}

#[derive(Clone, Copy, Debug)]
enum MeetingStep {
    Opening,
    Answer,
}

impl Room for StepRoom {
    type Situation = MeetingStep;
    type Sender = ();

    fn enter(step: MeetingStep) -> Self {
        StepRoom { step }
    }

    fn takes(step: MeetingStep, (): (), message: &Message) -> Legality {
        let is_due = message.name() == format!("{step:?}").to_lowercase();
        if is_due { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        match self.step {
            MeetingStep::Opening => bytes.try_into().is_ok_and(|bytes| {
                let opening = Opening::parse(bytes);
                assert!(opening.is_err() || opening.is_ok_and(|opening| opening.emit() == *bytes));
                opening.is_ok()
            }),
            MeetingStep::Answer => {
                bytes.try_into().is_ok_and(|bytes| Admission::parse(bytes).is_ok())
            }
        }
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

fn steps() -> [Message; 2] {
    const LENGTH: usize = 15;
    let address = Address::from_bytes(&[7; LENGTH]).unwrap();
    let opening = Opening { nonce: [9; NONCE_BYTES], address };
    let opening = Message::new("opening", opening.emit());
    let opening = opening.le(4, "mark", Meaning::Fixed).le(1, "version", Meaning::Fixed);
    let opening = opening.bytes_of(NONCE_BYTES, "nonce", &Meaning::Free);
    // A longer address has zeros at its end.
    let longer = Meaning::Within(LENGTH as u64..=Address::MAX as u64);
    let opening = opening.le(1, "length", longer).bytes_of(LENGTH - 1, "address", &Meaning::Free);
    let opening = opening.le(1, "last byte", Meaning::Free);
    let accepted = Admission::Accepted { proof: [4; PROOF_BYTES], message_max: 5 };
    let answer = Message::new("answer", accepted.emit()).le(1, "reason", Meaning::Within(0..=6));
    let answer = answer.bytes_of(PROOF_BYTES, "proof", &Meaning::Free);
    [
        opening.bytes_of(Address::MAX - LENGTH, "zeros", &Meaning::Fixed),
        answer.le(4, "longest message", Meaning::Free),
    ]
}

#[test]
fn no_frame_of_a_peer_does_harm() {
    let all = [
        Situation::NoRead,
        Situation::Requested,
        Situation::Begun,
        Situation::Complete,
        Situation::PutBegun,
        Situation::PutHalf,
        Situation::Putting,
        Situation::PutSent,
    ];
    try_all::<FrameRoom>(&all, &[()], &frames());
    // How many bytes are legal depends on how many have come.
    let [no_read, requested, begun, complete, put_begun, put_half, ..] = all;
    for (name, situation, most) in
        [("first data", requested, READ_BYTES), ("last data", begun, READ_BYTES - FIRST_BYTES)]
    {
        let data = counted(name, DATA, Meaning::Fixed, 0, most);
        try_all::<FrameRoom>(&[no_read, situation, complete, put_begun], &[()], &[data]);
    }
    for (name, situation, most) in
        [("first put data", put_begun, 20), ("last put data", put_half, 5)]
    {
        let data = counted(name, Frame::PutData { length: 3 }, Meaning::Open, 1, most);
        try_all::<FrameRoom>(&[no_read, requested, situation], &[()], &[data]);
    }
}

#[test]
fn no_step_of_a_handshake_is_taken_for_another() {
    try_all::<StepRoom>(&[MeetingStep::Opening, MeetingStep::Answer], &[()], &steps());
}
