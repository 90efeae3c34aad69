//! Reads of a peer's exposed memory.

use std::collections::VecDeque;
use std::sync::Arc;

use tagmatch_device::{
    Buffer, Device, DownReason, ExposureId, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};

use super::Fixture;
use crate::device::{Owned, READER, connect, message, pattern, poll, send, wait_for};

/// Memory that a worker allocates has the length that was asked for, and peers read it.
///
/// # Panics
/// If the device breaks this promise.
pub fn peers_read_memory_that_a_worker_allocates<F: Fixture>() {
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    for length in [0, 1, 5000, 1 << 20] {
        let read = |owner: &mut F::Device, buffer, reader: &mut F::Device, peer| {
            let exposure = owner.expose(READER, buffer).unwrap();
            let into = reader.allocate(length).unwrap();
            let request = ReadRequest { peer, remote: exposure.span, into, token: 7 };
            reader.read(request).unwrap();
            let into = wait_for(&mut [owner, reader], "the read", |_, event| match event {
                Owned::ReadDone(7, into, Ok(())) => Some(into),
                other => panic!("{other:?}"),
            });
            assert_eq!(owner.withdraw(READER, exposure.id).unwrap().len(), length);
            into
        };
        let there = read(&mut a, Buffer::from(pattern(length, length)), &mut b, to_a);
        let back = read(&mut b, there, &mut a, to_b);
        assert!(back[..] == pattern(length, length));
    }
}

/// Two devices that are connected, and the number of the second one on the first, and of the first
/// one on the second.
fn pair<F: Fixture>() -> (F::Device, F::Device, PeerId, PeerId) {
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert_eq!((a.read_mode(to_b), b.read_mode(to_a)), (F::READ_MODE, F::READ_MODE));
    (a, b, to_b, to_a)
}

/// Reads into `size` bytes, and gives the buffer and the result, whenever they come back.
fn read<D: Device>(
    a: &mut D,
    b: &mut D,
    peer: PeerId,
    remote: RemoteSpan,
    size: usize,
) -> (Buffer, Result<(), ReadError>) {
    let into = Buffer::zeroed(size);
    let (into, result) = match a.read(ReadRequest { peer, remote, into, token: 77 }) {
        Err((into, error)) => (into, Err(error)),
        Ok(()) => wait_for(&mut [a, b], "a read", |index, event| match (index, event) {
            (0, Owned::ReadDone(77, into, result)) => Some((into, result)),
            other => panic!("{other:?}"),
        }),
    };
    assert_eq!(into.len(), size);
    (into, result)
}

/// A read brings the bytes of its span, whatever their number, and changes no others.
///
/// # Panics
/// If the device breaks this promise.
pub fn reads_of_every_size_arrive<F: Fixture>() {
    const PIECE: usize = 64 << 10;
    let short = [0, 1, 7, 8, 55, 56, 57, 63, 64, 65, 511, 512, 513, 4096, 32768];
    let long = [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 1 << 20, (5 << 20) + 3];
    let (mut a, mut b, to_b, to_a) = pair::<F>();
    for size in short.into_iter().chain(long) {
        let bytes = pattern(size, size + 20);
        let exposure = b.expose(to_a, Buffer::from(bytes.clone())).unwrap();
        let address = exposure.span.address + 10;
        let length = size as u64;
        let remote = RemoteSpan { address, length, ..exposure.span };
        let (into, result) = read(&mut a, &mut b, to_b, remote, size + 5);
        assert_eq!(result, Ok(()));
        assert!(into[..size] == bytes[10..10 + size] && into[size..] == [0; 5]);
        assert_eq!(b.withdraw(to_a, exposure.id).unwrap().len(), size + 20);
    }
}

