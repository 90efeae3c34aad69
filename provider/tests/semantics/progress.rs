//! Automatic progress (`FI_PROGRESS_AUTO`, fi_domain(3)): operations go on while the program that
//! is their target, or their initiator, makes no call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::client::{
    Call, Domain, Hints, Memory, Node, Place, QueueSettings, RemoteCall, World, alone,
    alone_one_sided, call, ends_in_a_forked_child, payload, sys, within_limit,
};
use crate::waits::is_readable;

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;
const LONG_MS: i32 = 30_000;
/// Longer than the thread waits before it takes over from calls that make progress.
const A_WHILE: Duration = Duration::from_millis(20);

fn hints(progress: sys::fi_progress, caps: u64) -> Hints {
    let caps = sys::FI_MSG | sys::FI_TAGGED | caps;
    Hints { progress, caps, threading: sys::FI_THREAD_DOMAIN, ..Hints::default() }
}

/// Two endpoints. The second one has automatic progress.
fn world(wait: sys::fi_wait_obj, caps: u64) -> World {
    let settings = QueueSettings { wait, ..QueueSettings::default() };
    let manual = Node::of(&hints(sys::FI_PROGRESS_MANUAL, caps), settings, BOTH);
    World::with(vec![manual, Node::of(&hints(sys::FI_PROGRESS_AUTO, caps), settings, BOTH)])
}

/// The next entry of the first endpoint, while the program makes no call for the second one.
fn expect_alone(world: &World, context: usize) {
    let entry = within_limit("an entry of the only caller", || world.queue(0).poll());
    assert_eq!((entry.context, entry.failure), (context, 0), "{entry:x?}");
}

/// The threads of this process that make progress.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "tagmatch-auto").count()
}

#[test]
fn one_sided_operations_go_on_while_their_target_makes_no_call() {
    let name = "progress::one_sided_operations_go_on_while_their_target_makes_no_call";
    alone_one_sided(name, || {
        let world = world(sys::FI_WAIT_NONE, sys::FI_RMA | sys::FI_ATOMIC);
        let memory = Memory::new(1 << 20);
        let region = world.node(1).domain.region(memory, 7);
        let place = Place { peer: world.address(1), key: region.key(), address: 0 };
        let endpoint = world.endpoint(0);
        for (round, length) in [8, 4096, 70_000, 1 << 20, 8].into_iter().enumerate() {
            let bytes = payload(round as u64, length);
            endpoint.write(Memory::of(&bytes), place, 1).unwrap();
            expect_alone(&world, 1);
            assert_eq!(memory.part(0, length).bytes(), bytes);
            let to = Memory::new(length);
            endpoint.read(to, place, 2).unwrap();
            expect_alone(&world, 2);
            assert_eq!(to.bytes(), bytes);
            // Now and then, the thread is asleep.
            thread::sleep(A_WHILE);
        }
        memory.write(&[0; 8]);
        let add = crate::client::Elements {
            op: sys::FI_SUM,
            datatype: sys::FI_UINT64,
            size: size_of::<u64>(),
        };
        let old = Memory::new(8);
        endpoint.fetch_atomic([Memory::of(&5u64.to_ne_bytes()), old], place, add, 3).unwrap();
        expect_alone(&world, 3);
        assert_eq!(
            (old.bytes(), memory.part(0, 8).bytes()),
            (vec![0; 8], 5u64.to_ne_bytes().into())
        );
        region.close().unwrap();
    });
}

#[test]
fn a_long_message_is_received_while_its_receiver_makes_no_call() {
    let world = world(sys::FI_WAIT_NONE, 0);
    for round in 0..3 {
        let bytes = payload(round, 3 << 20);
        let room = Memory::new(bytes.len());
        world.endpoint(1).trecv(room, 1, 0, 7).unwrap();
        let parts = [Memory::of(&bytes)];
        let send = Call {
            parts: &parts,
            address: world.address(1),
            tag: 1,
            context: 1,
            ..Call::default()
        };
        world.endpoint(0).tsendmsg(send, sys::FI_DELIVERY_COMPLETE | sys::FI_COMPLETION).unwrap();
        expect_alone(&world, 1);
        assert_eq!(room.bytes(), bytes);
        assert_eq!(within_limit("the receive's entry", || world.queue(1).poll()).context, 7);
        thread::sleep(A_WHILE);
    }
}

