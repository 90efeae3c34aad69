//! The transport and all machines of a process under one lock, and one turn of progress.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tagmatch::{Crowding, TagLayout, WaitPolicy};

use super::buffered::BufferedSends;
use super::machine::{Machine, ResultSlot, RunningMachine, step};
use super::machine_io::{MachineIo, Operations};
use crate::alloc::Allocator;
use crate::ft::Service;
use crate::ids::IdLayout;
use crate::life::Life;
use crate::mailbox::Mailboxes;
use crate::net::{Net, Sleeper};
use crate::settings::Algorithms;

/// The state that all communicators of a process share.
pub struct Driver<N: Net> {
    state: Mutex<DriverState<N>>,
    pub(crate) sleeper: Option<Arc<dyn Sleeper>>,
    /// How blocking calls wait.
    pub(super) wait_policy: WaitPolicy,
    /// Whether other threads want the processors on which the waits of this runtime poll.
    pub(super) crowding: Crowding,
    /// Signalled by the thread that sleeps on the transport, whenever it wakes.
    pub(super) woken: Condvar,
    pub(crate) allocator: Allocator,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) settings: Settings,
}

/// Settings that never change, and are the same in all processes of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) ids: IdLayout,
    pub(crate) tags: TagLayout,
    pub(crate) algorithms: Algorithms,
}

/// The state that a driver's lock protects.
pub(crate) struct DriverState<N: Net> {
    pub(crate) net: N,
    pub(crate) ft: Service<N>,
    machines: Vec<RunningMachine<N>>,
    pub(crate) buffered: BufferedSends<N>,
    pub(super) sleepers: Sleepers,
    /// Futures that wait for machines.
    wakers: Vec<Waker>,
}

/// The threads that sleep, or are about to.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    pub(super) asleep: usize,
    /// Whether one of them sleeps on the transport. The others wait until it wakes.
    pub(super) has_watcher: bool,
    /// How often a watcher has woken.
    pub(super) wakes: u64,
    /// [`Net::arrived`] before the last look for messages of the service.
    pub(super) arrived: u64,
}

impl<N: Net> DriverState<N> {
    /// Tests an operation of the transport. If it has not ended, its end wakes `waker`.
    pub(crate) fn waking<R>(&mut self, waker: Option<&Waker>, test: impl FnOnce(&mut N) -> R) -> R {
        if waker.is_none() {
            return test(&mut self.net);
        }
        self.net.notify(waker);
        let end = test(&mut self.net);
        self.net.notify(None);
        end
    }
}

impl<N: Net> Driver<N> {
    pub(crate) fn new(
        net: N,
        ft: Service<N>,
        allocator: Allocator,
        mailboxes: Arc<Mailboxes>,
        settings: Settings,
    ) -> Self {
        let sleeper = net.sleeper();
        let wait_policy = net.wait_policy();
        let state = Mutex::new(DriverState {
            net,
            ft,
            machines: Vec::new(),
            buffered: BufferedSends::default(),
            sleepers: Sleepers::default(),
            wakers: Vec::new(),
        });
        Driver {
            state,
            sleeper,
            wait_policy,
            crowding: Crowding::default(),
            woken: Condvar::new(),
            allocator,
            mailboxes,
            settings,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, DriverState<N>> {
        // A poisoned lock is usable: only a reduction's operator can have panicked, and its
        // operands are not used again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a communicator known to the service for failures.
    pub(crate) fn register(&self, life: &Arc<Life>) {
        let DriverState { net, ft, .. } = &mut *self.lock();
        ft.register(net, life);
    }

    /// Makes one turn of progress. Returns whether anything has happened.
    pub(crate) fn progress(&self) -> bool {
        let mut state = self.lock();
        let DriverState { net, ft, machines, buffered, sleepers, .. } = &mut *state;
        let events = net.progress();
        if sleepers.asleep > 0 {
            sleepers.arrived = net.arrived();
        }
        ft.progress(net, sleepers.asleep > 0);
        // They are dropped without the lock: they may hold the last handle of a communicator, whose
        // layers drop their own values then.
        let ended: Vec<_> = machines.extract_if(.., |machine| machine.drive(net, ft)).collect();
        let has_posted = ft.post(net);
        buffered.reap(net, ft);
        let is_news = ft.take_news() || !ended.is_empty();
        if is_news {
            self.wake_all(state);
        }
        events > 0 || is_news || has_posted
    }

    /// Wakes all threads and futures that wait for a machine, or for news of failures.
    pub(crate) fn wake_all(&self, mut state: MutexGuard<'_, DriverState<N>>) {
        if state.sleepers.asleep > 0
            && let Some(sleeper) = &self.sleeper
        {
            sleeper.ring();
        }
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        tagmatch::wake_all(wakers);
    }

    /// Wakes a thread that sleeps on the transport.
    pub(crate) fn ring(&self) {
        if self.lock().sleepers.asleep > 0
            && let Some(sleeper) = &self.sleeper
        {
            sleeper.ring();
        }
    }

    /// Wakes `waker` when a machine ends, or when there are news of failures.
    pub(crate) fn watch(&self, waker: &Waker) {
        let wakers = &mut self.lock().wakers;
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// The errors in the books of a process whose communicators are all freed, one line each.
    fn audit(&mut self) -> Vec<String> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_idle = state.machines.is_empty();
        // Machines that nothing steps any more may hold ids and mailboxes.
        state.machines.clear();
        let mut wrong = state.ft.audit(is_idle);
        wrong.extend(state.buffered.audit());
        wrong.extend(self.allocator.audit());
        wrong.extend(self.mailboxes.audit());
        wrong
    }

    /// Begins a machine, which every turn of progress steps from now on.
    pub(crate) fn start<M>(&self, mut machine: M) -> Arc<ResultSlot<M::Output>>
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        let mut operations = Operations::default();
        let mut state = self.lock();
        let DriverState { net, ft, .. } = &mut *state;
        let first = step(&mut machine, &mut MachineIo { net, ft, operations: &mut operations });
        let is_over = first.is_some();
        let slot = ResultSlot::new(first);
        if is_over {
            drop(state);
        } else {
            state.machines.push(RunningMachine::new(machine, operations, &slot));
        }
        slot
    }
}

/// In a build with debug assertions: panics if something was not given back that the process's
/// communicators had.
impl<N: Net> Drop for Driver<N> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.audit();
            assert!(wrong.is_empty(), "an audit of communicators: {}", wrong.join("; "));
        }
    }
}
