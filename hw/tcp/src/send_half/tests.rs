//! Tests of the sending half of a connection.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tagmatch_device::{
    AccessKind, Buffer, PeerId, RegionAccess, RegionPlace, RegionSpan, RemoteSpan,
};

use super::super::accesses::Accesses;
use super::super::frame::{PIECE_BYTES, RegionBytes};
use super::super::reads::ReadsFromPeer;
use super::super::sources::SharedMemory;
use super::*;

const READER: PeerId = PeerId(1);

/// What the other end has got, and whether everything was sent.
fn pass(out: &mut SendHalf, sockets: &mut (UnixStream, UnixStream), x: Sources<'_>) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = [0; 777];
    loop {
        let is_done = out.push(sockets.0.as_fd(), x).unwrap();
        match sockets.1.read(&mut piece) {
            Ok(count) => got.extend_from_slice(&piece[..count]),
            Err(_) if is_done => return got,
            Err(_) => {}
        }
    }
}

fn stream() -> (UnixStream, UnixStream) {
    let (one, two) = UnixStream::pair().unwrap();
    two.set_nonblocking(true).unwrap();
    (one, two)
}

/// The headers of the frames in a stream.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        frames.push(Frame::parse(header, 1 << 20).unwrap());
        bytes = &rest[u32::from_le_bytes(*header.first_chunk().unwrap()) as usize..];
    }
    assert!(bytes.is_empty());
    frames
}

#[test]
fn what_may_be_lost_is_counted_by_the_places_of_the_last_messages() {
    let (socket, _there) = stream();
    let mut out = SendHalf::default();
    let mut ends = Vec::new();
    for length in 0..40 {
        assert!(out.send(socket.as_fd(), [&[1; 8], &[2; 40][..length]], None, 1 << 20).is_ok());
        ends.push(out.accepted());
    }
    let all = out.accepted();
    assert_eq!(out.unacknowledged(all, 0), 0);
    assert_eq!((out.unacknowledged(all - 1, 0), out.unacknowledged(ends[38], 0)), (1, 1));
    assert_eq!(out.unacknowledged(ends[24], 0), 15);
    // Earlier ones are at most as many as fit into the bytes, without the acknowledged ones.
    let most = 16 + (ends[24] - ends[20]) / HEADER_BYTES as u64;
    assert_eq!(out.unacknowledged(ends[20], 0), most);
    assert_eq!(out.unacknowledged(ends[20], 21), 19);
    assert_eq!((out.unacknowledged(0, 0), out.unacknowledged(0, 40)), (40, 0));
    assert_eq!(SendHalf::default().unacknowledged(0, 0), 0);
}

#[test]
fn several_reads_take_turns_and_messages_pass_between_their_pieces() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    let long = memory.exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
    let other = memory.exposures.expose(READER, Buffer::from(vec![2; PIECE_BYTES + 1])).unwrap();
    out.take_request(1, StreamSource::Exposed(long.span)).unwrap();
    out.take_request(2, StreamSource::Exposed(other.span)).unwrap();
    // The socket takes a part of a piece.
    while out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap() || out.begun.is_none()
    {
    }
    assert!(out.send(sockets.0.as_fd(), [b"message", b""], Some(5), 1 << 20).is_ok());
    let got = frames(&pass(&mut out, &mut sockets, memory.for_peer(READER, None)));
    let data = |id| Frame::ReadData { id, length: PIECE_BYTES };
    let message = Frame::Message { length: 7, immediate: Some(5) };
    let at = got.iter().position(|frame| *frame == message).unwrap();
    assert!(at < got.len() - 20, "{got:?}");
    let reads: Vec<_> = got.into_iter().filter(|frame| *frame != message).collect();
    let last = Frame::ReadData { id: 2, length: 1 };
    let end = |id| Frame::ReadEnd { id };
    assert_eq!(reads[..6], [data(1), data(2), data(1), last, end(2), data(1)]);
    assert_eq!((reads.len(), reads.last()), (34, Some(&end(1))));
}

