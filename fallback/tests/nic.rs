//! Receives that a NIC matches: they end with the same facts as those that software matches.

mod wire;

use tagmatch_device::{Device, PeerId, RemoteSpan};
use tagmatch_fallback::wire::{AppCtx, MessageKind, Opcode, Rendezvous, Tmh, WireError};
use tagmatch_fallback::{
    Completion, Engine, EngineConfig, Fault, MatchEngine, PeerFault, RequestId, Send, SendMode,
    Started,
};
use tagmatch_model::{Chance, Delay, Knobs, Model, ModelConfig};
use tagmatch_soft::{Pattern, Tag, TagMask};

use wire::{Node, Wire, config, forge, kill, meet, nodes, nodes_on, settle};

type Nic = Model<Wire>;

/// Two engines with NICs that know each other: number 1 as 0 knows it.
fn pair(model: &ModelConfig) -> (Vec<Node<Nic>>, PeerId) {
    let (_, mut n) = nodes_on(2, &config(), |_, wire| Model::new(wire, model).unwrap());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    (n, to)
}

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn post<D: Device>(node: &mut Engine<D>, pattern: Pattern, room: usize) -> RequestId {
    node.receive(&pattern, vec![0xee; room].into()).unwrap()
}

fn send<D: Device>(node: &mut Engine<D>, to: PeerId, tag: u64, bytes: Vec<u8>, mode: SendMode) {
    match node.send(Send::new(to, Tag(tag), bytes.into()).immediate(Some(9)), mode) {
        Started::Pending(request) => node.detach(request),
        Started::Sent(_) => {}
        Started::Refused(refused) => panic!("{refused:?}"),
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// How a receive of `room` bytes ends when `length` bytes are sent to it.
fn receive(length: usize, room: usize, mode: SendMode) -> Completion {
    let (mut n, to) = pair(&ModelConfig::default());
    let request = post(&mut n[1], exact(5), room);
    settle(&mut n);
    send(&mut n[0], to, 5, bytes(length), mode);
    settle(&mut n);
    assert_eq!(n[1].counters().hardware, 1, "{length} bytes into {room}");
    assert_eq!(n[0].operations(), 0, "the sender waits on");
    n[1].requests_mut().take(request).expect("not over")
}

#[test]
fn a_receive_in_the_nic_ends_with_all_facts() {
    for mode in [SendMode::Standard, SendMode::Synchronous, SendMode::Delivered] {
        for length in [1, 8, 64, 500, 1024, 1025, 5000, 100_000] {
            for room in [1, 8, 63, 500, 1024, 4096, 5000, 200_000] {
                let done = receive(length, room, mode);
                let status = done.result.unwrap();
                let fits = length.min(room);
                assert_eq!(status.length, length as u64);
                assert_eq!((status.tag, status.immediate), (Tag(5), Some(9)));
                assert_eq!(status.truncated, length > room);
                assert_eq!(done.buffer.len(), room, "another buffer came back");
                assert_eq!(done.buffer[..fits], bytes(length)[..fits]);
                assert!(done.buffer[fits..].iter().all(|&byte| byte == 0xee), "{length} {room}");
            }
        }
    }
}

#[test]
fn a_cancelled_receive_comes_back_from_the_nic() {
    let (mut n, to) = pair(&ModelConfig::default());
    let request = post(&mut n[1], exact(5), 100);
    settle(&mut n);
    n[1].cancel(request);
    n[1].cancel(request);
    settle(&mut n);
    let done = n[1].requests_mut().take(request).expect("not over");
    assert_eq!((done.result, done.buffer.len()), (Err(Fault::Cancelled), 100));
    send(&mut n[0], to, 5, bytes(10), SendMode::Standard);
    settle(&mut n);
    let counters = n[1].counters();
    assert_eq!((counters.cancelled, counters.hardware, counters.unexpected_now), (1, 0, 1));
}

#[test]
fn a_message_to_oneself_waits_for_the_nic_and_gets_the_receive() {
    let (mut n, _) = pair(&ModelConfig::default());
    let first = post(&mut n[1], exact(5), 100);
    let second = post(&mut n[1], Pattern::new(Tag(0), TagMask::ANY), 100);
    settle(&mut n);
    for tag in [5, 6] {
        send(&mut n[1], PeerId::ONESELF, tag, bytes(10), SendMode::Standard);
    }
    settle(&mut n);
    let tag =
        |n: &mut Engine<Nic>, request| n.requests_mut().take(request).unwrap().result.unwrap().tag;
    assert_eq!((tag(&mut n[1], first), tag(&mut n[1], second)), (Tag(5), Tag(6)));
    let counters = n[1].counters();
    assert_eq!((counters.hardware, counters.posted, counters.not_offloaded.source), (0, 2, 2));
}

#[test]
fn every_receive_that_stays_in_software_is_counted_under_its_reason() {
    let limit = EngineConfig { nic_threshold: 50, ..config() };
    let model = ModelConfig::default().slots(2);
    let (_, mut n) = nodes_on(2, &limit, |_, wire| Model::new(wire, &model).unwrap());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    // In this order: one too small for the NIC, one that it is in the way of, two that fit, two for
    // which the list has no room.
    let small = post(&mut n[1], exact(1), 49);
    let behind = post(&mut n[1], exact(1), 50);
    let rest: Vec<_> = (2..6).map(|tag| post(&mut n[1], exact(tag), 50)).collect();
    settle(&mut n);
    for tag in [5, 4, 3, 2, 1, 1] {
        send(&mut n[0], to, tag, bytes(10), SendMode::Standard);
    }
    settle(&mut n);
    for request in [small, behind].into_iter().chain(rest) {
        n[1].requests_mut().take(request).expect("not over").result.unwrap();
    }
    let counters = n[1].counters();
    let why = counters.not_offloaded;
    assert_eq!((why.too_small, why.list_full, why.total()), (1, 2, counters.posted), "{why:?}");
    assert_eq!(counters.hardware + counters.posted, 6, "{counters:?}");
    assert!(counters.hardware >= 2, "{counters:?}");
}

/// Beyond 4 GiB, with immediate data, the length and the immediate data follow in two companions.
#[test]
fn a_rendezvous_beyond_4_gib_ends_with_all_facts_whoever_matches_it() {
    const LENGTH: u64 = 5 << 30;
    // The NIC reports the data after the companions have come.
    let data = Delay { chance: Chance::ALWAYS, ticks_max: 100 };
    let late = Knobs::default().data(data).incomplete_in_two(Chance::ALWAYS);
    for (knobs, room) in [(Knobs::default(), 200), (late.clone(), 200), (late, 49)] {
        let model = ModelConfig::default().knobs(knobs);
        let limit = EngineConfig { nic_threshold: 50, ..config() };
        let (net, mut n) = nodes_on(2, &limit, |_, wire| Model::new(wire, &model).unwrap());
        let to = meet(&mut n, 0, 1);
        settle(&mut n);
        net.borrow_mut().exposed_length = Some(LENGTH);
        for round in 1..4 {
            let requests = [5, 6].map(|tag| post(&mut n[1], exact(tag), room));
            settle(&mut n);
            // Both have to wait. Then the first request goes out, and its first companion has to
            // wait again: neither the second companion nor the second request may pass it.
            net.borrow_mut().refuse = [true, false, true].into();
            for tag in [5, 6] {
                send(&mut n[0], to, tag, bytes(5000), SendMode::Standard);
            }
            settle(&mut n);
            for request in requests {
                let Completion { result, buffer } =
                    n[1].requests_mut().take(request).expect("not over");
                let status = result.unwrap();
                assert_eq!((status.length, status.immediate), (LENGTH, Some(9)));
                assert!(status.truncated);
                assert_eq!(buffer[..], bytes(5000)[..room]);
            }
            assert_eq!((n[0].operations(), n[1].credit().held.messages), (0, 0));
            assert_eq!(n[1].counters().hardware, if room < 50 { 0 } else { 2 * round });
        }
    }
}

#[test]
fn a_companion_that_no_request_announced_breaks_with_its_sender() {
    let operation = |index| AppCtx::new(index, 0);
    let span = RemoteSpan { address: 0, key: 0, length: 5 << 30 };
    let sent = |index| Rendezvous::new(operation(index), Tag(1), span, Some(7));
    let request = |index| sent(index).emit().to_vec();
    let companions: Vec<Vec<u8>> = sent(1).companions().map(Vec::from).collect();
    let [companion, length] = &companions[..] else { panic!("{companions:?}") };
    let stray = {
        let operation = operation(1).operation();
        Some(PeerFault::Protocol(WireError::NoSuchOperation {
            kind: MessageKind::Companion,
            operation,
        }))
    };
    let cases = [
        (vec![request(1), companion.clone(), length.clone()], None),
        (vec![request(2), companion.clone()], stray),
        (vec![companion.clone()], stray),
        (vec![request(1), length.clone(), companion.clone()], stray),
        (vec![request(1), companion.clone(), length.clone(), length.clone()], stray),
        (vec![request(1), companion.clone(), request(2)], stray),
    ];
    for (messages, expected) in cases {
        let (net, mut n) = nodes(2, &config());
        let from = meet(&mut n, 1, 0);
        settle(&mut n);
        messages.iter().for_each(|message| forge(&net, 0, 1, message));
        settle(&mut n);
        assert_eq!(n[1].peer_fault(from), expected, "{messages:?}");
    }
}

/// A receive shows the bytes that the NIC has written, whatever length a peer names before or after
/// that.
#[test]
fn a_companion_adds_no_bytes_to_those_that_the_nic_has_written() {
    for is_written_first in [true, false] {
        let model = ModelConfig::default();
        let (net, mut n) = nodes_on(2, &config(), |_, wire| Model::new(wire, &model).unwrap());
        meet(&mut n, 1, 0);
        settle(&mut n);
        let request = post(&mut n[1], exact(1), 200);
        settle(&mut n);
        net.borrow_mut().exposed.insert((0, 77), bytes(10));
        let with_length = |length| {
            let span = RemoteSpan { address: 0, key: 77, length };
            Rendezvous::new(AppCtx::new(1, 0), Tag(1), span, Some(7))
        };
        forge(&net, 0, 1, &with_length(10).emit());
        if is_written_first {
            settle(&mut n);
        }
        with_length(5 << 30).companions().for_each(|companion| forge(&net, 0, 1, &companion));
        settle(&mut n);
        let Completion { result, buffer } = n[1].requests_mut().take(request).expect("not over");
        let status = result.unwrap();
        assert_eq!((status.length, status.truncated, status.immediate), (10, false, Some(7)));
        assert_eq!(buffer[..10], bytes(10));
        assert_eq!(n[1].counters().hardware, 1);
    }
}

/// Has node 1 send a message to node 2, whose receive its NIC is to match.
fn is_offloaded(n: &mut [Node<Nic>]) -> bool {
    let before = n[2].counters().hardware;
    let request = post(&mut n[2], exact(1000), 100);
    settle(n);
    let to = meet(n, 1, 2);
    settle(n);
    send(&mut n[1], to, 1000, bytes(100), SendMode::Standard);
    settle(n);
    n[2].requests_mut().take(request).expect("not over").result.unwrap();
    n[2].counters().hardware == before + 1
}

/// The NIC has counted them, though software doesn't take them in.
#[test]
fn messages_that_are_dropped_leave_the_nic_in_use() {
    let model = ModelConfig::default();
    let (net, mut n) = nodes_on(3, &config(), |_, wire| Model::new(wire, &model).unwrap());
    let bad = meet(&mut n, 2, 0);
    settle(&mut n);
    assert!(is_offloaded(&mut n));
    let tmh = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx(0), tag: Tag(5) }.emit();
    // More than its credit covers.
    for _ in 0..200 {
        forge(&net, 0, 2, &[&tmh[..], &[1; 2000]].concat());
    }
    settle(&mut n);
    assert!(matches!(n[2].peer_fault(bad), Some(PeerFault::Protocol(WireError::Credit { .. }))));
    assert!(is_offloaded(&mut n));
}

/// They wait behind a message that waits for the answer of a delete.
#[test]
fn requests_of_the_dead_that_wait_for_the_nic_leave_it_in_use() {
    let answer = Delay { chance: Chance::ALWAYS, ticks_max: 1000 };
    let knobs = Knobs::default().answer(answer);
    let model = ModelConfig::default().knobs(knobs);
    let (net, mut n) = nodes_on(3, &config(), |_, wire| Model::new(wire, &model).unwrap());
    let to = meet(&mut n, 0, 2);
    let _ = meet(&mut n, 2, 0);
    settle(&mut n);
    assert!(is_offloaded(&mut n));
    let request = post(&mut n[2], exact(5), 100);
    settle(&mut n);
    n[2].cancel(request);
    n[2].progress();
    for length in [10, 9000] {
        send(&mut n[0], to, 5, bytes(length), SendMode::Standard);
    }
    for _ in 0..4 {
        n[2].progress();
    }
    kill(&net, 0);
    while n[2].counters().peer_faults == 0 {
        n[2].progress();
    }
    assert!(!n[2].requests().is_over(request), "the answer came too early for this test");
    assert_eq!(n[2].counters().lost_rendezvous, 1);
    settle(&mut n[1..]);
    assert_eq!(n[2].requests_mut().take(request).expect("not over").result, Err(Fault::Cancelled));
    assert!(is_offloaded(&mut n));
}

#[test]
fn closing_brings_every_buffer_back() {
    let (mut n, _) = pair(&ModelConfig::default());
    let requests: Vec<_> = (0..200).map(|tag| post(&mut n[1], exact(tag), 100)).collect();
    settle(&mut n);
    n[1].close();
    for request in requests {
        let done = n[1].requests_mut().take(request).expect("not over");
        assert_eq!((done.result, done.buffer.len()), (Err(Fault::Closed), 100));
    }
}
