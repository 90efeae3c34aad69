//! The life of objects: what may be bound, enabled, used and closed, and when.

use crate::client::{
    Call, Counter, Domain, Endpoint, Hints, Memory, Node, Queue, QueueSettings, Vector, at,
};
use crate::client::{World, alone, sys};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;

#[test]
fn an_endpoint_is_enabled_once_it_has_a_vector_and_queues() {
    let domain = Domain::new();
    let vector = domain.vector(sys::FI_AV_TABLE);
    let queue = domain.queue(QueueSettings::default());
    let endpoint = domain.endpoint();
    assert_eq!(endpoint.enable(), Err(sys::FI_ENOAV));
    endpoint.bind_vector(vector).unwrap();
    assert_eq!(endpoint.enable(), Err(sys::FI_ENOCQ));
    endpoint.bind_queue(queue, sys::FI_TRANSMIT).unwrap();
    assert_eq!(endpoint.enable(), Err(sys::FI_ENOCQ));
    endpoint.bind_queue(queue, sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    assert_eq!(endpoint.enable(), Err(sys::FI_EOPBADSTATE));
    endpoint.close().unwrap();
    queue.close().unwrap();
    vector.close().unwrap();
    domain.close();
}

/// Every call that begins an operation.
fn operations(endpoint: Endpoint, to: u64) -> Vec<Result<usize, i32>> {
    let memory = Memory::new(1);
    let bytes = b"x";
    let parts = [memory];
    let send = Call { parts: &parts, address: to, ..Call::default() };
    let receive = Call { parts: &parts, ..Call::default() };
    vec![
        endpoint.tsend(memory, to, 1, 1),
        endpoint.tsenddata(memory, 1, at(to, 1), 1),
        endpoint.tsendv(&parts, to, 1, 1),
        endpoint.tsendmsg(send, 0),
        endpoint.tsendmsg(send, sys::FI_INJECT),
        endpoint.tinject(bytes, to, 1),
        endpoint.tinjectdata(bytes, 1, to, 1),
        endpoint.send(memory, to, 1),
        endpoint.senddata(memory, 1, to, 1),
        endpoint.sendv(&parts, to, 1),
        endpoint.sendmsg(send, 0),
        endpoint.inject(bytes, to),
        endpoint.injectdata(bytes, 1, to),
        endpoint.trecv(memory, 1, 0, 1),
        endpoint.trecvv(&parts, 1, 1),
        endpoint.trecvmsg(receive, 0),
        endpoint.trecvmsg(receive, sys::FI_PEEK),
        endpoint.recv(memory, 1),
        endpoint.recvv(&parts, 1),
        endpoint.recvmsg(receive, 0),
    ]
}

#[test]
fn an_operation_before_the_endpoint_is_enabled_is_refused() {
    let node = Node::new();
    let endpoint = node.domain.endpoint();
    endpoint.bind_vector(node.vector).unwrap();
    endpoint.bind_queue(node.queue, BOTH).unwrap();
    let to = node.vector.add(node.name);
    for answer in operations(endpoint, to) {
        assert_eq!(answer, Err(sys::FI_EOPBADSTATE));
    }
    let buffer = Call { parts: &[Memory::new(100)], ..Call::default() };
    assert_eq!(endpoint.recvmsg(buffer, sys::FI_MULTI_RECV), Err(sys::FI_EOPBADSTATE));
    endpoint.cancel(1).unwrap();
    assert!(node.queue.poll().is_none());
    endpoint.close().unwrap();
    node.close();
}

#[test]
fn an_endpoint_without_a_direction_needs_no_queue_for_it_and_refuses_its_operations() {
    let sends = (sys::FI_SEND, sys::FI_RECV);
    let receives = (sys::FI_RECV, sys::FI_SEND);
    // A queue for the other direction changes nothing.
    let cases = [(sends, sys::FI_SEND), (receives, sys::FI_RECV), (sends, BOTH), (receives, BOTH)];
    for ((has, lacks), bound) in cases {
        let caps = sys::FI_TAGGED | sys::FI_MSG | has;
        let domain = Domain::of(&Hints { caps, ..Default::default() });
        let vector = domain.vector(sys::FI_AV_TABLE);
        let queue = domain.queue(QueueSettings::default());
        let endpoint = domain.endpoint();
        endpoint.bind_vector(vector).unwrap();
        endpoint.bind_queue(queue, bound).unwrap();
        endpoint.enable().unwrap();
        let to = vector.add(endpoint.name());
        let memory = Memory::new(1);
        let send = endpoint.tsend(memory, to, 1, 1);
        let receive = endpoint.trecv(memory, 1, 0, 1);
        let (works, refused) =
            if lacks == sys::FI_RECV { (send, receive) } else { (receive, send) };
        assert_eq!((works, refused), (Ok(0), Err(sys::FI_EOPBADSTATE)));
        endpoint.close().unwrap();
        queue.close().unwrap();
        vector.close().unwrap();
        domain.close();
    }
}

#[test]
fn wrong_bindings_are_refused() {
    let node = Node::new();
    let other = Node::new();
    let endpoint = node.domain.endpoint();
    // Objects of another domain.
    assert_eq!(endpoint.bind_vector(other.vector), Err(sys::FI_EDOMAIN));
    assert_eq!(endpoint.bind_queue(other.queue, BOTH), Err(sys::FI_EDOMAIN));
    let foreign = other.domain.counter();
    assert_eq!(endpoint.bind_counter(foreign, sys::FI_SEND), Err(sys::FI_EDOMAIN));
    foreign.close().unwrap();
    // Flags that mean nothing.
    for flags in [0, sys::FI_SELECTIVE_COMPLETION, BOTH | sys::FI_PEEK, BOTH | 1] {
        assert_eq!(endpoint.bind_queue(node.queue, flags), Err(sys::FI_EBADFLAGS), "{flags:x}");
    }
    let counter = node.domain.counter();
    for flags in [0, sys::FI_PEEK, sys::FI_SEND | 1] {
        assert_eq!(endpoint.bind_counter(counter, flags), Err(sys::FI_EBADFLAGS), "{flags:x}");
    }
    // A second one of its kind.
    endpoint.bind_vector(node.vector).unwrap();
    assert_eq!(endpoint.bind_vector(node.vector), Err(sys::FI_EOPBADSTATE));
    endpoint.bind_queue(node.queue, sys::FI_TRANSMIT).unwrap();
    assert_eq!(endpoint.bind_queue(node.queue, BOTH), Err(sys::FI_EOPBADSTATE));
    endpoint.bind_queue(node.queue, sys::FI_RECV).unwrap();
    endpoint.bind_counter(counter, sys::FI_SEND | sys::FI_READ).unwrap();
    for flags in [sys::FI_SEND, sys::FI_RECV | sys::FI_READ] {
        assert_eq!(endpoint.bind_counter(counter, flags), Err(sys::FI_EOPBADSTATE), "{flags:x}");
    }
    endpoint.bind_counter(counter, sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    // After it was enabled.
    assert_eq!(endpoint.bind_counter(counter, sys::FI_SEND), Err(sys::FI_EOPBADSTATE));
    assert_eq!(endpoint.bind_queue(node.queue, BOTH), Err(sys::FI_EOPBADSTATE));
    // What can't be bound.
    assert_eq!(endpoint.bind(std::ptr::null_mut(), 0), Err(sys::FI_EINVAL));
    assert_eq!(endpoint.bind(node.domain.domain.cast(), 0), Err(sys::FI_EINVAL));
    assert_eq!(endpoint.bind(endpoint.endpoint.cast(), 0), Err(sys::FI_EINVAL));
    endpoint.close().unwrap();
    counter.close().unwrap();
    node.close();
    other.close();
}

#[test]
fn an_object_that_is_in_use_does_not_close() {
    let node = Node::new();
    let busy = Err(sys::FI_EBUSY);
    let counter = node.domain.counter();
    let endpoint = node.domain.endpoint();
    endpoint.bind_counter(counter, sys::FI_SEND).unwrap();
    assert_eq!(node.queue.close(), busy);
    assert_eq!(node.vector.close(), busy);
    assert_eq!(counter.close(), busy);
    assert_eq!(node.domain.close_domain(), busy);
    assert_eq!(node.domain.close_fabric(), busy);
    endpoint.close().unwrap();
    counter.close().unwrap();
    node.endpoint.close().unwrap();
    assert_eq!(node.domain.close_domain(), busy);
    node.queue.close().unwrap();
    node.vector.close().unwrap();
    assert_eq!(node.domain.close_fabric(), busy);
    node.domain.close_domain().unwrap();
    node.domain.close_fabric().unwrap();
}

#[test]
fn a_call_on_a_closed_object_is_refused() {
    // The provider remembers a limited number of closed objects, and other tests close many.
    alone("objects::a_call_on_a_closed_object_is_refused", call_closed_objects);
}

fn call_closed_objects() {
    let world = World::new(2);
    let node = world.node(0).clone();
    let counter = node.domain.counter();
    let to = world.address(1);
    counter.close().unwrap();
    drop(world);
    let closed = Err(sys::FI_EBADF);
    for answer in operations(node.endpoint, to) {
        assert_eq!(answer, closed);
    }
    assert_eq!(node.endpoint.close(), closed);
    assert_eq!(node.endpoint.enable(), closed);
    assert_eq!(node.endpoint.cancel(1), closed);
    assert_eq!(node.endpoint.name_into(&mut [0; 64], &mut 64), closed);
    assert_eq!(node.endpoint.bind_vector(node.vector), closed);
    assert_eq!(node.endpoint.bind_queue(node.queue, BOTH), closed);
    assert_eq!(node.endpoint.bind_counter(counter, sys::FI_SEND), closed);
    assert_eq!(node.vector.insert(&[node.name]).0, closed);
    assert_eq!(node.vector.remove(&[0]), closed);
    assert_eq!(node.vector.lookup(0, 64), closed.map(|_| (vec![], 0)));
    assert_eq!(node.vector.close(), closed);
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 2];
    assert_eq!(node.queue.read(&mut entries), closed);
    assert_eq!(node.queue.read_error(0).map(drop), closed.map(drop));
    assert_eq!(node.queue.signal(), closed);
    assert_eq!(node.queue.close(), closed);
    assert_eq!(counter.add(1), closed);
    assert_eq!(counter.wait(1, 0), closed);
    assert_eq!((counter.value(), counter.errors()), (0, 0));
    assert_eq!(counter.close(), closed);
    assert_eq!(node.domain.close_domain(), closed);
    assert_eq!(node.domain.close_fabric(), closed);
    assert_eq!(Endpoint::open(node.domain).map(drop), closed.map(drop));
    assert_eq!(Vector::open(node.domain, sys::FI_AV_TABLE).map(drop), closed.map(drop));
    assert_eq!(Counter::open(node.domain).map(drop), closed.map(drop));
    let queue = Queue::open(node.domain, QueueSettings::default());
    assert_eq!(queue.map(drop), closed.map(drop));
}

#[test]
fn a_name_is_64_bytes_and_a_short_place_gets_its_beginning() {
    let node = Node::new();
    for room in [0, 1, 32, 63] {
        let mut name = [0xee; 64];
        let mut length = room;
        let answer = node.endpoint.name_into(&mut name, &mut length);
        assert_eq!((answer, length), (Err(sys::FI_ETOOSMALL), 64));
        assert_eq!(name[..room], node.name[..room]);
        assert!(name[room..].iter().all(|byte| *byte == 0xee));
    }
    // Programs ask like this how long the name is.
    let mut length = 0;
    let answer = node.endpoint.name_nowhere(&mut length);
    assert_eq!((answer, length), (Err(sys::FI_ETOOSMALL), 64));
    assert_eq!(node.endpoint.name_nowhere(&mut 1), Err(sys::FI_EINVAL));
    node.close();
}

#[test]
fn the_default_flags_of_an_endpoint_can_be_read_and_changed() {
    let world = World::of(2, &Hints::default(), BOTH | sys::FI_SELECTIVE_COMPLETION);
    let endpoint = world.endpoint(0);
    let queue = world.queue(0);
    let send = || endpoint.tsend(Memory::of(b"x"), world.address(0), 1, 1).unwrap();
    assert_eq!(endpoint.flags(sys::FI_TRANSMIT), Ok(0));
    send();
    assert_eq!(queue.poll(), None);
    endpoint.set_flags(sys::FI_TRANSMIT | sys::FI_COMPLETION).unwrap();
    assert_eq!(endpoint.flags(sys::FI_TRANSMIT), Ok(sys::FI_COMPLETION));
    assert_eq!(endpoint.flags(sys::FI_RECV), Ok(0), "receives have their own");
    send();
    world.success(0, 1);
    for flags in [0, BOTH] {
        assert_eq!(endpoint.flags(flags), Err(sys::FI_EINVAL));
        assert_eq!(endpoint.set_flags(flags), Err(sys::FI_EINVAL));
    }
    // Flags that an endpoint can't be opened with either.
    for flags in [sys::FI_TRANSMIT | sys::FI_FENCE, sys::FI_RECV | sys::FI_INJECT] {
        assert_eq!(endpoint.set_flags(flags), Err(sys::FI_EBADFLAGS));
    }
    assert_eq!(endpoint.flags(sys::FI_TRANSMIT), Ok(sys::FI_COMPLETION));
}
