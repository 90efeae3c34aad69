//! One worker, reached from one thread or from many.
//!
//! **One lock for many threads.** `SharedWorker` is the single-threaded engine behind one mutex. An
//! operation takes tens of nanoseconds; finer locks would cost more than they save. The expensive
//! part is moving the worker from one processor's cache to another's (ten times an operation). So a
//! thread that finds the worker taken looks ever more rarely, and the other one gets a burst of
//! operations done meanwhile.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::hint::spin_loop;
use std::ops::DerefMut;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::Waker;
use std::time::Duration;

use tagmatch_device::Address;
use tagmatch_fallback::{Completion, EndList, Fault, Posted, RequestId, WaitedEnd};
use tagmatch_os::safety;
use tagmatch_soft::{Pattern, Tag, TagMask};

use crate::awaited::{Awaited, Watched};
use crate::crowding::Crowding;
use crate::engine::WorkerEngine;
use crate::interrupt::Interrupter;
use crate::sync::{Mutex, MutexGuard};
use crate::wait_policy::WaitPolicy;

/// Rounds of progress in one call while other threads sleep: each round tries to leave the device
/// armed.
const REARMS_MAX: usize = 256;

/// The part of a worker that changes; all handles of the worker share it.
pub struct State {
    pub(crate) engine: WorkerEngine,
    /// The wakers to call when a request ends or the completion queue has an end.
    wakers: BTreeMap<Watched, Waker>,
    /// Numbers the wakers of the completion queue and of messages.
    numbered: u64,
    /// The messages that wakers wait for. Whoever lets go of the worker looks for each.
    messages: Vec<(u64, Pattern)>,
    /// Threads asleep on the device's descriptor: the device stays armed as long as there are any.
    pub(crate) sleepers: usize,
    /// Blocking calls of the worker that have a waker here.
    calls_watching: usize,
    /// Whether the last attempt to arm the device has succeeded.
    is_armed: bool,
}

impl State {
    pub(crate) fn new(engine: WorkerEngine) -> Self {
        State {
            engine,
            wakers: BTreeMap::new(),
            numbered: 0,
            messages: Vec::new(),
            sleepers: 0,
            calls_watching: 0,
            is_armed: false,
        }
    }

