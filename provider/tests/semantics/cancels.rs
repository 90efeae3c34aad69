//! `fi_cancel`: fi_endpoint(3).

use crate::client::{Memory, World, payload, sys};

#[test]
fn a_cancelled_receive_ends_with_ecanceled_and_takes_no_message() {
    let world = World::new(2);
    let endpoint = world.endpoint(1);
    let room = Memory::new(8);
    let later = Memory::new(8);
    endpoint.trecv(room, 5, 0, 1).unwrap();
    endpoint.recv(room, 2).unwrap();
    world.settle();
    for (context, kind) in [(1, sys::FI_TAGGED), (2, sys::FI_MSG)] {
        endpoint.cancel(context).unwrap();
        let entry = world.failure(1, context, sys::FI_ECANCELED);
        assert_eq!(entry.flags, sys::FI_RECV | kind);
    }
    world.expect_silence();
    world.endpoint(0).tinject(b"message", world.address(1), 5).unwrap();
    world.settle();
    endpoint.trecv(later, 5, 0, 3).unwrap();
    assert_eq!(world.success(1, 3).length, 7);
    assert_eq!(room.bytes(), [0xee; 8]);
}

#[test]
fn a_cancel_without_such_an_operation_does_nothing() {
    let world = World::new(2);
    let endpoint = world.endpoint(1);
    endpoint.cancel(1).unwrap();
    let room = Memory::new(8);
    endpoint.trecv(room, 5, 0, 1).unwrap();
    endpoint.cancel(2).unwrap();
    world.expect_silence();
    world.endpoint(0).tinject(b"message", world.address(1), 5).unwrap();
    world.success(1, 1);
    // It is over.
    endpoint.cancel(1).unwrap();
    world.expect_silence();
}

#[test]
fn a_cancel_takes_one_receive_of_several_with_its_context() {
    let world = World::new(2);
    let endpoint = world.endpoint(1);
    for tag in 0..5 {
        endpoint.trecv(Memory::new(8), tag, 0, 9).unwrap();
    }
    for _ in 0..3 {
        endpoint.cancel(9).unwrap();
        world.failure(1, 9, sys::FI_ECANCELED);
        world.expect_silence();
    }
    for tag in 0..5 {
        world.endpoint(0).tinject(b"x", world.address(1), tag).unwrap();
    }
    world.success(1, 9);
    world.success(1, 9);
    world.expect_silence();
}

#[test]
fn a_cancel_that_meets_a_message_gives_exactly_one_entry() {
    for length in [8, 300_000] {
        let world = World::new(2);
        let sender = world.endpoint(0);
        let receiver = world.endpoint(1);
        let mut outcomes = [0, 0];
        for round in 0..60u64 {
            let room = Memory::new(length);
            let from = Memory::of(&payload(round, length));
            receiver.trecv(room, round, 0, 1).unwrap();
            sender.tsend(from, world.address(1), round, 2).unwrap();
            // The message is in no place, on its way, or there.
            for step in 0..round % 4 {
                world.queue(step as usize % 2).progress();
            }
            receiver.cancel(1).unwrap();
            let entry = world.entry(1);
            assert_eq!(entry.context, 1);
            match entry.failure {
                0 => {
                    outcomes[0] += 1;
                    assert_eq!(room.bytes(), from.bytes());
                }
                sys::FI_ECANCELED => {
                    outcomes[1] += 1;
                    assert_eq!(room.bytes(), vec![0xee; length]);
                    // The message is still there for another receive.
                    receiver.trecv(room, round, 0, 3).unwrap();
                    world.success(1, 3);
                    assert_eq!(room.bytes(), from.bytes());
                }
                other => panic!("{other}"),
            }
            world.success(0, 2);
            world.expect_silence();
        }
        assert!(outcomes.iter().all(|count| *count > 5), "both outcomes are tested: {outcomes:?}");
    }
}

#[test]
fn a_send_is_not_cancelled() {
    let world = World::new(2);
    let from = Memory::of(&payload(3, 300_000));
    world.endpoint(0).tsend(from, world.address(1), 5, 1).unwrap();
    world.settle();
    world.endpoint(0).cancel(1).unwrap();
    world.expect_silence();
    // Nor does it keep a receive with its context from being cancelled.
    world.endpoint(0).trecv(Memory::new(1), 5, 0, 1).unwrap();
    world.endpoint(0).cancel(1).unwrap();
    world.failure(0, 1, sys::FI_ECANCELED);
    world.expect_silence();
    let room = Memory::new(300_000);
    world.endpoint(1).trecv(room, 5, 0, 2).unwrap();
    world.success(1, 2);
    world.success(0, 1);
    assert_eq!(room.bytes(), from.bytes());
}

#[test]
fn a_context_may_have_any_value() {
    for context in [0, 1, (1 << 61) - 1, 1 << 61, 1 << 62, 1 << 63, usize::MAX] {
        let world = World::new(2);
        let sender = world.endpoint(0);
        let receiver = world.endpoint(1);
        for kind in [sys::FI_TAGGED, sys::FI_MSG] {
            let post = || match kind {
                sys::FI_TAGGED => receiver.trecv(Memory::new(8), 5, 0, context),
                _ => receiver.recv(Memory::new(8), context),
            };
            post().unwrap();
            receiver.cancel(context).unwrap();
            let entry = world.failure(1, context, sys::FI_ECANCELED);
            assert_eq!(entry.flags, sys::FI_RECV | kind);
            post().unwrap();
            match kind {
                sys::FI_TAGGED => sender.tinject(b"message", world.address(1), 5),
                _ => sender.inject(b"message", world.address(1)),
            }
            .unwrap();
            assert_eq!(world.success(1, context).flags, sys::FI_RECV | kind);
        }
        world.expect_silence();
    }
}
