//! Workers on several networks: routes, order, numbers of peers, reads, sleep, and the end.

mod common;

use std::time::Instant;

use tagmatch_device::{
    Buffer, Device, DeviceError, DownReason, EventDescriptor, Flush, Network, PeerId, ReadMode,
    ReadRequest, Refused,
};
use tagmatch_os::event::is_readable;
use tagmatch_routed::Routed;

use common::{
    Owned, PATIENCE, Worker, connect, message, pattern, poll, send, shm, tcp, wait_for, worker,
};

/// Two machines of two workers each, and for each worker the numbers of all.
fn two_machines() -> (Vec<Worker>, Vec<Vec<PeerId>>) {
    let mut workers: Vec<_> = [1, 1, 2, 2].map(worker).into_iter().collect();
    let mut numbers = vec![vec![PeerId::ONESELF; 4]; 4];
    for (left, right) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let (head, tail) = workers.split_at_mut(right);
        let (to_right, to_left) = connect(&mut head[left], &mut tail[0]);
        numbers[left][right] = to_right;
        numbers[right][left] = to_left;
    }
    (workers, numbers)
}

#[test]
fn each_pair_has_the_route_that_both_find() {
    let (workers, numbers) = two_machines();
    for from in 0..4 {
        for to in 0..4 {
            let worker = &workers[from];
            let peer = numbers[from][to];
            assert_eq!(worker.peer_address(peer), Some(workers[to].address()), "{from} {to}");
            let is_local = from / 2 == to / 2;
            let network = if is_local { Network::Shm } else { Network::Tcp };
            assert_eq!(worker.network_of(peer), Some(network), "{from} {to}");
            let mode = if is_local { ReadMode::Direct } else { ReadMode::Copied };
            assert_eq!(worker.read_mode(peer), mode, "{from} {to}");
            assert_eq!(worker.learned(peer).is_empty(), !is_local, "{from} {to}");
        }
        let mut all = numbers[from].clone();
        all.sort();
        assert_eq!(all, [0, 1, 2, 3].map(PeerId), "each peer has a number of its own");
    }
}

