//! `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD`: fi_tagged(3).

use crate::client::{Call, Entry, Memory, World, at, payload, sys};

const PEEK: u64 = sys::FI_PEEK;
const CLAIM: u64 = sys::FI_CLAIM;
const DISCARD: u64 = sys::FI_DISCARD;

/// Messages that come with their bytes, and by rendezvous.
const LENGTHS: [usize; 3] = [0, 100, 400_000];

fn look_for(tag: u64, context: usize) -> Call<'static> {
    Call { tag, context, ..Call::default() }
}

/// A message waits at endpoint 1. Its send has context 10 and immediate data.
fn with_message(length: usize, tag: u64) -> World {
    let world = World::new(2);
    let from = Memory::of(&payload(1, length));
    world.endpoint(0).tsenddata(from, 77, at(world.address(1), tag), 10).unwrap();
    world.settle();
    world
}

/// Checks what an entry tells of the message of [`with_message`].
fn check(world: &World, entry: &Entry, length: usize, tag: u64) {
    assert_eq!((entry.length, entry.tag, entry.data), (length, tag, 77), "{entry:x?}");
    assert_eq!(entry.source, world.address(0));
    assert_eq!(entry.flags, sys::FI_RECV | sys::FI_TAGGED | sys::FI_REMOTE_CQ_DATA);
}

/// The message of [`with_message`] is received, and its sender completes.
fn receive(world: &World, length: usize, tag: u64) {
    let room = Memory::new(length);
    world.endpoint(1).trecv(room, tag, 0, 99).unwrap();
    check(world, &world.success(1, 99), length, tag);
    assert_eq!(room.bytes(), payload(1, length));
    world.success(0, 10);
}

#[test]
fn a_peek_that_finds_a_message_tells_of_it_and_does_not_take_it() {
    for length in LENGTHS {
        let world = with_message(length, 5);
        for context in 1..4 {
            world.endpoint(1).trecvmsg(look_for(5, context), PEEK).unwrap();
            check(&world, &world.success(1, context), length, 5);
        }
        receive(&world, length, 5);
        world.expect_silence();
    }
}

#[test]
fn a_peek_that_finds_nothing_ends_with_enomsg_and_its_context() {
    let world = with_message(8, 5);
    let absent = [
        look_for(4, 21),
        Call { tag: 0x15, ignore: 0xe0, context: 22, ..Call::default() },
        // The message is of another source.
        Call { tag: 5, context: 23, address: world.address(1), ..Call::default() },
    ];
    for call in absent {
        for flags in [PEEK, PEEK | CLAIM, PEEK | DISCARD] {
            world.endpoint(1).trecvmsg(call, flags).unwrap();
            let entry = world.failure(1, call.context, sys::FI_ENOMSG);
            assert_eq!(entry.flags, sys::FI_RECV | sys::FI_TAGGED);
        }
    }
    receive(&world, 8, 5);
    // Now it is gone.
    world.endpoint(1).trecvmsg(look_for(5, 24), PEEK).unwrap();
    world.failure(1, 24, sys::FI_ENOMSG);
    world.expect_silence();
}

#[test]
fn a_peek_finds_the_oldest_message_that_matches() {
    let world = World::new(3);
    for (node, tag) in [(0, 0x11), (1, 0x21), (0, 0x22), (1, 0x12)] {
        world.endpoint(node).tinject(b"x", world.address(2), tag).unwrap();
        world.settle();
    }
    let any = sys::FI_ADDR_UNSPEC;
    let first = world.address(0);
    let second = world.address(1);
    let cases = [
        (0x00, 0xff, any, 0x11),
        (0x02, 0xf0, any, 0x22),
        (0x10, 0x0f, second, 0x12),
        (0x00, 0xff, second, 0x21),
        (0x20, 0x0f, first, 0x22),
    ];
    for (tag, ignore, address, found) in cases {
        let call = Call { tag, ignore, address, context: 1, ..Call::default() };
        world.endpoint(2).trecvmsg(call, PEEK).unwrap();
        assert_eq!(world.success(2, 1).tag, found);
    }
}

#[test]
fn a_claimed_message_is_for_the_receive_with_its_context_alone() {
    for length in LENGTHS {
        let world = with_message(length, 5);
        let endpoint = world.endpoint(1);
        endpoint.trecvmsg(look_for(5, 31), PEEK | CLAIM).unwrap();
        check(&world, &world.success(1, 31), length, 5);
        // Neither probes nor receives find it.
        endpoint.trecvmsg(look_for(5, 32), PEEK).unwrap();
        world.failure(1, 32, sys::FI_ENOMSG);
        let other = Memory::new(8);
        endpoint.trecv(other, 5, 0, 33).unwrap();
        world.settle();
        assert_eq!(world.queue(1).poll(), None);
        // Address and tag of the claim don't count: Open MPI gives others than MPICH.
        let room = Memory::new(length);
        let parts = [room];
        let claim =
            Call { parts: &parts, context: 31, tag: 1 << 63, address: 4711, ..Call::default() };
        endpoint.trecvmsg(claim, CLAIM).unwrap();
        check(&world, &world.success(1, 31), length, 5);
        assert_eq!(room.bytes(), payload(1, length));
        world.success(0, 10);
        // The other receive takes the next message.
        world.endpoint(0).tinject(b"next", world.address(1), 5).unwrap();
        assert_eq!(world.success(1, 33).length, 4);
        // The claim is over.
        assert_eq!(endpoint.trecvmsg(claim, CLAIM), Err(sys::FI_EINVAL));
        world.expect_silence();
    }
}

