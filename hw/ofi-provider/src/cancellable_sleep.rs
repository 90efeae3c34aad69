//! Sleeps in which the thread may be cancelled (pthread_cancel(3)).

use std::any::Any;
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys::sleeping::Next;

use crate::objects::Waiter;
use crate::parent::Domain;
use crate::policy::Provider;

/// The longest sleep, after which a thread looks again.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What a thread sleeps for.
#[derive(Clone, Copy)]
pub(crate) enum SleepFor {
    /// An entry of this queue.
    Queue(Key),
    /// A change of any counter.
    Counters,
}

/// A thread that sleeps on a descriptor. If it is cancelled, its end drops the value.
struct CancellableSleep<P: Provider> {
    domain: Arc<Domain<P>>,
    what: SleepFor,
    /// Keeps the descriptor open.
    _waiter: Arc<Waiter>,
}

impl<P: Provider> Drop for CancellableSleep<P> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        match self.what {
            SleepFor::Queue(key) => state.end_sleep(key),
            SleepFor::Counters => state.end_counter_sleep(),
        }
    }
}

thread_local! {
    /// A [`CancellableSleep`], of whichever provider.
    static SLEEP: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

/// The sleep that the domain knows of begins.
pub(crate) fn begin<P: Provider>(
    domain: &Arc<Domain<P>>,
    what: SleepFor,
    waiter: Arc<Waiter>,
    time: Duration,
) -> Next {
    let fd = waiter.as_fd().as_raw_fd();
    let domain = Arc::clone(domain);
    SLEEP.set(Some(Box::new(CancellableSleep { domain, what, _waiter: waiter })));
    Next::SleepUntilReadable(fd, time)
}

/// The sleep of this thread is over, if it has slept. The caller doesn't have the domain's lock.
pub(crate) fn end() {
    drop(SLEEP.take());
}
