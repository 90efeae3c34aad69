//! The functions of a completion queue: fi_cq(3).

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, copy_text, count_at_once, enter, head, table};
use tagmatch_ofi_sys::sleeping::{Next, sleeping};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::cancellable_sleep::{self, SLEEP_MAX, SleepFor};
use crate::handle::{Handle, domain_of};
use crate::objects::{Output, Queue, Waiter, entry_bytes};
use crate::policy::Provider;
use crate::state::{State, closed, insert};
use crate::yielding::IdleReads;

/// A completion queue as the caller has it.
#[repr(C)]
pub(crate) struct QueueObject {
    cq: sys::fid_cq,
    entry_bytes: usize,
    wait: sys::fi_wait_obj,
    /// `FI_CQ_COND_THRESHOLD`: blocking reads wait for as many entries as they are told.
    by_threshold: bool,
    idle_reads: IdleReads,
}

pub(crate) type QueueHandle<P> = Handle<P, QueueObject>;

const fn functions<P: Provider>() -> &'static sys::fi_ops_cq {
    const {
        let blocks = !P::IS_TAGGED_ALONE;
        &sys::fi_ops_cq {
            size: size_of::<sys::fi_ops_cq>(),
            read: Some(read::<P>),
            readfrom: Some(readfrom::<P>),
            readerr: Some(readerr::<P>),
            sread: if blocks { Some(sread::<P>) } else { Stub::STUB },
            sreadfrom: if blocks { Some(sreadfrom::<P>) } else { Stub::STUB },
            signal: if blocks { Some(signal::<P>) } else { Stub::STUB },
            strerror: Some(strerror::<P>),
        }
    }
}

const fn head_functions<P: Provider>() -> &'static sys::fi_ops {
    const { &sys::fi_ops { control: Some(control::<P>), ..closable(close::<P>) } }
}

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_cq_attr,
    queue: *mut *mut sys::fid_cq,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || queue.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain and attributes.
        let (domain, attributes) = unsafe { (domain_of::<P>(domain)?, &mut *attributes) };
        if attributes.flags & !sys::FI_AFFINITY != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let format = match attributes.format {
            sys::FI_CQ_FORMAT_UNSPEC => sys::FI_CQ_FORMAT_CONTEXT,
            known @ sys::FI_CQ_FORMAT_CONTEXT..=sys::FI_CQ_FORMAT_TAGGED => known,
            _ => return Err(Errno::INVALID),
        };
        let waiter = match attributes.wait_obj {
            sys::FI_WAIT_NONE => None,
            sys::FI_WAIT_UNSPEC | sys::FI_WAIT_FD | sys::FI_WAIT_YIELD => {
                Some(Arc::new(Waiter::new().map_err(|_| Errno::NO_MEMORY)?))
            }
            _ => return Err(Errno::NO_SYSTEM_CALL),
        };
        if attributes.wait_cond > sys::FI_CQ_COND_THRESHOLD {
            return Err(Errno::INVALID);
        }
        attributes.format = format;
        let key = insert(&mut domain.lock().tables.queues, Queue::new(waiter))?;
        let fid = head(sys::FI_CLASS_CQ, context, head_functions::<P>());
        let object = QueueObject {
            cq: sys::fid_cq { fid, ops: table(functions::<P>()) },
            entry_bytes: entry_bytes(format),
            wait: attributes.wait_obj,
            by_threshold: attributes.wait_cond == sys::FI_CQ_COND_THRESHOLD,
            idle_reads: IdleReads::new(),
        };
        // SAFETY: the caller gives a place for the queue.
        unsafe { *queue = Handle::into_raw(object, domain, key).cast() };
        Ok(())
    })
}

/// The handle of a completion queue.
///
/// # Safety
/// [`open`] gave the pointer.
#[inline]
pub(crate) unsafe fn of<'a, P: Provider>(queue: *mut sys::fid_cq) -> &'a QueueHandle<P> {
    // SAFETY: the object begins with the queue.
    unsafe { QueueHandle::of(queue.cast::<QueueObject>()) }
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes a completion queue.
    enter(|| unsafe { QueueHandle::<P>::close(fid, State::close_queue) })
}

