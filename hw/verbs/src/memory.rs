//! Registered memory of the device's own: buffers to receive into, and to send from.

use std::io;
use std::sync::Arc;

use tagmatch_os::memory::Mapping;
use tagmatch_rdma_core_sys as sys;

use super::object::{Mr, Pd, Srq};

/// Buffers that are allocated and registered in one go.
pub(super) const CHUNK: u32 = 64;

/// A run of registered memory, cut into buffers of one length.
pub(super) struct Slab {
    // Before the memory: it is unregistered first.
    mr: Mr,
    memory: Mapping,
    length: usize,
}

impl Slab {
    /// `count` buffers of `length` bytes, for the device to read and write.
    pub(super) fn new(pd: &Arc<Pd>, length: usize, count: u32) -> io::Result<Self> {
        let memory = Mapping::private(length * count as usize)?;
        let access = sys::IBV_ACCESS_LOCAL_WRITE;
        // SAFETY: the memory is dropped after the region, and only this device reaches it.
        let mr = unsafe { Mr::new(pd.clone(), memory.start(), memory.length(), access) }?;
        Ok(Slab { mr, memory, length })
    }

    /// Where a buffer starts. It has `length` bytes, which live as long as the slab.
    pub(super) fn start(&self, at: u32) -> *mut u8 {
        let offset = at as usize * self.length;
        assert!(offset + self.length <= self.memory.length(), "a buffer that isn't there");
        // SAFETY: inside of the memory, as just asserted.
        unsafe { self.memory.start().add(offset) }
    }

    /// The first `length` bytes of a buffer, for a work request.
    pub(super) fn part(&self, at: u32, length: usize) -> sys::ibv_sge {
        sys::ibv_sge {
            addr: self.start(at).expose_provenance() as u64,
            length: u32::try_from(length.min(self.length)).unwrap_or(0),
            lkey: self.mr.lkey(),
        }
    }
}

/// The shared receive queue and its buffers: as many stand in the queue as there are messages that
/// peers may send, plus the signals that are due.
pub(super) struct Receives {
    // Before the memory: nothing is written there once the queue, and the pairs on it, are gone.
    srq: Arc<Srq>,
    slabs: Vec<Slab>,
    pd: Arc<Pd>,
    /// What its completions are known by.
    kind: u64,
    length: usize,
    /// Buffers that are free, but not in the queue.
    idle: Vec<u32>,
    /// Buffers in the queue, as far as is known.
    queued: usize,
    /// Buffers that must be there.
    needed: usize,
    /// Most buffers that the queue takes.
    max: u32,
}

impl Receives {
    /// Buffers of `length` bytes for a queue that holds `max`; `kind` is set in its `wr_id`s.
    pub(super) fn new(pd: Arc<Pd>, srq: Arc<Srq>, kind: u64, length: usize, max: u32) -> Self {
        Receives {
            kind,
            srq,
            slabs: Vec::new(),
            pd,
            length,
            idle: Vec::new(),
            queued: 0,
            needed: 0,
            max,
        }
    }

    pub(super) fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }

    /// How many more are needed than last time; they are in the queue on return.
    ///
    /// # Errors
    /// There is no memory for them. They are not needed then.
    pub(super) fn need(&mut self, more: usize) -> io::Result<()> {
        self.needed += more;
        let filled = self.fill();
        if filled.is_err() {
            self.needed -= more;
        }
        filled
    }

    /// So many are not needed any more.
    pub(super) fn spare(&mut self, fewer: usize) {
        self.needed = self.needed.saturating_sub(fewer);
    }

    /// How many are needed now.
    pub(super) fn needed(&self) -> usize {
        self.needed
    }

    /// Puts buffers into the queue until all that are needed are there.
    fn fill(&mut self) -> io::Result<()> {
        while self.queued < self.needed {
            if self.idle.is_empty() {
                self.grow()?;
            }
            self.post_idle()?;
        }
        Ok(())
    }

    /// Puts all idle buffers into the queue.
    pub(super) fn post_idle(&mut self) -> io::Result<()> {
        while let Some(at) = self.idle.pop() {
            let slab = &self.slabs[(at / CHUNK) as usize];
            let part = slab.part(at % CHUNK, self.length);
            // SAFETY: registered memory that nobody looks at until its completion, and that is freed
            // after the queue.
            if let Err(error) = unsafe { self.srq.post(self.kind | u64::from(at), part) } {
                self.idle.push(at);
                return Err(error);
            }
            self.queued += 1;
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        let first = u32::try_from(self.slabs.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK);
        if first.saturating_add(CHUNK) > self.max {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        self.slabs.push(Slab::new(&self.pd, self.length, CHUNK)?);
        self.idle.extend((first..first + CHUNK).rev());
        Ok(())
    }

    /// A buffer came back filled: `None` if there is no such one. It is idle after
    /// [`Receives::give_back`].
    #[inline]
    pub(super) fn received(&mut self, wr_id: u64) -> Option<u32> {
        let at = u32::try_from(wr_id & !self.kind).ok()?;
        self.slabs.get((at / CHUNK) as usize)?;
        self.queued = self.queued.saturating_sub(1);
        Some(at)
    }

    /// A buffer came back, but which one can't be told.
    pub(super) fn lose_one(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }

    /// The bytes of a buffer that came back.
    ///
    /// # Safety
    /// It came back, and is not given back for `'a`.
    #[inline]
    pub(super) unsafe fn bytes<'a>(&self, at: u32, length: usize) -> &'a [u8] {
        let slab = &self.slabs[(at / CHUNK) as usize];
        let length = length.min(self.length);
        // SAFETY: so many bytes start there; the device doesn't write them until the buffer is posted
        // again, which is the caller's to prevent.
        unsafe { std::slice::from_raw_parts(slab.start(at % CHUNK), length) }
    }

    /// A buffer may be used again.
    #[inline]
    pub(super) fn give_back(&mut self, at: u32) {
        self.idle.push(at);
    }

    /// Whether there are enough idle buffers to bother the queue with.
    #[inline]
    pub(super) fn is_posting_due(&self) -> bool {
        self.idle.len() >= 8
    }
}

/// Buffers for messages that are too long to be carried in a work request.
pub(super) struct SendBuffers {
    slab: Slab,
    free: Vec<u32>,
}

impl SendBuffers {
    pub(super) fn new(pd: &Arc<Pd>, length: usize, count: u32) -> io::Result<Self> {
        let slab = Slab::new(pd, length, count)?;
        Ok(SendBuffers { slab, free: (0..count).rev().collect() })
    }

    /// Copies a message into a free buffer, if there is one: which, and the part to send.
    pub(super) fn fill(&mut self, header: &[u8], payload: &[u8]) -> Option<(u32, sys::ibv_sge)> {
        let length = header.len() + payload.len();
        if length > self.slab.length {
            return None;
        }
        let at = self.free.pop()?;
        let start = self.slab.start(at);
        // SAFETY: the buffer has room for both, and is nobody's else.
        unsafe {
            start.copy_from_nonoverlapping(header.as_ptr(), header.len());
            start.add(header.len()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
        Some((at, self.slab.part(at, length)))
    }

    /// A buffer may be used again.
    pub(super) fn give_back(&mut self, at: u32) {
        self.free.push(at);
    }
}
