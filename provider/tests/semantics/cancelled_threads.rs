//! A thread may be cancelled in a call that sleeps (pthread_cancel(3)), as in poll(2). What it
//! waited for stays usable.

use crate::client::{Counter, Domain, Memory, Queue, World, alone, call, close, is_cancelled, sys};

/// Calls from other threads than the one that has made the object.
#[derive(Clone, Copy)]
struct Shared<T>(T);

// SAFETY: the domain of the object is for several threads.
unsafe impl<T> Sync for Shared<T> {}

#[test]
fn a_thread_that_is_cancelled_in_a_blocking_read_leaves_the_queue_in_order() {
    let test = "cancelled_threads::\
                a_thread_that_is_cancelled_in_a_blocking_read_leaves_the_queue_in_order";
    alone(test, || {
        let world = World::waiting(2, sys::FI_WAIT_UNSPEC);
        for tag in 1..=2 {
            let queue: Shared<Queue> = Shared(world.queue(1));
            let reads = move || {
                let queue = queue;
                let _ = queue.0.sread(-1);
            };
            assert!(is_cancelled(reads));
            world.endpoint(1).trecv(Memory::new(4), tag, 0, 7).unwrap();
            world.endpoint(0).tinject(b"text", world.address(1), tag).unwrap();
            assert_eq!(world.success(1, 7).tag, tag);
        }
        // Nobody sleeps on the queue any more, so another thread may.
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| world.queue(1).sread(-1).map(|entry| entry.context));
            world.endpoint(1).trecv(Memory::new(4), 3, 0, 8).unwrap();
            world.endpoint(0).tinject(b"text", world.address(1), 3).unwrap();
            assert_eq!(reader.join().unwrap(), Ok(8));
        });
    });
}

#[test]
fn a_thread_that_is_cancelled_in_a_wait_leaves_the_object_in_order() {
    let test = "cancelled_threads::a_thread_that_is_cancelled_in_a_wait_leaves_the_object_in_order";
    alone(test, || {
        let domain = Domain::new();
        let counter: Shared<Counter> = Shared(domain.counter());
        let waits = move || {
            let counter = counter;
            let _ = counter.0.wait(1, -1);
        };
        assert!(is_cancelled(waits));
        counter.0.add(1).unwrap();
        assert_eq!(counter.0.wait(1, -1), Ok(0));
        counter.0.close().unwrap();
        let events = domain.events_of(sys::fi_eq_attr::zeroed()).unwrap();
        let shared = Shared(events);
        let reads = move || {
            let queue = { shared }.0;
            let mut event = 0;
            let mut room = [0u8; 8];
            let event = &raw mut event;
            let to = room.as_mut_ptr().cast();
            // SAFETY: the queue is open.
            let functions = unsafe { (*queue).ops };
            call!(functions, sread(queue, event, to, 8, -1, 0));
        };
        assert!(is_cancelled(reads));
        close(events.cast()).unwrap();
        domain.close();
    });
}
