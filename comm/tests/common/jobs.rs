//! Two jobs on one simulated network. The processes of the second job know of the first one only
//! what a board says, as they would from a launcher. The rules hold when the jobs meet, whichever
//! processes die. A check panics if its rule is broken.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tagmatch_comm::coll::Op;
use tagmatch_comm::{CollRequest, Error, InterComm, PortName, Uniformity};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, Stuck};

use super::{Busy, Sims, TestNet, join, linger, turn};

/// The call by which the first job meets the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Accept,
    Spawn,
}

/// A process of one of the jobs.
pub(crate) struct Party {
    pub(crate) runtime: Sims,
    pub(crate) is_first: bool,
    pub(crate) sizes: [u32; 2],
    board: Rc<RefCell<Option<PortName>>>,
    clock: Rc<dyn Fn() -> Duration>,
    kills: Vec<Kill>,
    /// The number of processes that have not finished meeting. `meets` is this process's share in
    /// it, until it has finished.
    meeting: Rc<Cell<u32>>,
    meets: Cell<Option<Busy>>,
}

/// Runs a program on each process of both jobs. A process whose program has ended makes progress
/// until all others have ended.
pub(crate) fn run<F: Future>(
    sizes: [u32; 2],
    seed: u64,
    kills: &[Kill],
    program: impl Fn(Party) -> F,
) -> Result<Ran<F::Output>, Stuck> {
    // More turns than `settle` takes.
    let config = SimConfig { seed, turns_in_vain: 200, ..SimConfig::default() };
    let sim = Sim::of_jobs(config, &sizes);
    let processes = sizes[0] + sizes[1];
    let busy = Rc::new(Cell::new(processes));
    let meeting = Rc::new(Cell::new(processes));
    let board = Rc::default();
    let clock: Rc<dyn Fn() -> Duration> = Rc::new(sim.clock());
    let start = |number: u32| {
        let runtime = join(&sim, number);
        let board = Rc::clone(&board);
        let clock = Rc::clone(&clock);
        let is_first = number < sizes[0];
        let kills = kills.to_vec();
        let party = Party {
            runtime: runtime.clone(),
            is_first,
            sizes,
            board,
            clock,
            kills,
            meets: Cell::new(Some(Busy(Rc::clone(&meeting)))),
            meeting: Rc::clone(&meeting),
        };
        linger(runtime, &busy, program(party))
    };
    sim.run((0..processes).map(start), kills)
}

impl Party {
    /// The leaders are the last process of the first job and the first one of the second job.
    fn leader(&self) -> u32 {
        if self.is_first { self.sizes[0] - 1 } else { 0 }
    }

    /// Whether a process, numbered through both jobs, was killed. A launcher would know this.
    fn is_gone(&self, number: u32) -> bool {
        let step = Duration::from_micros;
        self.kills.iter().any(|kill| kill.rank == number && (self.clock)() > step(kill.step))
    }

    /// `None`: the process that would have told the port's name has died.
    pub(crate) async fn meet(
        &self,
        uniformity: Uniformity,
        by: By,
    ) -> Option<Result<InterComm<TestNet>, Error>> {
        let world = self.runtime.world();
        if self.is_first {
            return Some(self.wait_for(self.first(uniformity, by)).await);
        }
        while self.board.borrow().is_none() {
            if self.is_gone(self.sizes[0] - 1) {
                return None;
            }
            turn().await;
        }
        let name = *self.board.borrow();
        let name = name.filter(|_| world.rank() == self.leader());
        Some(world.connect(uniformity, self.leader(), name).await)
    }

    fn first(&self, uniformity: Uniformity, by: By) -> CollRequest<TestNet, InterComm<TestNet>> {
        let world = self.runtime.world();
        let leader = self.leader();
        let is_leader = world.rank() == leader;
        let publish = |name: &PortName| {
            *self.board.borrow_mut() = Some(*name);
            Ok::<(), Error>(())
        };
        if by == By::Spawn {
            return world.spawn(uniformity, leader, is_leader.then_some(publish)).start();
        }
        let port = is_leader.then(|| self.runtime.open_port().unwrap());
        if let Some(port) = &port {
            publish(&port.name()).unwrap();
        }
        world.accept(uniformity, leader, port.as_ref()).start()
    }

    /// Waits until all survivors are done with meeting, and all messages that were in flight then
    /// have arrived.
    async fn settle(&self) {
        drop(self.meets.take());
        let mut turns = 0;
        while turns < 50 {
            turns += usize::from(self.meeting.get() == 0);
            // Handles the messages that have arrived.
            self.runtime.world().failed();
            turn().await;
        }
    }

