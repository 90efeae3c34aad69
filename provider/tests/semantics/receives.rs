//! What a receive gets: truncation, pieces, no bytes at all, and buffers that can't be.

use crate::client::{Call, Hints, Memory, World, at, payload, sys};

#[test]
fn a_truncated_message_ends_with_all_facts() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    for (length, room) in [(9, 8), (100, 0), (5000, 4999), (400_000, 100), (400_000, 0)] {
        for is_unexpected in [true, false] {
            let from = Memory::of(&payload(7, length));
            let memory = Memory::new(room + 8);
            let buffer = memory.part(0, room);
            let post = || {
                receiver.trecv(buffer, 0x30, 0x0f, 1).unwrap();
                receiver.recv(buffer, 2).unwrap();
            };
            let send = || {
                sender.tsenddata(from, 99, at(to, 0x35), 10).unwrap();
                sender.senddata(from, 98, to, 11).unwrap();
            };
            world.meet(is_unexpected, post, send);
            let cases = [(1, sys::FI_TAGGED, 0x35, 99), (2, sys::FI_MSG, 0, 98)];
            for (context, kind, tag, data) in cases {
                let entry = world.failure(1, context, sys::FI_ETRUNC);
                assert_eq!((entry.length, entry.overflow), (room, length - room));
                assert_eq!((entry.tag, entry.data), (tag, data));
                assert_eq!(entry.flags, sys::FI_RECV | kind | sys::FI_REMOTE_CQ_DATA);
                assert_eq!(entry.source, world.address(0));
                let bytes = memory.bytes();
                assert_eq!(bytes[..room], from.bytes()[..room]);
                assert_eq!(bytes[room..], [0xee; 8], "nothing is written behind the buffer");
            }
            // For the sender the message has arrived.
            world.success(0, 10);
            world.success(0, 11);
        }
    }
    world.expect_silence();
}

#[test]
fn a_message_that_is_truncated_in_pieces_fills_all_of_them() {
    let world = World::new(2);
    for length in [30, 9000, 400_000] {
        for is_unexpected in [true, false] {
            let from = Memory::of(&payload(3, length));
            let pieces = [10, 0, 10].map(Memory::new);
            let post = || world.endpoint(1).trecvv(&pieces, 1, 1).unwrap();
            let send = || {
                world.endpoint(0).tsend(from, world.address(1), 1, 2).unwrap();
            };
            world.meet(is_unexpected, post, send);
            let entry = world.failure(1, 1, sys::FI_ETRUNC);
            assert_eq!((entry.length, entry.overflow), (20, length - 20));
            assert_eq!(pieces.map(|piece| piece.bytes()).concat(), from.bytes()[..20]);
            world.success(0, 2);
        }
    }
    world.expect_silence();
}

#[test]
fn a_message_may_be_shorter_than_the_buffer() {
    let world = World::new(2);
    for length in [0, 1, 5000, 300_000] {
        let from = Memory::of(&payload(1, length));
        let room = Memory::new(length + 64);
        world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
        world.endpoint(0).tsend(from, world.address(1), 1, 2).unwrap();
        let entry = world.success(1, 1);
        assert_eq!((entry.length, entry.start), (length, room.start() as usize));
        assert_eq!(room.bytes()[..length], from.bytes());
        assert_eq!(room.bytes()[length..], [0xee; 64]);
        world.success(0, 2);
    }
}

/// The memory in pieces of different lengths, some of them empty, with gaps between them.
fn pieces(lengths: &[usize]) -> (Memory, Vec<Memory>) {
    let memory = Memory::new(lengths.iter().map(|length| length + 4).sum());
    let mut at = 0;
    let part = |length: &usize| {
        let part = memory.part(at, *length);
        at += length + 4;
        part
    };
    let parts = lengths.iter().map(part).collect();
    (memory, parts)
}

fn gather(parts: &[Memory]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.bytes()).collect()
}

