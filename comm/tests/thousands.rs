//! Deaths in a job of thousands of processes, on the simulated network: how long an agreement
//! takes, and what memory a process needs. The program has one test, since it counts its
//! allocations.

use std::alloc::System;
use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tagmatch_comm::net::Net;
use tagmatch_comm::{Config, Runtime};
use tagmatch_comm_sim::{Kill, Sim, SimConfig, SimNet};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The bytes that are allocated now.
fn used_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Living processes that have not come to a place in their program.
#[derive(Clone)]
struct Meeting {
    missing: Rc<Cell<u32>>,
    /// The bytes in use when the last process came.
    used: Rc<Cell<usize>>,
}

impl Meeting {
    fn new(processes: u32) -> Self {
        Meeting { missing: Rc::new(Cell::new(processes)), used: Rc::default() }
    }

    /// Makes progress until all processes are here.
    async fn meet<N: Net>(&self, runtime: &Runtime<N>, sim: Option<&Sim>) {
        self.missing.set(self.missing.get() - 1);
        while self.missing.get() > 0 {
            runtime.progress();
            turn().await;
        }
        if self.used.get() == 0 {
            // The simulated network keeps memory for pairs of processes, which no process has.
            if let Some(sim) = sim {
                Sim::forget_connections(sim);
            }
            self.used.set(used_bytes());
        }
        turn().await;
    }
}

/// The counts of messages, steps and bytes that a job of deaths has taken.
#[derive(Debug)]
#[expect(dead_code, reason = "the test prints all of it")]
struct DeathCost {
    /// The longest chain of messages until the last living process has the agreement's result.
    depth: u64,
    /// The steps of the simulation for each process.
    steps: u64,
    /// The messages and reports of deaths for each process.
    events: u64,
    /// The bytes of a process: at the start, with the agreement, and after all is over.
    bytes: [usize; 3],
}

/// As many processes die as the job begins. The others agree, shrink, do something together and
/// free all that they have made.
fn die(processes: u32, deaths: u32) -> DeathCost {
    let config = SimConfig { processes, seed: 1, eager_max: 1 << 20, ..SimConfig::default() };
    let sim = Sim::new(SimConfig { turns_in_vain: 1000, ..config });
    let before = used_bytes();
    let runtimes: Vec<_> = (0..processes)
        .map(|rank| Runtime::new(sim.net(rank), Config::<SimNet>::default()).unwrap())
        .collect();
    let at_start = used_bytes();
    let living = processes - deaths;
    let [agreed, over] = [(); 2].map(|()| Meeting::new(living));
    let depth = Rc::new(Cell::new(0));
    let programs = runtimes.into_iter().zip(0..).map(|(runtime, rank)| {
        let agreed = agreed.clone();
        let over = over.clone();
        let sim = sim.clone();
        let depth = Rc::clone(&depth);
        async move {
            let world = runtime.world();
            let result = world.agree(1).await.unwrap();
            depth.set(sim.depth(rank).max(depth.get()));
            agreed.meet(&runtime, None).await;
            let small = world.shrink().await.unwrap();
            small.barrier().await.unwrap();
            assert_eq!(small.size(), living);
            drop(small);
            over.meet(&runtime, Some(&sim)).await;
            result.unacknowledged
        }
    });
    // Among them are the first process, and others at all heights of the tree of an agreement.
    let dead = |which: u32| which * (processes / deaths);
    let kills: Vec<Kill> = (0..deaths).map(|which| Kill { rank: dead(which), step: 1 }).collect();
    let ran = sim.run(programs, &kills).unwrap_or_else(|stuck| panic!("{deaths}: {stuck}"));
    let ends: Vec<_> = ran.ends.into_iter().flatten().collect();
    assert_eq!(ends.len(), living as usize);
    assert!(ends.windows(2).all(|two| two[0] == two[1]));
    let of_each = |bytes: usize| bytes.saturating_sub(before) / processes as usize;
    DeathCost {
        depth: depth.get(),
        steps: ran.steps / u64::from(processes),
        events: sim.sent() / u64::from(processes),
        bytes: [at_start, agreed.used.get(), over.used.get()].map(of_each),
    }
}

/// `TAGMATCH_TEST_PROCESSES` is another number of processes.
#[test]
fn deaths_cost_each_process_few_messages_and_little_memory() {
    let wanted = std::env::var("TAGMATCH_TEST_PROCESSES").ok();
    let processes: u32 = wanted.map_or(512, |wanted| wanted.parse().unwrap());
    let log = u64::from(processes.ilog2());
    let costs = [1, 10, 100].map(|deaths| {
        let cost = die(processes, deaths);
        println!("{processes} processes, {deaths} deaths: {cost:?}");
        let DeathCost { depth, events, .. } = cost;
        assert!(depth <= 6 * log, "a chain of {depth} messages");
        // The transport reports each death, and a process asks another one about it.
        assert!(events <= 8 * log + 4 * u64::from(deaths), "{events} messages and reports");
        cost
    });
    // A process remembers the number of a process that has died, and nothing else of it.
    let [one, .., many] = costs.map(|cost| cost.bytes[2]);
    let of_each = many.saturating_sub(one) / 99;
    assert!(of_each <= 40, "{of_each} bytes for each process that has died");
}
