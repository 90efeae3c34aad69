//! Reads of a peer's exposed memory.

mod common;

use std::collections::VecDeque;

use tagmatch_device::{
    Buffer, Device, DownReason, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_tcp::Tcp;

use common::{Owned, READER, config, connect, exchange, message, pattern, poll, tcp, wait_for};

fn pair() -> (Tcp, Tcp, PeerId, PeerId) {
    let (mut a, mut b) = (tcp(config()), tcp(config()));
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert_eq!((a.read_mode(to_b), b.read_mode(to_a)), (ReadMode::Copied, ReadMode::Copied));
    (a, b, to_b, to_a)
}

fn read(
    a: &mut Tcp,
    b: &mut Tcp,
    peer: PeerId,
    remote: RemoteSpan,
    size: usize,
) -> (Buffer, Result<(), ReadError>) {
    a.read(ReadRequest { peer, remote, into: Buffer::zeroed(size), token: 77 }).unwrap();
    wait_for(&mut [a, b], "a read", |index, event| match (index, event) {
        (0, Owned::ReadDone(77, into, result)) => Some((into, result)),
        other => panic!("{other:?}"),
    })
}

#[test]
fn reads_of_every_size_arrive() {
    const PIECE: usize = 64 << 10;
    let (mut a, mut b, to_b, _) = pair();
    for size in [0, 1, 511, 4096, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, (33 << 20) + 3] {
        let bytes = pattern(size, size + 20);
        let exposure = b.expose(READER, Buffer::from(bytes.clone())).unwrap();
        let (address, length) = (exposure.span.address + 10, size as u64);
        let remote = RemoteSpan { address, length, ..exposure.span };
        let (into, result) = read(&mut a, &mut b, to_b, remote, size + 5);
        assert_eq!(result, Ok(()));
        assert!(into[..size] == bytes[10..10 + size] && into[size..] == [0; 5]);
        assert_eq!(b.withdraw(READER, exposure.id).unwrap().len(), size + 20);
    }
}

#[test]
fn a_bad_span_fails_its_read_and_no_other() {
    let (mut a, mut b, to_b, to_a) = pair();
    let span = b.expose(READER, Buffer::from(pattern(1, 1000))).unwrap().span;
    for (remote, size) in [
        (RemoteSpan { address: 16, length: 100, ..span }, 100),
        (RemoteSpan { address: u64::MAX - 5000, length: 4000, key: 0 }, 4000),
        (RemoteSpan { address: u64::MAX, length: 1, ..span }, 1000),
        (RemoteSpan { key: span.key ^ 7, ..span }, 1000),
        (RemoteSpan { length: 1001, ..span }, 1001),
        (RemoteSpan { address: span.address - 1, ..span }, 1000),
    ] {
        assert_eq!(read(&mut a, &mut b, to_b, remote, size).1, Err(ReadError::BadSpan));
    }
    for (remote, size) in [(RemoteSpan { length: u64::MAX, ..span }, 1000), (span, 999)] {
        let into = Buffer::zeroed(size);
        let refused = a.read(ReadRequest { peer: to_b, remote, into, token: 0 });
        assert!(matches!(refused, Err((back, ReadError::BadSpan)) if back.len() == size));
    }
    let shared = Buffer::from(std::sync::Arc::<[u8]>::from(vec![0; 1000]));
    let request = ReadRequest { peer: to_b, remote: span, into: shared, token: 0 };
    assert!(matches!(a.read(request), Err((_, ReadError::Failed { .. }))));
    assert_eq!(read(&mut a, &mut b, to_b, span, 1000).1, Ok(()));
    exchange(&mut b, to_a, &mut a);
}

#[test]
fn a_hundred_reads_and_messages_both_ways_go_side_by_side() {
    const READS: u64 = 100;
    const MESSAGES: usize = 3000;
    let (a, b, to_b, to_a) = pair();
    let (mut workers, peers) = ([a, b], [to_b, to_a]);
    let exposed = pattern(9, 300_000);
    let spans = workers
        .each_mut()
        .map(|worker| worker.expose(READER, Buffer::from(exposed.clone())).unwrap().span);
    let (mut started, mut ended) = ([0; 2], [0; 2]);
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    while ended != [READS; 2] || received != [MESSAGES; 2] {
        for me in [0, 1] {
            let (worker, peer) = (&mut workers[me], peers[me]);
            // More reads at a time than a peer may request.
            if started[me] < READS {
                let token = started[me];
                let length = 3000 * token % 300_000;
                let remote = RemoteSpan { length, ..spans[1 - me] };
                let into = Buffer::zeroed(300_000);
                worker.read(ReadRequest { peer, remote, into, token }).unwrap();
                started[me] += 1;
            }
            let bytes = pattern(sent[me], sent[me] % 2000);
            if sent[me] < MESSAGES && worker.send(peer, message(&bytes)).is_ok() {
                sent[me] += 1;
            }
            match poll(worker) {
                Some(Owned::Message(_, _, bytes)) => {
                    assert!(bytes == pattern(received[me], received[me] % 2000));
                    received[me] += 1;
                }
                Some(Owned::ReadDone(token, into, Ok(()))) => {
                    let length = usize::try_from(3000 * token % 300_000).unwrap();
                    assert!(into[..length] == exposed[..length]);
                    ended[me] += 1;
                }
                None => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Two reads of the same length end at about the same time, and a message that is sent when they
/// are under way arrives long before.
#[test]
fn reads_take_turns_and_a_message_passes_them() {
    const LENGTH: usize = 64 << 20;
    let (mut a, mut b, to_b, to_a) = pair();
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

#[test]
fn a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes() {
    let (mut a, mut b, to_b, to_a) = pair();
    let exposure = b.expose(READER, Buffer::from(vec![1; 64 << 20])).unwrap();
    let (remote, into) = (exposure.span, Buffer::zeroed(64 << 20));
    a.read(ReadRequest { peer: to_b, remote, into, token: 5 }).unwrap();
    for _ in 0..20 {
        assert!(b.poll().is_none() && a.poll().is_none());
    }
    // The same memory is exposed again, with other bytes.
    let mut buffer = b.withdraw(READER, exposure.id).unwrap();
    buffer.room().unwrap().fill(&vec![9; 64 << 20]);
    let again = b.expose(READER, buffer).unwrap();
    assert_eq!(again.span.address, exposure.span.address);
    let into = wait_for(&mut [&mut b, &mut a], "the read", |_, event| match event {
        Owned::ReadDone(5, into, Err(ReadError::BadSpan)) => Some(into),
        other => panic!("{other:?}"),
    });
    assert!(!into.contains(&9));
    let (_, result) = read(&mut a, &mut b, to_b, exposure.span, 64 << 20);
    assert_eq!(result, Err(ReadError::BadSpan), "the exposure has ended");
    let (into, result) = read(&mut a, &mut b, to_b, again.span, 64 << 20);
    assert!(result == Ok(()) && into.iter().all(|byte| *byte == 9));
    exchange(&mut b, to_a, &mut a);
}

#[test]
fn buffers_of_reads_come_back_when_the_peer_goes_down_at_either_end() {
    for is_reader in [true, false] {
        let (mut a, mut b, to_b, to_a) = pair();
        let span = b.expose(READER, Buffer::from(vec![1; 16 << 20])).unwrap().span;
        let mut tokens: VecDeque<u64> = (0..80).collect();
        for token in &tokens {
            let into = Buffer::zeroed(16 << 20);
            a.read(ReadRequest { peer: to_b, remote: span, into, token: *token }).unwrap();
        }
        for _ in 0..20 {
            assert!(b.poll().is_none() && a.poll().is_none());
        }
        if is_reader {
            a.disconnect(to_b);
        } else {
            b.disconnect(to_a);
        }
        let (mut left, late) = (false, usize::from(!is_reader));
        wait_for(&mut [&mut b, &mut a], "all reads", |index, event| {
            match event {
                Owned::ReadDone(token, into, result) => {
                    assert_eq!((into.len(), result), (16 << 20, Err(ReadError::PeerDown)));
                    tokens.retain(|other| *other != token);
                }
                Owned::Down(_, reason) if index == late => left = reason == DownReason::Left,
                Owned::Down(_, DownReason::Disconnected) => {}
                other => panic!("{other:?}"),
            }
            (left && tokens.is_empty()).then_some(())
        });
    }
}
