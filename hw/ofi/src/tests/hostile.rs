//! Control packets, as a hostile peer changes them: for one send, and for a device over the tests'
//! provider.

use tagmatch_device::matching::{CompleteWhen, MatchingEvent};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::bench::{Bench, LONG, TAG, head};
use crate::carrier::{CqData, Wire};
use crate::control::Packet;
use crate::operations::Long;
use crate::rma::Target;
use crate::sending::HEAD as DEVICE_HEAD;

/// The length of the message, of its head, and the most bytes of a piece that its sender can send.
const LENGTH: usize = 1000;
const HEAD: usize = 100;
const PIECE_MAX: u32 = 300;

/// How far the send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendSituation {
    /// The head has gone out.
    Unanswered,
    Answered,
}

struct SendRoom {
    long: Long,
}

fn go() -> Packet {
    Packet::Go { send: 4, receive: 5, piece: 200, end: 900 }
}

impl Room for SendRoom {
    type Situation = SendSituation;
    type Sender = ();

    fn enter(situation: SendSituation) -> Self {
        let mut long = Long::to_be_sent(HEAD);
        if situation == SendSituation::Answered {
            assert!(long.follow(go(), PIECE_MAX, LENGTH));
        }
        SendRoom { long }
    }

    fn takes(situation: SendSituation, (): (), message: &Message) -> Legality {
        // An ack and a mark have no rest to send.
        let is_answer = matches!(message.name(), "go" | "write to");
        if is_answer && situation == SendSituation::Unanswered {
            Legality::Legal
        } else {
            Legality::Illegal
        }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        Packet::parse(bytes).is_some_and(|packet| {
            assert_eq!(Packet::parse(&packet.emit()), Some(packet));
            self.long.follow(packet, PIECE_MAX, LENGTH)
        })
    }

    fn state(&self) -> String {
        let Long { other, piece, next, end, target, .. } = &self.long;
        format!("{:?}", (other, piece, next, end, target))
    }

    /// The pieces lie behind the head and inside the message, one behind the other.
    fn audit(mut self) {
        let mut place = HEAD;
        while let Some((start, length)) = self.long.take_next() {
            assert_eq!(start, place);
            assert!((1..=PIECE_MAX as usize).contains(&length) && start + length <= LENGTH);
            place += length;
            self.long.out -= 1;
        }
        assert!(self.long.is_over());
    }
}

fn packet(name: &'static str, packet: Packet, send: Meaning) -> Message {
    let kinds = Meaning::OneOf((1..=5).collect());
    Message::new(name, packet.emit()).le(4, "kind", kinds).le(4, "send", send)
}

#[test]
fn no_answer_to_a_long_message_does_harm() {
    let ends = || Meaning::Within(HEAD as u64 + 1..=LENGTH as u64);
    let answer = packet("go", go(), Meaning::Free).le(4, "receive", Meaning::Free);
    let answer = answer.le(4, "piece", Meaning::Within(1..=PIECE_MAX.into()));
    let target = Target { key: 6, address: 7 };
    let write_to = Packet::WriteTo { send: 4, receive: 5, end: 900, target };
    let write_to = packet("write to", write_to, Meaning::Free).le(4, "receive", Meaning::Free);
    let short = |name, of| packet(name, of, Meaning::Free).bytes_of(24, "ignored", &Meaning::Free);
    let messages = [
        answer.le(8, "end", ends()).le(8, "ignored", Meaning::Free),
        write_to.le(4, "end", ends()).le(8, "key", Meaning::Free).le(8, "address", Meaning::Free),
        short("ack", Packet::Ack { send: 4 }),
        short("written", Packet::Written { receive: 5 }),
    ];
    try_all::<SendRoom>(&[SendSituation::Unanswered, SendSituation::Answered], &[()], &messages);
}

/// What is under way with the first peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceSituation {
    Idle,
    /// A long message waits for its answer.
    Sending,
    /// As [`DeviceSituation::Sending`], over a provider that can write to the peer.
    SendingToWrite,
    /// Pieces of a long message are to come.
    Receiving,
    /// The peer is to write the rest of a long message, and to say so.
    BeingWritten,
}

struct DeviceRoom {
    bench: Bench,
    ended: Vec<String>,
}

impl DeviceRoom {
    fn settle(&mut self) {
        for event in self.bench.events() {
            match event {
                MatchingEvent::Received { token, result: Ok(_), .. } => {
                    self.ended.push(format!("received {token}"));
                }
                MatchingEvent::Sent { token, result: Ok(()), .. } => {
                    self.ended.push(format!("sent {token}"));
                }
                _ => {}
            }
        }
    }
}

