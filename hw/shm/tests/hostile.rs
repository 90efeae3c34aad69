//! Peers that break every rule. The victim must neither panic nor hang, and nobody else may suffer.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

#[allow(dead_code, reason = "another test needs more of it")]
mod by_hand;
mod common;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use by_hand::{Accomplice, BELL_BYTES, Innocents, Raw, SEALS, hello, invented, memfd, ring_bytes};
use common::{Owned, connect, message, pattern, poll, shm, wait_for};
use tagmatch_device::{
    Address, Buffer, Device, DownReason, EventDescriptor, PeerId, ReadRequest, RemoteSpan,
};
use tagmatch_shm::fuzzing::{Greeting, Hello, Internal, Refusal};
use tagmatch_shm::{ReadPolicy, ShmConfig};

const INTERNAL: u32 = 1 << 30;

#[test]
fn greetings_that_break_rules() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let victim = innocents.victim.address();
    let good = hello(invented(&victim, 1));
    let length = ring_bytes(good.geometry);
    let (ring, bell) = (memfd(length, SEALS), memfd(BELL_BYTES, SEALS));
    let fds = [ring.as_raw_fd(), bell.as_raw_fd()];
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let unsealed = memfd(length, 0);
    let half_sealed = memfd(length, libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
    let short = memfd(length - 4096, SEALS);
    let claims = |address| Hello { address, ..good.clone() }.emit();
    let mut foreign = victim.as_bytes().to_vec();
    foreign[28] ^= 1;
    let foreign = Address::from_bytes(&foreign).unwrap();
    let packets: Vec<(Vec<u8>, Vec<i32>)> = vec![
        (vec![], vec![]),
        (b"garbage".to_vec(), vec![]),
        (vec![0xff; 128], fds.to_vec()),
        (vec![0; 5000], fds.to_vec()),
        (good.emit()[..100].to_vec(), fds.to_vec()),
        (good.emit(), vec![]),
        (good.emit(), vec![fds[0]]),
        (good.emit(), vec![fds[1], fds[0]]),
        (good.emit(), vec![fds[0], fds[1], fds[0]]),
        (good.emit(), vec![fds[0]; 100]),
        (good.emit(), vec![file.as_raw_fd(), fds[1]]),
        (good.emit(), vec![unsealed.as_raw_fd(), fds[1]]),
        (good.emit(), vec![half_sealed.as_raw_fd(), fds[1]]),
        (good.emit(), vec![short.as_raw_fd(), fds[1]]),
        (good.emit(), vec![fds[0], innocents.victim.event_descriptor().as_raw_fd()]),
        (claims(victim), fds.to_vec()),
        (claims(innocents.friend.address()), fds.to_vec()),
        (claims(foreign), fds.to_vec()),
        (claims(Address::from_bytes(&[1; 64]).unwrap()), fds.to_vec()),
        (Refusal::Crossed.emit(), vec![]),
    ];
    for (bytes, fds) in packets {
        let raw = Raw::connect(&victim).unwrap();
        raw.send(&bytes, &fds);
        for _ in 0..3 {
            assert!(innocents.exchange().is_empty(), "{} bytes, {} fds", bytes.len(), fds.len());
        }
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {
            assert!(innocents.victim.poll().is_none());
        }
        if let Some((answer, _)) = raw.receive() {
            assert!(matches!(Greeting::parse(&answer), Ok(Greeting::Refusal(_))));
        }
    }
    // Many who say nothing, more than are remembered; a newcomer gets in nevertheless.
    let silent: Vec<Raw> = (0..300).map(|_| Raw::connect(&victim).unwrap()).collect();
    innocents.exchange();
    let mut newcomer = shm(ShmConfig::default());
    connect(&mut newcomer, &mut innocents.victim);
    assert!(innocents.exchange().is_empty());
    drop(silent);
}

#[test]
fn strangers_who_say_nothing_are_sent_away_in_time() {
    let connect_timeout = Duration::from_millis(100);
    let mut victim = shm(ShmConfig { connect_timeout, ..ShmConfig::default() });
    let raw = Raw::connect(&victim.address()).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert!(victim.poll().is_none());
    }
    let start = Instant::now();
    assert!(raw.receive().is_none());
    assert!(start.elapsed() < Duration::from_millis(500), "still connected");
}

#[test]
fn answers_that_break_rules() {
    for (number, answer) in
        [&b"garbage"[..], &[0xff; 128], &Refusal::Invalid.emit()].iter().enumerate()
    {
        let mut victim = shm(ShmConfig::default());
        let liar = invented(&victim.address(), number as u8 + 50);
        let listener = Raw::listen(&liar);
        let peer = victim.connect(&liar).unwrap();
        let socket = listener.accept();
        assert_eq!(socket.receive().unwrap().1.len(), 2);
        socket.send(answer, &[]);
        wait_for(&mut [&mut victim], "the end", |_, event| match event {
            Owned::Down(down, DownReason::Misbehaved { .. } | DownReason::Unreachable { .. }) => {
                assert_eq!(down, peer);
                Some(())
            }
            other => panic!("{other:?}"),
        });
    }
}

