//! Peers that aren't in the address vector, and peers that close: fi_av(3), fi_endpoint(3).

use std::thread;

use crate::client::{Call, Memory, Node, World, at, payload, sys, within_limit};

const ANY: u64 = sys::FI_ADDR_UNSPEC;

#[test]
fn a_sender_that_is_not_in_the_vector_can_be_received_from() {
    for length in [8, 300_000] {
        let sender = Node::new();
        let receiver = Node::new();
        let to = sender.vector.add(receiver.name);
        let from = Memory::of(&payload(1, length));
        let room = Memory::new(length);
        let entry = |context| {
            let entry = within_limit("the receive's entry", || {
                sender.queue.progress();
                receiver.queue.poll()
            });
            assert_eq!((entry.context, entry.failure, entry.length), (context, 0, length));
            assert_eq!(room.bytes(), from.bytes());
            within_limit("the send's entry", || sender.queue.poll());
            entry.source
        };
        // Posted before and after the message.
        receiver.endpoint.trecv(room, 1, 0, 1).unwrap();
        sender.endpoint.tsend(from, to, 1, 10).unwrap();
        assert_eq!(entry(1), sys::FI_ADDR_NOTAVAIL);
        sender.endpoint.send(from, to, 10).unwrap();
        for _ in 0..100 {
            sender.queue.progress();
            receiver.queue.progress();
        }
        // The message that waits binds to the name that is inserted now.
        let source = receiver.vector.add(sender.name);
        receiver.endpoint.recv_from(room, source, 2).unwrap();
        assert_eq!(entry(2), source);
        // The other way, for which no new connection is made.
        sender.endpoint.trecv(room, 2, 0, 3).unwrap();
        receiver.endpoint.tinject(b"reply", source, 2).unwrap();
        let entry = within_limit("the reply", || {
            receiver.queue.progress();
            sender.queue.poll()
        });
        assert_eq!((entry.context, entry.source), (3, to));
        sender.close();
        receiver.close();
    }
}

#[test]
fn both_sides_may_begin_at_once_before_either_has_heard_of_the_other() {
    let world = World::new(2);
    let rooms = [Memory::new(8), Memory::new(8)];
    for node in [0, 1] {
        world.endpoint(node).tinject(&[node as u8; 8], world.address(1 - node), 1).unwrap();
        world.endpoint(node).trecv(rooms[node], 1, 0, 1).unwrap();
    }
    for node in [0, 1] {
        assert_eq!(world.success(node, 1).source, world.address(1 - node));
        assert_eq!(rooms[node].bytes(), [1 - node as u8; 8]);
    }
}

#[test]
fn what_depends_on_a_peer_that_closes_ends_with_an_error_and_nothing_else() {
    let world = World::new(2);
    let leaver = Node::new();
    let gone = world.node(0).vector.add(leaver.name);
    let endpoint = world.endpoint(0);
    let oneself = leaver.vector.add(world.node(0).name);
    // They are connected.
    leaver.endpoint.tinject(b"hello", oneself, 1).unwrap();
    endpoint.trecv_from(Memory::new(8), at(gone, 1), 1).unwrap();
    world.until("a first message", || {
        leaver.queue.progress();
        world.queue(0).poll()
    });
    let long = Memory::of(&payload(1, 300_000));
    let parts = [Memory::of(b"awaited")];
    let awaited = Call { parts: &parts, address: gone, tag: 3, context: 12, ..Call::default() };
    endpoint.trecv_from(Memory::new(8), at(gone, 2), 10).unwrap();
    endpoint.tsend(long, gone, 3, 11).unwrap();
    endpoint.tsendmsg(awaited, sys::FI_DELIVERY_COMPLETE).unwrap();
    endpoint.recv_from(Memory::new(8), gone, 13).unwrap();
    // Nothing of this is the leaver's.
    endpoint.trecv_from(Memory::new(8), at(ANY, 2), 20).unwrap();
    endpoint.trecv_from(Memory::new(8), at(world.address(1), 2), 21).unwrap();
    for _ in 0..100 {
        world.progress();
        leaver.queue.progress();
    }
    leaver.close();
    let mut contexts: Vec<_> = (0..4)
        .map(|_| {
            let entry = world.entry(0);
            assert_eq!(entry.failure, sys::FI_ENOTCONN, "{entry:x?}");
            assert!(world.queue(0).words(entry.reason).contains("closed"));
            entry.context
        })
        .collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [10, 11, 12, 13]);
    world.expect_silence();
    // A new operation ends in the same way.
    endpoint.tsend(long, gone, 3, 14).unwrap();
    world.failure(0, 14, sys::FI_ENOTCONN);
    endpoint.trecv_from(Memory::new(8), at(gone, 2), 15).unwrap();
    world.failure(0, 15, sys::FI_ENOTCONN);
    // The others go on.
    for context in [20, 21] {
        world.endpoint(1).tinject(b"alive", world.address(0), 2).unwrap();
        assert_eq!(world.success(0, context).source, world.address(1));
    }
    world.expect_silence();
}

#[test]
fn messages_that_were_accepted_before_the_close_arrive() {
    const COUNT: usize = 300;
    let sender = Node::new();
    let receiver = Node::new();
    let to = sender.vector.add(receiver.name);
    let length = |number: usize| if number % 50 == 49 { 200_000 } else { number * 31 % 6000 };
    for number in 0..COUNT {
        let from = Memory::of(&payload(number as u64, length(number)));
        sender.endpoint.tsend(from, to, number as u64, number).unwrap();
    }
    // The close waits for the receiver, which has not heard of the sender yet.
    thread::scope(|scope| {
        scope.spawn(|| sender.close());
        for number in 0..COUNT {
            let room = Memory::new(length(number));
            receiver.endpoint.trecv(room, number as u64, 0, number).unwrap();
            let entry = within_limit("a message", || receiver.queue.poll());
            assert_eq!((entry.context, entry.failure), (number, 0));
            assert_eq!(room.bytes(), payload(number as u64, length(number)));
        }
    });
    receiver.close();
}

#[test]
fn receives_that_are_posted_end_with_the_endpoint_and_are_not_told() {
    let node = Node::new();
    for context in 0..10 {
        node.endpoint.trecv(Memory::new(8), 1, 0, context).unwrap();
        node.endpoint.recv(Memory::new(8), context).unwrap();
    }
    node.endpoint.close().unwrap();
    assert_eq!(node.queue.poll(), None);
    node.queue.close().unwrap();
    node.vector.close().unwrap();
    node.domain.close();
}
