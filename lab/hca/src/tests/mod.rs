//! The device between programs whose memory is an array: what libmlx5 would write goes in, what it
//! would read comes out.

mod array;
mod commands;
mod faults;
mod hostile;
mod hostile_commands;
mod knobs;
mod paths;
mod programs;
mod receives;
mod refusals;
mod regions;
mod resizing;
mod tags;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::{self, ModifyQp, event};
use crate::cqe::{Cqe, Opcode};
use crate::memory::Memory;
use crate::nic::Fabric;
use crate::nic::completion_queue::{Cq, CqPlace};
use crate::settings::Settings;
use crate::wqe::opcode;
use array::{Array, BASE};
use programs::{
    Given, PLACES, Program, TestCq, TestLink, TestQp, TestSrq, remote, segment, settings, turns,
    work,
};
use tags::{append, with_tags};

const ALL: u32 = 15;
const RELIABLE: u32 = 2;
/// `MLX5_CQE_*` and `MLX5_CQE_SYNDROME_*`, as numbers of libmlx5's header.
const REQUEST: u8 = 0;
const RECEIVED: u8 = 2;
const NO_PACKET: u8 = 6;
const REQUEST_ERROR: u8 = 13;
const RECEIVE_ERROR: u8 = 14;

fn two() -> [Program; 2] {
    let fabric = Arc::new(Fabric::default());
    let settings = settings();
    [(); 2].map(|()| Program::new(&fabric, &settings, u64::MAX))
}

/// What each of two programs has: a queue pair that is connected to the other's, and memory.
struct End {
    cq: TestCq,
    qp: TestQp,
    at: u64,
    key: u32,
    handle: u32,
}

fn end(program: &mut Program, srq: Option<&TestSrq>, cq: TestCq) -> End {
    let qp = program.create_qp(&cq, srq, RELIABLE).unwrap();
    let at = program.allocate(0x8_0000);
    let (handle, key) = program.register(at, 0x8_0000, ALL).unwrap();
    End { cq, qp, at, key, handle }
}

/// Two programs with one connection. `rnr`: how often a sender that finds no buffer tries again.
fn connected(rnr: u8) -> ([Program; 2], [End; 2]) {
    linked(two(), [TestLink::default(); 2], rnr)
}

/// Two programs with one connection that is like this at each end.
fn linked(mut programs: [Program; 2], links: [TestLink; 2], rnr: u8) -> ([Program; 2], [End; 2]) {
    for (program, link) in programs.iter_mut().zip(links) {
        program.link = link;
    }
    let ends = programs.each_mut().map(|program| {
        let cq = program.create_cq(64, None).unwrap();
        end(program, None, cq)
    });
    programs[0].connect(&ends[0].qp, ends[1].qp.number, rnr);
    programs[1].connect(&ends[1].qp, ends[0].qp.number, rnr);
    (programs, ends)
}

/// Works until a program has so many completions more, and gives them.
fn completions(
    programs: &mut [Program],
    at: usize,
    cq: &mut TestCq,
    count: usize,
) -> Vec<programs::Completed> {
    let mut found = Vec::new();
    work(programs, |programs| {
        found.extend(programs[at].poll(cq));
        found.len() >= count
    });
    assert_eq!(found.len(), count);
    found
}

#[test]
fn messages_arrive_in_order_with_their_immediate_data() {
    let (mut p, [mut a, mut b]) = connected(7);
    // More than the queues have places, so that both wrap.
    for round in 0..5 * PLACES {
        let immediate = 7 + round;
        p[0].put(a.at, &[round as u8; 100]);
        let place = b.at + u64::from(round) * 256;
        p[1].post_receive(&mut b.qp, place, 200, b.key);
        p[0].post(&mut a.qp, opcode::SEND_IMM, immediate, &segment(a.at, 100, a.key));
        let [sent] = completions(&mut p, 0, &mut a.cq, 1)[..] else { panic!() };
        assert_eq!((sent.opcode(), sent.counter()), (REQUEST, round as u16));
        assert_eq!(sent.user_index(), 0x91);
        let [received] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
        assert_eq!((received.opcode(), received.length()), (3, 100));
        assert_eq!((received.immediate(), received.counter()), (immediate, round as u16));
        assert_eq!(p[1].get(place, 101), [&[round as u8; 100][..], &[0]].concat());
    }
}

