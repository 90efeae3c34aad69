//! What the public API promises, between workers of one process: over shared memory, or another device
//! that the environment names.
//!
//! Long because it is one list: a promise of the public pages, a test.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::fork::ends_in_a_forked_child;
use common::{Ability, config, has};
use tagmatch::{
    Buffer, Cancel, Config, Error, Fault, Match, Peer, Received, Request, SendMode, SendOptions,
    Sent, SharedWorker, Status, Tag, TagLayout, TagMask, WaitPolicy, Worker,
};

/// Two connected workers that one thread drives.
struct Pair {
    a: Worker,
    b: Worker,
    /// b as a knows it.
    to_b: Peer,
    /// a as b knows it.
    to_a: Peer,
}

/// Messages that found a posted receive, in software or in a NIC; all of them where the device doesn't tell.
fn posted(worker: &Worker) -> u64 {
    let counters = worker.counters();
    counters.posted + counters.hardware + counters.by_device
}

fn pair() -> Pair {
    pair_with(&config())
}

fn pair_with(config: &Config) -> Pair {
    let (a, b) = (Worker::new(config.clone()).unwrap(), Worker::new(config.clone()).unwrap());
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let pair = Pair { a, b, to_b, to_a };
    let hello = pair.b.recv(Match::any(), vec![0; 1]);
    pair.a.inject(to_b, 0, &[]).unwrap();
    pair.ok(hello);
    pair
}

impl Pair {
    fn progress(&self) {
        self.a.progress();
        self.b.progress();
    }

