//! Peers that break every rule. The worker must neither panic nor hang, and its other peers must
//! not be disturbed.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

mod common;
#[allow(dead_code, reason = "another test needs more of it")]
mod hostile_peer;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tagmatch_device::{
    Address, Buffer, Device, DownReason, Event, EventDescriptor, PeerId, ReadMode, ReadRequest,
    RemoteSpan,
};
use tagmatch_os::wake_socket::WakeSocket;
use tagmatch_shm::fuzzing::{
    Geometry, HandshakePacket, Hello, HelloRefusal, Nonce, ReadMessage, ShmName,
};
use tagmatch_shm::{ReadPolicy, ShmConfig};
use tagmatch_testkit::random::Random;

use common::{
    Owned, PATIENCE, READER, connect, message, next_message, pattern, poll, read_end, shm, wait_for,
};
use hostile_peer::{
    Bystanders, DOORBELL_BYTES, HostilePeer, RawSocket, SEALS, hello, invented, memfd,
};

const INTERNAL: u32 = 1 << 28;
const LAST: u32 = 1 << 27;

#[test]
fn hellos_that_break_rules() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let victim = bystanders.victim.address();
    let good = hello(invented(&victim, 1));
    let length = good.geometry.pair_bytes();
    let pair = memfd(length, SEALS);
    let doorbell = memfd(DOORBELL_BYTES, SEALS);
    let fds = [pair.as_raw_fd(), doorbell.as_raw_fd()];
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let unsealed = memfd(length, 0);
    let half_sealed = memfd(length, libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
    let short = memfd(length - 4096, SEALS);
    let claims = |address| Hello { address, ..good.clone() }.emit();
    let mut foreign = victim.as_bytes().to_vec();
    foreign[16] ^= 1;
    let foreign = Address::from_bytes(&foreign).unwrap();
    let mut elsewhere = good.address.as_bytes().to_vec();
    elsewhere[9] ^= 1;
    let elsewhere = Address::from_bytes(&elsewhere).unwrap();
    let mut older = good.address.as_bytes().to_vec();
    older[1] -= 1;
    let older = Address::from_bytes(&older).unwrap();
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
        (good.emit(), vec![fds[0], bystanders.victim.event_descriptor().as_raw_fd()]),
        (claims(victim), fds.to_vec()),
        (claims(bystanders.friend.address()), fds.to_vec()),
        (claims(foreign), fds.to_vec()),
        (claims(elsewhere), fds.to_vec()),
        (claims(older), fds.to_vec()),
        (claims(Address::from_bytes(&[1; 64]).unwrap()), fds.to_vec()),
        (HelloRefusal::Crossed.emit(), vec![]),
    ];
    for (bytes, fds) in packets {
        let raw = RawSocket::connect(&victim).unwrap();
        raw.send(&bytes, &fds);
        for _ in 0..3 {
            assert!(bystanders.exchange().is_empty(), "{} bytes, {} fds", bytes.len(), fds.len());
        }
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {
            assert!(bystanders.victim.poll().is_none());
        }
        if let Some((answer, _)) = raw.receive() {
            assert!(matches!(HandshakePacket::parse(&answer), Ok(HandshakePacket::Refusal(_))));
        }
    }
    // More silent pending connections than are kept. A new worker can connect nevertheless.
    let silent: Vec<RawSocket> = (0..300).map(|_| RawSocket::connect(&victim).unwrap()).collect();
    bystanders.exchange();
    let mut newcomer = shm(ShmConfig::default());
    connect(&mut newcomer, &mut bystanders.victim);
    assert!(bystanders.exchange().is_empty());
    drop(silent);
}

/// The messages of a peer that is gone are delivered first, and no more than its ring holds.
#[test]
fn a_peer_that_closes_its_socket_and_goes_on_writing_is_down_all_the_same() {
    let mut victim = shm(ShmConfig::default());
    let mut hostile = HostilePeer::connect_to(&mut victim, 1);
    hostile.socket = RawSocket(RawSocket::socket());
    let start = Instant::now();
    let reason = loop {
        assert!(start.elapsed() < PATIENCE, "it is never down");
        // There is a message at each poll.
        hostile.write_slot(8, b"still on");
        match poll(&mut victim) {
            Some(Owned::Message(_, None, bytes)) => assert_eq!(bytes, b"still on"),
            Some(Owned::Down(_, reason)) => break reason,
            None => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason, DownReason::Gone);
}

#[test]
fn silent_pending_connections_are_closed_in_time() {
    let connect_timeout = Duration::from_millis(100);
    let mut victim = shm(ShmConfig::default().connect_timeout(connect_timeout));
    let raw = RawSocket::connect(&victim.address()).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert!(victim.poll().is_none());
    }
    assert!(raw.receive().is_none(), "still connected");
}

