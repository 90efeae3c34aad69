//! Measures the distance between two CPUs: how long a cache line takes from one to the other.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use tagmatch_results::Distance;

use crate::spec::Pin;

/// Medians of so many batches, each of so many turns, are a probe: 0.2 to 1 ms.
const BATCHES: usize = 21;
const TURNS: u64 = 100;
/// A probe that other processes disturb ends after this time.
const TIME_MAX: Duration = Duration::from_millis(50);
/// Ends the thread that answers.
const STOP: u64 = u64::MAX;

/// Measures the distance. The calling thread is on CPU `here`; another thread goes to CPU `there`
/// for the time of the probe. `None` if both are one CPU, or `there` is not open to this process.
pub(crate) fn probe(pin: Pin) -> Option<Distance> {
    if pin.here == pin.there {
        return None;
    }
    let ping = Line::default();
    let pong = Line::default();
    thread::scope(|scope| {
        let answer = || answer(pin.there, &ping.0, &pong.0);
        thread::Builder::new().spawn_scoped(scope, answer).ok()?;
        let nanoseconds = ask(&ping.0, &pong.0);
        ping.0.store(STOP, Ordering::Release);
        nanoseconds.map(Distance::new)
    })
}

/// Two lines long, since some processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Waits for the other thread to be at its place, then sends turns. `None` if it has no place.
fn ask(ping: &AtomicU64, pong: &AtomicU64) -> Option<f64> {
    let start = Instant::now();
    while pong.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    if pong.load(Ordering::Acquire) == STOP {
        return None;
    }
    let mut turn = 1;
    let mut means = Vec::with_capacity(BATCHES);
    while means.len() < BATCHES && (means.is_empty() || start.elapsed() < TIME_MAX) {
        let begin = Instant::now();
        for _ in 0..TURNS {
            turn += 1;
            ping.store(turn, Ordering::Release);
            while pong.load(Ordering::Acquire) != turn {
                spin_loop();
            }
        }
        means.push(one_way_ns(begin.elapsed()));
    }
    means.sort_by(f64::total_cmp);
    means.get(means.len() / 2).copied()
}

/// The time of a line's way in a batch that has taken this long: each turn is two ways.
fn one_way_ns(batch: Duration) -> f64 {
    batch.as_secs_f64() * 1e9 / (2 * TURNS) as f64
}

fn answer(cpu: u32, ping: &AtomicU64, pong: &AtomicU64) {
    let mut set = CpuSet::new();
    let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
    if cpu >= CpuSet::MAX_CPU {
        return pong.store(STOP, Ordering::Release);
    }
    set.set(cpu);
    if sched_setaffinity(None, &set).is_err() {
        return pong.store(STOP, Ordering::Release);
    }
    pong.store(1, Ordering::Release);
    let mut answered = 1;
    loop {
        match ping.load(Ordering::Acquire) {
            STOP => return,
            turn if turn > answered => {
                pong.store(turn, Ordering::Release);
                answered = turn;
            }
            _ => spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn a_turn_is_two_ways() {
        assert_eq!(one_way_ns(Duration::from_nanos(2 * TURNS * 75)).round(), 75.0);
    }

    #[test]
    fn a_probe_needs_two_cpus() {
        assert_eq!(probe(Pin { here: 0, there: 0 }), None);
        assert_eq!(probe(Pin { here: 0, there: 999_999 }), None);
        if let Some(pin) = cpus::two_cpus() {
            let distance = thread::spawn(move || {
                cpus::pin(pin.here).unwrap();
                probe(pin)
            });
            assert!(
                distance.join().unwrap().is_some_and(|distance| distance != Distance::new(0.0))
            );
        }
    }
}
