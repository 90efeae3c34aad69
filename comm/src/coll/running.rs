//! How an operation is carried out: at once by the calling thread, or by a state machine that
//! progress steps.

use std::mem;
use std::sync::{Arc, MutexGuard};

use tagmatch::Buffer;

use crate::comm::{CollRequest, Comm};
use crate::driver::{Channel, DriverState, Machine, MachineIo, Settings, Waiting};
use crate::error::Error;
use crate::group::Group;
use crate::life::{Life, epoch};
use crate::net::Net;
use crate::plans::{Call, Coll, Exchange, algorithms};
use crate::shared_memory::{LocalMembers, Making, RoundShape, SharedOperation, Stand};
use crate::shared_memory::{SharedMembers, SharedState, Way};

/// Begins an operation.
pub(super) fn start<N: Net>(comm: &Comm<N>, call: Call) -> CollRequest<N> {
    match begun(comm, &call) {
        Ok(None) => comm.start_planned(call),
        Ok(Some(begun)) => {
            let request = comm.start(begun.machine(comm, call));
            // A thread that sleeps on the transport is not woken by the segment.
            comm.driver().ring();
            request
        }
        Err(error) => comm.ended(Err(error)),
    }
}

/// Carries an operation out. Blocks.
pub(super) fn run<N: Net>(comm: &Comm<N>, call: Call) -> Result<Buffer, Error> {
    let begun = match begun(comm, &call) {
        Ok(Some(begun)) => begun,
        Ok(None) => return comm.run_planned(call),
        Err(error) => return comm.raise(Err(error)),
    };
    let is_next = |state: &mut MutexGuard<'_, SharedState>| {
        state.turn == begun.number && matches!(state.way, Way::Shared(_))
    };
    // The machine needs the state, so the guard is gone before it runs.
    let state = begun.members.try_lock();
    let result = match state.and_then(|mut state| is_next(&mut state).then_some(state)) {
        Some(state) => run_now(comm, state, call, begun),
        None => comm.driver().run(begun.machine(comm, call)),
    };
    comm.raise(result)
}

/// The state machine of an allgather that is a part of another operation, which has `channel`. It
/// goes through the segment only if an earlier operation has begun to make one: a communicator may
/// serve for nothing but making others.
pub(crate) fn allgather_machine<N: Net>(
    comm: &Comm<N>,
    data: Vec<u8>,
    channel: &Channel,
) -> Result<Box<dyn Machine<N, Output = Buffer>>, Error> {
    let members = comm.inner.shared.as_ref();
    if !members.is_some_and(|members| members.has_begun()) {
        let plan = algorithms::allgather(channel, data);
        return Ok(Box::new(Exchange::new(channel.clone(), plan, None)));
    }
    let call = Call::new(Coll::Allgather, 0, data);
    if let Some(begun) = begun(comm, &call)? {
        return Ok(Box::new(begun.machine(comm, call)));
    }
    // Other members may learn only now that the call goes by messages, and take such a number.
    let channel = comm.shared_numbered(comm.outside(0));
    let plan = algorithms::allgather(&channel, call.data);
    Ok(Box::new(Exchange::new(channel, plan, None)))
}

/// A call that goes through the segment: its rounds, its number, and the state that it uses.
struct Begun<'a> {
    shape: RoundShape,
    number: u64,
    members: &'a Arc<SharedMembers>,
}

/// Checks a call, and gives it its number. `None`: the call goes by messages.
#[inline(always)]
fn begun<'a, N: Net>(comm: &'a Comm<N>, call: &Call) -> Result<Option<Begun<'a>>, Error> {
    let members = comm.inner.shared.as_ref().filter(|members| !members.goes_by_messages());
    let shape = RoundShape::of(call, comm.size());
    let (Some(members), Some(shape)) = (members, shape) else { return Ok(None) };
    algorithms::check(call, comm.size())?;
    let number = members.take_number();
    if number == 1 {
        make_first(comm, members);
    }
    Ok(Some(Begun { shape, number, members }))
}

#[cold]
fn make_first<N: Net>(comm: &Comm<N>, members: &SharedMembers) {
    let channel = comm.shared_numbered(comm.outside(0));
    make(comm, members, &LocalMembers::all(&comm.inner.life), channel);
}

/// A value in the epoch of the agreement on a segment: it tells the agreement from everything else
/// that is made of the same communicator.
const SEGMENT: u64 = u64::MAX - 16;

