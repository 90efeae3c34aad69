//! Faults on request: outages, and asynchronous events with what they are about.

use std::sync::Arc;
use std::time::Duration;

use tagmatch_model::FailureTime;

use super::knobs::programs;
use super::programs::{Given, Program, segment, settings, turns, word};
use super::tags::{append, eager, remove, with_tags};
use super::{RELIABLE, REQUEST, REQUEST_ERROR, completions, connected, two};
use crate::abi::{self, event};
use crate::fault::{DeviceFault, DeviceLoss, EVENTS, FaultEvent, FaultKind, Fuse, TimedFault};
use crate::gid::{GidKind, PortGid, of_ipv4};
use crate::nic::{Adapter, Letter};
use crate::settings::Settings;
use crate::strikes::{Strike, Strikes};
use crate::wqe::opcode;

/// An event happens to a program's queues.
fn suffer(p: &mut Program, event_type: u32, number: Option<u32>) -> Vec<u32> {
    hear_of(p, FaultKind::Event(FaultEvent { event_type, number }))
}

/// A fault meets a program; the events that it hears.
fn meet(p: &mut Program, kind: FaultKind) -> Vec<u32> {
    let strike = Strike { device: None, kind };
    let fabric = Arc::clone(&p.function.adapter.fabric);
    strike.apply(&fabric.ports, &p.function.adapter.settings);
    hear_of(p, kind)
}

/// A program's part of the device is told of a fault; the events that the program hears.
fn hear_of(p: &mut Program, kind: FaultKind) -> Vec<u32> {
    p.function.adapter.inbox.put(Letter::Fault(None, kind));
    turns(std::slice::from_mut(p), 2);
    p.events()
}

/// As an InfiniBand sender does: it repeats what is not answered, as often as `retry_cnt` says.
#[test]
fn an_outage_is_outlived_within_the_retries_alone() {
    for (lasts, ends) in [(30, (REQUEST, true)), (60_000, (REQUEST_ERROR, false))] {
        let (mut p, [mut a, mut b]) = connected(7);
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        let ports = Arc::clone(&p[0].function.adapter.fabric);
        ports.ports.silence(None, Duration::from_millis(lasts));
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        let [sent] = completions(&mut p, 0, &mut a.cq, 1)[..] else { panic!() };
        assert_eq!((sent.opcode(), sent.syndrome() != 0x15), ends);
        assert_eq!(p[1].poll(&mut b.cq).len(), usize::from(ends.1));
    }
}

#[test]
fn an_outage_is_that_of_a_port() {
    let (p, _) = connected(7);
    let ports = &p[0].function.adapter.fabric.ports;
    ports.silence(Some(1), Duration::from_secs(60));
    assert_eq!([1, 2, 3, 0].map(|lid| ports.passes(lid)), [true, false, true, true]);
    ports.silence(Some(1), Duration::ZERO);
    assert!(ports.passes(2));
    ports.silence(Some(77), Duration::from_secs(60));
}

#[test]
fn a_link_that_is_down_is_said_by_its_port() {
    let (mut p, _) = connected(7);
    let fabric = Arc::clone(&p[0].function.adapter.fabric);
    let mut state = || {
        let given = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
        p[0].command(abi::device::QUERY_PORT, &given).unwrap()[1][26]
    };
    assert_eq!(state(), 4);
    fabric.ports.set_link(Some(0), false);
    assert_eq!(state(), 1);
    fabric.ports.set_link(None, true);
    assert_eq!(state(), 4);
}

/// As `ibv_asyncwatch(1)`, which has no queues.
#[test]
fn events_are_said_to_a_program_that_has_no_queues() {
    let [mut p, _] = two();
    assert_eq!(suffer(&mut p, event::GID_CHANGE, None), [event::GID_CHANGE]);
}

#[test]
fn events_of_a_port_are_said_and_break_nothing() {
    for (name, event_type) in EVENTS.iter().filter(|(_, of)| event::OF_PORTS.contains(of)) {
        let (mut p, [mut a, mut b]) = connected(7);
        assert_eq!(suffer(&mut p[0], *event_type, None), [*event_type], "{name}");
        assert!(p[1].events().is_empty());
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].opcode(), REQUEST);
    }
}

