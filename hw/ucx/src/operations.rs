//! Operations under way, and the callbacks by which UCX reports their ends.
//!
//! UCX calls back from inside its own functions. A callback writes to its operation, whose memory
//! never moves, and appends the operation to a list. It does nothing else: it calls no function
//! that could panic, and none of UCX or of the device. [`Ucx::poll`](super::Ucx) takes operations
//! off the list.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_ucx_sys as sys;

use super::registration::{Context, Registration};

/// Operations that are allocated at a time.
const CHUNK: u32 = 256;
/// Most operations under way.
const OPERATIONS_MAX: u32 = 1 << 24;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A receive that discards a message.
    Discard,
}

/// Why a receive is being cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Canceller {
    Nobody,
    /// The caller asked for it, or the device is closing.
    Caller,
    /// The peer that the receive names has ended.
    PeersEnd,
}

/// One operation. UCX owns its buffer until it has ended.
pub(super) struct Operation {
    pub(super) kind: Cell<Kind>,
    pub(super) token: Cell<u64>,
    /// The peer that the operation depends on: the receiver of a send, the sender that a receive
    /// names.
    pub(super) peer: Cell<Option<PeerId>>,
    /// Of a send: the tag on the wire, once it is known; and whether the send ends when it is
    /// matched.
    pub(super) tag: Cell<u64>,
    pub(super) is_synchronous: Cell<bool>,
    pub(super) immediate: Cell<Option<u32>>,
    pub(super) buffer: Cell<Buffer>,
    memory: Cell<(*mut c_void, usize)>,
    /// The registration of the buffer's memory, or null.
    registration: Cell<*const Registration>,
    /// UCX's request, to be freed when the operation has ended.
    pub(super) request: Cell<*mut c_void>,
    pub(super) cancelled_by: Cell<Canceller>,

    pub(super) has_ended: Cell<bool>,
    pub(super) status: Cell<sys::ucs_status_t>,
    pub(super) length: Cell<usize>,

    index: u32,
    next: Cell<*const Operation>,
    ends: NonNull<Ends>,
}

/// The index of a slot of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Index(u32);

/// The list of ended operations, first to last, and whether an endpoint has failed.
pub(super) struct Ends {
    first: Cell<*const Operation>,
    last: Cell<*const Operation>,
    /// An endpoint has failed since the last look at this flag.
    pub(super) faults: Cell<u32>,
}

/// The argument of the callback for an endpoint's failure. Lives as long as the worker.
pub(super) struct Fault {
    pub(super) has_failed: Cell<bool>,
    pub(super) status: Cell<sys::ucs_status_t>,
    ends: NonNull<Ends>,
}

impl Operation {
    fn new(index: u32, ends: NonNull<Ends>) -> Self {
        Operation {
            kind: Cell::new(Kind::Send),
            token: Cell::new(0),
            peer: Cell::new(None),
            tag: Cell::new(0),
            is_synchronous: Cell::new(false),
            immediate: Cell::new(None),
            buffer: Cell::new(Buffer::default()),
            memory: Cell::new((ptr::null_mut(), 0)),
            registration: Cell::new(ptr::null()),
            request: Cell::new(ptr::null_mut()),
            cancelled_by: Cell::new(Canceller::Nobody),
            has_ended: Cell::new(false),
            status: Cell::new(sys::UCS_OK),
            length: Cell::new(0),
            index,
            next: Cell::new(ptr::null()),
            ends,
        }
    }

    pub(super) fn index(&self) -> Index {
        Index(self.index)
    }