impl Room for DeviceRoom {
    type Situation = DeviceSituation;
    /// The place of the peer.
    type Sender = usize;

    fn enter(situation: DeviceSituation) -> Self {
        use DeviceSituation::{BeingWritten, Idle, Receiving, Sending, SendingToWrite};
        let mut bench = match situation {
            Idle | Sending | Receiving => Bench::new(CqData::Both),
            SendingToWrite | BeingWritten => Bench::writing(),
        };
        let [peer, _] = bench.peers;
        match situation {
            Idle => {}
            Sending | SendingToWrite => bench.send(peer, LONG, CompleteWhen::Matched, 1),
            Receiving | BeingWritten => {
                bench.receive(TAG, LONG, 1);
                bench.arrive(peer, &head(9), Some(LONG));
            }
        }
        let mut room = DeviceRoom { bench, ended: Vec::new() };
        room.settle();
        room
    }

    fn takes(situation: DeviceSituation, sender: usize, message: &Message) -> Legality {
        use DeviceSituation::{BeingWritten, Sending, SendingToWrite};
        let is_sending = matches!(situation, Sending | SendingToWrite);
        let is_legal = match message.name() {
            "mark" => return Legality::Open,
            "ack" | "go" => is_sending && sender == 0,
            "write to" => situation == SendingToWrite && sender == 0,
            _ => situation == BeingWritten && sender == 0,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    /// Whether bytes of the send follow. A number of nothing under way is ignored, since that may
    /// have ended meanwhile.
    fn hear(&mut self, sender: usize, bytes: &[u8]) -> bool {
        let number = self.bench.peers[sender].0.into();
        let Wire { tag, data } = self.bench.ofi.transport.carrier.control_wire(number);
        let before = self.bench.nic().sent.len();
        self.bench.nic().arrive(tag, data, bytes);
        self.settle();
        self.bench.nic().sent.len() > before
    }

    fn state(&self) -> String {
        format!("{:?}", self.ended)
    }

    /// A peer that is up still is served.
    fn audit(mut self) {
        if let Some(place) = (0..2).find(|place| self.bench.is_up(*place)) {
            self.bench.receive(TAG + 1, 10, 7);
            let peer = self.bench.peers[place];
            let label = crate::carrier::Label { tag: TAG + 1, ..Default::default() };
            let wire = self.bench.wire(peer, label);
            self.bench.nic().arrive(wire.tag, wire.data, &[3]);
            assert_eq!(self.bench.received(7).unwrap().0, Ok(1));
        }
    }
}

#[test]
fn no_control_packet_of_a_peer_does_harm() {
    use DeviceSituation::{BeingWritten, Idle, Receiving, Sending, SendingToWrite};
    let mut sending = DeviceRoom::enter(Sending).bench;
    let send = sending.trailer().send;
    let mut written = DeviceRoom::enter(BeingWritten).bench;
    let receive = written.take_packets().into_iter().find_map(|packet| match packet {
        Packet::WriteTo { receive, .. } => Some(receive),
        _ => None,
    });
    let receive = receive.expect("the peer is asked to write");
    let end = LONG as u64;
    let ends = || Meaning::Within(DEVICE_HEAD as u64 + 1..=end);
    let answer = Packet::Go { send, receive: 5, piece: 4096, end };
    let answer = packet("go", answer, Meaning::Fixed).le(4, "receive", Meaning::Free);
    let answer = answer.le(4, "piece", Meaning::Within(1..=4096)).le(8, "end", ends());
    let target = Target { key: 6, address: 7 };
    let write_to = Packet::WriteTo { send, receive: 5, end: LONG as u32, target };
    let write_to = packet("write to", write_to, Meaning::Fixed).le(4, "receive", Meaning::Free);
    let write_to = write_to.le(4, "end", ends()).le(8, "key", Meaning::Free);
    let written = packet("written", Packet::Written { receive }, Meaning::Free);
    let written = written.le(4, "receive", Meaning::Fixed);
    let lane = crate::endpoint::Lane::Messages;
    let messages = [
        answer.le(8, "ignored", Meaning::Free),
        write_to.le(8, "address", Meaning::Free),
        written.bytes_of(20, "ignored", &Meaning::Free),
        packet("ack", Packet::Ack { send }, Meaning::Fixed).bytes_of(24, "ignored", &Meaning::Free),
        packet("mark", Packet::Mark { lane }, Meaning::Free).bytes_of(
            24,
            "ignored",
            &Meaning::Free,
        ),
    ];
    let situations = [Idle, Sending, SendingToWrite, Receiving, BeingWritten];
    try_all::<DeviceRoom>(&situations, &[0, 1], &messages);
}
