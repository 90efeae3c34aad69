//! The list of tags.

use std::sync::Arc;

use tagmatch_device::tm::{Opcode as HeaderOpcode, Rvh, Tmh};
use tagmatch_model::{Chance, Delay, InTwo, Knobs};

use super::programs::{Given, Program, TestQp, TestSrq, segment, settings, turns, work};
use super::{End, NO_PACKET, RECEIVED, RELIABLE, completions, end};
use crate::abi::{self, event};
use crate::nic::Fabric;
use crate::wqe::opcode;

/// Two programs; the second one has a list of tags with 40 receives of 256 bytes.
pub(super) fn with_tags() -> ([Program; 2], End, End, TestSrq, TestQp) {
    with_knobs(Knobs::default())
}

fn with_knobs(knobs: Knobs) -> ([Program; 2], End, End, TestSrq, TestQp) {
    let fabric = Arc::new(Fabric::default());
    let mut settings = settings();
    settings.model.knobs = knobs;
    let mut p = [(); 2].map(|()| Program::new(&fabric, &settings, u64::MAX));
    let cq = p[0].create_cq(64, None).unwrap();
    let a = end(&mut p[0], None, cq);
    let cq = p[1].create_cq(128, None).unwrap();
    let mut srq = p[1].create_srq(7, &cq).unwrap();
    let b = end(&mut p[1], Some(&srq), cq);
    let commands = p[1].create_qp(&cq, Some(&srq), RELIABLE).unwrap();
    p[1].connect(&commands, commands.number, 7);
    for at in 0..40 {
        p[1].post_srq(&mut srq, b.at + 256 * at, 256, b.key);
    }
    p[0].connect(&a.qp, b.qp.number, 7);
    p[1].connect(&b.qp, a.qp.number, 7);
    (p, a, b, srq, commands)
}

/// Appends an entry for a tag. `next`: where the entry after it goes.
pub(super) fn append(
    program: &Program,
    commands: &mut TestQp,
    next: u16,
    tag: u64,
    buffer: (u64, u32, u32),
) {
    append_counting(program, commands, TestEntry { next, tag, buffer, count: 0 });
}

/// An entry to append, with the count of unexpected messages that the program has seen.
struct TestEntry {
    next: u16,
    tag: u64,
    buffer: (u64, u32, u32),
    count: u16,
}

fn append_counting(program: &Program, commands: &mut TestQp, entry: TestEntry) {
    let TestEntry { next, tag, buffer, count } = entry;
    let tags = [tag.to_be_bytes(), u64::MAX.to_be_bytes()].concat();
    let head =
        [&[0x10, 0xc0][..], &next.to_be_bytes(), &[0; 2], &count.to_be_bytes(), &[0; 8]].concat();
    let rest = [head, tags, segment(buffer.0, buffer.1, buffer.2)].concat();
    program.post(commands, opcode::TAG_MATCHING, 0, &rest);
}

pub(super) fn remove(program: &Program, commands: &mut TestQp, index: u16) {
    let head = [&[0x20, 0x80][..], &index.to_be_bytes(), &[0; 28]].concat();
    program.post(commands, opcode::TAG_MATCHING, 0, &head);
}

pub(super) fn eager(program: &Program, at: u64, tag: u64, payload: &[u8]) {
    let header = Tmh { opcode: HeaderOpcode::Eager, app_ctx: 5, tag }.emit();
    program.put(at, &[&header[..], payload].concat());
}

