//! What the communicators of one process share.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tagmatch::TagLayout;

use crate::alloc::Allocator;
use crate::coll::{Algorithms, CollLayer, Tables};
use crate::comm::{Comm, CommInfo, Inner};
use crate::error::Error;
use crate::ft::{Life, Service};
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::mailbox::Mailboxes;
use crate::net::{Net, ProcessId, Sleeper};
use crate::port::{Operations, Port};
use crate::wait::{Sleepers, Waiting};

/// Bits that a tag must have at least: two marks, and numbers that tell operations under way apart.
const TAG_BITS_MIN: u32 = 10;

/// Settings of a [`Runtime`], the same in all processes of a job.
pub struct Config<N: Net> {
    /// Fields of context ids.
    pub ids: IdLayout,
    /// Words of the mask that the first round of an allocation is about.
    pub eager_words: usize,
    /// Where a message's 64 bits have context, source and tag.
    pub tags: TagLayout,
    /// Where collective operations change from one algorithm to another.
    pub algorithms: Algorithms,
    /// Layers over the collective operations, in any order: each has its level.
    pub layers: Vec<Arc<dyn CollLayer<N>>>,
}

impl<N: Net> Default for Config<N> {
    fn default() -> Self {
        Config {
            ids: IdLayout::BITS_16,
            eager_words: 2,
            tags: TagLayout::MPI,
            algorithms: Algorithms::default(),
            layers: Vec::new(),
        }
    }
}

/// A process's part in a job: where its communicators come from. Clones are the same.
///
/// Nothing moves by itself: every test, wait and poll of a request makes progress for all that is under
/// way, and so do [`progress`](Self::progress), [`block_on`](Self::block_on) and a
/// [`progress_thread`](Self::progress_thread).
pub struct Runtime<N: Net>(pub(crate) Arc<Shared<N>>);

impl<N: Net> Runtime<N> {
    /// The process's part in the job that its transport knows.
    ///
    /// # Errors
    /// The layouts don't fit each other or the job, two layers have the same level, or a layer refused one of
    /// the predefined communicators.
    pub fn new(net: N, config: Config<N>) -> Result<Self, Error> {
        let Config { ids, eager_words, tags, algorithms, layers } = config;
        let too_large = |what, bits: u32| Err(Error::Layout { what, max: bits });
        if ids.bits() > tags.context_bits() {
            return too_large("bits of a context id, with these tags", tags.context_bits());
        }
        if tags.tag_bits() < TAG_BITS_MIN || tags.tag_bits() > 32 {
            return too_large("bits of a tag, of which there are 10 at least", 32);
        }
        let (size, own) = (net.processes(), net.own());
        if u64::from(size) > 1 << tags.source_bits().min(32) || own.0 >= size {
            return too_large("processes, as a power of two", tags.source_bits());
        }
        let tables = Tables::new(layers)?;
        let world = Group::new((0..size).map(ProcessId));
        let allocator = Allocator::new(ids, eager_words)?;
        let mailboxes = Arc::new(Mailboxes::new(net.sleeper()));
        let mut ft = Service::new(own, ids, tags, &allocator, &mailboxes);
        let mut net = net;
        let mut predefined = |id: ContextId, group: Group, name: &str| {
            let rank = group.rank(own).unwrap_or(0);
            let info = CommInfo { id, group: Arc::new(group), rank };
            let life = Arc::new(Life::new(id, id.bits().into(), &info.group, rank));
            ft.register(&mut net, &life);
            Inner::new(info, life, None, &tables, name).map(Arc::new)
        };
        let world = predefined(ids.world(), world, "world")?;
        let oneself = predefined(ids.oneself(), Group::new([own]), "self")?;
        let (sleeper, spins) = (net.sleeper(), net.spins());
        let state = Mutex::new(State {
            net,
            ft,
            tasks: Vec::new(),
            buffered: Buffered::default(),
            sleepers: Sleepers::default(),
            wakers: Vec::new(),
        });
        Ok(Runtime(Arc::new(Shared {
            state,
            sleeper,
            spins,
            woken: Condvar::new(),
            allocator,
            mailboxes,
            ids,
            tags,
            algorithms,
            tables,
            world,
            oneself,
        })))
    }

    /// The communicator of all processes of the job.
    pub fn world(&self) -> Comm<N> {
        Comm::new(&self.0, Arc::clone(&self.0.world))
    }

    /// The communicator of this process alone.
    pub fn oneself(&self) -> Comm<N> {
        Comm::new(&self.0, Arc::clone(&self.0.oneself))
    }

