//! Multi-receive buffers that name their source: `FI_MULTI_RECV` with `FI_DIRECTED_RECV`,
//! fi_msg(3).
//!
//! Endpoint 2 receives; endpoints 0 and 1 send.

use super::waits::is_readable;
use crate::client::within_limit;
use crate::client::{Call, Entry, Memory, Node, World, payload, sys};

const PLAIN: u64 = sys::FI_RECV | sys::FI_MSG;
const LAST: u64 = PLAIN | sys::FI_MULTI_RECV;
const ANY: u64 = sys::FI_ADDR_UNSPEC;

/// Three endpoints. Endpoint 2 gives buffers back that have less room than 10 bytes.
fn world() -> World {
    let world = World::new(3);
    world.endpoint(2).set_multi_min(10);
    world
}

fn post(world: &World, source: u64, buffer: Memory, context: usize) {
    let call = Call { parts: &[buffer], address: source, context, ..Call::default() };
    world.endpoint(2).recvmsg(call, sys::FI_MULTI_RECV).unwrap();
}

/// Sends a message of `length` bytes that all have the value `seed`.
fn send(world: &World, sender: usize, seed: u8, length: usize) {
    let from = Memory::of(&vec![seed; length]);
    world.endpoint(sender).send(from, world.address(2), 1000).unwrap();
    world.settle();
}

/// The next entries of the receiver, as contexts, first bytes and flags.
fn entries<const COUNT: usize>(world: &World) -> [(usize, u8, u64); COUNT] {
    [(); COUNT].map(|()| {
        let entry: Entry = world.entry(2);
        assert_eq!(entry.failure, 0, "{entry:x?}");
        // SAFETY: the entry tells where the message is.
        (entry.context, unsafe { *(entry.start as *const u8) }, entry.flags)
    })
}

fn close(world: World) {
    for sender in [0, 1] {
        while world.queue(sender).poll().is_some() {}
    }
    world.expect_silence();
}

#[test]
fn a_buffer_takes_the_messages_of_its_source_and_later_receives_those_of_others() {
    for is_unexpected in [false, true] {
        let world = world();
        let send_all = || {
            for (sender, seed) in [(1, 1), (0, 2), (0, 3), (1, 4), (0, 5)] {
                send(&world, sender, seed, 10);
            }
        };
        let post_all = || {
            post(&world, 0, Memory::new(25), 7);
            world.endpoint(2).recv(Memory::new(10), 8).unwrap();
            world.endpoint(2).recv_from(Memory::new(10), 1, 9).unwrap();
        };
        world.meet(is_unexpected, post_all, send_all);
        let mut found = entries::<4>(&world);
        found.sort_unstable();
        assert_eq!(found, [(7, 2, PLAIN), (7, 3, LAST), (8, 1, PLAIN), (9, 4, PLAIN)]);
        // A message that no receive took waits for the next receive.
        world.settle();
        assert_eq!(world.queue(2).poll(), None);
        world.endpoint(2).recv(Memory::new(10), 10).unwrap();
        assert_eq!(entries(&world), [(10, 5, PLAIN)]);
        close(world);
    }
}

#[test]
fn buffers_of_two_sources_and_of_any_are_filled_side_by_side() {
    let world = world();
    post(&world, 0, Memory::new(30), 1);
    post(&world, 1, Memory::new(30), 2);
    post(&world, ANY, Memory::new(30), 3);
    for (sender, seed) in [(0, 1), (1, 2), (0, 3), (0, 4), (0, 5), (1, 6), (1, 7), (1, 8), (0, 9)] {
        send(&world, sender, seed, 10);
    }
    let mut found = entries::<9>(&world);
    found.sort_by_key(|(context, ..)| *context);
    let first = [(1, 1, PLAIN), (1, 3, PLAIN), (1, 4, LAST)];
    let second = [(2, 2, PLAIN), (2, 6, PLAIN), (2, 7, LAST)];
    let third = [(3, 5, PLAIN), (3, 8, PLAIN), (3, 9, LAST)];
    assert_eq!(found, [first, second, third].concat()[..]);
    close(world);
}

#[test]
fn a_receive_that_names_its_source_does_not_wait_for_a_buffer_of_another() {
    let world = world();
    post(&world, 0, Memory::new(1000), 1);
    world.endpoint(2).recv_from(Memory::new(10), 1, 2).unwrap();
    send(&world, 1, 5, 10);
    assert_eq!(entries(&world), [(2, 5, PLAIN)]);
    // A buffer without a source takes all that comes, until it is used up.
    world.endpoint(2).cancel(1).unwrap();
    assert_eq!(world.failure(2, 1, sys::FI_ECANCELED).flags, LAST);
    post(&world, ANY, Memory::new(20), 3);
    world.endpoint(2).recv_from(Memory::new(10), 1, 4).unwrap();
    for (sender, seed) in [(1, 1), (0, 2), (0, 3), (1, 4)] {
        send(&world, sender, seed, 10);
    }
    assert_eq!(entries(&world), [(3, 1, PLAIN), (3, 2, LAST), (4, 4, PLAIN)]);
    world.endpoint(2).recv(Memory::new(10), 5).unwrap();
    assert_eq!(entries(&world), [(5, 3, PLAIN)]);
    close(world);
}

