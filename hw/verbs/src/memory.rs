//! The device's own registered memory: buffers for receiving and sending.

use std::io;
use std::sync::Arc;

use tagmatch_os::memory::Mapping;
use tagmatch_rdma_core_sys as sys;

use super::object::{Mr, Pd, Srq};

/// Buffers that are allocated and registered together.
pub(super) const CHUNK: u32 = 64;

/// Receive buffers that stay posted beyond the needed ones, where the user's memory may take all
/// that the process may lock.
const RESERVE: usize = 16;

/// A block of registered memory, divided into buffers of one length.
pub(super) struct Slab {
    // Drop order: the region is unregistered before the memory is freed.
    mr: Mr,
    memory: Mapping,
    length: usize,
}

impl Slab {
    /// Allocates `count` buffers of `length` bytes, for the device to read and write.
    pub(super) fn new(pd: &Arc<Pd>, length: usize, count: u32) -> io::Result<Self> {
        let memory = Mapping::private(length * count as usize)?;
        let access = sys::IBV_ACCESS_LOCAL_WRITE;
        // SAFETY: the memory is freed after the region, and only this device accesses it.
        let mr = unsafe { Mr::new(pd.clone(), memory.start(), memory.length(), access) }?;
        Ok(Slab { mr, memory, length })
    }

    /// The start of a buffer. It has `length` bytes, which are valid as long as the slab.
    pub(super) fn start(&self, at: u32) -> *mut u8 {
        let offset = at as usize * self.length;
        assert!(offset + self.length <= self.memory.length(), "no buffer has this number");
        // SAFETY: the offset lies inside the memory, as just asserted.
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

/// Numbered buffers of one length in slabs, which are allocated when they are first needed.
struct Slabs {
    slabs: Vec<Slab>,
    pd: Arc<Pd>,
    length: usize,
    /// The numbers of buffers that nothing uses.
    free: Vec<u32>,
    /// Most buffers that are allocated.
    max: u32,
}

impl Slabs {
    fn new(pd: Arc<Pd>, length: usize, max: u32) -> Self {
        Slabs { slabs: Vec::new(), pd, length, free: Vec::new(), max }
    }

    /// Allocates more buffers.
    ///
    /// # Errors
    /// There is no memory for them (`ENOBUFS`: there are as many as there may be).
    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        let first = u32::try_from(self.slabs.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK);
        let count = CHUNK.min(self.max.saturating_sub(first));
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        self.slabs.push(Slab::new(&self.pd, self.length, count)?);
        self.free.extend((first..first + count).rev());
        Ok(())
    }

    /// Whether there is a slab with a buffer of this number.
    fn has(&self, at: u32) -> bool {
        self.slabs.len() > (at / CHUNK) as usize
    }

    /// The start of a buffer: see [`Slab::start`].
    fn start(&self, at: u32) -> *mut u8 {
        self.slabs[(at / CHUNK) as usize].start(at % CHUNK)
    }

    /// The first bytes of a buffer: see [`Slab::part`].
    fn part(&self, at: u32, length: usize) -> sys::ibv_sge {
        self.slabs[(at / CHUNK) as usize].part(at % CHUNK, length)
    }
}

/// The shared receive queue and its buffers. Posted are as many buffers as peers may send messages,
/// plus those for the signals that may come.
pub(super) struct Receives {
    // Drop order: the queue is destroyed before the memory. Nothing is written there once the queue
    // and the queue pairs on it are destroyed.
    srq: Arc<Srq>,
    slabs: Slabs,
    /// The bit in the `wr_id` of its completions.
    kind: u64,
    /// Buffers that are posted, as far as is known.
    queued: usize,
    /// Buffers that must be posted.
    needed: usize,
}

impl Receives {
    /// Creates buffers of `length` bytes for a queue that holds `max`. The bit `kind` is set in
    /// their `wr_id`s.
    pub(super) fn new(pd: Arc<Pd>, srq: Arc<Srq>, kind: u64, length: usize, max: u32) -> Self {
        Receives { srq, slabs: Slabs::new(pd, length, max), kind, queued: 0, needed: 0 }
    }

    pub(super) fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }

    /// Raises the number of needed buffers by `more`. All needed buffers are posted on return.
    ///
    /// # Errors
    /// There is no memory for them. The number isn't raised then.
    pub(super) fn need(&mut self, more: usize) -> io::Result<()> {
        self.fill(self.needed + more)?;
        self.needed += more;
        Ok(())
    }

