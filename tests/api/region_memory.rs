//! Regions in memory of the worker, whose elements peers and owner change at the same time; many
//! regions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tagmatch::{AtomicOp, AtomicType, Error, Fault, RemoteFault, Rights, SharedWorker, Worker};

use crate::common::{Ability, config, counterpart, device, has};
use crate::one_sided::{LocalRemote, config_of_messages, contents, exposed, pairs, refusal};
use crate::pair::pair;

#[test]
fn elements_that_the_owner_and_a_peer_change_lose_no_change() {
    const CHANGES: u64 = 500;
    for p in pairs() {
        if !has(Ability::OneSided) {
            return;
        }
        let region = p.b.expose_region(p.b.buffer(1 << 20), Rights::ALL).unwrap();
        let from_a = p.a.attach(p.to_b, &region.token()).unwrap();
        let from_b = p.b.attach(p.b.oneself(), &region.token()).unwrap();
        region.write(0, &[0; 24]).unwrap();
        // The owner changes the elements by messages to itself.
        let change = |remote: &LocalRemote| {
            let ones = [1u64; 3].map(u64::to_ne_bytes).concat();
            remote.fetch(0, AtomicOp::Sum, AtomicType::U64, ones)
        };
        for _ in 0..CHANGES {
            let requests = [change(&from_a), change(&from_b)];
            let olds = requests.map(|request| p.ok(request).data().to_vec());
            assert_ne!(olds[0], olds[1]);
        }
        assert_eq!(contents(&region)[..24], [2 * CHANGES; 3].map(u64::to_ne_bytes).concat());
        let direct = p.a.counters().direct_remote;
        assert!(direct == 0 || direct == CHANGES && device() != "tcp", "{direct}");
        // An element that lies at no multiple of its size is the owner's alone to change.
        let swap = [7u64, 8].map(u64::to_ne_bytes).concat();
        region.write(100, &7u64.to_ne_bytes()).unwrap();
        let old = p.ok(from_a.fetch(100, AtomicOp::CompareSwap, AtomicType::U64, swap));
        assert_eq!(old.data(), 7u64.to_ne_bytes());
        assert_eq!(contents(&region)[100..108], 8u64.to_ne_bytes());
        assert_eq!(p.a.counters().direct_remote, direct);
    }
}

/// Over shared memory, one peer changes the element in mapped memory, and the owner changes it for
/// the messages of another one.
#[test]
fn an_element_that_a_peer_and_its_owner_change_at_the_same_time_loses_no_change() {
    const CHANGES: u64 = 3000;
    let owner = SharedWorker::new(counterpart(&config())).unwrap();
    let Ok(region) = owner.expose_region(owner.buffer(1 << 20), Rights::ALL) else { return };
    region.write(0, &[0; 8]).unwrap();
    let address = owner.address();
    let token = region.token();
    let is_over = Arc::new(AtomicBool::new(false));
    let one = || 1u64.to_ne_bytes().to_vec();
    let peer = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let worker = Worker::new(config()).unwrap();
            let remote = worker.attach(worker.connect(&address).unwrap(), &token).unwrap();
            let mut changes = 0;
            while !is_over.load(Relaxed) {
                remote.atomic(0, AtomicOp::Sum, AtomicType::U64, one()).wait().unwrap();
                changes += 1;
            }
            changes
        }
    });
    let element = || {
        let mut element = [0; 8];
        region.read(0, &mut element).unwrap();
        u64::from_ne_bytes(element)
    };
    let progress = owner.progress_thread().unwrap();
    while element() == 0 {
        std::thread::yield_now();
    }
    let worker = Worker::new(config_of_messages()).unwrap();
    let owner = worker.connect(&owner.address()).unwrap();
    let by_messages = worker.attach(owner, &region.token()).unwrap();
    for _ in 0..CHANGES {
        by_messages.atomic(0, AtomicOp::Sum, AtomicType::U64, one()).wait().unwrap();
    }
    is_over.store(true, Relaxed);
    let by_peer = peer.join().unwrap();
    drop(progress);
    assert_eq!(element(), CHANGES + by_peer);
}

