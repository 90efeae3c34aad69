//! The memory into which a caller reads entries of a completion queue.

use std::ffi::c_void;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys as sys;

use super::entry::Entry;

/// A caller's array of entries, in the format of its queue (fi_cq(3)). While the caller reads, the
/// array has room only as long as no entry waits in the queue: entries keep their order.
pub struct Output {
    /// The queue that the caller reads: the bits of its key.
    queue: u64,
    entry_bytes: usize,
    /// Where the next entry goes.
    to: *mut c_void,
    room: usize,
    taken: usize,
    sources: *mut u64,
}

impl Output {
    /// An array for `room` entries of this size ([`entry_bytes`]), and one for their sources, or
    /// null.
    ///
    /// # Safety
    /// The memory is writable until the value is gone.
    #[inline]
    pub(crate) unsafe fn new(
        queue: Key,
        entry_bytes: usize,
        to: *mut c_void,
        room: usize,
        sources: *mut u64,
    ) -> Self {
        let queue = queue.to_bits();
        Output { queue, entry_bytes, to, room, taken: 0, sources }
    }

    /// Whether the caller reads the queue whose key has these bits.
    #[inline(always)]
    pub(crate) fn is_of(&self, queue: u64) -> bool {
        self.queue == queue
    }

    /// The queue that the caller reads.
    #[inline(always)]
    pub(crate) fn queue(&self) -> Key {
        Key::from_bits(self.queue)
    }

    /// How many entries it has.
    #[inline(always)]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How many further entries it has room for.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether the caller wants the sources of messages.
    #[inline(always)]
    pub(crate) fn tells_sources(&self) -> bool {
        !self.sources.is_null()
    }

    /// Gives the array no further entries, since one waits in the queue, or until
    /// [`Output::reopen`]. Gives the room that there was.
    #[inline]
    pub fn shut(&mut self) -> usize {
        std::mem::take(&mut self.room)
    }

    /// Gives the array the room that [`Output::shut`] has taken.
    pub fn reopen(&mut self, room: usize) {
        self.room = room;
    }

    /// Adds an entry that tells of success. `false`: there is no room.
    #[inline(always)]
    pub fn put(&mut self, entry: &Entry) -> bool {
        if self.room == 0 {
            return false;
        }
        // Field by field: a copy of the whole would have to wait until the fields that it is made
        // of have reached the cache. Each format is the beginning of the next one.
        // SAFETY: by the promise of `new`, there is room for `room` entries and as many sources.
        unsafe {
            let to = self.to.cast::<sys::fi_cq_tagged_entry>();
            self.to = self.to.byte_add(self.entry_bytes);
            (&raw mut (*to).op_context).write_unaligned(entry.context as *mut c_void);
            if self.entry_bytes >= size_of::<sys::fi_cq_msg_entry>() {
                (&raw mut (*to).flags).write_unaligned(entry.flags);
                (&raw mut (*to).len).write_unaligned(entry.length);
            }
            if self.entry_bytes >= size_of::<sys::fi_cq_data_entry>() {
                (&raw mut (*to).buf).write_unaligned(entry.start as *mut c_void);
                (&raw mut (*to).data).write_unaligned(entry.data);
            }
            if self.entry_bytes >= size_of::<sys::fi_cq_tagged_entry>() {
                (&raw mut (*to).tag).write_unaligned(entry.tag);
            }
            if !self.sources.is_null() {
                *self.sources.add(self.taken) = entry.source;
            }
        }
        self.taken += 1;
        self.room -= 1;
        true
    }
}

/// How many bytes an entry of a format has.
pub(crate) fn entry_bytes(format: sys::fi_cq_format) -> usize {
    match format {
        sys::FI_CQ_FORMAT_TAGGED => size_of::<sys::fi_cq_tagged_entry>(),
        sys::FI_CQ_FORMAT_DATA => size_of::<sys::fi_cq_data_entry>(),
        sys::FI_CQ_FORMAT_MSG => size_of::<sys::fi_cq_msg_entry>(),
        _ => size_of::<sys::fi_cq_entry>(),
    }
}
