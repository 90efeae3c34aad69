//! Every hostile variant of the messages that devices exchange among themselves, and of the packets
//! of the handshake.

mod common;
#[allow(dead_code, reason = "another test needs more of it")]
mod hostile_peer;

use tagmatch_device::{
    Address, Buffer, Device, Outgoing, PeerId, ReadMessage, ReadRequest, RemoteSpan,
};
use tagmatch_shm::fuzzing::{
    DoorbellBit, Geometry, HandshakePacket, Hello, HelloRefusal, OfferedMemory,
};
use tagmatch_shm::{ReadPolicy, ShmConfig};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use common::{Owned, poll, shm, wait_for};
use hostile_peer::{Bystanders, HostilePeer, hello, invented};

const INTERNAL: u32 = 1 << 28;
/// The longest message of one line, in bytes.
const LINE_BYTES: usize = 56;
/// The hostile peer, as its victim knows it.
const PEER: PeerId = PeerId(2);
/// The lengths of the victim's read and of its exposed buffer, in bytes.
const READ_BYTES: usize = 20;
const EXPOSED_BYTES: usize = 100;
/// Polls in which a victim does all that follows from a message.
const POLLS: usize = 300;

/// How far the victim's read of the peer's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadSituation {
    NoRead,
    Requested,
    Complete,
}

struct ReadRoom {
    bystanders: Bystanders,
    hostile: HostilePeer,
    is_down: bool,
    reads_done: usize,
    last: Vec<u8>,
}

impl ReadRoom {
    fn say(&mut self, bytes: &[u8]) {
        self.hostile.write_slot(INTERNAL | u32::try_from(bytes.len()).unwrap(), bytes);
    }

