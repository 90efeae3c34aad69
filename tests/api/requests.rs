//! Requests: cancelled, dropped, leaked, awaited, and their results.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tagmatch::{Cancel, Error, Match, Request, Sent, Worker};

use crate::common::config;
use crate::pair::{Pair, bytes, pair, pair_with, posted};

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
    // Cancelling a send changes nothing.
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
    // The test drops a worker whose last message is never received, so it must not wait for that.
    let p = pair_with(&config().drain_timeout(Duration::ZERO));
    // A leaked receive keeps its buffer, and takes the message that matches it.
    std::mem::forget(p.b.recv(Match::tag(1), vec![0; 100_000]));
    drop(p.a.send(p.to_b, 1, bytes(100_000)));
    // A dropped send keeps its buffer until the peer has read it.
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
    let mut exchange = pin!(exchange);
    let mut echo = pin!(echo);
    let mut echoed = None;
    let mut done = None;
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
    // The futures are polled only when they are woken; the loop makes the progress.
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
