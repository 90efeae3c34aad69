//! What a card refuses: requests that the peer has no room for, packets of another length, and
//! packets out of their order.

use zerocopy::{FromBytes, IntoBytes};

use super::knobs::programs;
use super::programs::{Completed, Given, Program, TestLink, remote, segment, turns, word};
use super::{ALL, REQUEST, REQUEST_ERROR, completions, connected, datagrams, linked, two};
use crate::abi::{self, event};
use crate::nic::Letter;
use crate::wqe::opcode;

/// `IBV_WC_REM_INV_REQ_ERR` and `IBV_WC_BAD_RESP_ERR` of mlx5.
const INVALID_REQUEST: u8 = 0x12;
const BAD_RESPONSE: u8 = 0x10;

/// So many requests at a time, and how the last one of them ends that doesn't end by being flushed.
fn last_end(links: [TestLink; 2], request: u8, length: u32, count: usize) -> (u8, u8, Vec<u32>) {
    let (mut p, [mut a, mut b]) = linked(two(), links, 7);
    p[1].post_receive(&mut b.qp, b.at, 0x8000, b.key);
    let data = segment(a.at, length, a.key);
    let rest = match request {
        opcode::SEND => data,
        opcode::FETCH_AND_ADD => [remote(b.at, b.key), vec![0; 16], data].concat(),
        _ => [remote(b.at, b.key), data].concat(),
    };
    for _ in 0..count {
        p[0].post(&mut a.qp, request, 0, &rest);
    }
    let ended = completions(&mut p, 0, &mut a.cq, count);
    let last = ended.iter().rfind(|one| one.opcode() == REQUEST || one.syndrome() != 5);
    let syndrome = |one: &Completed| if one.opcode() == REQUEST { 0 } else { one.syndrome() };
    let last = last.unwrap();
    (last.opcode(), syndrome(last), p[1].events())
}

/// InfiniBand 9.7.4.1.2: a responder without room for one more READ or atomic operation refuses it
/// as an invalid request. `mlx5_ib_modify_qp` rounds the room up to a power of two, and allows none
/// of them at all where there is room for none.
#[test]
fn reads_that_the_peer_has_no_room_for_are_refused() {
    let link = TestLink::default();
    for (reads, reads_taken, count, is_taken) in [
        (16, 16, 12, true),
        (1, 1, 4, true),
        (4, 3, 8, true),
        (16, 1, 12, false),
        (16, 0, 1, false),
    ] {
        for request in [opcode::READ, opcode::FETCH_AND_ADD] {
            let links = [TestLink { reads, ..link }, TestLink { reads_taken, ..link }];
            let ended = last_end(links, request, 8, count);
            let expected = if is_taken {
                (REQUEST, 0, vec![])
            } else {
                (REQUEST_ERROR, INVALID_REQUEST, vec![event::QP_REQ_ERR])
            };
            assert_eq!(ended, expected, "{request:#x}: {reads} against {reads_taken}");
        }
    }
}

/// The operations that `qp_access_flags` leaves out: InfiniBand 9.7.4.1.2 again.
#[test]
fn operations_that_a_queue_pair_does_not_allow_are_invalid_requests() {
    let link = TestLink::default();
    for (request, access) in [(opcode::READ, 11), (opcode::WRITE, 13), (opcode::FETCH_AND_ADD, 7)] {
        let ended = last_end([link, TestLink { access, ..link }], request, 8, 1);
        assert_eq!(ended, (REQUEST_ERROR, INVALID_REQUEST, vec![event::QP_REQ_ERR]));
        assert_eq!(last_end([link, link], request, 8, 1).0, REQUEST);
    }
}

/// InfiniBand 9.7.4.1.6: the only packet of a message is no longer than the path's MTU, and the
/// first of several has its length.
#[test]
fn packets_of_another_path_mtu_are_refused() {
    let link = TestLink::default();
    let ends = [TestLink { mtu: 5, ..link }, TestLink { mtu: 1, ..link }];
    for (request, syndrome) in [
        (opcode::SEND, INVALID_REQUEST),
        (opcode::WRITE, INVALID_REQUEST),
        // The answer is what has the wrong length.
        (opcode::READ, BAD_RESPONSE),
    ] {
        for links in [ends, [ends[1], ends[0]]] {
            for (length, is_taken) in [(256, true), (257, false), (5000, false)] {
                let (opcode, why, _) = last_end(links, request, length, 1);
                let expected = if is_taken { (REQUEST, 0) } else { (REQUEST_ERROR, syndrome) };
                assert_eq!((opcode, why), expected, "{length} bytes by {request:#x}");
            }
        }
    }
}

/// A packet that is longer than the link carries is lost.
#[test]
fn a_path_mtu_beyond_that_of_the_link_loses_long_packets() {
    for (length, ends) in [(1024, REQUEST), (1025, REQUEST_ERROR)] {
        let link = TestLink { mtu: 4, ..TestLink::default() };
        let (mut p, [mut a, mut b]) = linked(programs(&[("mtu", "1024")]), [link; 2], 7);
        p[1].post_receive(&mut b.qp, b.at, 0x8000, b.key);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, length, a.key));
        assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), ends);
    }
}

/// The packets that wait for a program.
fn waiting(p: &Program) -> Vec<Letter> {
    std::iter::from_fn(|| p.function.adapter.inbox.take()).collect()
}