/// `mlx5_ib_cq_event`, and InfiniBand 11.6.3: the queue pairs of a queue that has failed fail.
#[test]
fn a_queue_that_fails_takes_its_queue_pairs_along() {
    let (mut p, [mut a, b]) = connected(7);
    let other_cq = p[0].create_cq(64, None).unwrap();
    let mut other = p[0].create_qp(&other_cq, None, RELIABLE).unwrap();
    p[0].connect(&other, other.number, 7);
    let number = *p[0].function.adapter.cqs.keys().next().unwrap();
    let events = suffer(&mut p[0], event::CQ_ERR, Some(number));
    assert_eq!(events, [event::CQ_ERR, event::QP_FATAL]);
    assert!(suffer(&mut p[0], event::CQ_ERR, Some(number)).is_empty(), "it has failed already");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    let write = [super::remote(a.at, a.key), segment(a.at, 8, a.key)].concat();
    p[0].post(&mut other, opcode::WRITE, 0, &write);
    let mut other_cq = other_cq;
    assert_eq!(completions(&mut p, 0, &mut other_cq, 1)[0].opcode(), REQUEST);
    assert!(p[0].poll(&mut a.cq).is_empty(), "a queue that has failed says nothing more");
    assert_eq!(suffer(&mut p[0], event::QP_FATAL, Some(other.number)), [event::QP_FATAL]);
    assert_eq!(suffer(&mut p[1], event::QP_FATAL, None), [event::QP_FATAL]);
    assert_eq!(completions(&mut p, 1, &mut { b.cq }, 0).len(), 0);
}

#[test]
fn a_shared_queue_that_fails_takes_its_queue_pairs_along() {
    let (mut p, _, b, _, _) = with_tags();
    let events = suffer(&mut p[1], event::SRQ_ERR, None);
    assert_eq!(events[0], event::SRQ_ERR);
    let fatal = events.iter().filter(|of| **of == event::QP_FATAL).count();
    assert_eq!(fatal, p[1].function.qps.len(), "{events:?}");
    let given = [
        Given::Number(abi::qp::DESTROY_HANDLE, b.qp.handle.into()),
        Given::Out(abi::qp::DESTROY_RESP, 4),
    ];
    p[1].command(abi::qp::DESTROY, &given).unwrap();
}

/// The subnet manager gives a port another LID: what is sent to the old one is lost.
#[test]
fn a_port_with_another_lid_is_not_reached_by_the_old_one() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[0].function.adapter.fabric.ports.change_lid(Some(0));
    let given = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
    let port = p[0].command(abi::device::QUERY_PORT, &given).unwrap().remove(1);
    assert_eq!(u16::from_ne_bytes([port[22], port[23]]), 65);
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x15);
}

/// The address that a port was known by is stale: nobody gets there by it any more.
#[test]
fn a_port_with_other_gids_is_not_found_by_the_old_ones() {
    for (link, at, expected) in [("infiniband", 6, 1), ("ethernet", 14, 1)] {
        let [mut p, _] = programs(&[("link_layer", link)]);
        let row = if link == "ethernet" { 3 } else { 0 };
        let fabric = Arc::clone(&p.function.adapter.fabric);
        let mut gid = || {
            let given = [
                word(abi::device::ENTRY_PORT, 1),
                word(abi::device::ENTRY_INDEX, row),
                Given::Out(abi::device::ENTRY_RESP, 32),
            ];
            p.command(abi::device::QUERY_GID_ENTRY, &given).unwrap().remove(2)[..16].to_vec()
        };
        let before = gid();
        let mut changed = before.clone();
        changed[at] = expected;
        fabric.ports.change_gids(None);
        assert_eq!(gid(), changed);
        let settings = &p.function.adapter.settings;
        let named = |gid: &[u8]| fabric.ports.named(settings, gid.try_into().unwrap());
        assert_eq!((named(&before), named(&changed)), (None, Some(1)));
    }
}

#[test]
fn a_link_that_goes_down_comes_up_again_and_no_other_does() {
    let fault = DeviceFault { device: Some(7), kind: FaultKind::LinkDown(Duration::ZERO) };
    let after = Duration::ZERO;
    let settings =
        Settings { devices: vec![3, 7], faults: vec![TimedFault { after, fault }], ..settings() };
    let mut strikes = Strikes::new(std::process::id().cast_signed(), None, &settings);
    for kind in [FaultKind::LinkDown(Duration::ZERO), FaultKind::LinkUp] {
        assert_eq!(strikes.due(), [Strike { device: Some(1), kind }]);
    }
    assert!(strikes.due().is_empty());
    assert_eq!(strikes.until_next(), Duration::MAX);
}

#[test]
fn a_link_that_is_down_is_said_and_counted() {
    let (mut p, _) = connected(7);
    assert_eq!(meet(&mut p[0], FaultKind::LinkDown(Duration::ZERO)), [event::PORT_ERR]);
    assert_eq!(meet(&mut p[0], FaultKind::LinkUp), [event::PORT_ACTIVE]);
    assert_eq!(meet(&mut p[0], FaultKind::Outage(Duration::ZERO)), [0; 0]);
    let counts = p[0].function.adapter.counts.requested;
    assert_eq!((counts.down, counts.outage), (1, 1));
    // A process that has not opened the device hears of nothing.
    let settings = settings();
    let fabric = Arc::clone(&p[0].function.adapter.fabric);
    let mut other = Program::new(&fabric, &settings, u64::MAX);
    other.function.close_context(other.descriptor);
    meet(&mut other, FaultKind::Outage(Duration::ZERO));
    assert_eq!(other.function.adapter.counts.requested.outage, 0);
}

