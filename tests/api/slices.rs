//! Messages of several slices: gathered, scattered, and given back slice by slice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch::{
    Buffer, Cancel, End, Error, Fault, Match, QueuedSend, Received, SendMode, SendOptions, Worker,
};

use crate::common::{Ability, config, has};
use crate::pair::{Pair, SIZES, bytes, pair};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ways to cut `total` bytes into slices.
fn cuts(total: usize) -> Vec<Vec<usize>> {
    let third = total / 3;
    vec![
        vec![total],
        vec![0, third, 0, total - third],
        vec![total - third, third, 0],
        (0..7).map(|i| total * (i + 1) / 7 - total * i / 7).collect(),
    ]
}

/// The bytes in slices of these lengths.
fn cut(mut bytes: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let mut slice = |length| {
        let (slice, rest) = bytes.split_at(length);
        bytes = rest;
        slice.to_vec()
    };
    lengths.iter().map(|&length| slice(length)).collect()
}

/// Slices of a byte that no test sends.
fn room(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().map(|&length| vec![0xee; length]).collect()
}

/// Where the slices lie.
fn places(slices: &[Vec<u8>]) -> Vec<*const u8> {
    slices.iter().map(|slice| slice.as_ptr()).collect()
}

/// The slices of a buffer that an operation has given back: in the memory that they were given in.
fn back(buffer: Buffer, places: &[*const u8]) -> Vec<u8> {
    assert!(buffer.is_empty(), "shows bytes of its own: {buffer:?}");
    let slices = buffer.into_slices().unwrap();
    let found: Vec<_> = slices.iter().map(|slice| slice.as_ptr()).collect();
    assert_eq!(found, places, "other slices");
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// Sends a message of `size` bytes in slices, and receives it in slices that are sometimes longer.
fn exchange(p: &Pair, size: usize, mode: SendMode, expected: bool, way: usize) {
    let spare = 3 * (way % 2);
    let given = cut(&bytes(size), &cuts(size)[way]);
    let total = size + spare;
    let inbox = room(&cuts(total)[3 - way]);
    let from = places(&given);
    let into = places(&inbox);
    let inbox = Buffer::from_slices(inbox);
    let options = SendOptions::default().mode(mode).immediate(Some(size as u32));
    let (receive, send);
    if expected {
        receive = p.b.recv(Match::tag(9), inbox);
        send = p.a.send_with(p.to_b, 9, Buffer::from_slices(given), options);
    } else {
        send = p.a.send_with(p.to_b, 9, Buffer::from_slices(given), options);
        assert_eq!(p.probe(Match::tag(9)).length, size);
        receive = p.b.recv(Match::any(), inbox);
    }
    let Received { buffer, status } = p.ok(receive);
    assert_eq!((status.source, status.tag.0), (p.to_a, 9));
    assert_eq!((status.length, status.truncated), (size, false));
    assert_eq!(status.immediate, Some(size as u32));
    let got = back(buffer, &into);
    assert!(got[..size] == bytes(size), "{size} bytes, way {way}, expected: {expected}");
    assert!(got[size..].iter().all(|&byte| byte == 0xee), "wrote past the message");
    assert!(back(p.ok(send).buffer, &from) == bytes(size), "the message was changed");
}

#[test]
fn several_slices_of_every_size_and_mode_arrive_with_all_their_facts() {
    let p = pair();
    let mut modes = vec![SendMode::Standard, SendMode::Synchronous];
    modes.extend(has(Ability::Delivered).then_some(SendMode::Delivered));
    for (turn, size) in SIZES.into_iter().enumerate() {
        for &mode in &modes {
            for expected in [true, false] {
                for way in if size > 100_000 { turn % 4..turn % 4 + 1 } else { 0..4 } {
                    exchange(&p, size, mode, expected, way);
                }
            }
        }
    }
}

#[test]
fn several_slices_meet_one_run_of_bytes() {
    let p = pair();
    for size in SIZES {
        let send = p.a.send(p.to_b, 1, Buffer::from_slices(cut(&bytes(size), &cuts(size)[1])));
        assert!(p.ok(p.b.recv(Match::tag(1), vec![0; size])).data() == bytes(size));
        p.ok(send);
        let receive = p.b.recv(Match::tag(2), Buffer::from_slices(room(&cuts(size)[3])));
        let send = p.a.send(p.to_b, 2, bytes(size));
        let received = p.ok(receive);
        assert_eq!((received.data(), received.status.length), (&[][..], size));
        assert!(received.buffer.into_vec() == bytes(size), "{size} bytes");
        p.ok(send);
    }
}

#[test]
fn slices_too_short_for_a_message_take_its_first_bytes() {
    let p = pair();
    let has_first_bytes = has(Ability::FirstBytes);
    for size in [1, 8, 5000, 100_000] {
        for total in [0, size / 2, size - 1] {
            for expected in [true, false] {
                let inbox = room(&cuts(total)[1]);
                let into = places(&inbox);
                let inbox = Buffer::from_slices(inbox);
                let send = |p: &Pair| p.a.send_sync(p.to_b, 1, bytes(size));
                let (receive, send) = if expected {
                    let receive = p.b.recv(Match::tag(1), inbox);
                    (receive, send(&p))
                } else {
                    let send = send(&p);
                    p.probe(Match::tag(1));
                    (p.b.recv(Match::tag(1), inbox), send)
                };
                let received = p.ok(receive);
                assert_eq!((received.status.length, received.status.truncated), (size, true));
                let got = back(received.buffer, &into);
                if has_first_bytes {
                    assert_eq!(got, bytes(size)[..total]);
                }
                p.ok(send);
            }
        }
    }
    assert_eq!(p.b.counters().truncated, 4 * 3 * 2);
}

#[test]
fn matched_messages_are_received_in_slices() {
    let p = pair();
    for size in [0, 8, 5000, 100_000] {
        let send = p.a.send(p.to_b, 1, Buffer::from_slices(cut(&bytes(size), &cuts(size)[3])));
        p.probe(Match::tag(1));
        let message = p.b.mprobe(Match::tag(1)).unwrap().unwrap();
        assert_eq!(message.status().length, size);
        let received = p.ok(message.recv(Buffer::from_slices(room(&cuts(size)[1]))));
        assert!(received.buffer.into_vec() == bytes(size), "{size} bytes");
        p.ok(send);
    }
}

/// Takes ends until there are `count`: contexts, and lengths by their envelopes.
fn ends(p: &Pair, worker: &Worker, count: usize) -> Vec<(u64, usize, Buffer)> {
    let start = Instant::now();
    let mut ends = Vec::new();
    let mut ended = Vec::new();
    while ended.len() < count {
        p.progress();
        worker.ends(&mut ends, 4);
        for end in ends.drain(..) {
            if let End::Operation { context, result, buffer } = end {
                ended.push((context, result.unwrap().length, buffer));
            }
        }
        assert!(start.elapsed() < PATIENCE, "{} of {count} ends", ended.len());
    }
    ended
}

#[test]
fn queued_operations_on_slices_end_once_with_their_slices() {
    let p = pair();
    const COUNT: u64 = 60;
    let size = |i: u64| [0, 8, 5000, 100_000][(i % 4) as usize];
    let mut into = Vec::new();
    let mut from = Vec::new();
    for i in 0..COUNT {
        let inbox = room(&cuts(size(i))[(i / 4 % 4) as usize]);
        into.push(places(&inbox));
        if i % 8 < 4 {
            p.b.recv_queued(Match::tag(i), Buffer::from_slices(inbox), i).unwrap();
        } else {
            from.push((i, inbox));
        }
    }
    let late = from;
    let mut sent = 0;
    let mut from = Vec::new();
    for i in 0..COUNT {
        let given = cut(&bytes(size(i)), &cuts(size(i))[(i % 4) as usize]);
        from.push(places(&given));
        match p.a.send_queued(p.to_b, i, Buffer::from_slices(given), i).unwrap() {
            QueuedSend::Complete(buffer) => {
                assert!(back(buffer, &from[i as usize]) == bytes(size(i)));
            }
            QueuedSend::UnderWay(_) => sent += 1,
        }
        p.progress();
    }
    p.all_arrive();
    for (i, inbox) in late {
        if i % 2 == 0 {
            p.b.recv_queued(Match::tag(i), Buffer::from_slices(inbox), i).unwrap();
        } else {
            let message = p.b.mprobe(Match::tag(i)).unwrap().unwrap();
            message.recv_queued(Buffer::from_slices(inbox), i).unwrap();
        }
    }
    for (i, length, buffer) in ends(&p, &p.b, COUNT as usize) {
        assert_eq!(length, size(i));
        assert!(back(buffer, &into[i as usize]) == bytes(length), "receive {i}");
    }
    for (i, length, buffer) in ends(&p, &p.a, sent) {
        assert_eq!(length, size(i));
        assert!(back(buffer, &from[i as usize]) == bytes(length), "send {i}");
    }
}

#[test]
fn messages_in_slices_wait_their_turn_in_order() {
    // Nothing goes out before the peers are connected, and few messages may be unexpected.
    let config = config().unexpected_bytes(64 << 10).unexpected_messages(20);
    let a = Worker::new(config.clone()).unwrap();
    let b = Worker::new(config).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let size = |i: usize| [3, 700, 0, 30_000][i % 4];
    let message = |i: usize| bytes(size(i));
    let sends: Vec<_> = (0..200)
        .map(|i| a.send(to_b, 1, Buffer::from_slices(cut(&message(i), &cuts(size(i))[i / 4 % 4]))))
        .collect();
    let p = Pair::new([a, b], to_b, to_a);
    for i in 0..200 {
        let inbox = Buffer::from_slices(room(&cuts(30_000)[i % 4]));
        let Received { buffer, status } = p.ok(p.b.recv(Match::any(), inbox));
        assert_eq!(status.length, size(i), "message {i}");
        assert!(buffer.into_vec()[..size(i)] == message(i), "message {i}");
    }
    for (i, send) in sends.into_iter().enumerate() {
        assert!(p.ok(send).buffer.into_vec() == message(i), "message {i}");
    }
}

#[test]
fn no_slices_empty_ones_and_ten_thousand() {
    let p = pair();
    let worlds: [(Vec<usize>, Vec<usize>); 6] = [
        (vec![], vec![]),
        (vec![0; 5], vec![]),
        (vec![], vec![0; 3]),
        (vec![1; 10_000], vec![1; 10_000]),
        (vec![0; 10_000], vec![0; 10_000]),
        (vec![30; 10_000], vec![300_000]),
    ];
    for (from, into) in worlds {
        let total = from.iter().sum();
        for expected in [true, false] {
            let receive = |p: &Pair| p.b.recv(Match::tag(1), Buffer::from_slices(room(&into)));
            let early = expected.then(|| receive(&p));
            let send = p.a.send(p.to_b, 1, Buffer::from_slices(cut(&bytes(total), &from)));
            let receive = early.unwrap_or_else(|| {
                p.probe(Match::tag(1));
                receive(&p)
            });
            let received = p.ok(receive);
            assert_eq!((received.status.length, received.status.truncated), (total, false));
            assert_eq!(received.buffer.slices().unwrap().len(), into.len());
            assert!(received.buffer.into_vec() == bytes(total));
            assert_eq!(p.ok(send).buffer.into_slices().unwrap().len(), from.len());
        }
    }
}

#[test]
fn slices_of_other_memory_are_sent_and_received() {
    let p = pair();
    for size in [100, 100_000] {
        let shared: Arc<[u8]> = bytes(size).into();
        let mut own = p.a.buffer(size);
        own.as_mut_slice().unwrap().copy_from_slice(&bytes(size));
        let numbers = Buffer::from_elements(vec![7u64; 10]);
        let inner = Buffer::from_slices([own, numbers]);
        let given = Buffer::from_slices([inner, Buffer::from(Arc::clone(&shared))]);
        assert_eq!(given.total_len(), 2 * size + 80);
        let inbox = Buffer::from_slices([
            p.b.buffer(size),
            Buffer::from_elements(vec![0u64; 10]),
            p.b.buffer(size),
        ]);
        let receive = p.b.recv(Match::tag(1), inbox);
        let send = p.a.send(p.to_b, 1, given);
        let mut got = p.ok(receive).buffer.into_slices().unwrap();
        assert!(got.remove(2)[..] == bytes(size) && got[0][..] == bytes(size));
        assert_eq!(got.remove(1).into_elements::<u64>().unwrap(), [7; 10]);
        assert_eq!(p.ok(send).buffer.into_slices().unwrap().len(), 3);
        assert_eq!(Arc::strong_count(&shared), 1, "a slice is left behind");
        // One slice that can only be read is enough to refuse a receive.
        let inbox = Buffer::from_slices([Buffer::zeroed(9), shared.into()]);
        let refused = p.b.recv(Match::any(), inbox).wait().unwrap_err();
        assert!(matches!(refused.error, Error::Operation(Fault::ReadOnlyBuffer)), "{refused}");
        assert_eq!(refused.buffer.into_slices().unwrap().len(), 2);
    }
}

#[test]
fn a_receive_that_is_cancelled_gives_its_slices_back() {
    let p = pair();
    let inbox = room(&cuts(5000)[1]);
    let into = places(&inbox);
    let receive = p.b.recv(Match::tag(1), Buffer::from_slices(inbox));
    p.progress();
    match receive.cancel_wait().unwrap() {
        Cancel::Cancelled(buffer) => assert_eq!(back(buffer, &into), [0xee; 5000]),
        Cancel::TooLate(received) => panic!("{received:?}"),
    }
    let inbox = Buffer::from_slices(room(&[4, 4]));
    let request = p.b.recv_queued(Match::tag(1), inbox, 7).unwrap();
    assert!(p.b.cancel_queued(request));
    let mut ended = Vec::new();
    while p.b.ends(&mut ended, 1) == 0 {}
    let Some(End::Operation { result: Err(Error::Cancelled), buffer, .. }) = ended.pop() else {
        panic!("{ended:?}");
    };
    assert_eq!(buffer.into_slices().unwrap().len(), 2);
}

#[test]
fn a_peer_that_dies_leaves_the_slices_to_their_owner() {
    for size in [8, 100_000] {
        let p = pair();
        let given = cut(&bytes(size), &cuts(size)[1]);
        let inbox = room(&cuts(size)[3]);
        let from = places(&given);
        let into = places(&inbox);
        let Pair { a, b, to_b, .. } = p;
        let receive = a.recv(Match::tag(1).from(to_b), Buffer::from_slices(inbox));
        let send = a.send_sync(to_b, 1, Buffer::from_slices(given));
        drop(b);
        let failed = send.wait().unwrap_err();
        assert!(matches!(failed.error, Error::PeerDown { .. }), "{failed}");
        assert!(back(failed.buffer, &from) == bytes(size));
        let failed = receive.wait().unwrap_err();
        assert!(matches!(failed.error, Error::PeerDown { .. }), "{failed}");
        assert_eq!(back(failed.buffer, &into).len(), size);
        // Refused at the call.
        let given = cut(&bytes(size), &cuts(size)[2]);
        let from = places(&given);
        let failed = a.send(to_b, 1, Buffer::from_slices(given)).wait().unwrap_err();
        assert!(back(failed.buffer, &from) == bytes(size));
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_of_the_send() {
    let p = pair();
    // 2^48 bytes: more than any machine can address.
    let shared: Arc<[u8]> = vec![0; 128 << 20].into();
    let slices = std::iter::repeat_n(&shared, 1 << 21).map(|slice| Buffer::from(Arc::clone(slice)));
    let failed = p.end(p.a.send(p.to_b, 1, Buffer::from_slices(slices))).unwrap_err();
    let Error::Operation(Fault::NoMemory { bytes }) = failed.error else { panic!("{failed}") };
    assert_eq!((bytes, failed.buffer.into_slices().unwrap().len()), (1 << 48, 1 << 21));
    assert_eq!(Arc::strong_count(&shared), 1);
    // The peer notices nothing.
    p.a.inject(p.to_b, 2, b"next").unwrap();
    assert_eq!(p.ok(p.b.recv(Match::any(), vec![0; 4])).data(), b"next");
}
