//! Two devices at the ends of a network that carries packets of RoCE, and loses, repeats and
//! reorders them as a test says.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use tagmatch_testkit::random::Random;

use super::programs::{Completed, Program, TestLink, remote, segment, settings, turns, work};
use super::{ALL, End, RECEIVED, REQUEST, REQUEST_ERROR, completions, datagrams, end};
use crate::abi::event;
use crate::gid::of_address;
use crate::knobs::LinkLayer;
use crate::nic::Fabric;
use crate::roce::aeth::{Aeth, AethVerdict, NakCode};
use crate::roce::icrc::{Checker, PacketFlow};
use crate::roce::link::{ArrivedPacket, PacketLink, WirePath};
use crate::roce::packet::{Extra, PacketPart, Reth, RoceOperation, RocePacket};
use crate::roce::port::RocePort;
use crate::settings::Settings;
use crate::wqe::{RemoteAddress, opcode};

/// What becomes of packets between two devices.
#[derive(Debug, Default)]
struct Cable {
    /// All that were sent.
    log: Vec<RocePacket>,
    /// The places in the log of those that are lost.
    lost: Vec<usize>,
    /// If there is a source of random numbers: of so many packets one is lost, one is repeated, and
    /// one is held back.
    one_in: u64,
    random: Option<Random>,
    held: Vec<(Weak<Fabric>, ArrivedPacket)>,
}

impl Cable {
    /// What arrives now that a packet is sent.
    fn pass(
        &mut self,
        to: &Weak<Fabric>,
        arrived: ArrivedPacket,
    ) -> Vec<(Weak<Fabric>, ArrivedPacket)> {
        self.log.push(arrived.packet.clone());
        let copy =
            |arrived: &ArrivedPacket| ArrivedPacket { packet: arrived.packet.clone(), ..*arrived };
        if self.lost.contains(&(self.log.len() - 1)) {
            return Vec::new();
        }
        let Some(random) = &mut self.random else { return vec![(to.clone(), arrived)] };
        let mut now = Vec::new();
        match random.below(self.one_in) {
            0 => {}
            1 => now.extend([(to.clone(), copy(&arrived)), (to.clone(), arrived)]),
            2 => self.held.push((to.clone(), arrived)),
            _ => now.push((to.clone(), arrived)),
        }
        if random.below(3) == 0 {
            now.append(&mut self.held);
        }
        now
    }
}

/// One end of a cable.
#[derive(Debug)]
struct CableEnd {
    to: Weak<Fabric>,
    cable: Arc<Mutex<Cable>>,
}

impl PacketLink for CableEnd {
    fn send(&self, path: &WirePath, packet: &RocePacket) {
        let end = |address: IpAddr| (address, 4791).into();
        let flow = PacketFlow { from: end(path.from), to: end(path.to) };
        let mut bytes = packet.to_bytes();
        let icrc = flow.icrc(&bytes).unwrap();
        bytes.extend(icrc.to_le_bytes());
        let packet = Checker::default().checked(&flow, &bytes).map(RocePacket::parse);
        let arrived = ArrivedPacket { lid: 1, path: *path, packet: packet.unwrap().unwrap() };
        let now = self.cable.lock().unwrap().pass(&self.to, arrived);
        for (to, arrived) in now {
            to.upgrade().unwrap().arrive(arrived);
        }
    }
}

fn address(end: usize) -> IpAddr {
    [10, 9, 0, end as u8 + 1].into()
}

/// Two devices with one program each, and the cable between them.
struct Network {
    programs: [Program; 2],
    fabrics: [Arc<Fabric>; 2],
    cable: Arc<Mutex<Cable>>,
}

fn network(change: impl Fn(&mut Settings)) -> Network {
    let settings = [0, 1].map(|end| {
        let addresses = vec![address(end)];
        let port = RocePort { interface: "eth0".into(), index: 7, mtu: 4096, addresses };
        let mut settings = Settings { ports: vec![port], ..settings() };
        settings.knobs.link_layer = LinkLayer::Ethernet;
        settings.knobs.mtu = Some(4096);
        change(&mut settings);
        settings
    });
    let fabrics = settings.each_ref().map(|settings| Arc::new(Fabric::new(settings)));
    let cable = Arc::new(Mutex::new(Cable::default()));
    for (own, other) in [(0, 1), (1, 0)] {
        let to = Arc::downgrade(&fabrics[other]);
        fabrics[own].connect(Box::new(CableEnd { to, cable: Arc::clone(&cable) }));
    }
    let programs = [0, 1].map(|end| {
        let mut program = Program::new(&fabrics[end], &settings[end], u64::MAX);
        program.link.gid = Some(of_address(address(1 - end)));
        program
    });
    Network { programs, fabrics, cable }
}

