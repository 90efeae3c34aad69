//! Two workers' sides of one-sided operations, joined by queues of bytes; and peers that send
//! whatever they like.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use std::collections::VecDeque;

use tagmatch_device::{Bytes, RegionPlace};

use super::*;
use crate::requests::table::Requests;
use crate::rma::initiator::RemoteAction;
use crate::rma::owner::{NOTICES_MAX, UNANSWERED_MAX};
use crate::rma::regions::Rights;
use crate::wire::{AtomicOp, AtomicType, ElementUse, RemoteFault, WireMessage};

const PEER: PeerId = PeerId(1);
/// Bytes of the region of random operations: more than two atomic operations of a message fetch.
const REGION_BYTES: usize = 6000;

/// Random numbers without another crate.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick(&mut self, values: &[u64]) -> u64 {
        values[self.below(values.len() as u64) as usize]
    }
}

/// One worker: its one-sided operations, and the messages that it has sent.
struct Side {
    rma: Rma,
    requests: Requests,
    sent: VecDeque<Vec<u8>>,
}

impl Side {
    fn new(seed: u64) -> Self {
        Side { rma: Rma::new(seed), requests: Requests::new(), sent: VecDeque::new() }
    }

    fn begin(&mut self, key: RegionKey, offset: u64, action: RemoteAction) -> RequestId {
        let request = self.requests.begin().unwrap();
        self.rma.begin(
            request,
            RemoteOperation { peer: PEER, key, place: RegionPlace::default(), offset, action },
        );
        request
    }

    /// Sends what may go out, into a transport with room for so many messages.
    fn send(&mut self, message_max: usize, room: usize) {
        let Side { rma, sent, .. } = self;
        rma.send_to(PEER, message_max, |header, payload| {
            if sent.len() >= room {
                return Err(Refused::Full);
            }
            assert!(header.len() + payload.len() <= message_max);
            sent.push_back([header, payload].concat());
            Ok(())
        });
    }

    fn take(&mut self, message: &[u8]) -> Result<(), WireError> {
        let bytes = Bytes::from_slice(message);
        let WireMessage::Rma(header) = WireMessage::parse(&bytes)? else { return Ok(()) };
        self.rma.arrived(PEER, &header, &bytes, &mut self.requests)
    }

    fn audit(&self) {
        assert_eq!(self.rma.audit(false), [""; 0]);
    }
}

#[test]
fn operations_in_pieces_end_however_little_room_there_is() {
    for (seed, message_max) in [(1, RmaHeader::MESSAGE_MIN), (2, 200), (3, 5000), (4, 65536)] {
        let mut numbers = Numbers(seed);
        let [mut initiator, mut owner] = [Side::new(seed), Side::new(seed + 9)];
        let memory = Buffer::zeroed(REGION_BYTES);
        let key = owner.rma.regions.expose(memory, Rights::ALL).unwrap();
        let mut expected = vec![0u8; REGION_BYTES];
        let mut ends = Vec::new();
        let mut told = Vec::new();
        for round in 0..400 {
            let length = numbers.pick(&[0, 8, 48, 1000, 3000]) as usize;
            // The first half of a put beyond the end would fit.
            let is_beyond = round % 8 == 4 && length > 0;
            let within = numbers.below(2000) as usize;
            let at = if is_beyond { REGION_BYTES - length / 2 } else { within };
            let at = at.next_multiple_of(8);
            let range = at..at + length;
            let bytes: Vec<u8> = (0..length).map(|_| numbers.below(256) as u8).collect();
            let before = expected.get(range.clone()).unwrap_or_default().to_vec();
            let (action, result) = if round % 2 == 0 {
                if !is_beyond {
                    expected[range].copy_from_slice(&bytes);
                }
                let notice = (round % 8 == 0).then_some(round);
                told.extend(notice.map(|notice| (notice, length as u64)));
                (RemoteAction::Put { from: bytes.clone().into(), notice }, bytes)
            } else {
                let element = ElementUse::new(AtomicOp::BitXor, AtomicType::U64).unwrap();
                for (old, operand) in expected[range].iter_mut().zip(&bytes) {
                    *old ^= operand;
                }
                let old = (round % 4 == 1).then(|| Buffer::zeroed(length));
                let result = if old.is_some() { before } else { bytes.clone() };
                let operands = bytes.into();
                (RemoteAction::Atomic { element, operands, count: length / 8, old }, result)
            };
            ends.push((initiator.begin(key, at as u64, action), result, is_beyond));
            initiator.audit();
            while numbers.below(3) > 0 {
                initiator.send(message_max, 2);
                if let Some(message) = initiator.sent.pop_front() {
                    owner.take(&message).unwrap();
                }
                owner.send(message_max, 2);
                if let Some(message) = owner.sent.pop_front() {
                    initiator.take(&message).unwrap();
                }
                initiator.audit();
                owner.audit();
            }
        }
        let mut turns = 0;
        while initiator.rma.under_way(PEER) > 0 {
            for (from, to) in [(0, 1), (1, 0)] {
                let sides = [&mut initiator, &mut owner];
                sides[from].send(message_max, 1);
                if let Some(message) = sides[from].sent.pop_front() {
                    sides[to].take(&message).unwrap();
                }
            }
            turns += 1;
            assert!(turns < 100_000, "hangs");
        }
        for (request, result, is_beyond) in ends {
            let completion = initiator.requests.take(request).unwrap();
            let fault = Fault::Remote { peer: PEER, fault: RemoteFault::OutOfBounds };
            assert_eq!(completion.result.err(), is_beyond.then_some(fault));
            assert_eq!(completion.buffer[..], result);
        }
        let mut notices = Vec::new();
        while let Some((notice, _)) = owner.rma.take_notice() {
            notices.push((notice.value, notice.length));
        }
        assert_eq!(notices, told);
        assert_eq!(owner.rma.regions.close(key).unwrap()[..], expected);
        initiator.send(message_max, 1);
        assert!(owner.rma.peers.is_empty() && initiator.rma.peers.is_empty());
    }
}

