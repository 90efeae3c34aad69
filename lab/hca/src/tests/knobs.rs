//! What devices other than a ConnectX are like, by knobs.

use std::sync::Arc;
use std::time::Instant;

use zerocopy::IntoBytes;

use super::programs::{Given, Program, TestCq, TestLink, remote, segment, settings, turns, word};
use super::{ALL, RELIABLE, REQUEST, completions, linked};
use crate::abi::{self, QpCapabilities};
use crate::knobs::DeviceKnobs;
use crate::nic::Fabric;
use crate::settings::Settings;
use crate::wqe::opcode;

/// Programs on a device with these knobs.
pub(super) fn programs(knobs: &[(&str, &str)]) -> [Program; 2] {
    let mut device = DeviceKnobs::default();
    for (name, value) in knobs {
        device.set(name, value).unwrap().unwrap();
    }
    let settings = Settings { knobs: device, ..settings() };
    let fabric = Arc::new(Fabric::new(&settings));
    [(); 2].map(|()| Program::new(&fabric, &settings, u64::MAX))
}

/// Asks for a queue pair that carries bytes inline, and that libmlx5 has rounded: what is granted.
fn inline(p: &mut Program, cq: &TestCq, max_inline_data: u32, sges: u32) -> Result<u32, i32> {
    let cap = QpCapabilities { max_inline_data, max_send_sge: sges, ..Default::default() };
    let uhw = abi::CreateQp { db_addr: p.allocate(64), ..Default::default() };
    let given = [
        Given::Number(abi::qp::HANDLE, 0),
        Given::Number(abi::qp::PD, 1),
        Given::Number(abi::qp::SEND_CQ, cq.handle.into()),
        word(abi::qp::TYPE, RELIABLE),
        Given::In(abi::qp::CAP, cap.as_bytes().to_vec()),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        Given::Out(abi::qp::RESP_CAP, 20),
    ];
    let answers = p.command(abi::qp::CREATE, &given)?;
    Ok(u32::from_ne_bytes(answers[6][16..20].try_into().unwrap()))
}

/// `irdma_ucreate_qp`: EINVAL for more than 101.
#[test]
fn a_queue_pair_that_asks_for_more_inline_is_refused() {
    let [mut p, _] = programs(&[("max_inline", "101")]);
    let cq = p.create_cq(64, None).unwrap();
    assert_eq!(inline(&mut p, &cq, 60, 1), Ok(60));
    assert_eq!(inline(&mut p, &cq, 124, 1), Ok(101), "101, as libmlx5 rounds it");
    assert_eq!(inline(&mut p, &cq, 188, 1), Err(libc::EINVAL));
    assert_eq!(inline(&mut p, &cq, 252, 14), Ok(101), "as long as 14 segments");
    let [mut p, _] = programs(&[]);
    let cq = p.create_cq(64, None).unwrap();
    assert_eq!(inline(&mut p, &cq, 828, 1), Ok(828));
}

#[test]
fn a_device_without_shared_receive_queues_says_so() {
    let [mut p, _] = programs(&[("max_srq", "0")]);
    let cq = p.create_cq(64, None).unwrap();
    for tags in [0, 3] {
        assert_eq!(p.create_srq(tags, &cq).err(), Some(libc::EOPNOTSUPP));
    }
    let number = abi::write_command::QUERY_DEVICE | abi::write_command::EXTENDED;
    let device = p.write_command(number, &[0; 8], 304).unwrap();
    let word = |at: usize| u32::from_ne_bytes(device[at..at + 4].try_into().unwrap());
    let base = [
        std::mem::offset_of!(abi::DeviceAttributes, max_srq),
        std::mem::offset_of!(abi::DeviceAttributes, max_srq_wr),
        std::mem::offset_of!(abi::ExtendedDeviceAttributes, tm_caps) + 4,
        std::mem::offset_of!(abi::ExtendedDeviceAttributes, tm_caps) + 8,
    ];
    assert_eq!(base.map(word), [0; 4]);
    let [mut p, _] = programs(&[("max_srq", "1")]);
    let cq = p.create_cq(64, None).unwrap();
    assert!(p.create_srq(3, &cq).is_ok());
    assert_eq!(p.create_srq(3, &cq).err(), Some(libc::ENOMEM));
}