    /// The argument that UCX passes to the callback.
    #[inline]
    pub(super) fn user_data(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Stores the buffer of the operation.
    #[inline]
    fn hold(&self, buffer: Buffer) {
        self.memory.set((buffer.as_ptr().cast_mut().cast(), buffer.len()));
        let registration = buffer.lent_memory().and_then(<dyn Any>::downcast_ref);
        self.registration.set(registration.map_or(ptr::null(), ptr::from_ref::<Registration>));
        self.buffer.set(buffer);
    }

    /// The buffer's first byte and length. UCX reads the buffer of a send and writes the buffer of
    /// a receive.
    #[inline]
    pub(super) fn memory(&self) -> (*mut c_void, usize) {
        self.memory.get()
    }

    /// UCX's handle of the buffer's memory, if that is registered with this context.
    #[inline]
    pub(super) fn registered_in(&self, context: &Arc<Context>) -> Option<sys::ucp_mem_h> {
        // SAFETY: null, or kept by the buffer, which the operation holds until its end.
        unsafe { self.registration.get().as_ref() }?.handle_in(context)
    }

    /// Appends the operation to the list of ended operations.
    #[inline]
    pub(super) fn end(&self, status: sys::ucs_status_t) {
        self.status.set(status);
        self.has_ended.set(true);
        // SAFETY: the list outlives all operations.
        let ends = unsafe { self.ends.as_ref() };
        let last = ends.last.replace(self);
        if last.is_null() {
            ends.first.set(self);
        } else {
            // SAFETY: an operation of the table, whose memory stays.
            unsafe { (*last).next.set(self) };
        }
    }
}

/// The table of operations. Slots are reused; their memory is freed with the table.
pub(super) struct Operations {
    chunks: Vec<NonNull<[Operation]>>,
    free: Vec<u32>,
    /// Number of operations that are under way, or have ended and are still on the list.
    pub(super) live: usize,
    ends: NonNull<Ends>,
    faults: Vec<NonNull<Fault>>,
}

impl Operations {
    pub(super) fn new() -> Self {
        let ends = Ends {
            first: Cell::new(ptr::null()),
            last: Cell::new(ptr::null()),
            faults: Cell::new(0),
        };
        Operations {
            chunks: Vec::new(),
            free: Vec::new(),
            live: 0,
            ends: NonNull::from(Box::leak(Box::new(ends))),
            faults: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn ends(&self) -> &Ends {
        // SAFETY: lives as long as the table.
        unsafe { self.ends.as_ref() }
    }

    /// A free slot for an operation with this buffer. Returns the buffer if there are too many
    /// operations.
    #[inline]
    pub(super) fn take(
        &mut self,
        kind: Kind,
        peer: Option<PeerId>,
        token: u64,
        buffer: Buffer,
    ) -> Result<&Operation, Buffer> {
        if self.free.is_empty() {
            self.grow();
        }
        let Some(index) = self.free.pop() else { return Err(buffer) };
        self.live += 1;
        let operation = self.at(Index(index));
        operation.kind.set(kind);
        operation.peer.set(peer);
        operation.token.set(token);
        operation.request.set(ptr::null_mut());
        operation.cancelled_by.set(Canceller::Nobody);
        operation.has_ended.set(false);
        operation.hold(buffer);
        Ok(operation)
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.room();
        if first >= OPERATIONS_MAX {
            return;
        }
        let indices = first..first + CHUNK;
        let chunk: Box<[Operation]> =
            indices.clone().map(|index| Operation::new(index, self.ends)).collect();
        self.chunks.push(NonNull::from(Box::leak(chunk)));
        self.free.extend(indices.rev());
    }

    /// Number of slots.
    fn room(&self) -> u32 {
        u32::try_from(self.chunks.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK)
    }

    #[inline]
    pub(super) fn at(&self, index: Index) -> &Operation {
        // SAFETY: allocated by `grow` and freed with the table; all is written through cells.
        let chunk = unsafe { self.chunks[(index.0 / CHUNK) as usize].as_ref() };
        &chunk[(index.0 % CHUNK) as usize]
    }

    /// Frees a slot.
    #[inline]
    pub(super) fn release(&mut self, index: Index) {
        self.live -= 1;
        self.free.push(index.0);
    }

    /// Takes the first operation off the list.
    #[inline]
    pub(super) fn next_end(&self) -> Option<&Operation> {
        let ends = self.ends();
        // SAFETY: null, or an operation of the table, whose memory stays.
        let first = unsafe { ends.first.get().as_ref() }?;
        let next = first.next.replace(ptr::null());
        ends.first.set(next);
        if next.is_null() {
            ends.last.set(ptr::null());
        }
        Some(first)
    }

    #[inline]
    pub(super) fn has_ends(&self) -> bool {
        !self.ends().first.get().is_null()
    }

    /// All operations that have not ended.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &Operation> {
        self.used().filter(|operation| !operation.has_ended.get())
    }

    /// All operations that have not ended, or whose end was not reported.
    pub(super) fn used(&self) -> impl Iterator<Item = &Operation> {
        let mut is_free = vec![false; self.room() as usize];
        for index in &self.free {
            is_free[*index as usize] = true;
        }
        let used = (0..self.room()).zip(is_free).filter(|(_, is_free)| !is_free);
        used.map(|(index, _)| self.at(Index(index)))
    }

    /// The argument for the callback of an endpoint's failure.
    pub(super) fn fault(&mut self) -> NonNull<Fault> {
        let fault =
            Fault { has_failed: Cell::new(false), status: Cell::new(sys::UCS_OK), ends: self.ends };
        let fault = NonNull::from(Box::leak(Box::new(fault)));
        self.faults.push(fault);
        fault
    }
}

impl Drop for Operations {
    /// Frees all slots. To be called when UCX's worker is gone, and with it all references to
    /// operations.
    fn drop(&mut self) {
        // SAFETY: all were leaked from boxes by this table, and nobody else has them any more.
        unsafe {
            for chunk in self.chunks.drain(..) {
                drop(Box::from_raw(chunk.as_ptr()));
            }
            for fault in self.faults.drain(..) {
                drop(Box::from_raw(fault.as_ptr()));
            }
            drop(Box::from_raw(self.ends.as_ptr()));
        }
    }
}

/// The callback for the end of a send.
pub(super) unsafe extern "C" fn sent(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    user_data: *mut c_void,
) {
    // SAFETY: the `user_data` of an operation, whose memory stays.
    unsafe { (*user_data.cast::<Operation>()).end(status) };
}

/// The callback for the end of a receive, cancelled ones included.
pub(super) unsafe extern "C" fn received(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    info: *const sys::ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: the `user_data` of an operation, whose memory stays; facts that live through the
    // call.
    unsafe {
        let operation = &*user_data.cast::<Operation>();
        if let Some(info) = info.as_ref() {
            operation.tag.set(info.sender_tag);
            operation.length.set(info.length);
        }
        operation.end(status);
    }
}

/// The callback for the failure of an endpoint.
pub(super) unsafe extern "C" fn failed(
    fault: *mut c_void,
    _endpoint: sys::ucp_ep_h,
    status: sys::ucs_status_t,
) {
    // SAFETY: what `Operations::fault` gave, which lives as long as the worker, as does the list.
    unsafe {
        let fault = &*fault.cast::<Fault>();
        fault.status.set(status);
        fault.has_failed.set(true);
        let ends = fault.ends.as_ref();
        ends.faults.set(ends.faults.get().saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_in_their_order_and_slots_are_used_again() {
        let mut table = Operations::new();
        let indices: Vec<Index> = (0..600u64)
            .map(|token| table.take(Kind::Receive, None, token, Buffer::default()).unwrap().index())
            .collect();
        assert_eq!(table.under_way().count(), 600);
        for index in indices.iter().rev() {
            let info = sys::ucp_tag_recv_info_t { sender_tag: 5, length: 6 };
            let user_data = table.at(*index).user_data();
            // SAFETY: an operation of this table.
            unsafe { received(ptr::null_mut(), -9, &raw const info, user_data) };
        }
        assert_eq!(table.under_way().count(), 0);
        for token in (0..600).rev() {
            let ended = table.next_end().unwrap();
            assert_eq!((ended.token.get(), ended.status.get()), (token, -9));
            assert_eq!((ended.tag.get(), ended.length.get()), (5, 6));
            let index = ended.index();
            table.release(index);
        }
        assert!(table.next_end().is_none() && !table.has_ends() && table.live == 0);
        let again = table.take(Kind::Send, Some(PeerId(1)), 9, Buffer::default()).unwrap();
        assert!(!again.has_ended.get() && table.chunks.len() == 3);
    }

    #[test]
    fn a_fault_is_counted() {
        let mut table = Operations::new();
        let fault = table.fault();
        // SAFETY: a fault of this table.
        unsafe { failed(fault.as_ptr().cast(), ptr::null_mut(), -80) };
        assert_eq!(table.ends().faults.get(), 1);
        // SAFETY: as above.
        assert!(unsafe { fault.as_ref() }.has_failed.get());
    }
}