/// A read of memory that isn't exposed fails, and the connection stays.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_bad_span_fails_its_read_and_no_other<F: Fixture>() {
    let (mut a, mut b, to_b, to_a) = pair::<F>();
    let span = b.expose(to_a, Buffer::from(pattern(1, 1000))).unwrap().span;
    let mut bad = vec![
        (RemoteSpan { address: 16, length: 100, ..span }, 100),
        (RemoteSpan { address: u64::MAX - 5000, length: 4000, key: 0 }, 4000),
        (RemoteSpan { address: u64::MAX, length: 1, ..span }, 1000),
        (RemoteSpan { address: u64::MAX, ..span }, 1000),
        (RemoteSpan { length: u64::MAX, ..span }, 1000),
        (span, 999),
    ];
    // A direct read asks the kernel, which knows the process's memory and no exposures.
    if F::READ_MODE == ReadMode::Copied {
        bad.push((RemoteSpan { key: span.key ^ 7, ..span }, 1000));
        bad.push((RemoteSpan { length: 1001, ..span }, 1001));
        bad.push((RemoteSpan { address: span.address - 1, ..span }, 1000));
    }
    for (remote, size) in bad {
        assert_eq!(
            read(&mut a, &mut b, to_b, remote, size).1,
            Err(ReadError::BadSpan),
            "{remote:?}"
        );
    }
    let shared = Buffer::from(Arc::<[u8]>::from(vec![0; 1000]));
    let request = ReadRequest { peer: to_b, remote: span, into: shared, token: 0 };
    assert!(matches!(a.read(request), Err((_, ReadError::Failed { .. }))));
    let (into, result) = read(&mut a, &mut b, to_b, span, 1000);
    assert!(result == Ok(()) && into[..] == pattern(1, 1000)[..]);
    b.send(to_a, message(b"still here")).unwrap();
    wait_for(&mut [&mut a, &mut b], "a message", |_, event| {
        matches!(event, Owned::Message(..)).then_some(())
    });
}