#[test]
fn internal_messages_that_break_rules() {
    let fragment = |id, offset| Internal::Fragment { id, offset }.emit().to_vec();
    let span = RemoteSpan { address: 1, key: 2, length: 3 };
    let cases: Vec<(u32, Vec<u8>, usize)> = vec![
        (INTERNAL, vec![], 1),
        (INTERNAL | 31, vec![0xff; 31], 1),
        (INTERNAL | 32, vec![0; 32], 1),
        (INTERNAL | 33, fragment(0, 0), 1),
        (INTERNAL | 40, fragment(7, 8), 1),
        (INTERNAL | 32, Internal::End { id: 0, is_good: true }.emit().to_vec(), 1),
        (INTERNAL | 40, Internal::Request { id: 0, span }.emit().to_vec(), 1),
        // More requests than are answered at a time.
        (INTERNAL | 32, Internal::Request { id: 0, span }.emit().to_vec(), 250),
        (INTERNAL | 1 << 27, vec![], 1),
        (1 << 29, vec![], 1),
        (16449, vec![], 1),
        ((1 << 28) - 1, vec![], 1),
    ];
    for (seed, (meta, body, times)) in cases.into_iter().enumerate() {
        let mut innocents = Innocents::new(ShmConfig::default());
        let mut accomplice = Accomplice::connect(&mut innocents, seed as u8);
        for _ in 0..times {
            accomplice.write_slot(meta, &body);
        }
        if times == 1 {
            let reason = innocents.wait_down();
            assert!(matches!(reason, DownReason::Misbehaved { .. }), "{meta:x}: {reason:?}");
        } else {
            let events = innocents.exchange();
            assert!(events.iter().all(|event| matches!(event, Owned::Down(..))), "{events:?}");
        }
        assert!(innocents.exchange().is_empty());
    }
}

#[test]
fn fragments_that_break_rules() {
    // While a read is under way: too far, too much, too little, twice.
    let end = Internal::End { id: 0, is_good: true }.emit().to_vec();
    let with_bytes = |offset| {
        let mut all = Internal::Fragment { id: 0, offset }.emit().to_vec();
        all.extend_from_slice(&[9; 24]);
        (INTERNAL | 56, all)
    };
    for (seed, slots) in [
        vec![with_bytes(8)],
        vec![with_bytes(0), with_bytes(0)],
        vec![with_bytes(0), with_bytes(24), with_bytes(48)],
        vec![with_bytes(0), (INTERNAL | 32, end.clone())],
        vec![(INTERNAL | 32, end.clone())],
        vec![(INTERNAL | 20_000, with_bytes(0).1)],
        vec![with_bytes(0), with_bytes(u64::MAX)],
    ]
    .into_iter()
    .enumerate()
    {
        let config = ShmConfig { read: ReadPolicy::Copied, ..ShmConfig::default() };
        let mut innocents = Innocents::new(config);
        let mut accomplice = Accomplice::connect(&mut innocents, seed as u8 + 100);
        let peer = PeerId(2);
        let remote = RemoteSpan { address: 4096, key: 1, length: 60 };
        let into = Buffer::zeroed(60);
        innocents.victim.read(ReadRequest { peer, remote, into, token: 3 }).unwrap();
        for _ in 0..200 {
            assert!(innocents.victim.poll().is_none());
        }
        for (meta, body) in slots {
            accomplice.write_slot(meta, &body);
        }
        let mut is_back = false;
        wait_for(&mut [&mut innocents.victim], "the end", |_, event| match event {
            Owned::ReadDone(3, into, Err(_)) => {
                assert_eq!(into.len(), 60);
                is_back = true;
                None
            }
            Owned::Down(_, DownReason::Misbehaved { .. }) => {
                assert!(is_back);
                Some(())
            }
            other => panic!("{other:?}"),
        });
        assert!(innocents.exchange().is_empty());
    }
}

#[test]
fn a_consumed_counter_that_cannot_be() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let accomplice = Accomplice::connect(&mut innocents, 9);
    let peer = PeerId(2);
    Accomplice::word(&accomplice.incoming, 0).store(u64::MAX, Ordering::SeqCst);
    while innocents.victim.send(peer, message(b"fill")).is_ok() {}
    assert!(matches!(innocents.wait_down(), DownReason::Misbehaved { .. }));
    assert!(innocents.exchange().is_empty());
}

#[test]
fn a_consumed_counter_that_frees_what_was_not_written() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let accomplice = Accomplice::connect(&mut innocents, 12);
    let peer = PeerId(2);
    // Fewer messages than are written, and more of the bytes beside the slots than a ring of them takes.
    Accomplice::word(&accomplice.incoming, 0).store(1 | 200_000 << 32, Ordering::SeqCst);
    while innocents.victim.send(peer, message(&[1; 500])).is_ok() {}
    assert!(matches!(innocents.wait_down(), DownReason::Misbehaved { .. }));
    assert!(innocents.exchange().is_empty());
}

