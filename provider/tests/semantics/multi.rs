//! Multi-receive buffers: `FI_MULTI_RECV`, fi_msg(3), and `FI_OPT_MIN_MULTI_RECV`, fi_endpoint(3).

use std::collections::HashMap;

use crate::client::{Call, Entry, Hints, Memory, World, payload, sys};

const PLAIN: u64 = sys::FI_RECV | sys::FI_MSG;
const LAST: u64 = PLAIN | sys::FI_MULTI_RECV;

/// Two endpoints. Endpoint 1 gives buffers back that have less room than `minimum`.
fn world(minimum: usize) -> World {
    let world = World::new(2);
    world.endpoint(1).set_multi_min(minimum);
    world
}

fn post(world: &World, buffer: Memory, context: usize) {
    let call = Call { parts: &[buffer], context, ..Call::default() };
    world.endpoint(1).recvmsg(call, sys::FI_MULTI_RECV).unwrap();
}

/// Sends a message of this length, and waits until its sender has forgotten it.
fn send(world: &World, seed: u64, length: usize) {
    let from = Memory::of(&payload(seed, length));
    world.endpoint(0).send(from, world.address(1), 1000).unwrap();
}

/// The next entry of the receiver: a message of this seed and length, `at` bytes into the buffer.
fn expect(world: &World, (context, flags): (usize, u64), buffer: Memory, at: usize, seed: u64) {
    let entry = world.success(1, context);
    assert_eq!(entry.flags, flags, "{entry:x?}");
    assert_eq!(entry.start - buffer.start() as usize, at);
    assert_eq!(buffer.part(at, entry.length).bytes(), payload(seed, entry.length));
    assert_eq!(entry.source, world.address(0));
}

#[test]
fn messages_are_packed_into_the_buffer_and_the_last_gives_it_back() {
    for is_unexpected in [false, true] {
        let world = world(16);
        let buffer = Memory::new(100);
        // 16 bytes are left after the third message, 15 after the last.
        let lengths = [40, 0, 44, 1];
        let send_all = || (1..).zip(lengths).for_each(|(seed, length)| send(&world, seed, length));
        world.meet(is_unexpected, || post(&world, buffer, 7), send_all);
        expect(&world, (7, PLAIN), buffer, 0, 1);
        expect(&world, (7, PLAIN), buffer, 40, 2);
        expect(&world, (7, PLAIN), buffer, 40, 3);
        expect(&world, (7, LAST), buffer, 84, 4);
        assert_eq!(buffer.part(85, 15).bytes(), [0xee; 15]);
        for _ in lengths {
            world.success(0, 1000);
        }
        world.expect_silence();
    }
}

#[test]
fn the_minimum_room_can_be_set_and_read() {
    let world = World::new(2);
    let endpoint = world.endpoint(1);
    assert!(endpoint.multi_min() > 0);
    for minimum in [1, 100, 4096] {
        endpoint.set_multi_min(minimum);
        assert_eq!(endpoint.multi_min(), minimum);
        let buffer = Memory::new(minimum + 1);
        post(&world, buffer, 1);
        send(&world, 1, 1);
        expect(&world, (1, PLAIN), buffer, 0, 1);
        send(&world, 2, 1);
        expect(&world, (1, LAST), buffer, 1, 2);
        world.success(0, 1000);
        world.success(0, 1000);
    }
}

#[test]
fn a_minimum_of_nothing_gives_the_buffer_back_when_it_is_full() {
    let world = world(0);
    let buffer = Memory::new(2);
    post(&world, buffer, 1);
    for (seed, flags) in [(1, PLAIN), (2, LAST)] {
        send(&world, seed, 1);
        expect(&world, (1, flags), buffer, seed as usize - 1, seed);
    }
}

#[test]
fn several_buffers_are_filled_in_the_order_of_their_posts() {
    let world = world(10);
    let buffers = [Memory::new(30), Memory::new(20), Memory::new(30)];
    buffers.iter().zip(0..).for_each(|(buffer, context)| post(&world, *buffer, context));
    for seed in 0..9 {
        send(&world, seed, 10);
    }
    // A buffer with exactly the minimum left goes on.
    let places = [(0, 0), (0, 10), (0, 20), (1, 0), (1, 10), (2, 0), (2, 10), (2, 20)];
    for (seed, (buffer, at)) in (0..).zip(places) {
        let is_last = at + 10 == buffers[buffer].len();
        let flags = if is_last { LAST } else { PLAIN };
        expect(&world, (buffer, flags), buffers[buffer], at, seed);
        world.success(0, 1000);
    }
    // The ninth message finds no buffer until there is one.
    world.success(0, 1000);
    world.expect_silence();
    post(&world, buffers[0], 5);
    expect(&world, (5, PLAIN), buffers[0], 0, 8);
}