/// InfiniBand 10.9.3: a packet whose key doesn't fit is dropped, so that its sender tries until it
/// gives up.
#[test]
fn packets_of_another_partition_are_lost() {
    for (keys, rows, passes) in [
        ("0x7fff,0x8001", [0, 1], false),
        ("0x7fff,0xffff", [0, 1], true),
        // An empty row.
        ("0xffff", [5, 5], false),
    ] {
        let mut p = programs(&[("pkeys", keys)]);
        let cqs = p.each_mut().map(|program| program.create_cq(64, None).unwrap());
        let qps = [0, 1].map(|at| p[at].create_qp(&cqs[at], None, RELIABLE).unwrap());
        for at in [0, 1] {
            p[at].link.pkey_index = rows[at];
            p[at].connect(&qps[at], qps[1 - at].number, 7);
        }
        let at = p.each_mut().map(|program| program.allocate(4096));
        let keys = [0, 1].map(|n| p[n].register(at[n], 4096, ALL).unwrap().1);
        let [mut from, mut to] = qps;
        p[1].post_receive(&mut to, at[1], 64, keys[1]);
        p[0].post(&mut from, opcode::SEND, 0, &segment(at[0], 8, keys[0]));
        let sent = completions(&mut p, 0, &mut { cqs[0] }, 1)[0];
        let expected = if passes { (REQUEST, 0) } else { (super::REQUEST_ERROR, 0x15) };
        let syndrome = if passes { 0 } else { sent.syndrome() };
        assert_eq!((sent.opcode(), syndrome), expected, "{rows:?}");
    }
}

/// A driver that forgets its doorbell gets nothing from a card.
#[test]
fn requests_and_arming_count_once_a_register_was_written() {
    let knobs = programs(&[("needs_doorbell", "true")]);
    let (mut p, [mut a, mut b]) = linked(knobs, [TestLink::default(); 2], 7);
    let doorbells = &mut p[0].function.adapter.contexts.values_mut().next().unwrap().doorbells;
    let page = doorbells.take_page().unwrap();
    let ring = |p: &mut Program, value| {
        let mut contexts = p.function.adapter.contexts.values_mut();
        contexts.next().unwrap().doorbells.write(page, value);
        assert!(p.function.rang(Instant::now()));
    };
    for round in 1..3 {
        // A receive needs no doorbell.
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        turns(&mut p, 5);
        assert!(p[0].poll(&mut a.cq).is_empty(), "nobody has rung");
        ring(&mut p[0], round);
        assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), REQUEST);
        assert_eq!(completions(&mut p, 1, &mut b.cq, 1).len(), 1);
    }
    // Arming a queue that has a completion gives an event, once the register was written to.
    let number = abi::write_command::CREATE_COMP_CHANNEL;
    let channel = p[0].write_command(number, &[0; 8], 4).unwrap();
    let channel = i32::from_ne_bytes(channel[..4].try_into().unwrap());
    let cq = p[0].create_cq(64, Some(channel)).unwrap();
    let mut own = p[0].create_qp(&cq, None, RELIABLE).unwrap();
    p[0].connect(&own, own.number, 7);
    let write = [remote(a.at, a.key), segment(a.at, 8, a.key)].concat();
    p[0].post(&mut own, opcode::WRITE, 0, &write);
    ring(&mut p[0], 3);
    completions(&mut p, 0, &mut { cq }, 1);
    let events = |p: &Program| rustix::io::ioctl_fionread(&p.caller.kept.borrow()[1]).unwrap() / 8;
    p[0].put(cq.record + 4, &0_u32.to_be_bytes());
    turns(&mut p, 2);
    assert_eq!(events(&p[0]), 0);
    ring(&mut p[0], 4);
    turns(&mut p, 2);
    assert_eq!(events(&p[0]), 1);
}

/// A connection repeats what is lost, as long as its retries last.
#[test]
fn lost_packets_are_sent_again() {
    let link = TestLink { retries: 7, ..TestLink::default() };
    let (mut p, [mut a, mut b]) = linked(programs(&[("loss", "20%")]), [link; 2], 7);
    for round in 0..3 {
        for at in 0..8 {
            p[0].put(a.at + at, &[8 * round + at as u8]);
            p[1].post_receive(&mut b.qp, b.at + 64 * at, 64, b.key);
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at + at, 1, a.key));
        }
        let sent = completions(&mut p, 0, &mut a.cq, 8);
        assert!(sent.iter().all(|one| one.opcode() == REQUEST));
        assert_eq!(completions(&mut p, 1, &mut b.cq, 8).len(), 8);
        let bytes: Vec<u8> = (0..8).map(|at| p[1].get(b.at + 64 * at, 1)[0]).collect();
        assert_eq!(bytes, (8 * round..8 * round + 8).collect::<Vec<_>>());
    }
    let (mut p, [mut a, _]) = linked(programs(&[("loss", "100%")]), [TestLink::default(); 2], 7);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 1, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x15);
}
