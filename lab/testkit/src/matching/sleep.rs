//! Sleeping on the event descriptor, and being woken.

use std::time::{Duration, Instant};

use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{DownReason, EventDescriptor, PeerId};

use super::fixture::Fixture;
use super::support::*;
use crate::device::{PATIENCE, sleep};

/// The next event of the device, which sleeps until there is one.
fn sleep_for<D: MatchingDevice + EventDescriptor>(device: &mut D) -> MatchingEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = device.poll() {
            return event;
        }
        assert!(start.elapsed() < PATIENCE, "slept in vain");
        if device.arm() && !device.has_work() {
            assert!(sleep(device, PATIENCE), "nothing woke it");
        }
        device.disarm();
    }
}

/// A sleeper is woken by a message.
pub fn a_sleeper_is_woken_by_a_message<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        for length in [8, 200_000] {
            receive(&mut b, exactly(1), length, 1);
            let sender = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                let _ = a.send(send_of(to_b, 1, &vec![1; length])).unwrap();
                for _ in 0..200 {
                    while a.poll().is_some() {}
                    std::thread::sleep(Duration::from_millis(1));
                }
                a
            });
            assert_eq!(message_of(sleep_for(&mut b), 1).unwrap().1, vec![1; length], "{way}");
            a = sender.join().unwrap();
        }
    }
}

/// A sleeper is woken by a connection and by its end.
pub fn a_sleeper_is_woken_by_a_connection_and_by_its_end<F: Fixture>() {
    for way in F::ways() {
        let mut b = up::<F>(&way);
        let address = b.address();
        let other = way.clone();
        let connecting = std::thread::spawn(move || {
            let mut a = up::<F>(&other);
            std::thread::sleep(Duration::from_millis(30));
            a.connect(&address).unwrap();
            for _ in 0..100 {
                a.poll();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let first = sleep_for(&mut b);
        let MatchingEvent::PeerUp { peer } = first else { panic!("{way}: {first:?}") };
        let second = sleep_for(&mut b);
        let left = DownReason::Left;
        assert!(
            matches!(second, MatchingEvent::PeerDown { peer: down, reason } if (down, reason) == (peer, left)),
            "{way}: {second:?}"
        );
        connecting.join().unwrap();
    }
}

/// An armed device knows of work that was begun.
pub fn an_armed_device_knows_of_work_that_was_begun<F: Fixture>() {
    for way in F::alone() {
        let mut a = up::<F>(&way);
        while !a.arm() {
            a.poll();
        }
        assert!(!a.has_work());
        receive(&mut a, exactly(1), 8, 1);
        a.send(send_of(PeerId::ONESELF, 1, b"x")).unwrap();
        assert!(a.has_work(), "{way}");
        a.disarm();
        while message_of(sleep_for(&mut a), 1).is_none() {}
    }
}