impl Network {
    /// A connection with this path MTU (`enum ibv_mtu`).
    fn connect(&mut self, mtu: u8) -> [End; 2] {
        let ends = self.programs.each_mut().map(|program| {
            program.link = TestLink { mtu, retries: 7, ..program.link };
            let cq = program.create_cq(64, None).unwrap();
            end(program, None, cq)
        });
        self.programs[0].connect(&ends[0].qp, ends[1].qp.number, 7);
        self.programs[1].connect(&ends[1].qp, ends[0].qp.number, 7);
        ends
    }

    /// All packets that were sent so far.
    fn log(&self) -> Vec<RocePacket> {
        self.cable.lock().unwrap().log.clone()
    }

    fn lose(&self, places: &[usize]) {
        self.cable.lock().unwrap().lost = places.to_vec();
    }

    fn one(&mut self, at: usize, end: &mut End) -> Completed {
        completions(&mut self.programs, at, &mut end.cq, 1)[0]
    }

    /// A packet reaches a program from an address.
    fn arrive(&mut self, at: usize, from: IpAddr, packet: RocePacket) {
        let path = WirePath { from, to: address(at) };
        self.fabrics[at].arrive(ArrivedPacket { lid: 1, path, packet });
        turns(&mut self.programs, 3);
    }
}

fn data(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + seed + at / 251) as u8).collect()
}

fn done(packet: &RocePacket) -> bool {
    let RoceOperation::Acknowledge(aeth) = packet.operation else { return false };
    matches!(aeth.verdict, AethVerdict::Done { .. })
}

/// A SEND of each length, with immediate data, in packets of this MTU.
fn sends(network: &mut Network, [a, b]: &mut [End; 2], mtu: usize) {
    for (round, length) in [0, 1, mtu, mtu + 1, 7 * mtu / 2].into_iter().enumerate() {
        let bytes = data(length, round);
        network.programs[0].put(a.at, &bytes);
        network.programs[1].put(b.at, &vec![0; length + 1]);
        network.programs[1].post_receive(&mut b.qp, b.at, 0x4_0000, b.key);
        let from = segment(a.at, length as u32, a.key);
        network.programs[0].post(&mut a.qp, opcode::SEND_IMM, 77, &from);
        let received = network.one(1, b);
        assert_eq!((received.opcode(), received.length()), (3, length as u32));
        assert_eq!(received.immediate(), 77);
        assert_eq!(network.one(0, a).opcode(), REQUEST);
        assert_eq!(network.programs[1].get(b.at, length + 1), [&bytes[..], &[0]].concat());
    }
}

/// A WRITE and a READ of several parts of the device, and atomic operations.
fn accesses(network: &mut Network, [a, b]: &mut [End; 2], length: usize) {
    let bytes = data(length, 3);
    network.programs[0].put(a.at, &bytes);
    network.programs[1].put(b.at, &vec![0; length + 1]);
    let both = [remote(b.at, b.key), segment(a.at, length as u32, a.key)].concat();
    network.programs[0].post(&mut a.qp, opcode::WRITE, 0, &both);
    assert_eq!(network.one(0, a).opcode(), REQUEST);
    assert!(network.programs[1].get(b.at, length + 1) == [&bytes[..], &[0]].concat());
    network.programs[0].put(a.at, &vec![0; length]);
    network.programs[0].post(&mut a.qp, opcode::READ, 0, &both);
    assert_eq!(network.one(0, a).opcode(), REQUEST);
    assert!(network.programs[0].get(a.at, length) == bytes);
    let words = |first: u64, second: u64| [first.to_be_bytes(), second.to_be_bytes()].concat();
    network.programs[1].put(b.at, &40_u64.to_ne_bytes());
    for (round, old) in [40_u64, 42, 44].into_iter().enumerate() {
        let into = segment(a.at + 8 * round as u64, 8, a.key);
        let add = [remote(b.at, b.key), words(2, 0), into].concat();
        network.programs[0].post(&mut a.qp, opcode::FETCH_AND_ADD, 0, &add);
        assert_eq!(network.one(0, a).opcode(), REQUEST);
        let got = network.programs[0].get(a.at + 8 * round as u64, 8);
        assert_eq!(got, old.to_ne_bytes());
    }
    let swap = [remote(b.at, b.key), words(9, 46), segment(a.at, 8, a.key)].concat();
    network.programs[0].post(&mut a.qp, opcode::COMPARE_AND_SWAP, 0, &swap);
    assert_eq!(network.one(0, a).opcode(), REQUEST);
    assert_eq!(network.programs[1].get(b.at, 8), 9_u64.to_ne_bytes());
}

