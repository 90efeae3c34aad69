//! Reads of memory of the peer's device, which is mapped: what is read, whose bytes they are, and
//! peers that offer memory against the rules.

mod common;
#[allow(dead_code, reason = "a part of it")]
mod hostile_peer;

use std::fs;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use tagmatch_device::{
    Buffer, Device, DownReason, Exposure, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_shm::fuzzing::{
    DEVICE_MEMORY_HEADER_BYTES, HandshakePacket, Hello, HelloRefusal, OfferedMemory,
};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

use common::{
    Other, Owned, READER, connect, message, next_down, pattern, poll, read_end, role, say, shm,
    wait_for, wait_up,
};
use hostile_peer::{
    Bystanders, DOORBELL_BYTES, HostilePeer, RawSocket, SEALS, hello, invented, memfd,
};

/// Nobody but the mapping can read these: the worker may not read the peer's memory by the kernel.
fn config() -> ShmConfig {
    ShmConfig::default().read(ReadPolicy::Copied)
}

fn filled(device: &mut Shm, seed: usize, length: usize) -> Buffer {
    let mut buffer = device.allocate(length).unwrap();
    buffer.as_mut_slice().unwrap().copy_from_slice(&pattern(seed, length));
    buffer
}

fn expose(device: &mut Shm, seed: usize, length: usize) -> Exposure {
    let buffer = filled(device, seed, length);
    device.expose(READER, buffer).unwrap()
}

fn start(device: &mut Shm, peer: PeerId, remote: RemoteSpan, token: u64) {
    let into = Buffer::zeroed(usize::try_from(remote.length).unwrap());
    device.read(ReadRequest { peer, remote, into, token }).unwrap();
}

/// Polls the reader alone until its read ends.
fn end(device: &mut Shm) -> (Buffer, Result<(), ReadError>) {
    read_end(&mut [device])
}

fn read(device: &mut Shm, peer: PeerId, span: RemoteSpan) -> (Buffer, Result<(), ReadError>) {
    start(device, peer, span, 1);
    end(device)
}

#[test]
fn large_buffers_of_the_device_are_read_without_the_peers_progress() {
    for read_policy in [ReadPolicy::Copied, ReadPolicy::Direct] {
        let config = config().read(read_policy);
        let mut a = shm(config.clone());
        let mut b = shm(config);
        let (to_b, _) = connect(&mut a, &mut b);
        for length in [32768, 65537, 1 << 20, (5 << 20) + 3] {
            let Exposure { id, span } = expose(&mut b, length, length);
            let (into, result) = read(&mut a, to_b, span);
            assert_eq!(result, Ok(()));
            assert!(into[..] == pattern(length, length)[..]);
            let part = RemoteSpan { address: span.address + 7, length: 100, ..span };
            assert_eq!(read(&mut a, to_b, part).0[..], pattern(length, length)[7..107]);
            assert_eq!(b.withdraw(READER, id).unwrap().len(), length);
        }
    }
}

#[test]
fn a_buffer_that_is_used_again_sends_its_new_bytes() {
    let mut a = shm(config());
    let mut b = shm(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let mut buffer = filled(&mut b, 0, 100_000);
    let start = buffer.as_ptr();
    for seed in 0..50 {
        buffer.as_mut_slice().unwrap().copy_from_slice(&pattern(seed, 100_000));
        let Exposure { id, span } = b.expose(READER, buffer).unwrap();
        let (into, result) = read(&mut a, to_b, span);
        assert!(result == Ok(()) && into[..] == pattern(seed, 100_000)[..]);
        // The memory of a dropped buffer is given out again.
        drop(b.withdraw(READER, id).unwrap());
        buffer = b.allocate(100_000).unwrap();
        assert_eq!(buffer.as_ptr(), start);
    }
}

#[test]
fn beyond_the_bound_there_is_ordinary_memory() {
    let config = config().device_memory_bytes(1 << 20);
    let mut a = shm(config.clone());
    let mut b = shm(config);
    let (to_b, _) = connect(&mut a, &mut b);
    let kept: Vec<_> = (0..13).map(|seed| filled(&mut b, seed, 1 << 16)).collect();
    let large = filled(&mut b, 90, 1 << 20);
    let next = filled(&mut b, 91, 1 << 16);
    for (buffer, seed, length) in [(large, 90, 1 << 20), (next, 91, 1 << 16)] {
        let span = b.expose(READER, buffer).unwrap().span;
        start(&mut a, to_b, span, 1);
        let (into, result) = read_end(&mut [&mut a, &mut b]);
        assert!(result == Ok(()) && into[..] == pattern(seed, length)[..]);
    }
    for (seed, buffer) in kept.into_iter().enumerate() {
        assert!(buffer[..] == pattern(seed, 1 << 16)[..]);
        let span = b.expose(READER, buffer).unwrap().span;
        let (into, result) = read(&mut a, to_b, span);
        assert!(result == Ok(()) && into[..] == pattern(seed, 1 << 16)[..]);
    }
}

#[test]
fn workers_with_different_bounds_read_from_each_other() {
    let bytes = |device_memory_bytes| shm(config().device_memory_bytes(device_memory_bytes));
    for (mut a, mut b) in [(bytes(0), bytes(1 << 20)), (bytes(2 << 20), bytes(1 << 20))] {
        let (to_b, to_a) = connect(&mut a, &mut b);
        for is_forth in [true, false] {
            let owner = if is_forth { &mut b } else { &mut a };
            let span = expose(owner, 5, 100_000).span;
            let (reader, peer) = if is_forth { (&mut a, to_b) } else { (&mut b, to_a) };
            start(reader, peer, span, 1);
            wait_for(&mut [&mut a, &mut b], "a read", |_, event| match event {
                Owned::ReadDone(_, into, Ok(())) => {
                    (into[..] == pattern(5, 100_000)[..]).then_some(())
                }
                other => panic!("{other:?}"),
            });
        }
    }
}

/// Polls so often that the first part of a read of 4 MiB is done, and not all.
fn read_a_part(device: &mut Shm) {
    assert!(device.poll().is_none() && device.poll().is_none());
}

#[test]
fn a_read_fails_if_its_owner_lets_go_of_the_buffer_meanwhile() {
    for by_disconnecting in [false, true] {
        let mut a = shm(config());
        let mut b = shm(config());
        let (to_b, to_a) = connect(&mut a, &mut b);
        let Exposure { id, span } = expose(&mut b, 1, 4 << 20);
        start(&mut a, to_b, span, 1);
        read_a_part(&mut a);
        let mut kept = None;
        if by_disconnecting {
            b.disconnect(to_a);
            kept = b.withdraw(READER, id);
            kept.as_mut().unwrap().as_mut_slice().unwrap().fill(0);
        } else {
            drop(b);
        }
        assert_eq!(end(&mut a).1, Err(ReadError::PeerDown));
        assert_eq!(next_down(&mut a).1, DownReason::Left);
        drop(kept);
    }
}

/// The inode numbers of the devices' memory that this process maps.
fn mapped() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().filter(|line| line.contains("tagmatch-memory"));
    lines.map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect()
}

#[test]
fn a_peer_that_is_killed_leaves_its_bytes_to_a_read_and_nothing_behind() {
    let test = "a_peer_that_is_killed_leaves_its_bytes_to_a_read_and_nothing_behind";
    if role().is_some() {
        let mut shm = shm(config());
        let span = expose(&mut shm, 3, 4 << 20).span;
        say(shm.address());
        say(span.address);
        say(&mapped()[0]);
        loop {
            poll(&mut shm);
        }
    }
    let mut other = Other::spawn(test, "owner");
    let address = other.hear_address();
    let span = RemoteSpan { address: other.hear().parse().unwrap(), key: 0, length: 4 << 20 };
    let inode = other.hear();
    let mut own = shm(config());
    let peer = own.connect(&address).unwrap();
    wait_up(&mut own, peer);
    assert!(mapped().contains(&inode));
    start(&mut own, peer, span, 1);
    read_a_part(&mut own);
    other.kill();
    let (into, result) = end(&mut own);
    assert!(result == Err(ReadError::PeerDown) || into[..] == pattern(3, 4 << 20)[..]);
    assert_eq!(next_down(&mut own).1, DownReason::Gone);
    assert!(!mapped().contains(&inode), "the memory of the dead peer is still mapped");
}

#[test]
fn a_forked_child_that_drops_a_buffer_frees_none_of_the_parents() {
    let mut device = shm(config());
    let mut buffer = Some(device.allocate(100_000).unwrap());
    let start = buffer.as_ref().unwrap().as_ptr();
    // SAFETY: the child has this thread only. It drops its copy and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(buffer.take());
        let again = device.allocate(100_000);
        let is_other = again.is_some_and(|again| again.as_ptr() != start);
        // SAFETY: no pointers.
        unsafe { libc::_exit(i32::from(!is_other)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has given the memory back");
    assert_eq!(buffer.unwrap().len(), 100_000);
}

const LENGTH: usize = 8 << 20;
const ADDRESS: u64 = 1 << 32;
/// What stands before the buffers.
const HEADER: u64 = DEVICE_MEMORY_HEADER_BYTES as u64;

fn sealed(fd: &OwnedFd, seals: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
}

fn offer(like: &Shm, seed: u8) -> Hello {
    let memory = OfferedMemory { address: ADDRESS, length: LENGTH as u64, generation: 0 };
    Hello { memory: Some(memory), ..hello(invented(&like.address(), seed)) }
}

/// A hostile peer that offers memory, which it can write.
fn hostile(bystanders: &mut Bystanders) -> (HostilePeer, MmapRaw) {
    let memory = memfd(LENGTH, 0);
    let map = MmapOptions::new().len(LENGTH).map_raw(&memory).unwrap();
    sealed(&memory, SEALS | libc::F_SEAL_FUTURE_WRITE);
    let offer = offer(&bystanders.victim, 1);
    let peer = HostilePeer::greet_with(&mut bystanders.victim, &offer, &[memory.as_raw_fd()]);
    (peer, map)
}

#[test]
fn memory_that_breaks_a_rule_is_refused_with_its_hello() {
    let mut bystanders = Bystanders::new(config());
    let victim = bystanders.victim.address();
    let good = offer(&bystanders.victim, 1);
    let rings = [memfd(good.geometry.pair_bytes(), SEALS), memfd(DOORBELL_BYTES, SEALS)];
    let rings = rings.each_ref().map(AsRawFd::as_raw_fd);
    let writable = memfd(LENGTH, SEALS);
    let unsealed = memfd(LENGTH, libc::F_SEAL_FUTURE_WRITE);
    let short = memfd(LENGTH - 4096, SEALS | libc::F_SEAL_FUTURE_WRITE);
    let right = memfd(LENGTH, SEALS | libc::F_SEAL_FUTURE_WRITE);
    let length = |length| {
        let memory = OfferedMemory { address: ADDRESS, length, generation: 0 };
        Hello { memory: Some(memory), ..good.clone() }
    };
    let without = Hello { memory: None, ..good.clone() };
    for (hello, fd) in [
        (&good, Some(&unsealed)),
        (&good, Some(&short)),
        (&good, None),
        (&without, Some(&right)),
        (&length(4096), Some(&right)),
        (&length(u64::MAX), Some(&right)),
    ] {
        let raw = RawSocket::connect(&victim).unwrap();
        let fds: Vec<_> = rings.into_iter().chain(fd.map(AsRawFd::as_raw_fd)).collect();
        raw.send(&hello.emit(), &fds);
        while !raw.is_hung_up() {
            assert!(bystanders.exchange().is_empty(), "accepted");
        }
        // A hello that can't be parsed gets no answer.
        if let Some((answer, _)) = raw.receive() {
            let refusal = HandshakePacket::Refusal(HelloRefusal::Invalid);
            assert_eq!(HandshakePacket::parse(&answer), Ok(refusal));
        }
    }
    // The rules don't refuse what is right, whether peers may write it or not.
    HostilePeer::greet_with(&mut bystanders.victim, &good, &[right.as_raw_fd()]);
    let other = offer(&bystanders.victim, 2);
    HostilePeer::greet_with(&mut bystanders.victim, &other, &[writable.as_raw_fd()]);
}

#[test]
fn a_span_that_is_not_inside_is_not_read_from_the_mapping() {
    let mut bystanders = Bystanders::new(config());
    let (hostile, map) = hostile(&mut bystanders);
    let peer = PeerId(2);
    assert_eq!(bystanders.victim.read_mode(peer), ReadMode::Copied);
    HostilePeer::word(&map, LENGTH - 8).store(0x0807_0605_0403_0201, Ordering::Relaxed);
    let last = RemoteSpan { address: ADDRESS + LENGTH as u64 - 8, key: 0, length: 8 };
    let (into, result) = read(&mut bystanders.victim, peer, last);
    assert_eq!((result, &into[..]), (Ok(()), &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    let first = RemoteSpan { address: ADDRESS + HEADER, key: 0, length: 8 };
    assert_eq!(read(&mut bystanders.victim, peer, first).1, Ok(()));
    // The peer is asked for other spans, and doesn't answer.
    let outside = [
        RemoteSpan { length: 9, ..last },
        RemoteSpan { address: last.address + 1, ..last },
        RemoteSpan { address: last.address + 9, length: 0, ..last },
        RemoteSpan { address: ADDRESS + HEADER - 1, ..first },
        RemoteSpan { address: ADDRESS, ..first },
        RemoteSpan { address: ADDRESS - 1, ..first },
        RemoteSpan { address: u64::MAX - 8, ..first },
    ];
    for (token, span) in outside.into_iter().enumerate() {
        start(&mut bystanders.victim, peer, span, token as u64);
    }
    for _ in 0..20 {
        assert!(bystanders.exchange().is_empty());
    }
    drop(hostile);
    let mut ended = 0;
    wait_for(&mut [&mut bystanders.victim], "the peer's end", |_, event| match event {
        Owned::ReadDone(_, _, Err(ReadError::PeerDown)) => {
            ended += 1;
            None
        }
        Owned::Down(..) => Some(()),
        other => panic!("{other:?}"),
    });
    assert_eq!(ended, outside.len());
}

#[test]
fn a_generation_that_ends_at_any_time_fails_the_read_and_nothing_else() {
    // Before the first byte is read, between two parts, and by words that are far from right.
    for (polls, word) in [(0, 1), (2, 1), (2, u64::MAX)] {
        let mut bystanders = Bystanders::new(config());
        let (_hostile, map) = hostile(&mut bystanders);
        let span = RemoteSpan { address: ADDRESS + HEADER, key: 0, length: 4 << 20 };
        start(&mut bystanders.victim, PeerId(2), span, 1);
        for _ in 0..polls {
            assert!(bystanders.victim.poll().is_none());
        }
        HostilePeer::word(&map, 0).store(word, Ordering::SeqCst);
        assert_eq!(end(&mut bystanders.victim).1, Err(ReadError::PeerDown));
        assert!(bystanders.exchange().is_empty());
        bystanders.victim.send(PeerId(2), message(b"still up")).unwrap();
    }
}

/// The owner ends a generation and writes its buffer, from the end on, while the peer reads it. No
/// read succeeds with bytes of two uses.
#[test]
fn no_read_succeeds_with_bytes_of_two_uses() {
    const READ: usize = 4 << 20;
    const FIRST: usize = DEVICE_MEMORY_HEADER_BYTES / 8;
    const WORDS: Range<usize> = FIRST..FIRST + READ / 8;
    let mut bystanders = Bystanders::new(config());
    let (_hostile, map) = hostile(&mut bystanders);
    let span = RemoteSpan { address: ADDRESS + HEADER, key: 0, length: READ as u64 };
    let word = |at| HostilePeer::word(&map, at * 8);
    let mut failed = 0;
    for round in 0..30u64 {
        WORDS.for_each(|at| word(at).store(round, Ordering::Relaxed));
        word(0).store(0, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                word(0).store(1, Ordering::Relaxed);
                fence(Ordering::Release);
                WORDS.rev().for_each(|at| word(at).store(!0, Ordering::Relaxed));
            });
            let (into, result) = read(&mut bystanders.victim, PeerId(2), span);
            if result == Ok(()) {
                assert!(into.chunks(8).all(|chunk| chunk == round.to_ne_bytes()));
            } else {
                failed += 1;
            }
        });
    }
    println!("{failed} of 30 reads failed");
}
