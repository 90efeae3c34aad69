//! Which receive takes which message: fi_tagged(3).

use crate::client::{Call, Hints, Memory, World, at, payload, sys};

const ANY: u64 = sys::FI_ADDR_UNSPEC;
const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;

#[test]
fn bits_set_in_ignore_do_not_count() {
    let world = World::new(2);
    let to = world.address(1);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let room = Memory::new(8);
    receiver.trecv(room, 0x1200, 0x00ff, 1).unwrap();
    receiver.trecv(room, 0x1200, 0xf00f, 2).unwrap();
    // It matches the second receive alone.
    sender.tsend(Memory::of(b"second"), to, 0xa20c, 10).unwrap();
    let entry = world.success(1, 2);
    assert_eq!((entry.tag, entry.length), (0xa20c, 6));
    world.success(0, 10);
    // Both would match; the first was posted first.
    sender.tsend(Memory::of(b"first"), to, 0x1277, 11).unwrap();
    assert_eq!(world.success(1, 1).tag, 0x1277);
    world.success(0, 11);
    // All bits ignored, the one that is reserved included.
    receiver.trecv(room, u64::MAX, u64::MAX, 3).unwrap();
    sender.tsend(Memory::of(b"any"), to, 0x7fff_ffff_ffff_ffff, 12).unwrap();
    assert_eq!(world.success(1, 3).tag, 0x7fff_ffff_ffff_ffff);
    world.success(0, 12);
    world.expect_silence();
}

#[test]
fn ignore_bits_find_unexpected_messages_too() {
    let world = World::new(2);
    let to = world.address(1);
    for tag in [0x10, 0x21, 0x12] {
        world.endpoint(0).tinject(&[tag as u8], to, tag).unwrap();
    }
    world.settle();
    let room = Memory::new(1);
    for (tag, ignore, found) in [(0x20, 0x0f, 0x21), (0x02, 0xf0, 0x12), (0x00, 0xff, 0x10)] {
        world.endpoint(1).trecv(room, tag, ignore, 5).unwrap();
        assert_eq!((world.success(1, 5).tag, room.bytes()), (found, vec![found as u8]));
    }
}

#[test]
fn a_directed_receive_takes_messages_of_its_source_alone() {
    let world = World::new(3);
    let first = Memory::new(4);
    let second = Memory::new(4);
    let receiver = world.endpoint(2);
    receiver.trecv_from(first, at(world.address(0), 7), 1).unwrap();
    receiver.trecv_from(second, at(world.address(1), 7), 2).unwrap();
    world.endpoint(1).tinject(b"one!", world.address(2), 7).unwrap();
    let entry = world.success(2, 2);
    assert_eq!((entry.source, second.bytes()), (world.address(1), b"one!".to_vec()));
    world.expect_silence();
    world.endpoint(0).tinject(b"zero", world.address(2), 7).unwrap();
    let entry = world.success(2, 1);
    assert_eq!((entry.source, first.bytes()), (world.address(0), b"zero".to_vec()));
    // Unexpected messages, and messages without a tag.
    for node in [0, 1, 0, 1] {
        let to = world.address(2);
        world.endpoint(node).inject(&[node as u8], to).unwrap();
        world.endpoint(node).tinject(&[node as u8], to, 9).unwrap();
    }
    world.settle();
    for source in [1, 0, 0, 1] {
        receiver.recv_from(first, world.address(source), 3).unwrap();
        let entry = world.success(2, 3);
        assert_eq!((entry.source, first.bytes()[0]), (world.address(source), source as u8));
        receiver.trecv_from(second, at(world.address(source), 9), 4).unwrap();
        let entry = world.success(2, 4);
        assert_eq!((entry.source, second.bytes()[0]), (world.address(source), source as u8));
    }
    world.expect_silence();
}

#[test]
fn without_directed_receives_the_source_of_a_receive_is_ignored() {
    let caps = sys::FI_TAGGED | sys::FI_MSG | sys::FI_SOURCE;
    let world = World::of(2, &Hints { caps, ..Hints::default() }, BOTH);
    let room = Memory::new(4);
    // Neither this address nor the receiver's own is the sender's.
    for source in [12345, world.address(1)] {
        world.endpoint(1).trecv_from(room, at(source, 3), 1).unwrap();
        world.endpoint(1).recv_from(room, source, 2).unwrap();
        world.endpoint(0).tinject(b"hi", world.address(1), 3).unwrap();
        assert_eq!(world.success(1, 1).source, world.address(0));
        world.endpoint(0).inject(b"hi", world.address(1)).unwrap();
        assert_eq!(world.success(1, 2).source, world.address(0));
    }
}

#[test]
fn a_directed_receive_from_no_address_is_refused() {
    let world = World::new(1);
    let refused = Err(sys::FI_EINVAL);
    let endpoint = world.endpoint(0);
    assert_eq!(endpoint.trecv_from(Memory::new(1), at(77, 1), 1), refused);
    assert_eq!(endpoint.recv_from(Memory::new(1), 77, 1), refused);
    assert_eq!(endpoint.tsend(Memory::new(1), 77, 1, 1), refused);
    assert_eq!(endpoint.tsend(Memory::new(1), ANY, 1, 1), refused);
    assert_eq!(endpoint.tinject(b"x", 77, 1), refused);
    assert_eq!(endpoint.send(Memory::new(1), 77, 1), refused);
    assert_eq!(endpoint.inject(b"x", 77), refused);
    world.expect_silence();
}