    /// Makes progress, and takes the oldest ends, as many as the list has room for; gives the
    /// number of events.
    #[inline]
    pub(crate) fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        if self.sleepers > 0 {
            let events = self.progress();
            self.engine.requests_mut().take_ends(ends);
            return events;
        }
        self.engine.take_ends(ends)
    }

    /// Takes the events that are there, and leaves the device armed if others sleep on it.
    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        let mut events = self.engine.progress();
        if self.sleepers > 0 {
            // Bounded: while events keep coming, the thread that makes progress is awake to take
            // them.
            for _ in 0..REARMS_MAX {
                if self.arm() {
                    break;
                }
                events += self.engine.progress();
            }
        }
        events
    }

    /// Makes the device's descriptor readable at the next event. `false`: there is something to do
    /// already.
    pub(crate) fn arm(&mut self) -> bool {
        let engine = self.engine.as_dyn_mut();
        engine.await_messages(!self.messages.is_empty());
        self.is_armed = engine.arm();
        self.is_armed
    }

    /// Whether the device reports what happens now. To be asked by a thread that is about to sleep,
    /// once it has unlocked the worker: unlocking may make progress, and progress that always finds
    /// more to do leaves the device unarmed.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Makes progress until a request is over or there is nothing more to take in; gives how many
    /// events were taken, and whether the request is over.
    #[inline(always)]
    pub(crate) fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        if self.sleepers > 0 {
            let events = self.progress();
            return (events, self.engine.requests().is_over(request));
        }
        self.engine.progress_until(request)
    }

    /// Makes progress as [`State::progress_until`] does, and tells whether the request is over, and
    /// how.
    #[inline(always)]
    pub(crate) fn progress_to_end(&mut self, request: RequestId) -> WaitedEnd {
        if self.sleepers > 0 {
            self.progress();
            return self.engine.requests().waited_end(request);
        }
        self.engine.progress_to_end(request)
    }

    /// Makes progress as [`State::progress_until`] does, and takes the result if the request is
    /// over.
    pub(crate) fn end_of(&mut self, request: RequestId) -> (usize, Option<Completion>) {
        let (events, is_over) = self.progress_until(request);
        (events, if is_over { self.engine.requests_mut().take(request) } else { None })
    }

    /// Has the end of an operation, if it has begun, told by the completion queue.
    #[inline(always)]
    pub(crate) fn queue(&mut self, posted: Posted, context: u64) -> Posted {
        if let Ok(request) = posted {
            self.engine.requests_mut().queue(request, context);
        }
        posted
    }

    /// Wakes `waker` once the request is over; gives back the waker that this replaces.
    pub(crate) fn watch(&mut self, request: RequestId, waker: Waker) -> Option<Waker> {
        let is_watched = self.engine.requests_mut().watch(request);
        if is_watched { self.wakers.insert(Watched::Request(request), waker) } else { Some(waker) }
    }

    /// Removes the waker of a request. The caller drops it outside of any lock, since its drop is
    /// code that this crate does not know.
    pub(crate) fn unwatch(&mut self, request: RequestId) -> Option<Waker> {
        if self.wakers.is_empty() { None } else { self.wakers.remove(&Watched::Request(request)) }
    }

    /// Wakes the task's waker once the completion queue has an end; gives back the waker that this
    /// replaces, or this one if there is an end already.
    pub(crate) fn watch_ends(&mut self, waker: Waker) -> Option<Waker> {
        let is_watched = self.engine.requests_mut().watch_ends();
        if is_watched { self.wakers.insert(Watched::Ends(0), waker) } else { Some(waker) }
    }

    /// Wakes `waker` once one of what is awaited has come. If one has come already, there is
    /// nothing to wake for.
    pub(crate) fn watch_all(&mut self, awaited: Awaited<'_>, waker: &Waker) -> Vec<Watched> {
        match awaited {
            Awaited::Nothing => Vec::new(),
            Awaited::Ends if self.engine.requests_mut().watch_ends() => {
                self.numbered += 1;
                self.calls_watching += 1;
                let watched = Watched::Ends(self.numbered);
                self.wakers.insert(watched, waker.clone());
                vec![watched]
            }
            Awaited::Ends => Vec::new(),
            Awaited::Message(pattern) => {
                self.calls_watching += 1;
                vec![Watched::Message(self.watch_message(pattern, waker.clone()))]
            }
            Awaited::Requests(requests) => {
                let watch = |&request: &RequestId| {
                    drop(self.watch(request, waker.clone()));
                    Watched::Request(request)
                };
                requests.iter().map(watch).collect()
            }
        }
    }

    /// Removes wakers that are this thread's own.
    pub(crate) fn unwatch_all(&mut self, watched: &[Watched]) {
        for watched in watched {
            self.calls_watching -= usize::from(!matches!(watched, Watched::Request(_)));
            match watched {
                Watched::Message(number) => drop(self.unwatch_message(*number)),
                other => drop(self.wakers.remove(other)),
            }
        }
    }

    /// An error in the books of a worker that ends: no call of it waits any more.
    pub(crate) fn audit(&self) -> Option<String> {
        let count = self.calls_watching;
        (count > 0).then(|| format!("{count} calls have left their wakers behind"))
    }

    /// Wakes `waker` once there is a message that matches, or once there can't be one any more. To
    /// be called in the turn that has looked for it. Gives the number of the wait.
    pub(crate) fn watch_message(&mut self, pattern: Pattern, waker: Waker) -> u64 {
        self.numbered += 1;
        self.messages.push((self.numbered, pattern));
        self.wakers.insert(Watched::Message(self.numbered), waker);
        self.numbered
    }

    /// Ends the wait for a message. The caller drops the waker outside of any lock.
    pub(crate) fn unwatch_message(&mut self, number: u64) -> Option<Waker> {
        self.messages.retain(|(other, _)| *other != number);
        self.wakers.remove(&Watched::Message(number))
    }

    /// Whether any request has a waker. Cheaper than asking the engine, and mostly the answer is
    /// no.
    #[inline(always)]
    fn has_wakers(&self) -> bool {
        !self.wakers.is_empty()
    }

    /// Whether there may be something to wake for. To be asked when there are wakers.
    #[inline(always)]
    fn has_woken(&self) -> bool {
        self.engine.requests().has_woken() || !self.messages.is_empty()
    }

    #[cold]
    fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for _ in 0..REARMS_MAX {
            self.take_found(&mut wakers);
            // Over libfabric a probe takes in what has ended by then. The descriptor doesn't report
            // these ends any more, and the threads that sleep wait for them.
            if self.sleepers == 0 || !self.engine.has_work() {
                break;
            }
            self.progress();
        }
        for request in self.engine.requests_mut().take_woken() {
            if request == RequestId::NONE {
                let of_queue = self.wakers.split_off(&Watched::Ends(0));
                wakers.extend(of_queue.into_values());
            } else {
                wakers.extend(self.wakers.remove(&Watched::Request(request)));
            }
        }
        wakers
    }

    /// Takes the wakers of messages that are there, or can't come any more.
    fn take_found(&mut self, wakers: &mut Vec<Waker>) {
        let State { engine, messages, wakers: all, .. } = self;
        messages.retain(|(number, pattern)| {
            let is_over =
                found_or_fault(engine, pattern, |engine| engine.as_dyn_mut().probe(pattern))
                    .is_some();
            if is_over {
                wakers.extend(all.remove(&Watched::Message(*number)));
            }
            !is_over
        });
    }
}