#[test]
fn the_list_matches_what_is_appended_and_not_removed() {
    let (mut p, mut a, mut b, _, mut commands) = with_tags();
    let buffer = b.at + 0x4_0000;
    append(&p[1], &mut commands, 1, 70, (buffer, 100, b.key));
    append(&p[1], &mut commands, 2, 71, (buffer + 100, 100, b.key));
    let answers = completions(&mut p, 1, &mut b.cq, 2);
    for answer in &answers {
        assert_eq!((answer.opcode(), answer.tag().0, answer.user_index()), (NO_PACKET, 5, 0x51));
        assert_eq!(answer.0[0], 0x80, "it succeeded");
    }
    eager(&p[0], a.at, 71, b"matched");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 23, a.key));
    let [matched] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
    assert_eq!((matched.opcode(), matched.tag(), matched.length()), (RECEIVED, (10, 1), 7));
    assert_eq!(matched.0[..16], p[0].get(a.at, 16), "the header");
    assert_eq!(p[1].get(buffer + 100, 8), b"matched\0");
    // The removal of an entry that has matched fails; that of another one succeeds.
    remove(&p[1], &mut commands, 1);
    remove(&p[1], &mut commands, 0);
    let removed = completions(&mut p, 1, &mut b.cq, 2);
    let answers: Vec<_> = removed.iter().map(|one| (one.tag().0, one.0[0])).collect();
    assert_eq!(answers, [(6, 0), (6, 0x80)]);
    eager(&p[0], a.at, 70, b"unexpected");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 26, a.key));
    let [unexpected] = completions(&mut p, 1, &mut b.cq, 1)[..] else { panic!() };
    assert_eq!((unexpected.tag().0, unexpected.counter(), unexpected.length()), (3, 0, 26));
    assert_eq!(p[1].get(b.at, 26), p[0].get(a.at, 26));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 2).len(), 2);
    // An entry that is added before the program has seen that message sleeps.
    append(&p[1], &mut commands, 3, 72, (buffer, 100, b.key));
    eager(&p[0], a.at, 72, b"too early");
    let added = completions(&mut p, 1, &mut b.cq, 1)[0];
    assert_eq!(added.0[4..6], [0, 1], "the device has counted one message");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 25, a.key));
    assert_eq!(completions(&mut p, 1, &mut b.cq, 1)[0].tag().0, 3);
    let entry = TestEntry { next: 4, tag: 73, buffer: (buffer, 100, b.key), count: 2 };
    append_counting(&p[1], &mut commands, entry);
    completions(&mut p, 1, &mut b.cq, 1);
    eager(&p[0], a.at, 73, b"in time");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 23, a.key));
    assert_eq!(completions(&mut p, 1, &mut b.cq, 1)[0].tag(), (10, 3));
}

#[test]
fn a_rendezvous_is_read_and_ended_by_the_device() {
    let (mut p, mut a, mut b, _, mut commands) = with_tags();
    let long = 0x3_0000_u32;
    let buffer = b.at + 0x4_0000;
    append(&p[1], &mut commands, 1, 70, (buffer, long, b.key));
    completions(&mut p, 1, &mut b.cq, 1);
    let data: Vec<u8> = (0..long).map(|at| (at % 253) as u8).collect();
    p[0].put(a.at + 0x1000, &data);
    let tmh = Tmh { opcode: HeaderOpcode::Rendezvous, app_ctx: 5, tag: 70 };
    let rvh = Rvh { va: a.at + 0x1000, rkey: a.key, len: long };
    p[0].put(a.at, &[tmh.emit(), rvh.emit()].concat());
    p[0].post_receive(&mut a.qp, a.at + 0x7_0000, 64, a.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 32, a.key));
    let matched = completions(&mut p, 1, &mut b.cq, 2);
    let answers: Vec<_> = matched.iter().map(|one| (one.opcode(), one.tag())).collect();
    assert_eq!(answers, [(NO_PACKET, (1, 0)), (RECEIVED, (2, 0))]);
    assert_eq!(matched[1].length(), long);
    assert_eq!(p[1].get(buffer, long as usize), data);
    completions(&mut p, 0, &mut a.cq, 2);
    let fin = p[0].get(a.at + 0x7_0000, 32);
    assert_eq!((fin[0], &fin[1..]), (HeaderOpcode::Fin as u8, &p[0].get(a.at, 32)[1..]));
}

#[test]
fn a_rendezvous_whose_memory_may_not_be_read_ends_the_connection() {
    let (mut p, mut a, b, _, mut commands) = with_tags();
    append(&p[1], &mut commands, 1, 70, (b.at + 0x4_0000, 100, b.key));
    let tmh = Tmh { opcode: HeaderOpcode::Rendezvous, app_ctx: 5, tag: 70 };
    let rvh = Rvh { va: a.at, rkey: a.key + 256, len: 64 };
    p[0].put(a.at, &[tmh.emit(), rvh.emit()].concat());
    turns(&mut p, 5);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 32, a.key));
    work(&mut p, |p| p[0].events() == [event::QP_ACCESS_ERR]);
    turns(&mut p, 20);
    assert!(p[1].events().contains(&event::QP_FATAL));
}

