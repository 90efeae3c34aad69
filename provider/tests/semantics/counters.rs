//! Counters: fi_cntr(3).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::client::{
    Call, Counter, Domain, Endpoint, Memory, Node, QueueSettings, Vector, payload,
};
use crate::client::{sys, within_limit};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;

/// An endpoint that is known to itself by address 0, with counters of its sends and its receives.
fn counted() -> (Node, Counter, Counter) {
    let domain = Domain::new();
    let sends = domain.counter();
    let receives = domain.counter();
    let vector = domain.vector(sys::FI_AV_TABLE);
    let queue = domain.queue(QueueSettings::default());
    let endpoint = domain.endpoint();
    endpoint.bind_vector(vector).unwrap();
    endpoint.bind_queue(queue, BOTH | sys::FI_SELECTIVE_COMPLETION).unwrap();
    endpoint.bind_counter(sends, sys::FI_SEND).unwrap();
    endpoint.bind_counter(receives, sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    let name = endpoint.name();
    vector.add(name);
    (Node { domain, vector, queue, endpoint, name }, sends, receives)
}

fn close(node: &Node, counters: &[Counter]) {
    node.endpoint.close().unwrap();
    for counter in counters {
        counter.close().unwrap();
    }
    node.queue.close().unwrap();
    node.vector.close().unwrap();
    node.domain.close();
}

#[test]
fn counters_count_operations_whether_they_have_entries_or_not() {
    let (node, sends, receives) = counted();
    let endpoint = node.endpoint;
    for round in 1..=4 {
        let length = [0, 100, 5000, 300_000][round as usize - 1];
        let from = Memory::of(&payload(round, length));
        let room = Memory::new(length);
        endpoint.trecv(room, 1, 0, 1).unwrap();
        endpoint.recv(room, 1).unwrap();
        endpoint.tsend(from, 0, 1, 1).unwrap();
        endpoint.send(from, 0, 1).unwrap();
        within_limit("both counts", || {
            ([sends.value(), receives.value()] == [2 * round; 2]).then_some(())
        });
    }
    assert!(node.queue.poll().is_none(), "the operations have no entries");
    // An injected message counts as a send.
    endpoint.tinject(b"x", 0, 1).unwrap();
    endpoint.injectdata(b"x", 1, 0).unwrap();
    assert_eq!(sends.value(), 10);
    assert_eq!([sends.errors(), receives.errors()], [0, 0]);
    close(&node, &[sends, receives]);
}

#[test]
fn a_wait_sees_a_failure_that_its_own_progress_finds() {
    let (node, sends, receives) = counted();
    let other = Node::new();
    let to = other.vector.add(node.name);
    for round in 1..=3 {
        node.endpoint.trecv(Memory::new(1), 1, 0, 1).unwrap();
        // The message that is too long waits unread when the wait begins.
        while other.endpoint.tinject(b"two", to, 1) == Err(sys::FI_EAGAIN) {
            other.queue.progress();
        }
        if round == 1 {
            // The connection needs both sides.
            within_limit("a failure", || {
                other.queue.progress();
                (receives.errors() == 1).then_some(())
            });
            continue;
        }
        assert_eq!(receives.wait(1, 100), Err(sys::FI_EAVAIL));
        assert_eq!(receives.errors(), round);
    }
    other.close();
    close(&node, &[sends, receives]);
}

#[test]
fn counters_count_failures_apart() {
    let (node, sends, receives) = counted();
    let endpoint = node.endpoint;
    endpoint.trecv(Memory::new(1), 1, 0, 1).unwrap();
    endpoint.tinject(b"two", 0, 1).unwrap();
    endpoint.trecv(Memory::new(1), 2, 0, 2).unwrap();
    endpoint.cancel(2).unwrap();
    within_limit("two failures", || (receives.errors() == 2).then_some(()));
    assert_eq!((receives.value(), sends.value(), sends.errors()), (0, 1, 0));
    assert_eq!(receives.wait(1, 10), Err(sys::FI_ETIMEDOUT));
    // A failure during the wait ends it.
    endpoint.trecv(Memory::new(1), 3, 0, 3).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            endpoint.cancel(3).unwrap();
        });
        assert_eq!(receives.wait(1, 30_000), Err(sys::FI_EAVAIL));
    });
    close(&node, &[sends, receives]);
}