/// One call sends fewer pieces than there are reads.
#[test]
fn each_of_many_reads_has_its_turn_before_the_first_one_has_ended() {
    const READS: u32 = 20;
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    for id in 0..READS {
        let buffer = Buffer::from(vec![1; 4 * PIECE_BYTES]);
        let exposure = memory.exposures.expose(READER, buffer).unwrap();
        out.take_request(id, StreamSource::Exposed(exposure.span)).unwrap();
    }
    let got = frames(&pass(&mut out, &mut sockets, memory.for_peer(READER, None)));
    let end = got.iter().position(|frame| matches!(frame, Frame::ReadEnd { .. })).unwrap();
    let pieces = |id| {
        let is_its = |frame: &&Frame| matches!(frame, Frame::ReadData { id: of, .. } if *of == id);
        got[..end].iter().filter(is_its).count()
    };
    let pieces: Vec<_> = (0..READS).map(pieces).collect();
    assert!(pieces.iter().all(|count| *count >= 2), "{pieces:?}");
}

#[test]
fn a_read_whose_buffer_is_gone_fails_without_a_byte_of_another_buffer() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    let long = memory.exposures.expose(READER, Buffer::from(vec![1; 8 * PIECE_BYTES])).unwrap();
    out.take_request(1, StreamSource::Exposed(long.span)).unwrap();
    while out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap() || out.begun.is_none()
    {
    }
    drop(memory.exposures.withdraw(READER, long.id).unwrap());
    memory.exposures.expose(READER, Buffer::from(vec![9; 8 * PIECE_BYTES])).unwrap();
    let bytes = pass(&mut out, &mut sockets, memory.for_peer(READER, None));
    let got = frames(&bytes);
    assert_eq!(got.last(), Some(&Frame::ReadFailed { id: 1 }));
    let is_end = |frame: &&Frame| !matches!(frame, Frame::ReadData { .. });
    assert_eq!(got.iter().filter(is_end).count(), 1, "it fails once: {got:?}");
    assert!(!bytes.contains(&9));
    out.take_request(2, StreamSource::Exposed(long.span)).unwrap();
    let bytes = pass(&mut out, &mut sockets, memory.for_peer(READER, None));
    assert_eq!(frames(&bytes), [Frame::ReadFailed { id: 2 }]);
}

#[test]
fn the_outbox_refuses_what_is_beyond_its_bound_and_keeps_the_order() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut sent = 0;
    while out.send(sockets.0.as_fd(), [&[7; 1000], b"end"], None, 5000).is_ok() {
        sent += 1;
    }
    assert!(out.outbox.len() <= 5000 && !out.has_room(1003, 5000));
    let got = frames(&pass(&mut out, &mut sockets, SharedMemory::default().for_peer(READER, None)));
    assert_eq!(got.len(), sent);
    assert!(out.has_room(1003, 5000) && out.accepted() == out.taken());
}

#[test]
fn a_message_longer_than_the_outbox_does_not_wait_for_the_end_of_reads() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    let long = memory.exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
    out.take_request(1, StreamSource::Exposed(long.span)).unwrap();
    while out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap() || out.begun.is_none()
    {
    }
    assert!(out.send(sockets.0.as_fd(), [&[7; 9000], b""], None, 5000).is_ok());
    assert!(!out.has_room(1, 5000));
    let got = frames(&pass(&mut out, &mut sockets, memory.for_peer(READER, None)));
    let message = Frame::Message { length: 9000, immediate: None };
    let at = got.iter().position(|frame| *frame == message).unwrap();
    assert!(at < got.len() - 20, "{got:?}");
}

#[test]
fn a_peer_is_asked_once_for_the_acknowledgement_of_what_was_sent() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    for _ in 0..2 {
        assert!(out.send(sockets.0.as_fd(), [b"message", b""], None, 5000).is_ok());
        (0..3).for_each(|_| out.ask_for_acknowledgement());
    }
    let message = Frame::Message { length: 7, immediate: None };
    let got = frames(&pass(&mut out, &mut sockets, SharedMemory::default().for_peer(READER, None)));
    assert_eq!(got, [message, Frame::Flush, message, Frame::Flush]);
}