    /// Waits until the request ends. If the process that would call the port was killed, the lowest
    /// living rank revokes the job's communicator, which ends the request.
    async fn wait_for(
        &self,
        mut request: CollRequest<TestNet, InterComm<TestNet>>,
    ) -> Result<InterComm<TestNet>, Error> {
        let world = self.runtime.world();
        loop {
            if let Some(end) = request.test() {
                return end;
            }
            let is_awake = (0..world.rank()).all(|rank| self.is_gone(rank));
            if is_awake && self.is_gone(self.sizes[0]) && !world.is_revoked() {
                world.revoke();
            }
            turn().await;
        }
    }
}

/// The result of a process, which is to be the same at all survivors.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    has_met: bool,
    /// The id, the members and the flags of the communicator of both jobs.
    merged: Option<(u32, u32, u64)>,
    shrunk: Option<(u32, u32)>,
}

/// Two jobs meet and merge. Nothing hangs, no id stays in use, and all survivors have the same
/// result.
pub(crate) fn meetings(sizes: [u32; 2], by: By, seed: u64, kills: &[Kill]) -> u64 {
    let program = |party: Party| async move {
        let runtime = &party.runtime;
        let before = runtime.free_ids();
        let met = party.meet(Uniformity::Strict, by).await;
        let Some(Ok(inter)) = met else {
            assert_eq!(runtime.free_ids(), before);
            return Outcome { has_met: false, merged: None, shrunk: None };
        };
        let mut merged = None;
        let mut shrunk = None;
        if let Ok(all) = inter.merge(!party.is_first).await {
            let sum = all.allreduce(vec![1], &Op::sum::<u8>()).await;
            let flags = all.agree(!(1 << all.rank())).await.unwrap().flags;
            assert!(sum.is_ok() || !party.kills.is_empty());
            merged = Some((all.id().bits(), all.size(), flags));
            let small = all.shrink().await.unwrap();
            shrunk = Some((small.id().bits(), small.size()));
            let _works = small.barrier().await;
        }
        let _works = inter.disconnect().await;
        assert_eq!(runtime.free_ids(), before);
        Outcome { has_met: true, merged, shrunk }
    };
    let ran = run(sizes, seed, kills, program);
    let ran = ran.unwrap_or_else(|stuck| panic!("{sizes:?}, {by:?}, {kills:?}: {stuck}"));
    let ends = living(ran.ends, kills);
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{by:?}, {kills:?}: {ends:?}");
    let all = sizes[0] + sizes[1];
    let is_whole = |end: &Outcome| end.shrunk.is_some_and(|(_, size)| size == all);
    assert!(!kills.is_empty() || ends.iter().all(is_whole), "{ends:?}");
    ran.steps
}

/// Two jobs meet with less uniformity. Nothing hangs, and no id stays in use. With
/// [`Uniformity::Eventual`] all survivors of a job have the same result, and an intercommunicator
/// that the other job doesn't have is revoked.
pub(crate) fn loose_meetings(
    sizes: [u32; 2],
    uniformity: Uniformity,
    seed: u64,
    kills: &[Kill],
) -> u64 {
    let program = |party: Party| async move {
        let before = party.runtime.free_ids();
        let inter = party.meet(uniformity, By::Accept).await.and_then(Result::ok);
        party.settle().await;
        let has_met = inter.is_some();
        let is_live = inter.is_some_and(|inter| !inter.is_revoked());
        assert_eq!(party.runtime.free_ids(), before);
        (party.is_first, has_met, is_live)
    };
    let ran = run(sizes, seed, kills, program);
    let ran = ran.unwrap_or_else(|stuck| panic!("{sizes:?}, {uniformity:?}, {kills:?}: {stuck}"));
    let ends = living(ran.ends, kills);
    let alike = |two: &[(bool, bool, bool)]| {
        (two[0].0 != two[1].0 || two[0].1 == two[1].1) && two[0].2 == two[1].2
    };
    let is_promised = uniformity != Uniformity::None;
    assert!(!is_promised || ends.windows(2).all(alike), "{kills:?}: {ends:?}");
    assert!(!kills.is_empty() || ends.iter().all(|(.., is_live)| *is_live));
    ran.steps
}

/// The results of the processes that are not killed. A killed process may have a result, too, if it
/// had ended before.
fn living<T>(ends: Vec<Option<T>>, kills: &[Kill]) -> Vec<T> {
    let is_killed = |number: u32| kills.iter().any(|kill| kill.rank == number);
    (0..).zip(ends).filter_map(|(number, end)| end.filter(|_| !is_killed(number))).collect()
}