#[test]
fn messages_are_gathered_from_pieces_and_scattered_to_pieces() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    for scale in [1, 50, 30_000] {
        let (_, from) = pieces(&[3 * scale, 0, 5 * scale, scale]);
        let (memory, room) = pieces(&[scale, 4 * scale, 4 * scale, 7]);
        for (seed, part) in from.iter().enumerate() {
            part.write(&payload(seed as u64, part.len()));
        }
        let call = |parts, context| Call { parts, address: to, tag: 1, context, ..Call::default() };
        for way in 0..4 {
            match way {
                0 => receiver.trecvv(&room, 1, 1),
                1 => receiver.recvv(&room, 1),
                2 => receiver.trecvmsg(Call { address: world.address(0), ..call(&room, 1) }, 0),
                _ => receiver.recvmsg(Call { address: world.address(0), ..call(&room, 1) }, 0),
            }
            .unwrap();
            match way {
                0 => sender.tsendv(&from, to, 1, 2),
                1 => sender.sendv(&from, to, 2),
                2 => sender.tsendmsg(call(&from, 2), 0),
                _ => sender.sendmsg(call(&from, 2), 0),
            }
            .unwrap();
            assert_eq!(world.success(1, 1).length, 9 * scale);
            world.success(0, 2);
            assert_eq!(gather(&room)[..9 * scale], gather(&from));
            assert_eq!(room[3].bytes(), [0xee; 7]);
            assert_eq!(memory.bytes()[scale..scale + 4], [0xee; 4], "the gap is as it was");
            room.iter().for_each(|part| part.write(&vec![0xee; part.len()]));
        }
    }
    world.expect_silence();
}

#[test]
fn as_many_pieces_as_announced_are_taken_and_no_more() {
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    // SAFETY: `fi_getinfo` gave all parts.
    let (sends, receives) = unsafe {
        let info = &*world.node(0).domain.info;
        ((*info.tx_attr).iov_limit, (*info.rx_attr).iov_limit)
    };
    let room = vec![Memory::new(1); receives];
    let from = vec![Memory::of(b"x"); sends];
    endpoint.trecvv(&room, 1, 1).unwrap();
    endpoint.tsendv(&from, to, 1, 2).unwrap();
    let entries = [world.entry(0), world.entry(0)];
    assert!(entries.iter().any(|entry| entry.context == 1 && entry.length == sends));
    let refused = Err(sys::FI_EINVAL);
    assert_eq!(endpoint.trecvv(&vec![Memory::new(1); receives + 1], 1, 1), refused);
    assert_eq!(endpoint.recvv(&vec![Memory::new(1); receives + 1], 1), refused);
    assert_eq!(endpoint.tsendv(&vec![Memory::new(1); sends + 1], to, 1, 1), refused);
    assert_eq!(endpoint.sendv(&vec![Memory::new(1); sends + 1], to, 1), refused);
    world.expect_silence();
}

#[test]
fn a_message_without_bytes_needs_no_memory() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    let none = Call { address: to, tag: 1, ..Call::default() };
    let any = Call { tag: 1, ..Call::default() };
    let sends: [&dyn Fn() -> _; 4] = [
        &|| sender.tsend(Memory::NULL, to, 1, 0),
        &|| sender.tsendv(&[], to, 1, 0),
        &|| sender.tsendmsg(none, sys::FI_COMPLETION),
        &|| sender.tsendmsg(Call { parts: &[Memory::NULL], ..none }, 0),
    ];
    let receives: [&dyn Fn() -> _; 4] = [
        &|| receiver.trecv(Memory::NULL, 1, 0, 0),
        &|| receiver.trecvv(&[], 1, 0),
        &|| receiver.trecvmsg(any, 0),
        &|| receiver.trecvmsg(Call { parts: &[Memory::NULL; 3], ..any }, 0),
    ];
    for (send, receive) in sends.into_iter().zip(receives) {
        receive().unwrap();
        send().unwrap();
        assert_eq!(world.success(1, 0).length, 0);
        world.success(0, 0);
    }
    sender.tinject(&[], to, 1).unwrap();
    receiver.trecv(Memory::NULL, 1, 0, 0).unwrap();
    assert_eq!(world.success(1, 0).length, 0);
    sender.send(Memory::NULL, to, 0).unwrap();
    receiver.recv(Memory::NULL, 0).unwrap();
    assert_eq!(world.success(1, 0).length, 0);
    world.success(0, 0);
}

