//! The ring alone, in virtual time: random delays and turns, silent deaths.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ring::{HeartbeatRing, parse};

const PERIOD: u64 = 100;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Processes in virtual time. A message takes up to `delay`, and each process looks at least every
/// `turn`.
struct Job {
    rings: Vec<Option<HeartbeatRing>>,
    looks: Vec<u64>,
    /// By time of arrival and number: from, to, bytes.
    flights: BTreeMap<(u64, u64), (u32, u32, Vec<u8>)>,
    arrived: Vec<Vec<(u32, Vec<u8>)>>,
    /// The processes that each process knows to be down.
    known: Vec<Vec<u32>>,
    random: Random,
    delay: u64,
    turn: u64,
    sent: u64,
}

impl Job {
    fn new(size: u32, seed: u64, delay: u64, turn: u64, timeout: u64) -> Self {
        let [period, timeout] = [PERIOD, timeout].map(Duration::from_millis);
        let ring = |own| Some(HeartbeatRing::new(own, size, period, timeout));
        Job {
            rings: (0..size).map(ring).collect(),
            looks: vec![0; size as usize],
            flights: BTreeMap::new(),
            arrived: vec![Vec::new(); size as usize],
            known: vec![Vec::new(); size as usize],
            random: Random(seed),
            delay,
            turn,
            sent: 0,
        }
    }

    fn kill(&mut self, rank: usize) {
        self.rings[rank] = None;
    }

    fn run(&mut self, from: u64, to: u64) {
        for now in from..to {
            while let Some(first) = self.flights.first_entry().filter(|first| first.key().0 <= now)
            {
                let (from, to, bytes) = first.remove();
                self.arrived[to as usize].push((from, bytes));
            }
            for rank in 0..self.rings.len() {
                if self.looks[rank] <= now {
                    self.looks[rank] = now + 1 + self.random.below(self.turn);
                    self.look(rank, now);
                }
            }
        }
    }

    fn look(&mut self, rank: usize, now: u64) {
        let size = u32::try_from(self.rings.len()).unwrap();
        let Some(ring) = &mut self.rings[rank] else { return };
        for (from, bytes) in self.arrived[rank].drain(..) {
            ring.hear(from, parse(&bytes, size).unwrap());
        }
        ring.look(Duration::from_millis(now));
        self.known[rank].extend(ring.take_found());
        let bytes = ring.beat();
        for to in ring.take_beats() {
            self.sent += 1;
            let at = now + self.random.below(self.delay + 1);
            let from = u32::try_from(rank).unwrap();
            self.flights.insert((at, self.sent), (from, to, bytes.clone()));
        }
    }

    /// The processes that each living process knows to be down, sorted.
    fn known(&self) -> Vec<Vec<u32>> {
        let living = (0..self.rings.len()).filter(|rank| self.rings[*rank].is_some());
        let sorted = |rank: usize| {
            let mut known = self.known[rank].clone();
            known.sort_unstable();
            known
        };
        living.map(sorted).collect()
    }
}

/// A timeout that is just long enough.
fn enough(delay: u64, turn: u64) -> u64 {
    PERIOD + 2 * (delay + turn) + 1
}

#[test]
fn no_living_process_is_down_while_delays_are_below_the_timeout() {
    for seed in 0..300 {
        let delay = 1 + seed % 150;
        let turn = 1 + seed % 70;
        let size = 2 + u32::try_from(seed % 7).unwrap();
        let mut job = Job::new(size, seed, delay, turn, enough(delay, turn));
        job.run(0, 5000);
        assert!(job.known().iter().all(Vec::is_empty), "seed {seed}: {:?}", job.known());
        // One process dies. The ring has just enough time to close.
        job.kill(usize::try_from(seed).unwrap() % size as usize);
        job.run(5000, 10_000);
        let dead = u32::try_from(seed).unwrap() % size;
        assert!(job.known().iter().all(|known| *known == [dead]), "seed {seed}: {:?}", job.known());
    }
}

/// Shows that the test above can fail.
#[test]
fn a_timeout_below_the_delays_reports_living_processes_as_down() {
    let blames = |seed: &u64| {
        let mut job = Job::new(4, *seed, 300, 10, PERIOD + 50);
        job.run(0, 5000);
        job.known().iter().any(|known| !known.is_empty())
    };
    assert_eq!((0..20).filter(blames).count(), 20);
}

#[test]
fn the_ring_closes_over_neighbours_that_die_at_once() {
    for seed in 0..200 {
        let size = 9;
        let deaths = 1 + seed % 8;
        let timeout = enough(20, 10);
        let mut job = Job::new(size, seed, 20, 10, timeout);
        job.run(0, 1000 + seed);
        let dead: Vec<u32> =
            (0..deaths).map(|by| u32::try_from((seed + by) % 9).unwrap()).collect();
        dead.iter().for_each(|rank| job.kill(*rank as usize));
        // The deaths are found one after the other. Then all processes have to learn of the last
        // one.
        job.run(1000 + seed, 1000 + seed + (deaths + 1) * (timeout + PERIOD));
        let mut dead = dead;
        dead.sort_unstable();
        assert!(job.known().iter().all(|known| *known == dead), "seed {seed}: {:?}", job.known());
    }
}

#[test]
fn a_slow_process_is_down_for_all_and_all_are_down_for_it() {
    let mut job = Job::new(4, 1, 5, 5, 300);
    job.run(0, 1000);
    // Process 2 does not look for longer than a timeout.
    job.looks[2] = 1600;
    job.run(1000, 2500);
    assert_eq!(job.known(), [vec![2], vec![2], vec![0, 1, 3], vec![2]]);
}

#[test]
fn a_process_that_was_away_does_not_blame_others() {
    let period = Duration::from_millis(PERIOD);
    let mut ring = HeartbeatRing::new(1, 3, period, 4 * period);
    ring.look(period);
    ring.look(100 * period);
    assert_eq!(ring.take_found(), []);
    (101..104).for_each(|time| ring.look(time * period));
    assert_eq!(ring.take_found(), [0]);
    assert_eq!(ring.take_beats(), [2]);
}

#[test]
fn beats_are_parsed_or_refused() {
    let mut ring = HeartbeatRing::new(0, 70, Duration::from_secs(1), Duration::from_secs(2));
    [3, 69, 700].iter().for_each(|rank| ring.learn(*rank));
    assert_eq!(parse(&ring.beat(), 70), Some(vec![3, 69]));
    assert_eq!((parse(&ring.beat(), 64), parse(&[], 70)), (None, None));
}