#[test]
fn a_long_message_is_sent_while_its_sender_makes_no_call() {
    let world = world(sys::FI_WAIT_NONE, 0);
    for round in 0..3 {
        let bytes = payload(round, 3 << 20);
        let room = Memory::new(bytes.len());
        world.endpoint(1).tsend(Memory::of(&bytes), world.address(0), 1, 7).unwrap();
        // The announcement of the message may wait for the connection of the two endpoints.
        world.endpoint(0).trecv(room, 1, 0, 1).unwrap();
        expect_alone(&world, 1);
        assert_eq!(room.bytes(), bytes);
        assert_eq!(within_limit("the send's entry", || world.queue(1).poll()).context, 7);
        thread::sleep(A_WHILE);
    }
}

#[test]
fn a_chain_of_writes_by_two_targets_that_make_no_call_ends() {
    let name = "progress::a_chain_of_writes_by_two_targets_that_make_no_call_ends";
    alone_one_sided(name, || {
        let node =
            || Node::of(&hints(sys::FI_PROGRESS_AUTO, sys::FI_RMA), QueueSettings::default(), BOTH);
        let world = World::with(vec![node(), node()]);
        let memory = [Memory::new(8), Memory::new(8)];
        let region = |node: usize| world.node(node).domain.region(memory[node], 9);
        let regions = [region(0), region(1)];
        let counter = world.node(0).domain.counter();
        for round in 1..20u64 {
            for of in [0, 1] {
                let place = Place { peer: world.address(1 - of), key: 9, address: 0 };
                world.endpoint(of).inject_write(&round.to_ne_bytes(), place).unwrap();
            }
            // No call makes progress: the bytes come all the same.
            for at in memory {
                within_limit("the bytes", || (at.bytes() == round.to_ne_bytes()).then_some(()));
            }
        }
        for region in regions {
            region.close().unwrap();
        }
        counter.close().unwrap();
    });
}

#[test]
fn blocking_reads_and_descriptors_wake_beside_automatic_progress() {
    for wait in [sys::FI_WAIT_UNSPEC, sys::FI_WAIT_FD] {
        let world = world(wait, 0);
        for round in 0..20 {
            world.endpoint(1).trecv(Memory::new(8), 1, 0, 7).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(if round % 2 == 0 { A_WHILE } else { Duration::ZERO });
                    let from = Memory::of(b"x");
                    world.endpoint(0).tsend(from, world.address(1), 1, 1).unwrap();
                    within_limit("the send's entry", || world.queue(0).poll());
                });
                if wait == sys::FI_WAIT_FD {
                    let domain = world.node(1).domain;
                    let mut objects = [world.queue(1).queue.cast()];
                    let is_there = within_limit("leave to sleep, or an entry", || {
                        match domain.trywait(&mut objects) {
                            Ok(_) => Some(false),
                            Err(_) => world.queue(1).poll().map(|_| true),
                        }
                    });
                    if is_there {
                        return;
                    }
                    let descriptor = world.queue(1).descriptor().unwrap();
                    assert!(is_readable(descriptor, LONG_MS), "nothing woke this thread");
                    within_limit("the entry", || world.queue(1).poll());
                } else {
                    assert_eq!(world.queue(1).sread(LONG_MS).unwrap().context, 7);
                }
            });
        }
    }
}