    fn settle(&mut self) {
        for _ in 0..POLLS {
            match poll(&mut self.bystanders.victim) {
                Some(Owned::ReadDone(_, into, result)) => {
                    assert_eq!(into.len(), READ_BYTES);
                    self.reads_done += usize::from(result.is_ok());
                }
                Some(Owned::Down(PEER, _)) => self.is_down = true,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }
}

impl Room for ReadRoom {
    type Situation = ReadSituation;
    type Sender = ();

    fn enter(situation: ReadSituation) -> Self {
        let mut bystanders = Bystanders::new(ShmConfig::default().read(ReadPolicy::Copied));
        let hostile = HostilePeer::connect(&mut bystanders, 77);
        let last = Vec::new();
        let mut room = ReadRoom { bystanders, hostile, is_down: false, reads_done: 0, last };
        let victim = &mut room.bystanders.victim;
        victim.expose(PEER, Buffer::zeroed(EXPOSED_BYTES)).unwrap();
        if situation != ReadSituation::NoRead {
            let remote = RemoteSpan { address: 4096, key: 1, length: READ_BYTES as u64 };
            let into = Buffer::zeroed(READ_BYTES);
            victim.read(ReadRequest { peer: PEER, remote, into, token: 3 }).unwrap();
            room.settle();
        }
        if situation == ReadSituation::Complete {
            let header = ReadMessage::Fragment { id: 0, offset: 0 }.emit();
            room.say(&[&header[..], &[7; READ_BYTES]].concat());
            room.settle();
        }
        room
    }

    fn takes(situation: ReadSituation, (): (), message: &Message) -> Legality {
        let is_legal = match message.name() {
            "fragment" => situation == ReadSituation::Requested,
            "good end" => situation == ReadSituation::Complete,
            "bad end" => situation != ReadSituation::NoRead,
            _ => true,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        // Longer messages are for the room of the ring.
        if self.is_down || bytes.len() > LINE_BYTES {
            return false;
        }
        self.last = bytes.to_vec();
        self.say(bytes);
        self.settle();
        !self.is_down
    }

    fn state(&self) -> String {
        format!("{}", self.reads_done)
    }

    /// Others are served. The peer then says the same twice more, and breaks a rule before the
    /// victim does what follows from it. Nothing is kept twice, and nothing stays.
    fn audit(mut self) {
        let events = self.bystanders.exchange();
        let is_of_peer = |event: &Owned| matches!(event, Owned::Down(PEER, _));
        assert!(events.iter().all(is_of_peer), "{events:?}");
        if self.is_down || !events.is_empty() {
            return;
        }
        let last = std::mem::take(&mut self.last);
        self.say(&last);
        self.say(&last);
        let mut is_down = poll(&mut self.bystanders.victim).is_some_and(|event| is_of_peer(&event));
        let victim = &mut self.bystanders.victim;
        if victim.arm(&[]) {
            victim.disarm();
        }
        if !is_down {
            self.say(&last);
            self.say(&[]);
        }
        while !is_down {
            wait_for(&mut [&mut self.bystanders.victim], "the end of the peer", |_, event| {
                is_down = matches!(event, Owned::Down(PEER, _));
                Some(())
            });
        }
    }
}

fn internal(name: &'static str, bytes: Vec<u8>, number: Meaning) -> Message {
    let kinds = Meaning::OneOf((1..=4).collect());
    Message::new(name, bytes).le(4, "kind", kinds).le(4, "number", number)
}

/// What lies outside of the exposed buffer is answered, and nothing else.
fn span(message: Message) -> Message {
    let message = message.le(4, "key", Meaning::Open).le(4, "reserved", Meaning::Free);
    message.le(8, "address", Meaning::Free).le(8, "length", Meaning::Free)
}

fn messages() -> [Message; 4] {
    let asked = RemoteSpan { address: 4096, key: 0, length: 8 };
    let request = ReadMessage::Request { id: 5, span: asked }.emit().to_vec();
    let offer = ReadMessage::Offer { number: 1, span: asked }.emit();
    let offer = [&offer[..], &[0; 8]].concat();
    let offer = span(internal("offer", offer, Meaning::Within(0..=u64::from(u16::MAX))));
    let fragment = ReadMessage::Fragment { id: 0, offset: 0 }.emit();
    let fragment = [&fragment[..], &[7; 3]].concat();
    let fragment = internal("fragment", fragment, Meaning::Fixed).le(8, "ignored", Meaning::Free);
    let fragment = fragment.le(8, "offset", Meaning::Fixed).le(8, "more ignored", Meaning::Free);
    let rest = Rest { unit: 1, count: 1..=READ_BYTES, legality: Legality::Legal };
    [
        span(internal("request", request, Meaning::Free)),
        offer.le(8, "target", Meaning::Free),
        fragment.rest(rest),
        end("good end", true, Meaning::Within(0..=1)),
    ]
}

fn end(name: &'static str, is_good: bool, meaning: Meaning) -> Message {
    let bytes = ReadMessage::End { id: 0, is_good }.emit().to_vec();
    let message = internal(name, bytes, Meaning::Fixed).le(4, "is good", meaning);
    message.bytes_of(20, "ignored", &Meaning::Free)
}

#[test]
fn no_internal_message_of_a_peer_does_harm() {
    use ReadSituation::{Complete, NoRead, Requested};
    try_all::<ReadRoom>(&[NoRead, Requested, Complete], &[()], &messages());
    // A read of which bytes are missing has no good end.
    try_all::<ReadRoom>(&[NoRead, Requested], &[()], &[end("bad end", false, Meaning::Fixed)]);
}

/// A hello or a refusal that the other end has to parse.
struct PacketRoom;

impl Room for PacketRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        PacketRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Ok(packet) = HandshakePacket::parse(bytes) else { return false };
        let again = match &packet {
            HandshakePacket::Hello(hello) => {
                assert!(hello.geometry.allows_messages_of(hello.message_max));
                hello.emit()
            }
            HandshakePacket::Refusal(refusal) => refusal.emit(),
        };
        assert_eq!(HandshakePacket::parse(&again), Ok(packet));
        true
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

/// A hello whose device's memory has one of the lengths at the limits. `inside`: a length within
/// them. Without memory the length is 0.
fn hello_with(victim: &Address, length: u64, inside: u64) -> Message {
    let geometry = Geometry::new(1 << 18).unwrap();
    let bits = (0..).take_while(|bit| DoorbellBit::new(*bit).is_some()).count() as u64;
    let memory = OfferedMemory { address: 1 << 40, length, generation: 3 };
    let greeting = Hello { memory: Some(memory), geometry, ..hello(invented(victim, 1)) };
    let address = greeting.address.as_bytes().len();
    let lengths = Meaning::Within(Outgoing::HEADER_MAX as u64..=geometry.message_max().into());
    let sizes = Meaning::OneOf((12..=28).map(|bits| 1 << bits).collect());
    let message = Message::new("hello", greeting.emit()).le(8, "mark", Meaning::Fixed);
    let message = message.le(4, "version", Meaning::Fixed);
    let message = message.le(4, "flags", Meaning::Within(0..=15));
    let message = message.le(4, "longest message", lengths).le(4, "ring", sizes);
    let message = message.le(4, "doorbell bit", Meaning::Within(0..=bits - 1));
    let message = message.le(8, "address of the nonce", Meaning::Free);
    let message = message.bytes_of(16, "nonce", &Meaning::Free);
    let message = message.le(8, "length of the address", Meaning::Open);
    let message = message.bytes_of(address, "address", &Meaning::Free);
    let message = message.bytes_of(128 - 60 - address, "ignored", &Meaning::Free);
    let message = message.le(8, "memory", Meaning::Free);
    let message = message.le(8, "length of the memory", Meaning::OneOf(vec![0, length, inside]));
    message.le(8, "generation", Meaning::Free).le(8, "wake key", Meaning::Free)
}

#[test]
fn no_packet_of_a_handshake_is_taken_for_another() {
    let victim = shm(ShmConfig::default()).address();
    let shortest = hello_with(&victim, 1 << 20, (1 << 20) + 1);
    let longest = hello_with(&victim, 16 << 30, (16 << 30) - 1);
    let refusal = Message::new("refusal", HelloRefusal::Busy.emit()).le(8, "mark", Meaning::Fixed);
    // The version is ignored, and an unknown reason is a reason.
    let refusal = refusal.le(4, "version", Meaning::Free).le(4, "reason", Meaning::Free);
    try_all::<PacketRoom>(&[()], &[()], &[shortest, longest, refusal]);
}