#[test]
fn inline_data_and_segments_are_one_message() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[0].put(a.at, b"memory");
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    let inline = [&(6 | 1_u32 << 31).to_be_bytes()[..], b"inline", &[0; 6]].concat();
    let rest = [inline, segment(a.at, 6, a.key)].concat();
    p[0].post(&mut a.qp, opcode::SEND, 0, &rest);
    assert_eq!(completions(&mut p, 1, &mut b.cq, 1)[0].length(), 12);
    assert_eq!(p[1].get(b.at, 12), b"inlinememory");
}

#[test]
fn memory_is_read_written_and_changed() {
    let (mut p, [mut a, b]) = connected(7);
    let long = 0x5_0001_usize;
    let data: Vec<u8> = (0..long).map(|at| (at % 251) as u8).collect();
    p[0].put(a.at, &data);
    let write = [remote(b.at, b.key), segment(a.at, long as u32, a.key)].concat();
    p[0].post(&mut a.qp, opcode::WRITE, 0, &write);
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), REQUEST);
    assert_eq!(p[1].get(b.at, long), data);
    p[0].put(a.at, &vec![0; long]);
    let read = [remote(b.at, b.key), segment(a.at, long as u32, a.key)].concat();
    p[0].post(&mut a.qp, opcode::READ, 0, &read);
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), REQUEST);
    assert_eq!(p[0].get(a.at, long), data);
    let value = |program: &Program, at| u64::from_ne_bytes(program.get(at, 8).try_into().unwrap());
    p[1].put(b.at, &40_u64.to_ne_bytes());
    let words = |first: u64, second: u64| [first.to_be_bytes(), second.to_be_bytes()].concat();
    let into = segment(a.at, 8, a.key);
    let add = [remote(b.at, b.key), words(2, 0), into.clone()].concat();
    p[0].post(&mut a.qp, opcode::FETCH_AND_ADD, 0, &add);
    completions(&mut p, 0, &mut a.cq, 1);
    assert_eq!((value(&p[0], a.at), value(&p[1], b.at)), (40, 42));
    for (compare, expected) in [(7, 42), (42, 9)] {
        let swap = [remote(b.at, b.key), words(9, compare), into.clone()].concat();
        p[0].post(&mut a.qp, opcode::COMPARE_AND_SWAP, 0, &swap);
        completions(&mut p, 0, &mut a.cq, 1);
        assert_eq!((value(&p[0], a.at), value(&p[1], b.at)), (42, expected));
    }
}

/// A queue pair for datagrams with the key 7.
fn datagrams(program: &mut Program, cq: &TestCq) -> TestQp {
    use abi::qp_mask::*;
    let qp = program.create_qp(cq, None, 4).unwrap();
    let change = |attr_mask, qp_state| ModifyQp { attr_mask, qp_state, ..ModifyQp::default() };
    let init = change(STATE | PKEY_INDEX | PORT | QKEY, 1);
    program.modify(&qp, ModifyQp { port_num: 1, qkey: 7, ..init }).unwrap();
    program.modify(&qp, change(STATE, 2)).unwrap();
    program.modify(&qp, change(STATE | SQ_PSN, 3)).unwrap();
    qp
}

