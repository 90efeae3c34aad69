//! How much memory the rings of a pair take, and rings of two sizes.

#![allow(missing_docs, reason = "a test")]

mod common;

use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tagmatch_device::{Device, Event, EventDescriptor, PeerId};
use tagmatch_os::memory::page_bytes;
use tagmatch_shm::{Shm, ShmConfig};

use common::{Owned, connect, message, pattern, shm, wait_for};

/// Each test alone: they look at all memory of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes in memory of each mapping of a pair, in the order of their addresses. Both workers are
/// in this process, so each pair has two mappings, which have the same pages.
fn resident() -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = Vec::new();
    let mut lines = maps.lines();
    while let Some(line) = lines.next() {
        if line.contains("tagmatch-pair") {
            let rss = lines.find(|line| line.starts_with("Rss:")).unwrap();
            let kib = rss.split_whitespace().nth(1).unwrap();
            found.push(kib.parse::<usize>().unwrap() * 1024);
        }
    }
    found
}

/// Sends messages one way, at most some at a time, and compares them.
fn stream(from: &mut Shm, to: &mut Shm, peer: PeerId, count: usize, length: usize) {
    for number in 0..count {
        let bytes = pattern(number, length);
        while from.send(peer, message(&bytes)).is_err() {
            assert!(to.poll().is_none());
        }
        wait_for(&mut [from, to], "a message", |_, event| match event {
            Owned::Message(_, _, got) => {
                assert_eq!(got, bytes);
                Some(())
            }
            _ => None,
        });
    }
}

#[test]
fn an_idle_pair_takes_a_page_and_a_busy_one_more_until_it_is_idle_again() {
    let _alone = alone();
    let config = ShmConfig::default().sweep_interval(Duration::from_millis(20));
    let mut one = shm(config.clone());
    let mut other = shm(config);
    let (to_other, to_one) = connect(&mut one, &mut other);
    let page = page_bytes();
    for length in [8, 16_000] {
        let idle = resident();
        assert!(idle.len() == 2 && idle.iter().all(|bytes| *bytes <= page), "{idle:?}");
        stream(&mut one, &mut other, to_other, 1000, length);
        stream(&mut other, &mut one, to_one, 1000, length);
        let busy = resident();
        assert!(busy.iter().all(|bytes| *bytes > page), "{busy:?}");
        let start = Instant::now();
        while resident().iter().any(|bytes| *bytes > page) {
            assert!(start.elapsed() < common::PATIENCE, "{:?}", resident());
            assert!(one.poll().is_none() && other.poll().is_none());
        }
    }
    // Memory that was given back is used again.
    stream(&mut one, &mut other, to_other, 100, 16_000);
    stream(&mut other, &mut one, to_one, 100, 16_000);
}

#[test]
fn nobody_is_woken_for_the_memory_of_an_idle_pair() {
    let _alone = alone();
    let shm_with = |sweep_interval| shm(ShmConfig::default().sweep_interval(sweep_interval));
    let mut one = shm_with(Duration::from_millis(20));
    let mut other = shm_with(Duration::from_secs(3600));
    let (to_other, _) = connect(&mut one, &mut other);
    stream(&mut one, &mut other, to_other, 100, 8000);
    while !other.arm(&[]) {
        assert!(other.poll().is_none());
    }
    // Time for several sweeps, also on a busy machine.
    for _ in 0..5 {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(25) {
            assert!(one.poll().is_none());
        }
    }
    assert!(!is_woken(&other));
    // A message that doesn't fit before the other one has noticed wakes it.
    let bytes = pattern(7, 16_000);
    assert!(one.send(to_other, message(&bytes)).is_err(), "it fits");
    assert!(is_woken(&other));
    other.disarm();
    while one.send(to_other, message(&bytes)).is_err() {
        assert!(one.poll().is_none() && other.poll().is_none());
    }
    wait_for(&mut [&mut one, &mut other], "a message", |_, event| match event {
        Owned::Message(_, _, got) => {
            assert_eq!(got, bytes);
            Some(())
        }
        _ => None,
    });
}

/// Whether an armed worker has something to do.
fn is_woken(worker: &Shm) -> bool {
    let fd = worker.event_descriptor().as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry that lives through the call.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

#[test]
fn the_smaller_setting_decides_about_both_rings() {
    let _alone = alone();
    let small = || shm(ShmConfig::default().ring_bytes(4096).message_max(1024));
    let wide = || shm(ShmConfig::default().ring_bytes(8192).message_max(3968));
    for (mut one, mut other, most) in
        [(small(), wide(), [1920, 1024]), (wide(), small(), [1024, 1920])]
    {
        let peer = one.connect(&other.address()).unwrap();
        let mut limits = [0; 2];
        let mut back = PeerId(0);
        while limits.contains(&0) {
            for (at, device) in [&mut one, &mut other].into_iter().enumerate() {
                if let Some(Event::PeerUp { peer: PeerId(number), limits: found }) = device.poll()
                    && number != 0
                {
                    limits[at] = found.message_max;
                    back = PeerId(number);
                }
            }
        }
        assert_eq!(limits, most);
        stream(&mut one, &mut other, peer, 50, most[0]);
        stream(&mut other, &mut one, back, 50, most[1]);
        assert!(one.send(peer, message(&vec![0; most[0] + 1])).is_err());
    }
}
