//! Operations of a communicator whose members are on several machines: in shared memory within each
//! machine, and by messages among one leader of each machine.
//!
//! 1. *Up*: the members of a machine publish their bytes, and the leader combines them. A broadcast
//!    has no such phase.
//! 2. *Between*: the leaders carry out the operation by messages.
//! 3. *Down*: each leader publishes the result for the members of its machine. A reduction to a
//!    root has no such phase.
//!
//! The root leads its own machine, so it gets and gives the bytes itself.
//!
//! A leader that learns of a failure carries its messages to the end, as every exchange does, so
//! the other leaders learn of the failure. It publishes nothing then, and says so in the segment,
//! so the members of its machine learn of the failure, too.

use std::mem;
use std::sync::{Arc, MutexGuard};

use tagmatch::Buffer;
use tagmatch::shm::segment::{SLOT_BYTES, Stamp};

use super::running::{look_closely, make};
use crate::comm::{CollRequest, Comm};
use crate::driver::{Channel, Machine, MachineIo, Settings};
use crate::error::Error;
use crate::life::Life;
use crate::net::Net;
use crate::plans::{Call, Coll, Exchange, Op, algorithms};
use crate::shared_memory::{Machines, RoundShape, SharedOperation, Stand};
use crate::shared_memory::{SharedMembers, SharedState, Way};

/// The operations that have leaders.
pub(super) const COLLS: [Coll; 4] = [Coll::Barrier, Coll::Broadcast, Coll::Reduce, Coll::Allreduce];

/// Longer broadcasts go by messages alone, and so do reductions that don't fit a slot.
const BROADCAST_MAX: usize = 4096;

/// An operation takes this many numbers in the segment: one for each phase there, and one that
/// makes the numbers of one phase alternately even and odd. A member has two areas, and the number
/// decides which one it uses.
const NUMBERS: u64 = 3;

/// A member's state for the operations of one communicator.
pub(super) struct Leaders {
    machines: Machines,
    members: SharedMembers,
}

impl Leaders {
    pub(super) fn new(machines: Machines) -> Self {
        Leaders { machines, members: SharedMembers::new() }
    }

    /// Whether a call goes by leaders. All members give the same answer.
    fn takes(&self, call: &Call) -> bool {
        let length_max = if call.coll == Coll::Broadcast { BROADCAST_MAX } else { SLOT_BYTES };
        // Values are combined in the order of ranks only if each machine has ranks in a row.
        let has_order =
            call.op.as_ref().is_none_or(Op::is_commutative) || self.machines.is_in_order;
        !self.members.goes_by_messages() && call.data.len() <= length_max && has_order
    }
}

/// Begins an operation.
pub(super) fn start<N: Net>(comm: &Comm<N>, call: Call) -> CollRequest<N> {
    match begun(comm, call) {
        Ok(Begun::Messages(call)) => comm.start_planned(call),
        Ok(Begun::ByLeaders(machine)) => {
            let request = comm.start(*machine);
            // A thread that sleeps on the transport is not woken by the segment.
            comm.driver().ring();
            request
        }
        Err(error) => comm.ended(Err(error)),
    }
}

/// Carries an operation out. Blocks.
pub(super) fn run<N: Net>(comm: &Comm<N>, call: Call) -> Result<Buffer, Error> {
    match begun(comm, call) {
        Ok(Begun::Messages(call)) => comm.run_planned(call),
        Ok(Begun::ByLeaders(machine)) => comm.raise(comm.driver().run(*machine)),
        Err(error) => comm.raise(Err(error)),
    }
}

enum Begun {
    Messages(Call),
    ByLeaders(Box<LeaderMachine>),
}

/// Checks a call, and makes its state machine.
fn begun<N: Net>(comm: &Comm<N>, call: Call) -> Result<Begun, Error> {
    let leaders = comm.inner.bound.attached::<Arc<Leaders>>();
    let Some(leaders) = leaders.filter(|leaders| leaders.takes(&call)) else {
        return Ok(Begun::Messages(call));
    };
    algorithms::check(&call, comm.size())?;
    let number = leaders.members.take_number();
    if number == 1 {
        make(comm, &leaders.members, &leaders.machines.local, comm.channel());
    }
    Ok(Begun::ByLeaders(Box::new(LeaderMachine {
        life: Arc::clone(&comm.inner.life),
        channel: comm.channel(),
        settings: comm.driver().settings,
        number,
        coll: call.coll,
        root: call.root,
        length: call.data.len(),
        op: call.op,
        leader: leaders.machines.local_leader(call.root),
        has_turn: false,
        phase: Phase::Waits(call.data),
        leaders: Arc::clone(leaders),
    })))
}

