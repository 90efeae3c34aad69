//! Event queues: fi_eq(3). Providers have no events of their own here; a program may write some.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, copy_text, count, enter, head, table};
use tagmatch_ofi_sys::sleeping::{Next, sleeping};
use tagmatch_ofi_sys::stub::closable;

use crate::handle::{FabricObject, Object};
use crate::parent::Fabric;
use crate::policy::Provider;

/// Most events that a program may have written and not read.
const EVENTS_MAX: usize = 1 << 16;
/// Longest event that a program may write, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 16;

/// Held by an object that an event queue is bound to, until the object is closed.
pub(crate) type EventsBound = Arc<()>;

struct Event {
    number: u32,
    content: Vec<u8>,
}

struct EventQueue<P: Provider> {
    fabric: Arc<Fabric<P>>,
    /// The program may write events (`FI_WRITE`).
    is_writable: bool,
    /// The endpoints and domains that it is bound to have copies.
    bound: EventsBound,
    /// `None`: it is closed.
    events: Mutex<Option<VecDeque<Event>>>,
}

type EventsObject<P> = Object<sys::fid_eq, EventQueue<P>>;

const fn functions<P: Provider>() -> &'static sys::fi_ops_eq {
    const {
        &sys::fi_ops_eq {
            size: size_of::<sys::fi_ops_eq>(),
            read: Some(read::<P>),
            readerr: Some(readerr),
            write: Some(write::<P>),
            sread: Some(sread::<P>),
            strerror: Some(strerror),
        }
    }
}

impl<P: Provider> EventQueue<P> {
    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    fabric: *mut sys::fid_fabric,
    attributes: *mut sys::fi_eq_attr,
    queue: *mut *mut sys::fid_eq,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if queue.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a fabric, and attributes or none.
        let (fabric, attributes) = unsafe { (FabricObject::<P>::of(fabric), attributes.as_ref()) };
        if fabric.is_closed.load(Ordering::Relaxed) {
            return Err(Errno::CLOSED);
        }
        let flags = attributes.map_or(0, |attributes| attributes.flags);
        if flags & !(sys::FI_WRITE | sys::FI_AFFINITY) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let waits = [sys::FI_WAIT_NONE, sys::FI_WAIT_UNSPEC, sys::FI_WAIT_YIELD];
        if attributes.is_some_and(|attributes| !waits.contains(&attributes.wait_obj)) {
            return Err(Errno::NO_SYSTEM_CALL);
        }
        fabric.children.fetch_add(1, Ordering::Relaxed);
        let fid = head(sys::FI_CLASS_EQ, context, const { &closable(close::<P>) });
        let object = sys::fid_eq { fid, ops: table(functions::<P>()) };
        let inner = EventQueue {
            fabric: fabric.clone(),
            is_writable: flags & sys::FI_WRITE != 0,
            bound: EventsBound::default(),
            events: Mutex::new(Some(VecDeque::new())),
        };
        // SAFETY: the caller gives a place for the queue.
        unsafe { *queue = EventsObject::into_raw(object, inner) };
        Ok(())
    })
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes an event queue.
        let handle = unsafe { EventsObject::<P>::of(fid.cast()) };
        let mut events = handle.lock();
        if events.is_some() && Arc::strong_count(&handle.bound) > 1 {
            return Err(Errno::BUSY);
        }
        events.take().ok_or(Errno::CLOSED)?;
        drop(events);
        handle.fabric.children.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was not closed before.
        unsafe { EventsObject::<P>::close(fid) };
        Ok(())
    })
}

/// A mark that an object of this fabric holds while the event queue is bound to the object.
///
/// # Safety
/// `queue` is an event queue.
pub(crate) unsafe fn bound_to<P: Provider>(
    queue: *mut sys::fid_eq,
    fabric: &Arc<Fabric<P>>,
) -> Result<EventsBound> {
    // SAFETY: the caller's promise.
    let handle = unsafe { EventsObject::<P>::of(queue) };
    let events = handle.lock();
    if events.is_none() {
        return Err(Errno::CLOSED);
    }
    if !Arc::ptr_eq(&handle.fabric, fabric) {
        return Err(Errno::INVALID);
    }
    Ok(handle.bound.clone())
}