    /// Takes in what has come, and moves all that is under way.
    pub fn progress(&self) {
        self.0.progress();
    }

    /// Context ids that no communicator of this process has. A new communicator gets one of them as soon as no
    /// other process sends in it any more.
    pub fn free_ids(&self) -> u32 {
        self.0.allocator.free_count()
    }

    /// Gives room for buffered sends, in bytes: each takes its length and [`Self::BUFFER_OVERHEAD`].
    ///
    /// # Errors
    /// There is room already.
    pub fn attach_buffer(&self, bytes: usize) -> Result<(), Error> {
        let buffered = &mut self.0.lock().buffered;
        if buffered.room.is_some() {
            return Err(Error::BufferAttached);
        }
        buffered.room = Some(bytes);
        Ok(())
    }

    /// Bytes that a buffered send takes beside its own.
    pub const BUFFER_OVERHEAD: usize = 64;

    /// Blocks until all buffered sends have left, and takes their room back: how many bytes that was.
    pub fn detach_buffer(&self) -> usize {
        let mut waiting = Waiting::new(&self.0);
        loop {
            self.0.progress();
            {
                // Unlocked before the wait, which locks by itself.
                let buffered = &mut self.0.lock().buffered;
                if buffered.sends.is_empty() {
                    return buffered.room.take().unwrap_or(0);
                }
            }
            waiting.rest();
        }
    }

    /// Tables of collective operations that are in use: those with an equal one beneath that were patched
    /// alike are one.
    pub fn tables(&self) -> usize {
        self.0.tables.count()
    }
}

impl<N: Net> Clone for Runtime<N> {
    fn clone(&self) -> Self {
        Runtime(Arc::clone(&self.0))
    }
}

/// A state machine over the transport. It is driven until it ends; then it is dropped.
///
/// It is driven while the runtime is locked: it must not call a communicator.
pub trait Machine<N: Net>: Send {
    /// What it ends with.
    type Output: Send;

    /// Does what can be done now. `None`: it is not over.
    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Self::Output, Error>>;
}

/// Where a machine's result is left for its request.
pub(crate) struct Slot<T>(Mutex<Option<Result<T, Error>>>);

impl<T> Slot<T> {
    pub(crate) fn over(result: Result<T, Error>) -> Self {
        Slot(Mutex::new(Some(result)))
    }

    pub(crate) fn take(&self) -> Option<Result<T, Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A machine and its slot, whatever it ends with.
trait Drive<N: Net>: Send {
    fn drive(&mut self, port: &mut Port<'_, N>) -> bool;
}

struct Driven<M, T> {
    machine: M,
    slot: Arc<Slot<T>>,
}

impl<N: Net, M: Machine<N>> Drive<N> for Driven<M, M::Output> {
    fn drive(&mut self, port: &mut Port<'_, N>) -> bool {
        let Some(result) = self.machine.step(port) else { return false };
        *self.slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        true
    }
}

struct Task<N: Net> {
    machine: Box<dyn Drive<N>>,
    operations: Operations<N>,
}

/// Sends whose bytes are the runtime's.
pub(crate) struct Buffered<N: Net> {
    room: Option<usize>,
    used: usize,
    sends: Vec<(N::Send, usize)>,
}

impl<N: Net> Default for Buffered<N> {
    fn default() -> Self {
        Buffered { room: None, used: 0, sends: Vec::new() }
    }
}

impl<N: Net> Buffered<N> {
    /// Takes room for a message of this length.
    pub(crate) fn reserve(&mut self, length: usize) -> Result<usize, Error> {
        let needed = length.saturating_add(Runtime::<N>::BUFFER_OVERHEAD);
        let left = self.room.unwrap_or(0).saturating_sub(self.used);
        if needed > left {
            return Err(Error::BufferFull { needed, left });
        }
        self.used += needed;
        Ok(needed)
    }

    pub(crate) fn keep(&mut self, send: N::Send, taken: usize) {
        self.sends.push((send, taken));
    }

    fn reap(&mut self, net: &mut N) {
        let used = &mut self.used;
        self.sends.retain_mut(|(send, taken)| {
            let ended = net.test_send(send).is_some();
            *used -= if ended { *taken } else { 0 };
            !ended
        });
    }
}

/// What one turn of progress has brought.
struct Progress<N: Net> {
    events: usize,
    /// Of failures.
    news: usize,
    /// Machines that are over, to be dropped without the lock.
    over: Vec<Task<N>>,
}

pub(crate) struct State<N: Net> {
    pub(crate) net: N,
    pub(crate) ft: Service<N>,
    tasks: Vec<Task<N>>,
    pub(crate) buffered: Buffered<N>,
    pub(crate) sleepers: Sleepers,
    /// Futures that wait for machines.
    wakers: Vec<Waker>,
}

impl<N: Net> State<N> {
    /// Takes in what has come and moves all that is under way.
    fn progress(&mut self) -> Progress<N> {
        let events = self.net.progress();
        let news = self.ft.progress(&mut self.net, self.sleepers.any());
        let over = self.drive();
        self.ft.post(&mut self.net);
        self.buffered.reap(&mut self.net);
        Progress { events, news, over }
    }

