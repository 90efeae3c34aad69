//! The functions of a counter: fi_cntr(3).

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, number, table};
use tagmatch_ofi_sys::sleeping::{Next, sleeping};
use tagmatch_ofi_sys::stub::closable;

use crate::cancellable_sleep::{self, SLEEP_MAX, SleepFor};
use crate::handle::{Handle, domain_of};
use crate::objects::Counter;
use crate::policy::Provider;
use crate::state::{State, closed, insert};

pub(crate) type CounterHandle<P> = Handle<P, sys::fid_cntr>;

const fn functions<P: Provider>() -> &'static sys::fi_ops_cntr {
    const {
        &sys::fi_ops_cntr {
            size: size_of::<sys::fi_ops_cntr>(),
            read: Some(read::<P>),
            readerr: Some(readerr::<P>),
            add: Some(add::<P>),
            set: Some(set::<P>),
            wait: Some(wait::<P>),
            adderr: Some(adderr::<P>),
            seterr: Some(seterr::<P>),
        }
    }
}

/// `fi_cntr_open`. A thread can wait for a counter by `fi_cntr_wait`, not on a descriptor.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_cntr_attr,
    counter: *mut *mut sys::fid_cntr,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if counter.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain, and attributes or none.
        let (domain, attributes) = unsafe { (domain_of::<P>(domain)?, attributes.as_ref()) };
        if let Some(attributes) = attributes {
            let waits = [sys::FI_WAIT_NONE, sys::FI_WAIT_UNSPEC, sys::FI_WAIT_YIELD];
            if attributes.events != sys::FI_CNTR_EVENTS_COMP || attributes.flags != 0 {
                return Err(Errno::INVALID);
            }
            if !waits.contains(&attributes.wait_obj) {
                return Err(Errno::NO_SYSTEM_CALL);
            }
        }
        let key = insert(&mut domain.lock().tables.counters, Counter::default())?;
        let fid = head(sys::FI_CLASS_CNTR, context, const { &closable(close::<P>) });
        let object = sys::fid_cntr { fid, ops: table(functions::<P>()) };
        // SAFETY: the caller gives a place for the counter.
        unsafe { *counter = Handle::into_raw(object, domain, key) };
        Ok(())
    })
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes a counter.
    enter(|| unsafe { CounterHandle::<P>::close(fid, State::close_counter) })
}

/// Makes progress, and looks at the counter.
///
/// # Safety
/// `counter` is a counter.
unsafe fn look<P: Provider>(
    counter: *mut sys::fid_cntr,
    look: impl FnOnce(&Counter) -> u64,
) -> Result<u64> {
    // SAFETY: the caller gives a counter.
    let handle = unsafe { CounterHandle::<P>::of(counter) };
    let mut state = handle.domain.lock();
    state.progress_counter(handle.key)?;
    closed(state.tables.counters.get(handle.key)).map(look)
}

/// Makes progress, changes the counter, and wakes threads that wait for it.
///
/// # Safety
/// `counter` is a counter.
unsafe fn change<P: Provider>(
    counter: *mut sys::fid_cntr,
    change: impl FnOnce(&mut Counter),
) -> Result<()> {
    // SAFETY: the caller gives a counter.
    let handle = unsafe { CounterHandle::<P>::of(counter) };
    let mut state = handle.domain.lock();
    state.progress_counter(handle.key)?;
    closed(state.tables.counters.get_mut(handle.key)).map(change)?;
    state.tables.wake_counter_waits();
    Ok(())
}

unsafe extern "C" fn read<P: Provider>(counter: *mut sys::fid_cntr) -> u64 {
    // SAFETY: the caller gives a counter.
    number(|| unsafe { look::<P>(counter, |counter| counter.value) })
}

unsafe extern "C" fn readerr<P: Provider>(counter: *mut sys::fid_cntr) -> u64 {
    // SAFETY: the caller gives a counter.
    number(|| unsafe { look::<P>(counter, |counter| counter.errors) })
}

unsafe extern "C" fn add<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    let add = |counter: &mut Counter| counter.value = counter.value.wrapping_add(value);
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { change::<P>(counter, add) })
}

unsafe extern "C" fn adderr<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    let add = |counter: &mut Counter| counter.errors = counter.errors.wrapping_add(value);
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { change::<P>(counter, add) })
}

unsafe extern "C" fn set<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { change::<P>(counter, |counter| counter.value = value) })
}

unsafe extern "C" fn seterr<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { change::<P>(counter, |counter| counter.errors = value) })
}

/// Looks without a sleep between them.
const LOOKS: u32 = 1000;

/// Looks between two moments in which a thread that may not sleep can be cancelled.
const LOOKS_UNCANCELLED: u32 = 256;

/// `fi_cntr_wait`: blocks until the counter has reached `threshold`, or an operation has failed.
unsafe extern "C-unwind" fn wait<P: Provider>(
    counter: *mut sys::fid_cntr,
    threshold: u64,
    timeout: c_int,
) -> c_int {
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let began = Instant::now();
    let mut looks = 0u32;
    let mut errors = None;
    sleeping(|_| {
        cancellable_sleep::end();
        // SAFETY: the caller gives a counter.
        let handle = unsafe { CounterHandle::<P>::of(counter) };
        let mut state = handle.domain.lock();
        // Before any progress: an error that the first progress finds ends the wait.
        let now = closed(state.tables.counters.get(handle.key))?.errors;
        let errors = *errors.get_or_insert(now);
        looks = looks.saturating_add(1);
        if looks < LOOKS {
            state.progress_counter(handle.key)?;
        } else {
            // An event of any endpoint ends the sleep.
            state.progress_all();
        }
        let now = closed(state.tables.counters.get(handle.key))?;
        if now.value >= threshold {
            return Ok(Next::Answer(0));
        }
        if now.errors != errors {
            return Err(Errno::AVAIL);
        }
        let left = limit.map_or(SLEEP_MAX, |limit| limit.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return Err(Errno::TIMED_OUT);
        }
        if looks >= LOOKS
            && let Some(waiter) = state.begin_counter_sleep()?
        {
            let what = SleepFor::Counters;
            return Ok(cancellable_sleep::begin(&handle.domain, what, waiter, left));
        }
        drop(state);
        std::thread::yield_now();
        let may_end = looks.is_multiple_of(LOOKS_UNCANCELLED);
        Ok(if may_end { Next::Sleep(Duration::ZERO) } else { Next::Step })
    })
}
