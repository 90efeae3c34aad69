//! Address vectors: fi_av(3).

use std::ptr;

use crate::client::{Hints, Memory, Node, QueueSettings, Vector, World, at, payload, sys};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;

fn is_text(text: &[u8]) -> bool {
    text.first().is_none_or(|_| text.last() == Some(&0))
}

#[test]
fn maps_and_tables_number_addresses_from_zero() {
    for av_type in [sys::FI_AV_MAP, sys::FI_AV_TABLE, sys::FI_AV_UNSPEC] {
        let hints = Hints { av_type, ..Hints::default() };
        let world = World::of(3, &hints, BOTH);
        assert_eq!([0, 1, 2].map(|node| world.address(node)), [0, 1, 2]);
        world.endpoint(2).trecv(Memory::new(1), 1, 0, 1).unwrap();
        world.endpoint(0).tinject(b"x", world.address(2), 1).unwrap();
        assert_eq!(world.success(2, 1).source, 0);
    }
}

#[test]
fn an_address_may_be_inserted_more_than_once() {
    let sender = Node::new();
    let receiver = Node::new();
    let (count, addresses) = sender.vector.insert(&[receiver.name; 3]);
    assert_eq!((count, addresses.as_slice()), (Ok(3), &[0, 1, 2][..]));
    let source = receiver.vector.add(sender.name);
    receiver.vector.add(sender.name);
    receiver.vector.add(sender.name);
    let world = World::with(vec![sender, receiver]);
    for to in addresses.into_iter().rev() {
        world.endpoint(1).trecv(Memory::new(1), 1, 0, 1).unwrap();
        world.endpoint(0).tinject(b"x", to, 1).unwrap();
        assert_eq!(world.success(1, 1).source, source, "the first of its numbers");
    }
    // When it is taken out, the next one stands for the address.
    world.node(1).vector.remove(&[source]).unwrap();
    world.endpoint(1).trecv(Memory::new(1), 1, 0, 1).unwrap();
    world.endpoint(0).tinject(b"x", 0, 1).unwrap();
    assert_eq!(world.success(1, 1).source, source + 1);
}

#[test]
fn an_address_that_was_removed_is_refused_and_traffic_under_way_goes_on() {
    let world = World::new(2);
    let sender = world.node(0);
    let receiver = world.node(1);
    let to = world.address(1);
    let from = Memory::of(&payload(1, 300_000));
    let room = Memory::new(300_000);
    sender.endpoint.tsend(from, to, 1, 1).unwrap();
    receiver.endpoint.trecv_from(room, at(world.address(0), 2), 2).unwrap();
    sender.vector.remove(&[to]).unwrap();
    receiver.vector.remove(&[world.address(0)]).unwrap();
    assert_eq!(sender.endpoint.tsend(from, to, 1, 1), Err(sys::FI_EINVAL));
    assert_eq!(sender.endpoint.tinject(b"x", to, 1), Err(sys::FI_EINVAL));
    assert_eq!(receiver.endpoint.recv_from(room, world.address(0), 1), Err(sys::FI_EINVAL));
    // The send that was under way arrives; its source isn't in the vector.
    receiver.endpoint.trecv(room, 1, 0, 3).unwrap();
    assert_eq!(world.success(1, 3).source, sys::FI_ADDR_NOTAVAIL);
    world.success(0, 1);
    assert_eq!(room.bytes(), from.bytes());
    // So does a message for the receive that names its source.
    let again = sender.vector.add(receiver.name);
    let known = receiver.vector.add(sender.name);
    sender.endpoint.tsend(from, again, 2, 4).unwrap();
    assert_eq!(world.success(1, 2).source, known);
    world.success(0, 4);
    world.expect_silence();
}

#[test]
fn an_address_gets_the_lowest_number_that_stands_for_none() {
    let world = World::new(5);
    let vector = world.node(0).vector;
    vector.remove(&[3, 1]).unwrap();
    let name = world.node(4).name;
    assert_eq!([(); 3].map(|()| vector.add(name)), [1, 3, 5]);
    // A program that inserts and removes for ever needs no more memory.
    for _ in 0..1000 {
        vector.remove(&[1]).unwrap();
        assert_eq!(vector.add(name), 1);
    }
}

