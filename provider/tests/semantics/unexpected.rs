//! How many messages may wait for a receive: MPI has no bound (MPI-4.1 section 3.5), so what
//! follows a flood of messages must get through.

use std::time::{Duration, Instant};

use crate::client::{Memory, World, alone_with, payload};

/// Sends messages that nobody has posted a receive for, and then one that is received before them.
fn flood(world: &World, count: u64, on_the_way: impl FnOnce()) {
    for number in 0..count {
        world.endpoint(0).tinject(&payload(number, 8), world.address(1), number).unwrap();
        if number % 1000 == 0 {
            world.progress();
        }
    }
    on_the_way();
}

fn receive(world: &World, tag: u64) {
    let room = Memory::new(8);
    world.endpoint(1).trecv(room, tag, 0, 1).unwrap();
    world.success(1, 1);
    assert_eq!(room.bytes(), payload(tag, 8));
}

#[test]
fn a_barrier_passes_behind_more_unexpected_messages_than_the_crate_keeps_by_default() {
    const COUNT: u64 = 150_000;
    let world = World::new(2);
    flood(&world, COUNT, || ());
    receive(&world, COUNT - 1);
    (0..COUNT - 1).for_each(|tag| receive(&world, tag));
}

#[test]
fn a_sender_that_waits_long_for_its_receiver_says_so_once() {
    const COUNT: u64 = 3000;
    let bound = [("TAGMATCH_FI_UNEXPECTED_MESSAGES", "2000".as_ref())];
    let test = "unexpected::a_sender_that_waits_long_for_its_receiver_says_so_once";
    let words = alone_with(test, &bound, || {
        let world = World::new(2);
        flood(&world, COUNT, || {
            let began = Instant::now();
            // More than the time after which it is told, and many looks at the clock.
            while began.elapsed() < Duration::from_secs(6) {
                (0..1000).for_each(|_| world.progress());
            }
        });
        (0..COUNT).for_each(|tag| receive(&world, tag));
    });
    let Some(words) = words else { return };
    let notices = words.lines().filter(|line| line.starts_with("tagmatch: a message has waited"));
    assert_eq!(notices.count(), 1, "{words}");
    assert!(words.contains("TAGMATCH_FI_UNEXPECTED_BYTES"), "{words}");
}
