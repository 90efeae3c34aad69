//! Blocking calls. Each rank is a thread of this process, and there are more ranks than most
//! machines have processors.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use tagmatch::{Access, Config as WorkerConfig, Local, Shared, WorkerOf};
use tagmatch_comm::coll::{Op, from_bytes, into_elements, to_bytes};
use tagmatch_comm::net::Net;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Error, PortName, Runtime, Source, Uniformity};

use crate::common::transport::{Altered, Changes, Moves};

const RANKS: u32 = 5;

/// Runs a program in each of some ranks. No rank leaves before all have ended.
fn run<A: Access + 'static>(ranks: u32, program: impl Fn(Runtime<WorkerNet<A>>) + Sync) {
    run_on(ranks, |net| net, program);
}

/// Runs a program in each of some ranks, on a transport on which a thread sleeps for an hour if it
/// is not woken. So a lost wake-up shows as a hang.
fn run_asleep(
    ranks: u32,
    moves: Moves,
    program: impl Fn(Runtime<Altered<WorkerNet<Shared>>>) + Send + Sync + 'static,
) {
    let sleep_max = Some(Duration::from_secs(3600));
    let slow = Changes { moves, sleep_max, shares_nothing: true, ..Changes::NONE };
    ends(move || run_on(ranks, |net: WorkerNet<Shared>| Altered::new(net, slow), program));
}

/// Runs a program, and fails if it doesn't end within a minute.
fn ends(program: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        program();
        sender.send(()).unwrap();
    });
    if receiver.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap();
}

fn run_on<A: Access + 'static, N: Net>(
    ranks: u32,
    transport: impl Fn(WorkerNet<A>) -> N + Sync,
    program: impl Fn(Runtime<N>) + Sync,
) {
    let addresses = Mutex::new(vec![None; ranks as usize]);
    let known = Barrier::new(ranks as usize);
    let done = Barrier::new(ranks as usize);
    let rank = |rank: u32| {
        let worker = WorkerOf::<A>::new(WorkerConfig::default()).unwrap();
        addresses.lock().unwrap()[rank as usize] = Some(worker.address());
        known.wait();
        let all = addresses.lock().unwrap().iter().map(|address| address.unwrap()).collect();
        let net = WorkerNet::new(worker, all, rank).unwrap();
        let runtime = Runtime::new(transport(net), Config::default()).unwrap();
        program(runtime.clone());
        runtime.world().barrier().wait().unwrap();
        done.wait();
    };
    thread::scope(|scope| {
        for number in 0..ranks {
            let rank = &rank;
            scope.spawn(move || rank(number));
        }
    });
}

/// A started operation is under way while blocking ones are called, which have to wait for their
/// turn.
#[test]
fn blocking_calls_wait_for_the_operation_that_was_started_before() {
    run::<Local>(RANKS, |runtime| {
        let world = runtime.world();
        let sum = Op::sum::<u64>();
        let rank = u64::from(world.rank());
        let total = |value: u64| u64::from(RANKS) * value + (0..u64::from(RANKS)).sum::<u64>();
        for round in 0..10 {
            let long: Vec<u64> = (0..30_000).map(|at| rank + round + at).collect();
            let started = world.allreduce(to_bytes(&long), &sum).start();
            for turn in 0..20 {
                let got = world.allreduce(to_bytes(&[rank + turn]), &sum).wait().unwrap();
                assert_eq!(from_bytes::<u64>(&got), [total(turn)]);
                let root = u32::try_from(turn).unwrap() % RANKS;
                let copy = world.broadcast(root, to_bytes(&[rank + turn])).wait().unwrap();
                assert_eq!(from_bytes::<u64>(&copy), [u64::from(root) + turn]);
            }
            let got = from_bytes::<u64>(&started.wait().unwrap());
            assert!(got.into_iter().eq((0..30_000).map(|at| total(round + at))));
        }
    });
}

/// A communicator keeps the plan of a call. The plan is right for the next call of the same shape,
/// and is not used for a call of another shape.
#[test]
fn repeated_calls_give_the_right_results() {
    run::<Local>(RANKS, |runtime| {
        let world = runtime.world();
        let rank = world.rank();
        let sum = Op::sum::<u32>();
        for round in 0..300u32 {
            let root = round / 7 % RANKS;
            let values = 1 + round / 50 * 9;
            let own = |rank: u32| -> Vec<u32> { (0..values).map(|at| rank * at + round).collect() };
            let total: Vec<u32> = (0..values).map(|at| 10 * at + RANKS * round).collect();
            world.barrier().wait().unwrap();
            let at_root = |all: Vec<u32>| if rank == root { all } else { Vec::new() };
            let numbers = into_elements::<u32>;
            let mine = || to_bytes(&own(rank));
            assert_eq!(numbers(world.broadcast(root, mine()).wait().unwrap()), own(root));
            assert_eq!(numbers(world.allreduce(mine(), &sum).wait().unwrap()), total);
            let least = world.allreduce(mine(), &Op::min::<u32>()).wait().unwrap();
            assert_eq!(numbers(least), own(0));
            assert_eq!(numbers(world.reduce(root, mine(), &sum).wait().unwrap()), at_root(total));
            let all: Vec<u32> = (0..RANKS).flat_map(own).collect();
            assert_eq!(numbers(world.allgather(mine()).wait().unwrap()), all);
            assert_eq!(numbers(world.gather(root, mine()).wait().unwrap()), at_root(all));
            let upto: Vec<u32> =
                (0..values).map(|at| (0..=rank).map(|rank| rank * at + round).sum()).collect();
            assert_eq!(numbers(world.scan(mine(), &sum).wait().unwrap()), upto);
            let blocks: Vec<u32> = (0..RANKS).map(|to| 100 * rank + to + round).collect();
            let due: Vec<u32> = (0..RANKS).map(|from| 100 * from + rank + round).collect();
            assert_eq!(numbers(world.alltoall(to_bytes(&blocks)).wait().unwrap()), due);
        }
    });
}