/// The message that `find` finds, or why there will never be one. `None`: one may come yet.
pub(crate) fn found_or_fault<R>(
    engine: &mut WorkerEngine,
    pattern: &Pattern,
    find: impl FnOnce(&mut WorkerEngine) -> Result<Option<R>, Fault>,
) -> Option<Result<R, Fault>> {
    let fault = |engine: &WorkerEngine| engine.as_dyn().source_fault(pattern);
    find(engine).transpose().or_else(|| fault(engine).map(Err))
}

/// Wakes all, also if one of them panics.
#[doc(hidden)]
pub fn wake_all(wakers: Vec<Waker>) {
    struct Rest(std::vec::IntoIter<Waker>);
    impl Drop for Rest {
        fn drop(&mut self) {
            self.0.by_ref().for_each(Waker::wake);
        }
    }
    let mut rest = Rest(wakers.into_iter());
    rest.0.by_ref().for_each(Waker::wake);
}

/// The part of a worker that never changes.
pub(crate) struct Fixed {
    /// Number of the worker, so that a [`Peer`](crate::Peer) of another worker is recognised.
    pub(crate) worker: u32,
    pub(crate) address: Address,
    pub(crate) wait: WaitPolicy,
    pub(crate) drain_timeout: Duration,
    pub(crate) inject_bytes_max: u64,
    /// See [`WorkerOf::free_tag_bits`](crate::WorkerOf::free_tag_bits).
    pub(crate) free_tag_bits: (TagMask, Tag),
    /// The process that made the worker, rather than a child that it has forked.
    pub(crate) process: u32,
    pub(crate) interrupter: Interrupter,
    pub(crate) crowding: Crowding,
    /// A duplicate of the device's descriptor, to sleep on without holding the worker.
    pub(crate) events: OwnedFd,
}