#[test]
fn long_messages_keep_the_order_of_their_sender() {
    let world = world();
    let buffer = Memory::new(700_000);
    post(&world, 0, buffer, 1);
    let rest = Memory::new(300_000);
    world.endpoint(2).recv(rest, 2).unwrap();
    let long = [1, 2, 3].map(|seed| payload(seed, 300_000));
    for bytes in &long {
        world.endpoint(0).send(Memory::of(bytes), world.address(2), 1000).unwrap();
    }
    // The third is truncated: the buffer had room for a part of it, so it was first in line.
    for (flags, failure, at) in
        [(PLAIN, 0, 0), (PLAIN, 0, 300_000), (LAST, sys::FI_ETRUNC, 600_000)]
    {
        let entry = world.entry(2);
        assert_eq!((entry.context, entry.flags, entry.failure), (1, flags, failure));
        assert_eq!(entry.start - buffer.start() as usize, at);
        let bytes = &long[at / 300_000][..entry.length];
        assert_eq!(buffer.part(at, entry.length).bytes(), bytes);
    }
    world.endpoint(1).inject(b"last", world.address(2)).unwrap();
    assert_eq!(world.success(2, 2).length, 4);
    close(world);
}

#[test]
fn a_buffer_and_a_receive_behind_it_are_given_back_when_their_source_closes() {
    let world = world();
    let leaver = Node::new();
    let gone = world.node(2).vector.add(leaver.name);
    let to = leaver.vector.add(world.node(2).name);
    post(&world, gone, Memory::new(1000), 1);
    world.endpoint(2).recv(Memory::new(10), 2).unwrap();
    post(&world, ANY, Memory::new(1000), 3);
    world.endpoint(2).recv_from(Memory::new(10), gone, 4).unwrap();
    leaver.endpoint.inject(&[9; 10], to).unwrap();
    let first = world.until("a first message", || {
        leaver.queue.progress();
        world.queue(2).poll()
    });
    assert_eq!((first.context, first.flags, first.source), (1, PLAIN, gone));
    leaver.close();
    let mut ended = [(); 2].map(|()| {
        let entry = world.entry(2);
        assert_eq!(entry.failure, sys::FI_ENOTCONN);
        (entry.context, entry.flags)
    });
    ended.sort_unstable();
    assert_eq!(ended, [(1, LAST), (4, PLAIN)]);
    // The others go on.
    send(&world, 0, 1, 10);
    send(&world, 1, 2, 10);
    assert_eq!(entries(&world), [(2, 1, PLAIN), (3, 2, PLAIN)]);
    world.endpoint(2).cancel(3).unwrap();
    world.failure(2, 3, sys::FI_ECANCELED);
    // A new one ends at once.
    post(&world, gone, Memory::new(1000), 5);
    assert_eq!(world.failure(2, 5, sys::FI_ENOTCONN).flags, LAST);
    close(world);
}

#[test]
fn a_thread_that_waits_is_told_of_messages_for_such_buffers() {
    let world = World::waiting(3, sys::FI_WAIT_FD);
    post(&world, 0, Memory::new(1000), 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| [(); 20].map(|()| world.queue(2).sread(30_000).unwrap()));
        for number in 0..20 {
            world.endpoint(0).inject(&[number; 10], world.address(2)).unwrap();
            if number % 5 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            world.queue(0).progress();
        }
        within_limit("the reader's end", || {
            world.queue(0).progress();
            reader.is_finished().then_some(())
        });
        assert!(reader.join().unwrap().iter().all(|entry| entry.context == 1));
    });
    world.endpoint(2).cancel(1).unwrap();
    world.failure(2, 1, sys::FI_ECANCELED);
    close(world);
}

/// Endpoints with descriptors, and messages that wait at endpoint 2: many of endpoint 1, which no
/// buffer takes, and then one of endpoint 0.
fn behind_many() -> World {
    let world = World::waiting(3, sys::FI_WAIT_FD);
    for _ in 0..1000 {
        world.endpoint(1).inject(b"x", world.address(2)).unwrap();
        world.queue(1).progress();
    }
    world.settle();
    world.endpoint(0).inject(b"y", world.address(2)).unwrap();
    world.settle();
    world
}

/// Takes the messages of endpoint 1.
fn take_many(world: World) {
    for _ in 0..1000 {
        world.endpoint(2).recv(Memory::new(1), 9).unwrap();
        world.success(2, 9);
    }
    close(world);
}

#[test]
fn no_thread_may_sleep_while_messages_are_looked_through_for_such_a_buffer() {
    let world = behind_many();
    post(&world, world.address(0), Memory::new(1), 1);
    let domain = world.node(2).domain;
    let queue = world.queue(2);
    let entry = within_limit("an entry", || {
        assert_eq!(domain.trywait(&mut [queue.queue.cast()]), Err(sys::FI_EAGAIN));
        queue.poll()
    });
    assert_eq!((entry.context, entry.failure), (1, 0));
    take_many(world);
}