#[test]
fn a_turn_ends_after_so_many_bytes_however_much_room_there_is() {
    let mut side = Side::new(1);
    side.begin(RegionKey(1), 0, RemoteAction::Put { from: vec![0; 1 << 20].into(), notice: None });
    let mut turns = 0;
    while side.rma.has_unsent() {
        side.send(1000, usize::MAX);
        turns += 1;
        let bytes: usize = side.sent.drain(..).map(|message| message.len()).sum();
        assert!(bytes < TURN_BYTES + 1000, "{bytes} bytes in a turn");
    }
    assert!(turns >= 16, "{turns}");
}

/// Headers of every kind with values at, below and above each limit: in any order, with any number
/// of bytes behind them.
#[test]
fn a_hostile_peer_changes_nothing_beyond_the_region_and_what_it_makes_us_keep_is_bounded() {
    let mut broken = 0;
    for seed in 0..3000 {
        let mut numbers = Numbers(seed);
        let mut side = Side::new(5);
        let key = side.rma.regions.expose(Buffer::zeroed(64), Rights::ALL).unwrap();
        let other = side.rma.regions.expose(Buffer::zeroed(64), Rights::READ).unwrap();
        let get = RemoteAction::Get { into: Buffer::zeroed(100) };
        side.begin(RegionKey(9), 0, get);
        side.begin(RegionKey(9), 0, RemoteAction::Put { from: vec![1; 10].into(), notice: None });
        side.send(4096, 10);
        for _ in 0..600 {
            let key = numbers.pick(&[key.0, key.0, key.0, other.0, 0, u64::MAX]);
            let places = [0, 1, 63, 64, 65, u64::MAX, u64::MAX - 63, 1 << 63];
            let offset = numbers.pick(&places);
            let long = numbers.pick(&places);
            let fault = RemoteFault::from_byte(numbers.below(5) as u8).unwrap();
            let op = AtomicOp::ALL[numbers.below(19) as usize];
            let of = AtomicType::ALL[numbers.below(14) as usize];
            let element = ElementUse::new(op, of);
            let notice = (numbers.below(2) == 0).then_some(7);
            let left = if numbers.below(3) > 0 { 0 } else { long };
            let fetches = numbers.below(2) == 0;
            let count = numbers.pick(&[0, 1, 4, 8, u64::MAX, 1 << 60]);
            let header = match (numbers.below(7), element) {
                (0 | 1, _) => RmaHeader::Put { key, offset, left, notice },
                (2, _) => RmaHeader::Get { key, offset, length: long },
                (3 | 4, Some(element)) => {
                    RmaHeader::Atomic { element, key, offset, count, fetches }
                }
                (5, _) => RmaHeader::Data,
                _ => RmaHeader::Done {
                    count: numbers.pick(&[0, 1, 2, u32::MAX.into()]) as u32,
                    fault,
                },
            };
            let behind = numbers.pick(&[0, 0, 1, 4, 8, 16, 64, 65, 1025]) as usize;
            let mut message = header.emit()[..header.byte_len()].to_vec();
            message.resize(header.byte_len() + behind, 0xff);
            if side.take(&message).is_err() {
                broken += 1;
                break;
            }
            side.audit();
            if numbers.below(4) == 0 {
                side.send(4096, 1000);
                side.sent.clear();
            }
        }
        assert!(side.rma.notices.len() <= NOTICES_MAX as usize);
        let memory = side.rma.regions.memory(other).unwrap();
        assert_eq!(memory[..], [0; 64], "a region that can only be read was changed");
        let fault = Fault::Closed;
        side.rma.peer_down(PEER, fault, &mut side.requests);
        assert!(side.rma.peers.is_empty());
    }
    assert!(broken > 1000, "{broken} connections were broken");
}

#[test]
fn a_peer_that_takes_no_answers_may_not_ask_for_ever() {
    let mut side = Side::new(5);
    let header = RmaHeader::Get { key: 1, offset: 0, length: 1 };
    let message = &header.emit()[..header.byte_len()];
    for _ in 0..UNANSWERED_MAX {
        side.take(message).unwrap();
    }
    assert!(matches!(side.take(message), Err(WireError::OneSided(_))));
}

