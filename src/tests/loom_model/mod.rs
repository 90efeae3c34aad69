//! The model checker's programs: threads that wait for one worker, in all interleavings.
//!
//! Run by `ci/test loom`. A thread that is never woken ends a run as a deadlock.

pub(crate) mod atomics;
pub(crate) mod device;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use tagmatch_shm::ShmConfig;

use crate::access::Access;
use crate::device::WorkerDevice;
use crate::engine::WorkerEngine;
use crate::{
    Config, DeviceConfig, End, Match, Received, Request, Shared, SharedWorker, WaitPolicy,
};
use device::OtherProcess;

/// Every interleaving with at most so many switches from a thread that could have gone on.
fn check(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(program);
}

/// A worker whose threads go to sleep at once, and a process that sends to it.
fn worker() -> (SharedWorker, OtherProcess) {
    let wait = WaitPolicy::SLEEP;
    let device = DeviceConfig::Shm(ShmConfig::default());
    let worker = SharedWorker::new(Config { device, wait, ..Config::default() }).unwrap();
    while worker.progress() > 0 {}
    let other_process = worker.access.with(|state| {
        if let WorkerEngine::Matching(engine) = &state.engine
            && let WorkerDevice::Shm(shm) = engine.device()
        {
            return shm.other_process();
        }
        unreachable!("the default is shared memory alone")
    });
    (worker, other_process)
}

fn receive(worker: &SharedWorker, tag: u64) -> Request<Received, Shared> {
    worker.recv(Match::tag(tag), vec![0; 8])
}

fn inject(worker: &SharedWorker, tag: u64) {
    worker.inject(worker.oneself(), tag, &tag.to_le_bytes()).unwrap();
}

fn wait(request: Request<Received, Shared>, tag: u64) {
    assert_eq!(request.wait().unwrap().data(), tag.to_le_bytes());
}