/// The receive is posted after the device has looked at the program's records.
#[test]
fn a_datagram_finds_a_receive_that_was_just_posted_and_stays_in_its_subnet() {
    for (subnets, arrives) in [(1, true), (2, false)] {
        let fabric = Arc::new(Fabric::default());
        let settings = Settings { devices: vec![0, 1], subnets, ..settings() };
        let mut p = [(); 2].map(|()| Program::new(&fabric, &settings, u64::MAX));
        p[1].device = 1;
        let cqs = p.each_mut().map(|program| program.create_cq(64, None).unwrap());
        let [mut from, mut to] = [0, 1].map(|at| datagrams(&mut p[at], &cqs[at]));
        let at = p.each_mut().map(|program| program.allocate(4096));
        let keys = [0, 1].map(|n| p[n].register(at[n], 4096, ALL).unwrap().1);
        turns(&mut p, 5);
        p[1].post_receive(&mut to, at[1], 256, keys[1]);
        p[0].put(at[0], b"datagram");
        let qkey = 7_u32.to_be_bytes();
        let number = to.number.to_be_bytes();
        let address = [&qkey[..], &[0; 4], &number, &[0, 0, 0, 2]].concat();
        p[0].post(&mut from, opcode::SEND, 0, &[address, segment(at[0], 8, keys[0])].concat());
        p[0].function.turn(|_| true);
        p[1].function.take_letters(&p[1].caller);
        turns(&mut p, 2);
        let received = p[1].poll(&mut { cqs[1] });
        assert_eq!(received.len(), usize::from(arrives));
        let expected: &[u8] = if arrives { b"datagram" } else { &[0; 8] };
        assert_eq!(p[1].get(at[1] + 40, 8), expected);
    }
}

#[test]
fn a_write_with_immediate_data_takes_a_receive() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[0].put(a.at, b"bytes");
    p[1].post_receive(&mut b.qp, b.at + 100, 10, b.key);
    let write = [remote(b.at, b.key), segment(a.at, 5, a.key)].concat();
    p[0].post(&mut a.qp, opcode::WRITE_IMM, 99, &write);
    let [received] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
    assert_eq!((received.opcode(), received.immediate(), received.length()), (1, 99, 5));
    assert_eq!(p[1].get(b.at, 5), b"bytes");
}

/// What is not allowed fails at both sides as InfiniBand says, and ends the connection: later
/// requests and receives are flushed.
#[test]
fn what_is_not_allowed_ends_the_connection() {
    // The request; the error at its sender; whether the receiver gets an event, or a completion.
    type Case = (u8, fn(&End, &End) -> Vec<u8>, u8, bool);
    let cases: [Case; 6] = [
        (
            opcode::READ,
            |a, b| [remote(b.at, b.key + 256), segment(a.at, 8, a.key)].concat(),
            0x13,
            true,
        ),
        (
            opcode::WRITE,
            |a, b| [remote(b.at + 0x8_0000, b.key), segment(a.at, 8, a.key)].concat(),
            0x13,
            true,
        ),
        (
            opcode::WRITE,
            |a, b| [remote(b.at - 1, b.key), segment(a.at, 8, a.key)].concat(),
            0x13,
            true,
        ),
        (opcode::SEND, |a, _| segment(a.at, 8, a.key + 256), 0x04, false),
        (
            opcode::READ,
            |a, b| [remote(b.at, b.key), segment(a.at, 8, a.key + 256)].concat(),
            0x04,
            false,
        ),
        // Longer than the receive that is posted.
        (opcode::SEND, |a, _| segment(a.at, 65, a.key), 0x12, false),
    ];
    for (number, (request, rest, syndrome, has_event)) in cases.into_iter().enumerate() {
        let (mut p, [mut a, mut b]) = connected(7);
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        let rest = rest(&a, &b);
        p[0].post(&mut a.qp, request, 0, &rest);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        let ended = completions(&mut p, 0, &mut a.cq, 2);
        let all: Vec<_> = ended.iter().map(|one| (one.opcode(), one.syndrome())).collect();
        assert_eq!(all, [(REQUEST_ERROR, syndrome), (REQUEST_ERROR, 5)], "case {number}");
        assert_eq!(ended.iter().map(programs::Completed::counter).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(p[1].events() == [event::QP_ACCESS_ERR], has_event, "case {number}");
        if number == 5 {
            let [short] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
            assert_eq!((short.opcode(), short.syndrome()), (RECEIVE_ERROR, 1));
        }
        if has_event {
            let [flushed] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
            assert_eq!((flushed.opcode(), flushed.syndrome()), (RECEIVE_ERROR, 5));
        }
    }
}

#[test]
fn a_sender_waits_for_a_receive_as_often_as_it_says() {
    let (mut p, [mut a, mut b]) = connected(7);
    for _ in 0..3 {
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    }
    turns(&mut p, 50);
    assert!(p[0].poll(&mut a.cq).is_empty(), "nobody receives");
    for _ in 0..3 {
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    }
    assert_eq!(completions(&mut p, 1, &mut b.cq, 3).len(), 3);
    completions(&mut p, 0, &mut a.cq, 3);

    let (mut p, [mut a, _]) = connected(1);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x16);
}