#[test]
fn all_operations_pass_a_network_in_packets_of_each_mtu() {
    for mtu in 1..=5 {
        let mut network = network(|_| {});
        let mut ends = network.connect(mtu);
        let bytes = 128 << mtu;
        sends(&mut network, &mut ends, bytes);
        accesses(&mut network, &mut ends, 0x4_0000 + 100);
        let log = network.log();
        assert!(log.iter().all(|packet| packet.data.len() <= bytes));
        assert!(log.iter().any(|packet| packet.data.len() == bytes));
        let naks = log.iter().filter(|packet| {
            matches!(packet.operation, RoceOperation::Acknowledge(_)) && !done(packet)
        });
        assert_eq!(naks.count(), 0, "nothing was lost");
    }
}

#[test]
fn packets_go_wrong_as_they_leave_by_knobs() {
    for (loss, duplication, reordering) in [(30_000, 0, 0), (0, 200_000, 0), (0, 0, 200_000)] {
        let mut network = network(|settings| {
            let knobs = &mut settings.knobs;
            (knobs.loss, knobs.duplication, knobs.reordering) = (loss, duplication, reordering);
        });
        let mut ends = network.connect(1);
        sends(&mut network, &mut ends, 256);
        accesses(&mut network, &mut ends, 60_000);
        let psns: Vec<u32> = (network.log().iter())
            .filter(|packet| matches!(packet.operation, RoceOperation::Write { .. }))
            .map(|packet| packet.psn)
            .collect();
        let repeated = psns.windows(2).filter(|two| two[0] == two[1]).count();
        let gaps = psns.windows(2).filter(|two| two[1] != two[0] + 1).count();
        assert_eq!(repeated > 0, duplication > 0);
        assert!(gaps > 0);
    }
}

#[test]
fn a_network_that_loses_repeats_and_reorders_is_no_obstacle() {
    for seed in 0..6 {
        let mut network = network(|_| {});
        let mut ends = network.connect(3);
        {
            let mut cable = network.cable.lock().unwrap();
            (cable.one_in, cable.random) = (20, Some(Random::new(seed)));
        }
        sends(&mut network, &mut ends, 1024);
        accesses(&mut network, &mut ends, 60_000);
    }
}

/// InfiniBand 9.7.5.2.8: the receiver says at once what it lacks, and says it once.
#[test]
fn a_gap_is_reported_at_once_and_the_packets_from_there_on_are_sent_again() {
    let mut network = network(|_| {});
    let [mut a, mut b] = network.connect(1);
    network.lose(&[2]);
    let bytes = data(6 * 256, 1);
    network.programs[0].put(a.at, &bytes);
    network.programs[1].post_receive(&mut b.qp, b.at, 0x1000, b.key);
    network.programs[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 6 * 256, a.key));
    assert_eq!(network.one(1, &mut b).opcode(), RECEIVED);
    assert_eq!(network.one(0, &mut a).opcode(), REQUEST);
    assert_eq!(network.programs[1].get(b.at, 6 * 256), bytes);
    let log = network.log();
    let psns: Vec<u32> = (log.iter())
        .filter(|packet| !packet.operation.is_answer())
        .map(|packet| packet.psn)
        .collect();
    // The numbers wrap; the third packet has the number 0.
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1, 2, 3, 0, 1, 2, 3]);
    let naks: Vec<_> = (log.iter())
        .filter(|packet| packet.operation.is_answer() && !done(packet))
        .map(|packet| (packet.psn, packet.operation))
        .collect();
    let verdict = AethVerdict::Refused(NakCode::Sequence);
    assert_eq!(naks, [(0, RoceOperation::Acknowledge(Aeth { verdict, msn: 0 }))]);
}