    /// As [`need`](Self::need), for buffers that connections can do without: it leaves the reserve.
    ///
    /// # Errors
    /// There is no memory for them and the reserve.
    pub(super) fn want(&mut self, more: usize) -> io::Result<()> {
        self.needed += more;
        let kept = self.keep_reserve();
        if kept.is_err() {
            self.needed -= more;
        }
        kept
    }

    /// Makes sure that more buffers are posted than needed, so that connections go on when there is
    /// no memory for further ones.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn keep_reserve(&mut self) -> io::Result<()> {
        self.fill((self.needed + RESERVE).min(self.slabs.max as usize).max(self.needed))
    }

    /// Lowers the number of needed buffers by `fewer`.
    pub(super) fn spare(&mut self, fewer: usize) {
        self.needed = self.needed.saturating_sub(fewer);
    }

    /// The number of needed buffers.
    pub(super) fn needed(&self) -> usize {
        self.needed
    }

    /// Posts buffers until so many are posted.
    fn fill(&mut self, target: usize) -> io::Result<()> {
        while self.queued < target {
            if self.slabs.free.is_empty() {
                self.slabs.grow()?;
            }
            self.post_idle()?;
        }
        Ok(())
    }

    /// Posts all idle buffers.
    pub(super) fn post_idle(&mut self) -> io::Result<()> {
        while let Some(at) = self.slabs.free.pop() {
            let part = self.slabs.part(at, self.slabs.length);
            // SAFETY: the memory is registered, not accessed until the receive completes, and freed
            // after the queue.
            if let Err(error) = unsafe { self.srq.post(self.kind | u64::from(at), part) } {
                self.slabs.free.push(at);
                return Err(error);
            }
            self.queued += 1;
        }
        Ok(())
    }

    /// Takes the number of a completed buffer out of a `wr_id`; `None` if no such buffer exists.
    /// The buffer is free again after [`Receives::give_back`].
    #[inline]
    pub(super) fn received(&mut self, wr_id: u64) -> Option<u32> {
        let at = u32::try_from(wr_id & !self.kind).ok()?;
        self.slabs.has(at).then(|| self.forget_one())?;
        Some(at)
    }

    /// Counts a completed buffer whose number is unknown. It is never used again.
    pub(super) fn forget_one(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }

    /// The bytes of a completed buffer.
    ///
    /// # Safety
    /// The buffer has completed, and isn't given back during `'a`.
    #[inline]
    pub(super) unsafe fn bytes<'a>(&self, at: u32, length: usize) -> &'a [u8] {
        let length = length.min(self.slabs.length);
        // SAFETY: the buffer has this many bytes. The device doesn't write them until the buffer is
        // posted again, which the caller prevents.
        unsafe { std::slice::from_raw_parts(self.slabs.start(at), length) }
    }

    /// A buffer may be used again.
    #[inline]
    pub(super) fn give_back(&mut self, at: u32) {
        self.slabs.free.push(at);
    }

    /// Whether there are enough idle buffers to make posting worthwhile.
    #[inline]
    pub(super) fn is_posting_due(&self) -> bool {
        self.slabs.free.len() >= 8
    }
}

/// Buffers for messages that are too long to be carried inline in a work request. They are
/// allocated when they are first needed.
pub(super) struct SendBuffers(Slabs);

impl SendBuffers {
    pub(super) fn new(pd: Arc<Pd>, length: usize, max: u32) -> Self {
        SendBuffers(Slabs::new(pd, length, max))
    }

    /// Copies a message into a free buffer. Returns its number and the part to send; `None` if no
    /// buffer is free, and there can't be more.
    pub(super) fn fill(&mut self, header: &[u8], payload: &[u8]) -> Option<(u32, sys::ibv_sge)> {
        let length = header.len() + payload.len();
        let slabs = &mut self.0;
        if length > slabs.length {
            return None;
        }
        if slabs.free.is_empty() {
            slabs.grow().ok()?;
        }
        let at = slabs.free.pop()?;
        let start = slabs.start(at);
        // SAFETY: the buffer has room for header and payload, and nothing else uses it.
        unsafe {
            start.copy_from_nonoverlapping(header.as_ptr(), header.len());
            start.add(header.len()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
        Some((at, slabs.part(at, length)))
    }

    /// Makes sure that there are buffers at all.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn keep_some(&mut self) -> io::Result<()> {
        if self.0.slabs.is_empty() { self.0.grow() } else { Ok(()) }
    }

    /// A buffer may be used again.
    pub(super) fn give_back(&mut self, at: u32) {
        self.0.free.push(at);
    }

    /// How many buffers are in use.
    pub(super) fn used(&self) -> usize {
        let Slabs { slabs, free, max, .. } = &self.0;
        (slabs.len() * CHUNK as usize).min(*max as usize).saturating_sub(free.len())
    }
}
