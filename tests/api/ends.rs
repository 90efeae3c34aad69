//! How operations end when a worker is dropped, or was never there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tagmatch::{Error, Match, Peer, Worker};

use crate::common::{config, hasty};
use crate::pair::{Pair, bytes, pair};

#[test]
fn a_worker_that_is_dropped_ends_what_depends_on_it_elsewhere() {
    let p = pair();
    let c = Worker::new(config()).unwrap();
    let c_to_b = c.connect(&p.b.address()).unwrap();
    let named = p.b.recv(Match::tag(1).from(p.to_a), vec![0; 9]);
    let any = p.b.recv(Match::tag(2), vec![0; 9]);
    let send = p.b.send_sync(p.to_a, 1, bytes(9));
    p.a.inject(p.to_b, 77, b"last words").unwrap();
    p.a.inject(p.to_b, 78, b"after these").unwrap();
    let Pair { a, b, to_a, .. } = p;
    drop(a);
    for failed in [named.wait().map(drop).unwrap_err(), send.wait().map(drop).unwrap_err()] {
        assert!(matches!(failed.error, Error::PeerDown { peer, .. } if peer == to_a), "{failed}");
    }
    assert!(b.peer_fault(to_a).unwrap().is_some());
    // A probe finds messages of a peer that is down as long as there are some.
    for which in [Match::tag(77), Match::tag(77).from(to_a)] {
        assert_eq!(b.probe(which).unwrap().map(|status| status.length), Some(10));
    }
    let message = b.mprobe(Match::tag(77).from(to_a)).unwrap().unwrap();
    assert_eq!(message.recv(vec![0; 20]).wait().unwrap().data(), b"last words");
    for which in [Match::tag(77).from(to_a), Match::tag(77).sent_only_by(to_a)] {
        is_down(b.probe(which), to_a);
        is_down(b.mprobe(which), to_a);
        is_down(b.mprobe_blocking(which), to_a);
    }
    assert_eq!(b.probe(Match::tag(77)).unwrap(), None, "another peer may send one");
    let words = b.recv(Match::tag(78), vec![0; 20]).wait().unwrap();
    assert_eq!(words.data(), b"after these");
    assert!(b.send(to_a, 1, bytes(1)).wait().is_err());
    is_down(b.probe_blocking(Match::tag(9).from(to_a)), to_a);
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

fn is_down<R>(result: Result<R, Error>, down: Peer) {
    match result.map(drop) {
        Err(Error::PeerDown { peer, .. }) if peer == down => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_closed_worker_is_out_of_reach_though_a_request_of_it_lives() {
    let worker = Worker::new(config()).unwrap();
    let address = worker.address();
    let receive = worker.recv(Match::tag(1), vec![0; 1]);
    drop(worker);
    let other = Worker::new(config()).unwrap();
    let peer = other.connect(&address).unwrap();
    assert!(other.send_sync(peer, 1, bytes(3)).wait().is_err());
    assert!(receive.wait().is_err());
}

#[test]
fn an_address_where_nobody_is_fails_what_depends_on_it() {
    let address = Worker::new(config()).unwrap().address();
    let worker = Worker::new(hasty()).unwrap();
    let peer = worker.connect(&address).unwrap();
    let error = worker.send(peer, 1, bytes(3)).wait().unwrap_err().error;
    assert!(matches!(error, Error::PeerDown { .. }), "{error}");
    let nonsense = tagmatch::Address::from_bytes(b"nonsense").unwrap();
    assert!(matches!(worker.connect(&nonsense), Err(Error::Device(_))));
}

#[test]
fn a_message_whose_sender_closes_while_it_is_read_is_never_garbage() {
    // While the receiver reads, the sender's worker is dropped in the same process, and its memory
    // is freed.
    for round in 0..30u64 {
        let b = Worker::new(config()).unwrap();
        let address = b.address();
        let size = 8 << 20;
        let is_seen = Arc::new(AtomicBool::new(round % 2 == 0));
        let seen = is_seen.clone();
        let sender = std::thread::spawn(move || {
            // Dropped without waiting for the receiver.
            let config = config().drain_timeout(Duration::ZERO);
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
            // The buffer is freed, and its memory is used again.
            drop(send);
            std::hint::black_box(vec![9u8; size]);
        });
        let message = loop {
            let is_gone = sender.is_finished();
            if let Some(message) = b.mprobe(Match::tag(1)).unwrap() {
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
