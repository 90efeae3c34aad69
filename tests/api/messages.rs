//! Messages of every size and mode between workers, and what a device or a peer refuses.

use std::time::{Duration, Instant};

use tagmatch::observe::{Pattern, SourceId};
use tagmatch::{
    Address, Error, Fault, Match, Received, SendMode, SendOptions, Status, Tag, TagLayout, TagMask,
    Worker,
};
use tagmatch_testkit::process::may_have_descriptors;

use crate::common::{Ability, config, has};
use crate::pair::{SIZES, bytes, pair, pair_with};

#[test]
fn every_size_and_mode_arrives_with_all_its_facts() {
    let p = pair();
    let mut modes = vec![SendMode::Standard, SendMode::Synchronous];
    modes.extend(has(Ability::Delivered).then_some(SendMode::Delivered));
    for mode in modes {
        for size in SIZES {
            for expected in [true, false] {
                let options =
                    SendOptions::default().mode(mode).immediate(Some(size as u32 ^ 0xffff));
                let early = expected.then(|| p.b.recv(Match::tag(9), vec![0xee; size + 3]));
                let send = p.a.send_with(p.to_b, 9, bytes(size), options);
                let receive = early.unwrap_or_else(|| {
                    let status = p.probe(Match::tag(9));
                    assert_eq!((status.length, status.truncated), (size, false));
                    p.b.recv(Match::any(), vec![0xee; size + 3])
                });
                let Received { buffer, status } = p.ok(receive);
                let immediate = Some(size as u32 ^ 0xffff);
                let tag = Tag(9);
                let length = size;
                let source = p.to_a;
                assert_eq!(status, Status { source, tag, length, truncated: false, immediate });
                assert_eq!(buffer[..size], bytes(size));
                assert_eq!(buffer[size..], [0xee; 3], "wrote past the message");
                assert_eq!(p.ok(send).buffer.into_vec(), bytes(size));
            }
        }
    }
}

#[test]
fn a_worker_of_another_minor_version_is_refused_with_both_versions_in_the_words() {
    let worker = Worker::new(config()).unwrap();
    let mut other = worker.address().as_bytes().to_vec();
    // Behind the format of addresses; over UCX and libfabric behind four bytes.
    let release = if other.starts_with(b"TM") { 4 } else { 1 };
    other[release] += 1;
    let refused = worker.connect(&Address::from_bytes(&other).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("tagmatch 0.1") && refused.contains("tagmatch 0.2"), "{refused}");
}

#[test]
fn oneself_is_a_peer_like_any() {
    let worker = Worker::new(config()).unwrap();
    let me = worker.oneself();
    assert_eq!(worker.connect(&worker.address()).unwrap(), me);
    for size in SIZES {
        let receive = worker.recv(Match::tag(1).from(me), vec![0; size]);
        let send = worker.send(me, 1, bytes(size));
        let received = receive.wait().unwrap();
        assert_eq!((received.status.source, received.data()), (me, &bytes(size)[..]));
        send.wait().unwrap();
    }
    let send = worker.send_sync(me, 2, bytes(10));
    let message = worker.mprobe_blocking(Match::tag(2)).unwrap();
    message.discard();
    send.wait().unwrap();
}

#[test]
fn truncation_reports_the_full_length_and_spares_what_follows() {
    let p = pair();
    let has_first_bytes = has(Ability::FirstBytes);
    for size in [1, 8, 5000, 100_000] {
        for room in [0, size / 2, size - 1] {
            for expected in [true, false] {
                let early = expected.then(|| p.b.recv(Match::tag(1), vec![0xee; room]));
                let send = p.a.send_sync(p.to_b, 1, bytes(size));
                let receive = early.unwrap_or_else(|| {
                    assert!(!p.probe(Match::any()).truncated, "a probe reports truncation");
                    p.b.recv(Match::tag(1), vec![0xee; room])
                });
                let received = p.ok(receive);
                assert_eq!((received.status.length, received.status.truncated), (size, true));
                if has_first_bytes {
                    assert_eq!(received.data(), &bytes(size)[..room]);
                }
                p.ok(send);
            }
        }
    }
}

#[test]
fn unexpected_memory_is_bounded_and_nothing_is_lost() {
    let config = config().unexpected_bytes(64 << 10).unexpected_messages(200);
    let p = pair_with(&config);
    let total = 3000u32;
    let payload = |i: u32| bytes((i % 700) as usize);
    let sends: Vec<_> = (0..total)
        .map(|i| {
            let options = SendOptions::default().immediate(Some(i));
            p.a.send_with(p.to_b, 1, payload(i), options)
        })
        .collect();
    for _ in 0..5000 {
        p.progress();
    }
    if has(Ability::Bounds) {
        let counters = p.b.counters();
        assert!(counters.unexpected_bytes_now <= 64 << 10, "{counters:?}");
        assert!(counters.unexpected_now <= 200 + 16, "{counters:?}");
    }
    for i in 0..total {
        let received = p.ok(p.b.recv(Match::any(), vec![0; 700]));
        assert_eq!(received.status.immediate, Some(i), "overtaken");
        assert_eq!(received.data(), payload(i));
    }
    for send in sends {
        p.ok(send);
    }
}

