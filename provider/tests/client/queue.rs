//! Completion queues.

use std::ffi::{CStr, c_void};
use std::ptr;

use super::domain::{close, control};
use super::{Code, Domain, call, code, sys};

/// How a queue is opened.
#[derive(Clone, Copy)]
pub(crate) struct QueueSettings {
    pub(crate) format: sys::fi_cq_format,
    pub(crate) wait: sys::fi_wait_obj,
    pub(crate) condition: sys::fi_cq_wait_cond,
    pub(crate) size: usize,
    pub(crate) flags: u64,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait: sys::FI_WAIT_NONE,
            condition: sys::FI_CQ_COND_NONE,
            size: 0,
            flags: 0,
        }
    }
}

/// A completion queue.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) queue: *mut sys::fid_cq,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Queue {}
// SAFETY: as for `Send`.
unsafe impl Sync for Queue {}

/// What an entry tells. `failure` is 0 for the entry of an operation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) length: usize,
    pub(crate) start: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) source: u64,
    /// The error number.
    pub(crate) failure: i32,
    /// The bytes that were dropped.
    pub(crate) overflow: usize,
    /// The provider's own error number.
    pub(crate) reason: i32,
}

impl Entry {
    fn of(entry: &sys::fi_cq_tagged_entry, source: u64) -> Self {
        Entry {
            context: entry.op_context as usize,
            flags: entry.flags,
            length: entry.len,
            start: entry.buf as usize,
            data: entry.data,
            tag: entry.tag,
            source,
            failure: 0,
            overflow: 0,
            reason: 0,
        }
    }
}

impl Queue {
    pub(crate) fn open(domain: Domain, settings: QueueSettings) -> Result<Self, i32> {
        let mut attributes = sys::fi_cq_attr {
            size: settings.size,
            flags: settings.flags,
            format: settings.format,
            wait_obj: settings.wait,
            wait_cond: settings.condition,
            ..sys::fi_cq_attr::zeroed()
        };
        let functions = domain.functions();
        let mut queue = ptr::null_mut();
        let domain = domain.domain;
        let context = ptr::null_mut();
        code(call!(functions, cq_open(domain, &raw mut attributes, &raw mut queue, context)))?;
        Ok(Queue { queue })
    }

    pub(crate) fn functions(&self) -> *mut sys::fi_ops_cq {
        // SAFETY: the provider gave the queue.
        unsafe { (*self.queue).ops }
    }

    /// Makes progress on the endpoints of this queue, and takes no entry.
    pub(crate) fn progress(&self) {
        let read = code(call!(self.functions(), read(self.queue, ptr::null_mut(), 0)));
        assert!(matches!(read, Ok(0) | Err(sys::FI_EAGAIN | sys::FI_EAVAIL)), "{read:?}");
    }

    /// Reads entries of any format into `to`.
    pub(crate) fn read<T>(&self, to: &mut [T]) -> Code {
        let room = to.as_mut_ptr().cast::<c_void>();
        let count = to.len();
        code(call!(self.functions(), read(self.queue, room, count)))
    }

    /// Reads an entry of a queue in the format `FI_CQ_FORMAT_TAGGED`, whether it tells of success
    /// or of failure.
    pub(crate) fn poll(&self) -> Option<Entry> {
        let mut entry = sys::fi_cq_tagged_entry::zeroed();
        let to = (&raw mut entry).cast();
        let mut source = 0x5555;
        match code(call!(self.functions(), readfrom(self.queue, to, 1, &raw mut source))) {
            Ok(1) => Some(Entry::of(&entry, source)),
            Err(sys::FI_EAGAIN) => None,
            Err(sys::FI_EAVAIL) => Some(self.read_error(0).expect("there is an error entry")),
            other => panic!("fi_cq_readfrom: {other:?}"),
        }
    }

    /// Takes, or with `FI_PEEK` reads, the error entry that is the oldest entry.
    pub(crate) fn read_error(&self, flags: u64) -> Result<Entry, i32> {
        let mut entry = sys::fi_cq_err_entry_2::zeroed();
        let to = (&raw mut entry).cast();
        let read = code(call!(self.functions(), readerr(self.queue, to, flags)))?;
        assert_eq!(read, 1);
        let sys::fi_cq_err_entry_2 { common: error, src_addr, .. } = entry;
        assert_ne!(error.err, 0, "an error entry has an error number");
        Ok(Entry {
            context: error.op_context as usize,
            flags: error.flags,
            length: error.len,
            start: error.buf as usize,
            data: error.data,
            tag: error.tag,
            source: src_addr,
            failure: error.err,
            overflow: error.olen,
            reason: error.prov_errno,
        })
    }

    /// Reads an entry, and blocks for at most so long; a negative number stands for ever.
    pub(crate) fn sread(&self, timeout_ms: i32) -> Result<Entry, i32> {
        let mut entry = sys::fi_cq_tagged_entry::zeroed();
        let to = (&raw mut entry).cast();
        let mut source = 0x5555;
        let from = &raw mut source;
        let condition = ptr::null();
        let read =
            call!(self.functions(), sreadfrom(self.queue, to, 1, from, condition, timeout_ms));
        code(read).map(|_| Entry::of(&entry, source))
    }

    /// Reads as many entries as there is room for, once `threshold` entries are there, and blocks
    /// for at most so long.
    pub(crate) fn sread_several<T>(&self, to: &mut [T], threshold: usize, timeout_ms: i32) -> Code {
        let room = to.as_mut_ptr().cast::<c_void>();
        let count = to.len();
        let condition = ptr::without_provenance(threshold);
        code(call!(self.functions(), sread(self.queue, room, count, condition, timeout_ms)))
    }

    pub(crate) fn signal(&self) -> Code {
        code(call!(self.functions(), signal(self.queue)))
    }

    /// The words for the provider's own error number.
    pub(crate) fn words(&self, reason: i32) -> String {
        let mut room = [1; 200];
        let data = ptr::null();
        let to = room.as_mut_ptr();
        let words = call!(self.functions(), strerror(self.queue, reason, data, to, room.len()));
        // SAFETY: the provider gives a string, and has written one to `room`.
        let (given, copied) = unsafe { (CStr::from_ptr(words), CStr::from_ptr(room.as_ptr())) };
        assert_eq!(given, copied);
        given.to_str().expect("words").into()
    }

    /// The file descriptor of a queue with `FI_WAIT_FD`.
    pub(crate) fn descriptor(&self) -> Result<i32, i32> {
        let mut descriptor = -1;
        control(self.queue.cast(), sys::FI_GETWAIT, &raw mut descriptor).map(|_| descriptor)
    }

    pub(crate) fn close(&self) -> Code {
        close(self.queue.cast())
    }
}
