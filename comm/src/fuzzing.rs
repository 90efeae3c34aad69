//! The parsers of everything that other processes send to communicators, for fuzzing. No part of
//! the interface.

use std::time::Duration;

use crate::ft;
use crate::inter::description;
use crate::names::TestDirectory;
use crate::net::heartbeat::ring;
use crate::net::{Directory, ProcessId};

/// A process of a job of five processes, and one of another job.
fn directories() -> [TestDirectory; 2] {
    [0, 5].map(|number| TestDirectory::new([5, 3], number))
}

/// Reads the bytes as a control message, at a process of the sender's job and at one of another
/// job.
///
/// # Panics
/// A message that was read, written, and read again is another one.
pub fn read_control(data: &[u8]) {
    for mut net in directories() {
        for from in [ProcessId(1), ProcessId(net.processes())] {
            ft::read_again(data, from, &mut net);
        }
    }
}

/// Reads the bytes as the description of a group.
///
/// # Panics
/// As for [`read_control`].
pub fn read_description(data: &[u8]) {
    for mut net in directories() {
        description::read_again(data, &mut net);
    }
}

/// Gives the ring of heartbeats of a job of `size` processes these beats, each of the process that
/// its first byte names, and lets time pass.
///
/// # Panics
/// The ring sends beats to a process that is down, or a beat that isn't understood.
pub fn hear_beats(size: u32, beats: &[&[u8]]) {
    let period = Duration::from_secs(1);
    let timeout = Duration::from_secs(3);
    let mut ring = ring::HeartbeatRing::new(0, size, period, timeout);
    for (second, beat) in (0..).zip(beats) {
        let (from, bytes) = beat.split_first().map_or((0, &[][..]), |(from, rest)| (*from, rest));
        if let Some(down) = ring::parse(bytes, size) {
            ring.hear(u32::from(from) % size, down);
        }
        ring.look(Duration::from_secs(second));
        let own = ring::parse(&ring.beat(), size).expect("its own beat");
        assert!(ring.take_beats().iter().all(|to| *to < size && !own.contains(to)));
        assert!(ring.take_found().iter().all(|process| own.contains(process)));
    }
}