#[test]
fn a_peer_that_is_gone_is_noticed_after_the_retries() {
    let (mut p, [mut a, b]) = connected(7);
    let handle = [Given::Number(abi::qp::DESTROY_HANDLE, b.qp.handle.into())];
    p[1].command(abi::qp::DESTROY, &handle).unwrap();
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x15);
}

/// Receives are taken in the order of their links. The program is told once that few are left, and
/// once that a queue pair in error takes no more.
#[test]
fn a_shared_queue_gives_its_receives_in_turn_and_tells_when_few_are_left() {
    let mut p = two();
    let cq = p[0].create_cq(64, None).unwrap();
    let mut a = end(&mut p[0], None, cq);
    let cq = p[1].create_cq(64, None).unwrap();
    let mut srq = p[1].create_srq(0, &cq).unwrap();
    let mut b = end(&mut p[1], Some(&srq), cq);
    p[0].connect(&a.qp, b.qp.number, 7);
    p[1].connect(&b.qp, a.qp.number, 7);
    let limit = abi::ModifySrq { srq_handle: srq.handle, attr_mask: 2, max_wr: 0, srq_limit: 2 };
    for at in 0..4 {
        p[1].post_srq(&mut srq, b.at + 256 * at, 256, b.key);
    }
    turns(&mut p, 2);
    let number = abi::write_command::MODIFY_SRQ;
    p[1].write_command(number, zerocopy::IntoBytes::as_bytes(&limit), 8).unwrap();
    let mut events = Vec::new();
    for round in 0..4_u8 {
        p[0].put(a.at, &[round + 1; 8]);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        completions(&mut p, 0, &mut a.cq, 1);
        let [received] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
        assert_eq!(received.counter(), u16::from(round));
        assert_eq!(
            p[1].get(b.at + 256 * u64::from(round), 9),
            [&[round + 1; 8][..], &[0]].concat()
        );
        turns(&mut p, 2);
        events.push(p[1].events());
    }
    assert_eq!(events, [vec![], vec![], vec![event::SRQ_LIMIT_REACHED], vec![]]);
    let error = ModifyQp { attr_mask: abi::qp_mask::STATE, qp_state: 6, ..Default::default() };
    p[1].modify(&b.qp, error).unwrap();
    turns(&mut p, 5);
    assert_eq!(p[1].events(), [event::QP_LAST_WQE_REACHED], "once");
}

#[test]
fn a_queue_that_is_full_breaks_with_its_queue_pairs() {
    let (mut p, [mut a, mut b]) = connected(7);
    let small = p[0].create_cq(2, None).unwrap();
    let mut qp = p[0].create_qp(&small, None, RELIABLE).unwrap();
    let other = p[1].create_qp(&b.cq, None, RELIABLE).unwrap();
    p[0].connect(&qp, other.number, 7);
    p[1].connect(&other, qp.number, 7);
    for _ in 0..3 {
        let write = [remote(b.at, b.key), segment(a.at, 8, a.key)].concat();
        p[0].post(&mut qp, opcode::WRITE, 0, &write);
    }
    let mut events = Vec::new();
    work(&mut p, |p| {
        events.extend(p[0].events());
        events.len() == 2
    });
    assert_eq!(events, [event::CQ_ERR, event::QP_FATAL]);
    // The other connection goes on.
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    completions(&mut p, 0, &mut a.cq, 1);
    completions(&mut p, 1, &mut b.cq, 1);
}