#[test]
fn an_answer_of_a_read_that_is_lost_is_asked_for_from_there_on() {
    let mut network = network(|_| {});
    let [mut a, b] = network.connect(1);
    // The request, and then the third of eight packets of the answer.
    network.lose(&[3]);
    let bytes = data(8 * 256, 5);
    network.programs[1].put(b.at, &bytes);
    let both = [remote(b.at, b.key), segment(a.at, 8 * 256, a.key)].concat();
    network.programs[0].post(&mut a.qp, opcode::READ, 0, &both);
    assert_eq!(network.one(0, &mut a).opcode(), REQUEST);
    assert_eq!(network.programs[0].get(a.at, 8 * 256), bytes);
    let log = network.log();
    let requests: Vec<_> = (log.iter())
        .filter(|packet| !packet.operation.is_answer())
        .map(|packet| (packet.psn, packet.operation))
        .collect();
    let read = |done: u32| {
        let at = RemoteAddress { at: b.at + u64::from(done) * 256, rkey: b.key };
        RoceOperation::ReadRequest(Reth { at, length: (8 - done) * 256 })
    };
    assert_eq!(requests, [(0xff_fffe, read(0)), (0, read(2))]);
}

#[test]
fn a_receiver_without_a_buffer_is_asked_again() {
    let mut network = network(|_| {});
    let [mut a, mut b] = network.connect(3);
    network.programs[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 3000, a.key));
    turns(&mut network.programs, 5);
    let verdict = AethVerdict::NotReady { timer: 1 };
    let refused = RoceOperation::Acknowledge(Aeth { verdict, msn: 0 });
    let log = network.log();
    let answers: Vec<_> = log.iter().filter(|packet| packet.operation.is_answer()).collect();
    assert!(!answers.is_empty());
    assert!(answers.iter().all(|packet| (packet.psn, packet.operation) == (0xff_fffe, refused)));
    network.programs[1].post_receive(&mut b.qp, b.at, 0x1000, b.key);
    assert_eq!(network.one(1, &mut b).length(), 3000);
    assert_eq!(network.one(0, &mut a).opcode(), REQUEST);
}

#[test]
fn what_is_not_allowed_breaks_both_ends() {
    let mut network = network(|_| {});
    let [mut a, b] = network.connect(3);
    let both = [remote(b.at, 0), segment(a.at, 3000, a.key)].concat();
    network.programs[0].post(&mut a.qp, opcode::WRITE, 0, &both);
    let failed = network.one(0, &mut a);
    assert_eq!((failed.opcode(), failed.syndrome()), (REQUEST_ERROR, 0x13));
    let verdict = AethVerdict::Refused(NakCode::RemoteAccess);
    let nak = RoceOperation::Acknowledge(Aeth { verdict, msn: 0 });
    assert!(network.log().iter().any(|packet| packet.operation == nak));
    assert_eq!(network.programs[1].events(), [event::QP_ACCESS_ERR]);
}

/// A peer that is silent is given up after the retries of `ibv_modify_qp(3)`.
#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut network = network(|_| {});
    for program in &mut network.programs {
        program.link.retries = 2;
    }
    let ends = network.programs.each_mut().map(|program| {
        let cq = program.create_cq(64, None).unwrap();
        end(program, None, cq)
    });
    let [mut a, b] = ends;
    network.programs[0].connect(&a.qp, b.qp.number, 7);
    network.programs[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 10, a.key));
    let failed = network.one(0, &mut a);
    assert_eq!((failed.opcode(), failed.syndrome()), (REQUEST_ERROR, 0x15));
    assert_eq!(network.log().len(), 3, "sent once and repeated twice");
}

fn packet(to: u32, psn: u32, operation: RoceOperation, data: Vec<u8>) -> RocePacket {
    let is_solicited = false;
    let asks_acknowledge = true;
    RocePacket { is_solicited, asks_acknowledge, pkey: 0xffff, to, psn, operation, data }
}

const SEND: RoceOperation = RoceOperation::Send { part: PacketPart::Only, extra: Extra::Nothing };