#[test]
fn calls_of_the_program_and_the_thread_share_the_work() {
    let world = world(sys::FI_WAIT_NONE, 0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..3000u64 {
                let length = [8, 300, 5000][number as usize % 3];
                let from = Memory::of(&payload(number, length));
                let to = world.address(1);
                within_limit("room for a send", || {
                    match world.endpoint(0).tsend(from, to, number, 1) {
                        Err(sys::FI_EAGAIN) => {
                            world.queue(0).progress();
                            None
                        }
                        sent => Some(sent.unwrap()),
                    }
                });
                within_limit("the send's entry", || world.queue(0).poll());
            }
            // What its receiver has yet to read.
            while !is_over.load(Ordering::Relaxed) {
                world.queue(0).progress();
            }
        });
        for number in 0..3000u64 {
            let length = [8, 300, 5000][number as usize % 3];
            let room = Memory::new(length);
            world.endpoint(1).trecv(room, number, 0, number as usize).unwrap();
            // Calls that make progress follow each other closely, or not at all.
            if number % 100 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            let entry = within_limit("a message", || world.queue(1).poll());
            assert_eq!((entry.context, entry.failure), (number as usize, 0));
            assert_eq!(room.bytes(), payload(number, length));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_domain_has_a_thread_only_if_it_was_opened_so_and_as_long_as_it_is_open() {
    let name = "progress::a_domain_has_a_thread_only_if_it_was_opened_so_and_as_long_as_it_is_open";
    alone(name, || {
        let domain = |progress| Domain::of(&hints(progress, 0));
        let manual = domain(sys::FI_PROGRESS_MANUAL);
        assert_eq!(threads(), 0);
        let automatic = [domain(sys::FI_PROGRESS_AUTO), domain(sys::FI_PROGRESS_AUTO)];
        // A thread gives itself its name.
        within_limit("two threads", || (threads() == 2).then_some(()));
        automatic[0].close();
        assert_eq!(threads(), 1);
        automatic[1].close();
        assert_eq!(threads(), 0);
        manual.close();
    });
}

#[test]
fn a_forked_child_may_close_everything_and_its_parent_goes_on() {
    alone("progress::a_forked_child_may_close_everything_and_its_parent_goes_on", || {
        let world = world(sys::FI_WAIT_FD, 0);
        let exchange = |number: u64| {
            let room = Memory::new(8);
            world.endpoint(1).trecv(room, number, 0, 7).unwrap();
            let parts = [Memory::of(&number.to_ne_bytes())];
            let send = Call {
                parts: &parts,
                address: world.address(1),
                tag: number,
                context: 1,
                ..Call::default()
            };
            world
                .endpoint(0)
                .tsendmsg(send, sys::FI_DELIVERY_COMPLETE | sys::FI_COMPLETION)
                .unwrap();
            expect_alone(&world, 1);
            assert_eq!(room.bytes(), number.to_ne_bytes());
        };
        for round in 0..30 {
            exchange(2 * round);
            // The thread is at work, or asleep.
            thread::sleep(Duration::from_micros(100 * round));
            assert!(ends_in_a_forked_child(|| {
                for node in 0..2 {
                    world.node(node).close();
                }
            }));
            exchange(2 * round + 1);
            while world.queue(1).poll().is_some() {}
        }
    });
}

#[test]
fn what_was_accepted_is_delivered_at_the_end_of_the_process() {
    alone_one_sided("progress::what_was_accepted_is_delivered_at_the_end_of_the_process", || {
        for _ in 0..20 {
            let world = world(sys::FI_WAIT_NONE, sys::FI_RMA);
            let memory = Memory::new(8);
            let region = world.node(1).domain.region(memory, 7);
            let place = Place { peer: world.address(1), key: region.key(), address: 0 };
            let parts = [Memory::of(&[9; 8])];
            let write =
                RemoteCall { parts: &parts, place, length: 8, more: &[], context: 1, data: 0 };
            world.endpoint(0).writemsg(write, 0).unwrap();
            world.endpoint(1).tinject(b"x", world.address(0), 1).unwrap();
            call!(tagmatch_fi::fi_prov_ini(), cleanup());
            // The endpoints are gone.
            assert!(world.endpoint(0).close().is_err() && world.endpoint(1).close().is_err());
            std::mem::forget(world);
        }
    });
}