    /// Drives both until the request is over.
    fn end<T: tagmatch::Output>(&self, mut request: Request<T>) -> Result<T, tagmatch::Failed> {
        let start = Instant::now();
        loop {
            self.progress();
            if let Some(result) = request.test() {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
    }

    fn ok<T: tagmatch::Output>(&self, request: Request<T>) -> T {
        self.end(request).unwrap()
    }

    /// Drives both until all that a has sent to b has arrived there: nothing overtakes this.
    fn all_arrive(&self) {
        const LAST: u64 = 0xffff;
        self.a.inject(self.to_b, LAST, &[]).unwrap();
        self.probe(Match::tag(LAST));
        self.ok(self.b.recv(Match::tag(LAST), vec![]));
    }

    /// Drives both until b sees a message.
    fn probe(&self, which: Match) -> Status {
        loop {
            self.progress();
            if let Some(status) = self.b.probe(which) {
                return status;
            }
        }
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + length) as u8).collect()
}

const SIZES: [usize; 13] = [0, 1, 8, 36, 40, 41, 64, 1000, 8192, 8193, 100_000, 1 << 20, 5_000_001];

#[test]
fn every_size_and_mode_arrives_with_all_its_facts() {
    let p = pair();
    let mut modes = vec![SendMode::Standard, SendMode::Synchronous];
    modes.extend(has(Ability::Delivered).then_some(SendMode::Delivered));
    for mode in modes {
        for size in SIZES {
            for expected in [true, false] {
                let options = SendOptions { mode, immediate: Some(size as u32 ^ 0xffff) };
                let early = expected.then(|| p.b.recv(Match::tag(9), vec![0xee; size + 3]));
                let send = p.a.send_with(p.to_b, 9, bytes(size), options);
                let receive = early.unwrap_or_else(|| {
                    let seen = p.probe(Match::tag(9));
                    assert_eq!((seen.length, seen.truncated), (size as u64, false));
                    p.b.recv(Match::any(), vec![0xee; size + 3])
                });
                let Received { buffer, status } = p.ok(receive);
                let immediate = Some(size as u32 ^ 0xffff);
                let (tag, length) = (Tag(9), size as u64);
                let source = p.to_a;
                assert_eq!(status, Status { source, tag, length, truncated: false, immediate });
                assert_eq!(buffer[..size], bytes(size));
                assert_eq!(buffer[size..], [0xee; 3], "wrote past the message");
                assert_eq!(p.ok(send).buffer.into_vec(), bytes(size));
            }
        }
    }
}

#[test]
fn oneself_is_a_peer_like_any() {
    let worker = Worker::new(config()).unwrap();
    let me = worker.oneself();
    assert_eq!(worker.connect(&worker.address()).unwrap(), me);
    for size in SIZES {
        let receive = worker.recv(Match::tag(1).from(me), vec![0; size]);
        let send = worker.send(me, 1, bytes(size));
        let received = receive.wait().unwrap();
        assert_eq!((received.status.source, received.data()), (me, &bytes(size)[..]));
        send.wait().unwrap();
    }
    let send = worker.send_sync(me, 2, bytes(10));
    let message = worker.mprobe_blocking(Match::tag(2)).unwrap();
    message.discard();
    send.wait().unwrap();
}

#[test]
fn truncation_reports_the_full_length_and_spares_what_follows() {
    let p = pair();
    let has_first_bytes = has(Ability::FirstBytes);
    for size in [1, 8, 5000, 100_000] {
        for room in [0, size / 2, size - 1] {
            for expected in [true, false] {
                let early = expected.then(|| p.b.recv(Match::tag(1), vec![0xee; room]));
                let send = p.a.send_sync(p.to_b, 1, bytes(size));
                let receive = early.unwrap_or_else(|| {
                    assert!(!p.probe(Match::any()).truncated, "a probe reports truncation");
                    p.b.recv(Match::tag(1), vec![0xee; room])
                });
                let received = p.ok(receive);
                assert_eq!(
                    (received.status.length, received.status.truncated),
                    (size as u64, true)
                );
                if has_first_bytes {
                    assert_eq!(received.data(), &bytes(size)[..room]);
                }
                p.ok(send);
            }
        }
    }
}

#[test]
fn wildcards_take_messages_in_post_and_arrival_order() {
    let p = pair();
    let layout = config().layout;
    let tag = |t: u64| layout.pack(3, 0, t).unwrap();
    let any_tag = Match::masked(tag(0), TagMask(layout.context_mask().0 | layout.source_mask().0));
    let first = p.b.recv(any_tag, vec![0; 1]);
    let exact = p.b.recv(Match::tag(tag(5)), vec![0; 1]);
    let last = p.b.recv(Match::any().from(p.to_a), vec![0; 1]);
    for i in 0..3u8 {
        p.a.inject(p.to_b, tag(5), &[i]).unwrap();
    }
    for (i, request) in [first, exact, last].into_iter().enumerate() {
        assert_eq!(p.ok(request).data(), [i as u8]);
    }
    // Unexpected: the oldest that matches, whatever the pattern.
    for i in 0..3u8 {
        p.a.inject(p.to_b, tag(6 + u64::from(i % 2)), &[10 + i]).unwrap();
    }
    p.all_arrive();
    if has(Ability::Counts) {
        assert_eq!(p.b.counters().unexpected_now, 3);
    }
    assert_eq!(p.ok(p.b.recv(Match::tag(tag(7)), vec![0; 1])).data(), [11]);
    assert_eq!(p.ok(p.b.recv(any_tag, vec![0; 1])).data(), [10]);
    assert_eq!(p.ok(p.b.recv(Match::any(), vec![0; 1])).data(), [12]);
}

#[test]
fn a_receive_that_names_its_source_waits_for_it() {
    let p = pair();
    let c = Worker::new(config()).unwrap();
    let c_to_b = c.connect(&p.b.address()).unwrap();
    let from_a = p.b.recv(Match::tag(1).from(p.to_a), vec![0; 1]);
    c.inject(c_to_b, 1, &[3]).unwrap();
    while p.b.probe(Match::tag(1)).is_none() {
        c.progress();
        p.progress();
    }
    p.a.inject(p.to_b, 1, &[1]).unwrap();
    assert_eq!(p.ok(from_a).data(), [1]);
    // A stranger's message is matched by any-source receives, and its sender has a number.
    let received = p.ok(p.b.recv(Match::tag(1), vec![0; 1]));
    assert_eq!(received.data(), [3]);
    assert_eq!(p.b.connect(&c.address()).unwrap(), received.status.source);
    assert_eq!(p.b.peer_address(received.status.source), Some(c.address()));
}

#[test]
fn thousands_of_unexpected_messages_of_one_tag_keep_their_order() {
    let p = pair();
    let sends: Vec<_> =
        (0..5000u32).map(|i| p.a.send(p.to_b, 4, i.to_le_bytes().to_vec())).collect();
    let mut receives: Vec<_> = (0..5000).map(|_| p.b.recv(Match::tag(4), vec![0; 4])).collect();
    for (i, receive) in receives.drain(..).enumerate() {
        assert_eq!(p.ok(receive).data(), (i as u32).to_le_bytes());
    }
    sends.into_iter().for_each(|send| drop(p.ok(send)));
}

#[test]
fn matched_messages_are_received_in_any_order() {
    let p = pair();
    let sends = [p.a.send_sync(p.to_b, 1, bytes(10)), p.a.send_sync(p.to_b, 1, bytes(50_000))];
    p.all_arrive();
    let first = p.b.mprobe(Match::any()).unwrap();
    let second = p.b.mprobe(Match::tag(1)).unwrap();
    assert!(p.b.mprobe(Match::any()).is_none() && p.b.probe(Match::any()).is_none());
    assert_eq!((first.status().length, second.status().length), (10, 50_000));
    assert_eq!(p.ok(second.recv(vec![0; 50_000])).data(), bytes(50_000));
    let [mut first_send, second_send] = sends;
    p.ok(second_send);
    assert!(first_send.test().is_none(), "complete though only probed");
    let short = p.ok(first.recv(vec![0; 4]));
    assert!(short.status.truncated);
    p.ok(first_send);
}

#[test]
fn a_dropped_message_releases_its_sender() {
    let p = pair();
    for size in [10, 50_000] {
        let send = p.a.send_sync(p.to_b, 1, bytes(size));
        p.probe(Match::any());
        drop(p.b.mprobe(Match::any()).unwrap());
        p.ok(send);
        assert!(p.b.probe(Match::any()).is_none());
    }
    assert_eq!(p.b.counters().discarded, 2);
    assert_eq!(p.b.counters().unexpected_bytes_now, 0);
}

#[test]
fn cancel_reports_what_became_of_the_receive() {
    let p = pair();
    let request = p.b.recv(Match::tag(1), vec![0xee; 9]);
    match request.cancel_wait().unwrap() {
        Cancel::Cancelled(buffer) => assert_eq!(buffer.into_vec(), [0xee; 9]),
        Cancel::TooLate(_) => panic!("nothing was sent"),
    }
    let request = p.b.recv(Match::tag(1), vec![0; 9]);
    p.a.inject(p.to_b, 1, &[7]).unwrap();
    while posted(&p.b) < 2 {
        p.progress();
    }
    match request.cancel_wait().unwrap() {
        Cancel::TooLate(received) => assert_eq!(received.data(), [7]),
        Cancel::Cancelled(_) => panic!("it had matched"),
    }
    // Cancelling again, or a send, changes nothing.
    let mut send = p.a.send_sync(p.to_b, 2, bytes(3));
    send.cancel();
    p.ok(p.b.recv(Match::tag(2), vec![0; 3]));
    p.ok(send);
}

#[test]
fn a_cancelled_receive_takes_no_message() {
    let p = pair();
    for i in 0..2000u64 {
        let mut dropped = p.b.recv(Match::tag(i), vec![0; 8]);
        dropped.cancel();
        assert!(matches!(dropped.wait(), Err(failed) if matches!(failed.error, Error::Cancelled)));
        drop(p.b.recv(Match::any(), vec![0; 8]));
    }
    p.a.inject(p.to_b, 3, b"kept").unwrap();
    assert_eq!(p.probe(Match::any()).length, 4);
}

#[test]
fn leaked_and_dropped_requests_hurt_nobody() {
    // At the end a worker is dropped whose last message is not received.
    let p = pair_with(&Config { drain_timeout: Duration::ZERO, ..config() });
    // A leaked receive goes on to hold its buffer; the message that matches it is gone.
    std::mem::forget(p.b.recv(Match::tag(1), vec![0; 100_000]));
    drop(p.a.send(p.to_b, 1, bytes(100_000)));
    // A dropped send keeps its buffer until it was read.
    drop(p.a.send(p.to_b, 2, bytes(100_000)));
    let received = p.ok(p.b.recv(Match::tag(2), vec![0; 100_000]));
    assert_eq!(received.data(), bytes(100_000));
    while posted(&p.b) < 1 {
        p.progress();
    }
    // Requests that outlive the worker.
    let Pair { a, b, to_b, .. } = p;
    let posted = b.recv(Match::tag(3), vec![0; 10]);
    let send = a.send_sync(to_b, 4, bytes(100_000));
    drop(a);
    assert!(matches!(send.wait().unwrap_err().error, Error::PeerDown { .. }));
    drop(b);
    assert!(matches!(posted.wait(), Err(failed) if failed.buffer.len() == 10));
}

#[test]
fn what_a_forked_child_drops_stays_its_parents() {
    drops_in_a_forked_child(&config());
}

#[cfg(feature = "model")]
#[test]
fn what_a_forked_child_drops_stays_its_parents_with_receives_in_a_nic() {
    let hw_tags = tagmatch::HwTags::Model(Default::default());
    drops_in_a_forked_child(&Config { hw_tags, hw_tags_threshold: 0, ..Config::default() });
}

fn drops_in_a_forked_child(config: &Config) {
    let p = pair_with(config);
    let shared = SharedWorker::new(config.clone()).unwrap();
    let mut thread = Some(shared.progress_thread().unwrap());
    const LARGE: usize = 1 << 20;
    // Posted, waiting, held, under way.
    let mut posted = Some(p.b.recv(Match::tag(1), vec![0; LARGE]));
    p.a.inject(p.to_b, 2, &bytes(64)).unwrap();
    let mut large = Some(p.a.send(p.to_b, 3, bytes(LARGE)));
    p.probe(Match::tag(3));
    let mut held = p.b.mprobe(Match::tag(3));
    let mut pair = Some(p);
    let mut workers = Some(shared);
    assert!(ends_in_a_forked_child(|| {
        drop((posted.take(), held.take(), large.take()));
        drop((pair.take(), thread.take(), workers.take()));
    }));
    // The child had copies.
    let (p, shared) = (pair.unwrap(), workers.unwrap());
    for size in [0, 8, 1000, LARGE] {
        let back = p.a.recv(Match::tag(4).from(p.to_b), vec![0; size]);
        let send = p.b.send(p.to_a, 4, bytes(size));
        assert_eq!(p.ok(back).data(), bytes(size));
        p.ok(send);
    }
    let send = p.a.send(p.to_b, 1, bytes(LARGE));
    assert_eq!(p.ok(posted.unwrap()).data(), bytes(LARGE));
    p.ok(send);
    assert_eq!(p.ok(p.b.recv(Match::tag(2), vec![0; 64])).data(), bytes(64));
    let receive = held.unwrap().recv(vec![0; LARGE]);
    assert_eq!(p.ok(receive).data(), bytes(LARGE));
    p.ok(large.unwrap());
    assert!(p.a.peer_fault(p.to_b).is_none() && p.b.peer_fault(p.to_a).is_none());
    let me = shared.oneself();
    let receive = shared.recv(Match::tag(1), vec![0; 8]);
    shared.send(me, 1, bytes(8)).wait().unwrap();
    assert_eq!(receive.wait().unwrap().data(), bytes(8));
    drop(thread);
    // Its end is still noticed.
    let Pair { a, b, to_b, .. } = p;
    drop(b);
    let start = Instant::now();
    while a.peer_fault(to_b).is_none() {
        a.progress();
        assert!(start.elapsed() < Duration::from_secs(20), "not noticed");
    }
}

#[test]
fn a_worker_that_is_dropped_ends_what_depends_on_it_elsewhere() {
    let p = pair();
    let c = Worker::new(config()).unwrap();
    let c_to_b = c.connect(&p.b.address()).unwrap();
    let named = p.b.recv(Match::tag(1).from(p.to_a), vec![0; 9]);
    let any = p.b.recv(Match::tag(2), vec![0; 9]);
    let send = p.b.send_sync(p.to_a, 1, bytes(9));
    p.a.inject(p.to_b, 77, b"last words").unwrap();
    let Pair { a, b, to_a, .. } = p;
    drop(a);
    for failed in [named.wait().map(drop).unwrap_err(), send.wait().map(drop).unwrap_err()] {
        assert!(matches!(failed.error, Error::PeerDown { peer, .. } if peer == to_a), "{failed}");
    }
    assert!(b.peer_fault(to_a).is_some());
    let words = b.recv(Match::tag(77), vec![0; 20]).wait().unwrap();
    assert_eq!(words.data(), b"last words");
    assert!(b.send(to_a, 1, bytes(1)).wait().is_err());
    assert!(b.probe_blocking(Match::tag(9).from(to_a)).is_err());
    c.inject(c_to_b, 2, &[5]).unwrap();
    let mut any = any;
    let received = loop {
        c.progress();
        if let Some(received) = any.test() {
            break received.unwrap();
        }
    };
    assert_eq!(received.data(), [5]);
}

#[test]
fn an_address_where_nobody_is_fails_what_depends_on_it() {
    let gone = Worker::new(config()).unwrap().address();
    let worker = Worker::new(common::hasty()).unwrap();
    let peer = worker.connect(&gone).unwrap();
    let start = Instant::now();
    let error = worker.send(peer, 1, bytes(3)).wait().unwrap_err().error;
    assert!(matches!(error, Error::PeerDown { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(1));
    let nonsense = tagmatch::Address::from_bytes(b"nonsense").unwrap();
    assert!(matches!(worker.connect(&nonsense), Err(Error::Device(_))));
}

#[test]
fn what_a_device_does_not_carry_is_refused_at_the_call() {
    let p = pair();
    if has(Ability::AllTags) {
        p.a.inject(p.to_b, u64::MAX, b"far").unwrap();
        assert_eq!(p.ok(p.b.recv(Match::tag(u64::MAX), vec![0; 3])).data(), b"far");
        return;
    }
    let refused = |error: &Error| {
        assert!(matches!(error, Error::Operation(Fault::NotCarried { .. })), "{error}");
    };
    let outside = 1u64 << 40;
    let source = config().layout.source_mask().0;
    for tag in [outside, source, source & source.wrapping_neg()] {
        let failed = p.a.send(p.to_b, tag, bytes(3)).wait().unwrap_err();
        refused(&failed.error);
        assert_eq!(failed.buffer.into_vec(), bytes(3));
        refused(&p.a.inject(p.to_b, tag, &[]).unwrap_err());
        refused(&p.b.recv(Match::tag(tag), bytes(3)).wait().unwrap_err().error);
        // No such message will ever come: who looks for one sees none, and nobody waits for it.
        assert!(p.b.probe(Match::tag(tag)).is_none() && p.b.mprobe(Match::tag(tag)).is_none());
        refused(&p.b.probe_blocking(Match::tag(tag)).unwrap_err());
        refused(&p.b.mprobe_blocking(Match::tag(tag)).map(drop).unwrap_err());
    }
    if !has(Ability::Delivered) {
        refused(&p.a.send_delivered(p.to_b, 1, bytes(3)).wait().unwrap_err().error);
    }
    let wide = Config { layout: TagLayout::MPI, ..config() };
    let p = pair_with(&wide);
    let options = SendOptions { immediate: Some(1), ..SendOptions::default() };
    refused(&p.a.send_with(p.to_b, 1, bytes(3), options).wait().unwrap_err().error);
    p.a.inject(p.to_b, 1, b"still well").unwrap();
    assert_eq!(p.ok(p.b.recv(Match::tag(1), vec![0; 10])).data(), b"still well");
}

#[test]
fn peers_of_another_worker_are_refused() {
    let p = pair();
    let foreign = |error: &Error| matches!(error, Error::ForeignPeer { .. });
    let failed = p.a.send(p.to_a, 1, bytes(3)).wait().unwrap_err();
    assert!(foreign(&failed.error) && failed.buffer.into_vec() == bytes(3));
    assert!(foreign(&p.a.recv(Match::any().from(p.to_a), bytes(3)).wait().unwrap_err().error));
    assert!(foreign(&p.a.inject(p.to_a, 1, &[]).unwrap_err()));
    assert!(foreign(&p.a.disconnect(p.to_a).unwrap_err()));
    assert!(p.a.probe(Match::any().from(p.to_a)).is_none());
}

#[test]
fn borrowed_slices_in_blocking_calls_and_scopes() {
    let worker = Worker::new(config()).unwrap();
    let me = worker.oneself();
    let text = String::from("borrowed");
    let mut inbox = [0u8; 8];
    worker.send_blocking(me, 1, text.as_bytes()).unwrap();
    let status = worker.recv_blocking(Match::tag(1), &mut inbox).unwrap();
    assert_eq!((status.length, &inbox), (8, b"borrowed"));
    // A scope ends what its handles forgot.
    let (mut one, mut two) = ([0u8; 4], vec![0u8; 100_000]);
    let large = bytes(100_000);
    worker.scope(|scope| {
        std::mem::forget(scope.recv(Match::tag(99), &mut one));
        let receive = scope.recv(Match::tag(2), &mut two);
        std::mem::forget(scope.send(me, 2, &large));
        receive.wait().unwrap();
    });
    assert_eq!((two, one), (large, [0; 4]));
    assert_eq!(worker.counters().posted_now, 0);
    // Also when it panics.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        worker.scope(|scope| {
            std::mem::forget(scope.recv(Match::tag(99), &mut one));
            panic!("on purpose");
        })
    }));
    assert!(result.is_err());
    assert_eq!(worker.counters().posted_now, 0);
}