/// InfiniBand 10.9.1: a queue pair has the key that stands in its row of the table.
#[test]
fn a_key_that_is_changed_counts_for_queue_pairs_that_exist() {
    let (mut p, [mut a, mut b]) = connected(7);
    let row = |p: &Program, row| {
        let Adapter { fabric, settings, .. } = &p.function.adapter;
        fabric.ports.pkey(settings, 1, row)
    };
    assert_eq!([0, 1].map(|at| row(&p[0], at)), [0xffff, 0]);
    let limited = FaultKind::PartitionKey { row: 0, key: 0x7fff };
    assert_eq!(meet(&mut p[0], limited), [event::PKEY_CHANGE]);
    // Both are limited members now, and hear nothing of each other.
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    assert_eq!(completions(&mut p, 0, &mut a.cq, 1)[0].syndrome(), 0x15);
    assert_eq!([0, 1].map(|at| row(&p[0], at)), [0x7fff, 0]);
    assert_eq!(p[0].function.adapter.counts.requested.pkey, 1);
}

#[test]
fn a_row_of_gids_is_changed_and_emptied() {
    for (link, kind) in [("infiniband", GidKind::InfiniBand), ("ethernet", GidKind::RoceV2)] {
        let [mut p, _] = programs(&[("link_layer", link)]);
        let gid = of_ipv4([10, 7, 7, 7]);
        let changed = PortGid { kind: GidKind::RoceV2, gid };
        let row = |p: &Program| {
            let Adapter { fabric, settings, .. } = &p.function.adapter;
            (fabric.ports.gids(settings, 1)[0], fabric.ports.named(settings, &gid))
        };
        let fault = FaultKind::Gid { row: 0, gid: Some(changed) };
        assert_eq!(meet(&mut p, fault), [event::GID_CHANGE]);
        assert_eq!(row(&p), (Some(PortGid { kind, gid }), Some(1)), "{link}");
        assert_eq!(meet(&mut p, FaultKind::Gid { row: 0, gid: None }), [event::GID_CHANGE]);
        assert_eq!(row(&p), (None, None), "{link}");
        assert_eq!(p.function.adapter.counts.requested.gid, 2);
    }
}

#[test]
fn registrations_fail_as_often_as_was_asked_for() {
    let [mut p, _] = two();
    let at = p.allocate(4096);
    let failed = |p: &mut Program, chance| {
        meet(p, FaultKind::Registrations(chance));
        (0..100).filter(|_| p.register(at, 4096, 1).is_err_and(|why| why == libc::ENOMEM)).count()
    };
    assert_eq!([0, 1_000_000].map(|chance| failed(&mut p, chance)), [0, 100]);
    let some = failed(&mut p, 200_000);
    assert!((5..50).contains(&some), "{some} of 100");
    assert_eq!(failed(&mut p, 0), 0);
    assert_eq!(p.function.adapter.counts.requested.registrations, 100 + some as u64);
}

#[test]
fn a_queue_overruns_at_its_next_completion() {
    let (mut p, [mut a, mut b]) = connected(7);
    let number = *p[0].function.adapter.cqs.keys().next().unwrap();
    for (wanted, ends) in [(number + 7, &[][..]), (number, &[event::CQ_ERR, event::QP_FATAL])] {
        assert_eq!(meet(&mut p[0], FaultKind::Overrun(Some(wanted))), [0; 0]);
        p[1].post_receive(&mut b.qp, b.at, 64, b.key);
        p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
        completions(&mut p, 1, &mut b.cq, 1);
        turns(&mut p, 3);
        assert_eq!(p[0].events(), ends);
        assert_eq!(p[0].poll(&mut a.cq).len(), usize::from(ends.is_empty()));
    }
    assert_eq!(p[0].function.adapter.counts.requested.overrun, 1);
}

fn lost(lasts: Duration, fuse: Fuse) -> FaultKind {
    FaultKind::Fatal(DeviceLoss { lasts, fuse })
}

