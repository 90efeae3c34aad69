//! Completion queues: fi_cq(3).

use crate::client::{Domain, Hints, Memory, Node, Queue, QueueSettings, World, call, code};
use crate::client::{payload, sys, within_limit};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;

/// A queue of endpoint 0 with this format, and two entries in it: of an injected message of
/// endpoint 1 that was received, and of a send.
fn two_entries(format: sys::fi_cq_format) -> (World, Memory) {
    let settings = QueueSettings { format, ..QueueSettings::default() };
    let node = Node::of(&Hints::default(), settings, BOTH);
    let world = World::with(vec![node, Node::new()]);
    let room = Memory::new(16);
    world.endpoint(0).trecv(room, 6, 0, 11).unwrap();
    world.endpoint(1).tinjectdata(b"hello", 5, world.address(0), 6).unwrap();
    world.settle();
    world.endpoint(0).tsend(Memory::of(b"x"), world.address(1), 9, 12).unwrap();
    world.settle();
    (world, room)
}

#[test]
fn the_four_formats_have_what_they_should() {
    let received = sys::FI_RECV | sys::FI_TAGGED | sys::FI_REMOTE_CQ_DATA;
    let sent = sys::FI_SEND | sys::FI_TAGGED;
    let (world, _) = two_entries(sys::FI_CQ_FORMAT_CONTEXT);
    let mut entries = [sys::fi_cq_entry::zeroed(); 3];
    assert_eq!(world.queue(0).read(&mut entries), Ok(2));
    assert_eq!(entries.map(|entry| entry.op_context as usize), [11, 12, 0]);
    drop(world);
    let (world, _) = two_entries(sys::FI_CQ_FORMAT_MSG);
    let mut entries = [sys::fi_cq_msg_entry::zeroed(); 3];
    assert_eq!(world.queue(0).read(&mut entries), Ok(2));
    let facts = entries.map(|entry| (entry.op_context as usize, entry.flags, entry.len));
    assert_eq!(facts, [(11, received, 5), (12, sent, 0), (0, 0, 0)]);
    drop(world);
    let (world, room) = two_entries(sys::FI_CQ_FORMAT_DATA);
    let mut entries = [sys::fi_cq_data_entry::zeroed(); 3];
    assert_eq!(world.queue(0).read(&mut entries), Ok(2));
    let first = entries[0];
    assert_eq!((first.flags, first.len, first.data), (received, 5, 5));
    assert_eq!(first.buf.cast(), room.start());
    assert_eq!((entries[1].op_context as usize, entries[1].flags), (12, sent));
    drop(world);
    let (world, room) = two_entries(sys::FI_CQ_FORMAT_TAGGED);
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 3];
    assert_eq!(world.queue(0).read(&mut entries), Ok(2));
    let first = entries[0];
    assert_eq!((first.flags, first.len, first.data, first.tag), (received, 5, 5, 6));
    assert_eq!(first.buf.cast(), room.start());
    assert_eq!((entries[1].op_context as usize, entries[1].flags), (12, sent));
}

#[test]
fn a_queue_without_a_format_has_contexts_and_says_so() {
    let domain = Domain::new();
    let mut attributes = sys::fi_cq_attr::zeroed();
    let functions = domain.functions();
    let mut queue = std::ptr::null_mut();
    let fid = domain.domain;
    let to = &raw mut attributes;
    code(call!(functions, cq_open(fid, to, &raw mut queue, std::ptr::null_mut()))).unwrap();
    assert_eq!(attributes.format, sys::FI_CQ_FORMAT_CONTEXT);
    Queue { queue }.close().unwrap();
    domain.close();
}

#[test]
fn entries_are_read_in_portions_and_in_order() {
    let world = World::new(1);
    for context in 0..10 {
        world.endpoint(0).trecv(Memory::new(1), 1, 0, context).unwrap();
        world.endpoint(0).cancel(context).unwrap();
        world.failure(0, context, sys::FI_ECANCELED);
        world.endpoint(0).trecv(Memory::new(1), context as u64, 0, context).unwrap();
    }
    for context in 0..10 {
        world.endpoint(0).tinject(b"x", world.address(0), context).unwrap();
        world.progress();
    }
    let mut read = Vec::new();
    for (portion, count) in [(4, 4), (1, 1), (3, 3), (7, 2)] {
        let mut entries = vec![sys::fi_cq_tagged_entry::zeroed(); portion];
        assert_eq!(world.queue(0).read(&mut entries), Ok(count));
        read.extend(entries[..count].iter().map(|entry| entry.op_context as usize));
    }
    assert!(read.into_iter().eq(0..10));
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 2];
    assert_eq!(world.queue(0).read(&mut entries), Err(sys::FI_EAGAIN));
    let null = std::ptr::null_mut();
    let queue = world.queue(0);
    let read = code(call!(queue.functions(), read(queue.queue, null, 1)));
    assert_eq!(read, Err(sys::FI_EINVAL));
}