#[test]
fn requests_are_futures() {
    let p = pair();
    let exchange = async {
        let receive = p.a.recv(Match::tag(2), vec![0; 50_000]);
        p.a.send(p.to_b, 1, bytes(50_000)).await.unwrap();
        receive.await.unwrap().data().to_vec()
    };
    let echo = async {
        let received = p.b.recv(Match::tag(1), vec![0; 50_000]).await.unwrap();
        p.b.send(p.to_a, 2, received.buffer).await.unwrap();
    };
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let (mut exchange, mut echo) = (pin!(exchange), pin!(echo));
    let (mut echoed, mut done) = (None, None);
    let mut both = pin!(poll_fn(|context| {
        if echoed.is_none()
            && let Poll::Ready(bytes) = exchange.as_mut().poll(context)
        {
            echoed = Some(bytes);
        }
        if done.is_none() {
            done = echo.as_mut().poll(context).is_ready().then_some(());
        }
        if echoed.is_some() && done.is_some() { Poll::Ready(echoed.take()) } else { Poll::Pending }
    }));
    // Polled only when woken; something else makes the progress.
    let mut polls = 0;
    loop {
        let woken = count.0.swap(0, Ordering::Relaxed);
        if polls == 0 || woken > 0 {
            polls += 1;
            if let Poll::Ready(echoed) = both.as_mut().poll(&mut context) {
                assert_eq!(echoed, Some(bytes(50_000)));
                break;
            }
        }
        p.progress();
    }
    assert!(polls < 20, "woken for nothing {polls} times");
    let me = p.a.oneself();
    let answer = p.a.block_on(async {
        let receive = p.a.recv(Match::tag(5), vec![0; 4]);
        p.a.send_sync(me, 5, b"self".to_vec()).await.unwrap();
        receive.await.unwrap().data().to_vec()
    });
    assert_eq!(answer.unwrap(), b"self");
}

