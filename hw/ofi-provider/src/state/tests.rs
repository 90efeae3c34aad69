use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use tagmatch_os::sleep::EventFd;

use super::*;
use crate::hints::Hints;
use crate::messages::{Incoming, Injected, Outgoing, Pattern};
use crate::objects::{Bindings, Counter, Queue, Vector, Waiter};
use crate::offer::{Constants, Offers};
use crate::progress::NextTurn;

struct Fake;

impl Provider for Fake {
    const NAME: &'static CStr = c"fake";
    const CONSTANTS: Constants = Constants {
        provider_version: 1,
        fabric: "fake",
        address_format: 0,
        name_bytes: 8,
        has_auto_progress: true,
    };
    const IS_TAGGED_ALONE: bool = false;
    const READS_ALONE_PROGRESS: bool = false;
    const READS_GIVE_WAY: bool = false;
    const SEND_FLAGS: u64 = 0;
    const RECEIVE_FLAGS: u64 = 0;
    const CALL_SEND_FLAGS: u64 = 0;
    const CALL_RECEIVE_FLAGS: u64 = 0;

    type Settings = ();
    type Domain = ();
    type Address = u64;
    type Endpoint = FakeEndpoint;

    fn settings() -> Result<Arc<()>> {
        Ok(Arc::new(()))
    }
    fn negotiate(_settings: &(), _hints: &Hints) -> Offers {
        Err("no offer")
    }
    fn destination(_node: &str) -> Result<Vec<u8>> {
        Err(Errno::NO_DATA)
    }
    fn domain(_settings: &()) {}
    fn endpoint(_settings: &(), _domain: &(), wanted: &Hints) -> Result<FakeEndpoint> {
        Ok(FakeEndpoint {
            bound: Bindings::new(wanted.opened()),
            is_armed: false,
            has_event: false,
            rounds: 0,
            event: EventFd::new().map_err(|_| Errno::NO_MEMORY)?,
        })
    }
    fn address(_name: &[u8]) -> Option<u64> {
        None
    }
    fn name(_address: &u64) -> Option<Vec<u8>> {
        None
    }
    fn text(_name: &[u8]) -> Option<String> {
        None
    }
    fn tag(tag: u64) -> Result<u64> {
        Ok(tag)
    }
    fn pattern(source: u64, tag: u64, ignore: u64) -> Result<Pattern> {
        Ok(Pattern { tag, mask: !ignore, source })
    }
    fn words(_reason: c_int) -> &'static CStr {
        c"a failure"
    }
}

struct FakeEndpoint {
    bound: Bindings,
    /// Its descriptor becomes readable at the next event.
    is_armed: bool,
    /// It has something to do.
    has_event: bool,
    rounds: u32,
    event: EventFd,
}

impl ProviderEndpoint<u64> for FakeEndpoint {
    fn bound(&self) -> &Bindings {
        &self.bound
    }
    fn bound_mut(&mut self) -> &mut Bindings {
        &mut self.bound
    }
    fn address(&self) -> u64 {
        0
    }
    fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }
    fn may_sleep(&self) -> bool {
        true
    }
    fn arm(&mut self) -> bool {
        self.is_armed = !self.has_event;
        self.is_armed
    }
    fn disarm(&mut self) {
        self.is_armed = false;
    }
    fn progress(&mut self, _sinks: &mut Sinks<'_, u64>) {
        self.rounds += 1;
    }
    fn rounds(&self) -> u32 {
        self.rounds
    }
    /// # Safety
    /// As the trait says.
    unsafe fn send(&mut self, _sinks: &mut Sinks<'_, u64>, _message: &Outgoing) -> Result<()> {
        Ok(())
    }
    /// # Safety
    /// As the trait says.
    unsafe fn inject(&mut self, _sinks: &mut Sinks<'_, u64>, _message: Injected) -> Result<()> {
        Ok(())
    }
    /// # Safety
    /// As the trait says.
    unsafe fn post(&mut self, _sinks: &mut Sinks<'_, u64>, _incoming: &Incoming) -> Result<()> {
        Ok(())
    }
    fn peek(&mut self, _sinks: &mut Sinks<'_, u64>, _incoming: &Incoming) -> Result<()> {
        Ok(())
    }
    /// # Safety
    /// As the trait says.
    unsafe fn claim(&mut self, _sinks: &mut Sinks<'_, u64>, _incoming: &Incoming) -> Result<()> {
        Ok(())
    }
    fn cancel(&mut self, _sinks: &mut Sinks<'_, u64>, _context: usize) -> Result<()> {
        Ok(())
    }
}

/// A queue with one endpoint, and their keys.
fn queue_with_endpoint() -> (State<Fake>, Key, Key) {
    let mut state = State::<Fake>::default();
    let endpoint = Fake::endpoint(&(), &(), &Hints::default()).unwrap();
    let endpoint = insert(&mut state.endpoints, endpoint).unwrap();
    let waiter = Arc::new(Waiter::new().unwrap());
    let queue = insert(&mut state.tables.queues, Queue::new(Some(waiter))).unwrap();
    state.bind_queue(endpoint, queue, sys::FI_TRANSMIT | sys::FI_RECV).unwrap();
    (state, queue, endpoint)
}