/// `mlx5_ib_alloc_ucontext`, `mlx5_internal_err_ret_value`, `ib_uverbs_ioctl`.
#[test]
fn a_device_that_is_lost_refuses_commands_until_it_is_opened_again() {
    let (mut p, [mut a, mut b]) = connected(7);
    p[1].post_receive(&mut b.qp, b.at, 64, b.key);
    assert_eq!(meet(&mut p[0], lost(Duration::MAX, Fuse::Now)), [event::DEVICE_FATAL]);
    assert_eq!(meet(&mut p[0], FaultKind::LinkUp), [0; 0], "it says nothing more");
    p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key));
    turns(&mut p, 5);
    assert!(p[0].poll(&mut a.cq).is_empty() && p[1].poll(&mut b.cq).is_empty());
    assert_eq!(p[0].allocate_pd(), Err(libc::EIO));
    let given = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
    assert_eq!(p[0].command(abi::device::QUERY_PORT, &given).err(), Some(libc::EIO));
    let destroy = |handle: u32| [Given::Number(abi::mr::HANDLE, handle.into())];
    assert_eq!(p[0].command(abi::mr::DESTROY, &destroy(a.handle)).err(), None);
    assert_eq!(p[0].open(), Err(libc::EAGAIN));
    // It has come back: for programs that open it.
    p[0].function
        .adapter
        .fabric
        .ports
        .lose(None, DeviceLoss { lasts: Duration::ZERO, fuse: Fuse::Now });
    assert_eq!(p[0].allocate_pd(), Err(libc::EIO));
    let pd = [Given::Number(abi::pd::HANDLE, p[0].pd.into())];
    assert_eq!(p[0].command(abi::pd::DESTROY, &pd).err(), Some(libc::EIO));
    p[0].open().unwrap();
    p[0].allocate_pd().unwrap();
    assert_eq!(p[0].function.adapter.counts.requested.fatal, 1);
}

#[test]
fn a_device_is_lost_with_a_request_or_a_command() {
    let (mut p, [mut a, mut b]) = connected(7);
    (0..3).for_each(|at| p[1].post_receive(&mut b.qp, b.at + at * 64, 64, b.key));
    assert!(meet(&mut p[0], lost(Duration::ZERO, Fuse::Requests(2))).is_empty());
    (0..3).for_each(|_| p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, 8, a.key)));
    turns(&mut p, 10);
    assert!(p[0].poll(&mut a.cq).len() < 2, "no answer to the second one is heard");
    assert_eq!(p[0].events(), [event::DEVICE_FATAL]);
    assert_eq!(p[0].function.adapter.counts.requests, 2);
    let [mut p, _] = two();
    assert!(meet(&mut p, lost(Duration::ZERO, Fuse::Commands(2))).is_empty());
    assert_eq!([p.allocate_pd().is_ok(), p.allocate_pd().is_ok()], [true, false]);
    assert_eq!(p.events(), [event::DEVICE_FATAL]);
}

/// Both ways: the entry stays on the list, or is used up and its data never completes.
#[test]
fn a_queue_pair_dies_inside_a_message_that_matches() {
    for when in [FailureTime::Before, FailureTime::After] {
        let is_consumed = when == FailureTime::After;
        let (mut p, mut a, mut b, _, mut commands) = with_tags();
        append(&p[1], &mut commands, 1, 70, (b.at + 0x4_0000, 3000, b.key));
        completions(&mut p, 1, &mut b.cq, 1);
        assert_eq!(meet(&mut p[1], FaultKind::Match(when)), [0; 0]);
        let mut send = |p: &mut [Program], tag, payload: &[u8]| {
            eager(&p[0], a.at, tag, payload);
            let length = 16 + payload.len() as u32;
            p[0].post(&mut a.qp, opcode::SEND, 0, &segment(a.at, length, a.key));
            completions(p, 0, &mut a.cq, 1)[0].opcode()
        };
        // A message that matches nothing is none of those.
        assert_eq!(send(&mut p, 71, b"short"), REQUEST);
        let expected = if is_consumed { REQUEST } else { REQUEST_ERROR };
        assert_eq!(send(&mut p, 70, &[7; 2000]), expected);
        turns(&mut p, 5);
        assert!(p[1].events().contains(&event::QP_FATAL));
        // An unexpected message, and a match without its data.
        let found: Vec<u8> = p[1].poll(&mut b.cq).iter().map(|one| one.tag().0).collect();
        assert_eq!(found, if is_consumed { &[3, 1][..] } else { &[3] });
        remove(&p[1], &mut commands, 0);
        let removed = completions(&mut p, 1, &mut b.cq, 1)[0];
        assert_eq!((removed.tag().0, removed.0[0] == 0x80), (6, !is_consumed));
        let Adapter { srqs, counts, .. } = &mut p[1].function.adapter;
        srqs.values_mut().filter_map(|srq| srq.tags.as_mut()).for_each(|tags| tags.count(counts));
        assert_eq!(counts.requested.matching, 1);
    }
}