/// `fi_control`: `FI_GETWAIT` gives the descriptor, `FI_GETWAITOBJ` the kind of object.
unsafe extern "C" fn control<P: Provider>(
    fid: *mut sys::fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a completion queue.
        let handle = unsafe { of::<P>(fid.cast()) };
        if argument.is_null() {
            return Err(Errno::INVALID);
        }
        match command {
            sys::FI_GETWAIT if handle.object.wait == sys::FI_WAIT_FD => {
                let state = handle.domain.lock();
                let waiter = closed(state.tables.queues.get(handle.key))?.waiter.as_ref();
                let fd = waiter.ok_or(Errno::NO_SYSTEM_CALL)?.as_fd().as_raw_fd();
                // SAFETY: for this command the argument is an integer.
                unsafe { *argument.cast::<c_int>() = fd };
                Ok(())
            }
            sys::FI_GETWAITOBJ => {
                // SAFETY: for this command the argument is the kind of object.
                unsafe { *argument.cast::<sys::fi_wait_obj>() = handle.object.wait };
                Ok(())
            }
            _ => Err(Errno::NO_SYSTEM_CALL),
        }
    })
}

/// Whether the caller may sleep on the descriptor of a completion queue.
///
/// # Safety
/// `queue` is a completion queue.
pub(crate) unsafe fn arm<P: Provider>(queue: *mut sys::fid_cq) -> Result<bool> {
    // SAFETY: the caller's promise.
    let handle = unsafe { of::<P>(queue) };
    handle.domain.lock().arm(handle.key)
}

/// Where a caller wants entries.
///
/// # Safety
/// The caller gives room for `count` entries, and for as many sources or none.
#[inline]
unsafe fn output<P: Provider>(
    handle: &QueueHandle<P>,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> Result<Output> {
    if to.is_null() && count > 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Output::new(handle.key, handle.object.entry_bytes, to, count, sources) })
}

unsafe extern "C" fn read<P: Provider>(
    queue: *mut sys::fid_cq,
    to: *mut c_void,
    wanted: usize,
) -> isize {
    // SAFETY: the caller gives a completion queue, and room for the entries.
    unsafe { readfrom::<P>(queue, to, wanted, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom<P: Provider>(
    queue: *mut sys::fid_cq,
    to: *mut c_void,
    wanted: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: the caller gives a completion queue, and room for the entries.
    count_at_once(|| unsafe {
        let handle = of::<P>(queue);
        let mut output = output(handle, to, wanted, sources)?;
        let result = handle.domain.lock().read(&mut output);
        match result {
            Ok(_) => handle.object.idle_reads.note_entry(),
            // An error entry counts as none: programs that probe in a loop read one for each probe.
            Err(_) if P::READS_GIVE_WAY => handle.object.idle_reads.note_idle(),
            Err(_) => {}
        }
        result
    })
}

unsafe extern "C-unwind" fn sread<P: Provider>(
    queue: *mut sys::fid_cq,
    to: *mut c_void,
    wanted: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the caller gives a completion queue, and room for the entries.
    unsafe { sreadfrom::<P>(queue, to, wanted, std::ptr::null_mut(), condition, timeout) }
}

/// Reads without result before the thread sleeps.
const LOOKS: u32 = 2000;

/// Reads without result between two moments in which a thread that may not sleep can be cancelled.
const LOOKS_UNCANCELLED: u32 = 256;

unsafe extern "C-unwind" fn sreadfrom<P: Provider>(
    queue: *mut sys::fid_cq,
    to: *mut c_void,
    wanted: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let began = Instant::now();
    let mut looks = 0u32;
    // The time that is left at the beginning of a sleep, and that beginning.
    let mut slept: Option<(Duration, Instant)> = None;
    sleeping(|is_readable| {
        // SAFETY: the caller gives a completion queue, and room for the entries.
        let (handle, mut output) = unsafe {
            let handle = of::<P>(queue);
            (handle, output(handle, to, wanted, sources)?)
        };
        if handle.object.wait == sys::FI_WAIT_NONE {
            return Err(Errno::NO_SYSTEM_CALL);
        }
        cancellable_sleep::end();
        // A signal handler ends the call (fi_cq(3)).
        let is_interrupted = slept
            .take()
            .is_some_and(|(time, beginning)| !is_readable && beginning.elapsed() < time);
        // For this condition, the pointer is a number of entries.
        let least = if handle.object.by_threshold { condition as usize } else { 1 };
        let least = least.clamp(1, wanted.max(1));
        let mut state = handle.domain.lock();
        state.progress_queue(handle.key, None)?;
        let queue = closed(state.tables.queues.get_mut(handle.key))?;
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let is_over = left.is_some_and(|left| left.is_zero());
        let is_signalled = std::mem::take(&mut queue.is_signalled) || is_interrupted;
        if queue.len() >= least || queue.has_failure(least) || is_over || is_signalled {
            queue.take(&mut output);
            return queue.taken(&output).map(Next::Answer);
        }
        looks = looks.saturating_add(1);
        if looks > LOOKS && queue.len() == 0 && state.begin_sleep(handle.key)? {
            let waiter = closed(state.tables.queues.get(handle.key))?.waiter.clone();
            let waiter = waiter.ok_or(Errno::NO_SYSTEM_CALL)?;
            let left = left.unwrap_or(SLEEP_MAX);
            slept = Some((left, Instant::now()));
            let what = SleepFor::Queue(handle.key);
            return Ok(cancellable_sleep::begin(&handle.domain, what, waiter, left));
        }
        std::hint::spin_loop();
        let may_end = looks.is_multiple_of(LOOKS_UNCANCELLED);
        Ok(if may_end { Next::Sleep(Duration::ZERO) } else { Next::Step })
    })
}

unsafe extern "C" fn signal<P: Provider>(queue: *mut sys::fid_cq) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a completion queue.
        let handle = unsafe { of::<P>(queue) };
        let mut state = handle.domain.lock();
        let queue = closed(state.tables.queues.get_mut(handle.key))?;
        queue.is_signalled = true;
        queue.wake();
        Ok(())
    })
}