#[test]
fn a_writer_that_hangs_up_and_goes_on_writing_is_not_heard_for_ever() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let mut accomplice = Accomplice::connect(&mut innocents, 13);
    // SAFETY: no pointers.
    unsafe { libc::shutdown(accomplice.socket.0.as_raw_fd(), libc::SHUT_RDWR) };
    let ring_slots = ShmConfig::default().ring_slots;
    let start = Instant::now();
    let mut heard = 0;
    loop {
        while accomplice.sent < heard + 8 {
            accomplice.write_slot(4, b"more");
        }
        match poll(&mut innocents.victim) {
            Some(Owned::Message(..)) => heard += 1,
            Some(Owned::Down(_, DownReason::Gone)) => break,
            None => assert!(start.elapsed() < common::PATIENCE),
            Some(other) => panic!("{other:?}"),
        }
        // Its end is noticed after a while.
        assert!(heard < 1000 * ring_slots, "heard for ever");
    }
    assert!(innocents.exchange().is_empty());
}

#[test]
fn a_message_whose_bell_was_cleared_is_found_by_polling() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let mut accomplice = Accomplice::connect(&mut innocents, 14);
    for _ in 0..100 {
        assert!(innocents.victim.poll().is_none());
    }
    accomplice.write_quietly(5, b"quiet");
    let found = (0..100_000).find_map(|_| poll(&mut innocents.victim));
    assert!(matches!(&found, Some(Owned::Message(_, _, bytes)) if bytes == b"quiet"), "{found:?}");
}

#[test]
fn nonsense_on_the_socket() {
    let mut innocents = Innocents::new(ShmConfig::default());
    let accomplice = Accomplice::connect(&mut innocents, 10);
    accomplice.socket.send(b"whatever", &[]);
    assert!(matches!(innocents.wait_down(), DownReason::Misbehaved { .. }));
    // Wakes without end are borne.
    let accomplice = Accomplice::connect(&mut innocents, 11);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let byte = b"w";
                // SAFETY: one byte.
                unsafe {
                    let fd = accomplice.socket.0.as_raw_fd();
                    libc::send(
                        fd,
                        byte.as_ptr().cast(),
                        1,
                        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    );
                }
            }
        });
        for _ in 0..200 {
            assert!(innocents.exchange().is_empty());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Random words all over what the peer can write, while the victim does everything that it can.
#[test]
fn scribbling_everywhere() {
    let read = [ReadPolicy::Auto, ReadPolicy::Copied];
    let mut ends = 0;
    for seed in 0..24u8 {
        let config = ShmConfig {
            read: read[usize::from(seed % 2)],
            membarrier: seed % 3 != 0,
            ..ShmConfig::default()
        };
        let mut innocents = Innocents::new(config);
        let exposure = innocents.victim.expose(Buffer::zeroed(100_000)).unwrap();
        let accomplice = Accomplice::connect(&mut innocents, seed);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ u64::from(seed) << 32;
                let mut random = || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                let mut position = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let (place, value) = (random(), random());
                    let (map, limit) = match place % 8 {
                        0 => (&accomplice.bell, BELL_BYTES),
                        1 => (&accomplice.incoming, 512),
                        2 => (&accomplice.incoming, accomplice.incoming.len()),
                        3 => (&accomplice.outgoing, accomplice.outgoing.len()),
                        _ => (&accomplice.outgoing, 4096 + 256 * 64),
                    };
                    let at = usize::try_from(place >> 8).unwrap() % (limit / 8) * 8;
                    // Every other time a slot that will be believed, of a length that may be.
                    let is_slot = place % 8 > 3 && at >= 4096 && (at - 4096).is_multiple_of(64);
                    let value = if is_slot && value & 1 == 0 {
                        position = (position + 1) % 300;
                        position | (value >> 50) << 32 | (value & 2) << 61
                    } else {
                        value
                    };
                    Accomplice::word(map, at).store(value, Ordering::Relaxed);
                }
            });
            let start = Instant::now();
            let peer = PeerId(2);
            for round in 0..300u64 {
                for event in innocents.exchange() {
                    ends += usize::from(matches!(event, Owned::Down(..)));
                }
                let _ = innocents.victim.send(peer, message(&pattern(1, 700)));
                let remote = exposure.span;
                let into = Buffer::zeroed(100_000);
                let _ = innocents.victim.read(ReadRequest { peer, remote, into, token: round });
                if innocents.victim.arm(&[peer]) {
                    innocents.victim.disarm();
                }
            }
            assert!(start.elapsed() < 2 * common::PATIENCE);
            stop.store(true, Ordering::Relaxed);
        });
        while poll(&mut innocents.victim).is_some() {}
    }
    assert!(ends > 0, "no scribbler was ever caught");
}
