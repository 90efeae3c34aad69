//! Jobs of hundreds and thousands of processes: numbers of messages and connections.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::{Sims, join, linger, turn};

/// The number of events that were sent, and of ordered pairs of processes between which they were.
struct SentCounts {
    events: u64,
    pairs: usize,
}

/// Runs a program on each process.
fn run<F: Future>(processes: u32, program: impl Fn(Sims) -> F) -> SentCounts {
    let config = SimConfig { processes, seed: 1, eager_max: 1 << 20, ..SimConfig::default() };
    let sim = Sim::new(SimConfig { turns_in_vain: 400, ..config });
    let busy = Rc::new(Cell::new(processes));
    let start = |rank| {
        let runtime = join(&sim, rank);
        linger(runtime.clone(), &busy, program(runtime))
    };
    sim.run((0..processes).map(start), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    SentCounts { events: sim.sent(), pairs: sim.sending_pairs() }
}

/// Makes duplicates, and frees each before the next. If they `talk`, each process sends a message
/// to the next one, which receives it.
fn duplicates(processes: u32, count: u32, talk: bool) -> SentCounts {
    run(processes, |runtime| async move {
        let world = runtime.world();
        let mut ids = BTreeSet::new();
        for _ in 0..count {
            let copy = world.dup().await.unwrap();
            ids.insert(copy.id());
            if talk {
                let own = copy.rank();
                let size = copy.size();
                drop(copy.send((own + 1) % size, 1, vec![1]));
                copy.recv((own + size - 1) % size, 1, vec![0]).await.unwrap();
            }
        }
        assert!(ids.len() <= 8, "{ids:?}");
        // Until the process has closed the last id.
        for _ in 0..40 {
            runtime.progress();
            turn().await;
        }
    })
}

/// The messages of all processes for each duplicate. The first one connects the processes.
fn messages(processes: u32, talk: bool) -> u64 {
    const MORE: u32 = 30;
    let [one, all] = [4, 4 + MORE].map(|count| duplicates(processes, count, talk).events);
    assert_eq!((all - one) % u64::from(MORE), 0);
    (all - one) / u64::from(MORE)
}

/// `TAGMATCH_TEST_PROCESSES` is another number of processes, a power of two.
#[test]
fn a_duplicate_without_messages_costs_those_of_its_allocation() {
    let wanted = std::env::var("TAGMATCH_TEST_PROCESSES").ok();
    let sizes = wanted.map_or(vec![64, 256, 1024], |wanted| vec![wanted.parse().unwrap()]);
    for processes in sizes {
        let of_each = u64::from(u32::ilog2(processes));
        assert_eq!(messages(processes, false), u64::from(processes) * of_each);
        // The settings of the processes, and one allocation.
        let first = duplicates(processes, 1, false).events;
        assert_eq!(first, u64::from(processes) * 2 * of_each);
        let pairs = duplicates(processes, 40, false).pairs;
        assert_eq!(pairs as u64, u64::from(processes) * of_each);
    }
}

#[test]
fn an_id_is_closed_towards_those_that_were_sent_to() {
    // A process sends its part of the allocation, a message, and a closing.
    assert_eq!(messages(64, true), 64 * (6 + 1 + 1));
}
