//! Messages that are awaited: `mprobe_async`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::{Access, Error, Match, Message, MprobeFuture, SharedWorker, Worker};

use crate::common::config;
use crate::pair::{Pair, bytes, pair};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts how often its task is woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Task {
    fn poll<A: Access>(
        self: &Arc<Self>,
        future: &mut MprobeFuture<A>,
    ) -> Poll<Result<Message<A>, Error>> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Makes progress at both ends until the task was woken.
    fn woken(&self, p: &Pair) {
        let start = Instant::now();
        let before = self.wakes();
        while self.wakes() == before {
            p.progress();
            assert!(start.elapsed() < PATIENCE, "never woken");
        }
    }
}

fn contents<A: Access>(p: &Pair, message: Message<A>) -> Vec<u8> {
    let mut receive = message.recv_whole();
    let start = Instant::now();
    loop {
        p.progress();
        if let Some(received) = receive.test() {
            return received.unwrap().buffer.into_vec();
        }
        assert!(start.elapsed() < PATIENCE, "hangs");
    }
}

#[test]
fn a_task_that_waits_for_a_message_is_woken_by_one_that_matches() {
    let p = pair();
    for length in [0, 8, 100_000] {
        let task = Arc::new(Task::default());
        let mut arrival = p.b.mprobe_async(Match::tag(1).from(p.to_a));
        assert!(task.poll(&mut arrival).is_pending());
        p.a.inject(p.to_b, 2, b"other").unwrap();
        p.probe(Match::tag(2));
        assert_eq!(task.wakes(), 0, "no message of tag 1 has come");
        let sent = p.a.send(p.to_b, 1, bytes(length));
        task.woken(&p);
        let Poll::Ready(Ok(message)) = task.poll(&mut arrival) else { panic!("nothing there") };
        assert_eq!(contents(&p, message), bytes(length));
        p.ok(sent);
        let again = task.poll(&mut arrival);
        assert!(matches!(again, Poll::Ready(Err(Error::AlreadyTaken))), "{again:?}");
        drop(p.b.mprobe(Match::tag(2)).unwrap().unwrap());
    }
}

#[test]
fn a_message_that_waits_is_there_at_the_first_poll() {
    let p = pair();
    p.a.inject(p.to_b, 1, b"early").unwrap();
    p.probe(Match::tag(1));
    let task = Arc::new(Task::default());
    let Poll::Ready(Ok(message)) = task.poll(&mut p.b.mprobe_async(Match::any())) else {
        panic!("nothing there")
    };
    assert_eq!(contents(&p, message), b"early");
}

#[test]
fn each_message_goes_to_one_of_the_tasks_that_wait() {
    let p = pair();
    let tasks = [(); 3].map(|()| Arc::new(Task::default()));
    let mut arrivals = [(); 3].map(|()| p.b.mprobe_async(Match::tag(1)));
    for (task, arrival) in tasks.iter().zip(&mut arrivals) {
        assert!(task.poll(arrival).is_pending());
    }
    let mut waiting: Vec<_> = tasks.iter().zip(arrivals).collect();
    for round in 1..=3 {
        p.a.inject(p.to_b, 1, &[round]).unwrap();
        // A task that still waits is woken, and finds the message.
        let start = Instant::now();
        let is_woken = |(task, _): &(&Arc<Task>, _)| task.0.swap(0, Ordering::SeqCst) > 0;
        let at = loop {
            p.progress();
            if let Some(at) = waiting.iter().position(is_woken) {
                break at;
            }
            assert!(start.elapsed() < PATIENCE, "no task is woken by message {round}");
        };
        let (task, mut arrival) = waiting.remove(at);
        let Poll::Ready(Ok(message)) = task.poll(&mut arrival) else { panic!("nothing there") };
        assert_eq!(contents(&p, message), [round]);
        // The others find nothing, and wait again.
        for (task, arrival) in &mut waiting {
            assert!(task.poll(arrival).is_pending());
            task.0.store(0, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_wait_that_is_dropped_takes_no_message_and_leaves_no_waker() {
    let p = pair();
    let task = Arc::new(Task::default());
    let mut arrival = p.b.mprobe_async(Match::tag(1));
    assert!(task.poll(&mut arrival).is_pending());
    assert!(task.poll(&mut arrival).is_pending());
    assert_eq!(Arc::strong_count(&task), 2, "one waker, the last one");
    drop(arrival);
    assert_eq!(Arc::strong_count(&task), 1);
    let mut arrival = p.b.mprobe_async(Match::tag(1));
    assert!(task.poll(&mut arrival).is_pending());
    p.a.inject(p.to_b, 1, b"for the next").unwrap();
    task.woken(&p);
    drop(arrival);
    assert_eq!(contents(&p, p.b.mprobe(Match::tag(1)).unwrap().unwrap()), b"for the next");
}

#[test]
fn a_wait_that_names_a_peer_ends_when_the_peer_goes() {
    let p = pair();
    let task = Arc::new(Task::default());
    let mut arrival = p.b.mprobe_async(Match::tag(1).from(p.to_a));
    assert!(task.poll(&mut arrival).is_pending());
    let Pair { a, b, to_a, .. } = p;
    drop(a);
    let start = Instant::now();
    while task.wakes() == 0 {
        b.progress();
        assert!(start.elapsed() < PATIENCE, "never woken");
    }
    let ended = task.poll(&mut arrival);
    let Poll::Ready(Err(Error::PeerDown { peer, .. })) = ended else { panic!("{ended:?}") };
    assert_eq!(peer, to_a);
    let other = Worker::new(config()).unwrap();
    let foreign = task.poll(&mut other.mprobe_async(Match::tag(1).from(to_a)));
    assert!(matches!(foreign, Poll::Ready(Err(Error::ForeignPeer { .. }))), "{foreign:?}");
}

/// Both forms, in threads that sleep while a third thread makes progress.
#[test]
fn waits_in_threads_are_woken_by_the_progress_of_others() {
    let worker = SharedWorker::new(config()).unwrap();
    let _progress = worker.progress_thread().unwrap();
    let receive = |message: Message<_>| message.recv_whole().wait().unwrap().buffer.into_vec();
    thread::scope(|scope| {
        let blocking = scope.spawn(|| receive(worker.mprobe_blocking(Match::tag(1)).unwrap()));
        let awaiting = scope.spawn(|| {
            receive(worker.block_on(worker.mprobe_async(Match::tag(2))).unwrap().unwrap())
        });
        thread::sleep(Duration::from_millis(20));
        for tag in [2, 1] {
            worker.send(worker.oneself(), tag, bytes(3)).wait().unwrap();
        }
        assert_eq!(blocking.join().unwrap(), bytes(3));
        assert_eq!(awaiting.join().unwrap(), bytes(3));
    });
}