/// Begins to make the segment, with the communicator's first operation. A member may never call
/// that operation, and agree with the others about something else while they are in it. So the
/// agreement on the segment takes no number of the program's agreements, and a revocation ends it.
pub(super) fn make<N: Net>(
    comm: &Comm<N>,
    members: &SharedMembers,
    local: &LocalMembers,
    channel: Channel,
) {
    let of = &comm.inner.life;
    let epoch = epoch(&[of.key.epoch, SEGMENT], &of.group, &of.group);
    let life = Arc::new(Life::new(comm.id(), epoch, &of.group, of.own).within(of));
    comm.driver().register(&life);
    let making = Making::new(&life, local, channel);
    members.make(life, making);
}

/// For each poll of a blocking call, an operation looks so many times into the segment: that takes
/// about as long.
const LOOKS_PER_TURN: u32 = 8;

/// Carries out the operation that has its turn.
fn run_now<N: Net>(
    comm: &Comm<N>,
    mut state: MutexGuard<'_, SharedState>,
    call: Call,
    begun: Begun<'_>,
) -> Result<Buffer, Error> {
    let Begun { shape, number, .. } = begun;
    let life = &comm.inner.life;
    let operation = SharedOperation::new(call, shape, number, comm.rank(), comm.size());
    let mut part = RunningPart { state: &mut state, operation, life, is_done: false };
    if life.is_revoked() {
        return Err(Error::Revoked);
    }
    let driver = comm.driver();
    let mut waiting = Waiting::new(driver);
    loop {
        if part.advance(waiting.looks() * LOOKS_PER_TURN)? == Stand::Done {
            return Ok(part.operation.result());
        }
        driver.progress();
        {
            let DriverState { net, .. } = &mut *driver.lock();
            if part.look_closely(net)? == Stand::Done {
                return Ok(part.operation.result());
            }
        }
        waiting.poll_soon();
        waiting.rest();
    }
}

/// An operation that uses the segment. When this is dropped, the operation has ended in this
/// process, even if an operator panicked, and the next one has its turn.
struct RunningPart<'a> {
    state: &'a mut SharedState,
    operation: SharedOperation,
    life: &'a Life,
    is_done: bool,
}

impl RunningPart<'_> {
    #[inline]
    fn advance(&mut self, looks: u32) -> Result<Stand, Error> {
        let stand = advance(self.state, &mut self.operation, looks)?;
        self.is_done = stand == Stand::Done;
        Ok(stand)
    }

    fn look_closely<N: Net>(&mut self, net: &mut N) -> Result<Stand, Error> {
        let life = self.life;
        let stand = look_closely(self.state, &mut self.operation, life, &life.group, net)?;
        self.is_done = stand == Stand::Done;
        Ok(stand)
    }
}

impl Drop for RunningPart<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_done {
            give_up(self.state, &self.operation, self.life);
        }
        self.state.turn += 1;
    }
}

#[inline]
fn advance(
    state: &mut SharedState,
    operation: &mut SharedOperation,
    looks: u32,
) -> Result<Stand, Error> {
    let SharedState { way: Way::Shared(segment), scratch, .. } = state else {
        return Err(Error::AlreadyTaken);
    };
    operation.advance(segment, scratch, looks)
}

/// Goes on, and looks whether the member that the operation waits for is down or has given up.
/// `group` has the segment's members. A member that is waited for long is watched from then on.
pub(super) fn look_closely<N: Net>(
    state: &mut SharedState,
    operation: &mut SharedOperation,
    life: &Life,
    group: &Group,
    net: &mut N,
) -> Result<Stand, Error> {
    let mut stand = advance(state, operation, 1)?;
    while let Stand::NoRoom(member) | Stand::Unpublished(member) = stand {
        if life.is_revoked() {
            return Err(Error::Revoked);
        }
        let process = group.process(member);
        let is_down = process.is_some_and(|process| net.is_down(process));
        let waited = state.waited(operation.stamp(), stand);
        let least = net.watch_after();
        let Way::Shared(segment) = &mut state.way else { break };
        if let Some(process) = process
            && !is_down
            && waited >= least
            && waited >= operation.patience(segment, member, least)
        {
            net.watch(process);
        }
        let is_room = stand == Stand::NoRoom(member);
        if !is_down && (is_room || !operation.has_given_up(segment, member)) {
            segment.restate(operation.stamp());
            break;
        }
        if is_room {
            segment.forget(member);
        }
        // The member may have published before it went down or gave up.
        let before = mem::replace(&mut stand, advance(state, operation, 1)?);
        if stand == before && !is_room {
            return Err(Error::ProcessFailed { rank: is_down.then_some(member) });
        }
    }
    Ok(stand)
}

