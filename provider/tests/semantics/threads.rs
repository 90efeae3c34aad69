//! Several threads use a domain at the same time: `FI_THREAD_SAFE`, fi_domain(3).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::client::{Memory, World, payload, sys, within_limit};

const SENDERS: usize = 3;
const MESSAGES: usize = 600;

#[test]
fn threads_may_send_receive_and_read_the_same_objects_at_the_same_time() {
    let world = World::new(2);
    let to = world.address(1);
    let length = |number: usize| number * 37 % 9000;
    let total = SENDERS * MESSAGES;
    let rooms: Vec<_> = (0..total).map(|number| Memory::new(length(number))).collect();
    let entries = [(); 2].map(|()| (0..total).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let world = &world;
            let rooms = &rooms;
            scope.spawn(move || {
                for number in (0..total).filter(|number| number % SENDERS == sender) {
                    let from = Memory::of(&payload(number as u64, length(number)));
                    world.endpoint(0).tsend(from, to, number as u64, number).unwrap();
                }
            });
            scope.spawn(move || {
                for number in (0..total).filter(|number| number % SENDERS == sender) {
                    world.endpoint(1).trecv(rooms[number], number as u64, 0, number).unwrap();
                }
            });
        }
        for node in [0, 1, 0, 1] {
            let world = &world;
            let entries = &entries[node];
            let count = &counts[node];
            scope.spawn(move || {
                within_limit("all entries", || {
                    while let Some(entry) = next(world, node) {
                        entries[entry].fetch_add(1, Ordering::Relaxed);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    (count.load(Ordering::Relaxed) >= total).then_some(())
                });
            });
        }
    });
    let is_once = |count: &AtomicUsize| count.load(Ordering::Relaxed) == 1;
    assert!(entries.iter().flatten().all(is_once), "each operation has one entry");
    for (number, room) in rooms.iter().enumerate() {
        assert_eq!(room.bytes(), payload(number as u64, length(number)), "message {number}");
    }
    world.expect_silence();
}

/// The context of the next entry, which tells of success.
fn next(world: &World, node: usize) -> Option<usize> {
    let entry = world.queue(node).poll()?;
    assert_eq!(entry.failure, 0);
    Some(entry.context)
}

#[test]
fn threads_may_open_and_close_objects_while_others_send() {
    let world = World::new(2);
    let domain = world.node(0).domain;
    thread::scope(|scope| {
        let objects = scope.spawn(|| {
            for _ in 0..30 {
                let counter = domain.counter();
                let endpoint = domain.endpoint();
                let vector = domain.vector(sys::FI_AV_TABLE);
                endpoint.bind_counter(counter, sys::FI_SEND | sys::FI_RECV).unwrap();
                endpoint.bind_vector(vector).unwrap();
                endpoint.enable().unwrap();
                let oneself = vector.add(endpoint.name());
                endpoint.tinject(b"x", oneself, 1).unwrap();
                endpoint.trecv(Memory::new(1), 1, 0, 1).unwrap();
                counter.wait(2, 30_000).unwrap();
                endpoint.close().unwrap();
                counter.close().unwrap();
                vector.close().unwrap();
            }
        });
        let mut number = 0;
        while !objects.is_finished() {
            let from = Memory::of(&payload(number, 100));
            let room = Memory::new(100);
            world.endpoint(1).trecv(room, number, 0, 1).unwrap();
            world.endpoint(0).tsend(from, world.address(1), number, 2).unwrap();
            world.success(1, 1);
            world.success(0, 2);
            assert_eq!(room.bytes(), from.bytes());
            number += 1;
        }
    });
}