#[test]
fn long_messages_fill_a_buffer_too() {
    let world = world(100_000);
    let buffer = Memory::new(1 << 20);
    post(&world, buffer, 1);
    for (seed, length) in [(1, 300_000), (2, 70_000), (3, 10), (4, 600_000)] {
        send(&world, seed, length);
    }
    expect(&world, (1, PLAIN), buffer, 0, 1);
    expect(&world, (1, PLAIN), buffer, 300_000, 2);
    expect(&world, (1, PLAIN), buffer, 370_000, 3);
    expect(&world, (1, LAST), buffer, 370_010, 4);
    for _ in 0..4 {
        world.success(0, 1000);
    }
    world.expect_silence();
}

#[test]
fn a_message_longer_than_the_rest_is_truncated_and_gives_the_buffer_back() {
    let world = world(10);
    let buffer = Memory::new(100);
    let next = Memory::new(100);
    post(&world, buffer, 1);
    post(&world, next, 2);
    for (seed, length) in [(1, 60), (2, 70), (3, 5)] {
        send(&world, seed, length);
    }
    expect(&world, (1, PLAIN), buffer, 0, 1);
    let entry = world.failure(1, 1, sys::FI_ETRUNC);
    assert_eq!((entry.flags, entry.length, entry.overflow), (LAST, 40, 30));
    assert_eq!(buffer.part(60, 40).bytes(), payload(2, 70)[..40]);
    expect(&world, (2, PLAIN), next, 0, 3);
}

#[test]
fn receives_keep_their_order_beside_buffers() {
    let world = world(10);
    let before = Memory::new(30);
    let after = Memory::new(30);
    let first = Memory::new(20);
    let second = Memory::new(20);
    world.endpoint(1).recv(before, 1).unwrap();
    post(&world, first, 2);
    world.endpoint(1).recv(after, 3).unwrap();
    post(&world, second, 4);
    // A tagged receive has its own messages.
    let tagged = Memory::new(30);
    world.endpoint(1).trecv(tagged, 9, 0, 5).unwrap();
    for seed in 0..6 {
        send(&world, seed, 10);
    }
    world.endpoint(0).tinject(b"tagged", world.address(1), 9).unwrap();
    let mut entries = HashMap::<usize, Vec<Entry>>::new();
    for _ in 0..7 {
        let entry = world.entry(1);
        entries.entry(entry.context).or_default().push(entry);
    }
    let count = |context| entries.get(&context).map_or(0, Vec::len);
    assert_eq!([1, 2, 3, 4, 5].map(count), [1, 2, 1, 2, 1]);
    assert_eq!(before.part(0, 10).bytes(), payload(0, 10));
    assert_eq!(first.part(0, 10).bytes(), payload(1, 10));
    assert_eq!(first.part(10, 10).bytes(), payload(2, 10));
    assert_eq!(after.part(0, 10).bytes(), payload(3, 10));
    assert_eq!(second.part(0, 10).bytes(), payload(4, 10));
    assert_eq!(second.part(10, 10).bytes(), payload(5, 10));
    assert_eq!([&entries[&2], &entries[&4]].map(|of| of[1].flags), [LAST; 2]);
    assert_eq!([&entries[&1], &entries[&3]].map(|of| of[0].flags), [PLAIN; 2]);
}

#[test]
fn a_cancelled_buffer_is_given_back() {
    let world = world(10);
    let buffers = [1, 2, 3].map(|context| {
        let buffer = Memory::new(100);
        post(&world, buffer, context);
        buffer
    });
    world.endpoint(1).recv(Memory::new(8), 4).unwrap();
    send(&world, 1, 30);
    expect(&world, (1, PLAIN), buffers[0], 0, 1);
    // One that waits for its turn, a receive that waits, and the one that is being filled.
    for (context, flags) in [(2, LAST), (4, PLAIN), (1, LAST)] {
        world.endpoint(1).cancel(context).unwrap();
        let entry = world.failure(1, context, sys::FI_ECANCELED);
        assert_eq!(entry.flags, flags);
        world.endpoint(1).cancel(context).unwrap();
    }
    send(&world, 2, 30);
    expect(&world, (3, PLAIN), buffers[2], 0, 2);
    world.success(0, 1000);
    world.success(0, 1000);
    world.expect_silence();
}