/// InfiniBand 9.7.5.2.8: the responder says at once what is missing, and once. The timeout is
/// endless here: nothing is repeated without that.
#[test]
fn a_gap_in_the_sequence_is_said_at_once() {
    let link = TestLink { timeout: 0, ..TestLink::default() };
    for missing in 0..4 {
        let (mut p, [mut a, mut b]) = linked(two(), [link; 2], 7);
        for round in 0..4 {
            p[0].put(a.at + round, &[1 + round as u8]);
            p[1].post_receive(&mut b.qp, b.at + 64 * round, 64, b.key);
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at + round, 1, a.key));
        }
        p[0].function.turn(|_| true);
        let mut letters = waiting(&p[1]);
        assert_eq!(letters.len(), 4);
        letters.remove(missing);
        for letter in letters {
            p[1].function.adapter.inbox.put(letter);
        }
        p[1].function.take_letters(&p[1].caller);
        if missing == 3 {
            // Nothing comes behind it: the next message shows what is missing.
            p[1].post_receive(&mut b.qp, b.at + 256, 64, b.key);
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 1, a.key));
        }
        let count = if missing == 3 { 5 } else { 4 };
        assert_eq!(completions(&mut p, 0, &mut a.cq, count).len(), count);
        assert_eq!(completions(&mut p, 1, &mut b.cq, count).len(), count);
        let bytes: Vec<u8> = (0..4).map(|at| p[1].get(b.at + 64 * at, 1)[0]).collect();
        assert_eq!(bytes, [1, 2, 3, 4]);
    }
}

/// What follows a message that found no receive is no gap: its sender waits as long as it was told.
#[test]
fn what_follows_a_message_without_a_receive_is_no_gap() {
    let (mut p, [mut a, _]) = connected(7);
    for _ in 0..3 {
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    }
    p[0].function.turn(|_| true);
    p[1].function.take_letters(&p[1].caller);
    assert_eq!(waiting(&p[0]).len(), 1, "one answer to three messages");
}

/// A datagram to another queue pair: its Q_Key and its length. Whether it came, and how its request
/// ended.
fn datagram(knobs: &[(&str, &str)], qkey: u32, length: u32) -> (bool, u8) {
    let mut p = programs(knobs);
    let cqs = p.each_mut().map(|program| program.create_cq(64, None).unwrap());
    let [mut from, mut to] = [0, 1].map(|at| datagrams(&mut p[at], &cqs[at]));
    let at = p.each_mut().map(|program| program.allocate(8192));
    let keys = [0, 1].map(|n| p[n].register(at[n], 8192, ALL).unwrap().1);
    p[1].post_receive(&mut to, at[1], 8192, keys[1]);
    let address = [&qkey.to_be_bytes()[..], &[0; 4], &to.number.to_be_bytes(), &[0, 0, 0, 1]];
    let rest = [address.concat(), segment(at[0], length, keys[0])].concat();
    p[0].post(&mut from, opcode::SEND, 0, &rest);
    let ended = completions(&mut p, 0, &mut { cqs[0] }, 1)[0];
    turns(&mut p, 2);
    let syndrome = if ended.opcode() == REQUEST { 0 } else { ended.syndrome() };
    (!p[1].poll(&mut { cqs[1] }).is_empty(), syndrome)
}

/// InfiniBand 10.2.5: with the highest bit set, the sender's own key goes out.
#[test]
fn a_queue_key_with_the_high_bit_is_that_of_the_sender() {
    assert_eq!(datagram(&[], 7, 8), (true, 0));
    assert_eq!(datagram(&[], 8, 8), (false, 0));
    assert_eq!(datagram(&[], 0x8000_0008, 8), (true, 0));
}

#[test]
fn a_datagram_is_no_longer_than_a_packet_of_the_link() {
    const LOCAL_LENGTH: u8 = 1;
    assert_eq!(datagram(&[], 7, 4096), (true, 0));
    assert_eq!(datagram(&[], 7, 4097), (false, LOCAL_LENGTH));
    assert_eq!(datagram(&[("mtu", "1024")], 7, 1024), (true, 0));
    assert_eq!(datagram(&[("mtu", "1024")], 7, 1025), (false, LOCAL_LENGTH));
}

/// `enum ib_uverbs_device_cap_flags`: events of ports that become active, a name of the system, and
/// a NAK of receivers without a buffer. Not XRC, memory windows, steering, or a second path.
#[test]
fn a_device_promises_what_it_has() {
    let [mut p, _] = two();
    let number = abi::write_command::QUERY_DEVICE | abi::write_command::EXTENDED;
    let device = p.write_command(number, &[0; 8], 304).unwrap();
    let device = abi::ExtendedDeviceAttributes::read_from_bytes(&device).unwrap();
    assert_eq!(device.base.device_cap_flags, 1 << 10 | 1 << 11 | 1 << 12);
    assert_eq!(device.device_cap_flags_ex, u64::from(device.base.device_cap_flags));
    // No time of completions, and so no queue that has it.
    assert_eq!((device.timestamp_mask, device.hca_core_clock), (0, 0));
    let at = p.allocate(1 << 16);
    let uhw =
        abi::CreateCq { buf_addr: at, db_addr: at + 0x8000, cqe_size: 64, ..Default::default() };
    let mut cq = |flags| {
        let given = [
            Given::Number(abi::cq::HANDLE, 0),
            word(abi::cq::CQE, 100),
            word(abi::cq::FLAGS, flags),
            Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        ];
        p.command(abi::cq::CREATE, &given).map(drop)
    };
    let ignores_overrun = 2;
    let has_timestamps = 1;
    assert_eq!(cq(ignores_overrun), Ok(()));
    assert_eq!(cq(has_timestamps), Err(libc::EOPNOTSUPP));
}