/// A flood of connections that say nothing closes the connections of those that flood.
#[test]
fn the_oldest_silent_connections_make_room_for_later_ones() {
    let mut victim = shm(ShmConfig::default());
    let silent: Vec<RawSocket> =
        (0..70).map(|_| RawSocket::connect(&victim.address()).unwrap()).collect();
    let start = Instant::now();
    while !silent[5].is_hung_up() {
        assert!(start.elapsed() < PATIENCE, "the oldest ones are still connected");
        assert!(victim.poll().is_none());
    }
    let closed = silent.iter().position(|socket| !socket.is_hung_up());
    assert_eq!(closed, Some(6), "64 stay, the newest ones");
}

/// A process could give an address of its memory at which another one's nonce was, or none.
#[test]
fn memory_is_read_directly_only_where_the_nonce_is() {
    let nonce = Box::new([7u8; 16]);
    let nonce_address = nonce.as_ptr().addr() as u64;
    for (seed, nonce, mode) in [(1, [7; 16], ReadMode::Direct), (2, [8; 16], ReadMode::Copied)] {
        let mut victim = shm(ShmConfig::default());
        let greeting = hello(invented(&victim.address(), seed));
        let greeting = Hello { nonce_address, nonce: Nonce(nonce), ..greeting };
        let _hostile = HostilePeer::greet(&mut victim, &greeting);
        assert_eq!(victim.read_mode(PeerId(1)), mode);
    }
}

#[test]
fn a_peer_that_takes_no_fragments_is_announced_so() {
    for takes_fragments in [true, false] {
        let mut victim = shm(ShmConfig::default());
        let greeting = hello(invented(&victim.address(), 3));
        let rings = [memfd(greeting.geometry.pair_bytes(), SEALS), memfd(DOORBELL_BYTES, SEALS)];
        let raw = RawSocket::connect(&victim.address()).unwrap();
        let greeting = Hello { takes_fragments, ..greeting };
        raw.send(&greeting.emit(), &rings.each_ref().map(AsRawFd::as_raw_fd));
        let start = Instant::now();
        let limits = loop {
            if let Some(Event::PeerUp { limits, .. }) = victim.poll() {
                break limits;
            }
            assert!(start.elapsed() < PATIENCE);
        };
        assert_eq!((limits.message_max, limits.fragmented_max > 0), (1024, takes_fragments));
    }
}

