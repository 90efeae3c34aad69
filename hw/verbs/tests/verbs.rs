//! Tests of the verbs device on an RDMA device. `ci/test roce` runs them on soft-RoCE; with another
//! RDMA device, run `cargo test -p tagmatch-verbs --test verbs -- --ignored`.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

mod verbs_parts {
    mod counted;
}

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::{
    Other, Owned, PATIENCE, READER, connect, message, pattern, poll, role, say, send, wait_for,
};
use tagmatch_device::{
    Buffer, Device, DownReason, EventDescriptor, Outgoing, PeerId, ReadError, ReadRequest, Refused,
    RemoteSpan,
};
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_secret::Secret;
use tagmatch_testkit::device as common;
use tagmatch_verbs::{Verbs, VerbsConfig};

fn verbs(config: VerbsConfig) -> Verbs {
    let mut verbs = Verbs::new(config).unwrap();
    assert!(matches!(poll(&mut verbs), Some(Owned::Up(PeerId::ONESELF, _))));
    verbs
}

fn pair() -> (Verbs, Verbs, PeerId, PeerId) {
    let (mut a, mut b) = (verbs(VerbsConfig::default()), verbs(VerbsConfig::default()));
    let (to_b, from_a) = connect(&mut a, &mut b);
    (a, b, to_b, from_a)
}

