//! Reads of a peer's memory, directly and by copying.

mod common;

use std::collections::VecDeque;

use tagmatch_device::{
    Buffer, Device, DownReason, ExposureId, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

use common::{Owned, READER, connect, message, pattern, poll, shm, wait_for};

fn pair(read: ReadPolicy, config: &ShmConfig) -> (Shm, Shm, PeerId, PeerId) {
    let config = ShmConfig { read, ..config.clone() };
    let (mut a, mut b) = (shm(config.clone()), shm(config));
    let (to_b, to_a) = connect(&mut a, &mut b);
    let mode = if read == ReadPolicy::Copied { ReadMode::Copied } else { ReadMode::Direct };
    assert_eq!((a.read_mode(to_b), b.read_mode(to_a)), (mode, mode));
    (a, b, to_b, to_a)
}

fn read(
    a: &mut Shm,
    b: &mut Shm,
    peer: PeerId,
    remote: RemoteSpan,
    size: usize,
) -> (Buffer, Result<(), ReadError>) {
    let into = Buffer::zeroed(size);
    a.read(ReadRequest { peer, remote, into, token: 77 }).unwrap();
    wait_for(&mut [a, b], "a read", |index, event| match (index, event) {
        (0, Owned::ReadDone(77, into, result)) => Some((into, result)),
        other => panic!("{other:?}"),
    })
}

fn small() -> ShmConfig {
    ShmConfig { ring_slots: 8, ring_bytes: 4096, message_max: 1024, ..ShmConfig::default() }
}

#[test]
fn reads_of_every_size_arrive_direct_and_copied() {
    for config in [ShmConfig::default(), small()] {
        for policy in [ReadPolicy::Direct, ReadPolicy::Copied] {
            let (mut a, mut b, to_b, _) = pair(policy, &config);
            let sizes = [0, 1, 7, 8, 55, 56, 57, 63, 64, 65, 511, 512, 513, 4096, 32768, 100_000];
            for size in sizes.into_iter().chain([1 << 20, (5 << 20) + 3]) {
                let bytes = pattern(size, size + 20);
                let exposure = b.expose(READER, Buffer::from(bytes.clone())).unwrap();
                let remote = RemoteSpan {
                    address: exposure.span.address + 10,
                    length: size as u64,
                    ..exposure.span
                };
                let (into, result) = read(&mut a, &mut b, to_b, remote, size + 5);
                assert_eq!(result, Ok(()));
                assert!(into[..size] == bytes[10..10 + size] && into[size..] == [0; 5]);
                assert_eq!(b.withdraw(READER, exposure.id).unwrap().len(), size + 20);
            }
        }
    }
}

#[test]
fn a_bad_span_fails_its_read_and_no_other() {
    for policy in [ReadPolicy::Direct, ReadPolicy::Copied] {
        let (mut a, mut b, to_b, to_a) = pair(policy, &ShmConfig::default());
        let exposure = b.expose(READER, Buffer::from(pattern(1, 1000))).unwrap();
        let span = exposure.span;
        let nowhere = RemoteSpan { address: 16, key: span.key, length: 100 };
        assert_eq!(read(&mut a, &mut b, to_b, nowhere, 100).1, Err(ReadError::BadSpan));
        let top = RemoteSpan { address: u64::MAX - 5000, length: 4000, key: 0 };
        assert_eq!(read(&mut a, &mut b, to_b, top, 4000).1, Err(ReadError::BadSpan));
        if policy == ReadPolicy::Copied {
            let wrong_key = RemoteSpan { key: span.key ^ 7, ..span };
            assert_eq!(read(&mut a, &mut b, to_b, wrong_key, 1000).1, Err(ReadError::BadSpan));
            let too_long = RemoteSpan { length: 1001, ..span };
            assert_eq!(read(&mut a, &mut b, to_b, too_long, 1001).1, Err(ReadError::BadSpan));
        }
        for (remote, size) in [
            (RemoteSpan { address: u64::MAX, ..span }, 1000),
            (RemoteSpan { length: u64::MAX, ..span }, 1000),
            (span, 999),
        ] {
            let into = Buffer::zeroed(size);
            let refused = a.read(ReadRequest { peer: to_b, remote, into, token: 0 });
            assert!(matches!(refused, Err((back, ReadError::BadSpan)) if back.len() == size));
        }
        let shared = Buffer::from(std::sync::Arc::<[u8]>::from(vec![0; 1000]));
        let request = ReadRequest { peer: to_b, remote: span, into: shared, token: 0 };
        assert!(matches!(a.read(request), Err((_, ReadError::Failed { .. }))));
        assert_eq!(read(&mut a, &mut b, to_b, span, 1000).1, Ok(()));
        b.send(to_a, message(b"still here")).unwrap();
        wait_for(&mut [&mut a], "a message", |_, event| {
            matches!(event, Owned::Message(..)).then_some(())
        });
    }
}

#[test]
fn reads_and_messages_go_on_side_by_side() {
    for policy in [ReadPolicy::Direct, ReadPolicy::Copied] {
        for config in [ShmConfig::default(), small()] {
            let (a, b, to_b, to_a) = pair(policy, &config);
            let mut shms = [a, b];
            let exposed = pattern(9, 300_000);
            let peers = [to_b, to_a];
            let exposures: Vec<_> = shms
                .iter_mut()
                .map(|s| s.expose(READER, Buffer::from(pattern(9, 300_000))).unwrap())
                .collect();
            const READS: u64 = 150;
            const MESSAGES: usize = 3000;
            let mut started = [0u64; 2];
            let mut ended = [0u64; 2];
            let mut sent = [0usize; 2];
            let mut got = [0usize; 2];
            for at in 0.. {
                let me = at % 2;
                let other = exposures[1 - me].span;
                if started[me] < READS {
                    let skip = started[me] * 1000;
                    let remote =
                        RemoteSpan { address: other.address + skip, length: 150_000, ..other };
                    let into = Buffer::zeroed(150_000);
                    let token = started[me];
                    shms[me].read(ReadRequest { peer: peers[me], remote, into, token }).unwrap();
                    started[me] += 1;
                }
                if sent[me] < MESSAGES {
                    let bytes = &exposed[sent[me]..sent[me] + sent[me] % 1000];
                    sent[me] += usize::from(shms[me].send(peers[me], message(bytes)).is_ok());
                }
                match poll(&mut shms[me]) {
                    Some(Owned::Message(_, _, bytes)) => {
                        assert!(bytes == exposed[got[me]..got[me] + got[me] % 1000]);
                        got[me] += 1;
                    }
                    Some(Owned::ReadDone(token, into, Ok(()))) => {
                        let skip = usize::try_from(token).unwrap() * 1000;
                        assert!(into[..] == exposed[skip..skip + 150_000]);
                        ended[me] += 1;
                    }
                    None => {}
                    Some(other) => panic!("{other:?}"),
                }
                if ended == [READS; 2] && got == [MESSAGES; 2] {
                    break;
                }
                assert!(at < 50_000_000, "{ended:?} {got:?}");
            }
        }
    }
}

#[test]
fn a_copied_read_ends_although_half_of_the_ring_is_always_in_use() {
    let (mut a, mut b, to_b, to_a) = pair(ReadPolicy::Copied, &small());
    let exposure = b.expose(READER, Buffer::from(pattern(3, 10_000))).unwrap();
    let remote = exposure.span;
    a.read(ReadRequest { peer: to_b, remote, into: Buffer::zeroed(10_000), token: 5 }).unwrap();
    let mut under_way = 0;
    let is_done = (0..100_000).any(|_| {
        // Messages always take five of the eight slots.
        while under_way < 5 && b.send(to_a, message(b"flood")).is_ok() {
            under_way += 1;
        }
        assert!(poll(&mut b).is_none());
        match poll(&mut a) {
            Some(Owned::Message(..)) => under_way -= 1,
            Some(Owned::ReadDone(5, into, Ok(()))) => {
                assert!(into[..] == pattern(3, 10_000)[..]);
                return true;
            }
            None => {}
            Some(other) => panic!("{other:?}"),
        }
        false
    });
    assert!(is_done, "the read never ends");
}

#[test]
fn a_copied_read_of_a_withdrawn_buffer_fails() {
    let (mut a, mut b, to_b, _) = pair(ReadPolicy::Copied, &ShmConfig::default());
    let exposure = b.expose(READER, Buffer::from(pattern(2, 4 << 20))).unwrap();
    let into = Buffer::zeroed(4 << 20);
    a.read(ReadRequest { peer: to_b, remote: exposure.span, into, token: 1 }).unwrap();
    for _ in 0..20 {
        assert!(a.poll().is_none() && b.poll().is_none());
    }
    assert!(b.withdraw(READER, exposure.id).is_some());
    wait_for(&mut [&mut a, &mut b], "the end of the read", |_, event| match event {
        Owned::ReadDone(1, into, Err(ReadError::BadSpan)) => {
            assert_eq!(into.len(), 4 << 20);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn every_read_ends_when_its_peer_leaves() {
    for policy in [ReadPolicy::Direct, ReadPolicy::Copied] {
        for by_disconnecting in [false, true] {
            let (mut a, mut b, to_b, to_a) = pair(policy, &ShmConfig::default());
            let exposure = b.expose(READER, Buffer::from(pattern(2, 4 << 20))).unwrap();
            for token in 0..200 {
                let into = Buffer::zeroed(4 << 20);
                let remote = exposure.span;
                a.read(ReadRequest { peer: to_b, remote, into, token }).unwrap();
            }
            b.send(to_a, message(b"last word")).unwrap();
            for _ in 0..10 {
                poll(&mut a);
                poll(&mut b);
            }
            let mut back = 0;
            if by_disconnecting {
                a.disconnect(to_b);
            } else {
                drop(b);
            }
            wait_for(&mut [&mut a], "the peer's end", |_, event| match event {
                Owned::ReadDone(_, into, _) => {
                    assert_eq!(into.len(), 4 << 20);
                    back += 1;
                    None
                }
                Owned::Down(peer, reason) => {
                    let wanted =
                        if by_disconnecting { DownReason::Disconnected } else { DownReason::Left };
                    {
                        assert_eq!((peer, reason), (to_b, wanted));
                        Some(())
                    }
                }
                Owned::Message(..) => None,
                other @ Owned::Up(..) => panic!("{other:?}"),
            });
            // A few reads may have ended while both workers were polled.
            assert!((190..=200).contains(&back), "{back}");
        }
    }
}

#[test]
fn withdrawn_buffers_are_returned_once() {
    let mut a = shm(ShmConfig::default());
    let mut kept = VecDeque::new();
    for number in 0..10_000usize {
        kept.push_back((number, a.expose(READER, Buffer::from(pattern(number, 16))).unwrap().id));
        if number % 3 == 0 {
            let (number, id) = kept.pop_front().unwrap();
            assert!(a.withdraw(READER, id).unwrap()[..] == pattern(number, 16)[..]);
            assert!(a.withdraw(READER, id).is_none());
        }
    }
    assert!(a.withdraw(READER, ExposureId(u32::MAX)).is_none());
}

#[test]
fn a_read_from_a_peer_that_is_not_up_is_refused() {
    let mut a = shm(ShmConfig::default());
    let b = shm(ShmConfig::default());
    let to_b = a.connect(&b.address()).unwrap();
    let remote = RemoteSpan { address: 0, key: 0, length: 0 };
    for peer in [to_b, PeerId(1000)] {
        let into = Buffer::zeroed(1);
        assert!(a.read(ReadRequest { peer, remote, into, token: 0 }).is_err());
    }
    assert_eq!(a.read_mode(to_b), ReadMode::Unknown);
}