impl Fixed {
    /// Whether this process is a forked child of the one that made the worker.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// How the handles of a worker reach it: [`Local`] or [`Shared`].
pub trait Access: Clone + Unpin + sealed::Sealed {
    /// Whether other threads may make progress while one sleeps.
    #[doc(hidden)]
    const SHARED: bool;

    /// The worker, while it is held.
    #[doc(hidden)]
    type Guard<'a>: DerefMut<Target = State>
    where
        Self: 'a;

    /// Locks the worker until [`Access::unlock`], which also calls the wakers.
    #[doc(hidden)]
    fn lock(&self) -> Self::Guard<'_>;

    /// Unlocks the worker, and wakes the tasks whose requests have ended.
    #[doc(hidden)]
    #[inline(always)]
    fn unlock(mut state: Self::Guard<'_>) {
        if state.sleepers > 0 && state.engine.has_work() {
            // The descriptor that other threads sleep on does not report work that this call has
            // begun.
            state.progress();
        }
        if state.has_wakers() && state.has_woken() {
            let wakers = state.take_wakers();
            drop(state);
            // A waker may call this worker, so the lock is free by now.
            wake_all(wakers);
        }
    }

    #[doc(hidden)]
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let out = f(&mut state);
        Self::unlock(state);
        out
    }

    /// Like `with`, for drops: in a forked child, where the worker is a copy whose connections,
    /// locks and threads are the parent's, it does nothing.
    #[doc(hidden)]
    fn with_unless_forked(&self, f: impl FnOnce(&mut State)) {
        if !self.fixed().is_forked() {
            self.with(f);
        }
    }

    /// Like `with`, but `None` if another thread has the lock.
    #[doc(hidden)]
    fn try_with<R>(&self, f: impl FnOnce(&mut State) -> R) -> Option<R>;
}

pub(crate) mod sealed {
    use super::{Fixed, State};

    /// Keeps [`Access`](super::Access) to this crate.
    pub trait Sealed {
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
        fn new(state: State, fixed: Fixed) -> Self;

        #[doc(hidden)]
        #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
        fn fixed(&self) -> &Fixed;
    }
}

/// Access from one thread, without locks.
#[derive(Clone)]
pub struct Local(Rc<(RefCell<State>, Fixed)>);

/// Access from many threads, under one lock.
#[derive(Clone)]
pub struct Shared(Arc<(Mutex<State>, Fixed)>);

impl sealed::Sealed for Local {
    #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
    fn new(state: State, fixed: Fixed) -> Self {
        Local(Rc::new((RefCell::new(state), fixed)))
    }

    #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
    fn fixed(&self) -> &Fixed {
        &self.0.1
    }
}

impl Access for Local {
    const SHARED: bool = false;

    type Guard<'a> = RefMut<'a, State>;

    #[inline(always)]
    fn lock(&self) -> RefMut<'_, State> {
        self.0.0.borrow_mut()
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut State) -> R) -> Option<R> {
        Some(self.with(f))
    }
}

impl sealed::Sealed for Shared {
    #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
    fn new(state: State, fixed: Fixed) -> Self {
        Shared(Arc::new((Mutex::new(state), fixed)))
    }

    #[allow(private_interfaces, reason = "sealed: only this crate calls it")]
    fn fixed(&self) -> &Fixed {
        &self.0.1
    }
}

/// Attempts to take a lock that another thread has, before this thread sleeps on it: about 100 us
/// in all. None under loom, which tries all interleavings anyway.
const ATTEMPTS: u32 = if cfg!(loom) { 0 } else { 12 };
/// The longest pause between two attempts, as a power of two of [`spin_loop`]s: 5 to 30 us on
/// x86-64. (On AArch64 it is as many ISBs, which were not measured.)
const PAUSE_BITS_MAX: u32 = 9;