/// Says in the segment that this member publishes nothing more in the operation. After a revocation
/// it says nothing: the revocation reaches all members, and ends their wait with its own error.
fn give_up(state: &mut SharedState, operation: &SharedOperation, life: &Life) {
    if let Way::Shared(segment) = &mut state.way
        && !life.is_revoked()
    {
        operation.give_up(segment);
    }
}

impl Begun<'_> {
    /// The state machine of the operation.
    fn machine<N: Net>(self, comm: &Comm<N>, call: Call) -> SharedMachine {
        let Begun { shape, number, members } = self;
        // An operation that goes by messages after all has a number for them, in the order of the
        // calls.
        let channel = (!members.has_segment()).then(|| comm.shared_numbered(comm.outside(0)));
        SharedMachine {
            members: Arc::clone(members),
            life: Arc::clone(&comm.inner.life),
            number,
            settings: comm.driver().settings,
            stage: Stage::Waits { call, shape, channel },
        }
    }
}

/// An operation that waits for its turn, or for the segment, or for other members.
struct SharedMachine {
    members: Arc<SharedMembers>,
    life: Arc<Life>,
    number: u64,
    settings: Settings,
    stage: Stage,
}

enum Stage {
    Waits { call: Call, shape: RoundShape, channel: Option<Channel> },
    Shared(Box<SharedOperation>),
    Messages(Box<Exchange>),
    Over,
}

impl SharedMachine {
    /// Ends the operation in this process: the next one has its turn.
    fn end(&mut self) {
        if let Stage::Shared(operation) = mem::replace(&mut self.stage, Stage::Over) {
            let mut state = self.members.lock();
            give_up(&mut state, &operation, &self.life);
            state.turn += 1;
        }
    }
}

impl Drop for SharedMachine {
    fn drop(&mut self) {
        self.end();
    }
}

impl<N: Net> Machine<N> for SharedMachine {
    type Output = Buffer;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Buffer, Error>> {
        if let Stage::Messages(exchange) = &mut self.stage {
            return exchange.step(io);
        }
        if self.life.is_revoked() {
            self.end();
            return Some(Err(Error::Revoked));
        }
        io.ft.poll_soon();
        let members = Arc::clone(&self.members);
        let mut state = members.try_lock()?;
        // The first operation makes the segment. Its messages belong to its machine.
        if let Way::Making(making) = &mut state.way
            && self.number == 1
        {
            let segment = making.step(io)?;
            members.agreed(&mut state, segment);
        }
        if let Stage::Waits { call, shape, channel } = &mut self.stage {
            match state.way {
                Way::Shared(_) if state.turn == self.number => {
                    let own = self.life.own;
                    let size = self.life.group.size();
                    let call = mem::replace(call, Call::empty(Coll::Barrier));
                    let operation = SharedOperation::new(call, *shape, self.number, own, size);
                    self.stage = Stage::Shared(Box::new(operation));
                }
                Way::Messages => {
                    drop(state);
                    let call = mem::replace(call, Call::empty(Coll::Barrier));
                    let channel = channel.take()?;
                    let op = call.op.clone();
                    let plan = algorithms::plan_of(&channel, call, &self.settings.algorithms);
                    let plan = match plan {
                        Ok(plan) => plan,
                        Err(error) => return Some(Err(error)),
                    };
                    let mut exchange = Box::new(Exchange::new(channel, plan, op));
                    let first = exchange.step(io);
                    self.stage = Stage::Messages(exchange);
                    return first;
                }
                _ => return None,
            }
        }
        let Stage::Shared(operation) = &mut self.stage else {
            return Some(Err(Error::AlreadyTaken));
        };
        let life = &self.life;
        let result = match look_closely(&mut state, operation, life, &life.group, io.net) {
            Ok(Stand::Done) => Ok(operation.result()),
            Ok(_) => return None,
            Err(error) => Err(error),
        };
        drop(state);
        self.end();
        Some(result)
    }
}
