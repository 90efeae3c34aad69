//! What the device has beside the objects that the program knows of: a completion queue of our own, and
//! the memory into which messages arrive.

use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

use tagmatch_rdma_core_sys::{self as sys, Verbs};

/// The pointer, or what `errno` says.
pub(crate) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A completion queue that the program doesn't see, with its channel.
pub(crate) struct HiddenCq {
    verbs: &'static Verbs,
    raw: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
}

// SAFETY: libibverbs' objects belong to no thread.
unsafe impl Send for HiddenCq {}
// SAFETY: its calls may come from any, several at once.
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
        // SAFETY: alive.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    /// Takes the events that came; `false` if none did.
    pub(crate) fn take_events(&self) -> bool {
        let (mut cq, mut context): (_, *mut c_void) = (null_mut(), null_mut());
        let mut has_come = false;
        // SAFETY: the channel is alive and its descriptor doesn't block; events are acknowledged to the
        // queue that they name.
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

/// Registered memory in parts of equal size: `count` for messages, then `fins` for FINs.
pub(crate) struct Bounce {
    verbs: &'static Verbs,
    mr: NonNull<sys::ibv_mr>,
    memory: NonNull<u8>,
    length: usize,
    part: usize,
    fins_at: usize,
}

/// Bytes between the places of two FINs.
const FIN_STEP: usize = 64;

// SAFETY: memory and registration belong to no thread; the device writes and reads only parts that it
// was given.
unsafe impl Send for Bounce {}

impl Bounce {
    /// # Safety
    /// The protection domain is alive, and outlives what is made.
    pub(crate) unsafe fn new(
        verbs: &'static Verbs,
        pd: *mut sys::ibv_pd,
        (count, bytes): (u32, u32),
        fins: u32,
    ) -> io::Result<Self> {
        let part = (bytes as usize).next_multiple_of(64);
        let fins_at = part * count as usize;
        let length = fins_at + FIN_STEP * fins as usize;
        // SAFETY: new memory, unmapped below if it can't be registered, else when it is dropped.
        unsafe {
            let memory = libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let access = sys::IBV_ACCESS_LOCAL_WRITE.cast_signed();
            match made((verbs.ibv_reg_mr)(pd, memory, length, access)) {
                Ok(mr) => {
                    let memory = NonNull::new_unchecked(memory.cast());
                    Ok(Bounce { verbs, mr, memory, length, part, fins_at })
                }
                Err(error) => {
                    libc::munmap(memory, length);
                    Err(error)
                }
            }
        }
    }

    fn segment(&self, offset: usize, length: usize) -> sys::ibv_sge {
        debug_assert!(offset + length <= self.length);
        let length = u32::try_from(length).unwrap_or(0);
        // SAFETY: the registration is alive.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        sys::ibv_sge { addr: self.memory.addr().get() as u64 + offset as u64, length, lkey }
    }

    /// A place for a message, as the device is told of it.
    pub(crate) fn message_segment(&self, index: u32) -> sys::ibv_sge {
        self.segment(self.part * index as usize, self.part)
    }

    /// What is in a place for a message; nothing if there is no such place.
    ///
    /// # Safety
    /// The device has given the place back.
    pub(crate) unsafe fn message(&self, index: u32) -> &[u8] {
        let offset = self.part * index as usize;
        if offset >= self.fins_at {
            return &[];
        }
        // SAFETY: a part of our memory, which nobody writes now.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(offset), self.part) }
    }

    /// Writes a FIN into its place, as the device is told of it.
    pub(crate) fn write_fin(&mut self, index: u32, bytes: &[u8]) -> sys::ibv_sge {
        let offset = self.fins_at + FIN_STEP * index as usize;
        assert!(offset + FIN_STEP <= self.length && bytes.len() <= FIN_STEP);
        // SAFETY: a part of our memory whose last FIN has been sent.
        unsafe {
            let place = self.memory.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        self.segment(offset, bytes.len())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the queues that used it are gone.
        unsafe {
            (self.verbs.ibv_dereg_mr)(self.mr.as_ptr());
            libc::munmap(self.memory.as_ptr().cast(), self.length);
        }
    }
}