fn expect_message(device: &mut Verbs, from: PeerId, immediate: Option<u32>, bytes: &[u8]) {
    wait_for(&mut [device], "a message", |_, event| match event {
        Owned::Message(peer, got_immediate, got) => {
            assert_eq!((peer, got_immediate, got.len()), (from, immediate, bytes.len()));
            assert!(got == bytes);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

/// Polls both devices until a read of `a`'s has ended, and returns its result.
fn read_result(a: &mut Verbs, b: &mut Verbs, token: u64) -> (Buffer, Result<(), ReadError>) {
    wait_for(&mut [a, b], "the end of a read", |_, event| match event {
        Owned::ReadDone(got, into, result) => {
            assert_eq!(got, token);
            Some((into, result))
        }
        _ => None,
    })
}

fn read(
    a: &mut Verbs,
    b: &mut Verbs,
    peer: PeerId,
    remote: RemoteSpan,
) -> Result<Buffer, ReadError> {
    let into = Buffer::zeroed(usize::try_from(remote.length).unwrap().min(1 << 24));
    a.read(ReadRequest { peer, remote, into, token: 77 }).map_err(|(_, error)| error)?;
    let (into, result) = read_result(a, b, 77);
    result.map(|()| into)
}

fn down_reason(devices: &mut [&mut Verbs], of: usize, wanted: PeerId) -> DownReason {
    wait_for(devices, "a peer's end", |index, event| match event {
        Owned::Down(peer, reason) if index == of => {
            assert_eq!(peer, wanted);
            Some(reason)
        }
        _ => None,
    })
}

#[test]
fn a_worker_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Verbs>();
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn every_size_arrives_with_and_without_immediate() {
    let (mut a, mut b, to_b, from_a) = pair();
    let most = b.limits().message_max;
    for length in (0..300).step_by(7).chain((300..=most).step_by(311)).chain([most - 1, most]) {
        let bytes = pattern(length, length);
        let (header, payload) = bytes.split_at(length.min(length % 65));
        for immediate in [None, Some(length as u32)] {
            let outgoing = Outgoing { header, payload, immediate };
            send(&mut a, to_b, outgoing, || ());
            expect_message(&mut b, from_a, immediate, &bytes);
            // The sender also gets announcements, which are no events.
            assert!(poll(&mut a).is_none());
        }
    }
    let long = pattern(0, most + 1);
    assert_eq!(a.send(to_b, message(&long)), Err(Refused::TooLong));
    let header = Outgoing { header: &long[..65], payload: &[], immediate: None };
    assert_eq!(a.send(to_b, header), Err(Refused::TooLong));
    assert_eq!(a.send(PeerId(99), message(&[])), Err(Refused::Down));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn both_begin_at_once_and_meet_in_one_connection() {
    let (mut a, mut b) = (verbs(VerbsConfig::default()), verbs(VerbsConfig::default()));
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    assert_eq!(a.connect(&b.address()).unwrap(), to_b);
    let mut ups = 0;
    wait_for(&mut [&mut a, &mut b], "both to come up", |_, event| {
        assert!(matches!(event, Owned::Up(PeerId(1), _)), "{event:?}");
        ups += 1;
        (ups == 2).then_some(())
    });
    a.send(to_b, message(b"one way")).unwrap();
    b.send(to_a, message(b"the other")).unwrap();
    expect_message(&mut b, to_a, None, b"one way");
    expect_message(&mut a, to_b, None, b"the other");
}

/// How often the RDMA devices of this machine have told a sender that a receiver isn't ready (RNR),
/// by the counters of soft-RoCE and mlx5.
fn receivers_not_ready() -> u64 {
    let mut found = 0;
    let mut counted = 0;
    for device in std::fs::read_dir("/sys/class/infiniband").unwrap() {
        for port in std::fs::read_dir(device.unwrap().path().join("ports")).unwrap() {
            let counters = port.unwrap().path().join("hw_counters");
            for name in ["send_rnr_err", "out_of_buffer"] {
                if let Ok(count) = std::fs::read_to_string(counters.join(name)) {
                    counted += count.trim().parse::<u64>().unwrap();
                    found += 1;
                }
            }
        }
    }
    assert!(found > 0, "no device has such a counter");
    counted
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn streams_both_ways_keep_their_order_and_stop_at_their_credits() {
    let config =
        VerbsConfig { receive_buffers: 32, queue_depth: 32, send_buffers: 4, ..Default::default() };
    let (mut a, mut b) = (verbs(config.clone()), verbs(config));
    let (to_b, to_a) = connect(&mut a, &mut b);
    let not_ready = receivers_not_ready();
    let mut refused = 0;
    let (mut sent, mut came) = ([0u32; 2], [0u32; 2]);
    let start = Instant::now();
    while came.iter().any(|came| *came < 2000) {
        for (side, (device, peer)) in [(&mut a, to_b), (&mut b, to_a)].into_iter().enumerate() {
            for _ in 0..40 {
                if sent[side] == 2000 {
                    break;
                }
                let length = (sent[side] * 37 % 900) as usize;
                let payload = pattern(sent[side] as usize, length);
                let header = sent[side].to_le_bytes();
                match device
                    .send(peer, Outgoing { header: &header, payload: &payload, immediate: None })
                {
                    Ok(()) => sent[side] += 1,
                    Err(Refused::Full) => {
                        refused += 1;
                        break;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
        for (side, device) in [&mut a, &mut b].into_iter().enumerate() {
            for _ in 0..60 {
                let Some(event) = poll(device) else { break };
                let Owned::Message(_, None, bytes) = event else { panic!("{event:?}") };
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                assert_eq!(number, came[side], "side {side}");
                assert!(bytes[4..] == pattern(number as usize, (number * 37 % 900) as usize));
                came[side] += 1;
            }
        }
        assert!(start.elapsed() < 3 * PATIENCE, "{sent:?} sent, {came:?} came");
    }
    assert!(refused > 0, "no queue was ever full");
    assert_eq!(receivers_not_ready(), not_ready, "with credits, every message finds a buffer");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_receiver_that_does_not_poll_stops_its_sender() {
    let (mut a, mut b, to_b, from_a) = pair();
    let mut under_way = VecDeque::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        let bytes = pattern(under_way.len(), 100);
        if a.send(to_b, message(&bytes)) == Ok(()) {
            under_way.push_back(bytes);
        }
        assert!(poll(&mut a).is_none());
    }
    assert_eq!(under_way.len(), 1, "an idle peer holds one credit");
    while let Some(bytes) = under_way.pop_front() {
        expect_message(&mut b, from_a, None, &bytes);
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn reads_bring_what_is_exposed_and_nothing_else() {
    let (mut a, mut b, to_b, _) = pair();
    for length in [1, 7, 4096, 100_000, 3 << 20] {
        let bytes = pattern(length, length);
        let exposure = b.expose(READER, Buffer::from(bytes.clone())).unwrap();
        let into = read(&mut a, &mut b, to_b, exposure.span).unwrap();
        assert!(into[..] == bytes[..], "{length} bytes");
        let part = RemoteSpan {
            address: exposure.span.address + (length / 2) as u64,
            length: (length - length / 2) as u64,
            ..exposure.span
        };
        assert!(read(&mut a, &mut b, to_b, part).unwrap()[..] == bytes[length / 2..]);
        assert_eq!(b.withdraw(READER, exposure.id).unwrap().into_vec(), bytes);
        assert!(b.withdraw(READER, exposure.id).is_none());
    }
    let nothing = b.expose(READER, Buffer::from(Vec::new())).unwrap();
    assert!(read(&mut a, &mut b, to_b, nothing.span).unwrap().is_empty());
    // Several reads at a time, more than may be under way, end in order.
    let spans: Vec<_> =
        (0..40).map(|n| b.expose(READER, Buffer::from(pattern(n, 5000))).unwrap().span).collect();
    for (token, remote) in (0u64..).zip(&spans) {
        let into = Buffer::zeroed(5000);
        a.read(ReadRequest { peer: to_b, remote: *remote, into, token }).unwrap();
    }
    for token in 0..40 {
        let (into, result) = read_result(&mut a, &mut b, token);
        assert_eq!(result, Ok(()));
        assert!(into[..] == pattern(token as usize, 5000)[..]);
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn registered_memory_is_kept_for_the_next_and_no_longer_than_allowed() {
    const LENGTH: usize = 100_000;
    let mut device = verbs(VerbsConfig { idle_memory_max: 1 << 18, ..VerbsConfig::default() });
    let describe = |buffer: &Buffer| format!("{buffer:?}");
    let short = device.allocate(100).unwrap();
    assert_eq!(
        describe(&short),
        "Buffer(100 bytes, owned)",
        "a short buffer is copied, not registered"
    );
    let mut first = device.allocate(LENGTH).unwrap();
    assert_eq!(describe(&first), "Buffer(100000 bytes, lent by a device)");
    assert_eq!(first.as_mut_slice().unwrap().len(), LENGTH);
    first.as_mut_slice().unwrap().fill(7);
    assert_eq!(first.clone().into_vec(), vec![7; LENGTH]);
    // The key stays the same from one exposure to the next, also for another buffer in the same
    // memory.
    let exposure = device.expose(READER, first).unwrap();
    let first = device.withdraw(READER, exposure.id).unwrap();
    let (place, key) = (first.as_ptr(), exposure.span.key);
    drop(first);
    let second = device.allocate(LENGTH + 1000).unwrap();
    assert_eq!((second.as_ptr(), second.len()), (place, LENGTH + 1000));
    let exposure = device.expose(READER, second).unwrap();
    assert_eq!((exposure.span.key, exposure.span.length), (key, LENGTH as u64 + 1000));
    let second = device.withdraw(READER, exposure.id).unwrap();
    // Two buffers of 128 KiB are kept; further ones are freed.
    let many: Vec<_> = (0..4).map(|_| device.allocate(LENGTH).unwrap()).collect();
    let mut places: Vec<_> = many.iter().map(|buffer| buffer.as_ptr()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4, "two buffers share memory");
    assert!(!places.contains(&place), "a buffer got memory that is in use");
    drop((many, second));
    // A buffer may outlive its device, and be dropped by any thread.
    let last = device.allocate(LENGTH).unwrap();
    drop(device);
    std::thread::spawn(move || assert_eq!(last.len(), LENGTH)).join().unwrap();
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn registered_memory_is_read_from_and_into() {
    let (mut a, mut b, to_b, _) = pair();
    let bytes = pattern(5, 300_000);
    for round in 0..3u64 {
        let mut out = b.allocate(bytes.len()).unwrap();
        out.as_mut_slice().unwrap().copy_from_slice(&bytes);
        let exposure = b.expose(READER, out).unwrap();
        let into = a.allocate(bytes.len()).unwrap();
        let remote = exposure.span;
        a.read(ReadRequest { peer: to_b, remote, into, token: round }).unwrap();
        let (into, result) = read_result(&mut a, &mut b, round);
        assert_eq!(result, Ok(()));
        assert!(into[..] == bytes[..]);
        // Memory of another device's pool is registered like any other.
        let exposure = a.expose(READER, b.withdraw(READER, exposure.id).unwrap()).unwrap();
        assert_ne!(exposure.span.key, remote.key);
        drop(a.withdraw(READER, exposure.id));
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_read_of_what_is_not_exposed_ends_that_connection_alone() {
    let (mut a, mut b, to_b, from_a) = pair();
    let mut c = verbs(VerbsConfig::default());
    let (to_c, _) = connect(&mut a, &mut c);
    let exposure = b.expose(READER, Buffer::from(pattern(1, 4096))).unwrap();
    let beyond = RemoteSpan { length: 4097, ..exposure.span };
    let kept = b.expose(READER, Buffer::from(pattern(2, 4096))).unwrap();
    let (first, second) = (Buffer::zeroed(4097), Buffer::zeroed(4096));
    a.read(ReadRequest { peer: to_b, remote: beyond, into: first, token: 1 }).unwrap();
    a.read(ReadRequest { peer: to_b, remote: kept.span, into: second, token: 2 }).unwrap();
    assert_eq!(read_result(&mut a, &mut b, 1).1, Err(ReadError::BadSpan));
    assert_eq!(read_result(&mut a, &mut b, 2).1, Err(ReadError::PeerDown));
    let reason = down_reason(&mut [&mut a, &mut b], 0, to_b);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::EFAULT });
    assert_eq!(a.send(to_b, message(b"more")), Err(Refused::Down));
    down_reason(&mut [&mut b], 0, from_a);
    assert!(b.withdraw(READER, exposure.id).is_some());
    // Other connections keep working.
    a.send(to_c, message(b"still here")).unwrap();
    wait_for(&mut [&mut a, &mut c], "a message", |index, event| match event {
        Owned::Message(_, _, bytes) => {
            assert_eq!((index, &bytes[..]), (1, &b"still here"[..]));
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn what_was_sent_before_the_end_arrives() {
    let (mut a, mut b, to_b, from_a) = pair();
    let mut sent = 0;
    let start = Instant::now();
    while sent < 20 && start.elapsed() < PATIENCE {
        sent += u32::from(a.send(to_b, message(&pattern(sent as usize, 3000))) == Ok(()));
        if sent < 20 {
            assert!(poll(&mut a).is_none());
            while let Some(event) = poll(&mut b) {
                assert!(matches!(event, Owned::Message(..)), "{event:?}");
            }
        }
    }
    let exposure = a.expose(READER, Buffer::from(pattern(3, 100))).unwrap();
    drop(a);
    let mut last = None;
    let reason = wait_for(&mut [&mut b], "the end", |_, event| match event {
        Owned::Message(peer, _, bytes) => {
            assert_eq!(peer, from_a);
            last = Some(bytes);
            None
        }
        Owned::Down(_, reason) => Some(reason),
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, DownReason::Left);
    assert_eq!(last.unwrap(), pattern(19, 3000));
    let request =
        ReadRequest { peer: from_a, remote: exposure.span, into: Buffer::zeroed(100), token: 1 };
    assert!(matches!(b.read(request), Err((_, ReadError::PeerDown))));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn an_absent_or_closed_worker_is_detected() {
    let config = VerbsConfig { connect_timeout: Duration::from_millis(400), ..Default::default() };
    let (mut a, mut b) = (verbs(config.clone()), verbs(config.clone()));
    let gone = verbs(config).address();
    let nobody = a.connect(&gone).unwrap();
    assert_eq!(a.send(nobody, message(&[])), Err(Refused::NotUp));
    let reason = down_reason(&mut [&mut a], 0, nobody);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ETIMEDOUT });
    b.close();
    let closed = a.connect(&b.address()).unwrap();
    let reason = down_reason(&mut [&mut a, &mut b], 0, closed);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
    assert_eq!(a.connect(&b.address()).unwrap(), closed);
    assert_eq!(a.send(closed, message(&[])), Err(Refused::Down));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn workers_of_one_job_connect_and_no_others() {
    let job = |byte| Some(Secret::from_bytes(&[byte; 16]).unwrap());
    let with = |secret| {
        let connect_timeout = Duration::from_millis(400);
        verbs(VerbsConfig { secret, connect_timeout, ..Default::default() })
    };
    for (callers, listeners) in [(job(1), None), (None, job(1)), (job(1), job(2))] {
        let (mut a, mut b) = (with(callers), with(listeners));
        let to_b = a.connect(&b.address()).unwrap();
        match down_reason(&mut [&mut a, &mut b], 0, to_b) {
            DownReason::Misbehaved { what } => assert!(what.contains("the job's secret")),
            other => panic!("{other:?}"),
        }
        assert!(b.peer_address(PeerId(1)).is_none(), "a worker of another job is no peer");
    }
    connect(&mut with(job(1)), &mut with(job(1)));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn disconnecting_delivers_and_ends_both_sides() {
    let (mut a, mut b, to_b, from_a) = pair();
    a.send(to_b, message(b"last")).unwrap();
    a.disconnect(to_b);
    assert_eq!(down_reason(&mut [&mut a], 0, to_b), DownReason::Disconnected);
    expect_message(&mut b, from_a, None, b"last");
    assert_eq!(down_reason(&mut [&mut b], 0, from_a), DownReason::Left);
    // The same two workers never connect twice; a new worker connects.
    assert_eq!(a.connect(&b.address()).unwrap(), to_b);
    assert_eq!(a.send(to_b, message(&[])), Err(Refused::Down));
    let mut again = verbs(VerbsConfig::default());
    connect(&mut again, &mut b);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_worker_reaches_itself() {
    let mut a = verbs(VerbsConfig::default());
    let own = a.address();
    assert_eq!(a.connect(&own).unwrap(), PeerId::ONESELF);
    let mut sent = 0;
    while a.send(PeerId::ONESELF, message(&pattern(sent, 40))) == Ok(()) {
        sent += 1;
    }
    assert!(sent >= 8);
    for number in 0..sent {
        expect_message(&mut a, PeerId::ONESELF, None, &pattern(number, 40));
    }
    let exposure = a.expose(READER, Buffer::from(pattern(9, 999))).unwrap();
    let beyond = RemoteSpan { address: exposure.span.address + 1, ..exposure.span };
    for (remote, expected) in [(exposure.span, Ok(())), (beyond, Err(ReadError::BadSpan))] {
        let into = Buffer::zeroed(999);
        a.read(ReadRequest { peer: PeerId::ONESELF, remote, into, token: 5 }).unwrap();
        let (into, result) = wait_for(&mut [&mut a], "a read", |_, event| match event {
            Owned::ReadDone(5, into, result) => Some((into, result)),
            other => panic!("{other:?}"),
        });
        assert_eq!(result, expected);
        assert!(result.is_err() || into[..] == pattern(9, 999)[..]);
    }
    a.disconnect(PeerId::ONESELF);
    assert_eq!(down_reason(&mut [&mut a], 0, PeerId::ONESELF), DownReason::Disconnected);
    assert_eq!(a.send(PeerId::ONESELF, message(&[])), Err(Refused::Down));
}

/// Polls until the device can be armed.
fn arm(device: &mut Verbs) {
    let start = Instant::now();
    while !device.arm(&[]) {
        assert!(poll(device).is_none());
        assert!(start.elapsed() < PATIENCE, "never ran out of work");
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_sleeper_is_woken_by_a_message() {
    let (mut a, mut b, to_b, from_a) = pair();
    let is_woken = |b: &Verbs, time| {
        sleep_until_readable(&[b.event_descriptor().as_fd()], Duration::from_millis(time)).unwrap()
    };
    for round in 0..5 {
        let start = Instant::now();
        // The timer wakes it to test silent connections; then it sleeps again.
        arm(&mut b);
        a.send(to_b, message(&pattern(round, 10))).unwrap();
        loop {
            assert!(is_woken(&b, 10_000));
            b.disarm();
            if let Some(event) = poll(&mut b) {
                assert!(
                    matches!(event, Owned::Message(peer, None, _) if peer == from_a),
                    "{event:?}"
                );
                break;
            }
            assert!(start.elapsed() < PATIENCE);
            arm(&mut b);
        }
        while poll(&mut a).is_some() {}
    }
    // A message to oneself, sent after arming as another thread would, wakes the sleeper.
    arm(&mut b);
    b.send(PeerId::ONESELF, message(b"up")).unwrap();
    assert!(is_woken(&b, 10_000));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_killed_peer_goes_down_and_its_reads_come_back() {
    if role().is_some() {
        let mut device = verbs(VerbsConfig::default());
        say(device.address());
        let start = Instant::now();
        while start.elapsed() < 3 * PATIENCE {
            if let Some(Owned::Message(peer, _, _)) = poll(&mut device) {
                let exposure = device.expose(READER, Buffer::from(vec![1; 64 << 20])).unwrap();
                let span = exposure.span;
                let mut bytes = span.address.to_le_bytes().to_vec();
                bytes.extend(span.key.to_le_bytes());
                device.send(peer, message(&bytes)).unwrap();
            }
        }
        return;
    }
    let mut other = Other::spawn("a_killed_peer_goes_down_and_its_reads_come_back", "to be killed");
    let mut a = verbs(VerbsConfig { ack_timeout: 14, retry_count: 3, ..Default::default() });
    let mut bystander = verbs(VerbsConfig::default());
    let (to_bystander, _) = connect(&mut a, &mut bystander);
    let peer = a.connect(&other.hear_address()).unwrap();
    wait_for(&mut [&mut a], "the connection", |_, event| {
        matches!(event, Owned::Up(..)).then_some(())
    });
    a.send(peer, message(b"expose")).unwrap();
    let remote = wait_for(&mut [&mut a], "a span", |_, event| match event {
        Owned::Message(_, _, bytes) => Some(RemoteSpan {
            address: u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            key: u32::from_le_bytes(bytes[8..12].try_into().unwrap()),
            length: 64 << 20,
        }),
        _ => None,
    });
    a.read(ReadRequest { peer, remote, into: Buffer::zeroed(64 << 20), token: 8 }).unwrap();
    other.kill();
    let mut has_come_back = false;
    let reason = wait_for(&mut [&mut a], "the end", |_, event| match event {
        Owned::ReadDone(8, into, result) => {
            assert_eq!((into.len(), result), (64 << 20, Err(ReadError::PeerDown)));
            has_come_back = true;
            None
        }
        Owned::Down(down, reason) => {
            assert_eq!(down, peer);
            Some(reason)
        }
        other => panic!("{other:?}"),
    });
    assert!(has_come_back);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ETIMEDOUT });
    a.send(to_bystander, message(b"unharmed")).unwrap();
    expect_message(&mut bystander, PeerId(1), None, b"unharmed");
}