/// Whether no event waits.
///
/// # Safety
/// `queue` is an event queue.
pub(crate) unsafe fn is_empty<P: Provider>(queue: *mut sys::fid_eq) -> bool {
    // SAFETY: the caller's promise.
    unsafe { EventsObject::<P>::of(queue) }.lock().as_ref().is_none_or(VecDeque::is_empty)
}

/// # Safety
/// As fi_eq_read(3) asks.
unsafe fn take<P: Provider>(
    queue: *mut sys::fid_eq,
    event: *mut u32,
    to: *mut c_void,
    room: usize,
    flags: u64,
) -> Result<usize> {
    if flags & !sys::FI_PEEK != 0 {
        return Err(Errno::BAD_FLAGS);
    }
    // SAFETY: the caller gives an event queue.
    let mut events = unsafe { EventsObject::<P>::of(queue) }.lock();
    let events = events.as_mut().ok_or(Errno::CLOSED)?;
    let first = events.front().ok_or(Errno::AGAIN)?;
    if room < first.content.len() {
        return Err(Errno::TOO_SMALL);
    }
    if event.is_null() || (to.is_null() && !first.content.is_empty()) {
        return Err(Errno::INVALID);
    }
    let length = first.content.len();
    // SAFETY: the caller gives a place for the number, and memory with enough room.
    unsafe {
        *event = first.number;
        std::ptr::copy_nonoverlapping(first.content.as_ptr(), to.cast(), length);
    }
    if flags & sys::FI_PEEK == 0 {
        events.pop_front();
    }
    Ok(length)
}

unsafe extern "C" fn read<P: Provider>(
    queue: *mut sys::fid_eq,
    event: *mut u32,
    to: *mut c_void,
    room: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller keeps the promises of fi_eq(3).
    count(|| unsafe { take::<P>(queue, event, to, room, flags) })
}

/// The sleep between two looks of a blocking read.
const PAUSE: Duration = Duration::from_micros(100);

unsafe extern "C-unwind" fn sread<P: Provider>(
    queue: *mut sys::fid_eq,
    event: *mut u32,
    to: *mut c_void,
    room: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let began = Instant::now();
    sleeping(|_| {
        // SAFETY: the caller keeps the promises of fi_eq(3).
        let taken = unsafe { take::<P>(queue, event, to, room, flags) };
        let is_over = limit.is_some_and(|limit| began.elapsed() >= limit);
        if taken == Err(Errno::AGAIN) && !is_over {
            return Ok(Next::Sleep(PAUSE));
        }
        taken.map(Next::Answer)
    })
}

/// There are no error events.
unsafe extern "C" fn readerr(
    _queue: *mut sys::fid_eq,
    _entry: *mut sys::fi_eq_err_entry,
    _flags: u64,
) -> isize {
    enter(|| Err(Errno::AGAIN))
}

unsafe extern "C" fn write<P: Provider>(
    queue: *mut sys::fid_eq,
    number: u32,
    from: *const c_void,
    length: usize,
    flags: u64,
) -> isize {
    count(|| {
        if flags != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        if length > EVENT_BYTES_MAX || (from.is_null() && length > 0) {
            return Err(Errno::INVALID);
        }
        let mut content = vec![0; length];
        // SAFETY: the caller gives `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), content.as_mut_ptr(), length) };
        // SAFETY: the caller gives an event queue.
        let handle = unsafe { EventsObject::<P>::of(queue) };
        let mut events = handle.lock();
        let events = events.as_mut().ok_or(Errno::CLOSED)?;
        if !handle.is_writable {
            return Err(Errno::INVALID);
        }
        if events.len() >= EVENTS_MAX {
            return Err(Errno::AGAIN);
        }
        events.push_back(Event { number, content });
        Ok(length)
    })
}

unsafe extern "C" fn strerror(
    _queue: *mut sys::fid_eq,
    _number: c_int,
    _data: *const c_void,
    to: *mut c_char,
    room: usize,
) -> *const c_char {
    if !to.is_null() {
        // SAFETY: the caller gives memory with this room.
        unsafe { copy_text(b"no error", to, room) };
    }
    c"no error".as_ptr()
}
