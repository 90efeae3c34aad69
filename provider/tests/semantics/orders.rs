//! The order of messages: `FI_ORDER_SAS`, fi_endpoint(3).

use crate::client::{Call, Entry, Memory, World, payload, sys};

/// Lengths of messages that travel differently: with their header, in pieces, and by rendezvous.
const LENGTHS: [usize; 6] = [0, 8, 900, 5000, 20_000, 200_000];

#[test]
fn messages_of_a_sender_are_matched_in_the_order_of_their_sends() {
    for is_unexpected in [true, false] {
        let world = World::new(2);
        let rooms: Vec<_> = (0..60).map(|n| Memory::new(LENGTHS[n % 6])).collect();
        let post = || {
            for (context, room) in rooms.iter().enumerate() {
                world.endpoint(1).trecv(*room, 1, 0, context).unwrap();
            }
        };
        let send = || {
            for (context, room) in rooms.iter().enumerate() {
                let from = Memory::of(&payload(context as u64, room.len()));
                world.endpoint(0).tsend(from, world.address(1), 1, context).unwrap();
            }
        };
        world.meet(is_unexpected, post, send);
        // Entries have no order.
        let mut received: Vec<_> = rooms.iter().map(|_| world.entry(1).context).collect();
        received.sort_unstable();
        assert!(received.into_iter().eq(0..rooms.len()));
        for (context, room) in rooms.iter().enumerate() {
            assert_eq!(room.bytes(), payload(context as u64, room.len()), "message {context}");
            world.entry(0);
        }
        world.expect_silence();
    }
}

#[test]
fn tagged_and_untagged_messages_have_one_order() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    for length in LENGTHS {
        for first_is_tagged in [true, false] {
            let from = Memory::of(&payload(1, length));
            let room = Memory::new(length);
            let second = Memory::new(8);
            if first_is_tagged {
                sender.tsend(from, to, 7, 1).unwrap();
                sender.inject(b"second", to).unwrap();
                receiver.recv(second, 2).unwrap();
            } else {
                sender.send(from, to, 1).unwrap();
                sender.tinject(b"second", to, 7).unwrap();
                receiver.trecv(second, 7, 0, 2).unwrap();
            }
            assert_eq!(world.success(1, 2).length, 6);
            // The second message is here, so the first one is: it waits for its receive.
            if first_is_tagged {
                let call = Call { tag: 7, context: 3, ..Call::default() };
                receiver.trecvmsg(call, sys::FI_PEEK).unwrap();
                assert_eq!(receiver_entry(&world).failure, 0);
                receiver.trecv(room, 7, 0, 4).unwrap();
            } else {
                receiver.recv(room, 4).unwrap();
            }
            world.success(1, 4);
            world.success(0, 1);
            assert_eq!(room.bytes(), from.bytes());
        }
    }
    world.expect_silence();
}

/// The entry that the receiver has already.
fn receiver_entry(world: &World) -> Entry {
    world.queue(1).poll().expect("a peek ends at once")
}

#[test]
fn an_untagged_message_is_no_tagged_one_with_any_tag() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    let tagged = Memory::new(8);
    let untagged = Memory::new(8);
    receiver.trecv(tagged, 0, u64::MAX, 1).unwrap();
    sender.inject(b"untagged", to).unwrap();
    world.expect_silence();
    sender.tinject(b"tagged", to, 0).unwrap();
    assert_eq!(world.success(1, 1).length, 6);
    receiver.recv(untagged, 2).unwrap();
    assert_eq!((world.success(1, 2).length, untagged.bytes()), (8, b"untagged".to_vec()));
    world.expect_silence();
}

#[test]
fn receives_are_matched_in_the_order_in_which_they_were_posted() {
    let world = World::new(2);
    let room = Memory::new(1);
    for context in 0..100 {
        // All of them take the message, by different ignore bits.
        let tag = context as u64 & 0xf0;
        let ignore = 0xffff ^ (context as u64 & 0xf0);
        world.endpoint(1).trecv(room, tag & !ignore, ignore | 0xff, context).unwrap();
    }
    for context in 0..100 {
        world.endpoint(0).tinject(b"x", world.address(1), 0).unwrap();
        world.success(1, context);
    }
    world.expect_silence();
}