/// More reads than a peer may have under way, and messages in both directions, disturb each other
/// in nothing.
///
/// # Panics
/// If the device breaks this promise.
pub fn reads_and_messages_go_on_side_by_side<F: Fixture>() {
    const READS: u64 = 100;
    const LENGTH: usize = 300_000;
    let messages = F::MESSAGES / 20;
    let (a, b, to_b, to_a) = pair::<F>();
    let mut workers = [a, b];
    let peers = [to_b, to_a];
    let exposed = pattern(9, LENGTH);
    let spans = workers
        .each_mut()
        .map(|worker| worker.expose(READER, Buffer::from(exposed.clone())).unwrap().span);
    let part = |token: u64| 3000 * token % 150_000;
    let mut started = [0; 2];
    let mut ended = [0; 2];
    let mut sent = [0; 2];
    let mut received = [0; 2];
    let start = std::time::Instant::now();
    while ended != [READS; 2] || received != [messages; 2] {
        for me in [0, 1] {
            let worker = &mut workers[me];
            let peer = peers[me];
            if started[me] < READS {
                let token = started[me];
                let other = spans[1 - me];
                let length = part(token);
                let remote = RemoteSpan { address: other.address + length, length, ..other };
                let into = Buffer::zeroed(LENGTH);
                worker.read(ReadRequest { peer, remote, into, token }).unwrap();
                started[me] += 1;
            }
            let bytes = pattern(sent[me], sent[me] % 1000);
            if sent[me] < messages && worker.send(peer, message(&bytes)).is_ok() {
                sent[me] += 1;
            }
            match poll(worker) {
                Some(Owned::Message(_, _, bytes)) => {
                    assert!(bytes == pattern(received[me], received[me] % 1000));
                    received[me] += 1;
                }
                Some(Owned::ReadDone(token, into, Ok(()))) => {
                    let length = usize::try_from(part(token)).unwrap();
                    assert!(into[..length] == exposed[length..2 * length]);
                    ended[me] += 1;
                }
                None => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(start.elapsed() < 5 * crate::device::PATIENCE, "{ended:?} {received:?}");
    }
}

/// Whichever side ends the connection, and however: each read's buffer comes back once, before the
/// report of the end.
///
/// # Panics
/// If the device breaks this promise.
pub fn buffers_of_reads_come_back_at_the_end<F: Fixture>() {
    const LENGTH: usize = 4 << 20;
    for end in ["the reader disconnects", "the owner disconnects", "the owner leaves"] {
        let (mut a, mut b, to_b, to_a) = pair::<F>();
        let remote = b.expose(to_a, Buffer::from(vec![1; LENGTH])).unwrap().span;
        let mut under_way: VecDeque<u64> = (0..80).collect();
        for token in &under_way {
            let into = Buffer::zeroed(LENGTH);
            a.read(ReadRequest { peer: to_b, remote, into, token: *token }).unwrap();
        }
        let mut failed = 0;
        let mut back = |under_way: &mut VecDeque<u64>, event| {
            let Owned::ReadDone(token, into, result) = event else { panic!("{event:?}") };
            let at = under_way.iter().position(|other| *other == token);
            under_way.remove(at.expect("a read that is under way"));
            failed += usize::from(result.is_err());
            assert_eq!(into.len(), LENGTH);
            assert!(matches!(result, Ok(()) | Err(ReadError::PeerDown)), "{end}: {result:?}");
            assert!(result.is_err() || into.iter().all(|byte| *byte == 1));
        };
        for _ in 0..20 {
            assert!(b.poll().is_none());
            if let Some(event) = poll(&mut a) {
                back(&mut under_way, event);
            }
        }
        let mut other = Some(b);
        match end {
            "the reader disconnects" => a.disconnect(to_b),
            "the owner disconnects" => other.as_mut().unwrap().disconnect(to_a),
            _ => drop(other.take()),
        }
        let mut all: Vec<&mut F::Device> = [&mut a].into_iter().chain(other.as_mut()).collect();
        let reason = wait_for(&mut all, end, |index, event| match event {
            Owned::Down(peer, reason) if index == 0 => Some((peer, reason)),
            event if index == 0 => {
                back(&mut under_way, event);
                None
            }
            Owned::Down(..) => None,
            other => panic!("{other:?}"),
        });
        let by_reader = end == "the reader disconnects";
        let expected = if by_reader { DownReason::Disconnected } else { DownReason::Left };
        assert_eq!(reason, (to_b, expected), "{end}");
        assert!(under_way.is_empty(), "{end}: {under_way:?}");
        assert!(failed > 0, "{end}: all 80 reads had ended before");
    }
}

/// The owner takes a buffer back while it is read, and exposes the same memory anew, with other
/// bytes: the read fails, and gets none of these.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes<F: Fixture>() {
    const LENGTH: usize = 64 << 20;
    let (mut a, mut b, to_b, to_a) = pair::<F>();
    let exposure = b.expose(to_a, Buffer::from(vec![1; LENGTH])).unwrap();
    let remote = exposure.span;
    let into = Buffer::zeroed(LENGTH);
    a.read(ReadRequest { peer: to_b, remote, into, token: 5 }).unwrap();
    for _ in 0..5 {
        assert!(b.poll().is_none() && a.poll().is_none());
    }
    let mut buffer = b.withdraw(to_a, exposure.id).unwrap();
    buffer.room().unwrap().fill(&vec![9; LENGTH]);
    let again = b.expose(to_a, buffer).unwrap();
    assert_eq!(again.span.address, exposure.span.address);
    let into = wait_for(&mut [&mut b, &mut a], "the read", |_, event| match event {
        Owned::ReadDone(5, into, Err(ReadError::BadSpan)) => Some(into),
        other => panic!("{other:?}"),
    });
    assert!(into.len() == LENGTH && !into.contains(&9));
    let (_, result) = read(&mut a, &mut b, to_b, exposure.span, LENGTH);
    assert_eq!(result, Err(ReadError::BadSpan), "the exposure has ended");
    let (into, result) = read(&mut a, &mut b, to_b, again.span, LENGTH);
    assert!(result == Ok(()) && into.iter().all(|byte| *byte == 9));
    send(&mut b, to_a, message(b"still here"), || {});
    wait_for(&mut [&mut a, &mut b], "a message", |_, event| {
        matches!(event, Owned::Message(..)).then_some(())
    });
}

/// A withdrawn buffer comes back once, with its bytes. Numbers that were never given are refused.
///
/// # Panics
/// If the device breaks this promise.
pub fn withdrawn_buffers_are_returned_once<F: Fixture>() {
    let (mut a, _b, to_b, _) = pair::<F>();
    let mut exposed = VecDeque::new();
    for number in 0..F::MESSAGES / 20 {
        let id = a.expose(to_b, Buffer::from(pattern(number, 16))).unwrap().id;
        exposed.push_back((number, id));
        if number % 3 == 0 {
            let (number, id) = exposed.pop_front().unwrap();
            assert!(a.withdraw(to_b, id).unwrap()[..] == pattern(number, 16)[..]);
            assert!(a.withdraw(to_b, id).is_none());
        }
        if exposed.len() > 100 {
            let (number, id) = exposed.pop_back().unwrap();
            assert!(a.withdraw(to_b, id).unwrap()[..] == pattern(number, 16)[..]);
        }
    }
    assert!(a.withdraw(to_b, ExposureId(u32::MAX)).is_none());
}

/// Memory of a peer that is not connected yet, or that nobody knows, can't be read.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_read_from_a_peer_that_is_not_up_is_refused<F: Fixture>() {
    let mut a = F::usual();
    let b = F::usual();
    let to_b = a.connect(&b.address()).unwrap();
    let remote = RemoteSpan { address: 0, key: 0, length: 0 };
    for peer in [to_b, PeerId(1000)] {
        let into = Buffer::zeroed(1);
        let refused = a.read(ReadRequest { peer, remote, into, token: 0 });
        assert!(matches!(refused, Err((back, _)) if back.len() == 1));
        assert_eq!(a.read_mode(peer), ReadMode::Unknown);
    }
}