#[test]
fn a_result_is_taken_once() {
    let worker = Worker::new(config()).unwrap();
    let mut send: Request<Sent> = worker.send(worker.oneself(), 1, bytes(3));
    let first = loop {
        if let Some(result) = send.test() {
            break result;
        }
    };
    assert_eq!(first.unwrap().buffer.into_vec(), bytes(3));
    assert!(
        matches!(send.test(), Some(Err(failed)) if matches!(failed.error, Error::AlreadyTaken))
    );
    assert!(matches!(send.wait().unwrap_err().error, Error::AlreadyTaken));
}

#[test]
fn shared_bytes_go_to_many_and_receive_nothing() {
    let p = pair();
    let shared: Arc<[u8]> = bytes(20_000).into();
    let sends: Vec<_> =
        (0..3).map(|tag| p.a.send(p.to_b, tag, Buffer::from(shared.clone()))).collect();
    for tag in 0..3u64 {
        assert_eq!(p.ok(p.b.recv(Match::tag(tag), vec![0; 20_000])).data(), &shared[..]);
    }
    sends.into_iter().for_each(|send| drop(p.ok(send)));
    assert_eq!(Arc::strong_count(&shared), 1, "a buffer is left behind");
    assert!(p.b.recv(Match::any(), shared).wait().is_err());
}

