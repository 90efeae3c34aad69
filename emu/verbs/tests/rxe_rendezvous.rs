//! Rendezvous, events and ends on a real device: `ci/test roce` runs these on soft-RoCE.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod common;

use std::sync::mpsc;

use tagmatch_emu::{EnableError, Settings};
use tagmatch_model::{Chance, Delay, Knobs};
use tagmatch_rdma_core_sys::{self as sys, Verbs};

use common::{Path, Receiver, SOURCE, Sender, Shape, eager, no_tag, rendezvous};

const MATCH: u32 = sys::IBV_WC_TM_MATCH;
const DATA: u32 = sys::IBV_WC_TM_DATA_VALID;
const RECV: u32 = sys::IBV_WC_TM_RECV;

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| ((at >> 8) as u8 ^ at as u8).wrapping_add(seed)).collect()
}

/// A request for so many bytes of the sender's memory.
fn request(sender: &Sender, tag: u64, length: usize) -> Vec<u8> {
    let memory = sender.memory();
    let address = memory.address() + SOURCE as u64;
    rendezvous(tag, tag as u32 + 1, address, memory.rkey(), length as u32)
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_rendezvous_is_read_and_finished_though_nobody_polls() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    // More than a port's longest message: in parts.
    for (tag, length) in [(1, 5000), (2, 9 << 20), (3, 0)] {
        let source = bytes(length, tag as u8);
        sender.memory().write(SOURCE, &source);
        receiver.add(tag, 0, length);
        let message = request(&sender, tag, length);
        sender.send(&message);
        let fin = sender.fin();
        assert_eq!(fin, [&[2], &message[1..]].concat(), "opcode FIN, and the request's headers");
        assert!(receiver.memory().read(0, length) == source, "{length} bytes");
        let first = receiver.next();
        let second = receiver.next();
        assert_eq!(first.ok(), (RECV, MATCH, tag));
        assert_eq!((first.tag, first.app_ctx), (tag, tag as u32 + 1));
        assert_eq!(second.ok(), (RECV, DATA, tag));
        assert_eq!((second.length as usize, second.tag), (length, 0));
        while sender.poll().is_some() {}
    }
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_rendezvous_too_long_for_its_entry_is_left_to_software() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    receiver.add(1, 0, 100);
    let message = request(&sender, 1, 101);
    sender.sent(&message);
    let found = receiver.next();
    assert_eq!((found.status, found.wr_id), (sys::IBV_WC_TM_RNDV_INCOMPLETE, 1));
    assert_eq!((found.flags, found.tag, found.length), (MATCH | DATA, 1, 32));
    assert_eq!(receiver.memory().read(0, 33), [&message[..], &[0]].concat());
    assert!(sender.poll().is_none(), "a FIN that nobody has earned");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn many_rendezvous_at_once_and_messages_between_them() {
    let mut receiver = Receiver::ready();
    let senders: Vec<Sender> = (0..3).map(|_| receiver.connect(Path::default())).collect();
    let size = 20_000;
    let each = 20;
    for (number, sender) in senders.iter().enumerate() {
        sender.memory().write(SOURCE, &bytes(size, number as u8));
        for round in 0..each {
            let tag = (number * each + round) as u64;
            receiver.add(tag, tag as usize * size, size);
        }
    }
    let mut unfinished = 0;
    for round in 0..each {
        for (number, sender) in senders.iter().enumerate() {
            sender.send(&request(sender, (number * each + round) as u64, size));
            unfinished += 1;
            if round % 4 == 3 {
                // At most eight requests under way from each.
                for _ in 0..4 {
                    sender.fin();
                    unfinished -= 1;
                }
            }
        }
    }
    assert_eq!(unfinished, 0);
    let mut matches = 0;
    let mut data = 0;
    while matches < 60 || data < 60 {
        match receiver.next().ok() {
            (RECV, MATCH, _) => matches += 1,
            (RECV, DATA, tag) => {
                let landed = receiver.memory().read(tag as usize * size, size);
                assert!(landed == bytes(size, (tag as usize / each) as u8), "tag {tag}");
                data += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_key_that_is_none_ends_the_queue_pair() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    receiver.add(1, 0, 100);
    let memory = sender.memory();
    sender.send(&rendezvous(1, 0, memory.address(), !memory.rkey(), 100));
    assert_eq!(receiver.next().ok(), (RECV, MATCH, 1));
    let found = receiver.next();
    assert_eq!((found.status, found.wr_id), (sys::IBV_WC_WR_FLUSH_ERR, 1));
    // Its slot is free again, and the list as it was.
    receiver.add(1, 0, 100);
    let other = receiver.connect(Path::default());
    other.sent(&eager(1, 0, b"eager"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 1));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn queue_pairs_that_cannot_read_by_themselves_fail_at_a_rendezvous() {
    let mut receiver = Receiver::ready();
    let never = receiver.connect(Path { max_rd_atomic: 0, ..Path::default() });
    let own = receiver.connect_with(Path::default(), 4);
    for (tag, sender) in [(1, &never), (2, &own)] {
        receiver.add(tag, 0, 100);
        sender.send(&request(sender, tag, 100));
        assert_eq!(receiver.next().ok(), (RECV, MATCH, tag));
        assert_eq!(receiver.next().status, sys::IBV_WC_WR_FLUSH_ERR);
    }
}

/// Posts a message of nothing; gives the error number.
fn post_send(qp: *mut sys::ibv_qp) -> i32 {
    let mut wr = sys::ibv_send_wr::zeroed();
    wr.wr_id = 42;
    wr.opcode = sys::IBV_WR_SEND;
    wr.send_flags = sys::IBV_SEND_SIGNALED;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the queue pair is alive.
    unsafe { sys::ibv_post_send(qp, &raw mut wr, &raw mut bad) }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn the_send_queue_of_a_pair_without_one_is_not_the_programs() {
    let mut receiver = Receiver::ready();
    let first = receiver.connect(Path::default());
    let second = receiver.connect_with(Path::default(), 4);
    assert_eq!(post_send(receiver.pair(0)), libc::ENOMEM);
    assert_eq!(post_send(receiver.pair(1)), 0);
    let found = receiver.next();
    assert_eq!(found.ok(), (sys::IBV_WC_SEND, 0, 42));
    assert_eq!((second.fin(), first.poll().is_none()), (vec![], true));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_channel_tells_of_messages_and_of_operations() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    for round in 0..5 {
        receiver.arm();
        assert!(receiver.poll().is_none());
        sender.sent(&no_tag(&[round]));
        assert!(receiver.wait_event(20_000), "round {round}");
        assert_eq!(receiver.next().ok().0, sys::IBV_WC_TM_NO_TAG);

        receiver.arm();
        assert!(receiver.poll().is_none());
        receiver.sync(0, 5);
        assert!(receiver.wait_event(20_000), "round {round}");
        assert_eq!(receiver.next().ok(), (sys::IBV_WC_TM_SYNC, 0, 5));

        receiver.arm();
        assert!(receiver.poll().is_none());
        receiver.add(1, 0, 3000);
        sender.send(&request(&sender, 1, 3000));
        sender.fin();
        assert!(receiver.wait_event(20_000), "round {round}");
        assert_eq!(receiver.next().ok(), (RECV, MATCH, 1));
        assert_eq!(receiver.next().ok(), (RECV, DATA, 1));
        assert!(receiver.poll().is_none());
        while sender.poll().is_some() {}
        while receiver.wait_event(0) {}
    }
    // Nobody has asked.
    sender.sent(&no_tag(b""));
    assert_eq!(receiver.next().ok().0, sys::IBV_WC_TM_NO_TAG);
    assert!(!receiver.wait_event(0));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn queue_pairs_come_and_go() {
    let mut receiver = Receiver::ready();
    for round in 0..40 {
        let sender = receiver.connect(Path::default());
        receiver.add(round, 0, 1 << 20);
        sender.send(&request(&sender, round, 1 << 20));
        if round % 2 == 0 {
            sender.fin();
        }
        // With the READ begun, under way, or done.
        receiver.destroy_pair();
        assert_eq!(receiver.next().ok().1, MATCH);
        let status = receiver.next().status;
        let expected: &[u32] = match round % 2 {
            0 => &[sys::IBV_WC_SUCCESS],
            _ => &[sys::IBV_WC_SUCCESS, sys::IBV_WC_WR_FLUSH_ERR],
        };
        assert!(expected.contains(&status), "round {round}: status {status}");
    }
    let sender = receiver.connect(Path::default());
    receiver.add(1, 0, 64);
    sender.sent(&eager(1, 0, b"as ever"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 1));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_nic_of_its_own_mind_loses_nothing() {
    let sometimes = Delay { chance: Chance::percent(50), ticks_max: 20 };
    let knobs = Knobs::default()
        .operation(sometimes)
        .answer(sometimes)
        .receive(sometimes)
        .data(sometimes)
        .read(sometimes)
        .fin(sometimes);
    let settings = Settings { knobs, seed: 7, ..Settings::default() };
    let mut receiver = Receiver::new(settings, Shape::default());
    receiver.post_ordinary(33);
    let sender = receiver.connect(Path::default());
    let source = bytes(3000, 9);
    sender.memory().write(SOURCE, &source);
    for tag in 0..100 {
        let mut sge = receiver.memory().sge(0, 4000);
        let mut op = common::add_request(tag, &mut sge);
        op.flags = sys::IBV_OPS_SIGNALED;
        op.wr_id = tag;
        assert_eq!(receiver.operate(&mut op), 0);
        assert_eq!(receiver.next().ok(), (sys::IBV_WC_TM_ADD, 0, tag));
        match tag % 2 {
            0 => sender.send(&eager(tag, 0, &source)),
            _ => sender.send(&request(&sender, tag, 3000)),
        }
        assert_eq!(receiver.next().ok(), (RECV, MATCH, tag));
        assert_eq!(receiver.next().ok(), (RECV, DATA, tag));
        assert!(receiver.memory().read(0, 3000) == source);
        receiver.memory().write(0, &[0; 3000]);
        if tag % 2 == 1 {
            sender.fin();
        }
    }
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn what_hardware_would_not_make_is_refused() {
    let receiver = Receiver::ready();
    let verbs = receiver.verbs;
    let make = |attr: &mut sys::ibv_srq_init_attr_ex| {
        // SAFETY: context, domain and queue are alive, and what is made is destroyed.
        unsafe {
            let srq = sys::ibv_create_srq_ex(verbs, receiver.context, attr);
            if srq.is_null() {
                return std::io::Error::last_os_error().raw_os_error().unwrap();
            }
            assert_eq!((verbs.ibv_destroy_srq)(srq), 0);
            0
        }
    };
    let attr = |shape| common::srq_attr(receiver.pd, receiver.cq, shape);
    let shape = Shape::default();
    assert_eq!(make(&mut attr(shape)), 0);
    assert_eq!(make(&mut attr(Shape { tags: 0, ..shape })), libc::EINVAL);
    assert_eq!(make(&mut attr(Shape { tags: 128, ..shape })), libc::EINVAL);
    assert_eq!(make(&mut attr(Shape { operations: 0, ..shape })), libc::EINVAL);
    assert_eq!(make(&mut attr(Shape { receives: 0, ..shape })), libc::EINVAL);
    let mut without_cq = attr(shape);
    without_cq.comp_mask &= !sys::IBV_SRQ_INIT_ATTR_CQ;
    assert_eq!(make(&mut without_cq), libc::EINVAL);
    // SAFETY: as above; a queue that isn't extended.
    unsafe {
        let null = std::ptr::null_mut();
        let cq = (verbs.ibv_create_cq)(receiver.context, 16, null, std::ptr::null_mut(), 0);
        let mut plain = attr(shape);
        plain.cq = cq;
        assert_eq!(make(&mut plain), libc::EINVAL);
        assert_eq!((verbs.ibv_destroy_cq)(cq), 0);

        let mut attr = sys::ibv_qp_init_attr::zeroed();
        attr.send_cq = receiver.cq.cast();
        attr.recv_cq = receiver.cq.cast();
        attr.srq = receiver.srq;
        attr.qp_type = sys::IBV_QPT_UD;
        attr.cap.max_send_wr = 1;
        assert!((verbs.ibv_create_qp)(receiver.pd, &raw mut attr).is_null());

        let mut attr = sys::ibv_srq_attr::zeroed();
        assert_eq!((verbs.ibv_query_srq)(receiver.srq, &raw mut attr), 0);
        assert_eq!((attr.max_wr, attr.max_sge), (64, 2));
        let limit = sys::IBV_SRQ_LIMIT.cast_signed();
        assert_eq!((verbs.ibv_modify_srq)(receiver.srq, &raw mut attr, limit), libc::EOPNOTSUPP);
        let twice = tagmatch_emu::enable(receiver.context, Settings::default());
        assert!(matches!(twice, Err(EnableError::Twice)), "{twice:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn devices_opened_through_the_table_match_tags_and_others_do_not() {
    let table = tagmatch_emu::verbs().unwrap();
    let below = Verbs::get().unwrap();
    for (verbs, tags) in [(table, 127), (below, 0)] {
        let context = common::open_with(verbs);
        let mut attr = sys::ibv_device_attr_ex::zeroed();
        let null = std::ptr::null();
        // SAFETY: the context is open until it is closed.
        unsafe {
            assert_eq!(sys::ibv_query_device_ex(verbs, context, null, &raw mut attr), 0);
            assert_eq!((verbs.ibv_close_device)(context), 0);
        }
        assert_eq!(attr.tm_caps.max_num_tags, tags);
        if tags > 0 {
            assert_eq!(attr.tm_caps.max_rndv_hdr_size, 64);
            assert_eq!((attr.tm_caps.flags, attr.tm_caps.max_sge), (sys::IBV_TM_CAP_RC, 1));
        }
    }
}

/// A receiver that several threads use at once.
struct Shared<'a>(&'a Receiver);

// SAFETY: what the threads below call is libibverbs' functions alone, which may be called from any.
unsafe impl Sync for Shared<'_> {}

/// Adds entries of 2000 bytes, each behind the other, and says so; with no place, waits until there
/// is.
fn add_all(receiver: &Receiver, count: u64, added: &mpsc::Sender<u64>) {
    for tag in 0..count {
        let mut sge = receiver.memory().sge(tag as usize * 2000, 2000);
        let mut op = common::add_request(tag, &mut sge);
        op.flags = sys::IBV_OPS_SIGNALED;
        op.wr_id = tag;
        while receiver.operate(&mut op) == libc::ENOMEM {
            std::thread::yield_now();
        }
        added.send(tag).unwrap();
    }
}

/// Polls until all entries have been added and have their data.
fn poll_all(receiver: &Receiver, count: u64) {
    let mut adds = 0;
    let mut ends = 0;
    while adds < count || ends < count {
        let (opcode, flags, _) = receiver.next().ok();
        adds += u64::from(opcode == sys::IBV_WC_TM_ADD);
        ends += u64::from(flags & DATA != 0);
    }
    assert_eq!((adds, ends), (count, count));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn one_thread_adds_while_another_polls() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    sender.memory().write(SOURCE, &bytes(2000, 3));
    let shared = &Shared(&receiver);
    let (added, to_send) = mpsc::channel();
    let count = 400;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Shared(receiver) = shared;
            add_all(receiver, count, &added);
        });
        scope.spawn(move || {
            let Shared(receiver) = shared;
            poll_all(receiver, count);
        });
        for tag in to_send {
            if tag % 2 == 0 {
                sender.sent(&eager(tag, 0, &bytes(1500, 3)));
            } else {
                sender.send(&request(&sender, tag, 2000));
                sender.fin();
                while sender.poll().is_some() {}
            }
        }
    });
    for tag in 0..count as usize {
        let length = if tag % 2 == 0 { 1500 } else { 2000 };
        assert!(receiver.memory().read(tag * 2000, length) == bytes(length, 3), "tag {tag}");
    }
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_device_that_is_closed_with_everything_on_it_does_no_harm() {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    sender.sent(&no_tag(b"never looked at"));
    let verbs = receiver.verbs;
    let context = receiver.context;
    std::mem::forget(receiver);
    // SAFETY: the context is open; of what is left in it, nothing is used any more.
    unsafe { assert_eq!((verbs.ibv_close_device)(context), 0) };
    let again = Receiver::ready();
    assert!(again.poll().is_none());
}
