//! Waiting for entries: fi_cq(3), fi_poll(3). No test measures a time.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{
    Call, Domain, Hints, Memory, Node, Queue, QueueSettings, World, sys, within_limit,
};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;
/// Much more than any wait of a test takes.
const LONG_MS: i32 = 30_000;
/// Long enough for another thread to have gone to sleep, on most runs.
const A_WHILE: Duration = Duration::from_millis(30);

/// Two endpoints with queues that threads can wait for.
fn world(wait: sys::fi_wait_obj) -> World {
    World::waiting(2, wait)
}

/// An endpoint whose blocking reads wait for as many entries as they are told.
fn with_threshold() -> World {
    let settings = QueueSettings {
        wait: sys::FI_WAIT_UNSPEC,
        condition: sys::FI_CQ_COND_THRESHOLD,
        ..QueueSettings::default()
    };
    World::with(vec![Node::of(&Hints::default(), settings, BOTH)])
}

/// Does something while this thread sleeps, on most runs.
fn in_a_while<A, T>(act: impl FnOnce() -> A + Send, wait: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            act();
        });
        wait()
    })
}

/// Whether the descriptor becomes readable in this time.
pub(crate) fn is_readable(descriptor: i32, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: the call has one element.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        0 => false,
        1 => true,
        _ => panic!("poll(2): {}", std::io::Error::last_os_error()),
    }
}

/// Waits for an entry of endpoint 1 as programs do that sleep in poll(2).
fn poll_for_entry(world: &World) -> crate::client::Entry {
    let domain = world.node(1).domain;
    let queue = world.queue(1);
    let descriptor = queue.descriptor().unwrap();
    within_limit("an entry", || {
        if let Some(entry) = queue.poll() {
            return Some(entry);
        }
        match domain.trywait(&mut [queue.queue.cast()]) {
            Ok(_) => assert!(is_readable(descriptor, LONG_MS), "nothing woke this thread"),
            Err(errno) => assert_eq!(errno, sys::FI_EAGAIN),
        }
        None
    })
}

#[test]
fn a_descriptor_becomes_readable_when_there_is_an_entry() {
    let world = world(sys::FI_WAIT_FD);
    // The first messages connect the endpoints.
    for length in [4, 4, 4, 4, 300_000] {
        let from = Memory::of(&vec![7; length]);
        let room = Memory::new(length);
        world.endpoint(1).trecv(room, 1, 0, 2).unwrap();
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                thread::sleep(A_WHILE);
                world.endpoint(0).tsend(from, world.address(1), 1, 1).unwrap();
                within_limit("the send's entry", || world.queue(0).poll())
            });
            let entry = poll_for_entry(&world);
            assert_eq!((entry.context, entry.length), (2, length));
            // A long message needs the receiver's help to be complete.
            within_limit("the end of the sender", || {
                world.queue(1).progress();
                sender.is_finished().then_some(())
            });
        });
        assert_eq!(room.bytes(), from.bytes());
    }
}

#[test]
fn trywait_says_whether_a_thread_may_sleep() {
    let world = world(sys::FI_WAIT_FD);
    let domain = world.node(1).domain;
    let queue = world.queue(1);
    world.endpoint(1).trecv(Memory::new(4), 1, 0, 1).unwrap();
    world.settle();
    let mut objects = [queue.queue.cast()];
    assert_eq!(domain.trywait(&mut objects), Ok(0));
    assert!(!is_readable(queue.descriptor().unwrap(), 0), "there is nothing to read");
    world.endpoint(0).tinject(b"x", world.address(1), 1).unwrap();
    world.settle();
    for _ in 0..3 {
        assert_eq!(domain.trywait(&mut objects), Err(sys::FI_EAGAIN));
    }
    world.success(1, 1);
    assert_eq!(domain.trywait(&mut objects), Ok(0));
    // What is no queue, and nothing at all.
    let mut wrong = [domain.domain.cast()];
    assert_eq!(domain.trywait(&mut wrong), Err(sys::FI_EINVAL));
    assert_eq!(domain.trywait(&mut [std::ptr::null_mut()]), Err(sys::FI_EINVAL));
    assert_eq!(domain.trywait(&mut []), Ok(0));
}

