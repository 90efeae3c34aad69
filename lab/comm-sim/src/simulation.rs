//! A simulation: its network, and the programs of all processes, run in one thread.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tagmatch_comm::net::ProcessId;

use crate::config::SimConfig;
use crate::net::SimNet;
use crate::world::World;

/// A death: the process does nothing after the simulation's step `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The process, numbered through all jobs.
    pub rank: u32,
    /// The last step of the process. A step is an event of the network, or one poll of one process.
    pub step: u64,
}

/// The simulation can't go on: some processes wait for events that will never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: processes {ranks:?} are stuck after {steps} steps")]
pub struct Stuck {
    /// The simulation's seed.
    pub seed: u64,
    /// The processes that have not ended, numbered through all jobs.
    pub ranks: Vec<usize>,
    /// Number of steps until then.
    pub steps: u64,
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Ran<T> {
    /// The value that each process's program returned; `None` for a process that died before.
    pub ends: Vec<Option<T>>,
    /// Number of steps that the simulation took.
    pub steps: u64,
}

/// The program of a process, which leaves its end to [`Sim::run`].
type Program<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A simulated network of processes.
#[derive(Clone, Debug)]
pub struct Sim {
    world: Rc<RefCell<World>>,
}

impl Sim {
    /// A network of one job, whose processes have done nothing yet.
    pub fn new(config: SimConfig) -> Self {
        Self::of_jobs(config, &[config.processes])
    }

    /// A network of several jobs of these sizes. Processes are numbered through all jobs, one job
    /// after the other. The sum of the sizes replaces [`SimConfig::processes`].
    pub fn of_jobs(config: SimConfig, sizes: &[u32]) -> Self {
        let config = SimConfig { processes: sizes.iter().sum(), ..config };
        Sim { world: Rc::new(RefCell::new(World::new(config, sizes))) }
    }

    /// The transport of one process, numbered through all jobs. In the first job this number is the
    /// rank.
    pub fn net(&self, number: u32) -> SimNet {
        SimNet::new(&self.world, number)
    }

    /// The simulation's clock: each step takes a microsecond.
    pub fn clock(&self) -> impl Fn() -> Duration + use<> {
        let world = Rc::clone(&self.world);
        move || Duration::from_micros(world.borrow().steps)
    }

    /// Number of unexpected messages in all living processes: they arrived, and no receive has
    /// matched them.
    pub fn unexpected(&self) -> usize {
        self.world.borrow().unexpected()
    }

    /// Number of events that were sent so far: messages, acknowledgements, and news of deaths.
    pub fn sent(&self) -> u64 {
        self.world.borrow().number
    }

    /// The length of the longest chain of messages, each sent after the one before it had arrived,
    /// that has reached a process: the time that has passed there if each message takes one step,
    /// and nothing else takes time.
    pub fn depth(&self, number: u32) -> u64 {
        self.world.borrow().depth(ProcessId(number))
    }

    /// Number of ordered pairs of different processes of which one has sent something to the other.
    pub fn sending_pairs(&self) -> usize {
        self.world.borrow().sending_pairs()
    }

    /// Frees what the network keeps for each pair of processes that have sent something. For tests
    /// that count bytes, once nothing is in flight any more.
    pub fn forget_connections(&self) {
        self.world.borrow_mut().forget_connections();
    }

    /// Number of pairs of processes that have exchanged messages, or watch each other.
    pub fn connections(&self) -> usize {
        self.world.borrow().connections()
    }

    /// Runs a program on each process, in the order of their ranks, until all have ended or died.
    ///
    /// # Errors
    /// [`Stuck`]: nothing can happen any more, and some programs have not ended.
    pub fn run<F: Future>(
        &self,
        programs: impl IntoIterator<Item = F>,
        kills: &[Kill],
    ) -> Result<Ran<F::Output>, Stuck> {
        let ends = RefCell::new(Vec::new());
        let programs = programs.into_iter().enumerate().map(|(at, program)| {
            ends.borrow_mut().push(None);
            let ends = &ends;
            let program: Program<'_> =
                Box::pin(async move { ends.borrow_mut()[at] = Some(program.await) });
            program
        });
        let steps = self.drive(programs.collect(), kills)?;
        Ok(Ran { ends: ends.take(), steps })
    }

    /// Runs programs until all have ended or died, and returns the number of steps. It is apart
    /// from [`run`](Self::run) so that it is compiled once and not for each type of program.
    fn drive(&self, programs: Vec<Program<'_>>, kills: &[Kill]) -> Result<u64, Stuck> {
        let mut programs: Vec<Option<Program<'_>>> = programs.into_iter().map(Some).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut steps = 0;
        let mut in_vain = 0;
        let turns_in_vain = self.world.borrow().config.turns_in_vain as usize;
        let mut running: Vec<usize> = (0..programs.len()).collect();
        loop {
            for kill in kills.iter().filter(|kill| kill.step == steps) {
                // The network goes first, so that nothing that the program does while it is dropped
                // is sent.
                self.world.borrow_mut().kill(ProcessId(kill.rank));
                programs[kill.rank as usize] = None;
                running.retain(|at| *at != kill.rank as usize);
                // The other processes still have to learn of the death.
                in_vain = 0;
            }
            if running.is_empty() {
                return Ok(steps);
            }
            steps += 1;
            self.world.borrow_mut().steps = steps;
            if self.world.borrow_mut().cut_if_due() {
                in_vain = 0;
            }
            let before = self.world.borrow().activity();
            let choice = u32::try_from(running.len()).unwrap_or(u32::MAX);
            let (event, which) = {
                let random = &mut self.world.borrow_mut().random;
                (random.below_u32(2) == 0, random.below_u32(choice) as usize)
            };
            if event && self.world.borrow_mut().step() {
                in_vain = 0;
                continue;
            }
            // While nothing happens, the processes are polled in turn, so that none is left out.
            let at = running[if in_vain > running.len() { in_vain % running.len() } else { which }];
            if let Some(program) = &mut programs[at]
                && let Poll::Ready(()) = program.as_mut().poll(&mut context)
            {
                programs[at] = None;
                running.retain(|other| *other != at);
                in_vain = 0;
            }
            in_vain = if self.world.borrow().activity() == before { in_vain + 1 } else { 0 };
            if in_vain > turns_in_vain * running.len().max(1) && !self.world.borrow_mut().step() {
                return Err(Stuck { seed: self.world.borrow().config.seed, ranks: running, steps });
            }
        }
    }
}