#[test]
fn there_is_something_to_send_while_a_message_a_read_or_a_piece_is_left() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    let long = memory.exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
    assert!(!out.has_to_send());
    out.take_request(1, StreamSource::Exposed(long.span)).unwrap();
    assert!(out.has_to_send(), "a read alone");
    while out.begun.is_none() {
        out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap();
    }
    out.streams.clear();
    assert!(out.outbox.is_empty() && out.has_to_send(), "a piece alone");
    pass(&mut out, &mut sockets, memory.for_peer(READER, None));
    assert!(!out.has_to_send());
    while out.outbox.is_empty() {
        assert!(out.send(sockets.0.as_fd(), [b"message", b""], None, 5000).is_ok());
    }
    assert!(out.begun.is_none() && out.has_to_send(), "a message alone");
    pass(&mut out, &mut sockets, memory.for_peer(READER, None));
    assert!(!out.has_to_send());
}

#[test]
fn a_peer_requests_64_reads_at_a_time_and_no_more() {
    let mut out = SendHalf::default();
    let span = RemoteSpan { address: 1, key: 2, length: 3 };
    for id in 0..64 {
        assert_eq!(out.take_request(id, StreamSource::Exposed(span)), Ok(()));
    }
    assert!(out.take_request(64, StreamSource::Exposed(span)).is_err());
}

#[test]
fn who_leaves_completes_the_piece_that_was_begun_and_says_so() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    let long = memory.exposures.expose(READER, Buffer::from(vec![1; 8 * PIECE_BYTES])).unwrap();
    out.take_request(1, StreamSource::Exposed(long.span)).unwrap();
    out.take_request(2, StreamSource::Exposed(long.span)).unwrap();
    while out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap() || out.begun.is_none()
    {
    }
    out.leave();
    let got = frames(&pass(&mut out, &mut sockets, memory.for_peer(READER, None)));
    assert_eq!(got.last(), Some(&Frame::Bye));
    assert!(!got.contains(&Frame::ReadEnd { id: 1 }), "{got:?}");
}

/// However many reads a peer has requested, a put of this worker is no slower than they are.
#[test]
fn a_put_and_the_reads_of_its_peer_have_as_many_bytes_each_and_messages_pass_both() {
    const LENGTH: usize = 8 * PIECE_BYTES;
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    for id in 0..10 {
        let exposure = memory.exposures.expose(READER, Buffer::from(vec![1; LENGTH])).unwrap();
        out.take_request(id, StreamSource::Exposed(exposure.span)).unwrap();
    }
    let put = Buffer::from(vec![2; LENGTH]);
    let to = RegionBytes { key: 1, offset: 2, length: LENGTH as u64 };
    out.begin(0, StreamSource::Put(to));
    while out.push(sockets.0.as_fd(), memory.for_peer(READER, Some(&put))).unwrap()
        || out.begun.is_none()
    {}
    assert!(out.send(sockets.0.as_fd(), [b"message", b""], None, 1 << 20).is_ok());
    let got = frames(&pass(&mut out, &mut sockets, memory.for_peer(READER, Some(&put))));
    let bytes_of_put = |frame: &Frame| match frame {
        Frame::PutData { length } => *length,
        _ => 0,
    };
    let bytes_of_read = |frame: &Frame| match frame {
        Frame::ReadData { length, .. } => *length,
        _ => 0,
    };
    assert_eq!(got.iter().map(bytes_of_put).sum::<usize>(), LENGTH);
    let last = got.iter().rposition(|frame| bytes_of_put(frame) > 0).unwrap();
    let beside: usize = got[..last].iter().map(bytes_of_read).sum();
    assert!(beside.abs_diff(LENGTH) <= 2 * PIECE_BYTES, "{beside} bytes of reads beside the put");
    let message = Frame::Message { length: 7, immediate: None };
    let at = got.iter().position(|frame| *frame == message).unwrap();
    assert!(at < last, "the message waits for the put");
    assert!(!out.is_putting());
}

