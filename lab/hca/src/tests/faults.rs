//! Faults on request: outages, and asynchronous events with what they are about.

use std::sync::Arc;
use std::time::Duration;

use super::knobs::programs;
use super::programs::{Given, Program, segment, settings, turns, word};
use super::tags::with_tags;
use super::{RELIABLE, REQUEST, REQUEST_ERROR, completions, connected, two};
use crate::abi::{self, event};
use crate::fault::{DeviceFault, EVENTS, FaultEvent, TimedFault};
use crate::nic::Letter;
use crate::settings::Settings;
use crate::strikes::{Strike, Strikes};
use crate::wqe::opcode;

/// An event happens to a program's queues.
fn suffer(p: &mut Program, event_type: u32, number: Option<u32>) -> Vec<u32> {
    let event = FaultEvent { event_type, number };
    p.function.adapter.inbox.put(Letter::Fault(None, event));
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
    let fault = DeviceFault::LinkDown { device: Some(7), lasts: Duration::ZERO };
    let after = Duration::ZERO;
    let settings =
        Settings { devices: vec![3, 7], faults: vec![TimedFault { after, fault }], ..settings() };
    let mut strikes = Strikes::new(std::process::id().cast_signed(), &settings);
    for event_type in [event::PORT_ERR, event::PORT_ACTIVE] {
        let events: Vec<_> = strikes.due().iter().filter_map(Strike::event).collect();
        assert_eq!(events, [(Some(1), FaultEvent { event_type, number: None })]);
    }
    assert!(strikes.due().is_empty());
    assert_eq!(strikes.until_next(), Duration::MAX);
}
