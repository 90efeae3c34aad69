//! The probe of the distance between both cores, as in `measure.h`: two cache lines that go back
//! and forth, one per direction.

use std::fs::OpenOptions;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{env, io};

use memmap2::{MmapOptions, MmapRaw};

use crate::case::Outcome;

/// Environment variable with the path of the file that both processes map.
const LINES: &str = "PEERS_LINES";
/// The places of both lines in the file.
const PING: usize = 0;
const PONG: usize = 128;
const SIZE: usize = 4096;
const BATCHES: usize = 21;
const TURNS: usize = 100;

/// One side of the probe.
pub(crate) struct Probe {
    map: MmapRaw,
    first: bool,
    /// How often the lines have gone back and forth.
    turn: u64,
}

impl Probe {
    pub(crate) fn new(first: bool) -> Outcome<Self> {
        let map = || -> io::Result<MmapRaw> {
            let path = env::var_os(LINES).ok_or(io::ErrorKind::NotFound)?;
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            MmapOptions::new().len(SIZE).map_raw(&file)
        };
        let map = map().map_err(|error| format!("{LINES}: {error}: to be started by ci/peers"))?;
        Ok(Probe { map, first, turn: 0 })
    }

    fn line(&self, place: usize) -> &AtomicU64 {
        assert!(place < self.map.len());
        // SAFETY: within the mapping, which lives as long as `self`; aligned, since the mapping
        // begins a page. Both processes reach the lines by atomic operations only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(place).cast()) }
    }

    fn turns(&mut self, count: usize) {
        let (own, other) = if self.first { (PING, PONG) } else { (PONG, PING) };
        let end = self.turn + count as u64;
        let own = self.line(own);
        let other = self.line(other);
        let wait = |turn: u64| {
            while other.load(Ordering::Acquire) != turn {
                spin_loop();
            }
        };
        for turn in self.turn + 1..=end {
            if !self.first {
                wait(turn);
            }
            own.store(turn, Ordering::Release);
            if self.first {
                wait(turn);
            }
        }
        self.turn = end;
    }

    /// The distance between both cores, in ns. Both processes call it at the same point.
    pub(crate) fn distance(&mut self) -> f64 {
        let mut means = [0.0; BATCHES];
        for mean in &mut means {
            let start = Instant::now();
            self.turns(TURNS);
            *mean = start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64;
        }
        means.sort_by(f64::total_cmp);
        means[BATCHES / 2]
    }
}