/// The program's record is read again before a queue counts as full: a warm context is not looked
/// at before each completion.
#[test]
fn a_queue_whose_completions_were_just_taken_is_not_full() {
    let memory = Array::new(u64::MAX);
    let place = CqPlace { at: BASE, record: BASE + 4096, size: 2, entry_bytes: 64 };
    let mut queue = Cq::new(place, 0, 3, None, 1);
    let cqe = Cqe::new(Opcode::Request, 0);
    for taken in [0_u32, 2] {
        memory.write(&[(place.record, &taken.to_be_bytes())]).unwrap();
        assert!(queue.push(&cqe, &memory) && queue.push(&cqe, &memory), "{taken} were taken");
    }
    assert!(!queue.push(&cqe, &memory) && queue.is_overrun);
}

/// A program that has armed its queue gets one event for it.
#[test]
fn an_armed_queue_gives_one_event() {
    let mut p = two();
    let number = abi::write_command::CREATE_COMP_CHANNEL;
    let channel = p[0].write_command(number, &[0; 8], 4).unwrap();
    let channel = i32::from_ne_bytes(channel[..4].try_into().unwrap());
    let cq = p[0].create_cq(64, Some(channel)).unwrap();
    let mut a = end(&mut p[0], None, cq);
    p[0].connect(&a.qp, a.qp.number, 7);
    let waiting = |p: &Program| rustix::io::ioctl_fionread(&p.caller.kept.borrow()[1]).unwrap() / 8;
    let write = [remote(a.at, a.key), segment(a.at, 8, a.key)].concat();
    p[0].post(&mut a.qp, opcode::WRITE, 0, &write);
    completions(&mut p, 0, &mut a.cq, 1);
    assert_eq!(waiting(&p[0]), 0, "the queue was never armed");
    // Armed after one completion; the sequence number is 0 at first.
    p[0].put(a.cq.record + 4, &1_u32.to_be_bytes());
    turns(&mut p, 5);
    assert_eq!(waiting(&p[0]), 0, "no completion after those that were seen");
    for round in 1..3 {
        for _ in 0..2 {
            p[0].post(&mut a.qp, opcode::WRITE, 0, &write);
        }
        completions(&mut p, 0, &mut a.cq, 2);
        assert_eq!(waiting(&p[0]), round);
        let armed = u32::try_from(round).unwrap() << 28 | (1 + 2 * round as u32);
        p[0].put(a.cq.record + 4, &armed.to_be_bytes());
    }
    // Armed before the completions of the last event were taken: that event told of them.
    p[0].put(a.cq.record + 4, &(3_u32 << 28 | 3).to_be_bytes());
    turns(&mut p, 5);
    assert_eq!(waiting(&p[0]), 2);
    p[0].post(&mut a.qp, opcode::WRITE, 0, &write);
    completions(&mut p, 0, &mut a.cq, 1);
    assert_eq!(waiting(&p[0]), 3);
    // Destroying the queue tells how many events were read: none. The others are taken back.
    let handle = [Given::Number(abi::qp::DESTROY_HANDLE, a.qp.handle.into())];
    p[0].command(abi::qp::DESTROY, &handle).unwrap();
    let given = [
        Given::Number(abi::cq::DESTROY_HANDLE, a.cq.handle.into()),
        Given::Out(abi::cq::DESTROY_RESP, 8),
    ];
    assert_eq!(p[0].command(abi::cq::DESTROY, &given).unwrap()[1], [0; 8]);
    assert_eq!(waiting(&p[0]), 0);
}

