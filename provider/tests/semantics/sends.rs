//! When a send is complete, and when it has an entry: fi_msg(3), fi_endpoint(3), fi_cq(3).

use crate::client::{Call, Hints, Memory, World, at, payload, sys, within_limit};

const LENGTHS: [usize; 4] = [0, 64, 5000, 400_000];
const SELECTIVE: u64 = sys::FI_TRANSMIT | sys::FI_RECV | sys::FI_SELECTIVE_COMPLETION;

fn inject_size(world: &World) -> usize {
    // SAFETY: `fi_getinfo` gave all parts.
    unsafe { (*(*world.node(0).domain.info).tx_attr).inject_size }
}

#[test]
fn an_injected_message_is_copied_at_once_and_has_no_entry() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    for length in [0, 1, inject_size(&world)] {
        let sends: [&dyn Fn(&[u8]) -> _; 4] = [
            &|bytes| sender.tinject(bytes, to, 1),
            &|bytes| sender.tinjectdata(bytes, 5, to, 1),
            &|bytes| sender.inject(bytes, to),
            &|bytes| sender.injectdata(bytes, 5, to),
        ];
        for (way, send) in sends.iter().enumerate() {
            // The first is taken by a receive that is posted, the second is unexpected.
            for is_posted in [true, false] {
                let room = Memory::new(length);
                let post = || match way {
                    0 | 1 => receiver.trecv(room, 1, 0, 1).unwrap(),
                    _ => receiver.recv(room, 1).unwrap(),
                };
                world.meet(!is_posted, post, || {
                    let mut bytes = payload(way as u64, length);
                    send(&bytes).unwrap();
                    bytes.fill(0);
                });
                world.success(1, 1);
                assert_eq!(room.bytes(), payload(way as u64, length));
                world.expect_silence();
            }
        }
    }
}

#[test]
fn a_message_too_long_to_inject_is_refused() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let to = world.address(1);
    let bytes = vec![0; inject_size(&world) + 1];
    let parts = [Memory::of(&bytes)];
    let halves = [parts[0].part(0, bytes.len() / 2), parts[0].part(0, bytes.len().div_ceil(2))];
    let refused = Err(sys::FI_EMSGSIZE);
    assert_eq!(sender.tinject(&bytes, to, 1), refused);
    assert_eq!(sender.tinjectdata(&bytes, 1, to, 1), refused);
    assert_eq!(sender.inject(&bytes, to), refused);
    assert_eq!(sender.injectdata(&bytes, 1, to), refused);
    for parts in [&parts[..], &halves[..]] {
        let call = Call { parts, address: to, ..Call::default() };
        assert_eq!(sender.tsendmsg(call, sys::FI_INJECT), refused);
        assert_eq!(sender.sendmsg(call, sys::FI_INJECT), refused);
    }
    world.expect_silence();
}

#[test]
fn the_flag_inject_copies_the_message_and_keeps_its_entry() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let to = world.address(1);
    let whole = Memory::of(&payload(1, 64));
    let parts = [whole.part(0, 10), whole.part(10, 54)];
    let call = Call { parts: &parts, address: to, tag: 1, context: 9, ..Call::default() };
    sender.tsendmsg(call, sys::FI_INJECT).unwrap();
    whole.write(&[0; 64]);
    world.success(0, 9);
    let room = Memory::new(64);
    world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
    world.success(1, 1);
    assert_eq!(room.bytes(), payload(1, 64));
}

#[test]
fn the_memory_of_a_send_is_the_programs_own_again_once_there_is_the_entry() {
    for length in LENGTHS {
        let world = World::new(2);
        let from = Memory::of(&payload(1, length));
        let room = Memory::new(length);
        world.endpoint(0).tsend(from, world.address(1), 1, 9).unwrap();
        let mut posted = false;
        world.until("the send's entry", || {
            let entry = world.queue(0).poll();
            // A long message is complete once it is received.
            if entry.is_none() && !std::mem::replace(&mut posted, true) {
                world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
            }
            entry
        });
        from.write(&vec![0; length]);
        if !posted {
            world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
        }
        world.success(1, 1);
        assert_eq!(room.bytes(), payload(1, length));
    }
}