/// One member's part in an operation.
struct LeaderMachine {
    leaders: Arc<Leaders>,
    life: Arc<Life>,
    /// The channel of the messages among the leaders, or among all members.
    channel: Channel,
    settings: Settings,
    number: u64,
    coll: Coll,
    root: u32,
    length: usize,
    op: Option<Op>,
    /// The place of this machine's leader among the members of the machine.
    leader: u32,
    /// Whether the operation is the one that uses the segment.
    has_turn: bool,
    phase: Phase,
}

enum Phase {
    /// The segment is being made, or used by an earlier operation. The phase has this member's
    /// bytes.
    Waits(Buffer),
    Up(Box<SharedOperation>),
    Between(Box<Exchange>),
    Down(Box<SharedOperation>),
    /// The members have no segments. All messages go among all members.
    Messages(Box<Exchange>),
    Over,
}

impl LeaderMachine {
    fn is_leader(&self) -> bool {
        self.leader == self.leaders.machines.local.own
    }

    fn up(&self) -> u64 {
        self.number * NUMBERS
    }

    fn down(&self) -> u64 {
        self.up() + 1
    }

    /// This member's part in a phase in shared memory.
    fn local(&self, coll: Coll, number: u64, data: Buffer) -> Result<Box<SharedOperation>, Error> {
        let local = &self.leaders.machines.local;
        let call = Call { op: self.op.clone(), ..Call::new(coll, self.leader, data) };
        let due = call.data.len();
        let shape = RoundShape::of(&call, local.size()).ok_or(Error::Length {
            length: due,
            what: "a machine's members can't swap these values in shared memory",
        })?;
        Ok(Box::new(SharedOperation::new(call, shape, number, local.own, local.size())))
    }

    fn begin(&self, data: Buffer) -> Result<Phase, Error> {
        match self.coll {
            Coll::Broadcast => self.combined(Ok(data)),
            _ => self.local(Coll::Reduce, self.up(), data).map(Phase::Up),
        }
    }

    /// The phase after the machine's values were combined.
    fn combined(&self, data: Result<Buffer, Error>) -> Result<Phase, Error> {
        if !self.is_leader() {
            return match self.coll {
                Coll::Reduce => Ok(Phase::Over),
                _ => self.spread(data.unwrap_or_else(|_| Buffer::zeroed(self.length))),
            };
        }
        let leaders = self.leaders.machines.leaders(self.root);
        let (data, failure) = match data {
            Ok(data) => (data, None),
            Err(error) => (Buffer::zeroed(self.length), Some(error)),
        };
        let root = u32::try_from(self.leaders.machines.machine(self.root)).unwrap_or(0);
        let call = Call { op: self.op.clone(), ..Call::new(self.coll, root, data) };
        let part = leaders.part_of(&self.channel);
        let plan = algorithms::plan_of(&part, call, &self.settings.algorithms)?;
        let plan = plan.renamed(&leaders.ranks);
        let exchange = Exchange::new(self.channel.clone(), plan, self.op.clone());
        Ok(Phase::Between(Box::new(exchange.after(failure))))
    }

    /// The phase in which the leader's bytes go to the members of the machine.
    fn spread(&self, data: Buffer) -> Result<Phase, Error> {
        self.local(Coll::Broadcast, self.down(), data).map(Phase::Down)
    }

    fn by_messages(&self, data: Buffer) -> Result<Phase, Error> {
        let call = Call { op: self.op.clone(), ..Call::new(self.coll, self.root, data) };
        let plan = algorithms::plan_of(&self.channel, call, &self.settings.algorithms)?;
        let exchange = Exchange::new(self.channel.clone(), plan, self.op.clone());
        Ok(Phase::Messages(Box::new(exchange)))
    }