#[test]
fn messages_of_each_sender_arrive_in_order_over_both_routes() {
    const MESSAGES: usize = 1000;
    let (mut workers, numbers) = two_machines();
    let mut next = [[0; 4]; 4];
    let mut sent = [[0; 4]; 4];
    let start = Instant::now();
    while next.iter().flatten().any(|received| *received < MESSAGES) {
        assert!(start.elapsed() < PATIENCE, "{next:?}");
        for from in 0..4 {
            for to in 0..4 {
                let number = sent[from][to];
                let bytes = pattern(number, number % 2000);
                if number < MESSAGES
                    && workers[from].send(numbers[from][to], message(&bytes)).is_ok()
                {
                    sent[from][to] += 1;
                }
            }
        }
        for to in 0..4 {
            for _ in 0..4 {
                match poll(&mut workers[to]) {
                    Some(Owned::Message(peer, None, bytes)) => {
                        let from = numbers[to].iter().position(|known| *known == peer).unwrap();
                        let number = next[to][from];
                        assert!(bytes == pattern(number, number % 2000), "{from} to {to}");
                        next[to][from] += 1;
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
        }
    }
    // To each of the two workers of the other machine.
    let beyond = workers.iter().map(|worker| worker.sent_beyond());
    assert_eq!(beyond.collect::<Vec<_>>(), [2 * MESSAGES as u64; 4]);
}

#[test]
fn a_network_gets_its_turn_while_shared_memory_is_busy() {
    let (mut workers, numbers) = two_machines();
    send(&mut workers[2], numbers[2][0], message(b"from far away"), || ());
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the network was never polled");
        // Shared memory always has a message.
        while workers[1].send(numbers[1][0], message(b"neighbour")) != Err(Refused::Full) {}
        workers[2].poll();
        match poll(&mut workers[0]) {
            Some(Owned::Message(peer, ..)) if peer == numbers[0][2] => break,
            Some(Owned::Message(peer, ..)) => assert_eq!(peer, numbers[0][1]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn buffers_are_read_over_the_route_of_their_reader() {
    let (mut workers, numbers) = two_machines();
    for reader in [0, 1, 2, 3] {
        let bytes = pattern(reader, 300_000);
        let id = numbers[0][reader];
        let exposure = workers[0].expose(id, Buffer::from(bytes.clone())).unwrap();
        let remote = exposure.span;
        let into = Buffer::zeroed(300_000);
        let request = ReadRequest { peer: numbers[reader][0], remote, into, token: 5 };
        workers[reader].read(request).unwrap();
        let mut all: Vec<_> = workers.iter_mut().collect();
        let read = wait_for(&mut all, "a read", |at, event| match event {
            Owned::ReadDone(5, into, Ok(())) if at == reader => Some(into),
            other => panic!("{other:?}"),
        });
        assert!(read[..] == bytes[..]);
        let buffer = workers[0].withdraw(id, exposure.id).unwrap();
        assert!(buffer[..] == bytes[..]);
        assert!(workers[0].withdraw(id, exposure.id).is_none());
    }
}

#[test]
fn the_worker_sleeps_on_one_descriptor_for_all() {
    let (mut workers, numbers) = two_machines();
    for from in [1, 2] {
        let start = Instant::now();
        loop {
            assert!(workers[0].poll().is_none());
            if workers[0].arm(&[]) {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "always has something to do");
        }
        assert!(!is_readable(workers[0].event_descriptor()));
        send(&mut workers[from], numbers[from][0], message(b"wake up"), || ());
        while !is_readable(workers[0].event_descriptor()) {
            workers[from].poll();
            assert!(start.elapsed() < PATIENCE, "not woken by {from}");
        }
        workers[0].disarm();
        wait_for(&mut [&mut workers[0]], "the message", |_, event| match event {
            Owned::Message(peer, None, bytes) => {
                assert_eq!((peer, &bytes[..]), (numbers[0][from], &b"wake up"[..]));
                Some(())
            }
            other => panic!("{other:?}"),
        });
    }
}

#[test]
fn the_end_of_a_peer_is_told_once_on_either_route() {
    let (mut workers, numbers) = two_machines();
    drop(workers.remove(3));
    drop(workers.remove(1));
    let mut down = Vec::new();
    wait_for(&mut [&mut workers[0]], "two ends", |_, event| {
        match event {
            Owned::Down(peer, DownReason::Left) => down.push(peer),
            other => panic!("{other:?}"),
        }
        (down.len() == 2).then_some(())
    });
    down.sort();
    let mut expected = [numbers[0][1], numbers[0][3]];
    expected.sort();
    assert_eq!(down, expected);
    for peer in expected {
        assert_eq!(workers[0].send(peer, message(b"late")), Err(Refused::Down));
        assert_eq!(workers[0].flush(peer, &mut None), Flush::Done);
    }
    workers[0].disconnect(numbers[0][2]);
    wait_for(&mut [&mut workers[0]], "an end", |_, event| match event {
        Owned::Down(peer, DownReason::Disconnected) if peer == numbers[0][2] => Some(()),
        other => panic!("{other:?}"),
    });
}

/// The index of a forgotten peer is used again, for a peer on another route.
#[test]
fn the_index_of_a_forgotten_peer_may_be_of_another_route() {
    for machines in [[2, 1], [1, 2]] {
        let mut own = worker(1);
        let mut indices = Vec::new();
        for machine in machines {
            let mut peer = worker(machine);
            let (to_peer, _) = connect(&mut own, &mut peer);
            indices.push(to_peer.index());
            assert_eq!(own.peer_address(to_peer), Some(peer.address()), "{machines:?}");
            let network = if machine == 1 { Network::Shm } else { Network::Tcp };
            assert_eq!(own.network_of(to_peer), Some(network), "{machines:?}");
            own.disconnect(to_peer);
            wait_for(&mut [&mut own, &mut peer], "the end", |at, event| match event {
                Owned::Down(down, _) if at == 0 => (down == to_peer).then_some(()),
                _ => None,
            });
            let start = Instant::now();
            while !own.forget(to_peer) {
                assert!(start.elapsed() < PATIENCE, "{machines:?}: the number is not given back");
                assert!(own.poll().is_none());
                peer.poll();
            }
        }
        assert_eq!(indices[0], indices[1], "the index is used again");
    }
}

#[test]
fn messages_to_oneself_and_the_own_address_stay_local() {
    let mut worker = worker(1);
    let own = worker.address();
    assert_eq!(own.as_bytes().len(), 9 + Network::SHM_BYTES + 2 + 5);
    assert_eq!(worker.connect(&own).unwrap(), PeerId::ONESELF);
    worker.send(PeerId::ONESELF, message(b"to oneself")).unwrap();
    wait_for(&mut [&mut worker], "the message", |_, event| match event {
        Owned::Message(PeerId::ONESELF, None, bytes) => {
            assert_eq!(bytes, b"to oneself");
            Some(())
        }
        other => panic!("{other:?}"),
    });
    worker.disconnect(PeerId::ONESELF);
    wait_for(&mut [&mut worker], "the end", |_, event| match event {
        Owned::Down(PeerId::ONESELF, DownReason::Disconnected) => Some(()),
        other => panic!("{other:?}"),
    });
    // Not by a network instead.
    assert_eq!(worker.send(PeerId::ONESELF, message(b"late")), Err(Refused::Down));
    for peer in [PeerId(1), PeerId(u32::MAX)] {
        assert_eq!(worker.send(peer, message(b"nobody")), Err(Refused::Down));
        assert_eq!(worker.peer_address(peer), None);
    }
}

/// A worker without a network meets one with both.
#[test]
fn a_worker_with_one_device_meets_those_with_several() {
    let mut both = worker(1);
    let mut far = up_tcp();
    let (to_far, to_both) = connect_any(&mut both, &mut far);
    assert_eq!(both.network_of(to_far), Some(Network::Tcp));
    send(&mut both, to_far, message(b"by tcp"), || ());
    wait_for(&mut [&mut far], "the message", |_, event| match event {
        Owned::Message(peer, None, bytes) => {
            assert_eq!((peer, &bytes[..]), (to_both, &b"by tcp"[..]));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    // On the same machine, with shared memory alone.
    let mut near = common::up(Routed::new(shm(1), vec![]).unwrap());
    let (to_near, _) = connect(&mut both, &mut near);
    assert_eq!(both.network_of(to_near), Some(Network::Shm));
    // On another machine, with shared memory alone.
    let beyond = Routed::new(shm(2), vec![]).unwrap();
    let refused = both.connect(&beyond.address()).unwrap_err();
    assert!(matches!(refused, DeviceError::NoRoute { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("shm+tcp") && text.contains("another machine"), "{text}");
}

fn up_tcp() -> tagmatch_tcp::Tcp {
    common::up(tcp())
}

fn connect_any(one: &mut Worker, other: &mut tagmatch_tcp::Tcp) -> (PeerId, PeerId) {
    let to_other = one.connect(&other.address()).unwrap();
    let start = Instant::now();
    let mut is_up = false;
    let mut to_one = None;
    while !is_up || to_one.is_none() {
        assert!(start.elapsed() < PATIENCE, "no connection");
        if let Some(Owned::Up(peer, _)) = poll(one) {
            is_up |= peer == to_other;
        }
        if let Some(Owned::Up(peer, _)) = poll(other) {
            to_one = Some(peer);
        }
    }
    (to_other, to_one.unwrap())
}