/// Each sleeping thread waits for an operation of its own. A thread that is awake wakes the thread
/// whose operation it ends.
#[test]
fn threads_of_one_rank_sleep_and_wake_each_other() {
    run::<Shared>(2, |runtime| {
        let world = runtime.world();
        let other = 1 - world.rank();
        let threads = 4u32;
        let comms: Vec<_> = (0..threads).map(|_| world.dup().wait().unwrap()).collect();
        thread::scope(|scope| {
            for (number, comm) in (0..threads).zip(&comms) {
                scope.spawn(move || {
                    for round in 0..6u32 {
                        // So long that all others fall asleep.
                        if (round + number) % 3 == comm.rank() {
                            thread::sleep(Duration::from_millis(20));
                        }
                        comm.barrier().wait().unwrap();
                        let receive = comm.recv(other, round, vec![0; 4]);
                        comm.send(other, round, number.to_le_bytes().to_vec()).wait().unwrap();
                        assert_eq!(receive.wait().unwrap().data(), number.to_le_bytes());
                        comm.barrier().wait().unwrap();
                    }
                });
            }
        });
    });
}

/// The transport wakes one of two sleeping threads, which wakes the other one.
#[test]
fn a_thread_that_is_woken_wakes_the_others() {
    run_asleep(2, Moves::Always, |runtime| {
        let world = runtime.world();
        if world.rank() == 0 {
            for tag in [0, 1, 1, 0] {
                // So long that both fall asleep.
                thread::sleep(Duration::from_millis(100));
                world.send(1, tag, vec![7]).wait().unwrap();
            }
            return;
        }
        thread::scope(|scope| {
            for tag in 0..2 {
                let world = &world;
                scope.spawn(move || {
                    for _ in 0..2 {
                        world.recv(0, tag, vec![0; 1]).wait().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn a_sleeping_thread_is_woken_by_what_another_thread_does() {
    run_asleep(1, Moves::Always, |runtime| {
        let part = runtime.world().dup().wait().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| part.recv(Source::Any, 1, vec![]).wait());
            thread::sleep(Duration::from_millis(200));
            part.revoke();
            assert_eq!(waits.join().unwrap().unwrap_err().error, Error::Revoked);
        });
        // The waker of a future, and then the end of a progress thread.
        let flag = AtomicBool::new(false);
        let waker = Mutex::new(None::<Waker>);
        let flagged = poll_fn(|context| {
            *waker.lock().unwrap() = Some(context.waker().clone());
            if flag.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                flag.store(true, Ordering::SeqCst);
                waker.lock().unwrap().take().unwrap().wake();
            });
            runtime.block_on(flagged);
        });
        let progress = runtime.progress_thread().unwrap();
        thread::sleep(Duration::from_millis(200));
        drop(progress);
    });
}

/// A thread looks once more between the preparation of a sleep and the sleep, and does not sleep
/// while the transport has something to do.
#[test]
fn a_thread_looks_before_it_sleeps() {
    run_asleep(2, Moves::AfterTwoRefusals, |runtime| {
        let world = runtime.world();
        let other = 1 - world.rank();
        let mut sends = Vec::new();
        for round in 0..8 {
            sends.push(world.send(other, round, vec![7]));
            if round % 2 == world.rank() {
                // So long that the message of the other rank arrives, and the other rank falls
                // asleep.
                thread::sleep(Duration::from_millis(50));
            }
            world.recv(other, round, vec![0; 1]).wait().unwrap();
        }
        for send in sends {
            send.wait().unwrap();
        }
    });
}

/// A call to a port wakes the process that accepts, and the answer wakes the caller.
#[test]
fn threads_that_sleep_meet_at_a_port() {
    run_asleep(2, Moves::Always, |runtime| {
        let world = runtime.world();
        let own = runtime.oneself();
        if world.rank() == 0 {
            let ports = [(); 2].map(|()| runtime.open_port().unwrap());
            for port in &ports {
                world.send(1, 1, port.name().to_string().into_bytes()).wait().unwrap();
            }
            let [closed, port] = ports;
            drop(closed);
            let inter = own.accept(Uniformity::Eventual, 0, Some(&port)).wait().unwrap();
            thread::sleep(Duration::from_millis(100));
            inter.disconnect().wait().unwrap();
        } else {
            let names = [(); 2].map(|()| {
                let name = world.recv(0, 1, vec![0; 200]).wait().unwrap();
                str::from_utf8(name.data()).unwrap().parse::<PortName>().unwrap()
            });
            // So long that the other rank falls asleep.
            thread::sleep(Duration::from_millis(100));
            let closed = own.connect(Uniformity::None, 0, Some(names[0])).wait();
            assert_eq!(closed.err(), Some(Error::Port));
            thread::sleep(Duration::from_millis(100));
            let inter = own.connect(Uniformity::Eventual, 0, Some(names[1])).wait().unwrap();
            inter.disconnect().wait().unwrap();
        }
    });
}

/// All buffered sends have left when the call to detach the buffer returns. Meanwhile other threads
/// can use the runtime.
#[test]
fn a_buffer_is_taken_back_when_its_messages_have_left() {
    let is_received = AtomicBool::new(false);
    run_asleep(2, Moves::Always, move |runtime| {
        let world = runtime.world();
        if world.rank() == 0 {
            runtime.attach_buffer(2_000_000).unwrap();
            for _ in 0..2 {
                world.send_buffered(1, 1, &[7; 900_000]).unwrap();
            }
            assert_eq!(runtime.detach_buffer(), 2_000_000);
            assert!(is_received.load(Ordering::SeqCst));
            assert_eq!(runtime.detach_buffer(), 0);
        } else {
            // So long that the other rank falls asleep.
            thread::sleep(Duration::from_millis(300));
            world.recv(0, 1, vec![0; 900_000]).wait().unwrap();
            is_received.store(true, Ordering::SeqCst);
            world.recv(0, 1, vec![0; 900_000]).wait().unwrap();
        }
    });
}

/// A future is polled when it was woken, not all the time.
#[test]
fn a_future_is_woken_by_what_it_waits_for() {
    run::<Local>(2, |runtime| {
        let world = runtime.world();
        if world.rank() == 0 {
            thread::sleep(Duration::from_millis(300));
            world.send(1, 7, vec![5; 100_000]).wait().unwrap();
            world.barrier().wait().unwrap();
            return;
        }
        let polls = Cell::new(0);
        let mut receive = world.recv(Source::Any, 7, vec![0; 100_000]);
        let counted = poll_fn(|context| {
            polls.set(polls.get() + 1);
            let poll = Future::poll(Pin::new(&mut receive), context);
            poll.map(|ended| ended.unwrap().data().to_vec())
        });
        assert_eq!(runtime.block_on(counted), [5; 100_000]);
        assert!(polls.get() < 100, "{} polls", polls.get());
        runtime.block_on(world.barrier().start()).unwrap();
    });
}

/// With a progress thread any executor can run the requests. The one here only waits to be woken.
#[test]
fn a_progress_thread_drives_what_another_thread_awaits() {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    run::<Shared>(2, |runtime| {
        let _progress = runtime.progress_thread().unwrap();
        let world = runtime.world();
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = std::task::Context::from_waker(&waker);
        for round in 0..20u32 {
            // An executor may move such a future to another thread.
            let mut work: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> =
                Box::pin(async { world.dup().await?.barrier().await });
            loop {
                if let Poll::Ready(ended) = work.as_mut().poll(&mut context) {
                    break ended.unwrap();
                }
                thread::park();
            }
            drop(work);
            let own = to_bytes(&[round + world.rank()]);
            let sum = world.allreduce(own, &Op::sum::<u32>()).wait().unwrap();
            assert_eq!(from_bytes::<u32>(&sum), [2 * round + 1]);
        }
    });
}

#[test]
fn a_waker_may_panic_in_the_progress_thread_or_drop_it() {
    struct Calls<F>(F);
    impl<F: Fn() + Send + Sync> std::task::Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    run::<Shared>(2, |runtime| {
        let world = runtime.world();
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            for tag in 1..=3 {
                world.recv(0, 0, vec![]).wait().unwrap();
                world.send(0, tag, vec![7]).wait().unwrap();
            }
            return;
        }
        let progress = Arc::new(Mutex::new(Some(runtime.progress_thread().unwrap())));
        for tag in 1..=3 {
            let (tell, told) = mpsc::channel();
            let progress = Arc::clone(&progress);
            let waker = Waker::from(Arc::new(Calls(move || {
                let dropped = (tag == 3).then(|| drop(progress.lock().unwrap().take()));
                tell.send(()).unwrap();
                assert!(dropped.is_some(), "as planned");
            })));
            let mut context = std::task::Context::from_waker(&waker);
            let mut receive = world.recv(1, tag, vec![0; 1]);
            assert!(Future::poll(Pin::new(&mut receive), &mut context).is_pending());
            // Rank 1 answers this message. Only the progress thread takes in the answer.
            world.send(1, 0, vec![]).wait().unwrap();
            told.recv_timeout(Duration::from_secs(20)).expect("nothing makes progress");
            while receive.test().is_none() {
                thread::yield_now();
            }
        }
    });
}
