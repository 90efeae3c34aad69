//! The completion queue: every operation has one end, in order with what is told of peers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::{
    Buffer, End, EndTaker, Error, Match, PeerFault, QueuedRequest, QueuedSend, SendMode,
    SendOptions, SharedWorker, Status, Worker,
};

use crate::common::{Ability, config, has};
use crate::pair::{Pair, bytes, pair, pair_with};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an operation ended with.
type Ended = (Result<Status, Error>, Vec<u8>);

/// Takes the ends of operations until there are `count`, by context.
fn ended(p: &Pair, worker: &Worker, count: usize) -> HashMap<u64, Ended> {
    let start = Instant::now();
    let mut ends = Vec::new();
    let mut ended = HashMap::new();
    while ended.len() < count {
        p.progress();
        assert!(worker.ends(&mut ends, 3) <= 3);
        for end in ends.drain(..) {
            if let End::Operation { context, result, buffer } = end {
                let before = ended.insert(context, (result, buffer.into_vec()));
                assert!(before.is_none(), "two ends of {context}");
            }
        }
        assert!(start.elapsed() < PATIENCE, "{} of {count} ends", ended.len());
    }
    ended
}

fn has_no_end(worker: &Worker) -> bool {
    let mut ends = Vec::new();
    worker.ends(&mut ends, usize::MAX) == 0 && ends.is_empty()
}

fn under_way(sent: QueuedSend) -> Option<QueuedRequest> {
    match sent {
        QueuedSend::Complete(_) => None,
        QueuedSend::UnderWay(request) => Some(request),
    }
}

#[test]
fn every_queued_operation_has_one_end() {
    let p = pair();
    // Half of them wait.
    let count: u64 = if has(Ability::ManyWaiting) { 300 } else { 100 };
    let size = |i: u64| [0, 8, 5000, 100_000][(i % 4) as usize];
    // Receives of even tags are posted before the messages come, those of odd ones after.
    let post = |i: u64| p.b.recv_queued(Match::tag(i), vec![0; 100_000], i).map(drop).unwrap();
    (0..count).step_by(2).for_each(post);
    let mut sent = 0;
    for i in 0..count {
        let send = p.a.send_queued(p.to_b, i, bytes(size(i)), 1000 + i).unwrap();
        match send {
            QueuedSend::Complete(buffer) => assert_eq!(buffer.len(), size(i)),
            QueuedSend::UnderWay(_) => sent += 1,
        }
        p.progress();
    }
    p.probe(Match::tag(count - 1));
    (1..count).step_by(2).for_each(post);
    let received = ended(&p, &p.b, count as usize);
    for (i, (result, buffer)) in &received {
        let status = result.as_ref().unwrap();
        assert_eq!((status.tag.0, status.source), (*i, p.to_a));
        assert_eq!(buffer[..size(*i)], bytes(size(*i)));
    }
    for (i, (result, buffer)) in ended(&p, &p.a, sent) {
        assert_eq!(result.unwrap().source, p.to_b);
        assert_eq!(buffer, bytes(size(i - 1000)));
    }
    assert!(has_no_end(&p.a) && has_no_end(&p.b));
}

#[test]
fn acknowledged_short_messages_among_long_ones_end_each_once() {
    let p = pair();
    const COUNT: u64 = 40;
    // The long ones take longer, so acknowledgements of later short ones come before their own.
    let size = |i: u64| if i.is_multiple_of(5) { 1 << 20 } else { 8 };
    let mode = if has(Ability::Delivered) { SendMode::Delivered } else { SendMode::Synchronous };
    let options = SendOptions::default().mode(mode);
    for round in 0..3 {
        for i in 0..COUNT {
            p.b.recv_queued(Match::tag(i), vec![0; size(i)], i).unwrap();
        }
        // A NIC may take the receives up before the messages come.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            p.progress();
        }
        let send =
            |i: u64| p.a.send_queued_with(p.to_b, i, bytes(size(i)), options.context(i)).unwrap();
        let sent = (0..COUNT).filter_map(|i| under_way(send(i))).count();
        for (i, (result, buffer)) in ended(&p, &p.b, COUNT as usize) {
            assert_eq!((result.unwrap().tag.0, buffer), (i, bytes(size(i))), "round {round}");
        }
        for (i, (result, _)) in ended(&p, &p.a, sent) {
            assert!(result.is_ok(), "round {round}, message {i}: {result:?}");
        }
    }
    assert_eq!(p.a.counters().peer_faults + p.b.counters().peer_faults, 0);
}