#[test]
fn trywait_sees_an_entry_behind_many_ends_without_entries() {
    const SILENT: usize = 150;
    let settings = QueueSettings { wait: sys::FI_WAIT_FD, ..QueueSettings::default() };
    let node = || Node::of(&Hints::default(), settings, BOTH | sys::FI_SELECTIVE_COMPLETION);
    let world = World::with(vec![node(), node()]);
    let domain = world.node(1).domain;
    let queue = world.queue(1);
    let endpoint = world.endpoint(1);
    for _ in 0..=SILENT {
        world.endpoint(0).tinject(b"x", world.address(1), 1).unwrap();
    }
    world.settle();
    let room = [Memory::new(1)];
    for _ in 0..SILENT {
        endpoint.trecv(room[0], 1, 0, 1).unwrap();
    }
    let last = Call { parts: &room, tag: 1, context: 2, ..Call::default() };
    endpoint.trecvmsg(last, sys::FI_COMPLETION).unwrap();
    assert_eq!(domain.trywait(&mut [queue.queue.cast()]), Err(sys::FI_EAGAIN));
    world.success(1, 2);
}

#[test]
fn a_descriptor_wakes_for_an_entry_that_another_thread_made() {
    let world = world(sys::FI_WAIT_FD);
    world.endpoint(1).trecv(Memory::new(4), 1, 0, 1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            world.endpoint(1).cancel(1).unwrap();
            world.endpoint(1).trecvmsg(Call::default(), sys::FI_PEEK).unwrap();
        });
        let mut failures = [poll_for_entry(&world).failure, poll_for_entry(&world).failure];
        failures.sort_unstable();
        assert_eq!(failures, [sys::FI_ENOMSG, sys::FI_ECANCELED]);
    });
}

#[test]
fn only_a_queue_with_a_descriptor_gives_it() {
    for wait in [sys::FI_WAIT_NONE, sys::FI_WAIT_UNSPEC, sys::FI_WAIT_YIELD] {
        let world = world(wait);
        assert_eq!(world.queue(0).descriptor(), Err(sys::FI_ENOSYS));
    }
}

#[test]
fn a_blocking_read_ends_with_the_time_limit() {
    let world = world(sys::FI_WAIT_UNSPEC);
    for timeout in [0, 1, 20] {
        assert_eq!(world.queue(0).sread(timeout), Err(sys::FI_EAGAIN));
    }
    drop(world);
    // A queue without endpoints.
    let domain = Domain::new();
    let queue = domain.queue(QueueSettings { wait: sys::FI_WAIT_UNSPEC, ..Default::default() });
    assert_eq!(queue.sread(20), Err(sys::FI_EAGAIN));
    queue.close().unwrap();
    domain.close();
}

#[test]
fn a_queue_without_a_wait_object_has_no_blocking_reads() {
    let world = world(sys::FI_WAIT_NONE);
    assert_eq!(world.queue(0).sread(0), Err(sys::FI_ENOSYS));
    // Nor does it ever become safe to sleep on it.
    let mut objects = [world.queue(0).queue.cast()];
    assert_eq!(world.node(0).domain.trywait(&mut objects), Err(sys::FI_EINVAL));
}

#[test]
fn a_blocking_read_is_woken_by_a_message() {
    for wait in [sys::FI_WAIT_UNSPEC, sys::FI_WAIT_FD, sys::FI_WAIT_YIELD] {
        let world = world(wait);
        for timeout in [LONG_MS, -1] {
            world.endpoint(1).trecv(Memory::new(4), 1, 0, 7).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(A_WHILE);
                    world.endpoint(0).tsend(Memory::of(b"x"), world.address(1), 1, 1).unwrap();
                    within_limit("the send's entry", || world.queue(0).poll());
                });
                let entry = world.queue(1).sread(timeout).unwrap();
                assert_eq!((entry.context, entry.source), (7, world.address(0)));
            });
        }
    }
}

