//! The functions of a counter: fi_cntr(3).

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, number, table};
use tagmatch_ofi_sys::sleeping::{Next, sleeping};
use tagmatch_ofi_sys::stub::closable;

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
unsafe fn with<P: Provider, R>(
    counter: *mut sys::fid_cntr,
    look: impl FnOnce(&mut Counter) -> R,
) -> Result<R> {
    // SAFETY: the caller gives a counter.
    let handle = unsafe { CounterHandle::<P>::of(counter) };
    let mut state = handle.domain.lock();
    state.progress_counter(handle.key)?;
    closed(state.tables.counters.get_mut(handle.key)).map(look)
}

/// The errors of a counter, without progress.
///
/// # Safety
/// `counter` is a counter.
unsafe fn errors_so_far<P: Provider>(counter: *mut sys::fid_cntr) -> Result<u64> {
    // SAFETY: the caller gives a counter.
    let handle = unsafe { CounterHandle::<P>::of(counter) };
    let state = handle.domain.lock();
    closed(state.tables.counters.get(handle.key)).map(|counter| counter.errors)
}

unsafe extern "C" fn read<P: Provider>(counter: *mut sys::fid_cntr) -> u64 {
    // SAFETY: the caller gives a counter.
    number(|| unsafe { with::<P, _>(counter, |counter| counter.value) })
}

unsafe extern "C" fn readerr<P: Provider>(counter: *mut sys::fid_cntr) -> u64 {
    // SAFETY: the caller gives a counter.
    number(|| unsafe { with::<P, _>(counter, |counter| counter.errors) })
}

unsafe extern "C" fn add<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    let add = |counter: &mut Counter| counter.value = counter.value.wrapping_add(value);
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { with::<P, _>(counter, add) })
}

unsafe extern "C" fn adderr<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    let add = |counter: &mut Counter| counter.errors = counter.errors.wrapping_add(value);
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { with::<P, _>(counter, add) })
}

unsafe extern "C" fn set<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { with::<P, _>(counter, |counter| counter.value = value) })
}

unsafe extern "C" fn seterr<P: Provider>(counter: *mut sys::fid_cntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter.
    enter(|| unsafe { with::<P, _>(counter, |counter| counter.errors = value) })
}

/// Looks without a sleep between them.
const LOOKS: u32 = 1000;

/// The sleep between two looks after these.
const PAUSE: Duration = Duration::from_micros(50);

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
        // Before any progress: an error that the first progress finds ends the wait.
        let errors = match errors {
            Some(errors) => errors,
            // SAFETY: the caller gives a counter.
            None => *errors.insert(unsafe { errors_so_far::<P>(counter)? }),
        };
        // SAFETY: as above.
        let now = unsafe { with::<P, _>(counter, |counter| (counter.value, counter.errors))? };
        looks = looks.saturating_add(1);
        if now.0 >= threshold {
            return Ok(Next::Answer(0));
        }
        if now.1 != errors {
            return Err(Errno::AVAIL);
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            return Err(Errno::TIMED_OUT);
        }
        if looks >= LOOKS {
            return Ok(Next::Sleep(PAUSE));
        }
        std::thread::yield_now();
        Ok(Next::Step)
    })
}