/// A put begins once the one before it was sent. The reads don't take its turn meanwhile, and many
/// short reads have as much as a long one.
#[test]
fn puts_and_reads_of_any_lengths_have_as_many_bytes_each() {
    const P: usize = PIECE_BYTES;
    let cases =
        [(16, P / 2, 1, 64 * P), (16, P, 1, 64 * P), (9, 3 * P - 1, 2, 30 * P), (2, 20 * P, 60, P)];
    for (puts, put_length, read_count, read_length) in cases {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut reads = ReadsFromPeer::default();
        let mut accesses = Accesses::default();
        let mut memory = SharedMemory::default();
        for id in 0..read_count {
            let buffer = Buffer::from(vec![1; read_length]);
            let exposure = memory.exposures.expose(READER, buffer).unwrap();
            out.take_request(id, StreamSource::Exposed(exposure.span)).unwrap();
        }
        for _ in 0..puts {
            accesses.add(RegionAccess {
                peer: READER,
                of: RegionSpan { key: 1, place: RegionPlace::BY_KEY, offset: 0 },
                kind: AccessKind::Write,
                buffer: Buffer::from(vec![2; put_length]),
            });
        }
        let mut bytes = Vec::new();
        let mut part = [0; 7777];
        while accesses.may_begin(&out) || out.is_putting() {
            accesses.begin_next(&mut out, &mut reads);
            out.push(sockets.0.as_fd(), memory.for_peer(READER, accesses.put())).unwrap();
            while let Ok(count) = sockets.1.read(&mut part) {
                bytes.extend_from_slice(&part[..count]);
            }
        }
        bytes.extend(pass(&mut out, &mut sockets, memory.for_peer(READER, None)));
        let frames = frames(&bytes);
        let is_put = |frame: &Frame| matches!(frame, Frame::PutData { .. });
        let last = frames.iter().rposition(is_put).unwrap();
        let mut put = 0;
        let mut read = 0;
        for frame in &frames[..=last] {
            match frame {
                Frame::PutData { length } => put += length,
                Frame::ReadData { length, .. } => read += length,
                _ => {}
            }
        }
        assert_eq!(put, puts * put_length);
        assert!(read.abs_diff(put) <= 3 * P, "{read} bytes of reads beside {put} of puts");
    }
}

/// A window of operations that go by messages moves on once in a run.
#[test]
fn reads_go_out_in_short_runs_while_one_sided_operations_go_by_messages() {
    let mut sockets = stream();
    let mut out = SendHalf::default();
    let mut memory = SharedMemory::default();
    for id in 0..4 {
        let buffer = Buffer::from(vec![1; 20 * PIECE_BYTES]);
        let exposure = memory.exposures.expose(READER, buffer).unwrap();
        out.take_request(id, StreamSource::Exposed(exposure.span)).unwrap();
    }
    let run = |out: &SendHalf| out.next_pieces().iter().map(|piece| piece.length).sum::<usize>();
    assert_eq!(run(&out), RUN_BYTES);
    out.note_one_sided();
    let mut read = 0;
    let mut part = [0; 7777];
    for _ in 0..SHORT_RUNS {
        assert_eq!(run(&out), PUT_RUN_BYTES);
        let before = out.taken();
        out.push(sockets.0.as_fd(), memory.for_peer(READER, None)).unwrap();
        let sent = out.taken() - before;
        assert!(sent <= (PUT_RUN_BYTES + PIECE_BYTES) as u64, "{sent} bytes by one push");
        while let Ok(count) = sockets.1.read(&mut part) {
            read += count;
        }
    }
    assert!(read > 0);
    assert_eq!(run(&out), RUN_BYTES, "no operation has gone out since");
    pass(&mut out, &mut sockets, memory.for_peer(READER, None));
}