#[test]
fn an_error_entry_holds_up_later_entries_until_it_is_read() {
    let world = World::new(2);
    let receiver = world.endpoint(1);
    let queue = world.queue(1);
    for (context, room) in [(1, 8), (2, 8), (3, 1), (4, 8), (5, 0), (6, 0)] {
        receiver.trecv(Memory::new(room), 1, 0, context).unwrap();
    }
    assert_eq!(queue.read_error(0), Err(sys::FI_EAGAIN));
    for _ in 0..6 {
        world.endpoint(0).tinject(b"four", world.address(1), 1).unwrap();
        world.settle();
    }
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 9];
    assert_eq!(queue.read_error(0), Err(sys::FI_EAGAIN), "a success is the oldest entry");
    assert_eq!(queue.read(&mut entries), Ok(2));
    for _ in 0..3 {
        assert_eq!(queue.read(&mut entries), Err(sys::FI_EAVAIL));
    }
    assert_eq!(queue.read_error(sys::FI_PEEK).unwrap().context, 3, "a look doesn't take it");
    assert_eq!(queue.read(&mut entries), Err(sys::FI_EAVAIL));
    assert_eq!(queue.read_error(0).unwrap().context, 3);
    assert_eq!(queue.read_error(0), Err(sys::FI_EAGAIN));
    assert_eq!(queue.read(&mut entries), Ok(1));
    assert_eq!(entries[0].op_context as usize, 4);
    assert_eq!(queue.read_error(0).unwrap().context, 5);
    assert_eq!(queue.read_error(0).unwrap().context, 6);
    assert_eq!(queue.read_error(1 << 40), Err(sys::FI_EBADFLAGS));
    world.expect_silence();
}

#[test]
fn a_success_does_not_overtake_an_error_entry_of_the_same_read() {
    let world = World::new(2);
    let sender = world.endpoint(0);
    let to = world.address(1);
    let receiver = world.endpoint(1);
    let queue = world.queue(1);
    // The first message connects the endpoints.
    for (context, room) in [(1, 8), (2, 1), (3, 8)] {
        receiver.trecv(Memory::new(room), 1, 0, context).unwrap();
    }
    sender.tinject(b"four", to, 1).unwrap();
    world.success(1, 1);
    world.settle();
    for _ in 0..2 {
        sender.tinject(b"four", to, 1).unwrap();
        world.queue(0).progress();
    }
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 9];
    let read = within_limit("an entry", || match queue.read(&mut entries) {
        Err(sys::FI_EAGAIN) => None,
        read => Some(read),
    });
    assert_eq!(read, Err(sys::FI_EAVAIL));
    assert_eq!(queue.read_error(0).unwrap().context, 2);
    assert_eq!(queue.read(&mut entries), Ok(1));
    assert_eq!(entries[0].op_context as usize, 3);
}

#[test]
fn a_flood_of_operations_does_not_overrun_a_small_queue() {
    const COUNT: usize = 50_000;
    let settings = QueueSettings { size: 1, ..QueueSettings::default() };
    let node = || Node::of(&Hints::default(), settings, BOTH);
    let world = World::with(vec![node(), node()]);
    let room = Memory::new(8);
    let from = Memory::of(b"message!");
    for context in 0..COUNT {
        world.endpoint(1).trecv(room, context as u64, 0, context).unwrap();
    }
    for context in 0..COUNT {
        world.endpoint(0).tsend(from, world.address(1), context as u64, context).unwrap();
        if context % 1000 == 0 {
            world.progress();
        }
    }
    // Nobody has read an entry until all are there.
    for node in [0, 1] {
        let mut is_read = vec![false; COUNT];
        for _ in 0..COUNT {
            let entry = world.entry(node);
            assert!(entry.failure == 0 && !std::mem::replace(&mut is_read[entry.context], true));
        }
    }
    world.expect_silence();
}

