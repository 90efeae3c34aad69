//! The contract of devices, kept by TCP.

mod common;

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, DownReason, Flush, PeerId, ReadMode, ReadRequest, Refused};
use tagmatch_tcp::{Tcp, TcpConfig};
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device_contract;

use common::{
    Owned, PATIENCE, READER, config, connect, fall_asleep, message, pattern, poll, sleep, tcp,
    wait_down, wait_for,
};

struct OnTcp;

impl Fixture for OnTcp {
    type Device = Tcp;
    const MESSAGES: usize = 60_000;
    const CONNECTIONS: usize = 100;
    const TO_ONESELF_MIN: usize = 1000;
    const READ_MODE: ReadMode = ReadMode::Copied;

    fn usual() -> Tcp {
        tcp(without_looks())
    }

    fn narrow(message_max: u32) -> Tcp {
        tcp(without_looks().outbox_bytes(4096).message_max(message_max))
    }
}

/// A worker that sleeps looks at its connections an eighth of this time after a message. No test
/// may end by that look.
fn without_looks() -> TcpConfig {
    config().acknowledge_timeout(Duration::from_secs(3600))
}

device_contract! { OnTcp: all,
    forty_workers_exchange_messages,
    a_connection_to_a_busy_listener_is_tried_again,
    a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes,
    accesses_of_every_size_move_their_bytes,
    an_access_that_its_region_does_not_allow_changes_nothing,
    no_access_is_done_once_its_region_is_unpublished,
    buffers_of_accesses_come_back_before_the_end_of_their_peer,
    a_region_with_a_base_is_found_by_its_key_until_it_is_closed,
    a_region_that_is_closed_under_a_writer_is_left_alone
}

#[test]
fn a_flush_after_a_disconnect_waits_for_acknowledgements() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    // More than the kernel holds for a receiver that doesn't receive.
    let bytes = pattern(1, 60_000);
    let mut sent = 0;
    while a.send(to_b, message(&bytes)) != Err(Refused::Full) {
        sent += 1;
        assert!(a.poll().is_none());
    }
    a.disconnect(to_b);
    assert!(matches!(poll(&mut a), Some(Owned::Down(_, DownReason::Disconnected))));
    let mut mark = None;
    assert!(matches!(a.flush(to_b, &mut mark), Flush::Pending { messages } if messages > 0));
    let mut got = 0;
    wait_for(&mut [&mut a, &mut b], "all messages", |_, event| {
        got += usize::from(matches!(event, Owned::Message(..)));
        (got == sent).then_some(())
    });
    let start = Instant::now();
    while a.flush(to_b, &mut mark) != Flush::Done {
        assert!(start.elapsed() < PATIENCE);
        assert!(poll(&mut a).is_none());
        poll(&mut b);
    }
}

/// Two reads of the same length end at about the same time, and a message that is sent when they
/// are under way arrives long before.
#[test]
fn reads_take_turns_and_a_message_passes_them() {
    const LENGTH: usize = 64 << 20;
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, to_a) = connect(&mut a, &mut b);
    let spans = [1, 2].map(|seed| b.expose(READER, Buffer::from(vec![seed; LENGTH])).unwrap().span);
    for (token, remote) in (0..).zip(spans) {
        let into = Buffer::zeroed(LENGTH);
        a.read(ReadRequest { peer: to_b, remote, into, token }).unwrap();
    }
    // A few pieces of the reads are under way.
    for _ in 0..20 {
        assert!(b.poll().is_none() && a.poll().is_none());
    }
    b.send(to_a, message(b"small")).unwrap();
    let mut ended = Vec::new();
    let mut message_at = None;
    wait_for(&mut [&mut b, &mut a], "both reads", |_, event| {
        match event {
            Owned::Message(..) => message_at = Some(ended.len()),
            Owned::ReadDone(token, _, Ok(())) => ended.push(token),
            other => panic!("{other:?}"),
        }
        (ended.len() == 2).then_some(())
    });
    assert_eq!((ended, message_at), (vec![0, 1], Some(0)));
}

/// Sends until the system takes no more for the peer, which doesn't receive.
fn fill(tcp: &mut Tcp, peer: PeerId, bytes: &[u8]) {
    let mut refused = 0;
    while refused < 1000 {
        refused = if tcp.send(peer, message(bytes)).is_ok() { 0 } else { refused + 1 };
        assert!(tcp.poll().is_none());
    }
}

/// A peer leaves before it has taken all messages: the others are lost, and each is counted.
#[test]
fn messages_that_a_peer_has_not_taken_when_it_leaves_are_lost() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    fill(&mut a, to_b, &pattern(1, 60_000));
    let mut mark = None;
    let Flush::Pending { messages } = a.flush(to_b, &mut mark) else { panic!("all was taken") };
    drop(b);
    assert_eq!(wait_down(&mut a, to_b), DownReason::Left);
    assert_eq!(a.flush(to_b, &mut mark), Flush::Lost { messages });
}

/// The peer is gone, so the last message to it will never be acknowledged.
#[test]
fn a_worker_leaves_at_once_whose_peer_has_left_before() {
    let patient = config().leave_timeout(Duration::from_secs(3600));
    let mut a = tcp(patient.clone());
    let mut b = tcp(patient);
    connect(&mut a, &mut b);
    drop(b);
    let (sender, receiver) = channel();
    thread::spawn(move || {
        drop(a);
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).expect("the worker waits for a peer that is gone");
}

/// A worker whose own messages are acknowledged goes on to receive, as long as it leaves others.
#[test]
fn workers_that_leave_at_once_receive_from_each_other() {
    // A worker that has left for too long drops what is not acknowledged.
    let patient = config().leave_timeout(Duration::from_secs(3600));
    // More waits than the first worker's machine takes at a time.
    let large = patient.clone().outbox_bytes(64 << 20);
    let mut a = tcp(patient);
    let mut b = tcp(large);
    let mut c = tcp(config());
    let (b_to_a, _) = connect(&mut b, &mut a);
    let (a_to_c, _) = connect(&mut a, &mut c);
    let bytes = pattern(1, 60_000);
    // The first worker leaves for as long as the third one doesn't receive.
    fill(&mut a, a_to_c, &bytes);
    fill(&mut b, b_to_a, &bytes);
    b.disconnect(b_to_a);
    assert!(matches!(poll(&mut b), Some(Owned::Down(_, DownReason::Disconnected))));
    let leaving = thread::spawn(move || drop(a));
    // It tells the second worker that it leaves before that one has sent all.
    thread::sleep(Duration::from_millis(100));
    let mut mark = None;
    let start = Instant::now();
    loop {
        match b.flush(b_to_a, &mut mark) {
            Flush::Done => break,
            Flush::Pending { .. } => assert!(start.elapsed() < PATIENCE),
            lost => panic!("{lost:?}"),
        }
        assert!(poll(&mut b).is_none());
    }
    assert!(!leaving.is_finished(), "nothing was left to acknowledge");
    // The end of the first worker's messages is no reason to wake up again and again. A flush is
    // looked at once more.
    fall_asleep(&mut b);
    sleep(&b, Duration::from_millis(500));
    b.disarm();
    fall_asleep(&mut b);
    assert!(!sleep(&b, Duration::from_millis(200)), "something keeps the descriptor busy");
    b.disarm();
    assert_eq!(wait_down(&mut c, PeerId(1)), DownReason::Left);
    leaving.join().unwrap();
}