#[test]
fn immediate_data_of_32_bits_comes_with_every_kind_of_message() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    let data = 0xdead_beef;
    for length in [0, 1, 4000, 300_000] {
        for is_unexpected in [false, true] {
            let from = Memory::of(&payload(length as u64, length));
            let room = Memory::new(length);
            let post = || {
                receiver.trecv(room, 5, 0, 1).unwrap();
                receiver.recv(room, 2).unwrap();
            };
            let send = || {
                sender.tsenddata(from, data, at(to, 5), 10).unwrap();
                sender.senddata(from, data, to, 11).unwrap();
            };
            world.meet(is_unexpected, post, send);
            for context in [1, 2] {
                let entry = world.success(1, context);
                let flags = entry.flags & sys::FI_REMOTE_CQ_DATA;
                assert_eq!((flags, entry.data), (sys::FI_REMOTE_CQ_DATA, data));
                assert_eq!(room.bytes(), from.bytes());
            }
            world.success(0, 10);
            world.success(0, 11);
        }
    }
}

#[test]
fn an_entry_has_the_flag_of_immediate_data_only_if_there_is_some() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let receiver = world.endpoint(1);
    let to = world.address(1);
    let room = Memory::new(16);
    let next = |tagged: bool| {
        if tagged {
            receiver.trecv(room, 0, u64::MAX, 1).unwrap();
        } else {
            receiver.recv(room, 1).unwrap();
        }
        let entry = world.success(1, 1);
        let kind = if tagged { sys::FI_TAGGED } else { sys::FI_MSG };
        assert_eq!(entry.flags & !sys::FI_REMOTE_CQ_DATA, sys::FI_RECV | kind);
        (entry.flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(entry.data)
    };
    sender.tinject(b"a", to, 1).unwrap();
    assert_eq!(next(true), None);
    sender.tinjectdata(b"a", 0, to, 1).unwrap();
    assert_eq!(next(true), Some(0));
    sender.inject(b"a", to).unwrap();
    assert_eq!(next(false), None);
    sender.injectdata(b"a", 42, to).unwrap();
    assert_eq!(next(false), Some(42));
    // More than 32 bits have no room.
    sender.tinjectdata(b"a", 0x1_0000_0007, to, 1).unwrap();
    assert_eq!(next(true), Some(7));
    // fi_tsendmsg has data only with the flag.
    let parts = [Memory::of(b"a")];
    let call = Call { parts: &parts, address: to, data: 9, ..Default::default() };
    sender.tsendmsg(call, 0).unwrap();
    assert_eq!(next(true), None);
    sender.tsendmsg(call, sys::FI_REMOTE_CQ_DATA).unwrap();
    assert_eq!(next(true), Some(9));
    sender.sendmsg(call, 0).unwrap();
    assert_eq!(next(false), None);
    sender.sendmsg(call, sys::FI_REMOTE_CQ_DATA).unwrap();
    assert_eq!(next(false), Some(9));
}

#[test]
fn entries_tell_no_source_unless_the_program_asked_for_it() {
    let caps = sys::FI_TAGGED | sys::FI_MSG;
    let world = World::of(2, &Hints { caps, ..Hints::default() }, BOTH);
    world.endpoint(1).trecv(Memory::new(4), 3, 0, 1).unwrap();
    world.endpoint(0).tinject(b"hi", world.address(1), 3).unwrap();
    assert_eq!(world.success(1, 1).source, sys::FI_ADDR_NOTAVAIL);
}

#[test]
fn a_tag_with_the_reserved_bit_is_refused() {
    const RESERVED: u64 = 1 << 63;
    let world = World::new(1);
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    let memory = Memory::new(1);
    let refused = Err(sys::FI_EINVAL);
    let tag = RESERVED | 5;
    let parts = [memory];
    let call = Call { parts: &parts, address: to, tag, ..Default::default() };
    assert_eq!(endpoint.tsend(memory, to, tag, 1), refused);
    assert_eq!(endpoint.tsenddata(memory, 1, at(to, tag), 1), refused);
    assert_eq!(endpoint.tsendv(&parts, to, tag, 1), refused);
    assert_eq!(endpoint.tsendmsg(call, 0), refused);
    assert_eq!(endpoint.tinject(b"x", to, tag), refused);
    assert_eq!(endpoint.tinjectdata(b"x", 1, to, tag), refused);
    assert_eq!(endpoint.trecv(memory, tag, 0, 1), refused);
    assert_eq!(endpoint.trecvv(&parts, tag, 1), refused);
    assert_eq!(endpoint.trecvmsg(call, 0), refused);
    assert_eq!(endpoint.trecvmsg(call, sys::FI_PEEK), refused);
    world.expect_silence();
    // The format says so: its highest bit is the first that is set.
    // SAFETY: `fi_getinfo` gave all parts.
    let format = unsafe { (*(*world.node(0).domain.info).ep_attr).mem_tag_format };
    assert_eq!(format.leading_zeros(), 1, "{format:x}");
}