#[test]
fn unexpected_memory_is_bounded_and_nothing_is_lost() {
    let config = Config { unexpected_bytes: 64 << 10, unexpected_messages: 200, ..config() };
    let p = pair_with(&config);
    let total = 3000u32;
    let payload = |i: u32| bytes((i % 700) as usize);
    let sends: Vec<_> = (0..total)
        .map(|i| {
            let options = SendOptions { immediate: Some(i), ..SendOptions::default() };
            p.a.send_with(p.to_b, 1, payload(i), options)
        })
        .collect();
    for _ in 0..5000 {
        p.progress();
    }
    if has(Ability::Bounds) {
        let counters = p.b.counters();
        assert!(counters.unexpected_bytes_now <= 64 << 10, "{counters:?}");
        assert!(counters.unexpected_now <= 200 + 16, "{counters:?}");
    }
    for i in 0..total {
        let received = p.ok(p.b.recv(Match::any(), vec![0; 700]));
        assert_eq!(received.status.immediate, Some(i), "overtaken");
        assert_eq!(received.data(), payload(i));
    }
    sends.into_iter().for_each(|send| drop(p.ok(send)));
}

#[test]
fn two_threads_never_take_the_same_message() {
    let worker = SharedWorker::new(config()).unwrap();
    let me = worker.oneself();
    let total = 4000u32;
    let taken: Vec<Vec<u32>> = std::thread::scope(|threads| {
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let worker = worker.clone();
                threads.spawn(move || {
                    let mut mine = Vec::new();
                    loop {
                        let message = worker.mprobe_blocking(Match::any()).unwrap();
                        let received = message.recv(vec![0; 4]).wait().unwrap();
                        let number = u32::from_le_bytes(received.data().try_into().unwrap());
                        if number == u32::MAX {
                            return mine;
                        }
                        mine.push(number);
                    }
                })
            })
            .collect();
        for i in (0..total).chain([u32::MAX, u32::MAX]) {
            worker.send(me, 1, i.to_le_bytes().to_vec()).wait().unwrap();
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    assert!(taken.iter().all(|mine| mine.is_sorted()), "a thread saw messages out of order");
    let mut all: Vec<u32> = taken.concat();
    all.sort_unstable();
    assert_eq!(all, (0..total).collect::<Vec<_>>());
}

#[test]
fn threads_wait_asleep_and_wake_each_other() {
    let wait = WaitPolicy { spin: 0, yields: 0, sleep: true };
    let config = Config { wait, ..config() };
    let (a, b) = (SharedWorker::new(config.clone()).unwrap(), SharedWorker::new(config).unwrap());
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    std::thread::scope(|threads| {
        for t in 0..3u64 {
            let (a, b) = (a.clone(), b.clone());
            threads.spawn(move || {
                for i in 0..300u64 {
                    let receive = a.recv(Match::tag(100 + t), vec![0; 8]);
                    a.send(to_b, t, i.to_le_bytes().to_vec()).wait().unwrap();
                    assert_eq!(receive.wait().unwrap().data(), i.to_le_bytes());
                }
            });
            threads.spawn(move || {
                for _ in 0..300 {
                    let received = b.recv(Match::tag(t), vec![0; 8]).wait().unwrap();
                    b.send(to_a, 100 + t, received.buffer).wait().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_progress_thread_serves_a_worker_that_does_nothing() {
    let a = Worker::new(config()).unwrap();
    let b = SharedWorker::new(config()).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let thread = b.progress_thread().unwrap();
    let mode = if has(Ability::Delivered) { SendMode::Delivered } else { SendMode::Synchronous };
    for round in 0..20 {
        // Only the thread can take this message out of our memory and say so.
        let receive = b.recv(Match::tag(1), vec![0; 100_000]);
        let options = SendOptions { mode, immediate: None };
        a.send_with(to_b, 1, bytes(100_000), options).wait().unwrap();
        assert_eq!(receive.wait().unwrap().data(), bytes(100_000));
        if round % 5 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    drop(thread);
}

#[test]
fn the_descriptor_tells_when_there_is_something_to_do() {
    let p = pair();
    let readable = |worker: &Worker, time| {
        let events = [worker.event_descriptor()];
        tagmatch_os::sleep::sleep_until_readable(&events, Duration::from_millis(time)).unwrap()
    };
    while !p.b.arm() {
        p.b.progress();
    }
    assert!(!readable(&p.b, 10));
    p.a.inject(p.to_b, 1, b"wake").unwrap();
    assert!(readable(&p.b, 10_000));
    p.b.disarm();
    assert_eq!(p.ok(p.b.recv(Match::tag(1), vec![0; 4])).data(), b"wake");
    while !p.b.arm() {
        p.b.progress();
    }
    assert!(!readable(&p.b, 10));
}

#[test]
fn many_workers_meet_lazily_from_both_sides() {
    let workers: Vec<_> = (0..24).map(|_| Worker::new(config()).unwrap()).collect();
    let addresses: Vec<_> = workers.iter().map(Worker::address).collect();
    let mut receives = Vec::new();
    for (i, worker) in workers.iter().enumerate() {
        for (j, address) in addresses.iter().enumerate() {
            let peer = worker.connect(address).unwrap();
            worker.inject(peer, i as u64, &[i as u8, j as u8]).unwrap();
            receives.push((i, j, worker.recv(Match::tag(j as u64).from(peer), vec![0; 2])));
        }
    }
    let start = Instant::now();
    while !receives.is_empty() {
        workers.iter().for_each(|worker| _ = worker.progress());
        receives.retain_mut(|(i, j, request)| match request.test() {
            Some(received) => {
                assert_eq!(received.unwrap().data(), [*j as u8, *i as u8]);
                false
            }
            None => true,
        });
        assert!(start.elapsed() < Duration::from_secs(20), "{} are missing", receives.len());
    }
}

#[test]
fn a_message_whose_sender_closes_while_it_is_read_is_never_garbage() {
    // The sender's worker goes and its memory with it, in this very process, while the receiver reads.
    for round in 0..30u64 {
        let b = Worker::new(config()).unwrap();
        let address = b.address();
        let size = 8 << 20;
        let is_seen = Arc::new(AtomicBool::new(round % 2 == 0));
        let seen = is_seen.clone();
        let sender = std::thread::spawn(move || {
            // Dropped without waiting for the receiver.
            let config = Config { drain_timeout: Duration::ZERO, ..config() };
            let a = Worker::new(config).unwrap();
            let to_b = a.connect(&address).unwrap();
            let send = a.send(to_b, 1, vec![7; size]);
            let start = Instant::now();
            let sent = || a.counters().rendezvous_sent + a.counters().sent_by_device;
            while sent() == 0 || !seen.load(Ordering::Relaxed) {
                a.progress();
            }
            while start.elapsed() < Duration::from_micros(300 * (round % 10)) {
                a.progress();
            }
            drop(a);
            // The buffer is freed and its place used again.
            drop(send);
            std::hint::black_box(vec![9u8; size]);
        });
        let message = loop {
            let is_gone = sender.is_finished();
            if let Some(message) = b.mprobe(Match::tag(1)) {
                is_seen.store(true, Ordering::Relaxed);
                break Some(message);
            }
            if is_gone {
                break None;
            }
        };
        if let Some(Ok(received)) = message.map(|message| message.recv(vec![0; size]).wait()) {
            assert!(*received.data() == vec![7; size], "garbage in round {round}");
        }
        sender.join().unwrap();
    }
}

#[test]
fn a_scope_ends_only_when_its_sends_have() {
    let sender = Worker::new(config()).unwrap();
    let receiver = Worker::new(config()).unwrap();
    let address = receiver.address();
    let size = 1 << 20;
    let to = sender.connect(&address).unwrap();
    drop(receiver);
    // A peer that is gone ends the scope; one that takes its time is waited for.
    sender.scope(|scope| std::mem::forget(scope.send(to, 1, &[0; 100])));
    let (tell, told) = std::sync::mpsc::channel();
    let late = std::thread::spawn(move || {
        let receiver = Worker::new(config()).unwrap();
        tell.send(receiver.address()).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            receiver.progress();
        }
        receiver.recv(Match::tag(1), vec![0; size]).wait().unwrap().data().to_vec()
    });
    let to = sender.connect(&told.recv().unwrap()).unwrap();
    let mut message = vec![7; size];
    sender.scope(|scope| std::mem::forget(scope.send(to, 1, &message)));
    message.fill(9);
    assert!(late.join().unwrap().iter().all(|&byte| byte == 7), "read after the borrow ended");
}

#[test]
fn a_closed_worker_is_out_of_reach_though_a_request_of_it_lives() {
    let worker = Worker::new(config()).unwrap();
    let address = worker.address();
    let kept = worker.recv(Match::tag(1), vec![0; 1]);
    drop(worker);
    let other = Worker::new(config()).unwrap();
    let peer = other.connect(&address).unwrap();
    assert!(other.send_sync(peer, 1, bytes(3)).wait().is_err());
    assert!(kept.wait().is_err());
}