/// A program may write anything anywhere in its memory: its queues, their records, and commands.
/// The device goes on, and so does another program.
#[test]
fn nothing_that_a_program_writes_stops_the_device() {
    let mut random = 1_u64;
    let mut draw = move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for _ in 0..40 {
        let (mut p, a, b, _, mut commands) = with_tags();
        append(&p[1], &mut commands, 1, 70, (b.at, 100, b.key));
        turns(&mut p, 3);
        for _ in 0..60 {
            for at in [b.qp.sends, b.qp.record, commands.sends, commands.record, b.cq.record] {
                let bytes: Vec<u8> = (0..16).map(|_| draw() as u8).collect();
                p[1].put(at + draw() % 64 / 4 * 4, &bytes);
            }
            // Plausible requests reach further than noise does.
            let mut qp = b.qp;
            qp.posted = draw() as u16 % 4;
            let opcodes = [8, 9, 10, 11, 16, 17, 18, 0x28, 0];
            let rest: Vec<u8> = (0..16 * (draw() % 6)).map(|_| draw() as u8).collect();
            p[1].post(&mut qp, opcodes[draw() as usize % opcodes.len()], 0, &rest);
            turns(&mut p, 1);
            let method = abi::method(draw() as u16 % 18, draw() as u16 % 5);
            let given = [
                Given::Number(draw() as u16 % 14, draw()),
                Given::In(draw() as u16 % 14, vec![draw() as u8; draw() as usize % 200]),
                Given::Out(0x1001, draw() as u16 % 300),
            ];
            let _ = p[1].command(method, &given);
        }
        // Two queue pairs of the other program.
        let [mut first, _] = p;
        let other = first.create_qp(&a.cq, None, RELIABLE).unwrap();
        let mut own = first.create_qp(&a.cq, None, RELIABLE).unwrap();
        first.connect(&own, other.number, 7);
        first.connect(&other, own.number, 7);
        let _ = first.poll(&mut { a.cq });
        let write = [remote(a.at, a.key), segment(a.at, 8, a.key)].concat();
        let mut cq = a.cq;
        let seen = first.poll(&mut cq).len();
        first.post(&mut own, opcode::WRITE, 0, &write);
        let mut all = [first];
        let more = completions(&mut all, 0, &mut cq, 1);
        assert_eq!(more[0].opcode(), REQUEST, "after {seen}");
    }
}

/// A program whose memory does not come, as behind userfaultfd(2), holds up the thread of the
/// device that serves it, and nobody else.
#[test]
fn a_program_that_withholds_its_memory_holds_up_itself() {
    let (p, [mut a, mut b]) = connected(7);
    let [mut first, second] = p;
    second.post_receive(&mut b.qp, b.at, 64, b.key);
    let own = first.create_qp(&a.cq, None, RELIABLE).unwrap();
    let mut other = first.create_qp(&a.cq, None, RELIABLE).unwrap();
    first.connect(&own, other.number, 7);
    first.connect(&other, own.number, 7);
    let lock = second.memory_lock();
    let withheld = lock.lock().unwrap();
    let inbox = second.function.adapter.inbox.clone();
    let thread = std::thread::spawn(move || {
        let Program { function, caller, .. } = second;
        function.serve(&caller, |_, _| true)
    });
    first.post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    let write = [remote(a.at, a.key), segment(a.at, 8, a.key)].concat();
    first.post(&mut other, opcode::WRITE, 0, &write);
    let mut all = [first];
    assert_eq!(completions(&mut all, 0, &mut a.cq, 1)[0].opcode(), REQUEST, "its own");
    drop(withheld);
    completions(&mut all, 0, &mut a.cq, 1);
    inbox.put(crate::nic::Letter::End);
    assert_eq!(thread.join().unwrap().completions, 1);
}

#[test]
fn a_process_that_has_ended_answers_nothing() {
    let (mut p, [mut a, b]) = connected(7);
    p[1].memory.is_gone.store(true, Ordering::Relaxed);
    let read = [remote(b.at, b.key), segment(a.at, 8, a.key)].concat();
    p[0].post(&mut a.qp, opcode::READ, 0, &read);
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x15);
}

#[test]
fn memory_that_is_not_there_is_an_error_of_its_request_alone() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    let bytes = BASE + (4 << 20);
    // The key covers it, as where a program has unmapped memory that it has registered.
    let region =
        crate::nic::region::Region { pd: 1, start: bytes, length: 64, named: bytes, access: ALL };
    let key = p[0].function.adapter.regions.add(region).unwrap();
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(bytes, 8, key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 4);
}
