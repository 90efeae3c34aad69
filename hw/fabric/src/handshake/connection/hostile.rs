//! A caller that sends whatever it likes, with the secret of the address and without.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use super::tests::{listener, stream, turn};
use super::*;
use crate::handshake::address::MeetingAddress;
use crate::handshake::hello::{Hello, Refusal, WORKER_MAX};
use crate::handshake::kind::KIND;

const SECRET: Secret = [7; 16];
const CHALLENGE: Challenge = *b"challenge of 16!";

/// The steps of the caller that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    Opening,
    Proof,
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerKind {
    Knowing,
    /// It doesn't know the secret, and so never comes beyond its opening.
    Stranger,
}

struct ListenerRoom {
    caller: UnixStream,
    listener: Connection,
    /// The right proof and the right packet, as each kind of caller has them.
    knowing: Steps,
    stranger: Steps,
    packets: usize,
    has_stranger: bool,
}

/// What a caller sends behind its opening.
struct Steps {
    proof: Tag,
    packet: Vec<u8>,
}

impl Steps {
    fn new(secret: Secret, listeners: &Challenge) -> Self {
        let mut session = Session::new(&secret, Role::Caller, &CHALLENGE, listeners);
        let proof = session.proof();
        let mut packet = Vec::new();
        put(&mut packet, &mut session, &Packet::Refusal(Refusal::Full));
        Steps { proof, packet }
    }
}

fn opening_bytes() -> Vec<u8> {
    [&KIND.magic[..], &[Release::OWN.byte()], &CHALLENGE].concat()
}

impl ListenerRoom {
    fn say(&mut self, bytes: &[u8]) {
        self.caller.write_all(bytes).unwrap();
        while let Heard::Packet(packet) = turn(&mut self.listener) {
            assert_eq!(packet, Packet::Refusal(Refusal::Full));
            self.packets += 1;
        }
    }
}

impl Room for ListenerRoom {
    type Situation = Came;
    type Sender = CallerKind;

    fn enter(came: Came) -> Self {
        let (mut caller, two) = stream();
        let mut listener = listener(two, SECRET);
        listener.flush();
        let mut opening = [0; OPENING];
        caller.read_exact(&mut opening).unwrap();
        let challenge = super::opening(&opening, &KIND).unwrap();
        let knowing = Steps::new(SECRET, &challenge);
        let stranger = Steps::new([8; 16], &challenge);
        let mut room =
            ListenerRoom { caller, listener, knowing, stranger, packets: 0, has_stranger: false };
        if came != Came::Nothing {
            room.say(&opening_bytes());
        }
        if came == Came::Proof {
            let proof = room.knowing.proof;
            room.say(&proof);
        }
        room
    }

