//! The ring of heartbeats in one process: it takes time and beats, and returns beats and deaths.
//!
//! The processes that are alive form a ring. Each sends *beats* to the next process and watches the
//! previous one. A process whose beats don't come for the timeout is down, and the ring closes
//! without it. Each beat names all processes that are down. A process that learns of a death sends
//! beats at once to the processes at distances of powers of two, so all processes know of a death
//! after a logarithmic number of steps (Bosilca et al., SC'16).

use std::collections::BTreeSet;
use std::time::Duration;

/// The ring as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatRing {
    own: u32,
    size: u32,
    period: Duration,
    timeout: Duration,
    down: BTreeSet<u32>,
    /// The nearest previous process that is alive.
    watched: Option<u32>,
    /// The time since its last beat.
    silent: Duration,
    looked: Option<Duration>,
    next_beat: Duration,
    found: Vec<u32>,
    out: BTreeSet<u32>,
}

impl HeartbeatRing {
    pub(crate) fn new(own: u32, size: u32, period: Duration, timeout: Duration) -> Self {
        let mut ring = HeartbeatRing {
            own,
            size,
            period,
            timeout,
            down: BTreeSet::new(),
            watched: None,
            silent: Duration::ZERO,
            looked: None,
            next_beat: Duration::ZERO,
            found: Vec::new(),
            out: BTreeSet::new(),
        };
        ring.watched = ring.nearest(|by| size - by);
        ring
    }

    /// Takes in a beat.
    pub(crate) fn hear(&mut self, from: u32, down: impl IntoIterator<Item = u32>) {
        // A process that is down stays so, even if it was only slow.
        if self.down.contains(&from) {
            return;
        }
        if self.watched == Some(from) {
            self.silent = Duration::ZERO;
        }
        for rank in down {
            if rank == self.own {
                // The others ignore this process from now on.
                (0..self.size).for_each(|rank| self.learn(rank));
            }
            self.learn(rank);
        }
    }

    /// Records that a process is down.
    pub(crate) fn learn(&mut self, rank: u32) {
        if rank == self.own || rank >= self.size || !self.down.insert(rank) {
            return;
        }
        self.found.push(rank);
        let own = self.own;
        let size = self.size;
        let distances = (0..u32::BITS).map(|power| 1 << power).take_while(|by| *by < size);
        self.out
            .extend(distances.flat_map(|by| [around(own, by, size), around(own, size - by, size)]));
        self.out.extend(self.nearest(|by| by));
        let before = self.nearest(|by| size - by);
        self.out.extend(before);
        if self.watched != before {
            (self.watched, self.silent) = (before, Duration::ZERO);
        }
    }

    /// Lets time pass. To be called regularly, after all beats that have come were taken in.
    pub(crate) fn look(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.looked.replace(now).unwrap_or(now));
        // If this process itself was not running for long, the time says nothing about another one.
        self.silent += passed.min(self.period);
        if let Some(watched) = self.watched.filter(|_| self.silent >= self.timeout) {
            self.learn(watched);
        }
        if now >= self.next_beat {
            self.next_beat = now + self.period;
            self.out.extend(self.nearest(|by| by));
        }
    }

    /// The processes that were found to be down since the last call.
    pub(crate) fn take_found(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found)
    }

    /// The processes to which a beat is to be sent now.
    pub(crate) fn take_beats(&mut self) -> Vec<u32> {
        let out = std::mem::take(&mut self.out);
        out.into_iter().filter(|rank| *rank != self.own && !self.down.contains(rank)).collect()
    }

    /// The contents of a beat: a bit for each process that is down.
    pub(crate) fn beat(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size.div_ceil(8) as usize];
        self.down.iter().for_each(|rank| bytes[(rank / 8) as usize] |= 1 << (rank % 8));
        bytes
    }

    /// The first process that is alive, at these distances from 1 on.
    fn nearest(&self, distance: impl Fn(u32) -> u32) -> Option<u32> {
        let ranks = (1..self.size).map(|by| around(self.own, distance(by), self.size));
        ranks.into_iter().find(|rank| !self.down.contains(rank))
    }
}

/// The processes that are down according to a beat; `None` if the bytes are no beat of a job of
/// this size.
pub(crate) fn parse(bytes: &[u8], size: u32) -> Option<Vec<u32>> {
    let is_set = |rank: &u32| bytes[(rank / 8) as usize] >> (rank % 8) & 1 == 1;
    (bytes.len() == size.div_ceil(8) as usize).then(|| (0..size).filter(is_set).collect())
}

fn around(own: u32, by: u32, size: u32) -> u32 {
    u32::try_from((u64::from(own) + u64::from(by)) % u64::from(size)).unwrap_or(0)
}