#[test]
fn a_cancel_that_meets_a_message_gives_the_buffer_back_once() {
    for length in [8, 300_000] {
        let world = world(10);
        for round in 0..40 {
            let buffer = Memory::new(length + 100);
            post(&world, buffer, 1);
            send(&world, round, length);
            for step in 0..round % 4 {
                world.queue(step as usize % 2).progress();
            }
            world.endpoint(1).cancel(1).unwrap();
            let first = world.entry(1);
            let mut entries = vec![first];
            if first.flags & sys::FI_MULTI_RECV == 0 {
                assert_eq!((first.failure, first.length), (0, length));
                entries.push(world.failure(1, 1, sys::FI_ECANCELED));
            }
            let last = entries.last().unwrap();
            assert_eq!(last.flags, LAST, "{entries:x?}");
            let has_message = entries[0].failure == 0;
            assert!(has_message || entries.len() == 1);
            if has_message {
                assert_eq!(buffer.part(0, length).bytes(), payload(round, length));
            } else {
                assert_eq!(entries[0].failure, sys::FI_ECANCELED);
                world.endpoint(1).recv(buffer, 2).unwrap();
                assert_eq!(world.success(1, 2).length, length);
            }
            world.success(0, 1000);
            world.expect_silence();
        }
    }
}

#[test]
fn with_selective_completion_a_buffer_that_is_given_back_is_told_all_the_same() {
    let flags = sys::FI_TRANSMIT | sys::FI_RECV | sys::FI_SELECTIVE_COMPLETION;
    let world = World::of(2, &Hints::default(), flags);
    world.endpoint(1).set_multi_min(10);
    let quiet = Memory::new(20);
    let telling = Memory::new(20);
    post(&world, quiet, 1);
    let call = Call { parts: &[telling], context: 2, ..Call::default() };
    world.endpoint(1).recvmsg(call, sys::FI_MULTI_RECV | sys::FI_COMPLETION).unwrap();
    for seed in 0..4 {
        world.endpoint(0).inject(&payload(seed, 10), world.address(1)).unwrap();
    }
    expect(&world, (1, LAST), quiet, 10, 1);
    assert_eq!(quiet.part(0, 10).bytes(), payload(0, 10));
    expect(&world, (2, PLAIN), telling, 0, 2);
    expect(&world, (2, LAST), telling, 10, 3);
    world.expect_silence();
}

#[test]
fn the_flag_can_be_an_endpoints_default() {
    let hints = Hints { receive_flags: sys::FI_MULTI_RECV, ..Hints::default() };
    let world = World::of(2, &hints, sys::FI_TRANSMIT | sys::FI_RECV);
    world.endpoint(1).set_multi_min(10);
    let buffer = Memory::new(20);
    world.endpoint(1).recv(buffer, 1).unwrap();
    send(&world, 1, 10);
    send(&world, 2, 10);
    expect(&world, (1, PLAIN), buffer, 0, 1);
    expect(&world, (1, LAST), buffer, 10, 2);
}

#[test]
fn immediate_data_comes_with_messages_in_buffers() {
    let world = world(10);
    let buffer = Memory::new(100);
    post(&world, buffer, 1);
    world.endpoint(0).injectdata(b"with data", 4711, world.address(1)).unwrap();
    world.endpoint(0).inject(b"without", world.address(1)).unwrap();
    let entry = world.success(1, 1);
    assert_eq!((entry.flags, entry.data), (PLAIN | sys::FI_REMOTE_CQ_DATA, 4711));
    assert_eq!(world.success(1, 1).flags, PLAIN);
}

#[test]
fn a_stream_of_messages_through_buffers_that_are_posted_again_loses_nothing() {
    let world = world(256);
    let buffers: Vec<_> = (0..8).map(|_| Memory::new(4096)).collect();
    for (context, buffer) in buffers.iter().enumerate() {
        post(&world, *buffer, context);
    }
    let messages = 5000;
    let mut sent = 0;
    let mut received = 0;
    let length = |seed: u64| (seed * 37 % 257) as usize;
    world.until("all messages", || {
        while sent < messages && sent < received + 300 {
            let bytes = payload(sent, length(sent));
            match world.endpoint(0).inject(&bytes, world.address(1)) {
                Ok(_) => sent += 1,
                Err(errno) => {
                    assert_eq!(errno, sys::FI_EAGAIN);
                    break;
                }
            }
        }
        while let Some(entry) = world.queue(1).poll() {
            let buffer = buffers[entry.context];
            let at = entry.start - buffer.start() as usize;
            assert_eq!(entry.length, length(received));
            assert_eq!(buffer.part(at, entry.length).bytes(), payload(received, entry.length));
            received += 1;
            if entry.flags & sys::FI_MULTI_RECV != 0 {
                post(&world, buffer, entry.context);
            }
        }
        (received == messages).then_some(())
    });
}