/// A blocking read without a time limit; see [`ends_unaided`].
fn woken(queue: Queue) -> Result<usize, i32> {
    ends_unaided(queue, || queue.sread(-1).map(|entry| entry.context))
}

/// The result of a blocking read. The test fails if the read ends only by the signal that is sent
/// after 20 seconds.
fn ends_unaided<T: Send>(queue: Queue, read: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let reader = scope.spawn(read);
        let began = Instant::now();
        let mut is_released = false;
        while !reader.is_finished() {
            thread::sleep(Duration::from_millis(1));
            if began.elapsed() > Duration::from_secs(20) {
                is_released = true;
                queue.signal().unwrap();
            }
        }
        assert!(!is_released, "nothing woke the thread");
        reader.join().unwrap()
    })
}

#[test]
fn a_blocking_read_is_woken_by_an_error_entry() {
    let world = world(sys::FI_WAIT_UNSPEC);
    world.endpoint(1).trecv(Memory::new(4), 1, 0, 7).unwrap();
    let act = || world.endpoint(1).cancel(7).unwrap();
    assert_eq!(in_a_while(act, || woken(world.queue(1))), Err(sys::FI_EAVAIL));
    assert_eq!(world.queue(1).read_error(0).unwrap().failure, sys::FI_ECANCELED);
}

#[test]
fn a_blocking_read_is_woken_by_a_signal() {
    let world = world(sys::FI_WAIT_UNSPEC);
    // The signal comes before the read, or during it.
    world.queue(1).signal().unwrap();
    assert_eq!(world.queue(1).sread(LONG_MS), Err(sys::FI_EAGAIN));
    let act = || world.queue(1).signal().unwrap();
    assert_eq!(in_a_while(act, || world.queue(1).sread(-1)), Err(sys::FI_EAGAIN));
    // It ends one read.
    world.endpoint(1).trecv(Memory::new(4), 1, 0, 7).unwrap();
    let act = || world.endpoint(1).tinject(b"x", world.address(1), 1).unwrap();
    assert_eq!(in_a_while(act, || woken(world.queue(1))), Ok(7));
}

#[test]
fn a_blocking_read_that_has_slept_waits_for_its_threshold() {
    let world = with_threshold();
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 8];
    thread::scope(|scope| {
        scope.spawn(|| {
            for context in 0..2 {
                thread::sleep(A_WHILE);
                endpoint.trecv(Memory::new(4), 1, 0, context).unwrap();
                endpoint.tinject(b"x", to, 1).unwrap();
            }
        });
        // The first entry ends a sleep, and not the call.
        assert_eq!(world.queue(0).sread_several(&mut entries, 2, -1), Ok(2));
    });
}

#[test]
fn a_blocking_read_with_a_threshold_ends_with_a_failure_behind_other_entries() {
    let world = with_threshold();
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 8];
    for (context, room) in [(1, 1), (2, 0)] {
        endpoint.trecv(Memory::new(room), 1, 0, context).unwrap();
        endpoint.tinject(b"x", to, 1).unwrap();
    }
    assert_eq!(world.queue(0).sread_several(&mut entries, 3, -1), Ok(1));
    assert_eq!(world.queue(0).sread_several(&mut entries, 3, -1), Err(sys::FI_EAVAIL));
    world.failure(0, 2, sys::FI_ETRUNC);
}