#[test]
fn a_number_that_is_used_again_stands_for_the_new_address_alone() {
    let world = World::new(3);
    let sender = world.node(0);
    sender.endpoint.tinject(b"x", 1, 1).unwrap();
    world.endpoint(1).trecv(Memory::new(1), 1, 0, 1).unwrap();
    world.success(1, 1);
    sender.vector.remove(&[1, 2]).unwrap();
    assert_eq!(sender.vector.add(world.node(2).name), 1);
    // Messages to the number reach its new owner. Messages of the old owner have no number.
    sender.endpoint.tinject(b"x", 1, 2).unwrap();
    world.endpoint(2).trecv(Memory::new(1), 2, 0, 2).unwrap();
    world.success(2, 2);
    for (from, source) in [(1, sys::FI_ADDR_NOTAVAIL), (2, 1)] {
        sender.endpoint.trecv(Memory::new(1), 3, 0, 3).unwrap();
        world.endpoint(from).tinject(b"x", 0, 3).unwrap();
        assert_eq!(world.success(0, 3).source, source);
    }
    sender.endpoint.trecv_from(Memory::new(1), at(1, 4), 4).unwrap();
    world.endpoint(2).tinject(b"x", 0, 4).unwrap();
    world.success(0, 4);
    world.expect_silence();
}

#[test]
fn wrong_addresses_to_remove_are_refused_and_right_ones_removed() {
    let world = World::new(3);
    let vector = world.node(0).vector;
    assert_eq!(vector.remove(&[99]), Err(sys::FI_EINVAL));
    assert_eq!(vector.remove(&[sys::FI_ADDR_NOTAVAIL]), Err(sys::FI_EINVAL));
    assert_eq!(vector.remove(&[1, 99, 2]), Err(sys::FI_EINVAL));
    assert_eq!(vector.remove(&[1]), Err(sys::FI_EINVAL), "it is gone");
    assert_eq!(world.endpoint(0).tinject(b"x", 2, 1), Err(sys::FI_EINVAL));
    assert_eq!(vector.remove(&[]), Ok(0));
}

#[test]
fn names_that_are_none_are_counted_out_and_told() {
    let node = Node::new();
    let mut cut = node.name;
    cut[10..].fill(0);
    let mut noise = [0; 64];
    noise.iter_mut().zip(payload(5, 64)).for_each(|(to, from)| *to = from);
    let names = [node.name, [0; 64], node.name, [0xff; 64], cut, noise];
    let expected = [0, sys::FI_ADDR_NOTAVAIL, 1, u64::MAX, u64::MAX, u64::MAX];
    let (count, addresses) = node.vector.insert(&names);
    assert_eq!((count, addresses.as_slice()), (Ok(2), &expected[..]));
    // With an array of errors.
    let mut errors = [77; 6];
    let flags = sys::FI_SYNC_ERR;
    let insert = |to, errors| node.vector.insert_as(&names, to, flags, errors);
    assert_eq!(insert(ptr::null_mut(), errors.as_mut_ptr()), Ok(2));
    let wrong = sys::FI_EINVAL;
    assert_eq!(errors, [0, wrong, 0, wrong, wrong, wrong]);
    assert_eq!(insert(ptr::null_mut(), ptr::null_mut()), Err(wrong));
    // Without a place for the addresses.
    let insert =
        |names, flags| node.vector.insert_as(names, ptr::null_mut(), flags, ptr::null_mut());
    assert_eq!(insert(&names[..3], 0), Ok(2));
    assert_eq!(insert(&[], 0), Ok(0));
    assert_eq!(insert(&names[..1], sys::FI_EVENT), Err(sys::FI_EBADFLAGS));
    node.close();
}

