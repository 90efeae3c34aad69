//! Commands: what is refused, what is given back, and what a signal interrupts.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::programs::{Given, Program, TestCq, remote, segment, settings, turns, word};
use super::{ALL, RELIABLE, REQUEST, completions, connected, two};
use crate::abi::{self, ModifyQp, qp_mask};
use crate::boundary::{Kind, OBJECTS_MAX};
use crate::nic::Fabric;
use crate::nic::region::Region;
use crate::settings::Settings;
use crate::wqe::opcode;

#[test]
fn what_the_kernel_refuses_is_refused_with_its_error() {
    let [mut p, _] = two();
    let cq = p.create_cq(64, None).unwrap();
    let at = p.allocate(4096);
    let refusal = |done: Result<(u32, u32), i32>| done.unwrap_err();
    assert_eq!(refusal(p.register(8, 4096, ALL)), libc::EFAULT);
    assert_eq!(refusal(p.register(at, 0, ALL)), libc::EINVAL);
    assert_eq!(refusal(p.register(at, u64::MAX, ALL)), libc::EINVAL);
    assert_eq!(refusal(p.register(at, 4096, 2)), libc::EINVAL, "remote write without local");
    assert_eq!(refusal(p.register(at, 4096, 1 << 6)), libc::EOPNOTSUPP, "on demand");
    assert_eq!(p.create_srq(8, &cq).err(), Some(libc::EINVAL), "more tags than there are");
    assert_eq!(p.create_qp(&cq, None, 3).err(), Some(libc::EOPNOTSUPP), "unreliable");
    let unknown = TestCq { handle: 77, ..cq };
    assert_eq!(p.create_qp(&unknown, None, RELIABLE).err(), Some(libc::EINVAL));
    assert_eq!(p.create_cq(64, Some(5)).err(), Some(libc::EBADF), "no channel");
    let mut port = |number| {
        let given = [
            Given::In(abi::device::PORT_NUM, vec![number]),
            Given::Out(abi::device::PORT_RESP, 48),
        ];
        p.command(abi::device::QUERY_PORT, &given).err()
    };
    assert_eq!((port(1), port(2)), (None, Some(libc::EINVAL)));
    assert_eq!(p.command(abi::method(9, 9), &[]).err(), Some(libc::EPROTONOSUPPORT));
    let window = p.write_command(14, &[0; 16], 8);
    assert_eq!(window.err(), Some(libc::EOPNOTSUPP), "IB_USER_VERBS_CMD_ALLOC_MW");
    let no_room = [word(abi::device::WRITE_CMD, abi::write_command::QUERY_DEVICE)];
    assert_eq!(p.command(abi::device::INVOKE_WRITE, &no_room).err(), Some(libc::ENOSPC));
}

/// A signal that comes just before a caller takes its answer: the device does not learn of it.
#[test]
fn a_command_whose_answer_is_lost_is_not_carried_out_twice() {
    for is_interruptible in [true, false] {
        let fabric = Arc::new(Fabric::default());
        let settings = Settings { is_interruptible, ..settings() };
        let mut p = Program::new(&fabric, &settings, u64::MAX);
        let at = p.allocate(4096);
        let before = p.function.objects.all.len();
        let (handle, _) = p.register(at, 4096, ALL).unwrap();
        assert_eq!(p.repeat(), 0);
        let made = p.function.objects.all.len() - before;
        assert_eq!(made, if is_interruptible { 1 } else { 2 });
        let given = [Given::Number(abi::mr::HANDLE, handle.into())];
        p.command(abi::mr::DESTROY, &given).unwrap();
        assert_eq!(p.repeat(), if is_interruptible { 0 } else { libc::EINVAL });
        // A new command of the thread: the old one would be a mistake.
        p.allocate_pd().unwrap();
        assert_eq!(p.command(abi::mr::DESTROY, &given).err(), Some(libc::EINVAL));
    }
}