#[test]
fn two_sleepers_are_woken_by_one_who_sends_and_leaves() {
    check(2, || {
        let (worker, _) = worker();
        let waiters = [1, 2].map(|tag| {
            let request = receive(&worker, tag);
            thread::spawn(move || wait(request, tag))
        });
        inject(&worker, 2);
        inject(&worker, 1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_sleeper_is_woken_by_another_threads_progress() {
    check(3, || {
        let (worker, _) = worker();
        let request = receive(&worker, 1);
        let waiter = thread::spawn(move || wait(request, 1));
        inject(&worker, 1);
        while worker.progress() > 0 {}
        waiter.join().unwrap();
    });
}

#[test]
fn whoever_leaves_awake_leaves_the_device_armed_for_the_sleeper() {
    check(2, || {
        let (worker, other_process) = worker();
        inject(&worker, 1);
        let late = other_process.intercept().unwrap();
        let mine = receive(&worker, 2);
        let others = receive(&worker, 1);
        let waiter = thread::spawn(move || wait(others, 1));
        inject(&worker, 2);
        wait(mine, 2);
        // The sleeping thread has to notice this by itself.
        other_process.send(late);
        waiter.join().unwrap();
    });
}

#[test]
fn a_progress_thread_works_and_ends() {
    check(1, || {
        let (worker, other_process) = worker();
        inject(&worker, 1);
        let message = other_process.intercept().unwrap();
        let request = receive(&worker, 1);
        let moves = worker.progress_thread().unwrap();
        let other = thread::spawn(move || other_process.send(message));
        wait(request, 1);
        drop(moves);
        other.join().unwrap();
    });
}

#[test]
fn a_progress_thread_that_ends_leaves_the_device_armed_for_the_sleeper() {
    check(2, || {
        let (worker, other_process) = worker();
        inject(&worker, 1);
        let message = other_process.intercept().unwrap();
        let request = receive(&worker, 1);
        let moves = worker.progress_thread().unwrap();
        let waiter = thread::spawn(move || wait(request, 1));
        drop(moves);
        other_process.send(message);
        waiter.join().unwrap();
    });
}

#[test]
fn a_future_is_polled_again_when_another_thread_ends_it() {
    check(2, || {
        let (worker, _) = worker();
        let request = receive(&worker, 1);
        let other = thread::spawn({
            let worker = worker.clone();
            move || {
                inject(&worker, 1);
                while worker.progress() > 0 {}
            }
        });
        let received = worker.block_on(request).unwrap();
        assert_eq!(received.unwrap().data(), 1u64.to_le_bytes());
        other.join().unwrap();
    });
}

/// Waits for one end.
fn take_end(worker: &SharedWorker) {
    let mut ends = Vec::new();
    assert_eq!(worker.ends_blocking(&mut ends, 1), 1);
    assert!(matches!(&ends[..], [End::Operation { result: Ok(_), .. }]));
}

#[test]
fn an_end_that_another_thread_takes_leaves_no_thread_asleep() {
    check(4, || {
        let (worker, _) = worker();
        for tag in 1..3 {
            worker.recv_queued(Match::tag(tag), vec![0; 8], tag).unwrap();
        }
        let waiter = thread::spawn({
            let worker = worker.clone();
            move || take_end(&worker)
        });
        inject(&worker, 1);
        while worker.progress() > 0 {}
        // Gets the first end unless the other thread has it.
        worker.ends(&mut Vec::new(), 1);
        inject(&worker, 2);
        while worker.progress() > 0 {}
        waiter.join().unwrap();
    });
}

#[test]
fn a_wait_for_one_of_two_is_woken_by_either() {
    check(2, || {
        let (worker, _) = worker();
        let requests = [receive(&worker, 1), receive(&worker, 2)];
        let waiter = thread::spawn({
            let worker = worker.clone();
            move || assert_eq!(worker.wait_any(&requests), Some(1))
        });
        inject(&worker, 2);
        while worker.progress() > 0 {}
        waiter.join().unwrap();
    });
}

#[test]
fn an_interrupt_ends_a_call_at_any_moment_of_it() {
    check(3, || {
        let (worker, _) = worker();
        let mut request = receive(&worker, 1);
        let interrupter = worker.interrupter();
        let waiter = thread::spawn(move || {
            assert!(request.wait_timeout(Duration::MAX).is_none());
        });
        interrupter.interrupt();
        waiter.join().unwrap();
    });
}

#[test]
fn a_probe_is_woken_when_another_thread_takes_the_message_in() {
    check(3, || {
        let (worker, _) = worker();
        let waiter = thread::spawn({
            let worker = worker.clone();
            move || assert_eq!(worker.probe_blocking(Match::tag(1)).unwrap().length, 8)
        });
        inject(&worker, 1);
        while worker.progress() > 0 {}
        waiter.join().unwrap();
    });
}

#[test]
fn a_probe_is_woken_by_a_message_of_another_process() {
    check(2, || {
        let (worker, other_process) = worker();
        inject(&worker, 1);
        let message = other_process.intercept().unwrap();
        let waiter = thread::spawn({
            let worker = worker.clone();
            move || assert_eq!(worker.probe_blocking(Match::tag(1)).unwrap().length, 8)
        });
        other_process.send(message);
        // Takes the message in, or does not.
        worker.progress();
        waiter.join().unwrap();
    });
}

/// Whether a task was woken.
#[derive(Default)]
struct TaskAlarm(Mutex<bool>, Condvar);

impl Wake for TaskAlarm {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// Polls when the task is woken, and at no other time.
fn poll_when_woken<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let woken = Arc::new(TaskAlarm::default());
    let waker = woken.clone().into();
    loop {
        if let Poll::Ready(result) = poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        let mut is_woken = woken.0.lock().unwrap();
        while !*is_woken {
            is_woken = woken.1.wait(is_woken).unwrap();
        }
        *is_woken = false;
    }
}

/// A thread that sends what is waited for, and makes the progress.
fn send_and_progress(worker: &SharedWorker) -> thread::JoinHandle<()> {
    let worker = worker.clone();
    thread::spawn(move || {
        inject(&worker, 1);
        while worker.progress() > 0 {}
    })
}

#[test]
fn a_task_is_woken_whenever_its_request_ends() {
    check(3, || {
        let (worker, _) = worker();
        let mut request = receive(&worker, 1);
        let other = send_and_progress(&worker);
        let received = poll_when_woken(|context| Pin::new(&mut request).poll(context));
        assert_eq!(received.unwrap().data(), 1u64.to_le_bytes());
        other.join().unwrap();
    });
}

#[test]
fn a_task_is_woken_whenever_its_queue_has_an_end() {
    check(3, || {
        let (worker, _) = worker();
        worker.recv_queued(Match::tag(1), vec![0; 8], 1).unwrap();
        let other = send_and_progress(&worker);
        let mut ends = Vec::new();
        let count = poll_when_woken(|context| worker.poll_ends(context, &mut ends, 1));
        assert_eq!((count, ends.len()), (1, 1));
        other.join().unwrap();
    });
}