#[test]
fn a_blocking_read_waits_for_its_threshold() {
    let world = with_threshold();
    let endpoint = world.endpoint(0);
    let to = world.address(0);
    let mut entries = [sys::fi_cq_tagged_entry::zeroed(); 8];
    for context in 0..2 {
        endpoint.trecv(Memory::new(4), 1, 0, context).unwrap();
        endpoint.tinject(b"x", to, 1).unwrap();
    }
    let act = || {
        endpoint.trecv(Memory::new(4), 1, 0, 2).unwrap();
        endpoint.tinject(b"x", to, 1).unwrap();
    };
    assert_eq!(in_a_while(act, || world.queue(0).sread_several(&mut entries, 3, LONG_MS)), Ok(3));
    let make_entry = || {
        endpoint.trecv(Memory::new(4), 1, 0, 2).unwrap();
        endpoint.tinject(b"x", to, 1).unwrap();
    };
    // When the time is over, it gives what there is.
    make_entry();
    let queue = world.queue(0);
    assert_eq!(queue.sread_several(&mut entries, 3, 20), Ok(1));
    // More than fit are not waited for.
    make_entry();
    let read_one = || queue.sread_several(&mut [sys::fi_cq_tagged_entry::zeroed()], 100, -1);
    assert_eq!(ends_unaided(queue, read_one), Ok(1));
    // A signal ends the wait, and an error entry: there may be no more entries than that.
    make_entry();
    queue.signal().unwrap();
    assert_eq!(queue.sread_several(&mut entries, 3, -1), Ok(1));
    endpoint.trecv(Memory::new(4), 1, 0, 3).unwrap();
    endpoint.cancel(3).unwrap();
    let read_three = || queue.sread_several(&mut [sys::fi_cq_tagged_entry::zeroed(); 3], 3, -1);
    assert_eq!(ends_unaided(queue, read_three), Err(sys::FI_EAVAIL));
    assert_eq!(queue.read_error(0).unwrap().context, 3);
}

#[test]
fn several_threads_may_wait_for_one_queue() {
    let world = world(sys::FI_WAIT_UNSPEC);
    for context in 0..4 {
        world.endpoint(1).trecv(Memory::new(4), 1, 0, context).unwrap();
    }
    thread::scope(|scope| {
        let wait = || world.queue(1).sread(LONG_MS).expect("an entry").context;
        let threads = [(); 4].map(|()| scope.spawn(wait));
        thread::sleep(A_WHILE);
        for _ in 0..4 {
            world.endpoint(0).tinject(b"x", world.address(1), 1).unwrap();
            world.queue(0).progress();
            thread::sleep(Duration::from_millis(5));
        }
        within_limit("the ends of all threads", || {
            world.queue(0).progress();
            threads.iter().all(|thread| thread.is_finished()).then_some(())
        });
        let mut contexts = threads.map(|thread| thread.join().unwrap());
        contexts.sort_unstable();
        assert_eq!(contexts, [0, 1, 2, 3]);
    });
}

#[test]
fn a_blocking_read_is_woken_by_a_receive_that_another_thread_posts() {
    let world = world(sys::FI_WAIT_UNSPEC);
    // The message waits for a receive, so its arrival wakes nobody.
    world.endpoint(0).tinject(b"x", world.address(1), 1).unwrap();
    world.settle();
    let act = || world.endpoint(1).trecv(Memory::new(4), 1, 0, 7).unwrap();
    assert_eq!(in_a_while(act, || woken(world.queue(1))), Ok(7));
}

#[test]
fn a_descriptor_wakes_while_another_queue_of_the_endpoint_is_read() {
    let world = world(sys::FI_WAIT_UNSPEC);
    let domain = world.node(0).domain;
    let settings = QueueSettings { wait: sys::FI_WAIT_FD, ..QueueSettings::default() };
    let sends = domain.queue(settings);
    let receives = domain.queue(settings);
    let endpoint = domain.endpoint();
    endpoint.bind_vector(world.node(0).vector).unwrap();
    endpoint.bind_queue(sends, sys::FI_TRANSMIT).unwrap();
    endpoint.bind_queue(receives, sys::FI_RECV).unwrap();
    endpoint.enable().unwrap();
    let to = world.node(1).vector.add(endpoint.name());
    let send = || {
        world.endpoint(1).tsend(Memory::of(b"x"), to, 1, 1).unwrap();
        within_limit("the send's entry", || {
            sends.progress();
            world.queue(1).poll()
        });
    };
    // The first message connects the endpoints, and is received.
    send();
    endpoint.trecv(Memory::new(4), 1, 0, 7).unwrap();
    within_limit("the message", || receives.poll());
    // It makes progress for the endpoint, and there is nothing yet: as a thread that was about to
    // sleep as well.
    let read_sends = || {
        assert_eq!(domain.trywait(&mut [sends.queue.cast()]), Ok(0));
        assert_eq!(sends.poll(), None);
    };
    for _ in 0..3 {
        endpoint.trecv(Memory::new(4), 1, 0, 7).unwrap();
        within_limit("leave to sleep", || domain.trywait(&mut [receives.queue.cast()]).ok());
        read_sends();
        let descriptor = receives.descriptor().unwrap();
        assert!(!is_readable(descriptor, 0), "there is nothing to read");
        world.endpoint(1).tsend(Memory::of(b"x"), to, 1, 1).unwrap();
        world.queue(1).progress();
        assert!(is_readable(descriptor, 0), "the message wakes nobody");
        assert_eq!(within_limit("the message", || receives.poll()).context, 7);
        within_limit("the send's entry", || world.queue(1).poll());
    }
    endpoint.close().unwrap();
    sends.close().unwrap();
    receives.close().unwrap();
}

