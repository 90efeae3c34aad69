//! Completion queues that get another size: `ibv_resize_cq(3)`.

use zerocopy::IntoBytes;

use super::programs::{Given, PLACES, Program, TestCq, segment, turns, word};
use super::{REQUEST, completions, connected};
use crate::abi::{self, ResizeCq, ResizedCq, write_command};
use crate::boundary::Errno;
use crate::wqe::opcode;

/// `MLX5_CQE_RESIZE_CQ`.
const RESIZED: u8 = 5;

/// Gives a queue another size, as libmlx5 does: it copies what it has not taken.
fn resize(p: &mut Program, cq: &mut TestCq, size: u32) -> Result<(), Errno> {
    let at = p.allocate(u64::from(size) * 64);
    for place in 0..u64::from(size) {
        p.put(at + place * 64 + 63, &[0xf0]);
    }
    let request = ResizeCq { cq_handle: cq.handle, cqe: size - 1, ..Default::default() };
    let buffer = ResizedCq { buf_addr: at, cqe_size: 64, ..Default::default() };
    let given = [
        word(abi::device::WRITE_CMD, write_command::RESIZE_CQ),
        Given::In(abi::device::CORE_IN, request.as_bytes().to_vec()),
        Given::In(abi::UHW_IN, buffer.as_bytes().to_vec()),
        Given::Out(abi::device::CORE_OUT, 8),
    ];
    let answers = p.command(abi::device::INVOKE_WRITE, &given)?;
    assert_eq!(answers[3][..4], (size - 1).to_ne_bytes());
    let entry = |place: u32| p.get(cq.at + u64::from(place % cq.size) * 64, 64);
    let mut place = cq.seen;
    while entry(place)[63] >> 4 != RESIZED {
        let mut bytes = entry(place);
        place += 1;
        bytes[63] = bytes[63] & !1 | u8::from(place & size != 0);
        p.put(at + u64::from(place % size) * 64, &bytes);
        assert!(place - cq.seen < cq.size, "there is no mark");
    }
    (cq.at, cq.size, cq.seen) = (at, size, cq.seen + 1);
    Ok(())
}

#[test]
fn completions_go_on_in_a_longer_queue_and_in_a_shorter_one() {
    let (mut p, [mut a, mut b]) = connected(7);
    let mut send = |p: &mut [Program], count: u32| {
        for _ in 0..count {
            p[1].post_receive(&mut b.qp, b.at, 64, b.key);
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        }
        turns(p, 10);
        assert_eq!(p[1].poll(&mut b.cq).len(), count as usize);
    };
    for size in [128, 16, 64] {
        send(&mut p, 5);
        resize(&mut p[0], &mut a.cq, size).unwrap();
        send(&mut p, 5);
        let found = completions(&mut p, 0, &mut a.cq, 10);
        assert!(found.iter().all(|one| one.opcode() == REQUEST));
        // Once around each of them.
        for _ in 0..size / PLACES + 1 {
            send(&mut p, PLACES - 1);
            assert_eq!(p[0].poll(&mut a.cq).len(), PLACES as usize - 1);
        }
    }
}

#[test]
fn a_queue_that_does_not_hold_what_is_there_is_refused() {
    let (mut p, [mut a, mut b]) = connected(7);
    for _ in 0..4 {
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    }
    turns(&mut p, 10);
    assert_eq!(resize(&mut p[0], &mut a.cq, 4), Err(libc::EINVAL));
    assert_eq!(p[0].poll(&mut a.cq).len(), 4);
    resize(&mut p[0], &mut a.cq, 4).unwrap();
    let unknown = TestCq { handle: 99, ..a.cq };
    assert_eq!(resize(&mut p[0], &mut { unknown }, 8), Err(libc::EINVAL));
}