#[test]
fn answers_that_break_rules() {
    let good = hello(invented(&shm(ShmConfig::default()).address(), 40));
    let doorbell = [memfd(DOORBELL_BYTES, SEALS)];
    let fds = doorbell.each_ref().map(AsRawFd::as_raw_fd);
    let refusal = HelloRefusal::Invalid.emit();
    let longer =
        |address| Hello { address, geometry: Geometry::new(1 << 28).unwrap(), ..good.clone() };
    // The last but one is right, but for another worker of the process. The last one has longer
    // rings than the memory of the pair has room for.
    for number in 0..5u8 {
        let mut victim = shm(ShmConfig::default());
        let liar = invented(&victim.address(), number + 50);
        let (answer, fds): (Vec<u8>, &[i32]) = match number {
            0 => (b"garbage".to_vec(), &[]),
            1 => (vec![0xff; 128], &[]),
            2 => (refusal.clone(), &[]),
            3 => (good.emit(), &fds),
            _ => (longer(liar).emit(), &fds),
        };
        let listener = RawSocket::listen(&liar);
        let peer = victim.connect(&liar).unwrap();
        let socket = listener.accept();
        assert_eq!(socket.receive().unwrap().1.len(), 3, "pair, doorbell, device");
        socket.send(&answer, fds);
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
    let fragment = |id, offset| ReadMessage::Fragment { id, offset }.emit().to_vec();
    let span = RemoteSpan { address: 1, key: 2, length: 3 };
    let cases: Vec<(u32, Vec<u8>, usize)> = vec![
        (INTERNAL, vec![], 1),
        (INTERNAL | 31, vec![0xff; 31], 1),
        (INTERNAL | 32, vec![0; 32], 1),
        (INTERNAL | 33, fragment(0, 0), 1),
        (INTERNAL | 40, fragment(7, 8), 1),
        (INTERNAL | 32, ReadMessage::End { id: 0, is_good: true }.emit().to_vec(), 1),
        (INTERNAL | 40, ReadMessage::Request { id: 0, span }.emit().to_vec(), 1),
        // More requests than a peer answers at a time.
        (INTERNAL | 32, ReadMessage::Request { id: 0, span }.emit().to_vec(), 250),
        (INTERNAL | 1 << 26, vec![], 1),
        // A whole lap is skipped.
        (INTERNAL | LAST, vec![], 1),
        (16449, vec![], 1),
        ((1 << 27) - 1, vec![], 1),
    ];
    for (seed, (meta, body, times)) in cases.into_iter().enumerate() {
        let mut bystanders = Bystanders::new(ShmConfig::default());
        let mut hostile = HostilePeer::connect(&mut bystanders, seed as u8);
        for _ in 0..times {
            hostile.write_slot(meta, &body);
        }
        if times == 1 {
            let reason = bystanders.wait_down();
            assert!(matches!(reason, DownReason::Misbehaved { .. }), "{meta:x}: {reason:?}");
        } else {
            let events = bystanders.exchange();
            assert!(events.iter().all(|event| matches!(event, Owned::Down(..))), "{events:?}");
        }
        assert!(bystanders.exchange().is_empty());
    }
}

#[test]
fn fragments_that_break_rules() {
    // While a read is under way: fragments at a wrong offset, too many bytes, too few, the same
    // twice.
    let end = ReadMessage::End { id: 0, is_good: true }.emit().to_vec();
    let with_bytes = |offset| {
        let mut all = ReadMessage::Fragment { id: 0, offset }.emit().to_vec();
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
        let config = ShmConfig::default().read(ReadPolicy::Copied);
        let mut bystanders = Bystanders::new(config);
        let mut hostile = HostilePeer::connect(&mut bystanders, seed as u8 + 100);
        let peer = PeerId(2);
        let remote = RemoteSpan { address: 4096, key: 1, length: 60 };
        let into = Buffer::zeroed(60);
        bystanders.victim.read(ReadRequest { peer, remote, into, token: 3 }).unwrap();
        for _ in 0..200 {
            assert!(bystanders.victim.poll().is_none());
        }
        for (meta, body) in slots {
            hostile.write_slot(meta, &body);
        }
        let mut is_back = false;
        wait_for(&mut [&mut bystanders.victim], "the end", |_, event| match event {
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
        assert!(bystanders.exchange().is_empty());
    }
}

#[test]
fn a_consumed_counter_that_cannot_be() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let hostile = HostilePeer::connect(&mut bystanders, 9);
    let peer = PeerId(2);
    HostilePeer::word(&hostile.memory, hostile.incoming.header).store(u64::MAX, Ordering::SeqCst);
    while bystanders.victim.send(peer, message(b"fill")).is_ok() {}
    assert!(matches!(bystanders.wait_down(), DownReason::Misbehaved { .. }));
    assert!(bystanders.exchange().is_empty());
}

/// The peer's messages say that it has read what nobody has written.
#[test]
fn a_message_that_frees_what_was_not_written() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let mut hostile = HostilePeer::connect(&mut bystanders, 12);
    let peer = PeerId(2);
    for claimed in [0, 1 << 20] {
        hostile.read = claimed;
        hostile.write_slot(4, b"word");
        next_message(&mut [&mut bystanders.victim]);
        // Each of these takes two lines. The writer looks what it was told once in a page.
        let sent = (0..100).all(|_| bystanders.victim.send(peer, message(&[1; 80])).is_ok());
        assert_eq!(sent, claimed == 0);
    }
    assert!(matches!(bystanders.wait_down(), DownReason::Misbehaved { .. }));
    assert!(bystanders.exchange().is_empty());
}

#[test]
fn a_writer_that_closes_its_socket_and_goes_on_writing_is_dropped() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let mut hostile = HostilePeer::connect(&mut bystanders, 13);
    // SAFETY: no pointers.
    unsafe { libc::shutdown(hostile.socket.0.as_raw_fd(), libc::SHUT_RDWR) };
    let start = Instant::now();
    let mut messages = 0;
    loop {
        while hostile.sent < messages + 8 {
            hostile.write_slot(4, b"more");
        }
        match poll(&mut bystanders.victim) {
            Some(Owned::Message(..)) => messages += 1,
            Some(Owned::Down(_, DownReason::Gone)) => break,
            None => assert!(start.elapsed() < PATIENCE),
            Some(other) => panic!("{other:?}"),
        }
        // Its end is noticed after a while.
        assert!(messages < 250_000, "messages for ever");
    }
    assert!(bystanders.exchange().is_empty());
}

#[test]
fn a_message_whose_doorbell_bit_was_cleared_is_found_by_polling() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let mut hostile = HostilePeer::connect(&mut bystanders, 14);
    for _ in 0..100 {
        assert!(bystanders.victim.poll().is_none());
    }
    hostile.write_quietly(5, b"quiet");
    let found = (0..100_000).find_map(|_| poll(&mut bystanders.victim));
    assert!(matches!(&found, Some(Owned::Message(_, _, bytes)) if bytes == b"quiet"), "{found:?}");
}