#[test]
fn probes_and_dropped_messages_are_not_counted_as_received() {
    const CLAIM: u64 = sys::FI_PEEK | sys::FI_CLAIM;
    let (node, sends, receives) = counted();
    let endpoint = node.endpoint;
    let room = Memory::new(1);
    let call = Call { parts: &[room], tag: 1, context: 1, ..Call::default() };
    let look = |flags| {
        endpoint.trecvmsg(call, flags).unwrap();
        within_limit("an entry", || node.queue.poll()).failure
    };
    assert_eq!(look(sys::FI_PEEK), sys::FI_ENOMSG);
    for _ in 0..4 {
        endpoint.tinject(b"x", 0, 1).unwrap();
    }
    within_limit("a message", || (look(sys::FI_PEEK) == 0).then_some(()));
    assert_eq!(look(CLAIM), 0);
    assert_eq!(look(sys::FI_CLAIM | sys::FI_DISCARD | sys::FI_COMPLETION), 0);
    assert_eq!(look(sys::FI_PEEK | sys::FI_DISCARD), 0);
    assert_eq!((receives.value(), receives.errors()), (0, 0));
    // The receive of a claimed message counts once, as any other receive.
    assert_eq!(look(CLAIM), 0);
    assert_eq!(look(sys::FI_CLAIM | sys::FI_COMPLETION), 0);
    endpoint.trecv(room, 1, 0, 1).unwrap();
    within_limit("two receives", || (receives.value() == 2).then_some(()));
    assert_eq!((receives.errors(), sends.value()), (0, 4));
    close(&node, &[sends, receives]);
}

#[test]
fn counters_can_be_set_and_added_to() {
    let (node, counter, other) = counted();
    counter.add(5).unwrap();
    counter.add_errors(2).unwrap();
    assert_eq!((counter.value(), counter.errors()), (5, 2));
    counter.set(u64::MAX).unwrap();
    assert_eq!(counter.value(), u64::MAX);
    node.endpoint.tinject(b"x", 0, 1).unwrap();
    assert_eq!(counter.value(), 0, "it wraps around");
    counter.set_errors(7).unwrap();
    assert_eq!((counter.value(), counter.errors()), (0, 7));
    assert_eq!((other.value(), other.errors()), (0, 0));
    close(&node, &[counter, other]);
}

#[test]
fn a_wait_for_a_counter_makes_progress_until_its_threshold() {
    let (node, sends, receives) = counted();
    assert_eq!(receives.wait(0, 0), Ok(0));
    assert_eq!(receives.wait(1, 0), Err(sys::FI_ETIMEDOUT));
    assert_eq!(receives.wait(1, 20), Err(sys::FI_ETIMEDOUT));
    let from = Memory::of(&payload(1, 300_000));
    let room = Memory::new(300_000);
    for timeout in [30_000, -1] {
        let threshold = receives.value() + 1;
        node.endpoint.trecv(room, 1, 0, 1).unwrap();
        node.endpoint.tsend(from, 0, 1, 1).unwrap();
        assert_eq!(receives.wait(threshold, timeout), Ok(0));
        assert_eq!(room.bytes(), from.bytes());
    }
    close(&node, &[sends, receives]);
}

#[test]
fn a_wait_that_sleeps_ends_with_a_message_and_with_a_change_by_another_thread() {
    let (node, sends, receives) = counted();
    let other = Node::new();
    let to = other.vector.add(node.name);
    for round in 1..=2 {
        node.endpoint.trecv(Memory::new(1), 1, 0, 1).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                while other.endpoint.tinject(b"x", to, 1) == Err(sys::FI_EAGAIN) {
                    other.queue.progress();
                }
                // The connection needs both sides.
                while !is_over.load(Ordering::Relaxed) {
                    other.queue.progress();
                    thread::yield_now();
                }
            });
            assert_eq!(receives.wait(round, -1), Ok(0));
            is_over.store(true, Ordering::Relaxed);
        });
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            sends.add(1).unwrap();
        });
        assert_eq!(sends.wait(1, -1), Ok(0));
    });
    other.close();
    close(&node, &[sends, receives]);
}

