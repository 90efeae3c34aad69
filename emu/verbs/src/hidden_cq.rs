//! A completion queue of the emulator's own, which the program doesn't see.

use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

use tagmatch_rdma_core_sys::{self as sys, Verbs};

use crate::error::made;

/// A completion queue that the program doesn't see, with its channel.
pub(crate) struct HiddenCq {
    verbs: &'static Verbs,
    raw: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
}

// SAFETY: libibverbs' objects belong to no thread.
unsafe impl Send for HiddenCq {}
// SAFETY: libibverbs' calls may come from several threads at once.
unsafe impl Sync for HiddenCq {}

impl HiddenCq {
    /// # Safety
    /// The context is open, and outlives what is made.
    pub(crate) unsafe fn new(
        verbs: &'static Verbs,
        context: *mut sys::ibv_context,
        entries: i32,
    ) -> io::Result<Self> {
        // SAFETY: the context is open; the queue keeps its channel.
        unsafe {
            let channel = made((verbs.ibv_create_comp_channel)(context))?;
            let raw = (verbs.ibv_create_cq)(context, entries, null_mut(), channel.as_ptr(), 0);
            match made(raw) {
                Ok(raw) => {
                    let fd = (*channel.as_ptr()).fd;
                    let flags = libc::fcntl(fd, libc::F_GETFL);
                    libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
                    Ok(HiddenCq { verbs, raw, channel })
                }
                Err(error) => {
                    (verbs.ibv_destroy_comp_channel)(channel.as_ptr());
                    Err(error)
                }
            }
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }

    /// The descriptor that becomes readable at an event.
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: the channel is alive as long as `self`.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    /// Takes all events from the channel; `false` if there was none.
    pub(crate) fn take_events(&self) -> bool {
        let (mut cq, mut context): (_, *mut c_void) = (null_mut(), null_mut());
        let mut has_come = false;
        // SAFETY: the channel is alive and its descriptor doesn't block; events are acknowledged to
        // the queue that they name.
        unsafe {
            let take = self.verbs.ibv_get_cq_event;
            while take(self.channel.as_ptr(), &raw mut cq, &raw mut context) == 0 {
                (self.verbs.ibv_ack_cq_events)(cq, 1);
                has_come = true;
            }
        }
        has_come
    }
}

impl Drop for HiddenCq {
    fn drop(&mut self) {
        // SAFETY: made in `new`; queue pairs and shared receive queues that use it are gone.
        unsafe {
            (self.verbs.ibv_destroy_cq)(self.raw.as_ptr());
            (self.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}