#[test]
fn with_selective_completion_a_send_has_an_entry_only_if_asked() {
    let default_flags = [0, sys::FI_COMPLETION];
    for send_flags in default_flags {
        let world = World::of(2, &Hints { send_flags, ..Hints::default() }, SELECTIVE);
        let sender = world.endpoint(0);
        let to = world.address(1);
        for length in LENGTHS {
            let from = Memory::of(&payload(1, length));
            let room = Memory::new(length);
            let parts = [from];
            let call = Call { parts: &parts, address: to, tag: 1, context: 8, ..Call::default() };
            let sends: [(&dyn Fn() -> _, bool); 8] = [
                // By the flags of the endpoint.
                (&|| sender.tsend(from, to, 1, 8), send_flags != 0),
                (&|| sender.tsenddata(from, 1, at(to, 1), 8), send_flags != 0),
                (&|| sender.tsendv(&parts, to, 1, 8), send_flags != 0),
                // By the flags of the call alone.
                (&|| sender.tsendmsg(call, 0), false),
                (&|| sender.tsendmsg(call, sys::FI_COMPLETION), true),
                (&|| sender.tsendmsg(call, sys::FI_DELIVERY_COMPLETE), false),
                (&|| sender.tsendmsg(call, sys::FI_TRANSMIT_COMPLETE | sys::FI_COMPLETION), true),
                (&|| sender.tsendmsg(call, sys::FI_MATCH_COMPLETE | sys::FI_COMPLETION), true),
            ];
            for (send, tells) in sends {
                let receive = Call { address: sys::FI_ADDR_UNSPEC, parts: &[room], ..call };
                world.endpoint(1).trecvmsg(receive, sys::FI_COMPLETION).unwrap();
                send().unwrap();
                world.success(1, 8);
                assert_eq!(room.bytes(), from.bytes());
                if tells {
                    let entry = world.success(0, 8);
                    assert_eq!(entry.flags, sys::FI_SEND | sys::FI_TAGGED);
                }
                world.expect_silence();
            }
        }
    }
}

#[test]
fn with_selective_completion_a_receive_has_an_entry_only_if_asked() {
    for receive_flags in [0, sys::FI_COMPLETION] {
        let world = World::of(2, &Hints { receive_flags, ..Hints::default() }, SELECTIVE);
        let receiver = world.endpoint(1);
        let to = world.address(1);
        let tells = receive_flags != 0;
        let room = Memory::new(8);
        let parts = [room];
        let call = Call { parts: &parts, tag: 1, context: 8, ..Call::default() };
        let receives: [(&dyn Fn() -> _, bool); 4] = [
            (&|| receiver.trecv(room, 1, 0, 8), tells),
            (&|| receiver.trecvv(&parts, 1, 8), tells),
            (&|| receiver.trecvmsg(call, 0), false),
            (&|| receiver.trecvmsg(call, sys::FI_COMPLETION), true),
        ];
        for (receive, tells) in receives {
            receive().unwrap();
            world.endpoint(0).tinject(b"message!", to, 1).unwrap();
            if tells {
                world.success(1, 8);
            }
            world.expect_silence();
            assert_eq!(room.bytes(), b"message!");
            room.write(&[0; 8]);
        }
        // A look is always told, the receive of what was claimed only if asked.
        for (flags, tells) in [(0, false), (sys::FI_COMPLETION, true)] {
            for drops in [0, sys::FI_DISCARD] {
                world.endpoint(0).tinject(b"message!", to, 1).unwrap();
                world.settle();
                receiver.trecvmsg(call, sys::FI_PEEK | sys::FI_CLAIM).unwrap();
                world.success(1, 8);
                receiver.trecvmsg(call, sys::FI_CLAIM | drops | flags).unwrap();
                if tells {
                    world.success(1, 8);
                }
                world.expect_silence();
            }
        }
        // A failure is always told.
        receiver.trecvmsg(call, 0).unwrap();
        world.endpoint(0).tinject(b"too long!", to, 1).unwrap();
        world.failure(1, 8, sys::FI_ETRUNC);
        receiver.trecvmsg(call, 0).unwrap();
        receiver.cancel(8).unwrap();
        world.failure(1, 8, sys::FI_ECANCELED);
        world.expect_silence();
    }
}

#[test]
fn without_selective_completion_every_operation_has_an_entry() {
    let world = World::new(2);
    let parts = [Memory::new(8)];
    let call = Call { parts: &parts, address: world.address(1), context: 8, ..Call::default() };
    let receive = Call { address: sys::FI_ADDR_UNSPEC, ..call };
    world.endpoint(1).trecvmsg(receive, 0).unwrap();
    world.endpoint(0).tsendmsg(call, 0).unwrap();
    world.success(0, 8);
    world.success(1, 8);
    world.expect_silence();
}