#[test]
fn objects_in_use_are_busy() {
    let (mut p, [a, _]) = connected(7);
    let busy = |p: &mut Program, method, id, handle: u32| {
        p.command(method, &[Given::Number(id, handle.into())]).err()
    };
    let cq = (abi::cq::DESTROY, abi::cq::DESTROY_HANDLE, a.cq.handle);
    assert_eq!(busy(&mut p[0], cq.0, cq.1, cq.2), Some(libc::EBUSY));
    assert_eq!(busy(&mut p[0], abi::pd::DESTROY, abi::pd::HANDLE, 1), Some(libc::EBUSY));
    let qp = (abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, a.qp.handle);
    assert_eq!(busy(&mut p[0], qp.0, qp.1, qp.2), None);
    assert_eq!(busy(&mut p[0], qp.0, qp.1, qp.2), Some(libc::EINVAL), "it is gone");
    assert_eq!(busy(&mut p[0], cq.0, cq.1, cq.2), None);
    assert_eq!(busy(&mut p[0], abi::mr::DESTROY, abi::mr::HANDLE, a.handle), None);
    assert_eq!(busy(&mut p[0], abi::pd::DESTROY, abi::pd::HANDLE, 1), None);
}

#[test]
fn states_follow_each_other_as_the_kernel_allows() {
    use qp_mask::*;
    let [mut p, _] = two();
    let cq = p.create_cq(64, None).unwrap();
    let qp = p.create_qp(&cq, None, RELIABLE).unwrap();
    let to = |qp_state, attr_mask| ModifyQp {
        qp_state,
        attr_mask: STATE | attr_mask,
        port_num: 1,
        path_mtu: 3,
        ..ModifyQp::default()
    };
    let init = PKEY_INDEX | PORT | ACCESS_FLAGS;
    let refused = [
        to(3, 0),
        to(1, PKEY_INDEX | PORT),
        to(1, init | QKEY),
        to(7, 0),
        ModifyQp { port_num: 2, ..to(1, init) },
        to(2, AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
    ];
    for change in refused {
        assert_eq!(p.modify(&qp, change), Err(libc::EINVAL), "{change:?}");
    }
    p.modify(&qp, to(1, init)).unwrap();
    p.modify(&qp, to(1, PORT)).unwrap();
    p.modify(&qp, to(6, 0)).unwrap();
    p.modify(&qp, to(0, 0)).unwrap();
    p.connect(&qp, qp.number, 7);
}

#[test]
fn memory_is_locked_up_to_the_limit_and_given_back() {
    let fabric = Arc::new(Fabric::default());
    let mut p = Program::new(&fabric, &settings(), 3 * 4096);
    let at = p.allocate(4 * 4096);
    assert_eq!(p.register(at, 4 * 4096, ALL), Err(libc::ENOMEM));
    let (handle, _) = p.register(at, 2 * 4096, ALL).unwrap();
    assert_eq!(p.register(at, 2 * 4096, ALL), Err(libc::ENOMEM));
    let given = [Given::Number(abi::mr::HANDLE, handle.into())];
    p.command(abi::mr::DESTROY, &given).unwrap();
    p.register(at, 3 * 4096, ALL).unwrap();
}

#[test]
fn a_command_that_finds_no_room_for_its_object_takes_nothing() {
    let fabric = Arc::new(Fabric::default());
    let mut p = Program::new(&fabric, &settings(), 40 * 4096);
    let at = p.allocate(4096);
    let cq = p.create_cq(64, None).unwrap();
    let before = p.function.objects.locked;
    let count = OBJECTS_MAX - p.function.objects.all.len();
    let others: Vec<u32> =
        (0..count).map(|_| p.function.objects.add(0, Kind::Ah).unwrap()).collect();
    for _ in 0..2 {
        assert_eq!(p.register(at, 4096, ALL), Err(libc::ENOMEM));
        assert_eq!(p.create_cq(64, None).err(), Some(libc::ENOMEM));
        assert_eq!(p.create_srq(0, &cq).err(), Some(libc::ENOMEM));
        assert_eq!(p.create_qp(&cq, None, RELIABLE).err(), Some(libc::ENOMEM));
        assert_eq!(p.function.objects.locked, before);
        assert!(!p.function.adapter.regions.uses(p.pd), "a region without a handle");
    }
    for handle in &others {
        p.function.objects.all.remove(handle).unwrap();
    }
    p.register(at, 4096, ALL).unwrap();

    let pd = p.pd;
    let region = || Region { pd, start: at, length: 64, named: at, access: ALL };
    let regions = &mut p.function.adapter.regions;
    while regions.add(region()).is_some() {}
    // The audit after the command finds pages that stay locked.
    assert_eq!(p.register(at, 4096, ALL), Err(libc::ENOMEM));
}

/// A signal interrupts a call that was carried out: the library repeats it.
#[test]
fn an_interrupted_command_is_as_if_it_had_not_been_given() {
    let fabric = Arc::new(Fabric::default());
    let mut p = Program::new(&fabric, &settings(), 40 * 4096);
    let at = p.allocate(4096);
    p.caller.is_interrupted.set(true);
    for _ in 0..100 {
        p.register(at, 4096, ALL).unwrap();
    }
    assert_eq!(p.function.objects.locked, 0);
    p.caller.is_interrupted.set(false);
    let (handle, key) = p.register(at, 4096, ALL).unwrap();
    let cq = p.create_cq(64, None).unwrap();
    let mut qp = p.create_qp(&cq, None, RELIABLE).unwrap();
    let destroy = |p: &mut Program, method, id, handle: u32| {
        p.command(method, &[Given::Number(id, handle.into())])
    };
    let init = ModifyQp {
        attr_mask: qp_mask::STATE | qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::ACCESS_FLAGS,
        qp_state: 1,
        port_num: 1,
        ..ModifyQp::default()
    };
    p.caller.is_interrupted.set(true);
    for _ in 0..3 {
        destroy(&mut p, abi::mr::DESTROY, abi::mr::HANDLE, handle).unwrap();
        destroy(&mut p, abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, qp.handle).unwrap();
        p.modify(&qp, init).unwrap();
    }
    p.caller.is_interrupted.set(false);
    // The queue pair is where it was, and works; so does the memory.
    p.connect(&qp, qp.number, 7);
    let write = [remote(at, key), segment(at, 8, key)].concat();
    p.post(&mut qp, opcode::WRITE, 0, &write);
    let mut all = [p];
    let mut cq = cq;
    assert_eq!(completions(&mut all, 0, &mut cq, 1)[0].opcode(), REQUEST);
}

/// What `ibv_devinfo(1)` shows of a port, and what libmlx5 makes its registers of.
#[test]
fn a_device_says_what_it_is() {
    let [mut p, _] = two();
    let port = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
    let port = p.command(abi::device::QUERY_PORT, &port).unwrap().remove(1);
    let half = |at: usize| u16::from_ne_bytes(port[at..at + 2].try_into().unwrap());
    let longest = u32::from_ne_bytes(port[4..8].try_into().unwrap());
    assert_eq!((longest, half(22), port[26], port[37]), (1 << 30, 1, 4, 1));
    let mut entry = |number, index| {
        let given = [
            word(abi::device::ENTRY_PORT, number),
            word(abi::device::ENTRY_INDEX, index),
            Given::Out(abi::device::ENTRY_RESP, 32),
        ];
        p.command(abi::device::QUERY_GID_ENTRY, &given).map(|mut answers| answers.remove(2))
    };
    let name = entry(1, 0).unwrap();
    assert_eq!(
        (&name[..2], &name[8..16]),
        (&[0xfe, 0x80][..], &[0x0c, 0x42, 0xa1, 3, 0, 0, 0, 0x33][..])
    );
    assert_eq!((entry(1, 1), entry(1, 7)), (Err(libc::ENODATA), Err(libc::ENODATA)));
    assert_eq!((entry(1, 8), entry(2, 0)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    let mut table = |size: u64, room| {
        let given = [
            Given::In(abi::device::TABLE_ENTRY_SIZE, size.to_ne_bytes().to_vec()),
            Given::Out(abi::device::TABLE_ENTRIES, room),
            Given::Out(abi::device::TABLE_COUNT, 8),
        ];
        p.command(abi::device::QUERY_GID_TABLE, &given)
    };
    let known = table(32, 32).unwrap();
    assert_eq!((&known[1], known[2][0]), (&name, 1));
    assert_eq!(table(31, 32).err(), Some(libc::EINVAL));
    assert_eq!(table(32, 31).err(), Some(libc::EINVAL));
    let number = abi::write_command::QUERY_DEVICE | abi::write_command::EXTENDED;
    let device = p.write_command(number, &[0; 8], 304).unwrap();
    let at = std::mem::offset_of!(abi::ExtendedDeviceAttributes, tm_caps);
    let list: Vec<u32> = device[at..at + 20]
        .chunks(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(list, [64, 7, 1, 32768, 1]);
    let uar = |p: &mut Program| {
        let given = [
            Given::Number(abi::uar::HANDLE, 0),
            Given::Out(abi::uar::MMAP_OFFSET, 8),
            Given::Out(abi::uar::MMAP_LENGTH, 4),
            Given::Out(abi::uar::PAGE_ID, 4),
        ];
        p.command(abi::uar::ALLOC, &given).unwrap()
    };
    let first = uar(&mut p);
    let second = uar(&mut p);
    let offset = |answers: &[Vec<u8>]| u64::from_ne_bytes(answers[1][..].try_into().unwrap());
    assert_eq!((offset(&first), offset(&second)), (0, 4096));
    let handle = u64::from_ne_bytes(first[0][..].try_into().unwrap());
    p.command(abi::uar::DESTROY, &[Given::Number(abi::uar::DESTROY_HANDLE, handle)]).unwrap();
    assert_eq!(offset(&uar(&mut p)), 0, "a page is given again");
}

/// The attributes of a command that makes a queue, of which a test changes one.
#[derive(Clone, Copy)]
struct Asked {
    at: u64,
    record: u64,
    flags: u32,
    entries: u32,
    entry_bytes: u32,
    compressed: u8,
    cq_flags: u32,
    vector: u32,
    kind: u64,
    elements: u32,
    tags: u32,
    sends: u32,
    receives: u32,
    shift: u32,
}

fn cq(p: &mut Program, asked: &Asked) -> Result<u32, i32> {
    let uhw = abi::CreateCq {
        buf_addr: asked.at,
        db_addr: asked.record,
        cqe_size: asked.entry_bytes,
        cqe_comp_en: asked.compressed,
        flags: asked.flags as u16,
        ..abi::CreateCq::default()
    };
    let given = [
        Given::Number(abi::cq::HANDLE, 0),
        word(abi::cq::CQE, asked.entries),
        word(abi::cq::VECTOR, asked.vector),
        word(abi::cq::FLAGS, asked.cq_flags),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
    ];
    handle(p.command(abi::cq::CREATE, &given))
}

fn srq(p: &mut Program, cq: u32, asked: &Asked) -> Result<u32, i32> {
    let uhw = abi::CreateSrq {
        buf_addr: asked.at,
        db_addr: asked.record,
        flags: asked.flags,
        ..abi::CreateSrq::default()
    };
    let given = [
        Given::Number(abi::srq::HANDLE, 0),
        Given::Number(abi::srq::PD, 1),
        Given::Number(abi::srq::CQ, cq.into()),
        Given::In(abi::srq::TYPE, asked.kind.to_ne_bytes().to_vec()),
        word(abi::srq::MAX_WR, asked.entries),
        word(abi::srq::MAX_SGE, asked.elements),
        word(abi::srq::MAX_NUM_TAGS, asked.tags),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
    ];
    handle(p.command(abi::srq::CREATE, &given))
}

fn qp(p: &mut Program, cq: u32, asked: &Asked) -> Result<u32, i32> {
    let uhw = abi::CreateQp {
        buf_addr: asked.at,
        db_addr: asked.record,
        sq_wqe_count: asked.sends,
        rq_wqe_count: asked.receives,
        rq_wqe_shift: asked.shift,
        flags: asked.flags,
        ..abi::CreateQp::default()
    };
    let given = [
        Given::Number(abi::qp::HANDLE, 0),
        Given::Number(abi::qp::PD, 1),
        Given::Number(abi::qp::SEND_CQ, cq.into()),
        word(abi::qp::TYPE, RELIABLE),
        word(abi::qp::FLAGS, 1 << 12),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
    ];
    handle(p.command(abi::qp::CREATE, &given))
}

fn handle(answers: Result<Vec<Vec<u8>>, i32>) -> Result<u32, i32> {
    answers.map(|answers| u32::from_ne_bytes(answers[0][..4].try_into().unwrap()))
}

/// Makes a queue, and destroys it: the pages that it had locked.
fn pages(p: &mut Program, made: Result<u32, i32>, destroy: u32, before: u64) -> u64 {
    let locked = p.function.objects.locked - before;
    p.command(destroy, &[Given::Number(0, made.unwrap().into())]).unwrap();
    assert_eq!(p.function.objects.locked, before, "all pages are given back");
    locked
}

#[test]
fn queues_of_wrong_sizes_are_refused_and_others_lock_their_pages() {
    let [mut p, _] = two();
    let at = p.allocate(1 << 20);
    let record = p.allocate(64);
    let ok = Asked {
        at,
        record,
        flags: 0,
        entries: 127,
        entry_bytes: 64,
        compressed: 0,
        cq_flags: 0,
        vector: 0,
        kind: 0,
        elements: 3,
        tags: 0,
        sends: 64,
        receives: 128,
        shift: 6,
    };
    let before = p.function.objects.locked;
    for (asked, expected) in [
        (ok, 2),
        (Asked { entry_bytes: 128, ..ok }, 4),
        (Asked { entries: 1, vector: 1, ..ok }, 1),
        (Asked { entries: 1023, flags: 2, cq_flags: 2, ..ok }, 16),
    ] {
        let made = cq(&mut p, &asked);
        assert_eq!(pages(&mut p, made, abi::cq::DESTROY, before), expected);
    }
    let invalid = Err(libc::EINVAL);
    let unknown = Err(libc::EOPNOTSUPP);
    let fault = Err(libc::EFAULT);
    for (number, (asked, expected)) in [
        (Asked { entries: 0, ..ok }, invalid),
        (Asked { entries: 4_194_304, ..ok }, invalid),
        (Asked { entries: 4_194_303, ..ok }, fault),
        (Asked { entry_bytes: 32, ..ok }, invalid),
        (Asked { vector: 2, ..ok }, invalid),
        (Asked { cq_flags: 4, ..ok }, unknown),
        (Asked { compressed: 1, ..ok }, unknown),
        (Asked { flags: 1, ..ok }, unknown),
        (Asked { record: record + 4, ..ok }, invalid),
        (Asked { record: 8, ..ok }, fault),
        (Asked { at: 4096, ..ok }, fault),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(cq(&mut p, &asked), expected, "completion queue {number}");
    }
    let queue = cq(&mut p, &ok).unwrap();
    let before = p.function.objects.locked;
    for (asked, expected) in [
        (ok, 2),
        (Asked { elements: 4, ..ok }, 4),
        (Asked { elements: 1, entries: 126, ..ok }, 1),
        (Asked { elements: 31, entries: 7, ..ok }, 1),
        (Asked { elements: 1, entries: 32767, ..ok }, 256),
        (Asked { entries: 0, ..ok }, 1),
        (Asked { kind: 2, tags: 7, ..ok }, 2),
    ] {
        let made = srq(&mut p, queue, &asked);
        assert_eq!(pages(&mut p, made, abi::srq::DESTROY, before), expected);
    }
    for (number, (asked, expected)) in [
        (Asked { entries: 32768, ..ok }, invalid),
        (Asked { elements: 32, ..ok }, invalid),
        (Asked { flags: 1, ..ok }, invalid),
        (Asked { tags: 3, ..ok }, invalid),
        (Asked { kind: 2, ..ok }, invalid),
        (Asked { kind: 1, ..ok }, unknown),
        (Asked { record: 8, ..ok }, fault),
        (Asked { at: 4096, ..ok }, fault),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(srq(&mut p, queue, &asked), expected, "shared receive queue {number}");
    }
    for (asked, expected) in [
        (ok, 3),
        (Asked { receives: 0, shift: 77, ..ok }, 1),
        (Asked { sends: 0, shift: 9, ..ok }, 16),
        (Asked { sends: 0, receives: 0, ..ok }, 0),
        (Asked { sends: 64, receives: 256, shift: 4, flags: 0x50a, ..ok }, 2),
    ] {
        let made = qp(&mut p, queue, &asked);
        assert_eq!(pages(&mut p, made, abi::qp::DESTROY, before), expected);
    }
    for (number, (asked, expected)) in [
        (Asked { sends: 3, ..ok }, invalid),
        (Asked { receives: 65536, ..ok }, invalid),
        (Asked { shift: 3, ..ok }, invalid),
        (Asked { shift: 10, ..ok }, invalid),
        (Asked { shift: 36, ..ok }, invalid),
        (Asked { flags: 1, ..ok }, invalid),
        (Asked { at: 4096, ..ok }, fault),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(qp(&mut p, queue, &asked), expected, "queue pair {number}");
        assert_eq!(p.function.objects.locked, before);
    }
}

/// A list of tags and a queue pair each keep their completion queue.
#[test]
fn a_completion_queue_is_busy_while_anything_reports_to_it() {
    let [mut p, _] = two();
    let sends = p.create_cq(64, None).unwrap();
    let receives = p.create_cq(64, None).unwrap();
    let destroy = |p: &mut Program, cq: &TestCq| {
        p.command(abi::cq::DESTROY, &[Given::Number(0, cq.handle.into())]).err()
    };
    let list = p.create_srq(3, &receives).unwrap();
    assert_eq!(destroy(&mut p, &receives), Some(libc::EBUSY));
    p.command(abi::srq::DESTROY, &[Given::Number(0, list.handle.into())]).unwrap();
    let pair = p.create_qp(&sends, None, RELIABLE).unwrap();
    assert_eq!((destroy(&mut p, &sends), destroy(&mut p, &receives)), (Some(libc::EBUSY), None));
    p.command(abi::qp::DESTROY, &[Given::Number(0, pair.handle.into())]).unwrap();
    assert_eq!(destroy(&mut p, &sends), None);
}

#[test]
fn a_queue_pair_is_put_into_error_and_begins_anew() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[0].post_receive(&mut a.qp, a.at, 64, a.key);
    let to = |qp_state| ModifyQp { attr_mask: qp_mask::STATE, qp_state, ..ModifyQp::default() };
    p[0].modify(&a.qp, to(6)).unwrap();
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    let flushed = completions(&mut p, 0, &mut a.cq, 2);
    assert!(flushed.iter().all(|one| one.syndrome() == 5));
    let query = [&[0; 8][..], &a.qp.handle.to_ne_bytes(), &[0; 4]].concat();
    let state = |p: &mut Program| {
        let answer = p.write_command(abi::write_command::QUERY_QP, &query, 128).unwrap();
        (answer[108], answer[112])
    };
    assert_eq!(state(&mut p[0]), (6, 0));
    // The program begins its queues anew, too.
    p[0].modify(&a.qp, to(0)).unwrap();
    p[1].modify(&b.qp, to(0)).unwrap();
    for (end, program) in [(&mut a, &p[0]), (&mut b, &p[1])] {
        end.qp.restart();
        program.put(end.qp.record, &[0; 8]);
    }
    assert_eq!(state(&mut p[0]), (0, 0));
    p[0].connect(&a.qp, b.qp.number, 7);
    p[1].connect(&b.qp, a.qp.number, 7);
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), REQUEST);
    completions(&mut p, 1, &mut b.cq, 1);
}

/// An event that the program has not read is taken back with its queue pair; one that it has read
/// is counted, since the library waits until it is acknowledged.
#[test]
fn the_end_of_a_queue_pair_tells_how_many_events_were_read() {
    for is_read in [false, true] {
        let (mut p, [mut a, b]) = connected(7);
        let read = [remote(b.at, b.key + 256), segment(a.at, 8, a.key)].concat();
        p[0].post(&mut a.qp, opcode::READ, 0, &read);
        completions(&mut p, 0, &mut a.cq, 1);
        if is_read {
            assert_eq!(p[1].events(), [abi::event::QP_ACCESS_ERR]);
        }
        let given = [
            Given::Number(abi::qp::DESTROY_HANDLE, b.qp.handle.into()),
            Given::Out(abi::qp::DESTROY_RESP, 4),
        ];
        let answers = p[1].command(abi::qp::DESTROY, &given).unwrap();
        assert_eq!(answers[1], u32::from(is_read).to_ne_bytes());
        assert!(p[1].events().is_empty());
    }
}

/// `ibv_modify_qp(3)`: a queue that drains ends what was begun, and begins nothing.
#[test]
fn a_queue_drains_while_a_request_is_under_way() {
    let (mut p, [mut a, mut b]) = connected(7);
    let to = |qp_state| ModifyQp { attr_mask: qp_mask::STATE, qp_state, ..ModifyQp::default() };
    let query = [&[0; 8][..], &a.qp.handle.to_ne_bytes(), &[0; 4]].concat();
    let state = |p: &mut Program| {
        let answer = p.write_command(abi::write_command::QUERY_QP, &query, 128).unwrap();
        (answer[108], answer[112])
    };
    let send = segment(a.at, 8, a.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &send);
    turns(&mut p, 3);
    assert_eq!(state(&mut p[0]), (3, 0), "nobody receives");
    p[0].modify(&a.qp, to(4)).unwrap();
    p[0].post(&mut a.qp, opcode::SEND, 0, &send);
    assert_eq!(state(&mut p[0]), (4, 1));
    for _ in 0..2 {
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    }
    completions(&mut p, 0, &mut a.cq, 1);
    turns(&mut p, 5);
    assert_eq!((state(&mut p[0]), p[0].poll(&mut a.cq).len()), ((4, 0), 0));
    p[0].modify(&a.qp, to(3)).unwrap();
    completions(&mut p, 0, &mut a.cq, 1);
}

/// The library reads the sizes that it has got, and the register for its doorbells.
#[test]
fn a_queue_is_told_of_what_it_has() {
    let [mut p, _] = two();
    let at = p.allocate(1 << 16);
    let record = p.allocate(64);
    let uhw = abi::CreateCq { buf_addr: at, db_addr: record, cqe_size: 64, ..Default::default() };
    let given = [
        Given::Number(abi::cq::HANDLE, 0),
        word(abi::cq::CQE, 100),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        Given::Out(abi::cq::RESP_CQE, 4),
    ];
    let cq = p.command(abi::cq::CREATE, &given).unwrap();
    assert_eq!(cq[3], 127_u32.to_ne_bytes());
    let uhw = abi::CreateQp {
        buf_addr: at + 0x8000,
        db_addr: record + 8,
        sq_wqe_count: 16,
        bfreg_index: 3,
        ..Default::default()
    };
    let cap = abi::QpCapabilities { max_send_wr: 16, max_send_sge: 2, ..Default::default() };
    let given = [
        Given::Number(abi::qp::HANDLE, 0),
        Given::Number(abi::qp::PD, 1),
        Given::Number(abi::qp::SEND_CQ, handle(Ok(cq)).unwrap().into()),
        word(abi::qp::TYPE, RELIABLE),
        Given::In(abi::qp::CAP, cap.as_bytes().to_vec()),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        Given::Out(abi::qp::RESP_CAP, 20),
        Given::Out(abi::UHW_OUT, 40),
    ];
    let qp = p.command(abi::qp::CREATE, &given).unwrap();
    assert_eq!((&qp[6][..], &qp[7][..4]), (cap.as_bytes(), &3_u32.to_ne_bytes()[..]));
}