#[test]
fn such_a_buffer_wakes_a_thread_that_sleeps_to_look_through_the_messages() {
    let world = behind_many();
    let domain = world.node(2).domain;
    let queue = world.queue(2);
    within_limit("leave to sleep", || domain.trywait(&mut [queue.queue.cast()]).ok());
    let descriptor = queue.descriptor().unwrap();
    assert!(!is_readable(descriptor, 0), "nothing takes the messages");
    post(&world, world.address(0), Memory::new(1), 1);
    assert!(is_readable(descriptor, 0), "the buffer wakes nobody");
    world.success(2, 1);
    take_many(world);
}

/// A receive in the list that the provider is compared with.
struct Posted {
    context: usize,
    source: Option<usize>,
    /// A multi-receive buffer.
    is_multi: bool,
    room: usize,
}

/// The facts of an entry that the test compares: context, length, flags and error number.
type Outcome = (usize, usize, u64, i32);

/// Plain lists, searched from the front.
#[derive(Default)]
struct Lists {
    posted: Vec<Posted>,
    /// Senders and lengths.
    unexpected: Vec<(usize, usize)>,
}

impl Lists {
    /// Gives each message that has a receive to the first one.
    fn deliver(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut waiting = Vec::new();
        for (sender, length) in std::mem::take(&mut self.unexpected) {
            let takes = |posted: &Posted| posted.source.is_none_or(|source| source == sender);
            let Some(index) = self.posted.iter().position(takes) else {
                waiting.push((sender, length));
                continue;
            };
            let posted = &mut self.posted[index];
            let taken = length.min(posted.room);
            let context = posted.context;
            let failure = if length > taken { sys::FI_ETRUNC } else { 0 };
            posted.room -= taken;
            let is_last = posted.is_multi && posted.room < 10;
            let flags = if is_last { LAST } else { PLAIN };
            if is_last || !posted.is_multi {
                self.posted.remove(index);
            }
            outcomes.push((context, taken, flags, failure));
        }
        self.unexpected = waiting;
        outcomes
    }
}

#[test]
fn random_receives_and_messages_meet_as_in_plain_lists() {
    for seed in 0..60 {
        let mut random = tagmatch_testkit::random::Random::new(seed);
        let world = world();
        let mut lists = Lists::default();
        // Once they are connected, messages of both senders arrive in the order of the calls.
        for sender in [0, 1] {
            world.endpoint(sender).inject(b"hello", world.address(2)).unwrap();
            world.endpoint(2).recv(Memory::new(5), 0).unwrap();
            world.success(2, 0);
        }
        for context in 0..60 {
            let source = [None, Some(0), Some(1)][random.below(3) as usize];
            let address = source.map_or(ANY, |source| world.address(source));
            let room = random.below(40) as usize + 1;
            let endpoint = world.endpoint(2);
            match random.below(8) {
                0 => {
                    post(&world, address, Memory::new(room), context);
                    lists.posted.push(Posted { context, source, is_multi: true, room });
                }
                1 | 2 => {
                    endpoint.recv_from(Memory::new(room), address, context).unwrap();
                    lists.posted.push(Posted { context, source, is_multi: false, room });
                }
                3 if !lists.posted.is_empty() => {
                    let index = random.below(lists.posted.len() as u64) as usize;
                    let Posted { context, is_multi, .. } = lists.posted.remove(index);
                    endpoint.cancel(context).unwrap();
                    let entry = world.failure(2, context, sys::FI_ECANCELED);
                    assert_eq!(entry.flags, if is_multi { LAST } else { PLAIN }, "seed {seed}");
                }
                _ => {
                    let sender = random.below(2) as usize;
                    let length = random.below(20) as usize;
                    world.endpoint(sender).inject(&vec![1; length], world.address(2)).unwrap();
                    lists.unexpected.push((sender, length));
                }
            }
            (0..8).for_each(|_| world.progress());
            let mut expected = lists.deliver();
            let mut outcomes: Vec<Outcome> = (0..expected.len())
                .map(|_| world.entry(2))
                .map(|entry| (entry.context, entry.length, entry.flags, entry.failure))
                .collect();
            expected.sort_unstable();
            outcomes.sort_unstable();
            assert_eq!(outcomes, expected, "seed {seed}, step {context}");
            assert_eq!(world.queue(2).poll(), None, "seed {seed}, step {context}");
        }
        // Nothing may hold up the end.
        for Posted { context, .. } in std::mem::take(&mut lists.posted) {
            world.endpoint(2).cancel(context).unwrap();
            world.failure(2, context, sys::FI_ECANCELED);
        }
        for context in 0..lists.unexpected.len() {
            world.endpoint(2).recv(Memory::new(20), context).unwrap();
            world.success(2, context);
        }
        close(world);
    }
}