    /// An error of a phase in shared memory, with the member's rank in the communicator.
    fn whole(&self, mut error: Error) -> Error {
        let ranks = &self.leaders.machines.local.ranks;
        if let Error::ProcessFailed { rank: Some(rank) } | Error::Mismatch { rank, .. } = &mut error
        {
            *rank = ranks.get(*rank as usize).copied().unwrap_or(*rank);
        }
        error
    }

    /// Goes on in this phase. The result is the next phase, or the end: this member's bytes.
    fn go_on<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Next, Error>> {
        let leaders = Arc::clone(&self.leaders);
        let mut state = leaders.members.lock();
        let group = &leaders.machines.local.group;
        match &mut self.phase {
            Phase::Waits(data) => {
                if self.life.is_revoked() {
                    return Some(Err(Error::Revoked));
                }
                io.ft.poll_soon();
                // The first operation makes the segment. Its messages belong to its machine.
                if let Way::Making(making) = &mut state.way
                    && self.number == 1
                {
                    let segment = making.step(io)?;
                    leaders.members.agreed(&mut state, segment);
                }
                match state.way {
                    Way::Shared(_) if state.turn == self.number => {
                        self.has_turn = true;
                        let data = mem::take(data);
                        Some(self.begin(data).map(Next::Phase))
                    }
                    Way::Messages => {
                        let data = mem::take(data);
                        Some(self.by_messages(data).map(Next::Phase))
                    }
                    _ => None,
                }
            }
            Phase::Up(operation) => {
                io.ft.poll_soon();
                let stand = look_closely(&mut state, operation, &self.life, group, io.net);
                let data = match stand {
                    // At members that are no leader, it is the memory for the result.
                    Ok(Stand::Done) => Ok(operation.take_memory()),
                    Ok(_) => return None,
                    Err(Error::Revoked) => return Some(Err(Error::Revoked)),
                    Err(error) => Err(self.whole(error)),
                };
                if data.is_err() {
                    // The members of the machine need not wait for the messages.
                    self.give_up(&mut state);
                }
                Some(self.combined(data).map(Next::Phase))
            }
            Phase::Between(exchange) => {
                drop(state);
                let ended = exchange.step(io)?;
                Some(ended.and_then(|data| match self.coll {
                    Coll::Reduce => Ok(Next::End(data)),
                    _ => self.spread(data).map(Next::Phase),
                }))
            }
            Phase::Down(operation) => {
                io.ft.poll_soon();
                match look_closely(&mut state, operation, &self.life, group, io.net) {
                    Ok(Stand::Done) => Some(Ok(Next::End(operation.result()))),
                    Ok(_) => None,
                    Err(error) => Some(Err(self.whole(error))),
                }
            }
            Phase::Messages(exchange) => {
                drop(state);
                exchange.step(io).map(|ended| ended.map(Next::End))
            }
            Phase::Over => Some(Ok(Next::End(Buffer::default()))),
        }
    }

    /// Says in the segment that this member publishes nothing more in this operation. After a
    /// revocation nobody need know: it ends the wait of all members, and with its own error.
    fn give_up(&self, state: &mut MutexGuard<'_, SharedState>) {
        if let Way::Shared(segment) = &mut state.way
            && !self.life.is_revoked()
        {
            segment.finish(Stamp::new(self.down(), 0).end());
        }
    }

    /// Ends the operation in this process: the next one has its turn.
    fn end(&mut self) {
        if mem::take(&mut self.has_turn) {
            let mut state = self.leaders.members.lock();
            self.give_up(&mut state);
            state.turn += 1;
        }
    }
}

/// The step after a phase: another phase, or the end with this member's bytes.
enum Next {
    Phase(Phase),
    End(Buffer),
}

impl<N: Net> Machine<N> for LeaderMachine {
    type Output = Buffer;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Buffer, Error>> {
        loop {
            let result = match self.go_on(io)? {
                Ok(Next::Phase(phase)) => {
                    self.phase = phase;
                    continue;
                }
                Ok(Next::End(data)) => Ok(data),
                Err(error) => Err(error),
            };
            self.phase = Phase::Over;
            self.end();
            return Some(result);
        }
    }
}

impl Drop for LeaderMachine {
    fn drop(&mut self) {
        self.end();
    }
}