/// Sends with this flag. The receiver makes progress only when it is told to.
fn sent_with(flag: u64, length: usize) -> World {
    let world = World::new(2);
    let parts = [Memory::of(&payload(3, length))];
    let address = world.address(1);
    let context = 9;
    let call = Call { parts: &parts, address, tag: 1, context, ..Call::default() };
    world.endpoint(0).tsendmsg(call, flag | sys::FI_COMPLETION).unwrap();
    world
}

#[test]
fn delivery_complete_means_that_the_bytes_are_in_the_receivers_buffer() {
    for length in LENGTHS {
        // The receive is posted before the message comes, or after it.
        for is_posted in [true, false] {
            let world = sent_with(sys::FI_DELIVERY_COMPLETE, length);
            let room = Memory::new(length);
            if is_posted {
                world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
            } else {
                world.settle();
                assert!(world.queue(0).poll().is_none(), "the message is in no buffer yet");
                world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
            }
            let entry = within_limit("the send's entry", || {
                world.queue(1).progress();
                world.queue(0).poll()
            });
            assert_eq!((entry.context, entry.failure), (9, 0));
            assert_eq!(room.bytes(), payload(3, length));
            world.success(1, 1);
            world.expect_silence();
        }
    }
}

#[test]
fn delivery_complete_as_an_endpoints_flag_holds_for_plain_sends() {
    let send_flags = sys::FI_DELIVERY_COMPLETE;
    let both = sys::FI_TRANSMIT | sys::FI_RECV;
    let world = World::of(2, &Hints { send_flags, ..Hints::default() }, both);
    let sender = world.endpoint(0);
    let to = world.address(1);
    sender.tsend(Memory::of(b"tagged"), to, 1, 1).unwrap();
    sender.send(Memory::of(b"untagged"), to, 2).unwrap();
    world.expect_silence();
    world.endpoint(1).recv(Memory::new(8), 3).unwrap();
    world.success(1, 3);
    world.success(0, 2);
    world.endpoint(1).trecv(Memory::new(8), 1, 0, 4).unwrap();
    world.success(1, 4);
    world.success(0, 1);
}

#[test]
fn match_complete_means_that_a_receive_has_the_message() {
    for length in LENGTHS {
        let world = sent_with(sys::FI_MATCH_COMPLETE, length);
        world.settle();
        // A probe is no match.
        let probe = Call { tag: 1, context: 2, ..Call::default() };
        world.endpoint(1).trecvmsg(probe, sys::FI_PEEK).unwrap();
        world.success(1, 2);
        world.expect_silence();
        let room = Memory::new(length);
        world.endpoint(1).trecv(room, 1, 0, 1).unwrap();
        world.success(0, 9);
        world.success(1, 1);
        assert_eq!(room.bytes(), payload(3, length));
        world.expect_silence();
    }
}

#[test]
fn a_delivered_message_may_be_truncated_or_go_to_a_claim() {
    for length in [64, 400_000] {
        let world = sent_with(sys::FI_DELIVERY_COMPLETE, length);
        world.settle();
        let probe = Call { tag: 1, context: 2, ..Call::default() };
        world.endpoint(1).trecvmsg(probe, sys::FI_PEEK | sys::FI_CLAIM).unwrap();
        world.success(1, 2);
        world.expect_silence();
        let parts = [Memory::new(10)];
        let claim = Call { parts: &parts, ..probe };
        world.endpoint(1).trecvmsg(claim, sys::FI_CLAIM).unwrap();
        world.failure(1, 2, sys::FI_ETRUNC);
        world.success(0, 9);
        world.expect_silence();
    }
}

#[test]
fn a_send_with_unknown_flags_is_refused() {
    let world = World::new(1);
    let call = Call { address: world.address(0), ..Call::default() };
    for flag in [sys::FI_PEEK, sys::FI_MULTI_RECV, sys::FI_TRIGGER, sys::FI_FENCE, 1 << 62] {
        assert_eq!(world.endpoint(0).tsendmsg(call, flag), Err(sys::FI_EBADFLAGS));
        assert_eq!(world.endpoint(0).sendmsg(call, flag), Err(sys::FI_EBADFLAGS));
    }
    world.expect_silence();
}
