//! The ring of heartbeats as one process has it: time and beats in, beats and deaths out.
//!
//! The processes that live are in a ring. Each sends *beats* to the next one and watches the one
//! before. Who was not heard of for long enough is down: the ring closes over it. All beats say who
//! is down; what is new in one is sent on at once to the processes at distances of powers of two,
//! so that all know of a death after a logarithm of their number of messages (Bosilca et al.,
//! SC'16).

use std::collections::BTreeSet;
use std::time::Duration;

/// One process's place in the ring.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    own: u32,
    size: u32,
    period: Duration,
    timeout: Duration,
    down: BTreeSet<u32>,
    /// The nearest one before that lives.
    watched: Option<u32>,
    /// How long it was not heard of.
    silent: Duration,
    looked: Option<Duration>,
    next_beat: Duration,
    found: Vec<u32>,
    out: BTreeSet<u32>,
}

impl Ring {
    pub(super) fn new(own: u32, size: u32, period: Duration, timeout: Duration) -> Self {
        let mut ring = Ring {
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

    /// A beat has come.
    pub(super) fn hear(&mut self, from: u32, down: impl IntoIterator<Item = u32>) {
        // Who is down is down for good, also if it was only slow.
        if self.down.contains(&from) {
            return;
        }
        if self.watched == Some(from) {
            self.silent = Duration::ZERO;
        }
        for rank in down {
            if rank == self.own {
                // Nobody listens to this process any more.
                (0..self.size).for_each(|rank| self.learn(rank));
            }
            self.learn(rank);
        }
    }

    /// A process is down.
    pub(super) fn learn(&mut self, rank: u32) {
        if rank == self.own || rank >= self.size || !self.down.insert(rank) {
            return;
        }
        self.found.push(rank);
        let (own, size) = (self.own, self.size);
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

    /// To be called every so often, once all that has come was heard.
    pub(super) fn look(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.looked.replace(now).unwrap_or(now));
        // When this process itself was away for long, that says nothing of another one.
        self.silent += passed.min(self.period);
        if let Some(watched) = self.watched.filter(|_| self.silent >= self.timeout) {
            self.learn(watched);
        }
        if now >= self.next_beat {
            self.next_beat = now + self.period;
            self.out.extend(self.nearest(|by| by));
        }
    }

    /// Who was found to be down since the last call.
    pub(super) fn take_found(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found)
    }

    /// To whom a beat is to be sent now.
    pub(super) fn take_beats(&mut self) -> Vec<u32> {
        let out = std::mem::take(&mut self.out);
        out.into_iter().filter(|rank| *rank != self.own && !self.down.contains(rank)).collect()
    }

    /// What a beat says: a bit for each process that is down.
    pub(super) fn beat(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size.div_ceil(8) as usize];
        self.down.iter().for_each(|rank| bytes[(rank / 8) as usize] |= 1 << (rank % 8));
        bytes
    }

    /// The first that lives, at these distances from 1 on.
    fn nearest(&self, distance: impl Fn(u32) -> u32) -> Option<u32> {
        let ranks = (1..self.size).map(|by| around(self.own, distance(by), self.size));
        ranks.into_iter().find(|rank| !self.down.contains(rank))
    }
}

/// Who is down, as a beat says; `None` if it is none in a job of this size.
pub(super) fn parse(bytes: &[u8], size: u32) -> Option<Vec<u32>> {
    let is_set = |rank: &u32| bytes[(rank / 8) as usize] >> (rank % 8) & 1 == 1;
    (bytes.len() == size.div_ceil(8) as usize).then(|| (0..size).filter(is_set).collect())
}

fn around(own: u32, by: u32, size: u32) -> u32 {
    u32::try_from((u64::from(own) + u64::from(by)) % u64::from(size)).unwrap_or(0)
}