#[test]
fn a_lookup_gives_the_name_as_far_as_there_is_room_and_its_length() {
    let world = World::new(2);
    let vector = world.node(0).vector;
    let name = world.node(1).name;
    for room in [0, 1, 63, 64, 100] {
        let (bytes, length) = vector.lookup(1, room).unwrap();
        assert_eq!(length, 64);
        assert_eq!(bytes[..room.min(64)], name[..room.min(64)]);
        assert!(bytes.iter().skip(64).all(|byte| *byte == 0xee));
    }
    assert_eq!(vector.lookup(2, 64), Err(sys::FI_EINVAL));
    assert_eq!(vector.lookup(sys::FI_ADDR_NOTAVAIL, 64), Err(sys::FI_EINVAL));
}

#[test]
fn a_name_has_a_text_as_far_as_there_is_room_for_it() {
    let world = World::new(2);
    let vector = world.node(0).vector;
    let (whole, length) = vector.text(&world.node(1).name, 300);
    let whole = whole[..length].to_vec();
    assert!(whole.starts_with(b"fi_tagmatch://") && is_text(&whole), "{whole:?}");
    assert_ne!(whole, vector.text(&world.node(0).name, length).0, "it tells endpoints apart");
    for room in [1, 2, 20, length - 1, length] {
        let (text, needed) = vector.text(&world.node(1).name, room);
        assert_eq!((needed, text.last()), (length, Some(&0)));
        assert_eq!(text[..room - 1], whole[..room - 1]);
    }
    assert_eq!(vector.text(&world.node(1).name, 0), (vec![], length));
    // What is no name has a text that says so.
    let (text, length) = vector.text(&[9; 64], 300);
    assert!(length > 10 && is_text(&text[..length]));
}

#[test]
fn vectors_that_are_shared_or_tell_later_are_refused() {
    let node = Node::new();
    let open = |attributes| Vector::open_as(node.domain, attributes).map(|vector| vector.close());
    let plain = sys::fi_av_attr { r#type: sys::FI_AV_TABLE, ..sys::fi_av_attr::zeroed() };
    assert_eq!(open(sys::fi_av_attr { count: 1 << 20, ep_per_node: 8, ..plain }), Ok(Ok(0)));
    let name = c"shared".as_ptr();
    assert_eq!(open(sys::fi_av_attr { name, ..plain }), Err(sys::FI_ENOSYS));
    assert_eq!(open(sys::fi_av_attr { flags: sys::FI_EVENT, ..plain }), Err(sys::FI_ENOSYS));
    assert_eq!(open(sys::fi_av_attr { flags: 1 << 60, ..plain }), Err(sys::FI_EBADFLAGS));
    assert_eq!(open(sys::fi_av_attr { r#type: 7, ..plain }), Err(sys::FI_EINVAL));
    node.close();
}

#[test]
fn endpoints_of_a_domain_may_share_a_vector() {
    let node = Node::new();
    let queue = node.domain.queue(QueueSettings::default());
    let other = node.domain.endpoint();
    other.bind_vector(node.vector).unwrap();
    other.bind_queue(queue, BOTH).unwrap();
    other.enable().unwrap();
    let first = node.vector.add(node.name);
    let second = node.vector.add(other.name());
    other.trecv_from(Memory::new(1), at(first, 1), 1).unwrap();
    node.endpoint.trecv_from(Memory::new(1), at(second, 1), 2).unwrap();
    node.endpoint.tinject(b"x", second, 1).unwrap();
    other.tinject(b"x", first, 1).unwrap();
    let wait = |queue: crate::client::Queue| {
        crate::client::within_limit("an entry", || {
            node.queue.progress();
            queue.poll()
        })
    };
    assert_eq!((wait(queue).source, wait(node.queue).source), (first, second));
    // A removal is for both.
    node.vector.remove(&[second]).unwrap();
    assert_eq!(node.endpoint.tinject(b"x", second, 1), Err(sys::FI_EINVAL));
    assert_eq!(other.tinject(b"x", second, 1), Err(sys::FI_EINVAL));
    other.close().unwrap();
    queue.close().unwrap();
    node.close();
}