    /// Tests an operation whose end is to wake this one.
    pub(crate) fn waking<R>(&mut self, waker: Option<&Waker>, test: impl FnOnce(&mut N) -> R) -> R {
        if waker.is_none() {
            return test(&mut self.net);
        }
        self.net.notify(waker);
        let end = test(&mut self.net);
        self.net.notify(None);
        end
    }

    /// Drives all machines; those that are over are to be dropped after the lock: what they hold may be the
    /// last of a communicator, with a layer's own things in it.
    fn drive(&mut self) -> Vec<Task<N>> {
        let mut over = Vec::new();
        let mut at = 0;
        while let Some(Task { machine, operations }) = self.tasks.get_mut(at) {
            if machine.drive(&mut Port { net: &mut self.net, ft: &mut self.ft, operations }) {
                over.push(self.tasks.swap_remove(at));
            } else {
                at += 1;
            }
        }
        over
    }
}

/// What the handles of a runtime share.
pub struct Shared<N: Net> {
    state: Mutex<State<N>>,
    pub(crate) sleeper: Option<Arc<dyn Sleeper>>,
    /// Turns of a wait before it lets others run.
    pub(crate) spins: u32,
    /// Signalled by the thread that sleeps on the transport, whenever it wakes.
    pub(crate) woken: Condvar,
    pub(crate) allocator: Allocator,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) ids: IdLayout,
    pub(crate) tags: TagLayout,
    pub(crate) algorithms: Algorithms,
    pub(crate) tables: Tables<N>,
    world: Arc<Inner<N>>,
    oneself: Arc<Inner<N>>,
}

impl<N: Net> Shared<N> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<N>> {
        // A reduction's operator may have panicked; what it worked on is not used again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything moved.
    pub(crate) fn progress(&self) -> bool {
        let mut state = self.lock();
        let Progress { events, news, over } = state.progress();
        let is_over = news > 0 || !over.is_empty();
        if is_over {
            self.wake_all(state);
        }
        events > 0 || is_over
    }

    /// Wakes whoever waits for a machine, or for news of failures.
    pub(crate) fn wake_all(&self, mut state: MutexGuard<'_, State<N>>) {
        if state.sleepers.any()
            && let Some(sleeper) = &self.sleeper
        {
            sleeper.ring();
        }
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes this one when a machine is over, or when there are news of failures.
    pub(crate) fn watch(&self, waker: &Waker) {
        let wakers = &mut self.lock().wakers;
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Begins a machine, to be driven by all progress.
    pub(crate) fn start<M>(&self, mut machine: M) -> Arc<Slot<M::Output>>
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        let slot = Arc::new(Slot(Mutex::new(None)));
        let mut operations = Operations::default();
        let mut state = self.lock();
        let State { net, ft, .. } = &mut *state;
        let first = machine.step(&mut Port { net, ft, operations: &mut operations });
        if first.is_some() {
            *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = first;
            drop(state);
        } else {
            let machine = Box::new(Driven { machine, slot: Arc::clone(&slot) });
            state.tasks.push(Task { machine, operations });
        }
        slot
    }

    /// Drives a machine, and all others, until it is over. Blocks.
    pub(crate) fn run<M: Machine<N>>(&self, mut machine: M) -> Result<M::Output, Error> {
        self.run_with(&mut machine, &mut Operations::default())
    }

    /// The same, where the operations of an earlier one were, which have all ended.
    pub(crate) fn run_with<M: Machine<N>>(
        &self,
        machine: &mut M,
        operations: &mut Operations<N>,
    ) -> Result<M::Output, Error> {
        let mut waiting = Waiting::new(self);
        loop {
            let mut state = self.lock();
            for _ in 0..waiting.looks() {
                let State { net, ft, .. } = &mut *state;
                let mut port = Port { net, ft, operations };
                if let Some(result) = machine.step(&mut port) {
                    drop(state);
                    return result;
                }
            }
            drop(state);
            self.progress();
            waiting.rest();
        }
    }
}