#[test]
fn nonsense_on_the_socket() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let hostile = HostilePeer::connect(&mut bystanders, 10);
    hostile.socket.send(b"whatever", &[]);
    assert!(matches!(bystanders.wait_down(), DownReason::Misbehaved { .. }));
    assert!(bystanders.exchange().is_empty());
}

#[test]
fn wakes_without_end_do_no_harm() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let hostile = HostilePeer::connect(&mut bystanders, 11);
    let name = ShmName::parse(&bystanders.victim.address()).unwrap().waker_name();
    let waker = WakeSocket::bind(b"of-a-hostile-peer", [0; 8]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                waker.wake(name.as_bytes(), hostile.theirs.wake_key);
            }
        });
        for _ in 0..200 {
            assert!(bystanders.exchange().is_empty());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A peer that knows the whole span of what was exposed to another, since it was told or has
/// guessed it, gets none of the bytes through its ring and loses its connection. The other one
/// reads on.
#[test]
fn memory_that_is_exposed_to_another_peer_is_not_copied() {
    let config = ShmConfig::default().read(ReadPolicy::Copied);
    let mut bystanders = Bystanders::new(config);
    let to_friend = bystanders.to_friend;
    let exposure = bystanders.victim.expose(to_friend, Buffer::from(vec![7; 5000])).unwrap();
    let mut hostile = HostilePeer::connect(&mut bystanders, 1);
    let request = ReadMessage::Request { id: 0, span: exposure.span }.emit();
    hostile.write_slot(INTERNAL | request.len() as u32, &request);
    let reason = bystanders.wait_down();
    assert!(
        matches!(reason, DownReason::Misbehaved { what } if what.contains("another peer")),
        "{reason:?}"
    );
    let Bystanders { victim, friend, to_victim, .. } = &mut bystanders;
    let remote = exposure.span;
    let into = Buffer::zeroed(5000);
    friend.read(ReadRequest { peer: *to_victim, remote, into, token: 1 }).unwrap();
    let into = read_end(&mut [victim, friend]).0;
    assert!(into[..] == [7; 5000]);
    assert!(bystanders.exchange().is_empty());
}

/// A peer writes random words into all memory that it can write, while the worker sends, reads and
/// sleeps.
#[test]
fn random_words_in_all_shared_memory() {
    let read = [ReadPolicy::Auto, ReadPolicy::Copied];
    let mut ends = 0;
    for seed in 0..24u8 {
        let config =
            ShmConfig::default().read(read[usize::from(seed % 2)]).membarrier(seed % 3 != 0);
        let mut bystanders = Bystanders::new(config);
        let exposure = bystanders.victim.expose(READER, Buffer::zeroed(100_000)).unwrap();
        let hostile = HostilePeer::connect(&mut bystanders, seed);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(seed.into());
                while !stop.load(Ordering::Relaxed) {
                    let place = random.bits();
                    let value = random.bits();
                    let all = hostile.memory.len();
                    let (map, from, length) = match place % 8 {
                        0 => (&hostile.doorbell, 0, DOORBELL_BYTES),
                        1 => (&hostile.memory, hostile.incoming.header, 512),
                        2 => (&hostile.memory, 0, all),
                        3 => (&hostile.memory, 0, 4096),
                        4 => (&hostile.memory, hostile.outgoing.short, 1024),
                        _ => (&hostile.memory, hostile.outgoing.long, 64 * 64),
                    };
                    let at = from + usize::try_from(place >> 8).unwrap() % (length / 8) * 8;
                    // Every second word of a slot is that of a message of an allowed length.
                    let is_slot = place % 8 > 3 && at.is_multiple_of(64);
                    let value = if is_slot && value & 1 == 0 {
                        let flags = (value & 2) << 60 | (value & 4) << 57 | 1 << 63;
                        flags | (value >> 50) << 32 | value >> 8 & 0x3f
                    } else {
                        value
                    };
                    HostilePeer::word(map, at).store(value, Ordering::Relaxed);
                }
            });
            let start = Instant::now();
            let peer = PeerId(2);
            for round in 0..300u64 {
                for event in bystanders.exchange() {
                    ends += usize::from(matches!(event, Owned::Down(..)));
                }
                let _ = bystanders.victim.send(peer, message(&pattern(1, 700)));
                let remote = exposure.span;
                let into = Buffer::zeroed(100_000);
                let _ = bystanders.victim.read(ReadRequest { peer, remote, into, token: round });
                if bystanders.victim.arm(&[peer]) {
                    bystanders.victim.disarm();
                }
            }
            assert!(start.elapsed() < 2 * PATIENCE);
            stop.store(true, Ordering::Relaxed);
        });
        while poll(&mut bystanders.victim).is_some() {}
    }
    assert!(ends > 0, "no peer was ever caught");
}