impl Shared {
    #[inline(always)]
    fn lock_at_once(&self) -> Option<MutexGuard<'_, State>> {
        match self.0.0.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The pauses grow: meanwhile the thread that has the worker in its cache does several
    /// operations, which costs less than handing the worker over after each of them.
    #[cold]
    #[inline(never)]
    fn lock_in_turn(&self) -> MutexGuard<'_, State> {
        for attempt in 0..ATTEMPTS {
            for _ in 0..1u32 << attempt.min(PAUSE_BITS_MAX) {
                spin_loop();
            }
            if let Some(state) = self.lock_at_once() {
                return state;
            }
        }
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Access for Shared {
    const SHARED: bool = true;

    type Guard<'a> = MutexGuard<'a, State>;

    #[inline(always)]
    fn lock(&self) -> MutexGuard<'_, State> {
        safety::shake(256);
        self.lock_at_once().unwrap_or_else(|| self.lock_in_turn())
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut State) -> R) -> Option<R> {
        let mut state = self.lock_at_once()?;
        let out = f(&mut state);
        Self::unlock(state);
        Some(out)
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, DeviceConfig};
    use crate::sync::sleep_until_readable;
    use tagmatch_device::Buffer;
    use tagmatch_fallback::End;
    use tagmatch_shm::ShmConfig;

    fn new_state() -> State {
        let device = DeviceConfig::Shm(ShmConfig::default());
        State::new(WorkerEngine::new(&Config { device, ..Config::default() }, 1).unwrap())
    }

    fn receive(state: &mut State) -> RequestId {
        let all = Pattern::new(Tag(0), TagMask::ANY);
        state.engine.receive_parts(&all, Buffer::zeroed(8).into_parts(), false, None).unwrap()
    }

    /// Whatever call a thread makes, another one that sleeps on the device learns of what comes
    /// afterwards.
    #[test]
    fn each_call_that_makes_progress_leaves_the_device_armed_for_threads_that_sleep() {
        type ProgressCall = fn(&mut State, RequestId) -> usize;
        let calls: [ProgressCall; 4] = [
            |state, _| state.progress(),
            |state, _| state.take_ends(&mut Vec::<End>::with_capacity(1)),
            |state, request| state.progress_until(request).0,
            |state, request| state.end_of(request).0,
        ];
        for (number, call) in calls.into_iter().enumerate() {
            let mut state = new_state();
            let mut peer = new_state();
            let to = peer.engine.as_dyn_mut().connect(&state.engine.as_dyn().address()).unwrap();
            state.sleepers = 1;
            state.progress();
            for message in 0..3 {
                let wakes = |state: &State, time| {
                    sleep_until_readable(&[state.engine.event_descriptor()], time).unwrap()
                };
                let request = receive(&mut state);
                peer.engine.inject(to, Tag(7), &[1; 8]).unwrap();
                while !wakes(&state, Duration::from_millis(1)) {
                    peer.progress();
                }
                while call(&mut state, request) == 0 {
                    peer.progress();
                }
                while call(&mut state, request) > 0 {}
                assert!(!wakes(&state, Duration::ZERO), "call {number}, message {message}");
            }
        }
    }

    #[test]
    fn a_wait_that_is_over_leaves_no_waker() {
        let mut state = new_state();
        let requests = [receive(&mut state), receive(&mut state)];
        let none = Pattern::new(Tag(9), TagMask::EXACT);
        for awaited in [Awaited::Requests(&requests), Awaited::Ends, Awaited::Message(none)] {
            let watched = state.watch_all(awaited, Waker::noop());
            assert!(state.has_wakers());
            state.unwatch_all(&watched);
            assert!(!state.has_wakers() && state.messages.is_empty());
        }
        assert!(state.watch_all(Awaited::Nothing, Waker::noop()).is_empty());
        assert!(state.watch(requests[0], Waker::noop().clone()).is_none() && state.has_wakers());
        assert!(state.unwatch(requests[1]).is_none() && state.unwatch(requests[0]).is_some());
        assert!(!state.has_wakers());
    }
}