/// `fi_cq_readerr`: takes the error entry that is the oldest entry.
unsafe extern "C" fn readerr<P: Provider>(
    queue: *mut sys::fid_cq,
    to: *mut sys::fi_cq_err_entry,
    flags: u64,
) -> isize {
    count_at_once(|| {
        if to.is_null() {
            return Err(Errno::INVALID);
        }
        if flags & !sys::FI_PEEK != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // SAFETY: the caller gives a completion queue.
        let handle = unsafe { of::<P>(queue) };
        let mut state = handle.domain.lock();
        state.progress_unless_reading(handle.key)?;
        let queue = closed(state.tables.queues.get_mut(handle.key))?;
        let entry = *queue.first().ok_or(Errno::AGAIN)?;
        let failure = entry.failure.ok_or(Errno::AGAIN)?;
        if flags & sys::FI_PEEK == 0 {
            queue.pop();
        }
        let version = handle.domain.fabric.api_version;
        // SAFETY: the caller gives an entry of the version that it asked for. Only fields of that
        // version are written.
        unsafe {
            (*to).op_context = entry.context as *mut c_void;
            (*to).flags = entry.flags;
            (*to).len = entry.length;
            (*to).buf = entry.start as *mut c_void;
            (*to).data = entry.data;
            (*to).tag = entry.tag;
            (*to).olen = failure.overflow;
            (*to).err = failure.errno().0;
            (*to).prov_errno = failure.reason;
            if version >= sys::FI_VERSION(1, 5) {
                (*to).err_data_size = 0;
            } else {
                (*to).err_data = std::ptr::null_mut();
            }
            if version >= sys::FI_VERSION(1, 20) {
                (*to.cast::<sys::fi_cq_err_entry_2>()).src_addr = entry.source;
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn strerror<P: Provider>(
    _queue: *mut sys::fid_cq,
    number: c_int,
    _data: *const c_void,
    to: *mut c_char,
    room: usize,
) -> *const c_char {
    let words = P::words(number);
    if !to.is_null() {
        // SAFETY: the caller gives memory with this room.
        unsafe { copy_text(words.to_bytes(), to, room) };
    }
    words.as_ptr()
}