/// Exchanges messages of 256 bytes until all operations have ended.
fn carry_out(initiator: &mut Side, owner: &mut Side) {
    let mut turns = 0;
    while initiator.rma.under_way(PEER) > 0 {
        turn(initiator, owner);
        turns += 1;
        assert!(turns < 1000, "hangs");
    }
}

fn turn(initiator: &mut Side, owner: &mut Side) {
    initiator.send(256, 8);
    for message in std::mem::take(&mut initiator.sent) {
        owner.take(&message).unwrap();
    }
    owner.send(256, 1);
    for message in std::mem::take(&mut owner.sent) {
        initiator.take(&message).unwrap();
    }
}

#[test]
fn a_put_whose_notice_finds_no_room_ends_when_a_notice_is_taken() {
    let [mut initiator, mut owner] = [Side::new(1), Side::new(2)];
    let key = owner.rma.regions.expose(vec![0; 8].into(), Rights::ALL).unwrap();
    for notice in 0..u64::from(NOTICES_MAX) + 2 {
        let notice = Some(notice);
        initiator.begin(key, 0, RemoteAction::Put { from: vec![1].into(), notice });
    }
    for left in [2, 1, 0] {
        for _ in 0..NOTICES_MAX {
            turn(&mut initiator, &mut owner);
        }
        assert_eq!(initiator.rma.under_way(PEER), left);
        let (oldest, _) = owner.rma.take_notice().unwrap();
        assert_eq!(oldest.value, 2 - left as u64);
    }
}

#[test]
fn notices_of_peers_that_come_and_go_are_bounded() {
    const PUTS: usize = 100;
    let mut owner = Side::new(5);
    let key = owner.rma.regions.expose(vec![0; 8].into(), Rights::ALL).unwrap();
    let header = RmaHeader::Put { key: key.0, offset: 0, left: 0, notice: Some(7) };
    let message = header.emit();
    let bytes = Bytes::from_slice(&message[..header.byte_len()]);
    let answer = |rma: &mut Rma, peer| rma.send_to(peer, 4096, |_, _| Ok(()));
    let last = PeerId((ALL_NOTICES_MAX / PUTS) as u32 + 3);
    for peer in (1..=last.0).map(PeerId) {
        for _ in 0..PUTS {
            owner.rma.arrived(peer, &header, &bytes, &mut owner.requests).unwrap();
        }
        answer(&mut owner.rma, peer);
        if peer != last {
            owner.rma.peer_down(peer, Fault::Closed, &mut owner.requests);
        }
    }
    assert_eq!(owner.rma.notices.len(), ALL_NOTICES_MAX);
    // The puts of the last peer wait. One is answered for each notice that is taken.
    for _ in 0..3 {
        let (_, peer) = owner.rma.take_notice().unwrap();
        assert_eq!(peer, Some(last));
        answer(&mut owner.rma, last);
        assert_eq!(owner.rma.notices.len(), ALL_NOTICES_MAX);
    }
    owner.audit();
}

#[test]
fn a_long_get_brings_each_byte_to_its_place() {
    let [mut initiator, mut owner] = [Side::new(1), Side::new(2)];
    let bytes: Vec<u8> = (0..4000_usize).map(|at| (at % 251) as u8).collect();
    let key = owner.rma.regions.expose(bytes.clone().into(), Rights::READ).unwrap();
    let whole = initiator.begin(key, 0, RemoteAction::Get { into: Buffer::zeroed(4000) });
    let part = initiator.begin(key, 7, RemoteAction::Get { into: Buffer::zeroed(3000) });
    carry_out(&mut initiator, &mut owner);
    assert_eq!(initiator.requests.take(whole).unwrap().buffer[..], bytes[..]);
    assert_eq!(initiator.requests.take(part).unwrap().buffer[..], bytes[7..3007]);
}

#[test]
fn rights_of_a_token_have_no_bit_that_stands_for_none() {
    for bits in 0..8 {
        assert_eq!(Rights::from_bits(bits).map(Rights::bits), Some(bits));
    }
    for bits in [8, 15, 0x80] {
        assert_eq!(Rights::from_bits(bits), None);
    }
}

#[test]
fn a_fence_holds_back_what_begins_later() {
    let [mut initiator, mut owner] = [Side::new(1), Side::new(2)];
    let key = owner.rma.regions.expose(vec![0; 4000].into(), Rights::ALL).unwrap();
    let get = initiator.begin(key, 0, RemoteAction::Get { into: Buffer::zeroed(4000) });
    initiator.rma.fence(PEER);
    initiator.begin(key, 0, RemoteAction::Put { from: vec![1; 4000].into(), notice: None });
    carry_out(&mut initiator, &mut owner);
    let got = initiator.requests.take(get).unwrap();
    assert_eq!(got.buffer[..], [0; 4000], "the put was done before the get had ended");
    assert_eq!(owner.rma.regions.close(key).unwrap()[..], [1; 4000]);
}