#[test]
fn a_counter_of_remote_access_stays_zero() {
    let domain = Domain::new();
    let vector = domain.vector(sys::FI_AV_TABLE);
    let queue = domain.queue(QueueSettings::default());
    let counter = domain.counter();
    let endpoint = domain.endpoint();
    endpoint.bind_vector(vector).unwrap();
    endpoint.bind_queue(queue, BOTH).unwrap();
    // MPICH binds such a counter though it has no remote access.
    endpoint.bind_counter(counter, sys::FI_READ | sys::FI_WRITE).unwrap();
    endpoint.enable().unwrap();
    let to = vector.add(endpoint.name());
    endpoint.tinject(b"x", to, 1).unwrap();
    endpoint.trecv(Memory::new(1), 1, 0, 1).unwrap();
    within_limit("an entry", || queue.poll());
    assert_eq!((counter.value(), counter.errors()), (0, 0));
    endpoint.close().unwrap();
    counter.close().unwrap();
    queue.close().unwrap();
    vector.close().unwrap();
    domain.close();
}

/// An endpoint that has counters alone, no completion queue.
fn without_queue() -> (Domain, Vector, Endpoint, Counter) {
    let domain = Domain::new();
    let vector = domain.vector(sys::FI_AV_TABLE);
    let counter = domain.counter();
    let endpoint = domain.endpoint();
    endpoint.bind_vector(vector).unwrap();
    endpoint.bind_counter(counter, sys::FI_SEND | sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    vector.add(endpoint.name());
    (domain, vector, endpoint, counter)
}

#[test]
fn an_endpoint_with_counters_needs_no_completion_queue() {
    let (domain, vector, endpoint, counter) = without_queue();
    let from = Memory::of(&payload(1, 300_000));
    let room = Memory::new(300_000);
    endpoint.trecv(room, 1, 0, 1).unwrap();
    endpoint.tsend(from, 0, 1, 2).unwrap();
    endpoint.tinject(b"x", 0, 2).unwrap();
    assert_eq!(counter.wait(3, 30_000), Ok(0));
    assert_eq!(room.bytes(), from.bytes());
    // A failure is counted, and there is no entry that could wait.
    endpoint.trecv(room.part(0, 0), 2, 0, 1).unwrap();
    within_limit("a failure", || (counter.errors() == 1).then_some(()));
    endpoint.close().unwrap();
    counter.close().unwrap();
    vector.close().unwrap();
    domain.close();
}

#[test]
fn counters_with_wrong_attributes_are_refused() {
    let domain = Domain::new();
    let open = |attributes: sys::fi_cntr_attr| {
        let mut attributes = attributes;
        let mut counter = std::ptr::null_mut();
        let functions = domain.functions();
        let fid = domain.domain;
        let to = &raw mut counter;
        let context = std::ptr::null_mut();
        let opened =
            crate::client::call!(functions, cntr_open(fid, &raw mut attributes, to, context));
        crate::client::code(opened).map(|_| Counter { counter }.close().unwrap())
    };
    let usual = sys::fi_cntr_attr::zeroed();
    for wait_obj in [sys::FI_WAIT_NONE, sys::FI_WAIT_UNSPEC, sys::FI_WAIT_YIELD] {
        assert_eq!(open(sys::fi_cntr_attr { wait_obj, ..usual }), Ok(0));
    }
    let wait_obj = sys::FI_WAIT_FD;
    assert_eq!(open(sys::fi_cntr_attr { wait_obj, ..usual }), Err(sys::FI_ENOSYS));
    assert_eq!(open(sys::fi_cntr_attr { flags: 1, ..usual }), Err(sys::FI_EINVAL));
    assert_eq!(open(sys::fi_cntr_attr { events: 9, ..usual }), Err(sys::FI_EINVAL));
    domain.close();
}