#[test]
fn packets_of_strangers_change_nothing() {
    let mut network = network(|_| {});
    let [mut a, mut b] = network.connect(3);
    network.programs[1].post_receive(&mut b.qp, b.at, 0x1000, b.key);
    let good = packet(b.qp.number, 0xff_fffe, SEND, vec![9; 8]);
    let done = AethVerdict::Done { credits: 31 };
    let acknowledge = RoceOperation::Acknowledge(Aeth { verdict: done, msn: 1 });
    let nak = AethVerdict::Refused(NakCode::RemoteAccess);
    let nak = RoceOperation::Acknowledge(Aeth { verdict: nak, msn: 1 });
    let datagram = RoceOperation::Datagram { qkey: 0, from: 2, immediate: None };
    let stranger: IpAddr = [10, 9, 0, 77].into();
    for (from, packet) in [
        (stranger, good.clone()),
        (address(0), RocePacket { to: b.qp.number + 1, ..good.clone() }),
        (address(0), RocePacket { pkey: 0x8001, ..good.clone() }),
        (address(0), RocePacket { operation: datagram, ..good.clone() }),
        (address(0), RocePacket { operation: acknowledge, data: vec![], ..good.clone() }),
        (address(0), RocePacket { operation: nak, data: vec![], ..good.clone() }),
    ] {
        network.arrive(1, from, packet);
        assert_eq!(network.log(), [], "nothing is answered");
        assert!(network.programs[1].poll(&mut b.cq).is_empty());
    }
    // The connection works as before.
    network.programs[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 5, a.key));
    assert_eq!(network.one(1, &mut b).length(), 5);
    assert_eq!(network.one(0, &mut a).opcode(), REQUEST);
}

/// What a peer may not send: its connection ends, with the NAK of InfiniBand 9.7.5.2.
#[test]
fn packets_that_break_the_rules_are_refused() {
    let send = |part| RoceOperation::Send { part, extra: Extra::Nothing };
    let invalidate = RoceOperation::Send { part: PacketPart::Only, extra: Extra::Invalidate(1) };
    let write = |part, reth| RoceOperation::Write { part, reth, immediate: None };
    let full = vec![1; 1024];
    let short = vec![1; 10];
    let cases = [
        ("a middle first", vec![(send(PacketPart::Middle), full.clone())]),
        ("a last first", vec![(send(PacketPart::Last), short.clone())]),
        ("a short first", vec![(send(PacketPart::First), short.clone())]),
        ("a long only", vec![(send(PacketPart::Only), vec![1; 1025])]),
        ("two firsts", vec![(send(PacketPart::First), full.clone()); 2]),
        (
            "an empty last",
            vec![(send(PacketPart::First), full.clone()), (send(PacketPart::Last), vec![])],
        ),
        (
            "a WRITE in a SEND",
            vec![
                (send(PacketPart::First), full.clone()),
                (write(PacketPart::Middle, None), full.clone()),
            ],
        ),
        ("a key to invalidate", vec![(invalidate, short.clone())]),
    ];
    for (what, packets) in cases {
        let mut network = network(|_| {});
        let [_, mut b] = network.connect(3);
        network.programs[1].post_receive(&mut b.qp, b.at, 0x1000, b.key);
        turns(&mut network.programs, 2);
        for (at, (operation, data)) in packets.iter().enumerate() {
            let psn = (0xff_fffe + at as u32) & 0xff_ffff;
            network.arrive(1, address(0), packet(b.qp.number, psn, *operation, data.clone()));
        }
        let last = network.log().last().map(|packet| packet.operation);
        let Some(RoceOperation::Acknowledge(aeth)) = last else { panic!("{what}: {last:?}") };
        assert_eq!(aeth.verdict, AethVerdict::Refused(NakCode::InvalidRequest), "{what}");
        assert_eq!(network.programs[1].events(), [event::QP_REQ_ERR], "{what}");
    }
}