#[test]
fn ends_come_in_the_order_in_which_receives_matched() {
    let p = pair();
    for tag in 0..200u64 {
        p.b.recv_queued(Match::tag(tag), vec![0; 8], tag).unwrap();
    }
    // Against the order in which they were posted.
    for tag in (0..200u64).rev() {
        p.a.inject(p.to_b, tag, &[7; 8]).unwrap();
        if tag % 50 == 0 {
            // Some ends wait before the caller comes with its list.
            p.b.progress();
        }
    }
    let mut ends = Vec::new();
    let mut order = Vec::new();
    let start = Instant::now();
    while order.len() < 200 {
        p.a.progress();
        assert_eq!(p.b.ends(&mut ends, 7), ends.len());
        assert!(ends.len() <= 7);
        for end in ends.drain(..) {
            let End::Operation { context, .. } = end else { panic!("{end:?}") };
            order.push(context);
        }
        assert!(start.elapsed() < PATIENCE, "{} ends", order.len());
    }
    assert!(order.iter().copied().eq((0..200).rev()), "{order:?}");
}

#[test]
fn a_cancelled_operation_ends_once_and_its_name_names_nothing_then() {
    let p = pair();
    // One of these has the number that `receive` has in its own worker.
    let others: Vec<_> =
        (0..64).map(|n| p.a.recv_queued(Match::tag(1), vec![0; 9], n).unwrap()).collect();
    let receive = p.b.recv_queued(Match::tag(1), vec![0xee; 9], 1).unwrap();
    assert!(!p.a.cancel_queued(receive), "it belongs to another worker");
    assert!(p.b.cancel_queued(receive));
    for _ in 0..100 {
        p.progress();
    }
    assert!(has_no_end(&p.a), "a receive of another worker was cancelled");
    assert!(others.into_iter().all(|other| p.a.cancel_queued(other)));
    assert!(ended(&p, &p.a, 64).into_values().all(|(result, _)| result.is_err()));
    let (result, buffer) = ended(&p, &p.b, 1).remove(&1).unwrap();
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(buffer, [0xee; 9]);
    assert!(!p.b.cancel_queued(receive), "it has ended");
    // Another operation, in its place.
    let next = p.b.recv_queued(Match::tag(2), vec![0; 9], 2).unwrap();
    assert!(!p.b.cancel_queued(receive) && next != receive);
    p.a.inject(p.to_b, 2, b"kept").unwrap();
    assert_eq!(ended(&p, &p.b, 1)[&2].0.as_ref().unwrap().length, 4);
    // A send goes on.
    let mode = SendMode::Synchronous;
    let send = SendOptions::default().mode(mode).immediate(None);
    let send = p.a.send_queued_with(p.to_b, 3, bytes(9), send.context(3)).unwrap();
    assert!(p.a.cancel_queued(under_way(send).unwrap()));
    p.ok(p.b.recv(Match::tag(3), vec![0; 9]));
    assert!(ended(&p, &p.a, 1)[&3].0.is_ok());
    assert!(has_no_end(&p.a) && has_no_end(&p.b));
}

/// Notes the contexts of successful operations, as long as it has room.
struct Contexts {
    room: usize,
    found: Vec<u64>,
}

impl EndTaker for Contexts {
    fn has_room(&self) -> bool {
        self.found.len() < self.room
    }

    fn done(&mut self, context: u64, _: Status, buffer: Buffer) {
        assert_eq!(buffer[..], [context as u8; 8]);
        self.found.push(context);
    }

    fn other(&mut self, end: End) {
        panic!("{end:?}");
    }
}

#[test]
fn a_function_and_a_taker_get_the_oldest_ends_as_long_as_they_have_room() {
    let worker = Worker::new(config()).unwrap();
    for context in 0..6 {
        worker.recv_queued(Match::tag(context), vec![0; 8], context).map(drop).unwrap();
        worker.inject(worker.oneself(), context, &[context as u8; 8]).unwrap();
    }
    // Messages arrive in their order, so the others have ended once this one has come.
    worker.inject(worker.oneself(), 6, &[6]).unwrap();
    worker.recv(Match::tag(6), vec![0]).wait().unwrap();
    let mut given = Vec::new();
    let count = worker.each_end(2, |end| match end {
        End::Operation { context, .. } => given.push(context),
        other => panic!("{other:?}"),
    });
    assert_eq!((count, given), (2, vec![0, 1]));
    let mut taker = Contexts { room: 3, found: Vec::new() };
    worker.ends_to(&mut taker);
    assert_eq!(taker.found, [2, 3, 4]);
    assert_eq!(worker.ends(&mut Vec::new(), 9), 1);
}