    fn takes(came: Came, caller: CallerKind, message: &Message) -> Legality {
        let is_legal = match message.name() {
            "opening" => came == Came::Nothing,
            "proof" => came == Came::Opening && caller == CallerKind::Knowing,
            _ => came == Came::Proof && caller == CallerKind::Knowing,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    /// The description has what is changed in a proof or a packet, since both are random.
    fn hear(&mut self, caller: CallerKind, bytes: &[u8]) -> bool {
        self.has_stranger |= caller == CallerKind::Stranger && !self.listener.is_proven();
        let before = self.packets;
        let steps = if caller == CallerKind::Knowing { &self.knowing } else { &self.stranger };
        let right = match bytes.first_chunk() {
            Some(PROOF_MARK) => Some(&steps.proof[..]),
            Some(PACKET_MARK) => Some(&steps.packet[..]),
            _ => None,
        };
        let said = right.map(|right| {
            let changed = &bytes[4..];
            let right = right.iter().chain(std::iter::repeat(&0));
            changed.iter().zip(right).map(|(byte, right)| byte ^ right).collect()
        });
        self.say(&said.unwrap_or(bytes.to_vec()));
        self.packets > before
    }

    fn state(&self) -> String {
        let has_challenge = matches!(self.listener.trust, Trust::Challenged { .. });
        format!("{:?}", (has_challenge, self.listener.is_proven(), self.packets))
    }

    /// A packet is taken once, and nobody without the secret is believed.
    fn audit(self) {
        assert!(self.packets <= 1, "a packet was taken twice");
        assert!(!(self.has_stranger && self.listener.is_proven()));
    }
}

/// Marks a message that stands for a change of the right proof, or of the right packet.
const PROOF_MARK: &[u8; 4] = b"prf:";
const PACKET_MARK: &[u8; 4] = b"pkt:";

/// A message of which no bit may change. Shorter ones wait for more bytes, and what comes behind it
/// is the next message.
fn unchanged(name: &'static str, mark: &[u8; 4], length: usize) -> Message {
    let message = Message::new(name, [&mark[..], &vec![0; length]].concat());
    let message = message.bytes_of(mark.len(), "mark", &Meaning::Open);
    message.bytes_of(length, "byte", &Meaning::Fixed).or_of_length(5 + length..=usize::MAX)
}

#[test]
fn no_step_of_a_caller_is_taken_for_another() {
    let opening = Message::new("opening", opening_bytes()).be(4, "mark", Meaning::Fixed);
    let opening = opening.be(1, "release", Meaning::Fixed);
    let opening = opening.bytes_of(size_of::<Challenge>(), "challenge", &Meaning::Free);
    let packet = Steps::new(SECRET, &CHALLENGE).packet.len();
    let messages = [
        opening.or_of_length(OPENING + 1..=usize::MAX),
        unchanged("proof", PROOF_MARK, TAG),
        unchanged("packet", PACKET_MARK, packet),
    ];
    let situations = [Came::Nothing, Came::Opening, Came::Proof];
    try_all::<ListenerRoom>(&situations, &[CallerKind::Knowing, CallerKind::Stranger], &messages);
}

/// A packet that was decrypted.
struct HandshakePacketRoom;

impl Room for HandshakePacketRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        HandshakePacketRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(bytes, &KIND) else { return false };
        assert_eq!(Packet::parse(&packet.emit(), &KIND), Ok(packet));
        true
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn no_packet_is_taken_for_another() {
    let address = MeetingAddress {
        name: *b"01234567",
        secret: SECRET,
        port: 4711,
        hosts: vec!["10.1.2.3".parse().unwrap()],
    };
    let address = address.address(&KIND).unwrap();
    let hello =
        Hello { address, used: 1, source: 2, own_source: Some(3), number: 4, worker: vec![9; 12] };
    let kind = || Meaning::OneOf((1..=4).collect());
    let hello = Message::new("hello", Packet::Hello(Box::new(hello)).emit()).le(1, "kind", kind());
    let words = ["used", "source", "number"];
    let hello = words.into_iter().fold(hello, |hello, word| hello.le(8, word, Meaning::Free));
    let hello = hello.le(1, "has a source", Meaning::Within(0..=1));
    let hello = hello.le(8, "own source", Meaning::Free);
    let hello = hello.le(1, "length of the address", Meaning::Fixed);
    let hello = hello.be(4, "mark", Meaning::Fixed).be(1, "release", Meaning::Fixed);
    let hello = hello.bytes_of(8 + 16 + 2, "name, secret and port", &Meaning::Free);
    let hello = hello.le(1, "kind of host", Meaning::Fixed).le(4, "host", Meaning::Free);
    let count = KIND.worker_min..=WORKER_MAX;
    let workers = Rest { unit: 1, count, legality: Legality::Legal };
    let short = |name, packet: Packet| Message::new(name, packet.emit()).le(1, "kind", kind());
    let refusal = short("refusal", Packet::Refusal(Refusal::Full));
    let messages = [
        hello.rest(workers),
        short("ready", Packet::Ready),
        short("bye", Packet::Bye),
        refusal.le(1, "reason", Meaning::Within(0..=6)),
    ];
    try_all::<HandshakePacketRoom>(&[()], &[()], &messages);
}