/// A WRITE may not be longer than its first packet says, nor a READ than a message may be.
#[test]
fn lengths_that_lie_are_refused() {
    for length in [1023, 1024, 1500, 3000, u32::MAX] {
        let mut network = network(|_| {});
        let [_, b] = network.connect(3);
        let at = RemoteAddress { at: b.at, rkey: b.key };
        let reth = Reth { at, length };
        let first =
            RoceOperation::Write { part: PacketPart::First, reth: Some(reth), immediate: None };
        let last = RoceOperation::Write { part: PacketPart::Last, reth: None, immediate: None };
        let to = b.qp.number;
        network.arrive(1, address(0), packet(to, 0xff_fffe, first, vec![1; 1024]));
        network.arrive(1, address(0), packet(to, 0xff_ffff, last, vec![1; 1024]));
        let refused = network.log().iter().any(|packet| !done(packet));
        assert!(refused, "{length}");
        assert_eq!(network.programs[1].get(b.at + 2048, 1), [0]);
    }
    let mut network = network(|_| {});
    let [_, b] = network.connect(3);
    let at = RemoteAddress { at: b.at, rkey: b.key };
    let read = RoceOperation::ReadRequest(Reth { at, length: u32::MAX });
    network.arrive(1, address(0), packet(b.qp.number, 0xff_fffe, read, vec![]));
    assert!(network.log().iter().all(|packet| !done(packet) && packet.data.is_empty()));
    assert_eq!(network.log().len(), 1);
}

/// An atomic operation that is repeated is answered as before, and not carried out again.
#[test]
fn a_repeated_atomic_operation_is_carried_out_once() {
    let mut network = network(|_| {});
    let [_, b] = network.connect(3);
    network.programs[1].put(b.at, &5_u64.to_ne_bytes());
    let at = RemoteAddress { at: b.at, rkey: b.key };
    let add = RoceOperation::Atomic { at, atomic: crate::wqe::Atomic::FetchAndAdd { add: 3 } };
    for _ in 0..3 {
        network.arrive(1, address(0), packet(b.qp.number, 0xff_fffe, add, vec![]));
    }
    assert_eq!(network.programs[1].get(b.at, 8), 8_u64.to_ne_bytes());
    let olds = network.log().iter().map(|packet| packet.operation).collect::<Vec<_>>();
    assert_eq!(olds.len(), 3);
    let is_old = |operation| matches!(operation, RoceOperation::AtomicAcknowledge { old: 5, .. });
    assert!(olds.into_iter().all(is_old));
}

#[test]
fn a_datagram_passes_a_network_with_its_route_and_the_right_key() {
    for qkey in [7_u32, 8] {
        let mut network = network(|_| {});
        let cqs = network.programs.each_mut().map(|program| program.create_cq(64, None).unwrap());
        let [mut from, mut to] = [0, 1].map(|at| datagrams(&mut network.programs[at], &cqs[at]));
        let at = network.programs.each_mut().map(|program| program.allocate(4096));
        let keys = [0, 1].map(|n| network.programs[n].register(at[n], 4096, ALL).unwrap().1);
        network.programs[1].post_receive(&mut to, at[1], 256, keys[1]);
        network.programs[0].put(at[0], b"datagram");
        // The address with its GRH, from the row 1 of the table.
        let number = to.number | 0x8000_0000;
        let head = [&qkey.to_be_bytes()[..], &[0; 4], &number.to_be_bytes(), &[0; 4]].concat();
        let tail = [&[0; 12][..], &[0x40, 0x10, 0, 0], &of_address(address(1))].concat();
        let request = [head, tail, segment(at[0], 8, keys[0])].concat();
        network.programs[0].post(&mut from, opcode::SEND, 0, &request);
        let mut cq = cqs[0];
        work(&mut network.programs, |programs| !programs[0].poll(&mut cq).is_empty());
        turns(&mut network.programs, 3);
        let received = network.programs[1].poll(&mut { cqs[1] });
        assert_eq!(received.len(), usize::from(qkey == 7));
        if qkey == 7 {
            assert_eq!(received[0].length(), 48);
            let bytes = network.programs[1].get(at[1], 48);
            assert_eq!((&bytes[32..36], &bytes[36..40]), (&[10, 9, 0, 1][..], &[10, 9, 0, 2][..]));
            assert_eq!(&bytes[40..], b"datagram");
        }
    }
}

/// Packets between programs of one command stay inside.
#[test]
fn a_peer_of_the_same_command_is_reached_without_the_network() {
    let mut network = network(|_| {});
    let settings = network.programs[0].function.adapter.settings.as_ref().clone();
    let other = Program::new(&network.fabrics[0], &settings, u64::MAX);
    let [first, _] = network.programs;
    network.programs = [first, other];
    for program in &mut network.programs {
        program.link.gid = Some(of_address(address(0)));
    }
    let mut ends = network.connect(3);
    sends(&mut network, &mut ends, 1024);
    assert_eq!(network.log(), []);
}