#[test]
fn requests_and_the_queue_share_a_worker() {
    let p = pair();
    let mut requests = Vec::new();
    for tag in 0..50u64 {
        requests.push(p.b.recv(Match::tag(tag), vec![0; 8]));
        // All with the same context, which means nothing to the worker.
        p.b.recv_queued(Match::tag(100 + tag), vec![0; 8], 42).unwrap();
    }
    for tag in 0..50u64 {
        p.a.inject(p.to_b, 100 + tag, &[1; 8]).unwrap();
        p.a.inject(p.to_b, tag, &[2; 8]).unwrap();
    }
    for request in requests {
        assert_eq!(p.ok(request).data(), [2; 8]);
    }
    let mut ends = Vec::new();
    while ends.len() < 50 {
        p.progress();
        p.b.ends(&mut ends, usize::MAX);
    }
    for end in ends {
        assert!(
            matches!(&end, End::Operation { context: 42, result: Ok(status), .. }
                if status.tag.0 >= 100),
            "{end:?}"
        );
    }
    assert!(has_no_end(&p.b));
}

#[test]
fn a_matched_message_is_received_into_the_queue() {
    let p = pair();
    for size in [5, 100_000] {
        let send = p.a.send(p.to_b, 1, bytes(size));
        p.probe(Match::tag(1));
        let message = p.b.mprobe(Match::tag(1)).unwrap().unwrap();
        message.recv_queued(vec![0; size], 9).unwrap();
        assert_eq!(ended(&p, &p.b, 1)[&9].1, bytes(size));
        p.ok(send);
    }
}

#[test]
fn a_refused_operation_gives_its_buffer_back_and_has_no_end() {
    let p = pair();
    let other = Worker::new(config()).unwrap();
    let foreign = other.oneself();
    let failed = p.a.send_queued(foreign, 1, bytes(9), 1).map(drop).unwrap_err();
    assert!(matches!(failed.error, Error::ForeignPeer { peer } if peer == foreign));
    assert_eq!(failed.buffer.into_vec(), bytes(9));
    let failed = p.a.recv_queued(Match::tag(1).from(foreign), vec![0; 3], 1).unwrap_err();
    assert!(matches!(failed.error, Error::ForeignPeer { .. }));
    p.a.disconnect(p.to_b).unwrap();
    let failed = p.a.send_queued(p.to_b, 1, bytes(9), 1).map(drop).unwrap_err();
    assert!(matches!(failed.error, Error::PeerDown { .. }));
    let failed = p.a.recv_queued(Match::tag(1).from(p.to_b), vec![0; 3], 1).unwrap_err();
    assert!(matches!(failed.error, Error::PeerDown { .. }));
    for _ in 0..100 {
        p.progress();
    }
    assert!(has_no_end(&p.a));
}

#[test]
fn peers_are_told_up_once_and_down_once_after_what_depended_on_them() {
    let p = pair_with(&config().peer_events(true));
    p.b.recv_queued(Match::tag(1).from(p.to_a), vec![0; 9], 1).unwrap();
    let mode = SendMode::Synchronous;
    let options = SendOptions::default().mode(mode).immediate(None);
    assert!(
        under_way(p.b.send_queued_with(p.to_a, 1, bytes(9), options.context(2)).unwrap()).is_some()
    );
    p.b.recv_queued(Match::tag(3), vec![0; 9], 3).unwrap();
    let Pair { a, b, to_a, .. } = p;
    a.inject(a.connect(&b.address()).unwrap(), 3, b"last").unwrap();
    drop(a);
    let start = Instant::now();
    let mut ends = Vec::new();
    while !matches!(ends.last(), Some(End::PeerDown { .. })) {
        b.ends(&mut ends, 1);
        assert!(start.elapsed() < PATIENCE, "{ends:?}");
    }
    let news: Vec<String> = ends
        .iter()
        .map(|end| match end {
            End::PeerUp { peer } if *peer == to_a => "up".to_owned(),
            End::PeerDown { peer, fault: PeerFault::Left } if *peer == to_a => "left".to_owned(),
            End::Operation { context, result, .. } => format!("{context} {}", result.is_ok()),
            other => panic!("{other:?}"),
        })
        .collect();
    let place = |what: &str| news.iter().position(|news| news == what).unwrap_or(usize::MAX);
    assert_eq!((news.len(), place("up"), place("left")), (5, 0, 4), "{news:?}");
    assert!(["1 false", "2 false", "3 true"].iter().all(|end| place(end) < 4), "{news:?}");
    for _ in 0..100 {
        assert_eq!(b.ends(&mut ends, 9), 0, "{ends:?}");
    }
    assert_eq!(b.counters().peer_faults, 0, "a peer that leaves in order is no fault");
}