#[test]
fn claims_with_several_contexts_are_independent() {
    let world = World::new(2);
    for tag in 0..8u64 {
        world.endpoint(0).tinject(&payload(tag, 50), world.address(1), tag).unwrap();
    }
    world.settle();
    let any = |context| Call { ignore: u64::MAX, context, ..Call::default() };
    for context in 0..8 {
        world.endpoint(1).trecvmsg(any(context), PEEK | CLAIM).unwrap();
        assert_eq!(world.success(1, context).tag, context as u64);
    }
    // A context stands for one message at a time.
    world.endpoint(0).tinject(b"x", world.address(1), 0).unwrap();
    world.settle();
    assert_eq!(world.endpoint(1).trecvmsg(any(3), PEEK | CLAIM), Err(sys::FI_EBUSY));
    for context in [5, 0, 7, 1, 6, 2, 3, 4] {
        let parts = [Memory::new(50)];
        let claim = Call { parts: &parts, context, ..Call::default() };
        world.endpoint(1).trecvmsg(claim, CLAIM).unwrap();
        assert_eq!(world.success(1, context).tag, context as u64);
        assert_eq!(parts[0].bytes(), payload(context as u64, 50));
    }
}

#[test]
fn a_claimed_message_can_be_truncated() {
    for length in [100, 400_000] {
        let world = with_message(length, 5);
        world.endpoint(1).trecvmsg(look_for(5, 1), PEEK | CLAIM).unwrap();
        check(&world, &world.success(1, 1), length, 5);
        let parts = [10, 20].map(Memory::new);
        let claim = Call { parts: &parts, context: 1, ..Call::default() };
        world.endpoint(1).trecvmsg(claim, CLAIM).unwrap();
        let entry = world.failure(1, 1, sys::FI_ETRUNC);
        assert_eq!((entry.length, entry.overflow), (30, length - 30));
        assert_eq!(parts.map(|part| part.bytes()).concat(), payload(1, length)[..30]);
        world.success(0, 10);
        world.expect_silence();
    }
}

#[test]
fn a_discarded_message_is_gone_and_its_sender_completes() {
    for length in LENGTHS {
        // At once, and after it was claimed.
        for is_claimed in [false, true] {
            let world = with_message(length, 5);
            if is_claimed {
                world.endpoint(1).trecvmsg(look_for(5, 1), PEEK | CLAIM).unwrap();
                check(&world, &world.success(1, 1), length, 5);
                world.endpoint(1).trecvmsg(look_for(0, 1), CLAIM | DISCARD).unwrap();
                assert_eq!(world.success(1, 1).flags, sys::FI_RECV | sys::FI_TAGGED);
            } else {
                world.endpoint(1).trecvmsg(look_for(5, 1), PEEK | DISCARD).unwrap();
                check(&world, &world.success(1, 1), length, 5);
            }
            world.success(0, 10);
            world.endpoint(1).trecvmsg(look_for(5, 2), PEEK).unwrap();
            world.failure(1, 2, sys::FI_ENOMSG);
            world.expect_silence();
        }
    }
}

#[test]
fn a_discarded_message_completes_a_send_that_waits_for_its_delivery() {
    for flag in [sys::FI_DELIVERY_COMPLETE, sys::FI_MATCH_COMPLETE] {
        for length in LENGTHS {
            let world = World::new(2);
            let parts = [Memory::of(&payload(1, length))];
            let address = world.address(1);
            let call = Call { parts: &parts, address, tag: 5, context: 10, ..Call::default() };
            world.endpoint(0).tsendmsg(call, flag | sys::FI_COMPLETION).unwrap();
            world.expect_silence();
            world.endpoint(1).trecvmsg(look_for(5, 1), PEEK | DISCARD).unwrap();
            world.success(1, 1);
            world.success(0, 10);
            world.expect_silence();
        }
    }
}

#[test]
fn probes_and_claims_with_wrong_flags_are_refused() {
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    for flags in [DISCARD, sys::FI_MULTI_RECV, PEEK | sys::FI_INJECT, 1 << 63] {
        assert_eq!(endpoint.trecvmsg(look_for(1, 1), flags), Err(sys::FI_EBADFLAGS), "{flags:x}");
    }
    for flags in [CLAIM, CLAIM | DISCARD] {
        assert_eq!(endpoint.trecvmsg(look_for(1, 1), flags), Err(sys::FI_EINVAL), "{flags:x}");
    }
    // Probes are for tagged messages.
    assert_eq!(endpoint.recvmsg(look_for(1, 1), PEEK), Err(sys::FI_EBADFLAGS));
    world.expect_silence();
}
