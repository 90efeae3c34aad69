//! The memory into which a caller reads entries of a completion queue.

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;

use super::entry::Entry;

/// A caller's array of entries, in the format of its queue (fi_cq(3)).
pub(crate) struct Output {
    to: *mut c_void,
    room: usize,
    sources: *mut u64,
    format: sys::fi_cq_format,
    taken: usize,
}

impl Output {
    /// An array for `room` entries of `format`, and one for their sources, or null.
    ///
    /// # Safety
    /// The memory is writable until the value is gone.
    #[inline]
    pub(crate) unsafe fn new(
        to: *mut c_void,
        room: usize,
        sources: *mut u64,
        format: sys::fi_cq_format,
    ) -> Self {
        Output { to, room, sources, format, taken: 0 }
    }

    /// How many entries it has.
    #[inline]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How many further entries it has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.room - self.taken
    }

    /// Whether it has room for no further entry.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.taken == self.room
    }

    /// Adds an entry. `false`: there is no room.
    #[inline]
    pub(crate) fn put(&mut self, entry: &Entry) -> bool {
        if self.is_full() {
            return false;
        }
        let format = self.format;
        // Field by field: a copy of the whole would have to wait until the fields that it is made
        // of have reached the cache. Each format is the beginning of the next one.
        // SAFETY: by the promise of `new`, there is room for `room` entries and as many sources.
        unsafe {
            let to = self.to.byte_add(self.taken * size_of_format(format));
            let to = to.cast::<sys::fi_cq_tagged_entry>();
            (&raw mut (*to).op_context).write_unaligned(entry.context as *mut c_void);
            if format >= sys::FI_CQ_FORMAT_MSG {
                (&raw mut (*to).flags).write_unaligned(entry.flags);
                (&raw mut (*to).len).write_unaligned(entry.length);
            }
            if format >= sys::FI_CQ_FORMAT_DATA {
                (&raw mut (*to).buf).write_unaligned(entry.start as *mut c_void);
                (&raw mut (*to).data).write_unaligned(entry.data);
            }
            if format >= sys::FI_CQ_FORMAT_TAGGED {
                (&raw mut (*to).tag).write_unaligned(entry.tag);
            }
            if !self.sources.is_null() {
                *self.sources.add(self.taken) = entry.source;
            }
        }
        self.taken += 1;
        true
    }
}

#[inline]
fn size_of_format(format: sys::fi_cq_format) -> usize {
    match format {
        sys::FI_CQ_FORMAT_MSG => size_of::<sys::fi_cq_msg_entry>(),
        sys::FI_CQ_FORMAT_DATA => size_of::<sys::fi_cq_data_entry>(),
        sys::FI_CQ_FORMAT_TAGGED => size_of::<sys::fi_cq_tagged_entry>(),
        _ => size_of::<sys::fi_cq_entry>(),
    }
}
