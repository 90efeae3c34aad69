//! Buffers that are borrowed or shared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch::{Buffer, Match, Worker, as_bytes, as_bytes_mut};

use crate::common::config;
use crate::pair::{bytes, pair};

#[test]
fn borrowed_slices_in_blocking_calls_and_scopes() {
    let worker = Worker::new(config()).unwrap();
    let me = worker.oneself();
    let text = String::from("borrowed");
    let mut inbox = [0u8; 8];
    worker.send_blocking(me, 1, text.as_bytes()).unwrap();
    let status = worker.recv_blocking(Match::tag(1), &mut inbox).unwrap();
    assert_eq!((status.length, &inbox), (8, b"borrowed"));
    // A scope ends operations whose handles were forgotten.
    let mut one = [0u8; 4];
    let mut two = vec![0u8; 100_000];
    let large = bytes(100_000);
    worker.scope(|scope| {
        std::mem::forget(scope.recv(Match::tag(99), &mut one));
        let receive = scope.recv(Match::tag(2), &mut two);
        std::mem::forget(scope.send(me, 2, &large));
        receive.wait().unwrap();
    });
    assert_eq!((two, one), (large, [0; 4]));
    assert_eq!(worker.counters().posted_now, 0);
    // It does so when it panics, too.
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
fn a_scope_ends_only_when_its_sends_have() {
    let sender = Worker::new(config()).unwrap();
    let receiver = Worker::new(config()).unwrap();
    let address = receiver.address();
    let size = 1 << 20;
    let to = sender.connect(&address).unwrap();
    drop(receiver);
    // A peer that is gone ends the scope. A slow peer is waited for.
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
fn shared_bytes_go_to_many_and_receive_nothing() {
    let p = pair();
    let shared: Arc<[u8]> = bytes(20_000).into();
    let sends: Vec<_> =
        (0..3).map(|tag| p.a.send(p.to_b, tag, Buffer::from(shared.clone()))).collect();
    for tag in 0..3u64 {
        assert_eq!(p.ok(p.b.recv(Match::tag(tag), vec![0; 20_000])).data(), &shared[..]);
    }
    for send in sends {
        p.ok(send);
    }
    assert_eq!(Arc::strong_count(&shared), 1, "a buffer is left behind");
    assert!(p.b.recv(Match::any(), shared).wait().is_err());
}

#[test]
fn numbers_are_sent_and_received_in_their_own_memory() {
    let p = pair();
    for count in [0, 1, 500, 20_000] {
        let numbers: Vec<f64> = (0..count).map(|i| f64::from(i) * 0.5).collect();
        let room = vec![-1f64; numbers.len()];
        let given = numbers.clone();
        let room_at = room.as_ptr();
        let given_at = given.as_ptr();
        let receive = p.b.recv(Match::tag(1), Buffer::from_elements(room));
        let send = p.a.send(p.to_b, 1, Buffer::from_elements(given));
        let elements = p.ok(receive).buffer.into_elements::<f64>().unwrap();
        assert_eq!((elements.as_ptr(), &elements), (room_at, &numbers));
        let back = p.ok(send).buffer.into_elements::<f64>().unwrap();
        assert_eq!((back.as_ptr(), &back), (given_at, &numbers));
    }
    let me = p.a.oneself();
    let sent = [1u32, 2, u32::MAX];
    let mut elements = [0u32; 3];
    p.a.inject(me, 2, as_bytes(&sent)).unwrap();
    let status = p.a.recv_blocking(Match::tag(2), as_bytes_mut(&mut elements)).unwrap();
    assert_eq!((status.length, elements), (12, sent));
}

/// Over shared memory, peers map the memory of these buffers.
#[test]
fn buffers_of_the_device_are_written_again_as_soon_as_they_are_back() {
    let p = pair();
    for size in [100, 20_000, 100_000, 1 << 20, 5_000_001] {
        let mut buffer = p.a.buffer(size);
        for round in 0..10 {
            buffer.as_mut_slice().unwrap().fill(round);
            let send = p.a.send(p.to_b, 1, buffer);
            // Every other message arrives before its receive is posted.
            if round % 2 == 0 {
                p.probe(Match::tag(1));
            }
            let receive = p.b.recv(Match::tag(1), p.b.buffer(size));
            buffer = p.ok(send).buffer;
            buffer.as_mut_slice().unwrap().fill(!0);
            assert!(p.ok(receive).data().iter().all(|byte| *byte == round));
        }
        assert_eq!(buffer.len(), size);
    }
    // A buffer outlives its worker.
    let mut kept_buffer = p.a.buffer(1 << 20);
    drop(p);
    kept_buffer.as_mut_slice().unwrap().fill(7);
    std::thread::spawn(|| drop(kept_buffer)).join().unwrap();
}