#[test]
fn several_endpoints_may_share_a_queue() {
    let node = Node::new();
    let others: Vec<_> = (0..3)
        .map(|_| {
            let endpoint = node.domain.endpoint();
            endpoint.bind_vector(node.vector).unwrap();
            endpoint.bind_queue(node.queue, BOTH).unwrap();
            endpoint.enable().unwrap();
            endpoint
        })
        .collect();
    let addresses: Vec<_> = others.iter().map(|other| node.vector.add(other.name())).collect();
    let rooms = [(); 3].map(|()| Memory::new(4));
    for (context, other) in others.iter().enumerate() {
        other.trecv(rooms[context], 1, 0, context).unwrap();
    }
    for (context, to) in addresses.iter().enumerate() {
        let from = Memory::of(&payload(context as u64, 4));
        node.endpoint.tsend(from, *to, 1, 100 + context).unwrap();
    }
    let mut contexts: Vec<_> = (0..6)
        .map(|_| within_limit("an entry", || node.queue.poll()))
        .map(|entry| (entry.context, entry.failure))
        .collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [0, 1, 2, 100, 101, 102].map(|context| (context, 0)));
    for (context, room) in rooms.iter().enumerate() {
        assert_eq!(room.bytes(), payload(context as u64, 4));
    }
    // One goes; the queue serves the others.
    others[0].close().unwrap();
    others[1].trecv(rooms[1], 2, 0, 7).unwrap();
    node.endpoint.tinject(b"more", addresses[1], 2).unwrap();
    assert_eq!(within_limit("an entry", || node.queue.poll()).context, 7);
    for other in &others[1..] {
        other.close().unwrap();
    }
    node.close();
}

#[test]
fn sends_and_receives_may_have_queues_of_their_own() {
    let domain = Domain::new();
    let vector = domain.vector(sys::FI_AV_TABLE);
    let sends = domain.queue(QueueSettings::default());
    let receives = domain.queue(QueueSettings::default());
    let endpoint = domain.endpoint();
    endpoint.bind_vector(vector).unwrap();
    endpoint.bind_queue(sends, sys::FI_TRANSMIT).unwrap();
    endpoint.bind_queue(receives, sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    let to = vector.add(endpoint.name());
    for length in [4, 100_000] {
        let room = Memory::new(length);
        endpoint.trecv(room, 1, 0, 1).unwrap();
        endpoint.tsend(Memory::of(&payload(1, length)), to, 1, 2).unwrap();
        // Reading one queue makes progress for the other.
        let entry = within_limit("the send's entry", || sends.poll());
        assert_eq!((entry.context, entry.flags), (2, sys::FI_SEND | sys::FI_TAGGED));
        let entry = within_limit("the receive's entry", || receives.poll());
        assert_eq!((entry.context, entry.flags), (1, sys::FI_RECV | sys::FI_TAGGED));
        assert_eq!(room.bytes(), payload(1, length));
    }
    endpoint.trecvmsg(crate::client::Call::default(), sys::FI_PEEK).unwrap();
    assert_eq!(receives.poll().unwrap().failure, sys::FI_ENOMSG);
    assert!(sends.poll().is_none() && receives.poll().is_none());
    endpoint.close().unwrap();
    sends.close().unwrap();
    receives.close().unwrap();
    vector.close().unwrap();
    domain.close();
}

#[test]
fn every_error_number_of_ours_has_words() {
    let node = Node::new();
    let words: Vec<_> = (0..40).map(|reason| node.queue.words(reason)).collect();
    assert_eq!((words[0].as_str(), words[39].as_str()), ("no error", "unknown error number"));
    assert_eq!(node.queue.words(-1), words[39]);
    let mut known: Vec<_> = words.iter().filter(|of| **of != words[39]).collect();
    let count = known.len();
    known.sort_unstable();
    known.dedup();
    assert!(count > 8 && known.len() == count, "{known:?}");
    node.close();
}

#[test]
fn queues_with_wrong_attributes_are_refused() {
    let domain = Domain::new();
    let usual = QueueSettings::default();
    let open = |settings| Queue::open(domain, settings).map(|queue| queue.close());
    for wait in [sys::FI_WAIT_NONE, sys::FI_WAIT_UNSPEC, sys::FI_WAIT_FD, sys::FI_WAIT_YIELD] {
        assert_eq!(open(QueueSettings { wait, ..usual }), Ok(Ok(0)));
    }
    for wait in [sys::FI_WAIT_SET, sys::FI_WAIT_MUTEX_COND, sys::FI_WAIT_POLLFD, 99] {
        assert_eq!(open(QueueSettings { wait, ..usual }), Err(sys::FI_ENOSYS));
    }
    assert_eq!(open(QueueSettings { format: 5, ..usual }), Err(sys::FI_EINVAL));
    assert_eq!(open(QueueSettings { condition: 2, ..usual }), Err(sys::FI_EINVAL));
    // FI_AFFINITY is a hint.
    assert_eq!(open(QueueSettings { flags: sys::FI_AFFINITY, ..usual }), Ok(Ok(0)));
    assert_eq!(open(QueueSettings { flags: 1, ..usual }), Err(sys::FI_EBADFLAGS));
    domain.close();
}