/// An element that lies at no multiple of its size is the owner's to change.
#[test]
fn a_put_behind_an_operation_by_message_does_not_overtake_it() {
    for p in pairs() {
        let memory = p.b.buffer(1 << 20);
        let Some((region, remote)) = exposed(&p, memory, Rights::ALL) else { return };
        region.write(0, &[0; 16]).unwrap();
        let sum = remote.atomic(4, AtomicOp::Sum, AtomicType::U64, 1u64.to_ne_bytes().to_vec());
        let put = remote.put(0, vec![7; 16]);
        p.ok(sum);
        p.ok(put);
        assert_eq!(contents(&region)[..16], [7; 16]);
    }
}

#[test]
fn thousands_of_regions_are_reached_each_by_its_token() {
    const COUNT: u64 = 2000;
    let p = pair();
    let expose = |number: u64| exposed(&p, number.to_ne_bytes().to_vec(), Rights::ALL);
    let all: Vec<_> = (0..COUNT).map_while(expose).collect();
    assert!(
        size_of::<LocalRemote>() <= 64,
        "an attached region takes {}",
        size_of::<LocalRemote>()
    );
    for (number, (_, remote)) in (0u64..).zip(&all) {
        assert_eq!(p.ok(remote.get(0, vec![0; 8])).data(), number.to_ne_bytes());
        p.ok(remote.put(0, (!number).to_ne_bytes().to_vec()));
    }
    for (number, (region, remote)) in (0u64..).zip(all) {
        assert_eq!(region.close()[..], (!number).to_ne_bytes());
        if number.is_multiple_of(100) {
            assert_eq!(refusal(&p, remote.get(0, vec![0; 8])), RemoteFault::NoRegion);
        }
    }
}

#[test]
fn calls_that_block_move_their_bytes_and_say_what_is_wrong() {
    let owner = SharedWorker::new(counterpart(&config())).unwrap();
    for memory in [owner.buffer(1 << 20), vec![0; 1 << 20].into()] {
        let Ok(region) = owner.expose_region(memory, Rights::ALL) else { return };
        region.write(0, &[0; 100]).unwrap();
        let progress = owner.progress_thread().unwrap();
        let worker = Worker::new(config()).unwrap();
        let peer = worker.connect(&owner.address()).unwrap();
        let remote = worker.attach(peer, &region.token()).unwrap();
        remote.put_blocking(3, b"bytes").unwrap();
        let mut got = [9; 7];
        remote.get_blocking(2, &mut got).unwrap();
        assert_eq!(&got, b"\0bytes\0");
        assert_eq!(remote.fetch_u64(16, AtomicOp::Sum, 5).unwrap(), 0);
        assert_eq!(remote.fetch_u64(16, AtomicOp::Max, 9).unwrap(), 5);
        assert_eq!(remote.compare_swap_u64(16, 9, 1).unwrap(), 9);
        assert_eq!(remote.compare_swap_u64(16, 9, 2).unwrap(), 1);
        let mut element = [0; 8];
        region.read(16, &mut element).unwrap();
        assert_eq!(u64::from_ne_bytes(element), 1);
        let is_outside = |result: Result<(), Error>| match result.unwrap_err() {
            Error::Operation(Fault::Remote { fault, .. }) => fault == RemoteFault::OutOfBounds,
            other => panic!("{other}"),
        };
        let end = (1 << 20) - 4;
        assert!(is_outside(remote.put_blocking(end, b"bytes")));
        assert!(is_outside(remote.get_blocking(end, &mut got)));
        assert!(is_outside(remote.fetch_u64(end, AtomicOp::Sum, 1).map(drop)));
        assert!(is_outside(remote.compare_swap_u64(end, 0, 1).map(drop)));
        let refused = remote.fetch_u64(0, AtomicOp::CompareSwap, 1).unwrap_err();
        assert!(matches!(refused, Error::Operation(Fault::BadOperands)), "{refused}");
        drop(progress);
        region.close();
    }
}