#[test]
fn memory_that_cannot_be_is_refused() {
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    let start = Memory::new(1).start();
    let wrong = [
        Memory::claimed(std::ptr::null_mut(), 1),
        Memory::claimed(start, isize::MAX as usize + 1),
        Memory::claimed(start, usize::MAX),
        Memory::claimed(usize::MAX as *mut u8, 2),
    ];
    let refused = Err(sys::FI_EINVAL);
    for memory in wrong {
        let one = [memory];
        let two = [Memory::new(1), memory];
        assert_eq!(endpoint.tsend(memory, to, 1, 1), refused);
        assert_eq!(endpoint.tsenddata(memory, 1, at(to, 1), 1), refused);
        assert_eq!(endpoint.send(memory, to, 1), refused);
        assert_eq!(endpoint.senddata(memory, 1, to, 1), refused);
        assert_eq!(endpoint.trecv(memory, 1, 0, 1), refused);
        assert_eq!(endpoint.recv(memory, 1), refused);
        for parts in [&one[..], &two[..]] {
            let call = Call { parts, address: to, ..Call::default() };
            assert_eq!(endpoint.tsendv(parts, to, 1, 1), refused);
            assert_eq!(endpoint.sendv(parts, to, 1), refused);
            assert_eq!(endpoint.tsendmsg(call, 0), refused);
            assert_eq!(endpoint.tsendmsg(call, sys::FI_INJECT), refused);
            assert_eq!(endpoint.sendmsg(call, 0), refused);
            assert_eq!(endpoint.trecvv(parts, 1, 1), refused);
            assert_eq!(endpoint.recvv(parts, 1), refused);
            assert_eq!(endpoint.trecvmsg(call, 0), refused);
            assert_eq!(endpoint.recvmsg(call, 0), refused);
            assert_eq!(endpoint.recvmsg(call, sys::FI_MULTI_RECV), refused);
        }
    }
    // Pieces that are each possible, and together longer than any memory.
    let half = Memory::claimed(start, isize::MAX as usize - start as usize);
    assert_eq!(endpoint.tsendv(&[half; 4], to, 1, 1), refused);
    assert_eq!(endpoint.trecvv(&[half; 4], 1, 1), refused);
    world.expect_silence();
}

#[test]
fn a_program_of_an_old_version_gets_error_entries_of_its_length() {
    for (minor, length) in [(0, 72), (4, 72), (5, 80), (19, 80), (20, 88)] {
        let version = sys::FI_VERSION(1, minor);
        let both = sys::FI_TRANSMIT | sys::FI_RECV;
        let world = World::of(2, &Hints { version, ..Hints::default() }, both);
        world.endpoint(1).trecv(Memory::new(1), 1, 0, 1).unwrap();
        world.endpoint(0).tinject(b"two", world.address(1), 1).unwrap();
        world.settle();
        let queue = world.queue(1);
        let mut memory = [u64::from_ne_bytes([0xab; 8]); 12];
        let to = memory.as_mut_ptr().cast();
        let table = queue.functions();
        let read = crate::client::call!(table, readerr(queue.queue, to, 0));
        assert_eq!(read, 1);
        let memory: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(memory[length..].iter().all(|byte| *byte == 0xab), "1.{minor}: {memory:x?}");
        assert_eq!(memory[56..60], sys::FI_ETRUNC.to_le_bytes());
        if length == 88 {
            assert_eq!(memory[80..88], world.address(0).to_le_bytes());
        }
    }
}