#[test]
fn injected_messages_wait_up_to_a_bound_and_arrive_in_order() {
    let waiting = || config().inject_bytes_max(64 << 10).unexpected_bytes(64 << 10);
    let a = Worker::new(waiting()).unwrap();
    let b = Worker::new(waiting()).unwrap();
    // Nothing goes out at once before the peers are connected, and nothing is received meanwhile.
    let to_b = a.connect(&b.address()).unwrap();
    let long = a.inject_with(to_b, 1, &bytes(100_000), Some(0)).unwrap();
    assert!(long, "one message may always wait");
    assert!(!a.inject_with(to_b, 1, &bytes(1), Some(1)).unwrap(), "longer than the bound already");
    a.inject(to_b, 1, &bytes(5)).unwrap();
    let receive = |length| {
        let mut request = b.recv(Match::tag(1), vec![0; length]);
        let start = Instant::now();
        loop {
            a.progress();
            if let Some(received) = request.test() {
                break received.unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
    };
    let received = receive(100_000);
    assert_eq!((received.data(), received.status.immediate), (&bytes(100_000)[..], Some(0)));
    assert_eq!(receive(5).data(), bytes(5));
    // While a small part of the messages is received, the bound is reached, and it is left again.
    let mut sent = 0;
    let mut count = 0;
    let mut refused = 0;
    let total = 600u32;
    while count < total {
        while sent < total {
            if a.inject_with(to_b, 1, &bytes(7_000), Some(sent)).unwrap() {
                sent += 1;
            } else {
                refused += 1;
                break;
            }
        }
        let received = receive(7_000);
        assert_eq!((received.status.immediate, received.data()), (Some(count), &bytes(7_000)[..]));
        count += 1;
    }
    if has(Ability::Bounds) {
        assert!(refused > 0);
    }
    assert!(matches!(a.inject_with(b.oneself(), 1, &[], None), Err(Error::ForeignPeer { .. })));
    drop(b);
    let start = Instant::now();
    while a.peer_fault(to_b).unwrap().is_none() {
        a.progress();
        assert!(start.elapsed() < Duration::from_secs(20), "not noticed");
    }
    let refusal = a.inject_with(to_b, 1, &[], None).unwrap_err();
    assert!(matches!(refusal, Error::PeerDown { .. }), "{refusal}");
}

#[test]
fn a_message_that_leaves_at_once_overtakes_none_and_one_that_cannot_does_nothing() {
    let a = Worker::new(config()).unwrap();
    let b = Worker::new(config()).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    assert!(!a.inject_at_once(to_b, 1, b"early", None).unwrap(), "not connected yet");
    a.inject(to_b, 1, b"first").unwrap();
    assert!(!a.inject_at_once(to_b, 1, b"overtaking", None).unwrap(), "a message waits");
    let receive = || {
        let mut request = b.recv(Match::tag(1), vec![0; 16]);
        let start = Instant::now();
        loop {
            a.progress();
            if let Some(received) = request.test() {
                break received.unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
    };
    assert_eq!(receive().data(), b"first");
    assert!(!a.inject_at_once(to_b, 1, &bytes(1 << 20), None).unwrap(), "too long");
    // A device may have to hear first that there is room.
    if has(Ability::AtOnce) {
        let start = Instant::now();
        while !a.inject_at_once(to_b, 1, b"second", Some(2)).unwrap() {
            a.progress();
            b.progress();
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
    }
    a.inject(to_b, 1, b"third").unwrap();
    if has(Ability::AtOnce) {
        let second = receive();
        assert_eq!((second.data(), second.status.immediate), (&b"second"[..], Some(2)));
    }
    assert_eq!(receive().data(), b"third");
    assert!(matches!(a.inject_at_once(b.oneself(), 1, &[], None), Err(Error::ForeignPeer { .. })));
}

#[test]
fn what_a_device_does_not_carry_is_refused_at_the_call() {
    let p = pair();
    if has(Ability::AllTags) {
        p.a.inject(p.to_b, u64::MAX, b"far").unwrap();
        assert_eq!(p.ok(p.b.recv(Match::tag(u64::MAX), vec![0; 3])).data(), b"far");
        return;
    }
    let refused = |error: &Error| {
        assert!(matches!(error, Error::Operation(Fault::NotCarried { .. })), "{error}");
    };
    let outside = 1u64 << 40;
    let source = config().layout.source_mask().0;
    for tag in [outside, source, source & source.wrapping_neg()] {
        let failed = p.a.send(p.to_b, tag, bytes(3)).wait().unwrap_err();
        refused(&failed.error);
        assert_eq!(failed.buffer.into_vec(), bytes(3));
        refused(&p.a.inject(p.to_b, tag, &[]).unwrap_err());
        refused(&p.b.recv(Match::tag(tag), bytes(3)).wait().unwrap_err().error);
        // A message with such a tag can't exist: a probe says so, and a blocking call doesn't wait.
        refused(&p.b.probe(Match::tag(tag)).unwrap_err());
        refused(&p.b.mprobe(Match::tag(tag)).map(drop).unwrap_err());
        refused(&p.b.probe_blocking(Match::tag(tag)).unwrap_err());
        refused(&p.b.mprobe_blocking(Match::tag(tag)).map(drop).unwrap_err());
    }
    if !has(Ability::Delivered) {
        refused(&p.a.send_delivered(p.to_b, 1, bytes(3)).wait().unwrap_err().error);
    }
    let wide = config().layout(TagLayout::MPI);
    let p = pair_with(&wide);
    let options = SendOptions::default().immediate(Some(1));
    if has(Ability::WideImmediate) {
        return;
    }
    refused(&p.a.send_with(p.to_b, 1, bytes(3), options).wait().unwrap_err().error);
    p.a.inject(p.to_b, 1, b"still well").unwrap();
    assert_eq!(p.ok(p.b.recv(Match::tag(1), vec![0; 10])).data(), b"still well");
}

#[test]
fn peers_of_another_worker_are_refused() {
    let p = pair();
    let foreign = |error: &Error| matches!(error, Error::ForeignPeer { .. });
    let failed = p.a.send(p.to_a, 1, bytes(3)).wait().unwrap_err();
    assert!(foreign(&failed.error) && failed.buffer.into_vec() == bytes(3));
    assert!(foreign(&p.a.recv(Match::any().from(p.to_a), bytes(3)).wait().unwrap_err().error));
    assert!(foreign(&p.a.inject(p.to_a, 1, &[]).unwrap_err()));
    assert!(foreign(&p.a.disconnect(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.peer_address(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.peer_fault(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.read_mode(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.transports(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.learned(p.to_a).unwrap_err()));
    assert!(foreign(&p.a.send_blocking(p.to_a, 1, &[]).unwrap_err()));
    assert!(foreign(&p.a.recv_blocking(Match::any().from(p.to_a), &mut []).unwrap_err()));
    p.a.scope(|scope| {
        assert!(foreign(&scope.send(p.to_a, 1, &[]).wait().unwrap_err()));
        assert!(foreign(&scope.recv(Match::any().from(p.to_a), &mut []).wait().unwrap_err()));
    });
    // A pattern names a peer by its number alone.
    let nobody = Pattern::new(Tag(1), TagMask::EXACT).from_source(SourceId(99));
    let unknown = |error: &Error| matches!(error, Error::Operation(Fault::NoSuchPeer { .. }));
    assert!(unknown(&p.a.probe(nobody).unwrap_err()));
    assert!(unknown(&p.a.mprobe_blocking(nobody).map(drop).unwrap_err()));
    assert!(unknown(&p.a.recv(nobody, bytes(3)).wait().unwrap_err().error));
    let which = Match::any().from(p.to_a);
    assert!(foreign(&p.a.probe(which).unwrap_err()));
    assert!(foreign(&p.a.mprobe(which).map(drop).unwrap_err()));
    assert!(foreign(&p.a.probe_blocking(which).unwrap_err()));
    assert!(foreign(&p.a.mprobe_blocking(which).map(drop).unwrap_err()));
}

#[test]
fn many_workers_meet_lazily_from_both_sides() {
    if !may_have_descriptors(4096) {
        return;
    }
    let workers: Vec<_> = (0..24).map(|_| Worker::new(config()).unwrap()).collect();
    let addresses: Vec<_> = workers.iter().map(Worker::address).collect();
    let mut receives = Vec::new();
    for (i, worker) in workers.iter().enumerate() {
        for (j, address) in addresses.iter().enumerate() {
            let peer = worker.connect(address).unwrap();
            worker.inject(peer, i as u64, &[i as u8, j as u8]).unwrap();
            receives.push((i, j, worker.recv(Match::tag(j as u64).from(peer), vec![0; 2])));
        }
    }
    let start = Instant::now();
    while !receives.is_empty() {
        workers.iter().for_each(|worker| _ = worker.progress());
        receives.retain_mut(|(i, j, request)| match request.test() {
            Some(received) => {
                assert_eq!(received.unwrap().data(), [*j as u8, *i as u8]);
                false
            }
            None => true,
        });
        assert!(start.elapsed() < Duration::from_secs(20), "{} are missing", receives.len());
    }
}