/// Whether a thread that sleeps on the queue's descriptor wakes up.
fn is_readable(state: &State<Fake>, queue: Key) -> bool {
    let waiter = state.tables.queues.get(queue).unwrap().waiter.as_ref().unwrap();
    let mut poll =
        libc::pollfd { fd: waiter.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call is given one entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn a_thread_that_may_not_sleep_leaves_a_sleeping_one_to_be_woken() {
    let (mut state, queue, endpoint) = queue_with_endpoint();
    assert!(state.begin_sleep(queue).unwrap());
    // Another thread looks after an event has come, which the first one has not seen yet.
    state.endpoints.get_mut(endpoint).unwrap().has_event = true;
    assert!(!state.arm(queue).unwrap());
    assert!(is_readable(&state, queue));
    // The other thread takes the event. Later ones wake the first thread all the same.
    state.endpoints.get_mut(endpoint).unwrap().has_event = false;
    state.progress_queue(queue, None).unwrap();
    assert!(state.endpoints.get(endpoint).unwrap().is_armed);
    state.end_sleep(queue);
    // Nobody sleeps any more.
    state.progress_queue(queue, None).unwrap();
    assert!(!state.endpoints.get(endpoint).unwrap().is_armed && !is_readable(&state, queue));
}

#[test]
fn a_signal_reaches_a_sleeping_thread_though_another_one_looks_before() {
    let (mut state, queue, _) = queue_with_endpoint();
    assert!(state.begin_sleep(queue).unwrap());
    let signalled = state.tables.queues.get_mut(queue).unwrap();
    signalled.is_signalled = true;
    signalled.wake();
    assert!(state.arm(queue).unwrap());
    assert!(is_readable(&state, queue));
}

/// Whether the progress thread was woken since the last question.
fn wakes_thread(state: &State<Fake>) -> bool {
    let waiter = &state.tables.thread.as_ref().unwrap().waiter;
    let is_woken = tagmatch_os::event::is_readable(waiter.wakes());
    waiter.clear();
    is_woken
}

#[test]
fn the_progress_thread_watches_endpoints_that_no_call_helps() {
    let (mut state, queue, key) = queue_with_endpoint();
    state.set_thread(Arc::new(Waiter::new().unwrap()));
    // An endpoint that is not enabled has nobody who takes its entries.
    assert_eq!(state.turn(), NextTurn::AtEvent);
    assert!(!state.endpoints.get(key).unwrap().is_armed);
    state.endpoints.get_mut(key).unwrap().bound.enable();
    assert_eq!(state.turn(), NextTurn::AtEvent);
    assert!(state.endpoints.get(key).unwrap().is_armed && !wakes_thread(&state));
    // A call takes over: it wakes the thread, once, which leaves the endpoint to the calls.
    for is_first in [true, false] {
        state.progress_queue(queue, None).unwrap();
        assert_eq!(wakes_thread(&state), is_first);
    }
    assert_eq!(state.turn(), NextTurn::Later);
    assert!(!state.endpoints.get(key).unwrap().is_armed);
    state.progress_queue(queue, None).unwrap();
    assert!(!wakes_thread(&state), "each call wakes the thread");
    assert_eq!(state.turn(), NextTurn::Later);
    // There are no more calls.
    state.endpoints.get_mut(key).unwrap().has_event = true;
    assert_eq!(state.turn(), NextTurn::Now);
    state.endpoints.get_mut(key).unwrap().has_event = false;
    assert_eq!(state.turn(), NextTurn::AtEvent);
}

#[test]
fn the_progress_thread_and_a_sleeping_thread_leave_each_other_armed() {
    let (mut state, queue, key) = queue_with_endpoint();
    state.set_thread(Arc::new(Waiter::new().unwrap()));
    state.endpoints.get_mut(key).unwrap().bound.enable();
    assert_eq!(state.turn(), NextTurn::AtEvent);
    assert!(state.begin_sleep(queue).unwrap());
    // The call before the sleep has made progress, so the thread withdraws.
    assert_eq!(state.turn(), NextTurn::Later);
    assert!(state.endpoints.get(key).unwrap().is_armed, "nothing wakes the sleeping thread");
    assert_eq!(state.turn(), NextTurn::AtEvent);
    // An event that arrives now is for whoever comes first. A call that does not look for it wakes
    // both.
    let State { endpoints, tables, .. } = &mut state;
    let endpoint = endpoints.get_mut(key).unwrap();
    endpoint.has_event = true;
    keep_armed(endpoint, &mut Sinks { tables, output: None });
    assert!(wakes_thread(&state) && is_readable(&state, queue));
    state.endpoints.get_mut(key).unwrap().has_event = false;
    state.end_sleep(queue);
    state.progress_queue(queue, None).unwrap();
    assert!(state.endpoints.get(key).unwrap().bound.is_armed, "the thread has not withdrawn yet");
    assert_eq!(state.turn(), NextTurn::Later);
    assert!(!state.endpoints.get(key).unwrap().is_armed);
}

#[test]
fn reads_of_one_queue_move_what_other_endpoints_of_the_domain_have_accepted() {
    let (mut state, queue, own) = queue_with_endpoint();
    let mut add = || {
        let endpoint = Fake::endpoint(&(), &(), &Hints::default()).unwrap();
        insert(&mut state.endpoints, endpoint).unwrap()
    };
    let others = [add(), add(), add()];
    state.endpoints.remove(others[1]).unwrap();
    let mut entry = sys::fi_cq_entry::zeroed();
    for _ in 0..6 {
        let to = (&raw mut entry).cast();
        // SAFETY: the entry outlives the array.
        let mut output = unsafe { Output::new(queue, size_of_val(&entry), to, 1, ptr::null_mut()) };
        assert_eq!(state.read(&mut output), Err(Errno::AGAIN));
    }
    let progressed = |key| state.endpoints.get(key).unwrap().rounds;
    assert_eq!([own, others[0], others[2]].map(progressed), [6 + 2, 2, 2]);
}

/// A domain with an enabled endpoint that counts its sends. Gives the keys of both.
fn counted_endpoint() -> (State<Fake>, Key, Key) {
    let mut state = State::<Fake>::default();
    let endpoint = Fake::endpoint(&(), &(), &Hints::default()).unwrap();
    let endpoint = state.add_endpoint(endpoint).unwrap();
    let counter = insert(&mut state.tables.counters, Counter::default()).unwrap();
    state.bind_counter(endpoint, counter, sys::FI_SEND).unwrap();
    state.endpoints.get_mut(endpoint).unwrap().bound.enable();
    (state, endpoint, counter)
}

fn ends_sleep(waiter: &Waiter) -> bool {
    tagmatch_os::event::is_readable(waiter.as_fd())
}

#[test]
fn a_thread_that_waits_for_a_counter_sleeps_until_something_is_counted() {
    let (mut state, endpoint, counter) = counted_endpoint();
    let waiter = state.begin_counter_sleep().unwrap().unwrap();
    assert!(state.endpoints.get(endpoint).unwrap().is_armed && !ends_sleep(&waiter));
    // Another thread goes to sleep, and leaves this one armed.
    assert!(state.begin_counter_sleep().unwrap().is_some());
    state.end_counter_sleep();
    assert!(state.endpoints.get(endpoint).unwrap().is_armed && !ends_sleep(&waiter));
    // A call counts a send.
    let (endpoint_now, mut sinks) = state.endpoint(endpoint).unwrap();
    endpoint_now.bound.tell_sent(&mut sinks, 0, sys::FI_SEND, false);
    assert!(ends_sleep(&waiter));
    assert_eq!(state.tables.counters.get(counter).unwrap().value, 1);
    state.end_counter_sleep();
    assert!(!state.endpoints.get(endpoint).unwrap().is_armed);
    // What woke the thread doesn't end its next sleep; an event of an endpoint does.
    let waiter = state.begin_counter_sleep().unwrap().unwrap();
    assert!(!ends_sleep(&waiter));
    state.endpoints.get(endpoint).unwrap().event.signal();
    assert!(ends_sleep(&waiter));
    state.end_counter_sleep();
}

#[test]
fn a_thread_that_waits_for_a_counter_does_not_sleep_over_an_event() {
    let (mut state, endpoint, counter) = counted_endpoint();
    state.endpoints.get_mut(endpoint).unwrap().has_event = true;
    assert!(state.begin_counter_sleep().unwrap().is_none());
    assert!(!state.endpoints.get(endpoint).unwrap().bound.is_armed);
    state.endpoints.get_mut(endpoint).unwrap().has_event = false;
    let waiter = state.begin_counter_sleep().unwrap().unwrap();
    // An endpoint that comes later is armed when the thread, which is woken, sleeps again.
    let another = Fake::endpoint(&(), &(), &Hints::default()).unwrap();
    let another = state.add_endpoint(another).unwrap();
    let vector = insert(&mut state.tables.vectors, Vector::default()).unwrap();
    state.bind_vector(another, vector).unwrap();
    const ALL: u64 = sys::FI_SEND | sys::FI_RECV | sys::FI_READ | sys::FI_WRITE;
    state.bind_counter(another, counter, ALL).unwrap();
    assert!(!ends_sleep(&waiter));
    state.enable(another).unwrap();
    assert!(ends_sleep(&waiter));
    state.end_counter_sleep();
    let waiter = state.begin_counter_sleep().unwrap().unwrap();
    state.endpoints.get(another).unwrap().event.signal();
    assert!(ends_sleep(&waiter));
}