/// libmlx5 knows two pairs of completions of a match: `CONSUMED` and `EXPECTED`; and
/// `CONSUMED_SW_RDNV` and `EXPECTED`, if software is to read the data.
#[test]
fn a_match_has_one_completion_or_two_as_set() {
    let one = [vec![(RECEIVED, (10, 0))], vec![(RECEIVED, (11, 1))]];
    let two = [
        vec![(NO_PACKET, (1, 0)), (RECEIVED, (2, 0))],
        vec![(RECEIVED, (9, 1)), (RECEIVED, (2, 1))],
    ];
    for (eager_in_two, incomplete_in_two, expected) in
        [(InTwo::Never, Chance::NEVER, one), (InTwo::Always, Chance::ALWAYS, two)]
    {
        let knobs =
            Knobs::default().eager_in_two(eager_in_two).incomplete_in_two(incomplete_in_two);
        let (mut p, mut a, mut b, _, mut commands) = with_knobs(knobs);
        append(&p[1], &mut commands, 1, 70, (b.at + 0x4_0000, 100, b.key));
        append(&p[1], &mut commands, 2, 71, (b.at + 0x4_1000, 100, b.key));
        completions(&mut p, 1, &mut b.cq, 2);
        eager(&p[0], a.at, 70, b"matched");
        // Longer than its entry: software is to read it.
        let tmh = Tmh { opcode: HeaderOpcode::Rendezvous, app_ctx: 5, tag: 71 };
        let rvh = Rvh { va: a.at, rkey: a.key, len: 200 };
        p[0].put(a.at + 0x1000, &[tmh.emit(), rvh.emit()].concat());
        for (told, (from, length)) in expected.iter().zip([(0, 23), (0x1000, 32)]) {
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at + from, length, a.key));
            let seen = completions(&mut p, 1, &mut b.cq, told.len());
            let seen: Vec<_> = seen.iter().map(|one| (one.opcode(), one.tag())).collect();
            assert_eq!(seen, *told);
        }
    }
}

#[test]
fn a_packet_is_no_longer_than_set() {
    let tags = |packet_bytes, count| {
        let (mut p, mut a, mut b, _, mut commands) =
            with_knobs(Knobs::default().packet_bytes(packet_bytes));
        append(&p[1], &mut commands, 1, 70, (b.at + 0x4_0000, 100, b.key));
        completions(&mut p, 1, &mut b.cq, 1);
        eager(&p[0], a.at, 70, &[7; 60]);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 76, a.key));
        completions(&mut p, 1, &mut b.cq, count).iter().map(|one| one.tag().0).collect::<Vec<_>>()
    };
    assert_eq!((tags(4096, 1), tags(64, 2)), (vec![10], vec![1, 2]));
}

#[test]
fn a_delay_passes_by_the_turns_of_the_device() {
    let operation = Delay { chance: Chance::ALWAYS, ticks_max: 1 };
    let (mut p, _, mut b, _, mut commands) = with_knobs(Knobs::default().operation(operation));
    append(&p[1], &mut commands, 1, 70, (b.at + 0x4_0000, 100, b.key));
    assert_eq!(completions(&mut p, 1, &mut b.cq, 1)[0].tag().0, 5);
}

#[test]
fn what_a_list_has_counted_outlives_it() {
    let (mut p, mut a, mut b, srq, mut commands) = with_tags();
    eager(&p[0], a.at, 72, b"unexpected");
    let mut send = |p: &mut [Program; 2]| {
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 26, a.key));
        assert_eq!(completions(p, 1, &mut b.cq, 1)[0].tag().0, 3);
    };
    send(&mut p);
    // The entry sleeps, since its count is 0. The next one claims more than there was, and the
    // counts are far apart by it at the next message: two faults.
    append(&p[1], &mut commands, 1, 72, (b.at, 100, b.key));
    let entry = TestEntry { next: 2, tag: 73, buffer: (b.at, 100, b.key), count: 9 };
    append_counting(&p[1], &mut commands, entry);
    turns(&mut p, 5);
    p[1].poll(&mut b.cq);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 26, a.key));
    turns(&mut p, 5);
    for (method, name, handle) in [
        (abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, commands.handle),
        (abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, b.qp.handle),
        (abi::srq::DESTROY, abi::srq::DESTROY_HANDLE, srq.handle),
    ] {
        p[1].command(method, &[Given::Number(name, handle.into())]).unwrap();
    }
    let counts = p[1].function.adapter.counts;
    assert!(counts.locked_max >= 0x8_0000, "the memory of an end");
    assert_eq!((counts.unexpected, counts.phase_missed, counts.faults), (2, 1, 2));
}