#[test]
fn a_signal_handler_ends_a_wait() {
    extern "C" fn handler(_signal: i32) {}
    // SAFETY: the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    let world = world(sys::FI_WAIT_UNSPEC);
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            // SAFETY: the call has no pointers.
            sender.send(unsafe { libc::pthread_self() }).unwrap();
            world.queue(1).sread(-1)
        });
        let thread = receiver.recv().unwrap();
        // The first ones may come before the thread sleeps.
        within_limit("an end of the wait", || {
            thread::sleep(Duration::from_millis(5));
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
            waiting.is_finished().then_some(())
        });
        assert_eq!(waiting.join().unwrap(), Err(sys::FI_EAGAIN));
    });
}

#[test]
fn a_wait_for_a_counter_lasts_until_another_thread_adds() {
    let domain = Domain::new();
    let counter = domain.counter();
    let adds = || counter.add(1).unwrap();
    in_a_while(adds, || assert_eq!(counter.wait(1, LONG_MS), Ok(0)));
    counter.close().unwrap();
    domain.close();
}

thread_local! {
    /// How often this thread has let others run.
    static YIELDS: Cell<usize> = const { Cell::new(0) };
}

/// What `std::thread::yield_now` calls, in this whole program.
// SAFETY: it does what the function of this name in sched_yield(2) does.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> libc::c_int {
    YIELDS.set(YIELDS.get() + 1);
    // SAFETY: the call has no arguments.
    unsafe { libc::syscall(libc::SYS_sched_yield) as libc::c_int }
}

/// The peer may need the processor of the thread that waits for it, so the thread yields after a
/// thousand reads in vain. Later yields depend on how long the earlier ones took.
fn expect_to_give_way(read: impl Fn(&World)) {
    let world = World::new(2);
    world.endpoint(1).trecv(Memory::new(4), 1, 0, 1).unwrap();
    let before = YIELDS.get();
    let reads = (1..=1200).find(|_| {
        read(&world);
        YIELDS.get() > before
    });
    assert!(reads.is_some_and(|reads| reads > 500), "the first yield comes after {reads:?} reads");
    world.endpoint(0).tinject(b"x", world.address(1), 1).unwrap();
    within_limit("the message", || {
        world.queue(0).progress();
        world.queue(1).poll()
    });
}

#[test]
fn a_program_that_reads_in_a_loop_gives_way_to_its_peer() {
    expect_to_give_way(|world| assert_eq!(world.queue(1).poll(), None));
}

/// Each probe has an entry, which tells that there is no message.
#[test]
fn a_program_that_probes_in_a_loop_gives_way_to_its_peer() {
    expect_to_give_way(|world| {
        // No message has this tag.
        let probe = Call { tag: 2, context: 2, ..Default::default() };
        world.endpoint(1).trecvmsg(probe, sys::FI_PEEK).unwrap();
        assert_eq!(world.queue(1).poll().map(|entry| entry.context), Some(2));
    });
}
