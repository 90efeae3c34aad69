//! Messages to oneself.

use crate::client::{Call, Memory, World, at, payload, sys};

#[test]
fn an_endpoint_sends_messages_of_all_sizes_to_itself() {
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    let oneself = world.address(0);
    for length in [0, 1, 64, 4096, 5000, 70_000, 3_000_000] {
        for is_unexpected in [false, true] {
            let from = Memory::of(&payload(length as u64, length));
            let tagged = Memory::new(length);
            let untagged = Memory::new(length);
            let post = || {
                endpoint.trecv_from(tagged, at(oneself, 5), 1).unwrap();
                endpoint.recv(untagged, 2).unwrap();
            };
            let send = || {
                endpoint.tsend(from, oneself, 5, 3).unwrap();
                endpoint.senddata(from, 9, oneself, 4).unwrap();
            };
            world.meet(is_unexpected, post, send);
            let mut entries = [(); 4].map(|()| world.entry(0));
            entries.sort_unstable_by_key(|entry| entry.context);
            assert_eq!(
                entries.map(|entry| (entry.context, entry.failure)),
                [1, 2, 3, 4].map(|c| (c, 0))
            );
            assert_eq!(entries.map(|entry| entry.length), [length, length, 0, 0]);
            assert_eq!([entries[0].source, entries[1].source], [oneself; 2]);
            assert_eq!([tagged.bytes(), untagged.bytes()], [from.bytes(), from.bytes()]);
        }
    }
    world.expect_silence();
}

#[test]
fn a_message_to_oneself_can_be_injected_truncated_probed_and_awaited() {
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    let oneself = world.address(0);
    endpoint.tinject(b"injected", oneself, 1).unwrap();
    endpoint.trecvmsg(Call { tag: 1, context: 1, ..Call::default() }, sys::FI_PEEK).unwrap();
    assert_eq!(world.success(0, 1).length, 8);
    endpoint.trecv(Memory::new(3), 1, 0, 2).unwrap();
    assert_eq!(world.failure(0, 2, sys::FI_ETRUNC).overflow, 5);
    for flag in [sys::FI_DELIVERY_COMPLETE, sys::FI_MATCH_COMPLETE] {
        let parts = [Memory::of(b"awaited")];
        let call = Call { parts: &parts, address: oneself, tag: 1, context: 3, ..Call::default() };
        endpoint.tsendmsg(call, flag).unwrap();
        world.expect_silence();
        let room = Memory::new(7);
        endpoint.trecv(room, 1, 0, 4).unwrap();
        let mut contexts = [world.entry(0).context, world.entry(0).context];
        contexts.sort_unstable();
        assert_eq!((contexts, room.bytes()), ([3, 4], b"awaited".to_vec()));
    }
    world.expect_silence();
}
