//! The functions of a completion queue: fi_cq(3).

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, copy_text, count, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use super::object::{DomainObject, Object, OpenedQueue, QueueObject};
use crate::queue::{Entry, Queue};

static HEAD: sys::fi_ops = sys::fi_ops { control: Some(control), ..closable(close) };

static QUEUE: sys::fi_ops_cq = sys::fi_ops_cq {
    size: size_of::<sys::fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Stub::STUB,
    sreadfrom: Stub::STUB,
    signal: Stub::STUB,
    strerror: Some(strerror),
};

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_cq_attr,
    queue: *mut *mut sys::fid_cq,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || queue.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain, attributes, and a place for the queue.
        unsafe {
            let format = match (*attributes).format {
                sys::FI_CQ_FORMAT_UNSPEC => sys::FI_CQ_FORMAT_CONTEXT,
                known @ sys::FI_CQ_FORMAT_CONTEXT..=sys::FI_CQ_FORMAT_TAGGED => known,
                _ => return Err(Errno::INVALID),
            };
            let has_descriptor = match (*attributes).wait_obj {
                sys::FI_WAIT_NONE => false,
                sys::FI_WAIT_UNSPEC | sys::FI_WAIT_FD => true,
                _ => return Err(Errno::NO_SYSTEM_CALL),
            };
            (*attributes).format = format;
            let inner = Queue::new(has_descriptor).map_err(|_| Errno::NO_MEMORY)?;
            let domain = DomainObject::of(domain).clone();
            let fid = head(sys::FI_CLASS_CQ, context, &HEAD);
            let object = sys::fid_cq { fid, ops: table(&QUEUE) };
            let opened = OpenedQueue { queue: Arc::new(inner), domain, format };
            *queue = Object::into_raw(object, Arc::new(opened));
        }
        Ok(())
    })
}

/// The completion queue that a pointer of libfabric belongs to.
///
/// # Safety
/// [`open`] gave the pointer.
pub(crate) unsafe fn of<'a>(queue: *mut sys::fid_cq) -> &'a OpenedQueue {
    // SAFETY: the caller's promise.
    unsafe { QueueObject::of(queue) }
}

/// Whether the caller may sleep on the descriptor.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn may_sleep(queue: *mut sys::fid_cq) -> bool {
    // SAFETY: the caller's promise.
    unsafe { of(queue) }.queue.may_sleep()
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes a completion queue.
    enter(|| unsafe {
        if of(fid.cast()).queue.is_bound() {
            return Err(Errno::BUSY);
        }
        QueueObject::close(fid)
    })
}

/// `fi_control`: `FI_GETWAIT` gives the descriptor.
unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    enter(|| {
        if command != sys::FI_GETWAIT || argument.is_null() {
            return Err(Errno::NO_SYSTEM_CALL);
        }
        // SAFETY: the caller gives a completion queue, and for this command an integer.
        unsafe {
            let descriptor = of(fid.cast()).queue.descriptor().ok_or(Errno::NO_SYSTEM_CALL)?;
            *argument.cast::<c_int>() = descriptor.as_raw_fd();
        }
        Ok(())
    })
}

unsafe extern "C" fn read(queue: *mut sys::fid_cq, to: *mut c_void, room: usize) -> isize {
    // SAFETY: the caller gives a completion queue, and room for the entries.
    unsafe { readfrom(queue, to, room, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut sys::fid_cq,
    to: *mut c_void,
    room: usize,
    sources: *mut u64,
) -> isize {
    count(|| {
        if to.is_null() && room > 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a completion queue.
        let opened = unsafe { of(queue) };
        opened.queue.progress();
        opened.queue.read(room, |index, entry| {
            // SAFETY: the caller gives room for `room` entries of the queue's format, and for as
            // many sources or none.
            unsafe {
                write(opened.format, to, index, entry);
                if !sources.is_null() {
                    *sources.add(index) = entry.source;
                }
            }
        })
    })
}

/// Writes an entry.
///
/// # Safety
/// `to` has room for `index + 1` entries of this format.
unsafe fn write(format: sys::fi_cq_format, to: *mut c_void, index: usize, entry: &Entry) {
    let completion = &entry.completion;
    let tagged = sys::fi_cq_tagged_entry {
        op_context: std::ptr::with_exposed_provenance_mut(completion.context),
        flags: completion.flags,
        len: completion.length,
        buf: std::ptr::with_exposed_provenance_mut(completion.start),
        data: completion.data,
        tag: completion.tag,
    };
    let length = match format {
        sys::FI_CQ_FORMAT_TAGGED => size_of::<sys::fi_cq_tagged_entry>(),
        sys::FI_CQ_FORMAT_DATA => size_of::<sys::fi_cq_data_entry>(),
        sys::FI_CQ_FORMAT_MSG => size_of::<sys::fi_cq_msg_entry>(),
        _ => size_of::<sys::fi_cq_entry>(),
    };
    // SAFETY: the caller's promise. A shorter format is the beginning of a longer one (fi_cq(3)).
    unsafe {
        let from = (&raw const tagged).cast::<u8>();
        std::ptr::copy_nonoverlapping(from, to.cast::<u8>().add(index * length), length);
    }
}

/// `fi_cq_readerr`: takes the failure that is the oldest entry.
unsafe extern "C" fn readerr(
    queue: *mut sys::fid_cq,
    to: *mut sys::fi_cq_err_entry,
    _flags: u64,
) -> isize {
    count(|| {
        if to.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a completion queue, and an entry of the version that it asked
        // for.
        unsafe {
            let opened = of(queue);
            let Entry { completion, source } = opened.queue.take_failure()?;
            let failure = completion.failure.ok_or(Errno::AGAIN)?;
            (*to).op_context = std::ptr::with_exposed_provenance_mut(completion.context);
            (*to).flags = completion.flags;
            (*to).len = completion.length;
            (*to).buf = std::ptr::with_exposed_provenance_mut(completion.start);
            (*to).data = completion.data;
            (*to).tag = completion.tag;
            (*to).olen = failure.overflow;
            (*to).err = failure.errno.0;
            (*to).prov_errno = failure.errno.0;
            (*to).err_data_size = 0;
            if opened.domain.fabric.api_version >= sys::FI_VERSION(1, 20) {
                (*to.cast::<sys::fi_cq_err_entry_2>()).src_addr = source;
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn strerror(
    _queue: *mut sys::fid_cq,
    _number: c_int,
    _data: *const c_void,
    to: *mut c_char,
    room: usize,
) -> *const c_char {
    let words = c"see the error number of libfabric";
    if !to.is_null() {
        // SAFETY: the caller gives memory with this room.
        unsafe { copy_text(words.to_bytes(), to, room) };
    }
    words.as_ptr()
}