#[test]
fn a_peer_that_was_disconnected_or_never_reached_is_told_down() {
    let address = Worker::new(config()).unwrap().address();
    let hasty = crate::common::hasty().peer_events(true);
    let p = pair_with(&hasty);
    let nobody = p.a.connect(&address).unwrap();
    p.a.disconnect(p.to_b).unwrap();
    let start = Instant::now();
    let mut ends = Vec::new();
    let mut down = Vec::new();
    while down.len() < 2 {
        p.progress();
        p.a.ends(&mut ends, 9);
        for end in ends.drain(..) {
            match end {
                End::PeerUp { peer } => assert_eq!(peer, p.to_b),
                End::PeerDown { peer, fault } => down.push((peer, fault)),
                _ => panic!("{end:?}"),
            }
        }
        assert!(start.elapsed() < PATIENCE, "{down:?}");
    }
    let fault_of = |peer| down.iter().find(|(of, _)| *of == peer).unwrap().1;
    assert_eq!(fault_of(p.to_b), PeerFault::Disconnected);
    assert!(fault_of(nobody).is_counted(), "{:?}", fault_of(nobody));
}

#[test]
fn peers_are_not_told_unless_that_was_asked_for() {
    let p = pair();
    p.a.disconnect(p.to_b).unwrap();
    for _ in 0..100 {
        p.progress();
    }
    assert!(has_no_end(&p.a));
}

#[test]
fn a_wait_for_ends_is_limited_interrupted_and_woken() {
    let p = pair();
    let mut ends = Vec::new();
    assert_eq!(p.b.ends_timeout(&mut ends, 1, Duration::from_millis(3)), 0);
    assert_eq!(p.b.ends_blocking(&mut ends, 0), 0);
    let interrupter = p.b.interrupter();
    let other = thread::spawn(move || interrupter.interrupt());
    assert_eq!(p.b.ends_timeout(&mut ends, 1, Duration::MAX), 0);
    other.join().unwrap();
    p.b.recv_queued(Match::tag(1), vec![0; 8], 1).unwrap();
    p.b.inject(p.b.oneself(), 1, &[7; 8]).unwrap();
    assert_eq!(p.b.ends_blocking(&mut ends, 9), 1);
    p.b.recv_queued(Match::tag(2), vec![0; 8], 2).unwrap();
    p.b.inject(p.b.oneself(), 2, &[7; 8]).unwrap();
    let result = poll_fn(|task| p.b.poll_ends(task, &mut ends, 9));
    assert_eq!(p.b.block_on(result).unwrap(), 1);
    assert_eq!(ends.len(), 2);
}

#[test]
fn threads_that_wait_for_ends_are_woken_by_the_progress_of_others() {
    const THREADS: u64 = 3;
    const EACH: u64 = 200;
    let worker = SharedWorker::new(config()).unwrap();
    let me = worker.oneself();
    let _moves = worker.progress_thread().unwrap();
    let takers: Vec<_> = (0..THREADS)
        .map(|_| {
            let worker = worker.clone();
            thread::spawn(move || {
                let mut ends = Vec::new();
                loop {
                    assert!(worker.ends_timeout(&mut ends, 2, PATIENCE) > 0, "never woken");
                    let last = |end: &End| matches!(end, End::Operation { context: 0, .. });
                    if ends.iter().any(last) {
                        return ends;
                    }
                }
            })
        })
        .collect();
    for i in 1..=THREADS * EACH {
        worker.recv_queued(Match::tag(i), vec![0; 8], i).unwrap();
        worker.inject(me, i, &[7; 8]).unwrap();
        if i % EACH == 0 {
            // Long enough for the takers to fall asleep.
            thread::sleep(Duration::from_millis(20));
        }
    }
    // A taker may take several of the last ends; so there are enough for all.
    let mut contexts = Vec::new();
    for taker in takers {
        while !taker.is_finished() {
            worker.recv_queued(Match::tag(0), vec![0; 8], 0).unwrap();
            worker.inject(me, 0, &[7; 8]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        contexts.extend(taker.join().unwrap().into_iter().filter_map(|end| match end {
            End::Operation { context, result: Ok(_), .. } if context > 0 => Some(context),
            _ => None,
        }));
    }
    let mut left = Vec::new();
    worker.ends(&mut left, usize::MAX);
    contexts.sort_unstable();
    assert!(contexts.iter().copied().eq(1..=THREADS * EACH), "{} ends", contexts.len());
}

/// Forty, since UCX never ends some operations if more than 63 rendezvous requests wait for a peer
/// that leaves (docs/devices.md).
#[test]
fn a_worker_may_be_dropped_with_operations_in_its_queue() {
    let p = pair_with(&config().drain_timeout(Duration::ZERO));
    for i in 0..40u64 {
        p.b.recv_queued(Match::tag(i), vec![0; 100_000], i).unwrap();
        drop(p.a.send_queued(p.to_b, 20 + i, bytes(100_000), i).unwrap());
    }
    p.progress();
    let Pair { a, b, .. } = p;
    drop(b);
    let mut ends = Vec::new();
    while ends.len() < 40 {
        assert!(a.ends_timeout(&mut ends, 9, PATIENCE) > 0, "{} ends", ends.len());
    }
    assert!(ends.iter().all(|end| matches!(end, End::Operation { .. })));
    assert!(has_no_end(&a));
}
