//! What rdma-core's own tests leave out, on a real device: `ci/test roce` runs these on soft-RoCE.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod common;

use tagmatch_emu::Settings;
use tagmatch_model::{Fault, Handle, Knobs};
use tagmatch_rdma_core_sys as sys;

use common::{Found, Path, Receiver, Sender, Shape, eager, no_tag};

const MATCH: u32 = sys::IBV_WC_TM_MATCH;
const DATA: u32 = sys::IBV_WC_TM_DATA_VALID;
const RECV: u32 = sys::IBV_WC_TM_RECV;

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn pair() -> (Receiver, Sender) {
    let mut receiver = Receiver::ready();
    let sender = receiver.connect(Path::default());
    (receiver, sender)
}

/// The next completion is of an ordinary buffer with this message.
#[track_caller]
fn expect_ordinary(receiver: &Receiver, opcode: u32, message: &[u8]) -> Found {
    let found = receiver.next();
    let (seen, _, wr_id) = found.ok();
    assert_eq!((seen, found.length as usize), (opcode, message.len()), "{found:?}");
    let at = receiver.ordinary(wr_id);
    assert_eq!(receiver.memory().read(at, message.len()), message);
    found
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_message_of_one_packet_has_one_completion_and_a_longer_one_two() {
    let (receiver, sender) = pair();
    let whole = bytes(1024 - 16, 1);
    receiver.add(7, 0, 4096);
    sender.sent(&eager(7, 70, &whole));
    let found = receiver.next();
    assert_eq!(found.ok(), (RECV, MATCH | DATA, 7));
    assert_eq!((found.tag, found.app_ctx, found.length), (7, 70, 1008));
    assert_eq!(receiver.memory().read(0, 1009), [&whole[..], &[0]].concat());

    let long = bytes(1024 - 15, 2);
    receiver.add(8, 4096, 4096);
    sender.sent(&eager(8, 80, &long));
    let first = receiver.next();
    let second = receiver.next();
    assert_eq!(first.ok(), (RECV, MATCH, 8));
    assert_eq!((first.tag, first.app_ctx), (8, 80));
    assert_eq!(second.ok(), (RECV, DATA, 8));
    assert_eq!((second.tag, second.app_ctx, second.length), (0, 0, 1009));
    assert_eq!(receiver.memory().read(4096, 1009), long);
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn the_first_entry_that_matches_is_taken() {
    let (receiver, sender) = pair();
    receiver.add(1, 0, 64);
    receiver.add(1, 64, 64);
    sender.sent(&eager(1, 0, b"first"));
    sender.sent(&eager(1, 0, b"second"));
    sender.sent(&eager(1, 0, b"third"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 1));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 1));
    expect_ordinary(&receiver, RECV, &eager(1, 0, b"third"));
    assert_eq!(receiver.memory().read(0, 5), b"first");
    assert_eq!(receiver.memory().read(64, 6), b"second");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn immediate_data_and_short_messages_come_through() {
    let (receiver, sender) = pair();
    receiver.add(3, 0, 64);
    sender.send_with(&eager(3, 1, b"with"), Some(0x1234_5678));
    let found = receiver.next();
    assert_eq!(found.ok(), (RECV, MATCH | DATA | sys::IBV_WC_WITH_IMM, 3));
    assert_eq!(found.immediate, 0x1234_5678);
    assert_eq!(sender.next().status, sys::IBV_WC_SUCCESS);
    sender.sent(&no_tag(b""));
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &[0]);
    sender.sent(&no_tag(&[9; 4000]));
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(&[9; 4000]));
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn what_is_deleted_does_not_match_and_what_has_matched_is_not_deleted() {
    let (receiver, sender) = pair();
    let gone = receiver.add(1, 0, 64);
    let taken = receiver.add(2, 64, 64);
    assert_eq!(receiver.delete(gone, 10), 0);
    assert_eq!(receiver.next().ok(), (sys::IBV_WC_TM_DEL, 0, 10));
    sender.sent(&eager(2, 0, b"two"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 2));
    assert_eq!(receiver.delete(taken, 11), libc::EINVAL);
    sender.sent(&eager(1, 0, b"one"));
    expect_ordinary(&receiver, RECV, &eager(1, 0, b"one"));
    assert_eq!(receiver.faults(), [Fault::StaleHandle(Handle(taken))]);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_delete_that_comes_too_late_fails_and_the_match_stands() {
    let (receiver, sender) = pair();
    let handle = receiver.add(1, 0, 64);
    sender.sent(&eager(1, 0, b"one"));
    // It has arrived, though nobody has polled: the delete comes after it.
    assert_eq!(receiver.delete(handle, 11), 0);
    let matched = receiver.next();
    let lost = receiver.next();
    assert_eq!(matched.ok(), (RECV, MATCH | DATA, 1));
    assert_eq!((lost.status, lost.wr_id), (sys::IBV_WC_TM_ERR, 11));
    assert_eq!(receiver.memory().read(0, 3), b"one");
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_payload_too_long_for_its_entry_ends_that_queue_pair_alone() {
    let mut receiver = Receiver::ready();
    let first = receiver.connect(Path::default());
    let second = receiver.connect(Path::default());
    let handle = receiver.add(1, 0, 4);
    first.send(&eager(1, 0, b"too long"));
    let matched = receiver.next();
    assert_eq!(matched.ok(), (RECV, MATCH, 1));
    let failed = receiver.next();
    assert_eq!((failed.status, failed.wr_id), (sys::IBV_WC_WR_FLUSH_ERR, 1));
    assert_eq!(receiver.memory().read(0, 8), [0; 8]);
    let _ = first.next();
    first.send(&eager(1, 0, b"more"));
    assert_ne!(first.next().status, sys::IBV_WC_SUCCESS);
    receiver.add(2, 0, 64);
    second.sent(&eager(2, 0, b"still"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 2));
    let fault = Fault::BufferTooShort { handle: Handle(handle), length: 8, room: 4 };
    assert_eq!(receiver.faults(), [fault]);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn without_ordinary_buffers_senders_wait() {
    let mut receiver = Receiver::new(Settings::default(), Shape::default());
    let patient = receiver.connect(Path::default());
    let impatient = receiver.connect(Path { rnr_retry: 1, ..Path::default() });
    // One buffer less than the NIC wants before it takes anything.
    receiver.post_ordinary(32);
    patient.send(&no_tag(b"waits"));
    impatient.send(&no_tag(b"waits not"));
    assert_eq!(impatient.next().status, sys::IBV_WC_RNR_RETRY_EXC_ERR);
    assert!(receiver.poll().is_none() && patient.poll().is_none());
    receiver.post_ordinary(1);
    assert_eq!(patient.next().status, sys::IBV_WC_SUCCESS);
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(b"waits"));

    // All 32 that are left, then one more.
    for number in 0..32 {
        patient.sent(&no_tag(&[number]));
        expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(&[number]));
    }
    let last = receiver.connect(Path { rnr_retry: 1, ..Path::default() });
    last.send(&no_tag(b"none is left"));
    assert_eq!(last.next().status, sys::IBV_WC_RNR_RETRY_EXC_ERR);
    patient.send(&no_tag(b"last"));
    assert!(receiver.poll().is_none());
    receiver.post_ordinary(1);
    assert_eq!(patient.next().status, sys::IBV_WC_SUCCESS);
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(b"last"));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn more_ordinary_buffers_than_there_may_be_are_refused() {
    let receiver = Receiver::new(Settings::default(), Shape { receives: 2, ..Shape::default() });
    receiver.post_ordinary(2);
    let mut part = receiver.memory().sge(0, 64);
    assert_eq!(receiver.post_receive(1, &mut [part]), libc::ENOMEM);
    assert_eq!(receiver.post_receive(1, &mut [part, part, part]), libc::EINVAL);
    part.lkey = !part.lkey;
    assert_eq!(receiver.post_receive(1, &mut [part]), libc::ENOMEM);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn counts_wrap_at_sixteen_bits() {
    let first_count = u16::MAX - 1;
    let knobs = Knobs::default().first_count(first_count);
    let mut receiver = Receiver::new(Settings { knobs, ..Settings::default() }, Shape::default());
    receiver.post_ordinary(40);
    let sender = receiver.connect(Path::default());
    let mut count = u32::from(first_count);
    for round in 0..4 {
        sender.sent(&eager(round, 0, b"unexpected"));
        expect_ordinary(&receiver, RECV, &eager(round, 0, b"unexpected"));
        // Out of phase: not matched.
        let handle = receiver.add(100, 0, 64);
        sender.sent(&eager(100, 0, b"asleep"));
        expect_ordinary(&receiver, RECV, &eager(100, 0, b"asleep"));
        assert_eq!(receiver.delete(handle, 1), 0);
        assert_eq!(receiver.next().opcode, sys::IBV_WC_TM_DEL);
        // Only the lower 16 bits reach the NIC.
        count += 2;
        receiver.sync(count, 5);
        assert_eq!(receiver.next().ok(), (sys::IBV_WC_TM_SYNC, 0, 5));
        receiver.add(200, 0, 64);
        sender.sent(&eager(200, 0, b"awake"));
        assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 200));
    }
    assert!(count > u32::from(u16::MAX));
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_full_list_and_a_full_command_queue_refuse() {
    let (receiver, sender) = pair();
    let shape = Shape { operations: 3, ..Shape::default() };
    let few = Receiver::new(Settings::default(), shape);
    for tag in 0..127 {
        let mut sge = receiver.memory().sge(0, 64);
        let mut op = common::add_request(tag, &mut sge);
        op.flags = sys::IBV_OPS_SIGNALED;
        op.wr_id = tag;
        assert_eq!(receiver.operate(&mut op), 0);
    }
    let mut sge = receiver.memory().sge(0, 64);
    assert_eq!(receiver.operate(&mut common::add_request(127, &mut sge)), libc::ENOMEM);
    for tag in 0..127 {
        assert_eq!(receiver.next().ok(), (sys::IBV_WC_TM_ADD, 0, tag));
    }
    assert_eq!(receiver.operate(&mut common::add_request(127, &mut sge)), libc::ENOMEM);
    sender.sent(&eager(50, 0, b"frees one"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 50));
    assert_eq!(receiver.operate(&mut common::add_request(127, &mut sge)), 0);

    let mut sge = few.memory().sge(0, 64);
    for tag in 0..3 {
        assert_eq!(few.operate(&mut common::add_request(tag, &mut sge)), 0);
    }
    assert_eq!(few.operate(&mut common::add_request(3, &mut sge)), libc::ENOMEM);
    assert_eq!(receiver.faults(), []);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn requests_that_are_none_are_refused() {
    let (receiver, _sender) = pair();
    let mut sge = [receiver.memory().sge(0, 64), receiver.memory().sge(64, 64)];
    let mut two = common::add_request(1, &mut sge[0]);
    two.tm.add.num_sge = 2;
    assert_eq!(receiver.operate(&mut two), libc::EINVAL);
    two.tm.add.num_sge = -1;
    assert_eq!(receiver.operate(&mut two), libc::EINVAL);
    assert_eq!(receiver.delete(5, 1), libc::EINVAL);
    let mut unknown = sys::ibv_ops_wr::zeroed();
    unknown.opcode = 3;
    assert_eq!(receiver.operate(&mut unknown), libc::EINVAL);
    assert!(receiver.poll().is_none());
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn memory_that_is_not_registered_is_not_written() {
    let mut receiver = Receiver::ready();
    let first = receiver.connect(Path::default());
    let second = receiver.connect(Path::default());
    let mut sge = receiver.memory().sge(0, 64);
    sge.addr -= 1;
    assert_eq!(receiver.operate(&mut common::add_request(1, &mut sge)), 0);
    first.send(&eager(1, 0, b"nowhere"));
    let found = receiver.next();
    assert_eq!((found.status, found.wr_id), (sys::IBV_WC_LOC_PROT_ERR, 1));
    let _ = first.next();
    first.send(&eager(1, 0, b"again"));
    assert_ne!(first.next().status, sys::IBV_WC_SUCCESS);

    // The other queue pair is as it was, until it meets such a buffer.
    receiver.add(2, 0, 64);
    second.sent(&eager(2, 0, b"somewhere"));
    assert_eq!(receiver.next().ok(), (RECV, MATCH | DATA, 2));
    let mut sge = receiver.memory().sge(0, 8192);
    sge.lkey = !sge.lkey;
    for _ in 0..32 {
        second.sent(&no_tag(b""));
        expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(b""));
    }
    assert_eq!(receiver.post_receive(77, &mut [sge]), 0);
    second.send(&no_tag(b""));
    // One of the 33 is left.
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(b""));
    assert_eq!(second.next().status, sys::IBV_WC_SUCCESS);
    second.send(&no_tag(b""));
    let found = receiver.next();
    assert_eq!((found.status, found.wr_id), (sys::IBV_WC_LOC_PROT_ERR, 77));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_message_longer_than_may_arrive_ends_its_queue_pair_alone() {
    let settings = Settings { message_max: 256, memory_max: 1 << 14, ..Settings::default() };
    let mut receiver = Receiver::new(settings, Shape::default());
    receiver.post_ordinary(33);
    let first = receiver.connect(Path::default());
    let second = receiver.connect(Path::default());
    first.sent(&no_tag(&[1; 255]));
    expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(&[1; 255]));
    first.send(&no_tag(&[2; 256]));
    assert_ne!(first.next().status, sys::IBV_WC_SUCCESS);
    for number in 0..32 {
        second.sent(&no_tag(&[number]));
        expect_ordinary(&receiver, sys::IBV_WC_TM_NO_TAG, &no_tag(&[number]));
    }
    assert!(receiver.poll().is_none());
}
